"""`weighbridge.spark`: the same folders as on one machine. Skipped without pyspark."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import numpy
import pytest
import weighbridge
from test_import import config

pytest.importorskip("pyspark.sql.datasource")

from pyspark.sql import DataFrame, SparkSession  # noqa: E402

import weighbridge.spark  # noqa: E402


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "3")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def files(folder: Path) -> Dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def edges(folder: Path) -> Dict[Any, List[Tuple[Any, ...]]]:
    """Returns the edges of each bucket, sorted."""
    found = {}
    for bucket, own in weighbridge.biggraph.buckets(folder).items():
        columns = [own.lhs, own.rhs, own.rel, *([] if own.weight is None else [own.weight])]
        found[bucket] = sorted(zip(*(column.tolist() for column in columns)))
    return found


Row = Tuple[str, str, str, float]


def made(seed: int, count: int, dynamic: bool) -> List[Row]:
    dice = random.Random(seed)
    rows = []
    for _ in range(count):
        rel = f"w{int(dice.random() ** 2 * 9)}" if dynamic else dice.choice(["follows", "buys"])
        kind = "i" if rel == "buys" else 'é\\"\U0001f600'
        ends = [f"{own}{int(dice.random() ** 2 * 40)}" for own in ('é\\"\U0001f600', kind)]
        rows.append((ends[0], rel, ends[1], dice.randrange(100) / 8))
    return rows


def lines(path: Path, rows: List[Row]) -> str:
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), "utf-8")
    return f"{path.stem}={path}"


SCHEMA = "lhs string, rel string, rhs string, weight double, position long"


def frame(spark: SparkSession, rows: List[Row]) -> DataFrame:
    """Returns a frame whose rows are in another order than the lines."""
    placed = [(*row, number) for number, row in enumerate(rows)]
    random.Random(1).shuffle(placed)
    return spark.createDataFrame(placed, SCHEMA).repartition(3)


@pytest.mark.parametrize("dynamic", [False, True])
def test_sorted_imports_are_those_of_one_machine(spark: SparkSession, tmp_path: Path, dynamic: bool) -> None:
    relations = [{"name": "any", "lhs": "user", "rhs": "user"}]
    more = {"relations": relations, "dynamic_relations": True} if dynamic else {}
    own = config(tmp_path, **more)
    train, valid = made(2, 500, dynamic), made(3, 40, dynamic)
    least = {"entity_min_count": 3, "relation_min_count": 40}
    inputs = [lines(tmp_path / "train.tsv", train), lines(tmp_path / "valid.tsv", valid)]
    columns = "lhs,rel,rhs,weight"
    one = weighbridge.import_edges(
        inputs, tmp_path / "one", config=own, columns=columns, order="sorted", **least
    )
    frames = {"train": frame(spark, train), "valid": frame(spark, valid)}
    report = weighbridge.spark.import_edges(spark, frames, tmp_path / "many", own, order="sorted", **least)
    assert files(tmp_path / "many") == files(tmp_path / "one")
    assert sum(one.dropped for one in report.edges) > 0
    assert {**report.to_dict(), "target": ""} == {**one.to_dict(), "target": ""}
    # Without positions the rows of a bucket are in another order, the same in each run.
    frames = {name: own.drop("position") for name, own in frames.items()}
    for target in ("loose", "again"):
        weighbridge.spark.import_edges(spark, frames, tmp_path / target, own, order="sorted", **least)
    assert files(tmp_path / "again") == files(tmp_path / "loose")
    for name in ("train", "valid"):
        assert edges(tmp_path / "loose" / name) == edges(tmp_path / "one" / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "again", "config.json", "loose", "many", "one", "train.tsv", "valid.tsv",
    ]  # fmt: skip


def test_random_ids_depend_on_the_seed(spark: SparkSession, tmp_path: Path) -> None:
    one = config(tmp_path, edge_paths=["x/train"])
    rows = frame(spark, made(5, 300, False)).drop("position", "weight")
    names = {}
    for seed in (0, 0, 7):
        target = tmp_path / "graph"
        weighbridge.spark.import_edges(spark, rows, target, one, seed=seed, force=True)
        own = [json.loads((target / f"names/entity_names_user_{part}.json").read_text()) for part in (0, 1)]
        assert len(own[0]) - len(own[1]) in (0, 1)
        assert names.setdefault(seed, own) == own
    assert names[0] != names[7]
    assert sorted(sum(names[0], [])) == sorted(sum(names[7], [])) != sum(names[0], [])
    # Replacing removes no file of others.
    (target / "names" / "notes.txt").write_text("mine")
    with pytest.raises(weighbridge.UsageError, match="notes.txt"):
        weighbridge.spark.import_edges(spark, rows, target, one, force=True)
    assert (target / "names" / "notes.txt").read_text() == "mine"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_empty_partitions_and_bytes(spark: SparkSession, tmp_path: Path) -> None:
    own = config(
        tmp_path,
        edge_paths=["x/train"],
        entities={"user": {"num_partitions": 4}, "item": {"num_partitions": 1}},
    )
    (tmp_path / "train.tsv").write_bytes(b"a\xff\tfollows\tb\n")
    weighbridge.import_edges(tmp_path / "train.tsv", tmp_path / "one", config=own, order="sorted")
    rows = spark.createDataFrame(
        [(bytearray(b"a\xff"), "follows", "b")], "lhs binary, rel string, rhs string"
    )
    weighbridge.spark.import_edges(spark, rows, tmp_path / "many", own, order="sorted")
    assert files(tmp_path / "many") == files(tmp_path / "one")


def test_faults_are_named_and_leave_nothing(spark: SparkSession, tmp_path: Path) -> None:
    own = config(tmp_path, edge_paths=["x/train"])

    def fails(
        rows: List[Tuple[Any, ...]], schema: str = "lhs string, rel string, rhs string"
    ) -> weighbridge.Error:
        with pytest.raises(weighbridge.Error) as caught:
            weighbridge.spark.import_edges(
                spark, spark.createDataFrame(rows, schema), tmp_path / "graph", own
            )
        assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
        return caught.value

    assert fails([("a", "likes", "b"), ("a", "buys", "b")]).found == "likes"
    assert "1 edges have an empty name" in str(fails([("a", "buys", "")]))
    assert "empty name" in str(fails([("a", "buys", None)]))
    weights = "lhs string, rel string, rhs string, weight string"
    assert "1 weights" in str(fails([("a", "buys", "b", "x"), ("a", "buys", "b", " 1.5")], weights))
    assert fails([("a", "b")], "lhs string, rhs string").code == "edge-columns"
    assert fails([("a", "b")], "lhs string, name string").code == "edge-columns"
    rows = spark.createDataFrame([("a", "buys", "b")], "lhs string, rel string, rhs string")
    with pytest.raises(weighbridge.UsageError, match="edge paths"):
        weighbridge.spark.import_edges(spark, {"test": rows}, tmp_path / "graph", own)
    with pytest.raises(weighbridge.UsageError, match="random or sorted"):
        weighbridge.spark.import_edges(spark, rows, tmp_path / "graph", own, order="seen")  # type: ignore[arg-type]
    (tmp_path / "graph").mkdir()
    with pytest.raises(weighbridge.TargetExistsError):
        weighbridge.spark.import_edges(spark, rows, tmp_path / "graph", own)


NUMBERS = "lhs_part int, rhs_part int, lhs long, rhs long, rel int, weight double"


def test_data_source_writes_buckets(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(weighbridge.spark.BigGraphDataSource)
    folder = tmp_path / "edges"
    rows = [(n % 2, n % 3, n, 2 * n, 0, n / 2) for n in range(20) if n % 3 != 2]
    # Buckets alternate, in batches of three rows.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "3")
    try:
        numbered = spark.createDataFrame(rows, NUMBERS).coalesce(1)
        for mode in ("append", "overwrite"):
            numbered.write.format("biggraph").option("buckets", "2,3").mode(mode).save(str(folder))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    found = weighbridge.biggraph.buckets(folder)
    assert sorted(found) == [(left, right) for left in range(2) for right in range(3)]
    for (left, right), own in found.items():
        meant = [row for row in rows if row[:2] == (left, right)]
        assert own.lhs.tolist() == [row[2] for row in meant]
        assert own.rhs.tolist() == [row[3] for row in meant]
        assert own.weight is not None and own.weight.dtype == numpy.float32
        assert own.weight.tolist() == [row[5] for row in meant]
    # Fewer buckets replace all, and no other file stays.
    numbered.where("rhs_part = 0").write.format("biggraph").option("buckets", "2,1").mode("overwrite").save(
        str(folder)
    )
    assert sorted(path.name for path in folder.iterdir()) == ["edges_0_0.h5", "edges_1_0.h5"]


def test_data_source_refuses_what_it_cannot_write(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(weighbridge.spark.BigGraphDataSource)
    folder = tmp_path / "edges"
    rows = spark.createDataFrame([(0, 0, 1, 2, 0, 1.0), (0, 0, 3, 4, 0, 1.0)], NUMBERS).coalesce(1)

    def fails(
        frame: DataFrame, text: str, buckets: str = "1,1", path: str = str(folder), mode: str = "append"
    ) -> None:
        with pytest.raises(Exception, match=text):  # noqa: B017, PT011
            frame.write.format("biggraph").option("buckets", buckets).mode(mode).save(path)
        assert not folder.exists()

    split = spark.range(2, numPartitions=2).selectExpr(
        "0 as lhs_part", "0 as rhs_part", "id as lhs", "id as rhs", "0 as rel"
    )
    fails(split, "two tasks have rows of one file")
    fails(rows, "invalid option buckets", buckets="4x4")
    fails(rows, "not absolute", path="edges")
    fails(rows.withColumn("lhs_part", rows.rel + 1), "0 to 0")
    fails(rows.withColumn("lhs", rows.lhs - 2), "column lhs")
    fails(rows.withColumn("rel", rows.rel.cast("string")), "not those of edges")
    fails(rows.selectExpr("lhs_part", "rhs_part", "lhs", "rhs", "nullif(rel, 0) as rel"), "null")
    rows.write.format("biggraph").option("buckets", "1,1").mode("append").save(str(folder))
    kept = files(folder)
    with pytest.raises(Exception, match="has edge files"):  # noqa: B017, PT011
        rows.write.format("biggraph").option("buckets", "1,1").mode("append").save(str(folder))
    with pytest.raises(Exception, match="0 to 0"):  # noqa: B017, PT011
        bad = rows.withColumn("rhs_part", rows.rel + 1)
        bad.write.format("biggraph").option("buckets", "1,1").mode("overwrite").save(str(folder))
    assert files(folder) == kept


def test_package_does_not_import_pyspark() -> None:
    script = "import sys, weighbridge; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
