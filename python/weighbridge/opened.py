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
"""Path of a file or folder."""

Name = Union[str, Tuple[Part, ...]]
"""Name of a tensor: `"fc1.w"`, a path as JSON `'["fc1","w"]'`, or the parts as a tuple `("fc1", "w")`."""


_OPTIONS: Dict[str, Any] = {
    "format": None,
    "lenient": False,
    "salvage": False,
    "follow_virtual": False,
    "dequantize": False,
    "program": None,
    "names": "as-stored",
    "entities": None,
    "config": None,
    "at": None,
    "limits": None,
}
"""Options of `open` with their defaults."""


class Note(NamedTuple):
    """A note about an opened file."""

    code: str
    """Stable code, for programs."""
    text: str
    """Text for readers."""
    omission: bool
    """True if a part of the file is not in the index: a conversion would lose it."""


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

    Closing it, or leaving the `with` block, releases the file. Tensors and arrays obtained before stay valid.
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
        """Path passed to `open`."""
        label = self._index.label
        return label if self._path is None else self._path

    @property
    def format(self) -> str:
        """Id of the format, such as `primitiv`, `paddle`, `biggraph`, `safetensors`, `torch`."""
        return self._index.format

    @property
    def kind(self) -> str:
        """Kind of file within the format, such as `model`."""
        return self._index.kind

    @property
    def origin(self) -> Optional[Tuple[str, str]]:
        """Format and kind of the original, if the file was converted and records them."""
        return self._index.origin

    @property
    def metadata(self) -> Dict[str, Any]:
        """Metadata besides the tensors. A new dict on each access: changes to it have no effect."""
        return self._index.metadata

    @property
    def program(self) -> Optional[Program]:
        """Program stored with the tensors; `None` if there is none."""
        return self._index.program

    @property
    def notes(self) -> List[Note]:
        """Notes about irregularities, guesses and omitted parts."""
        return [Note(*note) for note in self._index.notes]

    @property
    def damage(self) -> Optional[Dict[str, Any]]:
        """Damage report of a salvaged file (`salvage=True`); `None` if nothing was lost."""
        return self._index.damage

    @property
    def nbytes(self) -> int:
        """Size of all tensors together, in bytes."""
        return self._index.nbytes

    def to_dict(self) -> Dict[str, Any]:
        """Document of `ls --json`, as a dict."""
        return self._index.to_dict()

    def tree(self) -> Tree:
        """Returns the tensors as a tree by the parts of their names. Its `str` is a drawing.

        >>> import weighbridge
        >>> print(weighbridge.open("net.safetensors").tree())
        ├─ steps  i64 []
        └─ fc1
           ├─ bias  f32 [2]
           └─ weight  f32 [4, 3]
        """
        return build(self.values())

    def tensor(self, name: Name, slot: Optional[Part] = None) -> Tensor:
        """Returns the tensor with this name or path; with `slot`, the optimizer state of that slot for it.

        Raises `UnknownNameError`, a `KeyError`, if there is none; `hint` has the nearest names.
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
        # Always true, even without tensors.
        return True

    def __eq__(self, other: object) -> bool:
        # By identity, not as a mapping: a comparison of mappings would read all elements.
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
                        "a part of a name", "a str, or bytes if it is not UTF-8", part, code="bad-name"
                    )
        else:
            wrong_type("a name", "a str, or a tuple of its parts", name, code="bad-name")
        paths = self._paths
        if paths is None:
            # Complete before it is published: other threads may use it.
            paths = {}
            for place, pair in enumerate(self._index.paths()):
                paths.setdefault(pair, place)
            self._paths = paths
        place = paths.get((path, slot))
        if place is None:
            shown = ".".join(part if isinstance(part, str) else repr(part) for part in path)
            hint = self._near(shown if slot is None else f"{shown}/{slot!s}")
            raise UnknownNameError(
                "no tensor has this path",
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
        return f"{name} exists, but its path has other parts"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an opened checkpoint cannot be pickled: open its path in each process")

    def close(self) -> None:
        """Releases the file. Tensors and arrays obtained before stay valid."""
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
    dequantize: bool = False,
    program: Union[Path, Program, ProgramFace, None] = None,
    names: str = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limits: Optional[Mapping[str, int]] = None,
) -> Checkpoint:
    """Opens a model file or folder. Reads headers only, no elements.

    - `format`: id of the format; detected from the content by default;
    - `lenient`: accept rule violations that need no guess, and report them in `notes`;
    - `salvage`: open a damaged file with its intact tensors; `damage` lists the lost ones;
    - `follow_virtual`: read HDF5 virtual datasets from their source files in the same folder;
    - `dequantize`: list the values of quantized GGUF tensors as float32, instead of their blocks;
    - `program`: program of Paddle parameters stored without one: its path, or a program that was read
      (`weighbridge.paddle.load_program`);
    - `names`: naming of tensors that have several names: `as-stored`, `structured` or `variable`;
    - `entities`, `config`: folder of entities and configuration file of PyTorch-BigGraph, if they are not found
      automatically;
    - `at`: version to open, of a folder with several versions;
    - `limits`: resource limits by name: `weighbridge.Limits(header_bytes=500_000_000)`, or a dict.

    Raises a subclass of `Error`: `FileMissingError`, `CorruptFileError`, `UnsupportedError`, `LimitError` and others.

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
        dequantize=dequantize,
        program=program,
        names=names,
        entities=entities,
        config=config,
        at=at,
        limits=limits,
    )
    return _opened(path_text(path, "path"), options, True)


def open_for(path: Path, **options: Any) -> Checkpoint:
    """As `open`, for format-specific functions: hints refer to `open` for options that these lack."""
    return _opened(path_text(path, "path"), opening(**options), False)


def _opened(path: str, options: Dict[str, Any], by_open: bool) -> Checkpoint:
    with naming(path):
        try:
            return Checkpoint(open_index(path, options, by_open), path)
        except (CorruptFileError, UnsupportedError) as error:
            if options["format"] is not None:
                _hint_at_format(error, path, options)
            raise


def _hint_at_format(error: Error, path: str, options: Dict[str, Any]) -> None:
    """Adds a hint to the error if the file has another format than the requested one."""
    try:
        found = open_index(path, {**options, "format": None})
    except Error:
        return
    if found.format != options["format"]:
        what = f"the file has the format {found.format} ({found.kind})"
        error.hint = f"{what}; weighbridge.open(path) detects it"


def opening(**options: Any) -> Dict[str, Any]:
    """Completes and checks the options of `open` for the native part.

    Raises `TypeError` for an unknown option.

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
    """Raises `TypeError` for an option that `open` does not have. `own` are the options of the function `asked` itself.

    >>> known_options({"cast": "f16"}, "buckets")
    Traceback (most recent call last):
    TypeError: buckets() has no option 'cast'; it has format, lenient, salvage, follow_virtual, dequantize,
    program, names, entities, config, at, limits
    """
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(f"{asked}() has no option {name!r}; it has {', '.join((*own, *_OPTIONS))}")


def _program(value: Any) -> Union[Program, str]:
    """Returns the native program, or the path of one."""
    read = getattr(value, "_program", value)
    return read if isinstance(read, Program) else path_text(value, "program")


def _utf8(name: str) -> str:
    """Returns the name if UTF-8 can encode it; raises for lone surrogates, which no file can contain."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise UnknownNameError(
            "no tensor has this name; it cannot be encoded as UTF-8",
            code="no-such-tensor",
            tensor=name,
            hint="pass the name as a tuple of its parts, with bytes for a part that is not UTF-8",
        ) from None
    return name


def entry_of(tensor: Tensor) -> Entry:
    """Returns the native half of a tensor; for the other modules of this package."""
    return tensor._entry


def index_of(checkpoint: Checkpoint) -> Index:
    """Returns the native half of a checkpoint; for the other modules of this package."""
    return checkpoint._index
