"""numpy-style indices, split into the box to read and the index into that box."""

from __future__ import annotations

import operator
from typing import Any, List, Sequence, Tuple

Box = Tuple[List[int], List[int]]
"""First index and count for each dimension."""


def plan(index: Any, shape: Sequence[int]) -> Tuple[Box, Tuple[Any, ...]]:
    """Returns the bounding box of `index` in a tensor of `shape`, and the index into that box.

    >>> plan((3, slice(None, None, -2)), (5, 4))
    (([3, 1], [1, 3]), (0, slice(None, None, -2)))
    >>> plan(slice(3, 10), (100, 4))
    (([3, 0], [7, 4]), (slice(None, None, None), slice(None, None, None)))

    Raises `IndexError` for an index out of bounds and for more indices than dimensions; `TypeError` for other types than
    integers, slices, `...` and `None`.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    whole = _uncovered_dimensions(items, len(shape))
    if not any(item is Ellipsis for item in items):
        items += [slice(None)] * whole
    start: List[int] = []
    extent: List[int] = []
    rest: List[Any] = []
    for item in items:
        axis = len(start)
        if item is None:
            rest.append(None)
        elif item is Ellipsis:
            start += [0] * whole
            extent += shape[axis : axis + whole]
            # Kept: with an ellipsis numpy returns 0-dimensional arrays, without it scalars.
            rest.append(Ellipsis)
        elif isinstance(item, slice):
            first, count, step = _stretch(item, shape[axis])
            start.append(first)
            extent.append(count)
            rest.append(slice(None, None, None if step == 1 else step))
        else:
            start.append(_place(item, shape[axis], axis))
            extent.append(1)
            rest.append(0)
    return (start, extent), tuple(rest)


def _uncovered_dimensions(items: List[Any], rank: int) -> int:
    """Returns the number of dimensions without an index."""
    if sum(1 for item in items if item is Ellipsis) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    if used > rank:
        raise IndexError(f"too many indices: the tensor has {rank} dimensions, but {used} were given")
    return rank - used


def _stretch(item: slice, length: int) -> Tuple[int, int, int]:
    if any(isinstance(end, str) for end in (item.start, item.stop)):
        raise TypeError("slices of rows need row numbers: use tensor.row_names.row_of(name)")
    start, stop, step = item.indices(length)
    count = len(range(start, stop, step))
    if count == 0:
        return 0, 0, 1
    last = start + (count - 1) * step
    first = min(start, last)
    return first, abs(last - start) + 1, step


def _place(item: Any, length: int, axis: int) -> int:
    # Booleans are integers in Python and masks in numpy: ambiguous, so refused.
    if isinstance(item, bool) or type(item).__name__ in ("bool_", "bool"):
        raise TypeError(
            "a tensor is indexed by integers, slices, '...' and None, not by masks; use tensor.numpy()[...]"
        )
    try:
        place = operator.index(item)
    except TypeError:
        name = type(item).__name__
        raise TypeError(
            f"a tensor is indexed by integers, slices, '...' and None, not {name}; use tensor.numpy()[...]"
        ) from None
    if not -length <= place < length:
        raise IndexError(f"index {place} is out of bounds for axis {axis} with size {length}")
    return place + length if place < 0 else place
