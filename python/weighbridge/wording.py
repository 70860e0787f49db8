"""What the core says in the words of the command, said in those of Python: `--force` is `force=True`.

Hints are written once, in Rust, for people at a terminal. Here is the one place that turns them.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .errors import Error

Asked = Callable[..., Any]
"""A function that somebody called."""

_OPEN = {"from": "format", "limit": "limits"}
"""Flags that `open` takes under another name."""

_SAVE = {"to": "format", "set": "settings", "no-sync": "sync"}
"""Flags that `save` takes under another name."""

_VERBS = tuple("convert edit shard merge seal verify diff checkpoint program scan show stats ls info".split())
"""In this order they are asked for a keyword that the function itself has not."""

_EVERYWHERE = ("force", "lenient")
"""Flags that whatever writes or reads has as a keyword, the faces of single formats, too."""

_TAKES_A_WORD = ("cast", "kind", "names", "prefer", "strip", "sweep", "to")
"""Flags after which a word in small letters is a value, and not how the sentence goes on."""

_OF_THE_COMMAND = ("bad-arguments", "bad-tolerance", "two-outputs")
"""Codes of errors whose message may speak of flags: those of the command itself. Messages of the library
name none, but they may hold what the file or the caller wrote.
"""

_OF_NAMES = ("no-such-tensor", "no-such-row", "no-such-entity", "ambiguous-name", "unknown-feed")
"""Codes of errors whose hint lists names of the file. These are nobody's flags, however they look."""

_FIXED = {"no-row-names": "use a number"}
"""Codes of errors whose hint is the one that begins so, or else a note, which names files and types."""

_FLAG = re.compile(r"(?<![\w-])--(?P<flag>[a-z]+(?:-[a-z]+)*)")
_VALUE = re.compile(r"[ =](?P<value>[\w.{}]+=[^\s;)]+|[A-Z_]+(?::[A-Z]+)?\b|\d+\b|[a-z][\w-]*)")
_NAMED = re.compile(
    r"'--(?P<flag>[a-z-]+)(?:(?: |\[=)<[^>]*>\]?)?(?:\.\.\.)?'|'[\[<](?P<plain>[A-Z_]+)[\]>](?:\.\.\.)?'"
)
_REQUIRED = re.compile(r"(?<=not provided: )(?P<list>.+)$")
_USAGE = re.compile(r"\s*(?:Usage: .*?)?\s*For more information, try '--help'\.")
_GIVEN = re.compile(r"(?:invalid|unexpected) value '.*' for (?='[-<\[])", re.DOTALL)
_LIMIT = re.compile(r"raise the limit `(?P<name>\w+)`")


def in_python(text: str, asked: Optional[Asked] = None) -> str:
    """The same text for somebody who called the function `asked`. What that one takes stands as its keyword;
    else it says which function takes it.

    >>> import weighbridge
    >>> in_python("use --force to replace it", weighbridge.save)
    'use force=True to replace it'
    >>> in_python("name it with --from FORMAT", weighbridge.info)
    'name it with from_=FORMAT'
    >>> in_python("--select picks one", weighbridge.save)
    'weighbridge.convert(..., select=...) picks one'
    >>> in_python("weighbridge edit --undo puts the old bytes back")
    'weighbridge.edit(..., undo=True) puts the old bytes back'
    """
    if not any(mark in text for mark in ("--", "weighbridge ", "`", "'[", "'<", " <")):
        return text
    text = _LIMIT.sub(lambda found: f"{found[0]}: {_worded('limit', found['name'] + '=NUMBER', asked)}", text)
    if asked is not None:
        text = _USAGE.sub(f"; see help(weighbridge.{asked.__name__})", text).lstrip("; ")
    text = _NAMED.sub(_keyword, text)
    text = _REQUIRED.sub(
        lambda found: re.sub(r"(?:--)?<?([\w-]+)>?(?:\.\.\.)?(?: <[^>]*>)?", _plain, found["list"]), text
    )
    return _flags(_commands(text), asked)


def message_in_python(code: str, message: str, asked: Optional[Asked] = None) -> str:
    """The message of an error of this code. What the caller or the file wrote stands in it as it is.

    >>> import weighbridge
    >>> message_in_python("bad-arguments", "invalid value '--to' for '--cast <T>': no", weighbridge.convert)
    "invalid value '--to' for cast: no"
    >>> message_in_python("bad-slice", "`--to` is no index", weighbridge.show)
    '`--to` is no index'
    """
    if code not in _OF_THE_COMMAND:
        return message
    given = _GIVEN.match(message)
    start = 0 if given is None else given.end()
    # A message speaks of a keyword, and does not say what to give it.
    return message[:start] + in_python(message[start:], asked).replace("=...", "")


def hint_in_python(code: str, hint: Optional[str], asked: Optional[Asked] = None) -> Optional[str]:
    """The hint of an error or a finding of this code.

    >>> hint_in_python("exists", "use --force to replace it")
    'use force=True to replace it'
    >>> hint_in_python("no-such-tensor", "there is a --force")
    'there is a --force'
    """
    # What "it is" is a path.
    other = hint is not None and (hint.startswith("it is ") or not hint.startswith(_FIXED.get(code, "")))
    if hint is None or other or code in _OF_NAMES:
        return hint
    return in_python(hint, asked) or None


def _keyword(found: re.Match[str]) -> str:
    return _plain_name(found["flag"] or found["plain"])


def _plain(found: re.Match[str]) -> str:
    return _plain_name(found[1])


def _plain_name(flag: str) -> str:
    name = flag.lower().replace("-", "_")
    return "from_" if name == "from" else name


def _commands(text: str) -> str:
    """Whole commands as calls: `weighbridge edit SRC DST`, `edit --no-state`."""
    verbs = "|".join(_VERBS)
    whole = re.compile(
        rf"(?P<ours>weighbridge )?(?<![-\w])(?P<verb>{verbs})\b(?P<rest>(?: [A-Z]+\b)+|(?= --[a-z]))?"
    )
    out: List[str] = []
    end = 0
    for found in whole.finditer(text):
        rest, stop = found["rest"], found.end()
        if found.start() < end or (rest is None and not found["ours"]):
            continue
        given = (rest or "").split()
        if not given:
            given, stop = _given(text, stop, function(found["verb"]))
            given = ["...", *given] if given else []
        if not given and not found["ours"]:
            continue
        call = f"({', '.join(given)})" if given else ""
        out.append(f"{text[end : found.start()]}weighbridge.{found['verb']}{call}")
        end = stop
    return "".join(out) + text[end:]


def _given(text: str, start: int, own: Asked) -> Tuple[List[str], int]:
    """The flags that stand one after another from `start` on, as keywords of this function, and their end."""
    given: List[str] = []
    while True:
        found = _FLAG.match(text, start + 1) if text[start : start + 1] == " " else None
        keyword = None if found is None else keyword_of(found["flag"], own)
        if found is None or keyword is None:
            return given, start
        value, start = _value(text, found)
        given.append(_assigned(keyword, found["flag"], value, own))


def _flags(text: str, asked: Optional[Asked]) -> str:
    out: List[str] = []
    end = 0
    for found in _FLAG.finditer(text):
        if found.start() < end:
            continue
        value, stop = _value(text, found)
        out.append(text[end : found.start()])
        out.append(_worded(found["flag"], value, asked) or text[found.start() : stop])
        end = stop
    return "".join(out) + text[end:]


def _value(text: str, found: re.Match[str]) -> Tuple[Optional[str], int]:
    """The value that follows a flag, and where it ends."""
    own = _VALUE.match(text, found.end())
    if own is None:
        return None, found.end()
    value = own["value"].rstrip(",.:")
    if value in ("and", "or", "out"):
        return None, found.end()
    word = value[0].islower() and "=" not in value
    if word and found["flag"] not in _TAKES_A_WORD and text[found.end()] != "=":
        return None, found.end()
    return value, own.start("value") + len(value)


def _worded(flag: str, value: Optional[str], asked: Optional[Asked]) -> Optional[str]:
    """The keyword for a flag, with the function that takes it where that is not the one that was asked."""
    if asked is not None:
        keyword = keyword_of(flag, asked)
        if keyword is not None:
            return _assigned(keyword, flag, value, asked)
    for name in ("open", "save", *_VERBS):
        own = function(name)
        keyword = keyword_of(flag, own)
        if keyword is not None and flag in _EVERYWHERE:
            return _assigned(keyword, flag, value, own)
        if keyword is not None:
            return f"weighbridge.{name}(..., {_assigned(keyword, flag, value, own)})"
    return None


def _assigned(keyword: str, flag: str, value: Optional[str], own: Asked) -> str:
    if value is None:
        default = _parameters(own)[keyword]
        # `--no-sync` turns off what `sync` turns on.
        word = {False: "True", True: "False"}[default] if isinstance(default, bool) else "..."
        return f"{keyword}={word}"
    name, equals, rest = value.partition("=")
    told = f"{{{_quoted(name)}: {_quoted(rest)}}}" if equals else _quoted(value)
    return f"{keyword}={told}"


def _quoted(word: str) -> str:
    # What stands in capitals stands for something.
    return word if word.isdigit() or re.fullmatch("[A-Z_]+", word) else f'"{word}"'


def keyword_of(flag: str, own: Asked) -> Optional[str]:
    """The keyword of a function that means what the flag means; `None` where it has none.

    >>> import weighbridge
    >>> keyword_of("from", weighbridge.open), keyword_of("from", weighbridge.diff)
    ('format', 'from_')
    >>> keyword_of("from", weighbridge.save) is None
    True
    """
    names: Dict[str, str] = {"open": _OPEN, "save": _SAVE}.get(own.__name__, {})
    known = _parameters(own)
    name = names.get(flag, _plain_name(flag))
    return name if name in known else None


def _parameters(own: Asked) -> Dict[str, Any]:
    import inspect

    plain = "path paths tensors source sources target left right name metadata roles labels".split()
    return {
        name: parameter.default
        for name, parameter in inspect.signature(own).parameters.items()
        if name not in plain
    }


def function(name: str) -> Asked:
    """The function of the package of that name; for the other modules of this package."""
    import weighbridge

    own: Asked = getattr(weighbridge, name)
    return own


def reworded(error: Error, asked: Optional[Asked], final: bool = True) -> None:
    """Says it anew to whoever called `asked`, where the core said it and nobody turned it yet for good."""
    said = error.__dict__.get("_said")
    if said is None:
        return
    if final:
        del error.__dict__["_said"]
    message, hint = said
    error.message = message_in_python(error.code, message, asked)
    error.args = (error.message,)
    error.hint = hint_in_python(error.code, hint, asked)


@contextmanager
def spoken_to(asked: Asked, *paths: str) -> Iterator[None]:
    """Errors from within speak to whoever called the function `asked` with these paths."""
    try:
        yield
    except Error as error:
        reworded(error, asked)
        for path in paths:
            # The core shows what is no UTF-8 as well as it can; Python has a text that leads to the file.
            if isinstance(error, OSError) and error.file == os.fsencode(path).decode("utf-8", "replace"):
                error.filename = path
        raise
