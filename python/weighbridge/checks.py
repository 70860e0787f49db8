"""Looks at arguments before the Rust part does, so that what is wrong with them is said by their names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Dict

from .errors import UsageError, wrong_type


def whole(value: object, what: str, least: int = 0) -> None:
    """Fails where it is no whole number of `least` or more.

    >>> whole(-1, "threads")
    Traceback (most recent call last):
    weighbridge.errors.UsageError: threads is to be 0 or more
      found:    -1
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        wrong_type(what, "a whole number", value)
    number = value.__index__()
    if not least <= number < 1 << 64:
        wanted = f"{least} or more" if number < least else "less than 2 to the 64th"
        raise UsageError(f"{what} is to be {wanted}", code="bad-arguments", found=str(number))


def path_text(value: object, what: str) -> str:
    """A path as text, which leads to the file also where its name is no UTF-8.

    >>> path_text(b"net.npz", "path"), path_text(3, "path")
    Traceback (most recent call last):
    weighbridge.errors.ArgumentTypeError: path is to be a path
      found:    int
    """
    if not isinstance(value, (str, bytes, os.PathLike)):
        hint = None
        if isinstance(value, Mapping):
            opened = getattr(value, "path", None)
            hint = "it is given after what is saved, or before it: see the help"
            if isinstance(opened, str):
                hint = "give the path of the checkpoint: checkpoint.path"
        elif type(value).__name__ == "Program":
            hint = "save it, and give the path of that file; open() takes a program that was read, too"
        wrong_type(what, "a path" if what != "name" else "a str", value, hint=hint)
    return os.fsdecode(value)


def optional_text(value: object, what: str) -> None:
    """Fails where it is neither `None` nor a `str`.

    >>> optional_text(3, "format")
    Traceback (most recent call last):
    weighbridge.errors.ArgumentTypeError: format is to be a str
      found:    int
    """
    if value is not None and not isinstance(value, str):
        wrong_type(what, "a str", value)


def mapping(value: object, what: str) -> Dict[Any, Any]:
    """It as a dict; fails where it is no mapping.

    >>> mapping([3], "metadata")
    Traceback (most recent call last):
    weighbridge.errors.ArgumentTypeError: metadata is to be a mapping
      found:    list
    """
    if not isinstance(value, Mapping):
        wrong_type(what, "a mapping", value)
    return dict(value)


def dtype_name(value: object, what: str) -> None:
    """Fails where it is no `str`: types of elements go by their names here.

    >>> import numpy
    >>> dtype_name(numpy.float16, "a type of elements")
    Traceback (most recent call last):
    weighbridge.errors.ArgumentTypeError: a type of elements is to be a str
      found:    type
      hint:     give its name, such as "f16", "bf16", "f32"
    """
    if not isinstance(value, str):
        wrong_type(what, "a str", value, hint='give its name, such as "f16", "bf16", "f32"')
