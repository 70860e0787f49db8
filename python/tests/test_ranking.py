"""`evaluate`, `neighbors` and `rank`, with numpy arrays as queries and results."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

import weighbridge
from conftest import TESTDATA
from weighbridge import biggraph

BASE = TESTDATA / "biggraph" / "set1"
ENTITIES = BASE / "weighted" / "entities"


def test_evaluate() -> None:
    edges = [BASE / "dyn" / name for name in ("train", "valid")]
    raw = biggraph.evaluate(BASE / "ckpt_dyn_affine", edges=edges[1])
    filtered = weighbridge.evaluate(BASE / "ckpt_dyn_affine", edges=edges[1], filter=edges)
    # Computed with h5py and numpy.
    assert raw.mrr == pytest.approx(0.109982, abs=1e-4) and raw.metrics.edges == 90
    assert filtered.mrr == pytest.approx(0.122733, abs=1e-4)
    assert filtered.metrics.hits[10] == pytest.approx(0.266667, abs=1e-4)
    assert filtered.metrics.mean_rank == pytest.approx(20.094444, abs=1e-2)
    assert sum(one.edges for one in filtered.relations.values()) == 90 and "rel_7" in filtered.relations
    path = BASE / "ckpt_dyn_affine"
    sampled = [biggraph.evaluate(path, edges=edges[1], negatives=5, seed=seed) for seed in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]
    entities = BASE / "dyn" / "entities"
    names = list(weighbridge.open(path, entities=entities)["embeddings.all"].row_names)
    every = biggraph.evaluate(path, edges=edges[1], entities=entities, candidates=names)
    assert every.metrics == raw.metrics and every.candidates == {"all": len(names)}
    few = biggraph.evaluate(path, edges=edges[1], entities=entities, candidates={"all": iter(names[:5])})
    assert few.candidates == {"all": 5} and few.mrr > raw.mrr
    with pytest.raises(weighbridge.Error) as unknown:
        biggraph.evaluate(path, edges=edges[1], entities=entities, candidates=[names[0], "nobody"])
    assert unknown.value.code == "no-such-row" and "name 2 of 2" in str(unknown.value)
    with pytest.raises(weighbridge.UsageError) as text:
        biggraph.evaluate(path, edges=edges[1], candidates="names.txt")
    assert text.value.code == "wrong-type"
    with pytest.raises(weighbridge.UsageError) as failed:
        biggraph.evaluate(BASE / "ckpt_dyn_affine", edges=edges[1], negatives="some")
    assert failed.value.code == "bad-arguments"


def test_neighbors_of_rows_and_vectors() -> None:
    rows = weighbridge.open(BASE / "ckpt_weighted")["embeddings.n"].numpy().astype(float)
    scores = rows @ rows.T
    found = weighbridge.neighbors(BASE / "ckpt_weighted", "n[0:3]", count=4, entities=ENTITIES)
    numpy.fill_diagonal(scores, -numpy.inf)
    truth = numpy.argsort(-scores[:3], axis=1)[:, :4]
    assert found.rows.dtype == "int64" and found.scores.dtype == "float32" and found.comparator == "dot"
    numpy.testing.assert_array_equal(found.rows, truth)
    expected = numpy.take_along_axis(scores[:3], truth, 1)
    numpy.testing.assert_allclose(found.scores, expected, rtol=1e-4, atol=1e-5)
    assert found.queries[0] == (0, "n9") and found.lists[0][0].name is not None
    by_vector = weighbridge.neighbors(BASE / "ckpt_weighted", "n", rows[:3], by="l2", count=1)
    numpy.testing.assert_array_equal(by_vector.rows[:, 0], [0, 1, 2])
    assert by_vector.queries == ((None, None),) * 3
    one = weighbridge.neighbors(BASE / "ckpt_weighted", vectors=rows[5], by="cos", count=1)
    assert one.rows.tolist() == [[5]]


def test_neighbors_in_an_array(tmp_path: Path) -> None:
    rows = numpy.random.default_rng(3).normal(size=(50, 7)).astype("float32")
    weighbridge.save(tmp_path / "rows.npy", {"value": rows})
    found = weighbridge.neighbors(tmp_path / "rows.npy", vectors=rows[[9, 4]], count=60)
    assert found.rows.shape == (2, 50) and found.rows[:, 0].tolist() == [9, 4]
    (tmp_path / "queries.txt").write_text("7\n30\n")
    named = weighbridge.neighbors(tmp_path / "rows.npy", queries=tmp_path / "queries.txt", count=1)
    assert [row for row, _ in named.queries] == [7, 30]
    no_numbers = rows.astype(str)
    for wrong, code in (
        (rows[:, :3], "wrong-length"),
        (rows[None], "wrong-type"),
        (no_numbers, "wrong-type"),
    ):
        with pytest.raises(weighbridge.Error) as failed:
            weighbridge.neighbors(tmp_path / "rows.npy", vectors=wrong)
        assert failed.value.code == code


def test_rank_and_predictions() -> None:
    found = biggraph.rank(BASE / "ckpt_std_zip", "user[3]", "item[5]", relation="likes")
    predicted = weighbridge.neighbors(BASE / "ckpt_std_zip", "user[3]", relation="likes", count=1000)
    assert predicted.table == "embeddings.item" and found.relation == "likes"
    assert predicted.rows[0].tolist().index(5) + 1 == found.rhs.rank
    assert found.lhs.negatives == len(weighbridge.open(BASE / "ckpt_std_zip")["embeddings.user"]) - 1
