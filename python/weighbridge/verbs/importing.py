"""`import_edges`: edge lists into the input folders of PyTorch-BigGraph."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple, Optional, Tuple

from ..opened import Path
from ..progress import Progress
from .given import Paths, Size, run
from .report import Report, count, many


class ImportedEdges(NamedTuple):
    """Folder of edges."""

    folder: str
    """Folder below the target."""
    edges: int
    dropped: int
    """Edges with names that are too rare."""
    bad_lines: int
    """Malformed lines and rows that were skipped."""
    buckets: Tuple[int, int]
    """Partitions of left and of right sides."""


class ImportedNames(NamedTuple):
    """Names of an entity type."""

    name: str
    found: int
    """Distinct names in the input."""
    kept: int
    """Names with enough uses."""
    partitions: int


class ImportReport(Report):
    """Report of an import."""

    @property
    def path(self) -> str:
        """Path of the target."""
        return self._document["target"]

    @property
    def bytes(self) -> int:
        """Size of all files together, in bytes."""
        return self._document["bytes"]

    @property
    def resumed(self) -> bool:
        """True if an interrupted import was continued."""
        return self._document["resumed"]

    @cached_property
    def edges(self) -> Tuple[ImportedEdges, ...]:
        """Edge folders, in the order of the configuration."""
        return many(ImportedEdges, self._document["edges"])

    @cached_property
    def entities(self) -> Tuple[ImportedNames, ...]:
        """Entity types, in the order of the configuration."""
        return many(ImportedNames, self._document["entities"])

    def _summary(self) -> str:
        edges = sum(one.edges for one in self.edges)
        return f"{self.path}: {count(edges, 'edge')}, {count(self._document['files'], 'file')}"


def import_edges(
    sources: Paths,
    target: Path,
    *,
    config: Path,
    from_: Optional[Literal["tsv", "csv", "words", "nt"]] = None,
    columns: Optional[str] = None,
    header: bool = False,
    skip_bad: int = 0,
    entity_min_count: int = 1,
    relation_min_count: int = 1,
    order: Literal["random", "sorted", "seen"] = "random",
    seed: int = 0,
    like_upstream: bool = False,
    force: bool = False,
    no_sync: bool = False,
    memory: Size = "1GiB",
    threads: int = 0,
    progress: Progress = None,
) -> ImportReport:
    """Imports edge lists into the input folders of PyTorch-BigGraph, as the verb `import` does.

    - `sources`: files (text, Parquet, Arrow), folders or patterns; `SET=PATH` names the edge path by its last part;
    - `target`: folder to write;
    - `config`: BigGraph configuration: JSON, or a Python file with a literal dictionary;
    - `from_`: form of text, by the extension by default;
    - `columns`: names in order: `lhs`, `rhs`, `rel`, `weight`, and `-` for others, by default `lhs,rel,rhs`; the columns of a table
      are found by these names where it has them; `header` skips the first line of text;
    - `skip_bad`: number of malformed lines or rows to skip instead of failing at the first;
    - `entity_min_count`, `relation_min_count`: drop names with fewer uses, and their edges;
    - `order`, `seed`: ids of entities; `like_upstream` gives the ids of upstream's importer after `random.seed(seed)`.

    An import that was interrupted continues when it is called again with the same arguments.

    >>> import weighbridge
    >>> weighbridge.import_edges("edges.tsv", "shop", config="shop.json")
    <ImportReport shop: 3 edges, 4 files>
    """
    document, _ = run("import_edges", locals())
    return ImportReport(document, 0)
