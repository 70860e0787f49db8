"""`evaluate`, `neighbors` and `rank`: scores of trained embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Dict, List, Literal, NamedTuple, Optional, Tuple, Union

from ..errors import UsageError
from ..opened import Note, Path
from .given import NameStyle, Pairs, Paths, Size, Some, run
from .report import Report, count, notes, number

if TYPE_CHECKING:
    import numpy

    from ..progress import Progress

Comparator = Literal["dot", "cos", "l2", "squared_l2"]
"""Comparator of two rows. Higher scores are closer; distances are negative."""

Names = Iterable[Union[str, int]]
"""Names of entities, or their row numbers."""


class Metrics(NamedTuple):
    """Averages over edges. Values are `None` without edges."""

    edges: int
    """Number of edges."""
    mrr: Optional[float]
    """Mean reciprocal rank."""
    hits: Dict[int, Optional[float]]
    """Fractions of ranks of at most 1, 10 and 50."""
    mean_rank: Optional[float]
    """Mean rank."""
    auc: Optional[float]
    """Fraction of random pairs in which an edge scores higher than a negative of another edge."""


def _metrics(own: Dict[str, Any]) -> Metrics:
    hits = {int(most): value for most, value in own["hits"].items()}
    return Metrics(own["edges"], own["mrr"], hits, own["mean_rank"], own["auc"])


class EvaluateReport(Report):
    """Metrics of a checkpoint on edges."""

    @property
    def path(self) -> str:
        """Path of the checkpoint."""
        return self._document["path"]

    @cached_property
    def metrics(self) -> Metrics:
        """Metrics of all edges."""
        return _metrics(self._document["metrics"])

    @property
    def mrr(self) -> Optional[float]:
        """Mean reciprocal rank of all edges."""
        return self.metrics.mrr

    @cached_property
    def relations(self) -> Dict[Union[str, int], Metrics]:
        """Metrics of each relation that has edges, by name, or by number if the name is unknown or repeats."""
        found: Dict[Union[str, int], Metrics] = {}
        for own in self._document["relations"]:
            name = own["name"]
            key = own["number"] if name is None or name in found else name
            found[key] = _metrics(own["metrics"])
        return found

    @property
    def candidates(self) -> Dict[str, int]:
        """Number of given candidates of each entity type that has some."""
        return dict(self._document["candidates"])

    @cached_property
    def notes(self) -> Tuple[Note, ...]:
        """Notes on the edges."""
        return notes(self._document)

    def _summary(self) -> str:
        mrr = "" if self.mrr is None else f", MRR {self.mrr:.4f}"
        return f"{self.path}: {count(self.metrics.edges, 'edge')}{mrr}"


def evaluate(
    path: Path,
    *,
    edges: Path,
    filter: Union[None, Paths] = None,  # noqa: A002
    negatives: Union[str, int] = "all",
    candidates: Union[None, Names, Mapping[str, Names]] = None,
    seed: int = 0,
    memory: Size = "1GiB",
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
    progress: Progress = None,
) -> EvaluateReport:
    """Ranks edges by a trained checkpoint of PyTorch-BigGraph: MRR, hits, mean rank, AUC.

    - `edges`: folder of the edges to rank;
    - `filter`: folders of known edges, excluded from the negatives;
    - `negatives`: entities that replace a side of an edge: `all` of the type, those of the `partition`, as PyTorch-BigGraph
      evaluates, or a number of random ones;
    - `candidates`: entities to rank among, instead of `negatives`: a list of names, or row numbers for a type without names; a
      dict of such lists by entity type, if several types are ranked;
    - `seed`: random seed of the negatives and of the AUC;
    - `memory`: memory for the rows of edges; tables are read once for the edges that fit.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> weighbridge.evaluate("no-such-folder", edges="test")
    Traceback (most recent call last):
    weighbridge.errors.FileMissingError: ...
    """
    return EvaluateReport(*run("evaluate", locals()))


class Neighbor(NamedTuple):
    """A row near a query."""

    row: int
    name: Optional[str]
    """Name of the row; `None` if unknown."""
    score: Optional[float]


class NeighborsReport(Report):
    """Nearest rows of each query, closest first."""

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._document["path"]

    @property
    def table(self) -> str:
        """Name of the table of the neighbors."""
        return self._document["table"]

    @property
    def comparator(self) -> str:
        """Comparator."""
        return self._document["comparator"]

    @cached_property
    def queries(self) -> Tuple[Tuple[Optional[int], Optional[str]], ...]:
        """Row and name of each query; `None` for vectors."""
        return tuple((own["row"], own["name"]) for own in self._document["queries"])

    @cached_property
    def lists(self) -> Tuple[Tuple[Neighbor, ...], ...]:
        """Neighbors of each query."""
        return tuple(
            tuple(Neighbor(own["row"], own["name"], number(own["score"])) for own in query["neighbors"])
            for query in self._document["queries"]
        )

    @cached_property
    def rows(self) -> numpy.ndarray:
        """Rows of the neighbors: one line a query, int64; -1 where a query has fewer neighbors than others."""
        return self._array("int64", -1, "row")

    @cached_property
    def scores(self) -> numpy.ndarray:
        """Scores of the neighbors: one line a query, float32; NaN where `rows` is -1."""
        return self._array("float32", float("nan"), "score")

    def _array(self, dtype: str, missing: float, key: str) -> numpy.ndarray:
        import numpy

        lists = [query["neighbors"] for query in self._document["queries"]]
        array = numpy.full((len(lists), max(map(len, lists), default=0)), missing, dtype)
        for line, own in zip(array, lists):
            line[: len(own)] = [number(one[key]) for one in own]
        return array

    def _summary(self) -> str:
        return f"{self.path}: {count(len(self.queries), 'query', 'queries')}, {self.table} by {self.comparator}"


def neighbors(
    path: Path,
    rows: Some = None,
    vectors: Any = None,
    *,
    count: int = 10,
    by: Optional[Comparator] = None,
    relation: Union[None, str, int] = None,
    reverse: bool = False,
    queries: Optional[Path] = None,
    memory: Size = "1GiB",
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
    progress: Progress = None,
) -> NeighborsReport:
    """Finds the rows of a table that are nearest to each query. The search is exact.

    - `rows`: rows of one table, such as `user["alice"]`, `user[7]` or `user[0:10]`; by default all rows of the only table;
    - `vectors`: an array of vectors as queries, one a line; `rows` is then the name of the table, if there are several;
    - `count`: number of neighbors of each query;
    - `by`: comparator; by default that of the training, or `cos`;
    - `relation`: name or number of a relation of PyTorch-BigGraph: the rows that it predicts; `reverse`: for left sides, if
      both sides have the same type;
    - `queries`: file of row names, one a line.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> report = weighbridge.neighbors("net.safetensors", "fc1.weight[0]", count=2, by="l2")
    >>> report.rows.tolist(), report.scores.round(3).tolist()
    ([[1, 2]], [[-5.196000099182129, -10.392000198364258]])
    """
    given = dict(locals())
    if vectors is None:
        del given["vectors"]
    else:
        import numpy

        array = numpy.asarray(vectors)
        if array.ndim == 1:
            array = array[None, :]
        if array.ndim != 2 or array.dtype.kind not in "fiu":
            raise UsageError(
                "vectors must be an array of two dimensions, one vector a line",
                code="wrong-type",
                found=f"{array.dtype} {list(array.shape)}",
            )
        given["columns"] = array.shape[1]
        given["vectors"] = numpy.ascontiguousarray(array, "<f4").tobytes()
    return NeighborsReport(*run("neighbors", given))


class RankedSide(NamedTuple):
    """Rank of a side of an edge."""

    table: str
    row: int
    name: Optional[str]
    score: Optional[float]
    rank: int
    """1 plus the number of negatives that score at least as high."""
    negatives: int


class RankReport(Report):
    """Score and rank of one edge."""

    @property
    def path(self) -> str:
        """Path of the checkpoint."""
        return self._document["path"]

    @property
    def relation(self) -> Union[str, int]:
        """Name of the relation, or its number if the name is unknown."""
        own = self._document["relation"]
        return own["number"] if own["name"] is None else own["name"]

    @cached_property
    def lhs(self) -> RankedSide:
        """Rank of the left side among all entities of its type."""
        return _side(self._document["lhs"])

    @cached_property
    def rhs(self) -> RankedSide:
        """Rank of the right side among all entities of its type."""
        return _side(self._document["rhs"])

    def _summary(self) -> str:
        return f"{self.path}: {self.relation}, left side {self.lhs.rank:,}, right side {self.rhs.rank:,}"


def _side(own: Dict[str, Any]) -> RankedSide:
    values: List[Any] = [own[name] for name in RankedSide._fields]
    return RankedSide(*values)._replace(score=number(own["score"]))


def rank(
    path: Path,
    lhs: str,
    rhs: str,
    *,
    relation: Union[str, int],
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
) -> RankReport:
    """Scores one edge by a trained checkpoint of PyTorch-BigGraph, and ranks it among all entities.

    `lhs` and `rhs` are rows, such as `user["alice"]` or `user[7]`; `relation` is a name or a number.

    Reading options (`from_`, `lenient`, `salvage`, `follow_virtual`, `dequantize`, `program`, `names`, `entities`,
    `config`, `at`, `limit`) are those of `open`, where `from_` is `format` and `limit` is `limits`.

    >>> import weighbridge
    >>> weighbridge.rank("no-such-folder", "user[0]", "user[1]", relation="follows")
    Traceback (most recent call last):
    weighbridge.errors.FileMissingError: ...
    """
    return RankReport(*run("rank", locals()))
