"""Weighbridge opens the model files of machine-learning frameworks without those frameworks.

>>> import weighbridge
>>> checkpoint = weighbridge.open("net.safetensors")
>>> float(checkpoint["fc1.weight"].numpy().sum())
66.0

- `open` returns a `Checkpoint`, a mapping of names to `Tensor`s; elements are read on demand;
- `load` reads a whole file as numpy arrays; `save` writes arrays or tensors in any format;
- the verbs of the command are functions: `info`, `ls`, `show`, `stats`, `convert`, `diff`, `verify`, `scan`, `seal`, `edit`,
  `shard`, `merge`, `program`, `checkpoint`, `import_edges`, `evaluate`, `neighbors`, `rank`;
- `primitiv`, `biggraph` and `paddle` are modules for these three formats, modelled on their frameworks;
- `spark` imports edge lists on a cluster;
- errors are raised as subclasses of `Error`, which also derive from the matching built-in exceptions.

numpy and other packages are imported only when needed.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Tuple, TypedDict

from . import _weighbridge
from ._weighbridge import Program, RowNames, __version__
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
    EvaluateReport,
    Finding,
    ImportReport,
    Info,
    Listing,
    Loss,
    MergeReport,
    NeighborsReport,
    ProgramReport,
    RankReport,
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
    evaluate,
    import_edges,
    info,
    ls,
    merge,
    neighbors,
    program,
    rank,
    scan,
    scan_rules,
    seal,
    shard,
    show,
    stats,
    verify,
)


Labels = RowNames
"""Old name of `RowNames`."""


class Limits(TypedDict, total=False):
    """Resource limits for reading a file: `open(path, limits=Limits(header_bytes=500_000_000))`."""

    header_bytes: int
    """Largest header, in bytes."""
    tensors: int
    """Largest number of tensors."""
    name_bytes: int
    """Longest tensor name, in bytes."""
    dimensions: int
    """Largest number of dimensions."""
    path_parts: int
    """Largest number of parts of a tensor name."""
    pickle_objects: int
    """Largest number of objects created by a pickle."""
    chunk_bytes: int
    """Largest decompressed HDF5 chunk, in bytes."""
    expansion: int
    """Largest ratio of decompressed size to compressed size."""
    repeated_bytes: int
    """Largest total size of tensors that repeat a few stored elements, in bytes."""


class Setting(NamedTuple):
    """A setting for writing a format: `save(..., settings={name: value})`."""

    name: str
    values: str
    what: str


class Format(NamedTuple):
    """A format: its id, title, file extensions, and settings for writing."""

    id: str
    title: str
    extensions: Tuple[str, ...]
    settings: Tuple[Setting, ...]


def formats() -> Dict[str, Format]:
    """Returns the supported formats, by id.

    >>> import weighbridge
    >>> weighbridge.formats()["npz"].extensions
    ('npz',)
    """
    known = {}
    for name, title, extensions, settings in _weighbridge.formats():
        known[name] = Format(name, title, tuple(extensions), tuple(Setting(*own) for own in settings))
    return known


def guard_maps(allowed: bool = True) -> bool:
    """Allows or forbids arrays over mapped files; returns true if files are mapped.

    On Unix, access to a truncated mapped file raises the signal SIGBUS. Weighbridge handles it: the lost bytes read as zeros,
    and `FileChangedError` is raised. The handler is installed with the first array over a mapped file, never by the import,
    by `open` or by a verb. `guard_maps()` installs it immediately. `guard_maps(False)`, called before the first array, leaves
    the signal alone: elements are then read into memory, and requests without a copy fail. An installed handler stays.

    >>> import weighbridge
    >>> weighbridge.guard_maps()
    True
    """
    return _weighbridge.guard_maps(allowed)


_FORMAT_MODULES = ("biggraph", "onnx", "paddle", "primitiv")


def __getattr__(name: str) -> Any:
    # Imported on first use.
    if name in _FORMAT_MODULES:
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted({*globals(), *_FORMAT_MODULES})


__all__: List[str] = [
    "ArgumentTypeError",
    "CancelledError",
    "Checkpoint",
    "Conversion",
    "CorruptFileError",
    "DiffReport",
    "EditReport",
    "Error",
    "EvaluateReport",
    "FileChangedError",
    "FileDeniedError",
    "FileError",
    "FileMissingError",
    "Finding",
    "ImportReport",
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
    "NeighborsReport",
    "Note",
    "Program",
    "ProgramReport",
    "RankReport",
    "Report",
    "RowNames",
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
    "evaluate",
    "formats",
    "guard_maps",
    "import_edges",
    "info",
    "load",
    "ls",
    "merge",
    "neighbors",
    "open",
    "program",
    "rank",
    "save",
    "scan",
    "scan_rules",
    "seal",
    "shard",
    "show",
    "stats",
    "verify",
]
