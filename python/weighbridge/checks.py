"""Checks of arguments before the native part, for errors that name the argument."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Dict

from ._weighbridge import element_type
from .dtypes import CASTS, spelling
from .errors import UsageError, wrong_type

_CASTS = f"{', '.join(CASTS[:-1])} or {CASTS[-1]}"


def whole(value: object, what: str, least: int = 0) -> None:
    """Raises unless the value is an integer of `least` or more.

    >>> whole(-1, "threads")
    Traceback (most recent call last):
    weighbridge.errors.UsageError: threads must be 0 or more
      found:    -1
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        wrong_type(what, "an integer", value)
    number = value.__index__()
    if not least <= number < 1 << 64:
        wanted = f"{least} or more" if number < least else "less than 2^64"
        raise UsageError(f"{what} must be {wanted}", code="bad-arguments", found=str(number))


def path_text(value: object, what: str) -> str:
    """Converts a path to text; a name that is not UTF-8 round-trips, as with `os.fsdecode`.

    >>> path_text(b"net.npz", "path"), path_text(3, "path")
    Traceback (most recent call last):
    weighbridge.errors.ArgumentTypeError: path must be a path
      found:    int
    """
    if not isinstance(value, (str, bytes, os.PathLike)):
        hint = None
        if isinstance(value, Mapping):
            opened = getattr(value, "path", None)
            hint = "the arguments may be in the wrong order; see the help"
            if isinstance(opened, str):
                hint = "pass the path of the checkpoint: checkpoint.path"
        elif type(value).__name__ == "Program":
            hint = "save the program and pass the path of that file; open() also accepts a program object"
        wrong_type(what, "a path" if what != "name" else "a str", value, hint=hint)
    return os.fsdecode(value)


def optional_text(value: object, what: str) -> None:
    """Raises unless the value is `None` or a `str`.

    >>> optional_text(3, "format")
    Traceback (most recent call last):
    weighbridge.errors.ArgumentTypeError: format must be a str
      found:    int
    """
    if value is not None and not isinstance(value, str):
        wrong_type(what, "a str", value)


def mapping(value: object, what: str) -> Dict[Any, Any]:
    """Converts a mapping to a dict; raises for other types.

    >>> mapping([3], "metadata")
    Traceback (most recent call last):
    weighbridge.errors.ArgumentTypeError: metadata must be a mapping
      found:    list
    """
    if not isinstance(value, Mapping):
        wrong_type(what, "a mapping", value)
    return dict(value)


def cast_name(value: object, what: str, own: str = CASTS[0]) -> str:
    """Returns the dtype name of a cast target.

    `value` is a name, as here, in numpy, torch or safetensors, or a dtype object of numpy, `ml_dtypes`, torch or Paddle.
    `own` is the current dtype of the elements, which is also accepted.

    >>> import numpy
    >>> cast_name(numpy.float16, "cast"), cast_name(numpy.dtype(">f4"), "cast"), cast_name("torch.bfloat16", "cast")
    ('f16', 'f32', 'bf16')
    >>> cast_name("i16", "cast")
    Traceback (most recent call last):
    weighbridge.errors.UsageError: invalid value 'i16' for cast: casts go to f16, bf16, f32, f64, f8_e4m3, f8_e5m2 or i8
      expected: f16, bf16, f32, f64, f8_e4m3, f8_e5m2 or i8
      found:    i16
      hint:     see help(weighbridge.Tensor.cast)
    """
    text = value if isinstance(value, str) else spelling(value)
    if text is None:
        wrong_type(what, "the name of a dtype, or a dtype object", value, hint=f"use a name: {_CASTS}")
    name = element_type(text)
    if name is None or name not in (own, *CASTS):
        # The wording of the command.
        message = f"invalid value '{text}' for {what}: casts go to {_CASTS}"
        hint = "see help(weighbridge.Tensor.cast)"
        raise UsageError(message, code="bad-arguments", expected=_CASTS, found=text, hint=hint)
    return name
