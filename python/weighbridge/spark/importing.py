"""`import_edges` on a cluster.

    edges        -> uses of names                     counted, by type
    names        -> ids: ranks in a sorted frame      which is kept, as both the lists and the edges need it
    lists        -> entity_names_TYPE_PART.json       a list is written by one task
    edges        -> joined with the ids of both sides
                 -> edges_LHS_RHS.h5                  a bucket is written by one task

Names are bytes throughout, so that collations of strings change nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Dict, List, Literal, Sequence, Set, Tuple, Union

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from .._weighbridge import import_layout
from ..checks import path_text, whole
from ..errors import CorruptFileError, MismatchError, TargetExistsError, UsageError
from ..opened import Path, open as open_file
from ..verbs.importing import ImportReport
from .source import BigGraphDataSource, NamesDataSource, edge_file, sync_folder

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_COLUMNS = ("lhs", "rel", "rhs", "weight", "position")
_RELATION_NAMES = "dynamic_rel_names.json"


def import_edges(
    spark: SparkSession,
    sets: Union[DataFrame, Mapping[str, DataFrame]],
    target: Path,
    config: Path,
    *,
    order: Literal["random", "sorted"] = "random",
    seed: int = 0,
    entity_min_count: int = 1,
    relation_min_count: int = 1,
    force: bool = False,
) -> ImportReport:
    """Imports frames of edges into the input folders of PyTorch-BigGraph, as `weighbridge.import_edges` does on one machine.

    - `sets`: frame of edges, or a dict of frames by the last part of their edge path. Columns: `lhs`, `rhs`, `rel` (names as
      strings or bytes), optionally `weight`, and optionally `position`;
    - `target`: folder to write, in a file system that all machines share;
    - `config`: BigGraph configuration: JSON, or a Python file with a literal dictionary;
    - `order`, `seed`: ids of entities: `sorted` by the bytes of their names, or by hashes of names and seed;
    - `entity_min_count`, `relation_min_count`: drop names with fewer uses, and their edges;
    - `force`: replace an existing target, unless it has files that the output does not contain.

    With `order="sorted"` all files of names and counts are those of one machine, byte by byte. Spark does not know the order
    of the input, so the edges of a bucket are in an order given by hashes of the edges and `seed`, the same in each run. With
    a column `position` they are in its order, and a `position` that follows the lines of the input makes the edge files those
    of one machine, too.

    The target appears when it is complete. An import that fails leaves nothing.
    """
    if order not in ("random", "sorted"):
        raise UsageError("unknown order", code="bad-arguments", expected="random or sorted", found=str(order))
    for number, what in (
        (seed, "seed"),
        (entity_min_count, "entity_min_count"),
        (relation_min_count, "relation_min_count"),
    ):
        whole(number, what)
    folder = os.path.abspath(path_text(target, "target"))
    if os.path.lexists(folder) and not force:
        raise TargetExistsError(
            "the target exists", code="exists", file=folder, hint="force=True replaces it"
        )
    spark.dataSource.register(BigGraphDataSource)
    spark.dataSource.register(NamesDataSource)
    job = _Import(spark, sets, config)
    job.random = order == "random"
    job.seed = seed
    job.least = (entity_min_count, relation_min_count)
    _check_replaced(folder, job.planned())
    work = os.path.join(os.path.dirname(folder), f".{os.path.basename(folder)}.{uuid.uuid4().hex}")
    os.makedirs(work)
    try:
        document = job.run(work)
        _publish(work, folder)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return ImportReport({"target": os.fspath(target), **document, "resumed": False}, 0)


class _Import:
    """Steps of an import."""

    def __init__(
        self, spark: SparkSession, sets: Union[DataFrame, Mapping[str, DataFrame]], config: Path
    ) -> None:
        layout = import_layout(path_text(config, "config"))
        self.spark = spark
        self.entities: List[Tuple[str, int]] = [(name, parts) for name, parts in layout["entities"]]
        self.relations: List[Tuple[str, str, str]] = [tuple(own) for own in layout["relations"]]
        self.dynamic: bool = layout["dynamic_relations"]
        self.entity_folder: str = layout["entity_folder"]
        self.folders: List[str] = [folder for _, folder in layout["sets"]]
        self.buckets: Tuple[int, int] = tuple(layout["buckets"])
        self.names = [name for name, _ in layout["sets"]]
        self.random = True
        self.seed = 0
        self.least = (1, 1)
        frames = _frames(sets, self.names)
        columns = _common_columns(frames, self.names)
        if "rel" not in columns and (self.dynamic or len(self.relations) != 1):
            raise UsageError(
                "the relation of the edges is missing",
                code="edge-columns",
                expected="a column rel",
                found=", ".join(columns),
            )
        self.weighted = "weight" in columns
        self.positioned = "position" in columns
        self.frames = [self._with_types(_prepared(frame)) for frame in frames]

    def planned(self) -> Set[str]:
        """Returns all files of the target, as paths below it."""
        names = {
            f"entity_{kind}_{name}_{part}.{end}"
            for name, parts in self.entities
            for part in range(parts)
            for kind, end in (("count", "txt"), ("names", "json"))
        }
        names |= {_RELATION_NAMES, *(["dynamic_rel_count.txt"] if self.dynamic else [])}
        planned = {_within(self.entity_folder, name) for name in names}
        for left in range(self.buckets[0]):
            for right in range(self.buckets[1]):
                planned |= {_within(folder, edge_file(left, right)) for folder in self.folders}
        return planned

    def run(self, work: str) -> Dict[str, Any]:
        """Writes all files; returns the document of the report, without the target."""
        totals = self._check()
        ranked = self._ranked()
        try:
            pieces = (
                ranked.groupBy("type", "piece", "rare")
                .agg(F.min("place").alias("first"), F.count("*").alias("names"))
                .collect()
            )
            found = [0] * (len(self.entities) + 1)
            kept = [0] * (len(self.entities) + 1)
            bases = []
            for piece in sorted(pieces, key=lambda piece: (piece["type"], piece["first"])):
                own = piece["type"]
                found[own] += piece["names"]
                if not piece["rare"]:
                    bases.append((own, piece["piece"], kept[own] - piece["first"]))
                    kept[own] += piece["names"]
            numbered = self._numbered(ranked, bases, kept)
            self._write_names(numbered, kept, _within(work, self.entity_folder))
            for frame, folder in zip(self.frames, self.folders):
                self._write_edges(frame, numbered, _within(work, folder))
        finally:
            ranked.unpersist()
        edges = []
        for name, folder, total in zip(self.names, self.folders, totals):
            count = self._count(_within(work, folder))
            edges.append(
                {
                    "folder": folder,
                    "edges": count,
                    "dropped": total - count,
                    "bad_lines": 0,
                    "buckets": list(self.buckets),
                }
            )
        files = [os.path.join(parent, name) for parent, _, names in os.walk(work) for name in names]
        relations = len(self.relations)
        return {
            "edges": edges,
            "entities": [
                {"name": name, "found": found[own], "kept": kept[own], "partitions": parts}
                for own, (name, parts) in enumerate(self.entities)
            ],
            "relations": {
                "found": found[-1] if self.dynamic else relations,
                "kept": kept[-1] if self.dynamic else relations,
            },
            "files": len(files),
            "bytes": sum(os.path.getsize(file) for file in files),
        }

    def _with_types(self, frame: DataFrame) -> DataFrame:
        """Adds the entity types of both sides, and for static relations their index `rel_id`; null for an unknown one."""
        types = {name: number for number, (name, _) in enumerate(self.entities)}
        sides = [(types[lhs], types[rhs]) for _, lhs, rhs in self.relations]
        if self.dynamic or "rel" not in frame.columns:
            own = {"lhs_type": sides[0][0], "rhs_type": sides[0][1]}
            frame = frame.withColumns({name: F.lit(number) for name, number in own.items()})
            return frame if self.dynamic else frame.withColumn("rel_id", F.lit(0).cast("long"))
        # Of equal names the last counts, as on one machine.
        last = {name.encode(): (number, *sides[number]) for number, (name, _, _) in enumerate(self.relations)}
        known = self.spark.createDataFrame(
            [(bytearray(name), *own) for name, own in last.items()],
            "rel binary, rel_id long, lhs_type int, rhs_type int",
        )
        return frame.join(F.broadcast(known), "rel", "left")

    def _check(self) -> List[int]:
        """Returns the number of edges of each set, after a check of all."""
        named = ("lhs", "rhs", "rel") if self.dynamic else ("lhs", "rhs")
        empty = F.lit(False)
        for name in named:
            empty = empty | F.coalesce(F.length(name) == 0, F.lit(True))
        static = "rel" in self.frames[0].columns and not self.dynamic
        unknown = F.when(F.col("rel_id").isNull(), F.coalesce("rel", F.lit(b""))) if static else F.lit(None)
        weightless = F.col("weight").isNull() if self.weighted else F.lit(False)
        totals = []
        for frame, name in zip(self.frames, self.names):
            found = frame.agg(
                F.count("*").alias("edges"),
                F.count_if(empty).alias("empty"),
                F.min(unknown).alias("unknown"),
                F.count_if(weightless).alias("weightless"),
            ).collect()[0]
            totals.append(found["edges"])
            if found["empty"]:
                raise CorruptFileError(
                    f"{name}: {found['empty']} edges have an empty name",
                    code="bad-line",
                    expected="a name in each column",
                )
            if found["unknown"] is not None:
                raise CorruptFileError(
                    f"{name}: the relation is not in the configuration",
                    code="bad-line",
                    expected=", ".join(own for own, _, _ in self.relations[:5]),
                    found=bytes(found["unknown"]).decode("utf-8", "replace"),
                    hint="add it to the configuration, or set dynamic_relations there",
                )
            if found["weightless"]:
                raise CorruptFileError(
                    f"{name}: {found['weightless']} weights are not numbers",
                    code="bad-line",
                    expected="a number",
                )
        return totals

    def _ranked(self) -> DataFrame:
        """Returns all distinct names, kept in storage, sorted by type and rank.

        `place` grows in this order, and by one within each `piece`. Rare names are last.
        """
        relation_type = len(self.entities)
        uses = []
        for frame in self.frames:
            own = [
                F.struct(F.col(f"{side}_type").alias("type"), F.col(side).alias("name"))
                for side in ("lhs", "rhs")
            ]
            if self.dynamic:
                own.append(F.struct(F.lit(relation_type).alias("type"), F.col("rel").alias("name")))
            uses.append(frame.select(F.inline(F.array(*own))))
        least = F.when(F.col("type") == relation_type, self.least[1]).otherwise(self.least[0])
        counts = _union(uses).groupBy("type", "name").agg(F.count("*").alias("uses"))
        keys: List[Union[str, Column]] = ["type", "rare", "name"]
        if self.random:
            keys.insert(2, F.xxhash64(F.lit(self.seed).cast("long"), "name"))
        return (
            counts.select("type", "name", (F.col("uses") < least).alias("rare"))
            .sort(*keys)
            .withColumns({"piece": F.spark_partition_id(), "place": F.monotonically_increasing_id()})
            .persist()
        )

    def _numbered(
        self, ranked: DataFrame, bases: Sequence[Tuple[int, int, int]], kept: Sequence[int]
    ) -> DataFrame:
        """Returns the kept names with their partition and their row there, and the file that lists them."""
        parts = [*(parts for _, parts in self.entities), 1]
        prefixes = [f"entity_names_{name}_" for name, _ in self.entities]
        rows = [
            (own, piece, base, kept[own], parts[own], prefixes[own] if own < len(prefixes) else None)
            for own, piece, base in bases
        ]
        known = self.spark.createDataFrame(
            rows, "type int, piece int, base long, total long, parts long, prefix string"
        )
        # The first row of a partition is the ceiling of part * total / parts.
        return (
            ranked.where(~F.col("rare"))
            .join(F.broadcast(known), ["type", "piece"])
            .withColumn("id", F.col("place") + F.col("base"))
            .withColumn("part", F.expr("id * parts div total"))
            .withColumn("row", F.expr("id - (part * total + parts - 1) div parts"))
            .withColumn(
                "file", F.coalesce(F.concat("prefix", "part", F.lit(".json")), F.lit(_RELATION_NAMES))
            )
            .select("type", "name", "part", "row", "file")
        )

    def _write_names(self, numbered: DataFrame, kept: Sequence[int], folder: str) -> None:
        """Writes counts and names."""
        os.makedirs(folder, exist_ok=True)
        lists = 1
        for (name, parts), total in zip(self.entities, kept):
            starts = [-(-part * total // parts) for part in range(parts + 1)]
            for part in range(parts):
                count = starts[part + 1] - starts[part]
                _write(os.path.join(folder, f"entity_count_{name}_{part}.txt"), f"{count}\n")
                if count == 0:
                    _write(os.path.join(folder, f"entity_names_{name}_{part}.json"), "[]")
            lists += parts
        if self.dynamic:
            _write(os.path.join(folder, "dynamic_rel_count.txt"), f"{kept[-1]}\n")
        if not self.dynamic or kept[-1] == 0:
            names = [] if self.dynamic else [name for name, _, _ in self.relations]
            _write(os.path.join(folder, _RELATION_NAMES), json.dumps(names, indent=4))
        (
            # Twice as many tasks as lists: fewer tasks get several.
            numbered.repartition(2 * lists, "file")
            .sortWithinPartitions("file", "row")
            .select("file", "name")
            .write.format(NamesDataSource.name())
            .mode("overwrite")
            .save(folder)
        )

    def _write_edges(self, frame: DataFrame, numbered: DataFrame, folder: str) -> None:
        """Writes the edges of a set."""
        for side in ("lhs", "rhs"):
            ids = numbered.select(
                F.col("type").alias(f"{side}_type"),
                F.col("name").alias(side),
                F.col("part").alias(f"{side}_part"),
                F.col("row").alias(f"{side}_row"),
            )
            frame = frame.join(ids, [f"{side}_type", side])
        if self.dynamic:
            relations = numbered.where(F.col("type") == len(self.entities))
            ids = relations.select(F.col("name").alias("rel"), F.col("row").alias("rel_id"))
            frame = frame.join(ids, "rel")
        parts = ["lhs_part", "rhs_part"]
        edge = ["lhs_row", "rhs_row", "rel_id", *(["weight"] if self.weighted else [])]
        first = F.col("position") if self.positioned else F.xxhash64(F.lit(self.seed).cast("long"), *edge)
        names = {"lhs_row": "lhs", "rhs_row": "rhs", "rel_id": "rel"}
        (
            frame.select(*parts, *edge, first.alias("first"))
            .repartition(2 * self.buckets[0] * self.buckets[1], *parts)
            .sortWithinPartitions(*parts, "first", *edge)
            .select(*parts, *(F.col(name).alias(names.get(name, name)) for name in edge))
            .write.format(BigGraphDataSource.name())
            .option("buckets", ",".join(map(str, self.buckets)))
            .mode("overwrite")
            .save(folder)
        )

    def _count(self, folder: str) -> int:
        """Returns the number of edges of a folder."""
        count = 0
        for left in range(self.buckets[0]):
            for right in range(self.buckets[1]):
                with open_file(os.path.join(folder, edge_file(left, right)), format="biggraph") as edges:
                    count += edges["rel"].shape[0]
        return count


def _frames(sets: Union[DataFrame, Mapping[str, DataFrame]], names: Sequence[str]) -> List[DataFrame]:
    """Returns the frames in the order of the edge paths."""
    if not isinstance(sets, Mapping):
        sets = {names[0]: sets} if len(names) == 1 else {"": sets}
    if sorted(sets) != sorted(names):
        raise UsageError(
            "the sets do not match the edge paths of the configuration",
            code="edge-sets",
            expected=f"frames for {', '.join(names)}",
            found=", ".join(map(repr, sets)),
        )
    return [sets[name] for name in names]


def _common_columns(frames: Sequence[DataFrame], names: Sequence[str]) -> List[str]:
    """Returns the columns, which all frames have."""
    columns = frames[0].columns
    for frame, name in zip(frames, names):
        own = frame.columns
        known = len(set(own)) == len(own) and {"lhs", "rhs"} <= set(own) <= set(_COLUMNS)
        if not known or set(own) != set(columns):
            raise MismatchError(
                f"{name}: the columns are not those of edges" if not known else f"{name}: other columns",
                code="edge-columns",
                expected="lhs, rhs, rel, optionally weight and position" if not known else ", ".join(columns),
                found=", ".join(own),
            )
    return list(columns)


def _prepared(frame: DataFrame) -> DataFrame:
    """Returns the frame with names as bytes, and weights as 32-bit floats; null for a weight that is not a number."""
    columns: Dict[str, Column] = {}
    for field in frame.schema.fields:
        if field.name in ("lhs", "rhs", "rel"):
            own = F.col(field.name)
            columns[field.name] = (
                own if isinstance(field.dataType, BinaryType) else own.cast("string").cast("binary")
            )
        elif field.name == "weight":
            columns["weight"] = F.col("weight").try_cast("float")
    return frame.withColumns(columns)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionAll(frame)
    return whole


def _within(folder: str, name: str) -> str:
    """Returns a path below a folder. Either may be empty."""
    return os.path.join(folder, name) if folder and name else folder or name


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _check_replaced(target: str, planned: Set[str]) -> None:
    """Raises if replacing the target would remove anything but files of an earlier import."""
    if not os.path.lexists(target):
        return
    if os.path.islink(target) or not os.path.isdir(target):
        raise UsageError("the target is not a folder", code="folder-has-other-files", file=target)
    for parent, _, names in os.walk(target):
        for name in names:
            own = os.path.relpath(os.path.join(parent, name), target)
            if own not in planned:
                raise UsageError(
                    "replacing the folder would remove files that the output does not contain",
                    code="folder-has-other-files",
                    file=target,
                    found=own,
                    hint="write to another folder, or move these files first",
                )


def _publish(work: str, target: str) -> None:
    """Renames the complete folder to the target, and removes a previous one."""
    previous = f"{work}.previous" if os.path.lexists(target) else None
    if previous is not None:
        os.rename(target, previous)
    try:
        os.rename(work, target)
    except BaseException:
        if previous is not None:
            os.rename(previous, target)
        raise
    sync_folder(os.path.dirname(target))
    if previous is not None:
        shutil.rmtree(previous)
