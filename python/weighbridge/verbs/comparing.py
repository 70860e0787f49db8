"""`diff`: comparison of two files."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..opened import Path
from .given import NameStyle, Pairs, Paths, Size, Some, run
from .report import Finding, Report, count, dimensions, findings, many, number, picked, table


class Side(NamedTuple):
    """One side of a comparison."""

    path: str
    format: str
    kind: str


class Change(NamedTuple):
    """A difference of metadata, dtype, shape and so on; `None` for an absent value."""

    what: str
    left: Optional[str]
    right: Optional[str]


class ProgramChange(NamedTuple):
    """A difference of the program; `None` for an absent value."""

    block: int
    subject: str
    part: Optional[str]
    left: Optional[str]
    right: Optional[str]


class Values(NamedTuple):
    """Differences of the values of two tensors. Measures that were not computed are `None`."""

    elements: int
    same_bits: bool
    beyond: int
    """Number of elements beyond the tolerance."""
    finite: int
    max_abs: Optional[float]
    at: Optional[Tuple[int, ...]]
    """Index of the largest difference."""
    max_relative: Optional[float]
    mean_abs: Optional[float]
    cosine: Optional[float]
    max_ulp: Optional[int]
    nan_left: int
    nan_right: int
    nan_moved: int
    """Number of elements that are NaN on one side only."""
    nan_at: Optional[Tuple[int, ...]]
    """Index of the first of these."""
    infinite_apart: int
    """Number of elements that are infinite on one side and different on the other."""
    infinite_at: Optional[Tuple[int, ...]]
    """Index of the first of these."""


class Pair(NamedTuple):
    """A tensor on the left and its counterpart on the right."""

    left: str
    right: str
    found: str
    """Criterion of the pairing: `name` or `content`."""
    status: str
    """Result: `unread`, `shape`, `values`, `form`, `renamed`, `close` or `same`."""
    changes: Tuple[Change, ...]
    """Differences of dtype, shape, role and so on."""
    values: Optional[Values]
    """Differences of values; `None` if the values were not compared."""
    unread: Optional[Finding]
    """Reason if a side could not be read: damaged, or beyond a limit."""


class Alone(NamedTuple):
    """A tensor on one side only."""

    name: str
    dtype: str
    shape: Tuple[int, ...]


class DiffReport(Report):
    """Report of a comparison."""

    def __bool__(self) -> bool:
        raise TypeError("a report has no truth value; use report.same")

    @property
    def same(self) -> bool:
        """True if everything was read and no difference exceeds the tolerance."""
        return self._document["same"]

    @property
    def could_not_tell(self) -> bool:
        """True if no difference was found, but a tensor or another part could not be read."""
        return not (self.same or self._document["different"])

    @property
    def left_out(self) -> int:
        """Number of parts, on either side, that were not read and could differ; `notes` lists them."""
        return self._document["left_out"]

    @cached_property
    def left(self) -> Side:
        """Left side."""
        return picked(Side, self._document["left"])

    @cached_property
    def right(self) -> Side:
        """Right side."""
        return picked(Side, self._document["right"])

    @property
    def values_compared(self) -> bool:
        """True if values were compared; false with `names_only=True`."""
        return self._document["values_compared"]

    @property
    def equal(self) -> int:
        """Number of equal pairs."""
        return self._document["equal"]

    @cached_property
    def pairs(self) -> Tuple[Pair, ...]:
        """Pairs that differ, and with `all=True` also equal pairs; most severe first."""
        return tuple(_pair(pair) for pair in self._document["pairs"])

    @cached_property
    def left_alone(self) -> Tuple[Alone, ...]:
        """Tensors on the left only."""
        return many(Alone, self._document["left_alone"])

    @cached_property
    def right_alone(self) -> Tuple[Alone, ...]:
        """Tensors on the right only."""
        return many(Alone, self._document["right_alone"])

    @cached_property
    def metadata(self) -> Tuple[Change, ...]:
        """Differences of metadata."""
        return many(Change, self._document["metadata"])

    @cached_property
    def program(self) -> Tuple[ProgramChange, ...]:
        """Differences of the program, at most 20,000."""
        return many(ProgramChange, self._document["program"])

    @property
    def program_more(self) -> int:
        """Number of further differences of the program, beyond those in `program`."""
        return self._document["program_more"]

    @property
    def notes(self) -> Tuple[str, ...]:
        """Notes: parts that were not compared, and properties that are not differences, such as bytes shared on one side."""
        return tuple(self._document["notes"])

    @property
    def markdown(self) -> Optional[str]:
        """The report as GitHub-flavored Markdown, with `markdown=True`."""
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
            measures: List[object] = [None] * 4
            if own is not None and not own.same_bits:
                measures = [f"{own.beyond:,} of {own.elements:,}", own.max_abs, own.max_relative, own.cosine]
            changes = [f"{change.what} {change.left} -> {change.right}" for change in pair.changes]
            if pair.unread is not None:
                at = "" if pair.unread.offset is None else f", offset {pair.unread.offset}"
                changes.append(f"{pair.unread.code}: {pair.unread.text} ({pair.unread.file}{at})")
            yield [pair.status, pair.left, pair.right, *measures, "; ".join(changes)]
        for alone in self.left_alone:
            yield ["only left", alone.name, None, *[None] * 4, f"{alone.dtype} {dimensions(alone.shape)}"]
        for alone in self.right_alone:
            yield ["only right", None, alone.name, *[None] * 4, f"{alone.dtype} {dimensions(alone.shape)}"]


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
    dequantize: bool = False,
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
    """Compares two files or folders of any formats.

    Differences do not raise. A damaged tensor does not raise either: its status is `unread`, and the others are compared.

    - `atol`, `rtol`: largest absolute error, and largest error relative to the value on the right; without them values must
      be equal bit by bit;
    - `ignore_dtype`: a different dtype alone is not a difference;
    - `rules`, `rename`, `rename_regex`: edits of the left side before the comparison, as in `edit`; `lenient_rules` accepts
      rules that match no tensor;
    - `select`, `drop`, `no_state`, `no_metadata`: restrict the comparison; `metadata`: also compare properties that few
      formats store, such as `stop_gradient`;
    - `names_only`: compare names, dtypes and shapes, not values;
    - `all`: also list equal pairs;
    - `markdown`: add the report as Markdown;
    - `memory`, `threads`: bytes for buffers; number of threads, 0 is one per processor;
    - `right_from`, `right_program`, ...: reading options of the right side, if they differ from those of the left.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> _ = weighbridge.convert("net.safetensors", "half.npz", cast="f16")
    >>> report = weighbridge.diff("net.safetensors", "half.npz", ignore_dtype=True)
    >>> report.same, [(pair.left, pair.status) for pair in report.pairs]
    (True, [('fc1.bias', 'close'), ('fc1.weight', 'close')])
    """
    return DiffReport(*run("diff", locals()))
