"""Weighbridge opens the model files of machine-learning frameworks without those frameworks.

>>> import weighbridge
>>> checkpoint = weighbridge.open("net.safetensors")
>>> float(checkpoint["fc1.weight"].numpy().sum())
66.0

- `open` gives a `Checkpoint`, a mapping of names to `Tensor`s, of which nothing is read before it is asked
  for;
- `load` reads a whole file as arrays of numpy, `save` writes arrays or tensors in any of the formats;
- the verbs of the command are functions: `info`, `ls`, `show`, `stats`, `convert`, `diff`, `verify`, `scan`, `seal`, `edit`,
  `shard`, `merge`, `program`, `checkpoint`;
- `primitiv`, `biggraph` and `paddle` are faces of these three formats, as people who use their frameworks
  know them;
- what fails raises an `Error`, which is also the exception of Python that fits.

Neither numpy nor any other package is imported before it is needed.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Tuple, TypedDict

from . import _weighbridge
from ._weighbridge import Labels, Program, __version__
from .opened import Checkpoint, Note, open  # noqa: A004
from .errors import (
    ArgumentTypeError,
    CancelledError,
    CorruptFileError,
    Error,
    FileChangedError,
    FileDeniedError,
    FileError,
    FileMissingError,
    LimitError,
    LossWarning,
    MismatchError,
    MissingPackageError,
    TargetExistsError,
    UnknownNameError,
    UnsupportedError,
    UsageError,
)
from .saving import load, save
from .tensor import Tensor
from .verbs import (
    Conversion,
    DiffReport,
    EditReport,
    Finding,
    Info,
    Listing,
    Loss,
    MergeReport,
    ProgramReport,
    Report,
    SaveReport,
    ScanReport,
    SealReport,
    ShardReport,
    Shown,
    StatsReport,
    StoreReport,
    VerifyReport,
    checkpoint,
    convert,
    diff,
    edit,
    info,
    ls,
    merge,
    program,
    scan,
    scan_rules,
    seal,
    shard,
    show,
    stats,
    verify,
)


class Limits(TypedDict, total=False):
    """What a file may ask for before it is refused: `open(path, limits=Limits(header_bytes=500_000_000))`."""

    header_bytes: int
    """Largest header that is read into memory at once."""
    tensors: int
    """Largest number of tensors."""
    name_bytes: int
    """Longest name of a tensor."""
    dimensions: int
    """Largest number of dimensions."""
    path_parts: int
    """Deepest path."""
    pickle_objects: int
    """Largest number of objects that a pickle may make."""
    chunk_bytes: int
    """Longest chunk of HDF5, unpacked."""
    expansion: int
    """How many times as long as its bytes in the file something packed may be."""
    repeated_bytes: int
    """Bytes of all tensors that repeat a few elements without measure."""


class Setting(NamedTuple):
    """Something that can be chosen when a format is written: `save(..., settings={name: value})`."""

    name: str
    values: str
    what: str


class Format(NamedTuple):
    """A format: its id, what it is, the extensions that mean it, and what can be chosen when it is
    written.
    """

    id: str
    title: str
    extensions: Tuple[str, ...]
    settings: Tuple[Setting, ...]


def formats() -> Dict[str, Format]:
    """The formats, by id.

    >>> import weighbridge
    >>> weighbridge.formats()["npz"].extensions
    ('npz',)
    """
    known = {}
    for name, title, extensions, settings in _weighbridge.formats():
        known[name] = Format(name, title, tuple(extensions), tuple(Setting(*own) for own in settings))
    return known


def guard_maps(allowed: bool = True) -> bool:
    """Says whether arrays may look into mapped files, and returns whether files are mapped.

    On Unix a mapped file that is cut short raises the signal SIGBUS. Weighbridge handles it: the lost bytes read as zeros, and
    `FileChangedError` is raised. The handler is installed with the first array that looks into a file, and never by the
    import, by `open` or by a verb. `guard_maps()` installs it now. `guard_maps(False)`, called before the first array, keeps the
    signal as it is: arrays are read then, and what allows no copy is refused. A handler that is installed stays.

    >>> import weighbridge
    >>> weighbridge.guard_maps()
    True
    """
    return _weighbridge.guard_maps(allowed)


_FACES = ("biggraph", "paddle", "primitiv")


def __getattr__(name: str) -> Any:
    # Who does not ask for a face does not pay for it.
    if name in _FACES:
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted({*globals(), *_FACES})


__all__: List[str] = [
    "ArgumentTypeError",
    "CancelledError",
    "Checkpoint",
    "Conversion",
    "CorruptFileError",
    "DiffReport",
    "EditReport",
    "Error",
    "FileChangedError",
    "FileDeniedError",
    "FileError",
    "FileMissingError",
    "Finding",
    "Format",
    "Info",
    "Labels",
    "LimitError",
    "Limits",
    "Listing",
    "Loss",
    "LossWarning",
    "MergeReport",
    "MismatchError",
    "MissingPackageError",
    "Note",
    "Program",
    "ProgramReport",
    "Report",
    "SaveReport",
    "ScanReport",
    "SealReport",
    "Setting",
    "ShardReport",
    "Shown",
    "StatsReport",
    "StoreReport",
    "TargetExistsError",
    "Tensor",
    "UnknownNameError",
    "UnsupportedError",
    "UsageError",
    "VerifyReport",
    "__version__",
    "checkpoint",
    "convert",
    "diff",
    "edit",
    "formats",
    "guard_maps",
    "info",
    "load",
    "ls",
    "merge",
    "open",
    "program",
    "save",
    "scan",
    "scan_rules",
    "seal",
    "shard",
    "show",
    "stats",
    "verify",
]
