"""Checkpoints as HTML tables, for notebooks."""

from __future__ import annotations

from html import escape
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .opened import Checkpoint

MAX_ROWS = 200
"""Largest number of rows shown."""


def table(checkpoint: Checkpoint) -> str:
    """Renders the first 200 tensors of a checkpoint as an HTML table."""
    from .errors import visible

    def cell(text: object) -> str:
        # Names come from untrusted files: markup and invisible characters are escaped.
        return f"<td>{escape(visible(str(text)))}</td>"

    rows = []
    for name, tensor in islice(checkpoint.items(), MAX_ROWS):
        shape = " × ".join(str(size) for size in tensor.shape) or "()"
        cells = (name, tensor.role, tensor.dtype, shape, f"{tensor.nbytes:,}")
        rows.append(f"<tr>{''.join(cell(text) for text in cells)}</tr>")
    heads = "".join(f"<th>{head}</th>" for head in ("name", "role", "dtype", "shape", "bytes"))
    more = len(checkpoint) - len(rows)
    tail = f"<p>and {more:,} more</p>" if more > 0 else ""
    title = escape(repr(checkpoint)[1:-1])
    return f"<p>{title}</p><table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>{tail}"
