"""Exceptions: what went wrong, where, and what to do about it.

Every exception of this package is an `Error`, and also the exception of Python that fits: a file that is not
there is a `FileNotFoundError`, an unknown name a `KeyError`, damaged content a `ValueError`.

>>> import weighbridge
>>> try:
...     weighbridge.open("no-such-file.npz")
... except FileNotFoundError as error:
...     print(error.code, error.file)
not-found no-such-file.npz
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple, Type

from ._weighbridge import escape_text

_PLACES = ("file", "offset", "tensor", "expected", "found", "hint")


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

    def __str__(self) -> str:
        lines = [escape_text(self.message)]
        for name in _PLACES:
            value = getattr(self, name)
            if value is None:
                continue
            text = f"{value} (0x{value:x})" if name == "offset" else escape_text(str(value))
            lines.append(f"  {name + ':':<9} {text}")
        return "\n".join(lines)

    def __reduce__(self) -> Tuple[Any, ...]:
        return _again, (type(self), self.to_dict())

    def to_dict(self) -> Dict[str, Any]:
        """The error as the value of `"error"` in the JSON of the command."""
        places = {name: getattr(self, name) for name in _PLACES}
        return {"kind": self.kind, "code": self.code, "message": self.message, **places}


class CorruptFileError(Error, ValueError):
    """The bytes contradict the format or themselves."""

    kind = "corrupt"


class UnsupportedError(Error, NotImplementedError):
    """The bytes may be fine, but nothing here handles them."""

    kind = "unsupported"


class LimitError(Error, ValueError):
    """The file asks for more than the limits allow: `open(..., limits={...})` raises them."""

    kind = "limit"


class MismatchError(Error, ValueError):
    """Two things that must fit together do not."""

    kind = "mismatch"


class UnknownNameError(MismatchError, KeyError):
    """There is no tensor of this name; `hint` has the nearest ones."""


class UsageError(Error, ValueError):
    """What was asked for makes no sense."""

    kind = "usage"


class TargetExistsError(UsageError, FileExistsError):
    """There is a file in the place of the target: `force=True` replaces it."""


class FileError(Error, OSError):
    """The operating system refused, or a device failed."""

    kind = "io"


class FileMissingError(FileError, FileNotFoundError):
    """There is no such file."""


class FileDeniedError(FileError, PermissionError):
    """The file may not be read or written."""


class FileChangedError(FileError):
    """A file was cut short while it was read or looked into: bytes that are lost read as zeros."""


class CancelledError(Error, KeyboardInterrupt):
    """The work was stopped on request; nothing was changed."""

    kind = "cancelled"


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
    "exists": TargetExistsError,
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
    fields = dict(fields)
    error = _again(class_of(fields["kind"], fields["code"]), fields)
    if isinstance(error, OSError):
        error.errno = number
        error.filename = error.file
    return error


def _again(own: Type[Error], fields: Dict[str, Any]) -> Error:
    rest = dict(fields)
    return own(rest.pop("message"), **rest)
