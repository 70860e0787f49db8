"""Indices as numpy has them, turned into the box that must be read and what is left to do with it."""

from __future__ import annotations

import operator
from typing import Any, List, Sequence, Tuple

Box = Tuple[List[int], List[int]]
"""For each dimension the first index and how many."""


def plan(index: Any, shape: Sequence[int]) -> Tuple[Box, Tuple[Any, ...]]:
    """The smallest box of a tensor of `shape` that holds what `index` asks for, and the index into that box.

    >>> plan((3, slice(None, None, -2)), (5, 4))
    (([3, 1], [1, 3]), (0, slice(None, None, -2)))
    >>> plan(slice(3, 10), (100, 4))
    (([3, 0], [7, 4]), (slice(None, None, None), slice(None, None, None)))

    Raises `IndexError` for what lies outside, and for more indices than dimensions; `TypeError` for what is
    no integer, slice, `...` or `None`.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    whole = _covered_by_dots(items, len(shape))
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
            # It stays: numpy makes arrays without dimensions of such indices, and numbers of others.
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


def _covered_by_dots(items: List[Any], rank: int) -> int:
    """How many dimensions no item names."""
    if sum(1 for item in items if item is Ellipsis) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    if used > rank:
        raise IndexError(f"too many indices: the tensor has {rank} dimensions, but {used} were given")
    return rank - used


def _stretch(item: slice, length: int) -> Tuple[int, int, int]:
    if any(isinstance(end, str) for end in (item.start, item.stop)):
        raise TypeError(
            "rows are sliced by their numbers: tensor.labels.row_of(name) gives the one of a name"
        )
    start, stop, step = item.indices(length)
    count = len(range(start, stop, step))
    if count == 0:
        return 0, 0, 1
    last = start + (count - 1) * step
    first = min(start, last)
    return first, abs(last - start) + 1, step


def _place(item: Any, length: int, axis: int) -> int:
    # A truth value is an integer for Python and a mask for numpy: neither is meant here.
    if isinstance(item, bool) or type(item).__name__ in ("bool_", "bool"):
        raise TypeError(
            "a tensor is indexed by integers, slices, '...' and None; for masks take tensor.numpy()[...]"
        )
    try:
        place = operator.index(item)
    except TypeError:
        name = type(item).__name__
        raise TypeError(
            f"a tensor is indexed by integers, slices, '...' and None, not {name}: take tensor.numpy()[...]"
        ) from None
    if not -length <= place < length:
        raise IndexError(f"index {place} is out of bounds for axis {axis} with size {length}")
    return place + length if place < 0 else place
