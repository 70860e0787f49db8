"""`info`, `ls`, `show` and `stats`: what is in a file."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Dict, Iterator, List, Literal, NamedTuple, Optional, Tuple, Union

from ..opened import Note, Path
from ..tensor import Part
from .given import NameStyle, Pairs, Some, run
from .report import Report, count, extents, named, notes, number, parts_of, picked, table


class Tally(NamedTuple):
    """How much there is of something."""

    tensors: int
    elements: int
    bytes: int


class Info(Report):
    """What a file is."""

    @property
    def path(self) -> str:
        """The path under which it was opened."""
        return self._document["path"]

    @property
    def format(self) -> str:
        """The format, such as `safetensors`."""
        return self._document["format"]

    @property
    def kind(self) -> str:
        """Which file of the format's family it is."""
        return self._document["kind"]

    @property
    def tensors(self) -> int:
        """How many tensors there are."""
        return self._document["tensors"]

    @property
    def parameters(self) -> int:
        """How many elements are trained: without buffers, and tied tensors once."""
        return self._document["parameters"]

    @cached_property
    def tied(self) -> Dict[str, str]:
        """The tensors that share the bytes of an earlier one, with the name of the first."""
        return {own["name"]: own["of"] for own in self._document["tied"]}

    @property
    def bytes(self) -> int:
        """The bytes of all tensors together."""
        return self._document["bytes"]

    @property
    def file_bytes(self) -> int:
        """The bytes of all files together."""
        return self._document["file_bytes"]

    @cached_property
    def roles(self) -> Dict[str, Tally]:
        """How much there is of each role, such as `parameter`."""
        return {name: picked(Tally, tally) for name, tally in self._document["roles"].items()}

    @cached_property
    def dtypes(self) -> Dict[str, Tally]:
        """How much there is of each type of elements."""
        return {name: picked(Tally, tally) for name, tally in self._document["dtypes"].items()}

    @property
    def metadata(self) -> Dict[str, Any]:
        """What the file says besides its tensors."""
        return self.to_dict()["metadata"]

    @property
    def damage(self) -> Optional[Dict[str, Any]]:
        """What was lost, where the file is damaged and was salvaged."""
        return self.to_dict().get("damage")

    @cached_property
    def notes(self) -> Tuple[Note, ...]:
        """What is odd about it."""
        return notes(self._document)

    def _summary(self) -> str:
        form, tensors = f"{self.format} {self.kind}", count(self.tensors, "tensor")
        return f"{self.path}: {form}, {tensors}, {self.parameters:,} parameters, {self.bytes:,} bytes"


def info(
    path: Path,
    *,
    from_: Optional[str] = None,
    lenient: bool = False,
    salvage: bool = False,
    follow_virtual: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
) -> Info:
    """What a file or folder is, how many tensors it has, how large, and what is odd about it.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> weighbridge.info("net.safetensors")
    <Info net.safetensors: safetensors single, 3 tensors, 14 parameters, 64 bytes>
    """
    return Info(*run("info", locals()))


class Listed(NamedTuple):
    """A tensor in a list."""

    name: str
    path: Tuple[Part, ...]
    role: str
    slot: Optional[Part]
    dtype: str
    shape: Tuple[int, ...]
    order: str
    bytes: int
    sha256: Optional[str]
    """With `hash=True`; equal tensors have equal hashes in every format."""
    pieces: Optional[Tuple[Dict[str, Any], ...]]
    """With `pieces=True`: where the bytes are."""


class Listing(Report):
    """The tensors of a file."""

    @property
    def path(self) -> str:
        """The path under which it was opened."""
        return self._document["path"]

    @property
    def format(self) -> str:
        """The format, such as `safetensors`."""
        return self._document["format"]

    @property
    def kind(self) -> str:
        """Which file of the format's family it is."""
        return self._document["kind"]

    @cached_property
    def tensors(self) -> Tuple[Listed, ...]:
        """The tensors, in the order of the file."""
        return tuple(_listed(tensor) for tensor in self._document["tensors"])

    @cached_property
    def groups(self) -> Dict[str, Tally]:
        """With `group=N`: how much there is below each prefix of N parts."""
        return {own["name"]: picked(Tally, own) for own in self._document.get("groups", [])}

    @cached_property
    def notes(self) -> Tuple[Note, ...]:
        """What is odd about the file."""
        return notes(self._document)

    def __len__(self) -> int:
        return len(self._document["tensors"])

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, name: str) -> Listed:
        return named(self.tensors, name)

    def __iter__(self) -> Iterator[Listed]:
        return iter(self.tensors)

    def _summary(self) -> str:
        return f"{self.path}: {self.format} {self.kind}, {count(len(self), 'tensor')}"

    def _repr_html_(self) -> str:
        heads = ("name", "role", "dtype", "shape", "bytes")
        rows = ((t.name, t.role, t.dtype, extents(t.shape), t.bytes) for t in self.tensors)
        return table(self._summary(), heads, rows, len(self))


def _listed(tensor: Dict[str, Any]) -> Listed:
    slot = tensor.get("slot")
    own = parts_of((slot,))[0] if slot is not None else None
    return picked(Listed, tensor)._replace(path=parts_of(tensor["path"]), slot=own)


def ls(
    path: Path,
    *,
    select: Some = None,
    drop: Some = None,
    sort: Optional[Literal["name", "size", "dtype"]] = None,
    group: Optional[int] = None,
    hash: bool = False,  # noqa: A002
    pieces: bool = False,
    from_: Optional[str] = None,
    lenient: bool = False,
    salvage: bool = False,
    follow_virtual: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
) -> Listing:
    """The tensors of a file or folder.

    - `select`, `drop`: only those whose names match one of these patterns, or none (`*` is any characters);
    - `sort`: by name, by size (largest first) or by type of elements;
    - `group`: also `groups`: totals by the first N parts of the names;
    - `hash`: the SHA-256 of each tensor's elements;
    - `pieces`: where the bytes are.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> listing = weighbridge.ls("net.safetensors", select="fc1.*", hash=True)
    >>> [(tensor.name, tensor.shape, tensor.sha256[:8]) for tensor in listing]
    [('fc1.bias', (2,), '872d303e'), ('fc1.weight', (4, 3), '29e18891')]
    """
    return Listing(*run("ls", locals()))


class Shown(Report):
    """The values of a tensor, or of a slice of it."""

    @property
    def name(self) -> str:
        """The tensor's name."""
        return self._document["name"]

    @property
    def dtype(self) -> str:
        """The type of the elements."""
        return self._document["dtype"]

    @property
    def shape(self) -> Tuple[int, ...]:
        """The shape of the slice."""
        return tuple(self._document["shape"])

    @cached_property
    def values(self) -> Any:
        """The values, as nested lists of numbers."""
        return _values(self._document["values"], len(self.shape), self.dtype in ("c64", "c128"))

    def _summary(self) -> str:
        return f"{self.name}: {self.dtype} {list(self.shape)}"


def _values(value: Any, depth: int, is_complex: bool) -> Any:
    if depth > 0:
        return [_values(own, depth - 1, is_complex) for own in value]
    if is_complex:
        return complex(number(value[0]) or 0.0, number(value[1]) or 0.0)
    return number(value)


def show(
    path: Path,
    name: Optional[str] = None,
    *,
    from_: Optional[str] = None,
    lenient: bool = False,
    salvage: bool = False,
    follow_virtual: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
) -> Shown:
    """The values of a tensor, or of a slice that follows its name: at most a million. The only tensor of a file needs no
    name.

    For arrays take `weighbridge.open(path)[name][...]`.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> weighbridge.show("net.safetensors", "fc1.weight[1:3, ::2]").values
    [[3.0, 5.0], [6.0, 8.0]]
    """
    return Shown(*run("show", locals()))


class Histogram(NamedTuple):
    """How many values lie in each part of a range."""

    min: float
    max: float
    counts: Tuple[int, ...]


class TensorStats(NamedTuple):
    """What the values of a tensor are like. Range, mean and deviation are over the finite ones."""

    name: str
    path: Tuple[Part, ...]
    dtype: str
    count: int  # type: ignore[assignment]
    finite: int
    min: Union[None, int, float]
    max: Union[None, int, float]
    mean: Optional[float]
    std: Optional[float]
    zeros: int
    nan: int
    pos_inf: int
    neg_inf: int
    subnormal: int
    all_equal: bool
    histogram: Optional[Histogram]


class StatsReport(Report):
    """What the values of tensors are like: by name, or one after another in `tensors`."""

    @property
    def path(self) -> str:
        """The path under which the file was opened."""
        return self._document["path"]

    @cached_property
    def tensors(self) -> Tuple[TensorStats, ...]:
        """The tensors, in the order of the file."""
        return tuple(_stats(tensor) for tensor in self._document["tensors"])

    def __getitem__(self, name: str) -> TensorStats:
        return named(self.tensors, name)

    def __len__(self) -> int:
        return len(self._document["tensors"])

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[TensorStats]:
        return iter(self.tensors)

    def _summary(self) -> str:
        return f"{self.path}: {count(len(self), 'tensor')}"

    def _repr_html_(self) -> str:
        heads = ("name", "dtype", "count", "min", "max", "mean", "std", "zeros", "NaN", "Inf")
        rows: Iterator[List[object]] = (
            [t.name, t.dtype, t.count, t.min, t.max, t.mean, t.std, t.zeros, t.nan, t.pos_inf + t.neg_inf]
            for t in self.tensors
        )
        return table(self._summary(), heads, rows, len(self))


def _stats(tensor: Dict[str, Any]) -> TensorStats:
    drawn = tensor.get("histogram")
    found = picked(TensorStats, tensor)
    return found._replace(
        path=parts_of(tensor["path"]),
        min=number(found.min),
        max=number(found.max),
        histogram=None if drawn is None else picked(Histogram, drawn),
    )


def stats(
    path: Path,
    name: Optional[str] = None,
    *,
    bins: int = 20,
    from_: Optional[str] = None,
    lenient: bool = False,
    salvage: bool = False,
    follow_virtual: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
) -> StatsReport:
    """Minimum, maximum, mean, deviation, zeros, NaN, infinities and a histogram of the tensor `name`, of
    those that match it as a pattern, or of all.

    - `bins`: of the histogram.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> report = weighbridge.stats("net.safetensors", "fc1.*", bins=2)
    >>> report["fc1.weight"].mean, report["fc1.weight"].histogram.counts
    (5.5, (6, 6))
    """
    return StatsReport(*run("stats", locals()))
