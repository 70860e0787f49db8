"""primitiv models: trees of named parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from difflib import get_close_matches
from itertools import islice
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from ..checks import mapping
from ..opened import Checkpoint, Path, open_for
from ..errors import MismatchError, UnknownNameError, UsageError, wrong_type
from ..tensor import Part
from ..verbs.converting import SaveReport
from ..writing import write
from .parameter import Parameter, gather, plain
from .tensor import expect_kind

Address = Tuple[Part, ...]
"""Names of the submodels from the root, then the name of the parameter."""

Names = Union[str, Part, Tuple[Part, ...]]

_MAX_SEARCHED = 5000
"""Largest number of addresses searched for similar ones."""


class LoadReport(NamedTuple):
    """Report of loading into a model."""

    replaced: List[Address]
    """Replaced parameters."""
    missing: List[Address]
    """Parameters missing from the file; they keep their values."""


class Model(MutableMapping):  # type: ignore[type-arg]
    """A tree of parameters: a mapping of addresses to parameters, in file order.

    `model["encoder.fc1.w"]` is a parameter, `model["encoder"]` a submodel. An address may be a tuple of its parts, for names
    that contain a dot. Assigned values may be a `Parameter`, an array, a `Model`, or a dict of these.

    >>> from weighbridge import primitiv
    >>> model = primitiv.Model()
    >>> model["encoder.fc1.w"] = [[1, 2], [3, 4]]
    >>> model["encoder"]["fc1", "b"] = [0, 0]
    >>> for address, parameter in model.walk():
    ...     print(".".join(address), parameter.shape)
    encoder.fc1.b Shape([2])
    encoder.fc1.w Shape([2, 2])
    >>> model
    <Model: 2 parameters, 6 values>
    """

    def __init__(self, content: Optional[Mapping[Any, Any]] = None) -> None:
        self._items: Dict[Part, Union[Parameter, Model]] = {}
        for address, value in mapping({} if content is None else content, "content").items():
            self[address] = value

    @classmethod
    def open(cls, path: Path, *, with_stats: bool = True, lenient: bool = False) -> Model:
        """Reads a model with the structure of the file. To load into an existing model, see `load`."""
        with open_for(path, format="primitiv", lenient=lenient) as opened:
            expect_kind(opened, "model")
            return cls.of(opened, with_stats=with_stats)

    @classmethod
    def of(cls, opened: Checkpoint, *, with_stats: bool = True) -> Model:
        """Makes a model of an opened checkpoint of any format, with optimizer state as stats."""
        model = cls()
        for address, parameter in gather(opened, with_stats):
            model[address] = parameter
        return model

    def add(self, name: Part, content: Any) -> None:
        """Adds a parameter or submodel under an unused name, as `Model.add` of primitiv does.

        >>> from weighbridge import primitiv
        >>> layer = primitiv.Model()
        >>> layer.add("w", primitiv.Parameter([1, 2]))
        >>> layer.add("w", [3])
        Traceback (most recent call last):
        ...
        weighbridge.errors.MismatchError: duplicate name of a parameter or submodel
          tensor:   w
        """
        name = plain(name)
        if name in self._items:
            raise MismatchError(
                "duplicate name of a parameter or submodel", code="name-taken", tensor=str(name)
            )
        self[(name,)] = content

    @property
    def parameters(self) -> Dict[Part, Parameter]:
        """Parameters directly in this model, by name, as a new dict."""
        return {name: item for name, item in self._items.items() if isinstance(item, Parameter)}

    @property
    def submodels(self) -> Dict[Part, Model]:
        """Submodels directly in this model, by name, as a new dict."""
        return {name: item for name, item in self._items.items() if isinstance(item, Model)}

    def walk(self) -> List[Tuple[Address, Parameter]]:
        """Returns addresses and parameters of the whole tree in file order: sorted by the bytes of the names, part by part."""
        found: List[Tuple[Address, Parameter]] = []
        self._walk((), found, [])
        return sorted(found, key=lambda pair: [_bytes(name) for name in pair[0]])

    def get_all_parameters(self) -> Dict[Address, Parameter]:
        """Returns the same as `walk`, as a dict; the name is that in primitiv."""
        return dict(self.walk())

    def _walk(self, above: Address, found: List[Tuple[Address, Parameter]], on_the_way: List[int]) -> None:
        if id(self) in on_the_way:
            raise UsageError("the model contains itself", code="model-in-itself", tensor=_text(above))
        on_the_way.append(id(self))
        for name, item in self._items.items():
            if isinstance(item, Parameter):
                found.append(((*above, name), item))
            else:
                item._walk((*above, name), found, on_the_way)
        on_the_way.pop()

    def __getitem__(self, address: Names) -> Any:
        holder, name = self._found(address)
        return holder._items[name]

    def _found(self, address: Names) -> Tuple[Model, Part]:
        place = self._place(address)
        if place is None:
            raise UnknownNameError(
                "the model has no parameter or submodel at this address",
                code="unknown-address",
                tensor=_text(address),
                hint=self._near(_text(address)),
            )
        return place

    def _near(self, text: str) -> Optional[str]:
        """Returns a hint with similar addresses."""
        known: Dict[str, None] = {}
        for address, _ in islice(self.walk(), _MAX_SEARCHED):
            known.update(dict.fromkeys(_text(address[:count]) for count in range(1, len(address) + 1)))
        near = get_close_matches(text, known)
        return f"did you mean {', '.join(near)}?" if near else None

    def _place(self, address: Names) -> Optional[Tuple[Model, Part]]:
        """Returns the model that contains an address, and the name in it; `None` if the address is unused."""
        if not isinstance(address, (str, bytes, tuple, list)):
            wrong_type(
                "an address",
                "a str such as 'fc1.w', or a tuple of its parts",
                address,
                hint="list(model) has the addresses, list(model.values()) the parameters",
            )
        if not isinstance(address, str) or address.startswith("["):
            parts = _parts(address)
            holder = self._follow(parts[:-1])
            return (
                (holder, parts[-1]) if parts and holder is not None and parts[-1] in holder._items else None
            )
        # A name may contain dots, so the text may be split in several ways.
        ways = list(self._ways(address))
        if len(ways) > 1:
            raise MismatchError(
                "ambiguous address: several match",
                code="ambiguous-name",
                tensor=address,
                hint="pass the parts as a tuple",
            )
        return ways[0] if ways else None

    def _follow(self, parts: Address) -> Optional[Model]:
        model = self
        for name in parts:
            item = model._items.get(name)
            if not isinstance(item, Model):
                return None
            model = item
        return model

    def _ways(self, text: str) -> Iterator[Tuple[Model, Part]]:
        if text in self._items:
            yield self, text
        for place, letter in enumerate(text):
            below = self._items.get(text[:place]) if letter == "." else None
            if isinstance(below, Model):
                yield from below._ways(text[place + 1 :])

    def __setitem__(self, address: Names, content: Any) -> None:
        item = _item(content)
        place = self._place(address)
        if place is None:
            place = self._made(_parts(address))
        holder, name = place
        if isinstance(holder._items.get(name), Model) and isinstance(item, Parameter):
            raise MismatchError("a submodel has this name", code="name-taken", tensor=_text(address))
        holder._items[name] = item

    def _made(self, parts: Address) -> Tuple[Model, Part]:
        """Creates the submodels of an unused address; returns the innermost one, and the name in it."""
        if not parts:
            raise UsageError("empty address", code="empty-path")
        model = self
        for count, name in enumerate(parts[:-1], 1):
            below = model._items.get(name)
            if isinstance(below, Parameter):
                raise MismatchError(
                    "a prefix of the address is a parameter", code="name-taken", tensor=_text(parts[:count])
                )
            model = model._items.setdefault(name, Model())  # type: ignore[assignment]
        return model, parts[-1]

    def __delitem__(self, address: Names) -> None:
        holder, name = self._found(address)
        del holder._items[name]

    def __contains__(self, address: object) -> bool:
        return isinstance(address, (str, bytes, tuple)) and self._place(address) is not None

    def __iter__(self) -> Iterator[Address]:
        return (address for address, _ in self.walk())

    def __len__(self) -> int:
        """Returns the number of parameters in the whole tree."""
        return len(self.walk())

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        """Returns true if addresses and parameters are equal, bit by bit."""
        if not isinstance(other, Model):
            return NotImplemented
        return self.get_all_parameters() == other.get_all_parameters()

    __hash__ = None  # type: ignore[assignment]

    def load(self, path: Path, *, with_stats: bool = True, lenient: bool = False) -> LoadReport:
        """Replaces the parameters of this model by those of a file, all or none of them, as when a program resumes.

        A parameter of another shape is an error; primitiv accepts it silently. An address that the model does not have is an
        error in both.

        >>> from weighbridge import primitiv
        >>> _ = primitiv.Model({"w": [1, 2]}).save("w.model")
        >>> model = primitiv.Model({"w": [0, 0], "b": [7]})
        >>> model.load("w.model")
        LoadReport(replaced=[('w',)], missing=[('b',)])
        >>> model["w"].value.tolist()
        [1.0, 2.0]
        """
        stored = Model.open(path, with_stats=with_stats, lenient=lenient).get_all_parameters()
        own = self.get_all_parameters()
        for address, parameter in stored.items():
            if address not in own:
                raise UnknownNameError(
                    "the model has no parameter at this address",
                    code="unknown-address",
                    file=str(path),
                    tensor=_text(address),
                )
            if own[address].shape != parameter.shape:
                raise MismatchError(
                    "the shape of the parameter differs from the file",
                    code="shape-differs",
                    file=str(path),
                    tensor=_text(address),
                    expected=repr(own[address].shape),
                    found=repr(parameter.shape),
                )
        for address, parameter in stored.items():
            own[address].value = parameter.value
            own[address].stats.clear()
            for name in parameter.stats:
                own[address].stats[name] = parameter.stats.tensor(name)
        return LoadReport(list(stored), [address for address in own if address not in stored])

    def save(self, path: Path, *, with_stats: bool = True, force: bool = False) -> SaveReport:
        """Writes a model file, atomically. A parameter at two addresses is written twice, as in primitiv.

        Submodels without parameters are not stored. `with_stats=False` omits the optimizer statistics.
        """
        tensors = [one for address, parameter in self.walk() for one in parameter.given(address, with_stats)]
        return write(path, tensors, "primitiv", "model", force=force)

    def __repr__(self) -> str:
        pairs = self.walk()
        values = sum(parameter.value.size for _, parameter in pairs)
        count = "1 parameter" if len(pairs) == 1 else f"{len(pairs):,} parameters"
        return f"<Model: {count}, {values:,} values>"


def _item(content: Any) -> Union[Parameter, Model]:
    if isinstance(content, (Parameter, Model)):
        return content
    if isinstance(content, Mapping):
        return Model(content)
    return Parameter(content)


def _parts(address: Names) -> Address:
    if isinstance(address, str):
        if address.startswith("["):
            try:
                parts = json.loads(address)
            except ValueError:
                parts = None
            if isinstance(parts, list) and all(isinstance(part, str) for part in parts):
                return tuple(parts)
        return tuple(address.split("."))
    if isinstance(address, bytes):
        return (plain(address),)
    return tuple(plain(name) for name in address)


def _bytes(name: Part) -> bytes:
    return name if isinstance(name, bytes) else name.encode("utf-8")


def _text(address: Names) -> str:
    if isinstance(address, (str, bytes)):
        return str(address)
    return ".".join(
        name if isinstance(name, str) else name.decode("utf-8", "backslashreplace") for name in address
    )
