"""Opened checkpoints."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterator,
    List,
    NamedTuple,
    NoReturn,
    Optional,
    Tuple,
    Union,
)

from ._weighbridge import Entry, Index, Program, open_index
from .checks import mapping, optional_text, path_text, whole
from .errors import (
    ArgumentTypeError,
    CorruptFileError,
    Error,
    UnknownNameError,
    UnsupportedError,
    UsageError,
    naming,
    visible,
    wrong_type,
)
from .tensor import Part, Tensor
from .tree import Tree, build

if TYPE_CHECKING:
    from .paddle.program import Program as ProgramFace

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
"""Where a file or folder is."""

Name = Union[str, Tuple[Part, ...]]
"""What names a tensor: `"fc1.w"`, a path as JSON `'["fc1","w"]'`, or the parts as a tuple `("fc1", "w")`."""


_OPTIONS: Dict[str, Any] = {
    "format": None,
    "lenient": False,
    "salvage": False,
    "follow_virtual": False,
    "program": None,
    "names": "as-stored",
    "entities": None,
    "config": None,
    "at": None,
    "limits": None,
}
"""What `open` takes besides a path, and what it is if left out."""


class Note(NamedTuple):
    """Something worth knowing about an opened file."""

    code: str
    """Stable, for programs."""
    text: str
    """For people."""
    omission: bool
    """True where a part of the file is not in the index, so that a conversion would lose it."""


class Checkpoint(Mapping):  # type: ignore[type-arg]
    """An opened file or folder: a mapping of names to tensors, in the order of the file.

    >>> import weighbridge
    >>> with weighbridge.open("net.safetensors") as checkpoint:
    ...     print(checkpoint)
    ...     print(list(checkpoint))
    ...     bias = checkpoint["fc1", "bias"].numpy()
    <Checkpoint net.safetensors: safetensors single, 3 tensors, 64 bytes>
    ['steps', 'fc1.bias', 'fc1.weight']
    >>> bias.tolist()
    [0.5, 1.5]

    Closing it, or leaving the `with`, forgets the file. Tensors and arrays that were taken before stay valid.
    """

    def __init__(self, index: Index, path: Optional[str] = None) -> None:
        self._opened: Optional[Index] = index
        self._path = path
        self._keys: Optional[List[str]] = None
        self._places: Dict[str, int] = {}
        self._paths: Optional[Dict[Tuple[Tuple[Part, ...], Optional[Part]], int]] = None

    @property
    def _index(self) -> Index:
        if self._opened is None:
            raise UsageError("the checkpoint is closed", code="closed", hint="open it again")
        return self._opened

    @property
    def path(self) -> str:
        """The path under which it was opened."""
        label = self._index.label
        return label if self._path is None else self._path

    @property
    def format(self) -> str:
        """The format, such as `primitiv`, `paddle`, `biggraph`, `safetensors`, `torch`."""
        return self._index.format

    @property
    def kind(self) -> str:
        """Which file of the format's family it is, such as `model`."""
        return self._index.kind

    @property
    def origin(self) -> Optional[Tuple[str, str]]:
        """Format and kind that it had before it was put into this form, where that is known."""
        return self._index.origin

    @property
    def metadata(self) -> Dict[str, Any]:
        """What it says besides its tensors. A new dict each time: changes of it go nowhere."""
        return self._index.metadata

    @property
    def program(self) -> Optional[Program]:
        """The program that belongs to the tensors, where there is one."""
        return self._index.program

    @property
    def notes(self) -> List[Note]:
        """What is odd about it, was guessed, or was left out."""
        return [Note(*note) for note in self._index.notes]

    @property
    def damage(self) -> Optional[Dict[str, Any]]:
        """What was lost, where it was salvaged from a damaged file (`salvage=True`)."""
        return self._index.damage

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors together."""
        return self._index.nbytes

    def to_dict(self) -> Dict[str, Any]:
        """What the command's `ls --json` says."""
        return self._index.to_dict()

    def tree(self) -> Tree:
        """The tensors as a tree of the parts of their names; printed, it is drawn.

        >>> import weighbridge
        >>> print(weighbridge.open("net.safetensors").tree())
        ├─ steps  i64 []
        └─ fc1
           ├─ bias  f32 [2]
           └─ weight  f32 [4, 3]
        """
        return build(self.values())

    def tensor(self, name: Name, slot: Optional[Part] = None) -> Tensor:
        """The tensor of that name or path; with `slot`, the state of that name that an optimizer keeps for
        it.

        Raises `UnknownNameError`, a `KeyError`, where there is none, with the nearest names as `hint`.
        """
        return Tensor(self._index.entry(self._place(name, slot)))

    def __getitem__(self, name: Name) -> Tensor:
        return self.tensor(name)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, (str, tuple, list)):
            return False
        try:
            self._place(name, None)  # type: ignore[arg-type]
        except (UnknownNameError, ArgumentTypeError):
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._index)

    def __bool__(self) -> bool:
        # One that is open is true, also where it holds no tensor.
        return True

    def __eq__(self, other: object) -> bool:
        # Not as a mapping: tensors are not compared element by element in passing.
        return self is other

    __hash__ = object.__hash__

    def _names(self) -> List[str]:
        index = self._index
        if self._keys is None:
            keys = index.keys()
            self._places = {key: place for place, key in enumerate(keys)}
            self._keys = keys
        return self._keys

    def _place(self, name: Name, slot: Optional[Part]) -> int:
        if isinstance(name, str) and slot is None:
            self._names()
            place = self._places.get(name)
            return self._index.find(_utf8(name)) if place is None else place
        if isinstance(name, str):
            path = self.tensor(name).path
        elif isinstance(name, (tuple, list)):
            path = tuple(name)
            for part in path:
                if not isinstance(part, (str, bytes)):
                    wrong_type(
                        "a part of a name", "a str, or bytes where it is no UTF-8", part, code="bad-name"
                    )
        else:
            wrong_type("a name", "a str, or a tuple of its parts", name, code="bad-name")
        paths = self._paths
        if paths is None:
            # Filled before others see it: they may be asking, too.
            paths = {}
            for place, pair in enumerate(self._index.paths()):
                paths.setdefault(pair, place)
            self._paths = paths
        place = paths.get((path, slot))
        if place is None:
            shown = ".".join(part if isinstance(part, str) else repr(part) for part in path)
            hint = self._near(shown if slot is None else f"{shown}/{slot!s}")
            raise UnknownNameError(
                "there is no tensor of this path",
                code="no-such-tensor",
                file=self._index.label,
                tensor=shown if slot is None else f"{shown}/{slot!s}",
                hint=hint,
            )
        return place

    def _near(self, name: str) -> Optional[str]:
        try:
            self._index.find(_utf8(name))
        except UnknownNameError as error:
            if error.code == "lost-tensor":
                raise
            return error.hint
        return f"there is {name}, whose parts are others"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an opened checkpoint cannot be pickled: open its path again in each process")

    def close(self) -> None:
        """Forgets the file. What was taken from it before stays valid."""
        self._opened = None
        self._keys = None
        self._places = {}
        self._paths = None

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._opened is None:
            return "<Checkpoint: closed>"
        count = len(self)
        tensors = "1 tensor" if count == 1 else f"{count:,} tensors"
        what = f"{self.format} {self.kind}, {tensors}, {self.nbytes:,} bytes"
        return f"<Checkpoint {visible(self.path)}: {what}>"

    def _repr_html_(self) -> str:
        from .html import table

        return table(self)


def open(  # noqa: A001
    path: Path,
    *,
    format: Optional[str] = None,  # noqa: A002
    lenient: bool = False,
    salvage: bool = False,
    follow_virtual: bool = False,
    program: Union[Path, Program, ProgramFace, None] = None,
    names: str = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limits: Optional[Mapping[str, int]] = None,
) -> Checkpoint:
    """Opens a model file or folder. Headers are read, never elements; the content tells the format.

    - `format`: the id of the format, where the content does not tell;
    - `lenient`: read what can be read without a guess though the file breaks a rule, and note it;
    - `salvage`: of a damaged file give the tensors that are intact, and say in `damage` which are lost;
    - `follow_virtual`: read virtual datasets of HDF5 from the files in the same folder that they are made of;
    - `program`: the program that Paddle's parameters belong to, where it does not stand beside them: its
      path, or one that was read (`weighbridge.paddle.load_program`);
    - `names`: `as-stored`, `structured` or `variable`: which names tensors go by, where several are known;
    - `entities`, `config`: the folder of entities and the configuration of PyTorch-BigGraph, where they are
      not found;
    - `at`: the version of a folder that holds several;
    - `limits`: what the file may ask for, by name: `weighbridge.Limits(header_bytes=500_000_000)`, or a dict.

    >>> import weighbridge
    >>> checkpoint = weighbridge.open("net.safetensors")
    >>> checkpoint.format, len(checkpoint), checkpoint["steps"].shape
    ('safetensors', 3, ())
    """
    options = opening(
        format=format,
        lenient=lenient,
        salvage=salvage,
        follow_virtual=follow_virtual,
        program=program,
        names=names,
        entities=entities,
        config=config,
        at=at,
        limits=limits,
    )
    return _opened(path_text(path, "path"), options, True)


def open_for(path: Path, **options: Any) -> Checkpoint:
    """What `open` gives, for functions of single formats: hints say which options `open` has besides."""
    return _opened(path_text(path, "path"), opening(**options), False)


def _opened(path: str, options: Dict[str, Any], by_open: bool) -> Checkpoint:
    with naming(path):
        try:
            return Checkpoint(open_index(path, options, by_open), path)
        except (CorruptFileError, UnsupportedError) as error:
            if options["format"] is not None:
                _what_it_is(error, path, options)
            raise


def _what_it_is(error: Error, path: str, options: Dict[str, Any]) -> None:
    """Says in the error of a file that was to be of one format that it is of another, where it is."""
    try:
        found = open_index(path, {**options, "format": None})
    except Error:
        return
    if found.format != options["format"]:
        what = f"this is a file of {found.format}, {found.kind}"
        error.hint = f"{what}: weighbridge.open(path) tells the format by the content"


def opening(**options: Any) -> Dict[str, Any]:
    """The options of `open`, all of them, as the Rust part takes them; for the other modules of this package.

    Raises `TypeError` for what is no option.

    >>> opening(lenient=True)["lenient"], opening()["names"]
    (True, 'as-stored')
    """
    known_options(options, "open")
    known = dict(_OPTIONS)
    known.update(options)
    if known["limits"] is not None:
        known["limits"] = mapping(known["limits"], "limits")
        for name, value in known["limits"].items():
            whole(value, f"the limit {name}")
    for name in ("format", "names"):
        optional_text(known[name], name)
    for name in ("entities", "config"):
        if known[name] is not None:
            known[name] = path_text(known[name], name)
    if known["program"] is not None:
        known["program"] = _program(known["program"])
    if known["at"] is not None:
        whole(known["at"], "at")
    return known


def known_options(options: Mapping[str, Any], asked: str, *own: str) -> None:
    """Raises `TypeError` for what is no option of `open`, nor one of the function `asked` itself.

    >>> known_options({"cast": "f16"}, "buckets")
    Traceback (most recent call last):
    TypeError: buckets() has no option 'cast'; it has format, lenient, salvage, follow_virtual, program,
    names, entities, config, at, limits
    """
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(f"{asked}() has no option {name!r}; it has {', '.join((*own, *_OPTIONS))}")


def _program(value: Any) -> Union[Program, str]:
    """A program that was read, as the Rust part has it, or the path of one."""
    read = getattr(value, "_program", value)
    return read if isinstance(read, Program) else path_text(value, "program")


def _utf8(name: str) -> str:
    """The name, where a file can have it: no text of UTF-8 holds halves of characters."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise UnknownNameError(
            "there is no tensor of this name, which is no UTF-8",
            code="no-such-tensor",
            tensor=name,
            hint="a part that is no UTF-8 is given as bytes, in a tuple of the parts",
        ) from None
    return name


def entry_of(tensor: Tensor) -> Entry:
    """What the Rust part knows of a tensor; for the other modules of this package."""
    return tensor._entry


def index_of(checkpoint: Checkpoint) -> Index:
    """What the Rust part knows of a checkpoint; for the other modules of this package."""
    return checkpoint._index
