"""Exceptions: the fault, its location, and a hint.

All failures raise a subclass of `Error`, which also derives from the matching built-in exception: a missing file raises a
`FileNotFoundError`, an unknown name a `KeyError`, damaged content a `ValueError`. Mistakes in the call itself, such as an
unknown keyword or an index out of bounds, raise plain `TypeError` and `IndexError`.

>>> import weighbridge
>>> try:
...     weighbridge.open("no-such-file.npz")
... except FileNotFoundError as error:
...     print(error.code, error.file)
not-found no-such-file.npz
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import Any, Dict, Iterator, NoReturn, Optional, Tuple, Type

from ._weighbridge import escape_text

_FIELDS = ("file", "offset", "tensor", "expected", "found", "hint")

_BUILTIN_FIELDS = ("errno", "strerror", "filename", "filename2", "msg", "name", "path")
"""Fields of built-in exceptions that are not in `__dict__`."""


class Error(Exception):
    """Base class of all failures of this package.

    `code` is stable, for programs, and the same as in the JSON of the command. `file`, `offset` (bytes) and `tensor` are the
    location, `expected` and `found` the values, and `hint` is an instruction; each may be `None`.

    >>> error = UsageError("unknown format", code="unknown-format", hint="see weighbridge.formats()")
    >>> print(error)
    unknown format
      hint:     see weighbridge.formats()
    >>> error.to_dict()["kind"]
    'usage'
    """

    kind: str = "error"
    """Kind of the error, as in JSON."""

    _number: Optional[int] = None
    """Default `errno` of the class."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "error",
        kind: Optional[str] = None,
        file: Optional[str] = None,
        offset: Optional[int] = None,
        tensor: Optional[str] = None,
        expected: Optional[str] = None,
        found: Optional[str] = None,
        hint: Optional[str] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        if kind is not None:
            self.kind = kind
        self.file = file
        self.offset = offset
        self.tensor = tensor
        self.expected = expected
        self.found = found
        self.hint = hint
        if isinstance(self, OSError):
            _numbered(self, self._number, file)

    def __str__(self) -> str:
        lines = [visible(self.message)]
        for name in _FIELDS:
            value = getattr(self, name)
            if value is None:
                continue
            text = f"{value} (0x{value:x})" if name == "offset" else visible(str(value))
            lines.append(f"  {name + ':':<9} {text}")
        return "\n".join(lines)

    def __reduce__(self) -> Tuple[Any, ...]:
        kept = {
            name: getattr(self, name) for name in _BUILTIN_FIELDS if getattr(self, name, None) is not None
        }
        kept.update(self.__dict__, args=self.args)
        return _rebuilt, (type(self), self.to_dict()), kept

    def to_dict(self) -> Dict[str, Any]:
        """Returns the error as in the JSON of the command, under `"error"`, with the hint worded for Python."""
        places = {name: getattr(self, name) for name in _FIELDS}
        return {"kind": self.kind, "code": self.code, "message": self.message, **places}


class CorruptFileError(Error, ValueError):
    """The file violates its format, or is inconsistent."""

    kind = "corrupt"


class UnsupportedError(Error, NotImplementedError):
    """The file or request may be valid, but is not supported."""

    kind = "unsupported"


class MissingPackageError(UnsupportedError, ImportError):
    """A required package is not installed; `hint` has the command to install it."""

    def __init__(self, message: str, **places: Any) -> None:
        super().__init__(message, **places)
        self.msg = message


class LimitError(Error, ValueError):
    """The file exceeds a resource limit; `open(..., limits={...})` raises the limit."""

    kind = "limit"


class MismatchError(Error, ValueError):
    """Two inputs do not match, such as a name and a file, or a shape and its data."""

    kind = "mismatch"


class UnknownNameError(MismatchError, KeyError):
    """No tensor has this name; `hint` has the nearest names. Code `lost-tensor`: the tensor was not salvaged from a damaged
    file.
    """


class UsageError(Error, ValueError):
    """The arguments are invalid or contradict each other."""

    kind = "usage"


class ArgumentTypeError(UsageError, TypeError):
    """An argument has an unsupported type."""


class TargetExistsError(UsageError, FileExistsError):
    """The target exists; `force=True` replaces it."""

    _number = errno.EEXIST


class FileError(Error, OSError):
    """An operation of the operating system failed."""

    kind = "io"


class FileMissingError(FileError, FileNotFoundError):
    """The file does not exist."""

    _number = errno.ENOENT


class FileDeniedError(FileError, PermissionError):
    """Permission to read or write the file is denied."""

    _number = errno.EACCES


class FileChangedError(FileError):
    """A file was truncated while it was read or mapped; lost bytes of mapped arrays read as zeros."""

    _number = errno.EIO


class CancelledError(Error, KeyboardInterrupt):
    """The work was cancelled; no output was changed."""

    kind = "cancelled"


class LossWarning(UserWarning):
    """Content was omitted from the output because the target cannot represent it: a tensor, rows, metadata, a program.

    `losses` lists the omissions. `deny_loss=True` raises an error instead, before any output is written.
    `allow_loss=True` accepts missing tensors without a warning. To ignore all of these warnings:
    `warnings.simplefilter("ignore", weighbridge.LossWarning)`.
    """

    def __init__(self, message: str, losses: Tuple[Any, ...] = ()) -> None:
        super().__init__(message, losses)
        self.losses = losses

    def __str__(self) -> str:
        return str(self.args[0])


_BY_KIND: Dict[str, Type[Error]] = {
    "corrupt": CorruptFileError,
    "unsupported": UnsupportedError,
    "limit": LimitError,
    "mismatch": MismatchError,
    "io": FileError,
    "usage": UsageError,
    "cancelled": CancelledError,
}
_BY_CODE: Dict[str, Type[Error]] = {
    "no-such-tensor": UnknownNameError,
    "lost-tensor": UnknownNameError,
    "exists": TargetExistsError,
    "wrong-type": ArgumentTypeError,
    "not-found": FileMissingError,
    "permission-denied": FileDeniedError,
    "file-shrank": FileChangedError,
}


def class_of(kind: str, code: str) -> Type[Error]:
    """Returns the class for errors of this kind and code.

    >>> class_of("io", "not-found").__name__
    'FileMissingError'
    """
    special = _BY_CODE.get(code)
    if special is not None and special.kind == kind:
        return special
    return _BY_KIND.get(kind, Error)


def from_json(fields: Dict[str, Any], number: Optional[int] = None) -> Error:
    """Makes the exception for an error in JSON; `number` is its `errno`."""
    error = _rebuilt(class_of(fields["kind"], fields["code"]), fields)
    if isinstance(error, OSError) and number is not None:
        _numbered(error, number, error.file)
    return error


@contextmanager
def naming(*paths: Any) -> Iterator[None]:
    """Sets `filename` of OS errors raised inside the block to the matching path, even if that is not UTF-8."""
    try:
        yield
    except Error as error:
        for path in paths:
            # `error.file` is a lossy display of a path that is not UTF-8; `os.fsdecode` is lossless.
            if isinstance(error, OSError) and isinstance(path, (str, bytes, os.PathLike)):
                text = os.fsdecode(path)
                if error.file == os.fsencode(text).decode("utf-8", "replace"):
                    error.filename = text
        raise


def wrong_type(
    what: str,
    wanted: str,
    value: object,
    *,
    tensor: Optional[str] = None,
    hint: Optional[str] = None,
    code: str = "wrong-type",
) -> NoReturn:
    """Raises `ArgumentTypeError`: `what` must be `wanted`.

    >>> wrong_type("a name", "a str", 3)
    Traceback (most recent call last):
    weighbridge.errors.ArgumentTypeError: a name must be a str
      found:    int
    """
    found = type(value).__name__
    raise ArgumentTypeError(f"{what} must be {wanted}", code=code, tensor=tensor, found=found, hint=hint)


def visible(text: str) -> str:
    """Escapes control and invisible characters and lone surrogates, for display in a terminal.

    >>> visible("a\\x1b[2J"), visible("\\udcff.npz")
    ('a\\\\u{1b}[2J', '\\\\udcff.npz')
    """
    return escape_text(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def _numbered(error: OSError, number: Optional[int], file: Optional[str]) -> None:
    error.errno = number
    error.strerror = None if number is None else os.strerror(number)
    error.filename = file


def _rebuilt(own: Type[Error], fields: Dict[str, Any]) -> Error:
    rest = dict(fields)
    return own(rest.pop("message"), **rest)
