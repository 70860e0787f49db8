"""`import_edges`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, Dict

import numpy
import pytest
import weighbridge
from weighbridge import _weighbridge, biggraph


def config(folder: Path, **more: Any) -> Path:
    path = folder / "config.json"
    document: Dict[str, Any] = {
        "entities": {"user": {"num_partitions": 2}, "item": {"num_partitions": 1}},
        "relations": [
            {"name": "follows", "lhs": "user", "rhs": "user"},
            {"name": "buys", "lhs": "user", "rhs": "item"},
        ],
        "dimension": 4,
        "entity_path": "x/names",
        "edge_paths": ["x/train", "x/valid"],
        "checkpoint_path": "m",
    }
    path.write_text(json.dumps({**document, **more}))
    return path


EDGES = [("ann", "follows", "bob"), ("bob", "follows", "cy"), ("ann", "buys", "tea"), ("cy", "buys", "nuts")]


def test_names_of_all_edges_come_back(tmp_path: Path) -> None:
    text = "".join(f"{rel},{lhs},{rhs},{n / 2}\n" for n, (lhs, rel, rhs) in enumerate(EDGES))
    (tmp_path / "train.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "valid.csv").write_text("buys,bob,tea,1\nbroken\n")
    seen = []
    report = weighbridge.import_edges(
        [f"train={tmp_path}/train*", f"valid={tmp_path / 'valid.csv'}"],
        tmp_path / "data",
        config=config(tmp_path),
        columns="rel,lhs,rhs,weight",
        skip_bad=1,
        order="sorted",
        progress=lambda done, total: seen.append(done),
    )
    assert [one.edges for one in report.edges] == [4, 1]
    assert [one.bad_lines for one in report.edges] == [0, 1]
    assert [(one.name, one.kept) for one in report.entities] == [("user", 3), ("item", 2)]
    assert not report.resumed
    names = {
        (kind, part): json.loads((tmp_path / f"data/names/entity_names_{kind}_{part}.json").read_text())
        for kind, part in (("user", 0), ("user", 1), ("item", 0))
    }
    assert names["user", 0] + names["user", 1] == ["ann", "bob", "cy"]
    found = []
    for (left, right), edges in biggraph.buckets(tmp_path / "data/train").items():
        assert edges.weight is not None and edges.weight.dtype == numpy.float32
        for lhs, rhs, rel, weight in zip(edges.lhs, edges.rhs, edges.rel, edges.weight):
            kind = ("user", right) if rel == 0 else ("item", 0)
            found.append((names["user", left][lhs], ("follows", "buys")[rel], names[kind][rhs], float(weight)))
    assert sorted(found) == sorted((*edge, n / 2) for n, edge in enumerate(EDGES))
    # And back, by the names.
    back = tmp_path / "back.tsv"
    weighbridge.convert(
        tmp_path / "data/train", back, entities=tmp_path / "data/names", config=tmp_path / "config.json"
    )
    lines = [line.split("\t") for line in back.read_text().splitlines()]
    again = [(lhs, rel, rhs, float(weight)) for lhs, rel, rhs, weight in lines]
    assert sorted(again) == sorted(found)


def test_tables_and_text_give_the_same_folder(tmp_path: Path) -> None:
    one = config(tmp_path, edge_paths=["x/train"])
    (tmp_path / "edges.tsv").write_text("".join("\t".join(edge) + "\n" for edge in EDGES))
    weighbridge.import_edges(tmp_path / "edges.tsv", tmp_path / "text", config=one, order="sorted")
    names = {"entities": tmp_path / "text/names", "config": one}
    for kind in ("parquet", "arrow"):
        table = tmp_path / f"edges.{kind}"
        weighbridge.convert(tmp_path / "text/train", table, **names)
        again = tmp_path / kind
        report = weighbridge.import_edges(table, again, config=one, order="sorted")
        assert [own.edges for own in report.edges] == [4]
        files = [path.relative_to(again) for path in again.rglob("*") if path.is_file()]
        assert len(files) > 6
        for file in files:
            assert (again / file).read_bytes() == (tmp_path / "text" / file).read_bytes(), file
        with pytest.raises(weighbridge.UsageError, match="other columns"):
            weighbridge.import_edges(table, tmp_path / "x", config=one, columns="lhs,rhs,weight,-")
        with pytest.raises(weighbridge.UsageError, match="is a table"):
            weighbridge.import_edges(table, tmp_path / "x", config=one, from_="csv")


def test_errors_name_the_line_and_keywords(tmp_path: Path) -> None:
    edges = tmp_path / "edges.tsv"
    edges.write_text("ann\tfollows\tbob\nann bob\n")
    one = config(tmp_path, edge_paths=["x/train"])
    with pytest.raises(weighbridge.CorruptFileError, match="line 2") as caught:
        weighbridge.import_edges(edges, tmp_path / "data", config=one)
    assert 'from_="words"' in str(caught.value)
    assert not (tmp_path / "data").exists()
    with pytest.raises(weighbridge.UsageError, match="edge paths"):
        weighbridge.import_edges(edges, tmp_path / "data", config=config(tmp_path))
    with pytest.raises(weighbridge.UsageError, match="lhs"):
        weighbridge.import_edges(edges, tmp_path / "data", config=one, columns="a,b")


def test_layout_of_a_configuration(tmp_path: Path) -> None:
    layout = _weighbridge.import_layout(config(tmp_path))
    assert layout == {
        "entities": [["user", 2], ["item", 1]],
        "relations": [["follows", "user", "user"], ["buys", "user", "item"]],
        "dynamic_relations": False,
        "entity_folder": "names",
        "sets": [["train", "train"], ["valid", "valid"]],
        "buckets": [2, 2],
    }
    features = {"user": {"num_partitions": 1, "featurized": True}, "item": {"num_partitions": 1}}
    with pytest.raises(weighbridge.UnsupportedError, match="features"):
        _weighbridge.import_layout(config(tmp_path, entities=features))
