"""What verbs are given, and how they are called: each is a function of the Rust part with the same keywords."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Dict, Iterator, Literal, Tuple, Union

from .. import _weighbridge
from ..errors import naming
from ..opened import Path
from ..progress import callback

Paths = Union[Path, Sequence[Path]]
"""One path, or several."""

Some = Union[None, str, Sequence[str]]
"""One text, or several in a list."""

Pairs = Union[None, str, Sequence[str], Mapping[str, Any]]
"""Names and values: a dict, or texts `NAME=VALUE`, one or a list."""

Size = Union[int, str]
"""Bytes: a number, or text such as `64MiB`."""

NameStyle = Literal["as-stored", "structured", "variable"]
"""Which names tensors go by, where several are known."""

Rounding = Literal["nearest", "paddle-2.6", "paddle-3.3"]
"""How casts to `f16` and `bf16` round."""

_SEVERAL = ("paths", "sources")
_PATHS = ("path", "paths", "source", "sources", "target", "left", "right")


def run(verb: str, given: Mapping[str, Any]) -> Tuple[Dict[str, Any], int]:
    """Does the job of that name with these keywords; returns its report as a dict, and the exit code of the command."""
    keywords = {name: value for name, value in given.items() if name != "progress"}
    for name in _SEVERAL:
        value = keywords.get(name)
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes, os.PathLike, Mapping)):
            # What can be gone through once is gone through twice.
            keywords[name] = list(value)
    with naming(*_paths(keywords)), callback(given.get("progress")) as tell:
        if tell is not None:
            keywords["progress"] = tell
        answer: Tuple[Dict[str, Any], int] = getattr(_weighbridge, verb)(**keywords)
        return answer


def _paths(given: Mapping[str, Any]) -> Iterator[Any]:
    for name in _PATHS:
        value = given.get(name)
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
            yield from value
        else:
            yield value
