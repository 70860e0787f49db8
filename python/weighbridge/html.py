"""Checkpoints as tables, for notebooks."""

from __future__ import annotations

from html import escape
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .opened import Checkpoint

MOST = 200
"""Rows that are shown."""


def table(checkpoint: Checkpoint) -> str:
    """The tensors of a checkpoint as a table of HTML, the first 200 of them."""
    from .errors import visible

    def cell(text: object) -> str:
        # Names come from files: neither markup nor what hides itself goes into a page.
        return f"<td>{escape(visible(str(text)))}</td>"

    rows = []
    for name, tensor in islice(checkpoint.items(), MOST):
        shape = " × ".join(str(extent) for extent in tensor.shape) or "()"
        cells = (name, tensor.role, tensor.dtype, shape, f"{tensor.nbytes:,}")
        rows.append(f"<tr>{''.join(cell(text) for text in cells)}</tr>")
    heads = "".join(f"<th>{head}</th>" for head in ("name", "role", "dtype", "shape", "bytes"))
    more = len(checkpoint) - len(rows)
    tail = f"<p>and {more:,} more</p>" if more > 0 else ""
    title = escape(repr(checkpoint)[1:-1])
    return f"<p>{title}</p><table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>{tail}"
