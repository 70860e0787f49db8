"""Argument types of verbs, and their call: each verb is a native function with the same keywords."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Dict, Iterator, Literal, Tuple, Union

from .. import _weighbridge
from ..errors import naming
from ..opened import Path
from ..progress import callback

Paths = Union[Path, Sequence[Path]]
"""One path or several."""

Some = Union[None, str, Sequence[str]]
"""One text, or a list of several."""

Pairs = Union[None, str, Sequence[str], Mapping[str, Any]]
"""Pairs of name and value: a dict, one text `NAME=VALUE`, or a list of texts."""

Size = Union[int, str]
"""Size in bytes: a number, or text such as `64MiB`."""

NameStyle = Literal["as-stored", "structured", "variable"]
"""Naming of tensors that have several names."""

Rounding = Literal["nearest", "paddle-2.6", "paddle-3.3"]
"""Rounding of casts to `f16` and `bf16`."""

_SEVERAL = ("paths", "sources")
_PATHS = ("path", "paths", "source", "sources", "target", "left", "right")


def run(verb: str, given: Mapping[str, Any]) -> Tuple[Dict[str, Any], int]:
    """Runs a verb with these keywords; returns its report as a dict, and the exit code of the command."""
    keywords = {name: value for name, value in given.items() if name != "progress"}
    for name in _SEVERAL:
        value = keywords.get(name)
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes, os.PathLike, Mapping)):
            # An iterator is read twice: here and by the native part.
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
