"""PyTorch-BigGraph edges: columns of numbers, in buckets."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..opened import Checkpoint, Path, known_options
from ..opened import open as _open
from ..errors import MismatchError

if TYPE_CHECKING:
    import numpy

Bucket = Tuple[int, int]
"""Partitions of the left and the right side."""

_COLUMNS = ("lhs", "rhs", "rel", "weight")


class Edges(NamedTuple):
    """Edges as columns.

    Entity numbers are offsets within the partition of the bucket; those from `Checkpoint.edges` are rows of whole tables.
    """

    lhs: numpy.ndarray
    """Left entity of each edge; -1 for a list of features."""
    rhs: numpy.ndarray
    """Right entity of each edge; -1 for a list of features."""
    rel: numpy.ndarray
    """Relation of each edge."""
    weight: Optional[numpy.ndarray] = None
    """Weight of each edge, if edges have weights."""
    bucket: Optional[Bucket] = None
    """Partitions of both sides, if all edges belong to one known bucket."""
    more: Mapping[str, numpy.ndarray] = MappingProxyType({})
    """Other columns by name, such as `lhsd_offsets` and `lhsd_data`, lists of features."""

    @property
    def size(self) -> int:
        """Number of edges. (`len` is the length of the tuple.)"""
        return len(self.rel)


def buckets(path: Path, **options: Any) -> Dict[Bucket, Edges]:
    """Reads the edges of a folder, by bucket, in order. Columns are views of mapped files if possible.

    >>> from weighbridge import biggraph
    >>> for bucket, edges in biggraph.buckets("edges").items():
    ...     print(bucket, edges.lhs.tolist(), edges.rhs.tolist())
    (0, 0) [0, 1] [1, 0]
    (0, 1) [0] [1]
    """
    known_options(options, "buckets")
    with _open(path, format="biggraph", **options) as opened:
        return of(opened)


def edges(path: Path, bucket: Optional[Bucket] = None, **options: Any) -> Edges:
    """Reads the edges of a file, or of one bucket of a folder. `bucket` is required for a folder with several buckets.

    >>> from weighbridge import biggraph
    >>> lhs, rhs, rel, *_ = biggraph.edges("edges", bucket=(0, 1))
    >>> lhs.tolist(), rhs.tolist(), rel.tolist()
    ([0], [1], [0])
    """
    known_options(options, "edges", "bucket")
    found = buckets(path, **options)
    if bucket is None and len(found) == 1:
        return next(iter(found.values()))
    if bucket is not None and (bucket[0], bucket[1]) in found:
        return found[bucket[0], bucket[1]]
    raise MismatchError(
        "ambiguous bucket: the folder has several" if bucket is None else "unknown bucket",
        code="bucket",
        file=str(path),
        found=", ".join(f"({left}, {right})" for left, right in list(found)[:10]),
        hint="select one with bucket=(LEFT, RIGHT), or use Checkpoint.edges to join all",
    )


def of(opened: Checkpoint) -> Dict[Bucket, Edges]:
    """Returns the edges of an opened file or folder, by bucket.

    The bucket of a file without one is that of its name, or (0, 0).
    """
    columns: Dict[Bucket, Dict[str, Any]] = {}
    if opened.kind != "edges":
        raise MismatchError(
            "the file does not contain edges",
            code="wrong-kind",
            file=opened.path,
            expected="edges",
            found=opened.kind,
        )
    for tensor in opened.values():
        own = tensor.attributes.get("bucket")
        bucket = (own[0], own[1]) if own is not None else _bucket_of(opened.path)
        columns.setdefault(bucket, {})[str(tensor.path[-1])] = tensor.numpy()
    return {bucket: _edges(opened, bucket, found) for bucket, found in columns.items()}


def _edges(opened: Checkpoint, bucket: Bucket, found: Dict[str, Any]) -> Edges:
    missing: List[str] = [name for name in ("lhs", "rhs", "rel") if name not in found]
    if missing:
        raise MismatchError(
            "missing column of edges", code="column-missing", file=opened.path, expected=", ".join(missing)
        )
    more = {name: column for name, column in found.items() if name not in _COLUMNS}
    return Edges(found["lhs"], found["rhs"], found["rel"], found.get("weight"), bucket, more)


def _bucket_of(path: str) -> Bucket:
    import re

    match = re.search(r"edges_(\d+)_(\d+)\.h5$", path)
    return (int(match[1]), int(match[2])) if match else (0, 0)
