"""primitiv parameters: a value with its optimizer statistics."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from ..opened import Checkpoint, Path, open_for
from ..errors import MismatchError
from ..tensor import Part
from ..writing import Given, write
from .tensor import Shape, Tensor, as_array, expect_kind

if TYPE_CHECKING:
    import numpy


def plain(name: Union[Part, Any]) -> Part:
    """Normalizes a name: bytes that are UTF-8 become `str`."""
    if isinstance(name, bytes):
        try:
            return name.decode("utf-8")
        except UnicodeDecodeError:
            return name
    if isinstance(name, str):
        return name
    raise TypeError(f"a name must be str or bytes, not {type(name).__name__}")


class Stats(MutableMapping):  # type: ignore[type-arg]
    """Optimizer statistics of a parameter: arrays by name, such as `Adam.m1`, in order."""

    def __init__(self) -> None:
        self._tensors: Dict[Part, Tensor] = {}

    def tensor(self, name: Part) -> Tensor:
        """Returns a statistic with its shape and batch."""
        return self._tensors[plain(name)]

    def __getitem__(self, name: Part) -> numpy.ndarray:
        return self._tensors[plain(name)].numpy()

    def __setitem__(self, name: Part, value: Any) -> None:
        self._tensors[plain(name)] = value if isinstance(value, Tensor) else Tensor(value)

    def __delitem__(self, name: Part) -> None:
        del self._tensors[plain(name)]

    def __iter__(self) -> Iterator[Part]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stats) and self._tensors == other._tensors

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Stats: {', '.join(str(name) for name in self) or 'none'}>"


class Parameter:
    """A trained value with its optimizer statistics.

    >>> from weighbridge import primitiv
    >>> parameter = primitiv.Parameter([[1, 2], [3, 4]])
    >>> parameter.stats["MomentumSGD.m"] = [[0, 0], [0, 1]]
    >>> parameter
    <Parameter: Shape([2, 2]), stats MomentumSGD.m>
    >>> parameter.save("w.param")
    >>> primitiv.load("w.param") == parameter
    True
    """

    __slots__ = ("_stats", "_value")

    def __init__(self, value: Any, stats: Optional[Mapping[Part, Any]] = None) -> None:
        self._value = self._checked(value)
        self._stats = Stats()
        for name, stat in (stats or {}).items():
            self._stats[name] = stat

    @staticmethod
    def _checked(value: Any) -> numpy.ndarray:
        if isinstance(value, Tensor):
            if value.batch != 1:
                raise MismatchError(
                    "the value of a parameter cannot be a batch",
                    code="batched-parameter",
                    expected="batch 1",
                    found=f"batch {value.batch}",
                )
            return value.numpy()
        return as_array(value)

    @classmethod
    def open(cls, path: Path, *, with_stats: bool = True, lenient: bool = False) -> Parameter:
        """Reads a parameter file."""
        with open_for(path, format="primitiv", lenient=lenient) as opened:
            expect_kind(opened, "parameter")
            return cls.of(opened, with_stats=with_stats)

    @classmethod
    def of(cls, opened: Checkpoint, *, with_stats: bool = True) -> Parameter:
        """Makes a parameter of an opened checkpoint of any format that has exactly one, with its state as stats."""
        paths = {tensor.path for tensor in opened.values()}
        if len(paths) != 1:
            raise MismatchError(
                "the file does not have exactly one parameter",
                code="one-parameter",
                file=opened.path,
                found=str(len(paths)),
            )
        return gather(opened, with_stats)[0][1]

    @property
    def value(self) -> numpy.ndarray:
        """Values, as an array that may be changed in place. An assigned array may have another shape only without stats."""
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        checked = self._checked(value)
        if len(self._stats) and checked.shape != self._value.shape:
            raise MismatchError(
                "the stats of the parameter have another shape",
                code="shape-differs",
                expected=str(list(self._value.shape)),
                found=str(list(checked.shape)),
                hint="clear them first: parameter.stats.clear()",
            )
        self._value = checked

    @property
    def shape(self) -> Shape:
        """Shape; the batch of a parameter is always 1."""
        return Shape(self._value.shape)

    @property
    def stats(self) -> Stats:
        """Optimizer statistics: arrays by name."""
        return self._stats

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> numpy.ndarray:
        # For numpy: `copy=False` forbids a copy; older versions of numpy do not pass `copy`.
        value = self._value if dtype is None else self._value.astype(dtype, copy=False)
        if copy is False and value is not self._value:
            raise ValueError("a conversion to another dtype needs a copy")
        return value.copy() if copy else value

    def save(self, path: Path, *, with_stats: bool = True, force: bool = False) -> None:
        """Writes a parameter file, atomically."""
        write(path, self.given(("value",), with_stats), "primitiv", "parameter", force=force)

    def given(self, address: Tuple[Part, ...], with_stats: bool) -> List[Given]:
        """Converts to the form of the native part, under this address."""
        stats = self._stats if with_stats else ()
        own = Tensor(self._value).given(address, None)
        return [own, *(self._stats.tensor(name).given(address, name) for name in stats)]

    def __eq__(self, other: object) -> bool:
        """Returns true if shape, bits and stats are equal, in any order of the stats."""
        if not isinstance(other, Parameter):
            return NotImplemented
        return Tensor(self._value) == Tensor(other._value) and self._stats == other._stats

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        names = ", ".join(str(name) for name in self._stats)
        return f"<Parameter: {self.shape!r}{', stats ' + names if names else ''}>"


def gather(opened: Checkpoint, with_stats: bool) -> List[Tuple[Tuple[Part, ...], Parameter]]:
    """Returns the parameters of an opened checkpoint by address, with their stats. Raises for state without a parameter."""
    found: Dict[Tuple[Part, ...], Parameter] = {}
    for tensor in opened.values():
        if tensor.slot is None:
            found[tensor.path] = Parameter(Tensor.of(tensor))
    for tensor in opened.values():
        if tensor.slot is None or not with_stats:
            continue
        if tensor.path not in found:
            raise MismatchError(
                "optimizer state without its parameter",
                code="state-without-parameter",
                file=opened.path,
                tensor=tensor.name,
            )
        found[tensor.path].stats[tensor.slot] = Tensor.of(tensor)
    return list(found.items())
