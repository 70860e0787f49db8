"""From the arguments of a function to those of the command, and back with its answer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, Dict, Iterator, List, Literal, Optional, Tuple, Union

from .._weighbridge import call
from ..checks import path_text
from ..opened import Path
from ..errors import UsageError, wrong_type
from ..progress import callback
from ..wording import spoken_to

Paths = Union[Path, Sequence[Path]]
"""One path, or several."""

Some = Union[None, str, Sequence[str]]
"""What a flag takes that may be repeated: one, or several in a list."""

Pairs = Union[None, str, Sequence[str], Mapping[str, Any]]
"""What a flag takes that is written `NAME=VALUE` and may be repeated: a dict, or what is written so, one or a
list."""

Size = Union[int, str]
"""Bytes: a number, or text such as `64MiB`."""

NameStyle = Literal["as-stored", "structured", "variable"]
"""Which names tensors go by, where several are known."""

Rounding = Literal["nearest", "paddle-2.6", "paddle-3.3"]
"""How casts to `f16` and `bf16` round."""

_SEVERAL = ("paths", "sources")
"""What may be several without a flag."""

_PATHS = ("config", "entities", "manifest", "program")
"""Flags that take one path."""

_JOINED = ("algorithms",)
"""Flags that take several words with a comma between, once."""


def ask(verb: Callable[..., Any], given: Mapping[str, Any]) -> Tuple[Dict[str, Any], int]:
    """Carries out the verb of this function with what it was given; returns the JSON document and the exit
    code.

    Positional parameters are what the command takes without a flag; each other one is the flag of its name.
    """
    said = arguments(verb, given)
    plain = said[said.index("--") + 1 :]
    with spoken_to(verb, *plain), callback(given.get("progress")) as tell:
        return ask_for(*said, tell=tell)


def ask_for(*given: str, tell: Optional[Callable[[int, int], Any]] = None) -> Tuple[Dict[str, Any], int]:
    """The same of the arguments as the command has them."""
    code, text = call(list(given), tell)
    return json.loads(text), code


def arguments(verb: Callable[..., Any], given: Mapping[str, Any]) -> List[str]:
    """The arguments of the command that mean what the function was given.

    >>> def ls(path, *, tree=False, select=None, limit=None, progress=None): ...
    >>> arguments(ls, {"path": "-a", "tree": True, "select": ["*.w", "-b"], "limit": {"tensors": 3}})
    ['ls', '--tree', '--select=*.w', '--select=-b', '--limit=tensors=3', '--', '-a']
    """
    # Not needed, and not quick to import, before the first call.
    import inspect

    flags: List[str] = []
    plain: List[str] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        value = given.get(name)
        by_name = parameter.kind is parameter.KEYWORD_ONLY
        if name == "progress" or (value is None and (by_name or parameter.default is None)):
            continue
        if not by_name:
            several: Any = (
                value if name in _SEVERAL and not isinstance(value, (str, bytes, os.PathLike)) else [value]
            )
            if isinstance(several, Mapping):
                # Its names are no files.
                path_text(several, name)
            if not isinstance(several, Iterable):
                wrong_type(name, "a path, or a list of paths", value)
            plain.extend(path_text(own, name) for own in several)
        elif not _is_default(value, parameter.default):
            flags.extend(_flag(name, value))
    # What begins with a dash is no flag here.
    return [verb.__name__, *flags, "--", *plain]


def flag_of(name: str) -> str:
    """The flag that a parameter stands for.

    >>> flag_of("no_state"), flag_of("from_")
    ('--no-state', '--from')
    """
    return "--" + name.rstrip("_").replace("_", "-")


def _is_default(value: Any, default: Any) -> bool:
    # The command has the same defaults, and takes some flags only beside others.
    return type(value) is type(default) and value == default


def _flag(name: str, value: Any) -> Iterator[str]:
    flag = flag_of(name)
    if value is True:
        yield flag
    elif value is not False:
        for text in _texts(name, value):
            yield f"{flag}={text}"


def _texts(name: str, value: Any) -> Iterator[str]:
    if name in _PATHS:
        yield path_text(value, name)
        return
    if isinstance(value, Mapping):
        for key, own in value.items():
            yield _key(name, key) if own is None else f"{_key(name, key)}={_text(own)}"
    elif isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Iterable):
        yield _text(value)
    elif name in _JOINED:
        yield ",".join(_text(own) for own in value)
    else:
        yield from (_text(own) for own in value)


def _key(name: str, key: Any) -> str:
    text = _text(key)
    if "=" in text:
        raise UsageError(
            f"a name in {name} holds an =, which stands between the two sides",
            code="bad-arguments",
            found=text,
            hint="write it into a file of rules (rules=)",
        )
    return text


def _text(value: Any) -> str:
    if isinstance(value, (str, bytes, os.PathLike)):
        return os.fsdecode(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(_text(own) for own in value)
    return str(value)
