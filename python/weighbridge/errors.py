"""Exceptions: what went wrong, where, and what to do about it.

What fails raises an `Error`, which is also the exception of Python that fits: a file that is not there is a
`FileNotFoundError`, an unknown name a `KeyError`, damaged content a `ValueError`. Only what Python itself
finds wrong with a call, such as a keyword that is not, or an index out of bounds, is what it is anywhere.

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

_PLACES = ("file", "offset", "tensor", "expected", "found", "hint")

_OF_THE_SYSTEM = ("errno", "strerror", "filename", "filename2", "msg", "name", "path")
"""What exceptions of Python keep beside their attributes."""


class Error(Exception):
    """Any failure of this package.

    `code` is stable, for programs; it is the one of the command's JSON. `file`, `offset` and `tensor` say
    where, `expected` and `found` what is wrong there, and `hint` what helps; each may be `None`.

    >>> error = UsageError("no such thing", code="unknown-thing", hint="try another")
    >>> print(error)
    no such thing
      hint:     try another
    >>> error.to_dict()["kind"]
    'usage'
    """

    kind: str = "error"
    """The situation, as in JSON."""

    _number: Optional[int] = None
    """The number that the operating system has for it, where it is its own."""

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
        for name in _PLACES:
            value = getattr(self, name)
            if value is None:
                continue
            text = f"{value} (0x{value:x})" if name == "offset" else visible(str(value))
            lines.append(f"  {name + ':':<9} {text}")
        return "\n".join(lines)

    def __reduce__(self) -> Tuple[Any, ...]:
        kept = {name: getattr(self, name) for name in _OF_THE_SYSTEM if getattr(self, name, None) is not None}
        kept.update(self.__dict__, args=self.args)
        return _again, (type(self), self.to_dict()), kept

    def to_dict(self) -> Dict[str, Any]:
        """The error as the value of `"error"` in the JSON of the command, in the words of Python."""
        places = {name: getattr(self, name) for name in _PLACES}
        return {"kind": self.kind, "code": self.code, "message": self.message, **places}


class CorruptFileError(Error, ValueError):
    """The bytes contradict the format or themselves."""

    kind = "corrupt"


class UnsupportedError(Error, NotImplementedError):
    """The bytes may be fine, but nothing here handles them."""

    kind = "unsupported"


class MissingPackageError(UnsupportedError, ImportError):
    """What was asked for needs another package, which is not installed; `hint` has the command that installs it."""

    def __init__(self, message: str, **places: Any) -> None:
        super().__init__(message, **places)
        self.msg = message


class LimitError(Error, ValueError):
    """The file asks for more than the limits allow: `open(..., limits={...})` raises them."""

    kind = "limit"


class MismatchError(Error, ValueError):
    """Two things that must fit together do not."""

    kind = "mismatch"


class UnknownNameError(MismatchError, KeyError):
    """There is no tensor of this name; `hint` has the nearest ones. `lost-tensor`: there was one, and it is not among
    what was salvaged from a damaged file.
    """


class UsageError(Error, ValueError):
    """What was asked for makes no sense."""

    kind = "usage"


class ArgumentTypeError(UsageError, TypeError):
    """What was given is of a type that cannot be used here: no array, no text, no number."""


class TargetExistsError(UsageError, FileExistsError):
    """There is a file in the place of the target: `force=True` replaces it."""

    _number = errno.EEXIST


class FileError(Error, OSError):
    """The operating system refused, or a device failed."""

    kind = "io"


class FileMissingError(FileError, FileNotFoundError):
    """There is no such file."""

    _number = errno.ENOENT


class FileDeniedError(FileError, PermissionError):
    """The file may not be read or written."""

    _number = errno.EACCES


class FileChangedError(FileError):
    """A file was cut short while it was read or looked into: bytes that are lost read as zeros."""

    _number = errno.EIO


class CancelledError(Error, KeyboardInterrupt):
    """The work was stopped on request; nothing was changed."""

    kind = "cancelled"


class LossWarning(UserWarning):
    """Something was left out of what was written, because the target cannot hold it: a tensor, rows, metadata, a
    program.

    `losses` has each of them. `deny_loss=True` refuses instead, before anything is written, and
    `allow_loss=True` is content with fewer tensors; whoever knows of it
    and goes on says so as to any warning: `warnings.simplefilter("ignore", weighbridge.LossWarning)`.
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
    """The class of errors of this kind and code.

    >>> class_of("io", "not-found").__name__
    'FileMissingError'
    """
    special = _BY_CODE.get(code)
    if special is not None and special.kind == kind:
        return special
    return _BY_KIND.get(kind, Error)


def from_json(fields: Dict[str, Any], number: Optional[int] = None) -> Error:
    """The exception for an error as JSON has it; `number` is the one of the operating system."""
    error = _again(class_of(fields["kind"], fields["code"]), fields)
    if isinstance(error, OSError) and number is not None:
        _numbered(error, number, error.file)
    return error


@contextmanager
def naming(*paths: Any) -> Iterator[None]:
    """Errors of the system from within have one of these paths as `filename`, where they are about it: also where it
    is no UTF-8.
    """
    try:
        yield
    except Error as error:
        for path in paths:
            # The core shows what is no UTF-8 as well as it can; Python has a text that leads to the file.
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
    """Raises `ArgumentTypeError`: `what` is to be `wanted`, and `value` is not.

    >>> wrong_type("a name", "a str", 3)
    Traceback (most recent call last):
    weighbridge.errors.ArgumentTypeError: a name is to be a str
      found:    int
    """
    found = type(value).__name__
    raise ArgumentTypeError(f"{what} is to be {wanted}", code=code, tensor=tensor, found=found, hint=hint)


def visible(text: str) -> str:
    """The text with what could harm a terminal, or hide, escaped; also what no UTF-8 can hold.

    >>> visible("a\\x1b[2J"), visible("\\udcff.npz")
    ('a\\\\u{1b}[2J', '\\\\udcff.npz')
    """
    return escape_text(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def _numbered(error: OSError, number: Optional[int], file: Optional[str]) -> None:
    error.errno = number
    error.strerror = None if number is None else os.strerror(number)
    error.filename = file


def _again(own: Type[Error], fields: Dict[str, Any]) -> Error:
    rest = dict(fields)
    return own(rest.pop("message"), **rest)
