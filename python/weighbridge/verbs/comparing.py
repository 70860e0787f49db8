"""`diff`: what is different between two files."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..opened import Path
from .given import NameStyle, Pairs, Paths, Size, Some, run
from .report import Finding, Report, count, extents, findings, many, number, picked, table


class Side(NamedTuple):
    """One of the two that are compared."""

    path: str
    format: str
    kind: str


class Change(NamedTuple):
    """Something that is not the same on both sides; `None` where there is nothing."""

    what: str
    left: Optional[str]
    right: Optional[str]


class ProgramChange(NamedTuple):
    """Something in the program that is not the same; `None` where there is nothing."""

    block: int
    subject: str
    part: Optional[str]
    left: Optional[str]
    right: Optional[str]


class Values(NamedTuple):
    """How far apart the values of two tensors are. Measures that were not taken are `None`."""

    elements: int
    same_bits: bool
    beyond: int
    """Places that are further apart than what was allowed."""
    finite: int
    max_abs: Optional[float]
    at: Optional[Tuple[int, ...]]
    """The index of the place that is the furthest apart."""
    max_relative: Optional[float]
    mean_abs: Optional[float]
    cosine: Optional[float]
    max_ulp: Optional[int]
    nan_left: int
    nan_right: int
    nan_moved: int
    """Places where only one side has NaN."""
    nan_at: Optional[Tuple[int, ...]]
    """The index of the first of them."""
    infinite_apart: int
    """Places where one side is infinite, and the other is not the same."""
    infinite_at: Optional[Tuple[int, ...]]
    """The index of the first of them."""


class Pair(NamedTuple):
    """A tensor on the left and the one on the right that it is held against."""

    left: str
    right: str
    found: str
    """How they were paired: by `name` or `content`."""
    status: str
    """`unread`, `shape`, `values`, `form`, `renamed`, `close` or `same`."""
    changes: Tuple[Change, ...]
    """Types, shapes, roles and so on that differ."""
    values: Optional[Values]
    """`None` where they were not compared."""
    unread: Optional[Finding]
    """Why they could not be compared, where a side is damaged or beyond a limit."""


class Alone(NamedTuple):
    """A tensor that is on one side only."""

    name: str
    dtype: str
    shape: Tuple[int, ...]


class DiffReport(Report):
    """What is different, and by how much."""

    def __bool__(self) -> bool:
        raise TypeError("ask for same: a report by itself is neither true nor false")

    @property
    def same(self) -> bool:
        """True where nothing is different, or all is near enough, and everything could be read."""
        return self._document["same"]

    @property
    def could_not_tell(self) -> bool:
        """True where no difference was found, but a tensor or a part could not be read."""
        return not (self.same or self._document["different"])

    @property
    def left_out(self) -> int:
        """Parts of either side that were not read and could differ; each is told in `notes`."""
        return self._document["left_out"]

    @cached_property
    def left(self) -> Side:
        """What it was."""
        return picked(Side, self._document["left"])

    @cached_property
    def right(self) -> Side:
        """What it is."""
        return picked(Side, self._document["right"])

    @property
    def values_compared(self) -> bool:
        """False with `names_only=True`."""
        return self._document["values_compared"]

    @property
    def equal(self) -> int:
        """How many pairs are the same."""
        return self._document["equal"]

    @cached_property
    def pairs(self) -> Tuple[Pair, ...]:
        """Pairs that are not the same, and with `all=True` the others, too; what weighs most first."""
        return tuple(_pair(pair) for pair in self._document["pairs"])

    @cached_property
    def left_alone(self) -> Tuple[Alone, ...]:
        """Tensors that are on the left only."""
        return many(Alone, self._document["left_alone"])

    @cached_property
    def right_alone(self) -> Tuple[Alone, ...]:
        """Tensors that are on the right only."""
        return many(Alone, self._document["right_alone"])

    @cached_property
    def metadata(self) -> Tuple[Change, ...]:
        """Metadata that differ."""
        return many(Change, self._document["metadata"])

    @cached_property
    def program(self) -> Tuple[ProgramChange, ...]:
        """What differs in the program, 20,000 at most."""
        return many(ProgramChange, self._document["program"])

    @property
    def program_more(self) -> int:
        """How many more differences of the program there are than `program` lists."""
        return self._document["program_more"]

    @property
    def notes(self) -> Tuple[str, ...]:
        """What was not compared, or is no difference and good to know, such as bytes shared on one side."""
        return tuple(self._document["notes"])

    @property
    def markdown(self) -> Optional[str]:
        """The report as GitHub's Markdown, with `markdown=True`."""
        return self._document.get("markdown")

    def _summary(self) -> str:
        verdict = "could not tell" if self.could_not_tell else "same" if self.same else "different"
        parts = [verdict, f"{count(self.equal, 'pair')} equal"]
        other = len([pair for pair in self._document["pairs"] if pair["status"] != "same"])
        alone = (len(self.left_alone), "left alone"), (len(self.right_alone), "right alone")
        parts.extend(f"{own:,} {what}" for own, what in ((other, "not"), *alone) if own)
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        heads = ("what", "left", "right", "apart", "max abs", "max rel", "cosine", "changes")
        total = len(self.pairs) + len(self.left_alone) + len(self.right_alone)
        return table(self._summary(), heads, self._rows(), total)

    def _rows(self) -> Iterator[List[object]]:
        for pair in self.pairs:
            own = pair.values
            told: List[object] = [None] * 4
            if own is not None and not own.same_bits:
                told = [f"{own.beyond:,} of {own.elements:,}", own.max_abs, own.max_relative, own.cosine]
            changes = [f"{change.what} {change.left} -> {change.right}" for change in pair.changes]
            if pair.unread is not None:
                at = "" if pair.unread.offset is None else f" at {pair.unread.offset}"
                changes.append(f"{pair.unread.code}: {pair.unread.text} in {pair.unread.file}{at}")
            yield [pair.status, pair.left, pair.right, *told, "; ".join(changes)]
        for alone in self.left_alone:
            yield ["only left", alone.name, None, *[None] * 4, f"{alone.dtype} {extents(alone.shape)}"]
        for alone in self.right_alone:
            yield ["only right", None, alone.name, *[None] * 4, f"{alone.dtype} {extents(alone.shape)}"]


def _pair(pair: Dict[str, Any]) -> Pair:
    own = pair["values"]
    values = None
    if own is not None:
        values = picked(Values, own)
        values = values._replace(
            max_abs=number(values.max_abs),
            max_relative=number(values.max_relative),
            mean_abs=number(values.mean_abs),
            cosine=number(values.cosine),
        )
    unread = findings([pair["unread"]])[0] if pair["unread"] is not None else None
    return picked(Pair, pair)._replace(changes=many(Change, pair["changes"]), values=values, unread=unread)


def diff(
    left: Path,
    right: Path,
    *,
    atol: Optional[float] = None,
    rtol: Optional[float] = None,
    ignore_dtype: bool = False,
    rules: Optional[Paths] = None,
    lenient_rules: bool = False,
    rename: Pairs = None,
    rename_regex: Pairs = None,
    select: Some = None,
    drop: Some = None,
    no_state: bool = False,
    no_metadata: bool = False,
    metadata: bool = False,
    names_only: bool = False,
    all: bool = False,  # noqa: A002
    markdown: bool = False,
    memory: Size = "256MiB",
    threads: int = 0,
    from_: Optional[str] = None,
    lenient: bool = False,
    salvage: bool = False,
    follow_virtual: bool = False,
    program: Optional[Path] = None,
    names: NameStyle = "as-stored",
    entities: Optional[Path] = None,
    config: Optional[Path] = None,
    at: Optional[int] = None,
    limit: Pairs = None,
    right_from: Optional[str] = None,
    right_program: Optional[Path] = None,
    right_entities: Optional[Path] = None,
    right_config: Optional[Path] = None,
    right_at: Optional[int] = None,
) -> DiffReport:
    """What is different between two files or folders of any formats, and by how much. A difference is no
    exception, nor is a tensor that is damaged: it is `unread`, and the others are compared.

    - `atol`, `rtol`: how far a value may be off, as a distance and as a share of the value on the right;
      without them every bit counts;
    - `ignore_dtype`: a type that differs is no difference by itself;
    - `rules`, `rename`, `rename_regex`: what to do to the left side before, as of `edit`; `lenient_rules` goes
      on where one of them fits nothing;
    - `select`, `drop`, `no_state`, `no_metadata`: what is compared; `metadata`: what few files can hold, too, such
      as `stop_gradient`;
    - `names_only`: names, types and shapes, and no values;
    - `all`: list the pairs that are the same, too;
    - `markdown`: make the report as Markdown, too;
    - `memory`, `threads`: bytes for buffers; 0 threads is one for each processor;
    - `right_from`, `right_program`, ...: how to read the right side, where that differs from how the left one
      is read.

    How it is read (`from_`, `lenient`, `salvage`, `follow_virtual`, `program`, `names`, `entities`, `config`,
    `at`, `limit`) is said as to `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> _ = weighbridge.convert("net.safetensors", "half.npz", cast="f16")
    >>> report = weighbridge.diff("net.safetensors", "half.npz", ignore_dtype=True)
    >>> report.same, [(pair.left, pair.status) for pair in report.pairs]
    (True, [('fc1.bias', 'close'), ('fc1.weight', 'close')])
    """
    return DiffReport(*run("diff", locals()))
