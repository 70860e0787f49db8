"""Writing for the modules of single formats."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

from ._weighbridge import Entry, save_tensors
from .checks import path_text
from .errors import naming
from .opened import Path
from .progress import Progress, callback
from .tensor import Part
from .verbs.converting import SaveReport
from .verbs.report import warned

Given = Tuple[Tuple[Part, ...], Optional[str], Optional[Part], Entry, Optional[Sequence[str]]]
"""A tensor to write: path, role, optimizer slot, elements, and row names."""


def write(
    path: Path,
    tensors: List[Given],
    format: str,  # noqa: A002
    kind: str,
    *,
    metadata: Optional[Mapping[str, Any]] = None,
    settings: Optional[Mapping[str, Union[str, int]]] = None,
    force: bool = False,
    deny_loss: bool = False,
    sync: bool = True,
    progress: Progress = None,
) -> SaveReport:
    """Writes tensors as a file or folder of this format and kind, atomically; returns the report of `weighbridge.save`.

    A `LossWarning` points at the caller of the function that calls this one.
    """
    options = {
        "format": format,
        "kind": kind,
        "settings": {name: str(value) for name, value in (settings or {}).items()},
        "cast": None,
        "rounding": "nearest",
        "seed": 0,
        "deny_loss": deny_loss,
        "force": force,
        "threads": 0,
        "memory": 256 << 20,
        "sync": sync,
    }
    path = path_text(path, "path")
    with naming(path), callback(progress) as tell:
        written = save_tensors(path, None, tensors, dict(metadata or {}), options, tell)
    return warned(SaveReport(written), False, depth=1)
