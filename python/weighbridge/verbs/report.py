"""What verbs answer with: the documents of the Rust part behind typed attributes."""

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

_TOLD = 3
"""Losses that a warning names; it has all of them."""

MOST = 200
"""Rows of a table that are shown in a notebook."""

T = TypeVar("T")


class Report:
    """What a verb has to say. It cannot be changed; two are equal where they say the same.

    >>> import weighbridge
    >>> report = weighbridge.info("net.safetensors")
    >>> report.to_dict()["format"], report.exit_code
    ('safetensors', 0)
    """

    exit_code: int
    """What the command would have ended with: 0 done, 1 a difference or finding, 2 not read, 3 could not
    tell."""

    _document: Dict[str, Any]

    def __init__(self, document: Dict[str, Any], exit_code: int = 0) -> None:
        self.__dict__.update(_document=document, exit_code=exit_code)

    def to_dict(self) -> Dict[str, Any]:
        """The document, as the command prints it with `--json`, in the words of Python. A copy."""
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
            told = f"; there is {', '.join(near)}" if near else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{told}")

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
    """What may be meant, the likeliest first: `sound` is near `is_sound`."""
    from difflib import get_close_matches

    within = [own for own in known if name.lower() in own.split("_")]
    return [*within, *(own for own in get_close_matches(name, known) if own not in within)][:3]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def named(rows: Sequence[N], name: str) -> N:
    """The one of that name; `UnknownNameError`, a `KeyError`, where there is none, with the nearest ones as
    hint.
    """
    for row in rows:
        if row.name == name:
            return row
    near = _near(name, [row.name for row in rows]) if isinstance(name, str) else []
    raise UnknownNameError(
        "there is no tensor of this name in the report",
        code="no-such-tensor",
        tensor=str(name),
        hint=f"there is {', '.join(near)}" if near else None,
    )


class Loss(NamedTuple):
    """Something that the target cannot hold."""

    code: str
    """Stable, for programs."""
    subject: str
    """The tensor, or what else is lost."""
    detail: str
    """For people."""

    left_out: bool
    """True where nothing of it is in the target: a tensor, rows, metadata. Else it is there, but not as it was:
    rounded, under another name, without its role.
    """
    tensor: bool
    """True where it is a whole tensor of the source, which is not in the target."""


class Finding(NamedTuple):
    """What a check brought to light."""

    severity: str
    """`error`, `unchecked` (a part could not be looked at), `warning` or `note`."""
    code: str
    """Stable, for programs."""
    text: str
    """For people."""
    file: Optional[str]
    """Where; `None` for what is of no one file."""
    member: Optional[str]
    """The part of the file that `offset` counts from; `None` for the file itself."""
    offset: Optional[int]
    """The place in bytes."""
    tensor: Optional[str]
    """The tensor that it is about."""
    hint: Optional[str]
    """What helps, in the words of Python."""


class WrittenFile(NamedTuple):
    """A file of what was written, or would be."""

    name: str
    """Relative to the target; empty for the target itself."""
    bytes: int
    """Its length."""
    estimated: bool
    """True where the length was known only when it was written."""


class Cast(NamedTuple):
    """What a cast did to the elements of a tensor."""

    elements: int
    """How many there are."""
    changed: int
    """How many have another value."""
    overflowed: int
    """How many became infinite."""
    underflowed: int
    """How many became zero."""
    worst_error: Optional[float]
    """The largest difference; `None` where it is not finite."""
    worst_relative: Optional[float]
    """The largest difference as a share of the value."""


def picked(own: Type[T], fields: Dict[str, Any]) -> T:
    """A named tuple of what a JSON object says of its fields; lists become tuples, what is missing `None`."""
    return own(*(_fixed(fields.get(name)) for name in own._fields))  # type: ignore[attr-defined]


def _fixed(value: Any) -> Any:
    return tuple(_fixed(own) for own in value) if isinstance(value, list) else value


def many(own: Type[T], values: Optional[Iterable[Dict[str, Any]]]) -> Tuple[T, ...]:
    """One for each object of a list."""
    return tuple(picked(own, value) for value in values or ())


def findings(values: Optional[Iterable[Dict[str, Any]]]) -> Tuple[Finding, ...]:
    """What a verb found."""
    return many(Finding, values)


def notes(document: Dict[str, Any]) -> Tuple[Note, ...]:
    """What is odd about a source. Whether something was left out is a loss there."""
    return tuple(Note(note["code"], note["text"], False) for note in document.get("notes", ()))


def files(document: Dict[str, Any]) -> Tuple[WrittenFile, ...]:
    """The files that a document lists."""
    told = document.get("files", ())
    return tuple(WrittenFile(file["name"], file["bytes"], file.get("estimated", False)) for file in told)


def casts(document: Dict[str, Any]) -> Dict[str, Cast]:
    """What casts did, by the name of the tensor."""
    return {name: picked(Cast, cast) for name, cast in document.get("casts", {}).items()}


def number(value: Union[None, int, float, str]) -> Union[None, int, float]:
    """A number as JSON has it, where what is not finite is a word.

    >>> number("-Infinity"), number(3)
    (-inf, 3)
    """
    return float(value) if isinstance(value, str) else value


def parts_of(parts: Sequence[Any]) -> Tuple[Part, ...]:
    """The parts of a name; those that are not UTF-8 as bytes."""
    return tuple(part if isinstance(part, str) else bytes.fromhex(part["hex"]) for part in parts)


def lost(losses: Sequence[Loss]) -> str:
    """`, 2 losses` for the end of a summary; nothing where there are none."""
    return f", {count(len(losses), 'loss', 'losses')}" if losses else ""


class _Written(Protocol):
    @property
    def losses(self) -> Tuple[Loss, ...]: ...


W = TypeVar("W", bound=_Written)


def told(report: W, refuses: bool, depth: int = 0, *, allowed: bool = False) -> W:
    """The report, after a `LossWarning` where something was left out of what was written; see `warn`. Tensors are no
    reason for one where that is `allowed`.
    """
    if getattr(report, "done", True):
        warn((loss for loss in report.losses if not (allowed and loss.tensor)), refuses, depth + 1)
    return report


def warn(losses: Iterable[Loss], refuses: bool, depth: int = 0) -> None:
    """A `LossWarning` where something is left out. It speaks of the line that called the function which asks for it, or
    of one as many calls further out, and names `deny_loss` where that function `refuses` with it.
    """
    left = tuple(loss for loss in losses if loss.left_out)
    if left:
        import warnings

        shown = [f"{loss.subject}: {loss.detail} ({loss.code})" for loss in left[:_TOLD]]
        more = f"; and {len(left) - _TOLD:,} more" if len(left) > _TOLD else ""
        way = "; deny_loss=True refuses instead" if refuses else ""
        text = f"left out of what was written: {'; '.join(shown)}{more}{way}"
        warnings.warn(LossWarning(escape_text(text), left), stacklevel=3 + depth)


def count(number: int, one: str, more: Optional[str] = None) -> str:
    """How many there are of something, in words.

    >>> count(1, "pair"), count(1200, "pair"), count(2, "loss", "losses")
    ('1 pair', '1,200 pairs', '2 losses')
    """
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def extents(shape: Sequence[int]) -> str:
    """A shape for people.

    >>> extents((4, 3)), extents(())
    ('4 × 3', '()')
    """
    return " × ".join(str(extent) for extent in shape) or "()"


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]], total: int) -> str:
    """A table of HTML of the first rows. What files say goes into it escaped."""

    def cell(mark: str, value: object) -> str:
        return f"<{mark}>{escape(escape_text(shown(value)))}</{mark}>"

    head = "".join(cell("th", name) for name in heads)
    body: List[str] = []
    for row in islice(rows, MOST):
        body.append(f"<tr>{''.join(cell('td', value) for value in row)}</tr>")
    more = f"<p>and {total - len(body):,} more</p>" if total > len(body) else ""
    return (
        f"<p>{escape(escape_text(title))}</p><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>{more}"
    )


def shown(value: object) -> str:
    """A value in a cell.

    >>> shown(1234), shown(0.123456789), shown(None)
    ('1,234', '0.123457', '')
    """
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
