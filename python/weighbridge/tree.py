"""Tensors of a checkpoint as a tree by the parts of their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Tuple

from ._weighbridge import escape_text

if TYPE_CHECKING:
    from .tensor import Tensor


class Tree(Dict[str, Any]):
    """A dict of name parts to trees or tensors. Its `str` is a drawing.

    A tensor whose name is also a prefix of others is in their tree, under the key `""`.
    """

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def __repr__(self) -> str:
        return str(self)


def build(tensors: Iterable[Tensor]) -> Tree:
    """Builds the tree of these tensors, in order. Optimizer state is a sibling of its parameter, as `w/Adam.m1`."""
    root = Tree()
    for tensor in tensors:
        parts = [_text(part) for part in tensor.path] or [""]
        if tensor.slot is not None:
            parts[-1] = f"{parts[-1]}/{_text(tensor.slot)}"
        node = root
        for part in parts[:-1]:
            below = node.get(part)
            if not isinstance(below, Tree):
                own = Tree() if below is None else Tree({"": below})
                node[part] = own
                below = own
            node = below
        if isinstance(node.get(parts[-1]), Tree):
            node[parts[-1]][""] = tensor
        else:
            node[parts[-1]] = tensor
    return root


def _text(part: Any) -> str:
    return part if isinstance(part, str) else part.decode("utf-8", "backslashreplace")


def _lines(tree: Tree) -> Iterator[str]:
    # A stack instead of recursion: an untrusted file may nest deeper than the recursion limit.
    stack: List[Tuple[str, List[Tuple[str, Any]]]] = [("", list(reversed(list(tree.items()))))]
    while stack:
        indent, pairs = stack[-1]
        if not pairs:
            stack.pop()
            continue
        name, below = pairs.pop()
        branch, further = ("├─ ", "│  ") if pairs else ("└─ ", "   ")
        label = escape_text(name) or '""'
        if isinstance(below, Tree):
            yield f"{indent}{branch}{label}"
            stack.append((indent + further, list(reversed(list(below.items())))))
        else:
            yield f"{indent}{branch}{label}  {below.dtype} {list(below.shape)}"
