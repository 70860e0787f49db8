"""How the faces of single formats hand tensors to the Rust part."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

from ._weighbridge import Entry, save_tensors
from .checks import path_text
from .errors import naming
from .opened import Path
from .progress import Progress, callback
from .tensor import Part
from .verbs.converting import SaveReport
from .verbs.report import told

Given = Tuple[Tuple[Part, ...], Optional[str], Optional[Part], Entry, Optional[Sequence[str]]]
"""Path, role, slot of an optimizer, elements, and names of rows of a tensor to write."""


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
    """Writes tensors as one file or folder of that format and kind, all or nothing; returns what
    `weighbridge.save` does. For a function that people call.
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
    return told(SaveReport(written), False, depth=1)
