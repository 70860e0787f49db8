"""Looks at arguments before the Rust part does, so that what is wrong with them is said by their names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Dict

from ._weighbridge import element_type
from .dtypes import CASTS, spelling
from .errors import UsageError, wrong_type

_CASTS = f"{', '.join(CASTS[:-1])} or {CASTS[-1]}"


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


def cast_name(value: object, what: str, own: str = CASTS[0]) -> str:
    """The name here of a type that casts go to: of its name, here or in numpy, torch or the header of safetensors,
    or of the type itself, of numpy, `ml_dtypes`, torch or Paddle. `own` is the type that the elements have already.

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
        wrong_type(
            what, "the name of a type of elements, or the type itself", value, hint=f"give its name: {_CASTS}"
        )
    name = element_type(text)
    if name is None or name not in (own, *CASTS):
        # As the command says it.
        message = f"invalid value '{text}' for {what}: casts go to {_CASTS}"
        hint = "see help(weighbridge.Tensor.cast)"
        raise UsageError(message, code="bad-arguments", expected=_CASTS, found=text, hint=hint)
    return name
