"""Reports of verbs: documents of the native part behind typed attributes."""

from __future__ import annotations

import copy
from html import escape
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterable,
    List,
    NamedTuple,
    NoReturn,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from .._weighbridge import escape_text
from ..errors import LossWarning, UnknownNameError
from ..opened import Note
from ..tensor import Part

_MAX_SHOWN_LOSSES = 3
"""Largest number of losses in the text of a warning; its `losses` has all of them."""

MAX_ROWS = 200
"""Largest number of rows of a table in a notebook."""

T = TypeVar("T")


class Report:
    """Report of a verb. It is immutable; reports with equal documents are equal.

    >>> import weighbridge
    >>> report = weighbridge.info("net.safetensors")
    >>> report.to_dict()["format"], report.exit_code
    ('safetensors', 0)
    """

    exit_code: int
    """Exit code of the command: 0 done, 1 a difference, finding or loss, 2 unreadable input, 3 could not tell."""

    _document: Dict[str, Any]

    def __init__(self, document: Dict[str, Any], exit_code: int = 0) -> None:
        self.__dict__.update(_document=document, exit_code=exit_code)

    def to_dict(self) -> Dict[str, Any]:
        """Returns a copy of the document that the command prints with `--json`, with hints worded for Python."""
        return copy.deepcopy(self._document)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a report cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a report cannot be changed: {name}")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            near = (
                [] if name.startswith("_") else _near(name, [own for own in dir(type(self)) if own[0] != "_"])
            )
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Report):
            return NotImplemented
        return type(self) is type(other) and self._document == other._document

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {escape_text(self._summary())}>"

    def _summary(self) -> str:
        return str(self._document.get("path", ""))


def _near(name: str, known: Sequence[str]) -> List[str]:
    """Returns similar names, the most likely first: `sound` matches `is_sound`."""
    from difflib import get_close_matches

    within = [own for own in known if name.lower() in own.split("_")]
    return [*within, *(own for own in get_close_matches(name, known) if own not in within)][:3]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def named(rows: Sequence[N], name: str) -> N:
    """Returns the row with this name; raises `UnknownNameError`, a `KeyError`, with the nearest names as hint."""
    for row in rows:
        if row.name == name:
            return row
    near = _near(name, [row.name for row in rows]) if isinstance(name, str) else []
    raise UnknownNameError(
        "no tensor in the report has this name",
        code="no-such-tensor",
        tensor=str(name),
        hint=f"did you mean {', '.join(near)}?" if near else None,
    )


class Loss(NamedTuple):
    """Content that the target cannot represent."""

    code: str
    """Stable code, for programs."""
    subject: str
    """The affected tensor or other content."""
    detail: str
    """Text for readers."""

    left_out: bool
    """True if the subject is missing from the target: a tensor, rows, metadata. Else it is there, but changed: rounded,
    renamed, without its role.
    """
    tensor: bool
    """True if a whole tensor of the source is missing from the target."""


class Finding(NamedTuple):
    """A finding of a check."""

    severity: str
    """Severity: `error`, `unchecked` (a part could not be checked), `warning` or `note`."""
    code: str
    """Stable code, for programs."""
    text: str
    """Text for readers."""
    file: Optional[str]
    """Path of the file; `None` if the finding is not about a single file."""
    member: Optional[str]
    """Member of the file that `offset` counts from; `None` for the file itself."""
    offset: Optional[int]
    """Offset in bytes."""
    tensor: Optional[str]
    """Name of the affected tensor."""
    hint: Optional[str]
    """Instruction, worded for Python."""


class WrittenFile(NamedTuple):
    """A written or planned file."""

    name: str
    """Name relative to the target; empty for the target itself."""
    bytes: int
    """Size in bytes."""
    estimated: bool
    """True if the size is an estimate until the file is written."""


class Cast(NamedTuple):
    """Effects of a cast on the elements of a tensor."""

    elements: int
    """Number of elements."""
    changed: int
    """Number of elements whose value changed."""
    overflowed: int
    """Number of elements that became infinite."""
    underflowed: int
    """Number of elements that became zero."""
    worst_error: Optional[float]
    """Largest absolute error; `None` if not finite."""
    worst_relative: Optional[float]
    """Largest relative error."""


def picked(own: Type[T], fields: Dict[str, Any]) -> T:
    """Makes a named tuple of the matching fields of a JSON object; lists become tuples, missing fields `None`."""
    return own(*(_fixed(fields.get(name)) for name in own._fields))  # type: ignore[attr-defined]


def _fixed(value: Any) -> Any:
    return tuple(_fixed(own) for own in value) if isinstance(value, list) else value


def many(own: Type[T], values: Optional[Iterable[Dict[str, Any]]]) -> Tuple[T, ...]:
    """Makes a named tuple of each object of a list."""
    return tuple(picked(own, value) for value in values or ())


def findings(values: Optional[Iterable[Dict[str, Any]]]) -> Tuple[Finding, ...]:
    """Findings of a verb."""
    return many(Finding, values)


def notes(document: Dict[str, Any]) -> Tuple[Note, ...]:
    """Notes about a source. Omissions are not marked here: they are losses."""
    return tuple(Note(note["code"], note["text"], False) for note in document.get("notes", ()))


def files(document: Dict[str, Any]) -> Tuple[WrittenFile, ...]:
    """Files listed in a document."""
    listed = document.get("files", ())
    return tuple(WrittenFile(file["name"], file["bytes"], file.get("estimated", False)) for file in listed)


def casts(document: Dict[str, Any]) -> Dict[str, Cast]:
    """Effects of casts, by tensor name."""
    return {name: picked(Cast, cast) for name, cast in document.get("casts", {}).items()}


def number(value: Union[None, int, float, str]) -> Union[None, int, float]:
    """Converts a number of JSON, where NaN and infinities are strings.

    >>> number("-Infinity"), number(3)
    (-inf, 3)
    """
    return float(value) if isinstance(value, str) else value


def parts_of(parts: Sequence[Any]) -> Tuple[Part, ...]:
    """Converts parts of a name from JSON; parts that are not UTF-8 become bytes."""
    return tuple(part if isinstance(part, str) else bytes.fromhex(part["hex"]) for part in parts)


def lost(losses: Sequence[Loss]) -> str:
    """Returns `, 2 losses` for the end of a summary; empty without losses."""
    return f", {count(len(losses), 'loss', 'losses')}" if losses else ""


class _Written(Protocol):
    @property
    def losses(self) -> Tuple[Loss, ...]: ...


W = TypeVar("W", bound=_Written)


def warned(report: W, refuses: bool, depth: int = 0, *, allowed: bool = False) -> W:
    """Returns the report, after a `LossWarning` if content was omitted; see `warn`. With `allowed`, missing tensors cause no
    warning.
    """
    if getattr(report, "done", True):
        warn((loss for loss in report.losses if not (allowed and loss.tensor)), refuses, depth + 1)
    return report


def warn(losses: Iterable[Loss], refuses: bool, depth: int = 0) -> None:
    """Issues a `LossWarning` if content is omitted.

    The warning points at the caller of the public function, `depth` calls further out. With `refuses` it mentions `deny_loss`.
    """
    omitted = tuple(loss for loss in losses if loss.left_out)
    if omitted:
        import warnings

        shown = [f"{loss.subject}: {loss.detail} ({loss.code})" for loss in omitted[:_MAX_SHOWN_LOSSES]]
        rest = len(omitted) - _MAX_SHOWN_LOSSES
        more = f"; and {rest:,} more" if rest > 0 else ""
        way = "; deny_loss=True raises an error instead" if refuses else ""
        text = f"omitted from the output: {'; '.join(shown)}{more}{way}"
        warnings.warn(LossWarning(escape_text(text), omitted), stacklevel=3 + depth)


def count(number: int, one: str, more: Optional[str] = None) -> str:
    """Returns a number with its noun.

    >>> count(1, "pair"), count(1200, "pair"), count(2, "loss", "losses")
    ('1 pair', '1,200 pairs', '2 losses')
    """
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def dimensions(shape: Sequence[int]) -> str:
    """Returns a shape for display.

    >>> dimensions((4, 3)), dimensions(())
    ('4 × 3', '()')
    """
    return " × ".join(str(size) for size in shape) or "()"


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]], total: int) -> str:
    """Renders the first rows as an HTML table. All text is escaped."""

    def cell(mark: str, value: object) -> str:
        return f"<{mark}>{escape(escape_text(shown(value)))}</{mark}>"

    head = "".join(cell("th", name) for name in heads)
    body: List[str] = []
    for row in islice(rows, MAX_ROWS):
        body.append(f"<tr>{''.join(cell('td', value) for value in row)}</tr>")
    more = f"<p>and {total - len(body):,} more</p>" if total > len(body) else ""
    return (
        f"<p>{escape(escape_text(title))}</p><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>{more}"
    )


def shown(value: object) -> str:
    """Returns the text of a table cell.

    >>> shown(1234), shown(0.123456789), shown(None)
    ('1,234', '0.123457', '')
    """
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
