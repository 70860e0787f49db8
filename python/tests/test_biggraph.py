"""PyTorch-BigGraph: tables, edges and checkpoints of the golden files, and versions written from Python."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, List

import numpy
import pytest

import weighbridge
from conftest import TESTDATA
from weighbridge import biggraph
from weighbridge.biggraph import CheckpointStore

SETS = [TESTDATA / "biggraph" / name for name in ("set1", "set2")]
ROWS = numpy.arange(12, dtype="float32").reshape(6, 2)


def sha(array: Any) -> str:
    return hashlib.sha256(numpy.ascontiguousarray(array).tobytes()).hexdigest()


def truth(folder: Path) -> Dict[str, Any]:
    return json.loads((folder / "expected.json").read_text("utf-8"))["files"]


@pytest.mark.parametrize(
    "name", ["ckpt_std_zip", "ckpt_dyn_affine", "ckpt_dyn_complex_diagonal", "ckpt_feat", "ckpt_weighted"]
)
@pytest.mark.parametrize("base", SETS, ids=lambda path: path.name)
def test_golden_checkpoints(base: Path, name: str) -> None:
    said = truth(base)
    checkpoint = biggraph.open(base / name)
    config = json.loads((base / name / "config.json").read_text("utf-8"))
    assert checkpoint.config == config and checkpoint.config.dimension == config["dimension"]
    version = checkpoint.version
    assert f"{version}" == (base / name / "checkpoint_version.txt").read_text().strip()
    for entity, table in checkpoint.items():
        start = 0
        for part, count in enumerate(table.partitions):
            stored = said[f"{name}/embeddings_{entity}_{part}.v{version}.h5"]["datasets"]
            rows = table[start : start + count]
            assert (
                list(rows.shape) == stored["embeddings"]["shape"]
                and sha(rows) == stored["embeddings"]["sha256"]
            )
            kept = dict(stored["optimizer/state_dict"]["content"]["dict"])["state"]["dict"][0][1]["dict"]
            sums = table.state["sum"][start : start + count]
            assert sha(sums) == dict(kept)["sum"]["tensor"]["sha256"]
            start += count
        assert start == len(table)
        if table.names is not None:
            assert len(table.names) == len(table)
            last = table.names[len(table) - 1]
            assert last in table and numpy.array_equal(table[last], table.numpy()[-1])
    model = said[f"{name}/model.v{version}.h5"]["datasets"]
    own = {
        key[len("model/") :].replace("/", "."): value
        for key, value in model.items()
        if key.startswith("model/")
    }
    assert set(checkpoint.parameters) == set(own)
    for parameter, stored in own.items():
        assert sha(checkpoint.parameters[parameter].numpy()) == stored["sha256"]
    for parameter, slots in checkpoint.state.items():
        assert set(slots) == {"step", "sum"} and slots["sum"].shape == checkpoint.parameters[parameter].shape


def test_relations() -> None:
    checkpoint = biggraph.open(SETS[0] / "ckpt_std_zip")
    assert checkpoint.relations[:3] == ["follows", "likes", "buys"]
    assert set(checkpoint.operator("likes")) == {"diagonal"} and checkpoint.operator("likes", "lhs") == {}
    assert set(checkpoint.operator("rel_tag")) == {"linear_transformation", "translation"}
    assert checkpoint.global_embedding("tag").shape == (6,) and checkpoint.global_embedding("unknown") is None
    assert (
        checkpoint.iteration["epoch_idx"] == 2
        and checkpoint.optimizer["embeddings"]["user"][0]["param_groups"]
    )
    dynamic = biggraph.open(SETS[0] / "ckpt_dyn_affine")
    assert dynamic.operator("rel_7", "lhs")["translations"].shape == (12, 8)
    with pytest.raises(KeyError):
        checkpoint.operator("no such relation")


def test_rows_by_name() -> None:
    table = biggraph.open(SETS[0] / "ckpt_std_zip")["user"]
    array = table.numpy()
    names = list(table.names)
    assert numpy.array_equal(table[[names[40], names[2]]], array[[40, 2]])
    assert numpy.array_equal(table[numpy.array([5, 5, 1])], array[[5, 5, 1]])
    assert numpy.array_equal(table[3:50:7, 1], array[3:50:7, 1]) and numpy.array_equal(table[-1], array[-1])
    assert table.rows_of([names[7], "unknown"]) == [7, None] and "unknown" not in table
    assert numpy.array_equal(table.to_dict()[names[3]], array[3])
    with pytest.raises(KeyError) as caught:
        table["unknown"]
    assert caught.value.code == "no-such-entity"
    without = biggraph.open(SETS[0] / "init_v0_f64")["user"]
    with pytest.raises(weighbridge.MismatchError, match="row names are unknown"):
        without["x"]


@pytest.mark.parametrize("base", SETS, ids=lambda path: path.name)
def test_golden_edges(base: Path) -> None:
    said = truth(base)
    for name in ("std/edges", "dyn/train", "weighted/edges", "feat/edges"):
        for (left, right), edges in biggraph.buckets(base / name).items():
            stored = said[f"{name}/edges_{left}_{right}.h5"]["datasets"]
            columns = {"lhs": edges.lhs, "rhs": edges.rhs, "rel": edges.rel, **edges.more}
            if edges.weight is not None:
                columns["weight"] = edges.weight
            assert set(columns) == set(stored)
            assert all(sha(column) == stored[own]["sha256"] for own, column in columns.items())
            alone = biggraph.edges(base / name / f"edges_{left}_{right}.h5")
            assert alone.bucket == edges.bucket == (left, right) and numpy.array_equal(alone.lhs, edges.lhs)
            assert edges.size == len(edges.lhs)
    with pytest.raises(weighbridge.MismatchError, match="ambiguous bucket"):
        biggraph.edges(base / "std" / "edges")


@pytest.mark.parametrize("base", SETS, ids=lambda path: path.name)
@pytest.mark.parametrize(
    "name, edge_path",
    [("ckpt_std_zip", "std/edges"), ("ckpt_dyn_affine", "dyn/train"), ("ckpt_feat", "feat/edges")],
)
def test_edges_as_rows(base: Path, name: str, edge_path: str) -> None:
    checkpoint = biggraph.open(base / name)
    config = checkpoint.config
    edges = checkpoint.edges(base / edge_path)
    place = 0
    for (left, right), own in biggraph.buckets(base / edge_path).items():
        for number in range(own.size):
            relation = config.relations[
                0 if config.get("dynamic_relations") or len(config.relations) == 1 else own.rel[number]
            ]
            for side, part in (("lhs", left), ("rhs", right)):
                counts = checkpoint[relation[side]].partitions
                row = int(getattr(own, side)[number])
                wanted = row if row < 0 else row + (sum(counts[:part]) if len(counts) > 1 else 0)
                assert getattr(edges, side)[place] == wanted < len(checkpoint[relation[side]])
            place += 1
    assert place == edges.size


def test_edge_list(tmp_path: Path) -> None:
    base = SETS[0] / "dyn"
    with pytest.warns(weighbridge.LossWarning, match="counts: metadata dropped"):
        report = weighbridge.convert(base / "train", tmp_path / "edges.tsv", entities=base / "entities")
    lines = [line.split("\t") for line in (tmp_path / "edges.tsv").read_text().splitlines()]
    buckets = biggraph.buckets(base / "train")
    assert len(lines) == sum(edges.size for edges in buckets.values()) > 0
    names = {
        part: json.loads((base / "entities" / f"entity_names_all_{part}.json").read_text()) for part in (0, 1)
    }
    relations = json.loads((base / "entities" / "dynamic_rel_names.json").read_text())
    place = 0
    for (left, right), edges in buckets.items():
        for lhs, rel, rhs in zip(edges.lhs, edges.rel, edges.rhs):
            assert lines[place] == [names[left][lhs], relations[rel], names[right][rhs]]
            place += 1
    assert {loss.code for loss in report.losses} == {"metadata-dropped"}
    with pytest.raises(weighbridge.UnsupportedError) as caught:
        weighbridge.convert(SETS[0] / "feat" / "edges", tmp_path / "features.parquet")
    assert caught.value.code == "featurised-edges" and not (tmp_path / "features.parquet").exists()


def test_arrow() -> None:
    try:
        import pyarrow
    except ImportError as error:  # also if it needs another numpy
        pytest.skip(str(error))
    table = biggraph.open(SETS[0] / "ckpt_std_zip")["item"]
    arrow = table.to_arrow()
    assert arrow.column_names == ["name", "embedding"] and arrow.num_rows == 44
    assert arrow["name"].to_pylist() == list(table.names)
    assert pyarrow.types.is_fixed_size_list(arrow["embedding"].type)
    assert numpy.array_equal(numpy.array(arrow["embedding"].to_pylist(), "float32"), table.numpy())


def save(store: CheckpointStore, times: int, **more: Any) -> None:
    for number in range(times):
        store.save({"user": ROWS + store.version + 1}, state={"user": numpy.arange(6)}, **more)


def test_keeps_deletes_and_rolls_back_versions(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "run")
    assert store.version == 0 and store.latest() is None and store.versions == []
    save(store, 3)
    assert store.versions == [3] and not list((tmp_path / "run").glob("*.v2.h5"))
    latest = store.latest()
    assert numpy.array_equal(latest["user"].numpy(), ROWS + 3)
    sums = latest["user"].state["sum"]
    assert sums.dtype == "f32" and sums.numpy().tolist() == list(range(6))
    keeping = CheckpointStore(tmp_path / "run", keep=2)
    save(keeping, 3)
    assert keeping.versions == [5, 6]
    assert numpy.array_equal(keeping.open(5)["user"].numpy(), ROWS + 5)
    assert keeping.rollback(5)["to"] == 5 and keeping.version == 5
    assert keeping.sweep(newer=True)["removed"] and keeping.versions == [5]
    with pytest.raises(weighbridge.MismatchError) as caught:
        keeping.open(6)
    assert caught.value.code == "no-version"


def test_recovers_from_a_lost_version_file(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 2)
    (tmp_path / "checkpoint_version.txt").write_text("")
    with pytest.raises(weighbridge.CorruptFileError) as caught:
        store.latest()
    assert caught.value.code == "version-lost"
    assert store.recover()["version"] == 2 and store.version == 2


def test_snapshots(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save({"user": ROWS}, preserve=7)
    save(store, 1)
    assert numpy.array_equal(biggraph.open(tmp_path / "epoch_7")["user"].numpy(), ROWS)
    assert store.preserve(8, form="copies")["version"] == 2
    assert [one["epoch"] for one in store.state()["snapshots"]] == [7, 8]


def test_lock_excludes_other_writers(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path) as store:
        other = CheckpointStore(tmp_path)
        for work in (other.begin, lambda: save(other, 1), lambda: other.prune(1)):
            with pytest.raises(weighbridge.UsageError) as caught:
                work()
            assert caught.value.code == "locked"
        save(store, 2)
        with pytest.raises(weighbridge.UsageError):
            other.begin()
        assert store.prune(1)["kept"] == [2] and other.version == 2
        with pytest.raises(weighbridge.UsageError):
            other.begin()
    save(other, 1)
    assert store.version == 3


def test_with_block_holds_the_lock_between_versions(tmp_path: Path) -> None:
    held = CheckpointStore(tmp_path)
    other = CheckpointStore(tmp_path)
    stopped = threading.Event()
    succeeded: List[int] = []
    refused: List[str] = []
    failures: List[BaseException] = []

    def attempt() -> None:
        # Tries continuously, also between the end of one version and the begin of the next.
        while not stopped.is_set():
            try:
                other.begin().abort()
                succeeded.append(held.version)
            except weighbridge.UsageError as error:
                refused.append(error.code)
            except BaseException as error:
                # An exception in a thread is lost, and would end the attempts.
                failures.append(error)

    with held:
        thread = threading.Thread(target=attempt)
        thread.start()
        try:
            for _ in range(8):
                held.save({"user": ROWS})
            held.rollback(held.version)
            # A nested `with` of the same store has no effect.
            with held:
                held.save({"user": ROWS})
            held.save({"user": ROWS})
        finally:
            stopped.set()
            thread.join()
    assert not succeeded and not failures and held.version == 10
    assert refused and set(refused) == {"locked"}
    # The lock is free again, even with an open version: it is aborted.
    with held:
        version = held.begin()
        # The same store cannot write two versions at once.
        with pytest.raises(weighbridge.UsageError, match="writing"):
            held.begin()
        with pytest.raises(weighbridge.UsageError, match="writing"):
            held.prune(1)
    assert not version.is_open
    other.begin().abort()


def another_run(folder: Path, version: int) -> None:
    """Writes a version as BigGraph does: without the lock."""
    for name in ("embeddings_user_0", "model"):
        shutil.copy(folder / f"{name}.v{version - 1}.h5", folder / f"{name}.v{version}.h5")
    (folder / "checkpoint_version.txt").write_text(str(version))


def test_detects_a_version_written_without_the_lock(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path) as store:
        save(store, 1)
        another_run(tmp_path, 2)
        with pytest.raises(weighbridge.MismatchError) as caught:
            save(store, 1)
        assert caught.value.code == "version-moved" and store.version == 2
        # After an explicit rollback the store continues.
        store.rollback(2)
        save(store, 1)
    assert store.version == 3


@pytest.mark.parametrize(
    "work",
    [
        lambda store: store.latest(),
        lambda store: store.sweep(temporary=True),
        lambda store: pytest.raises(weighbridge.Error, store.rollback, 9),
    ],
    ids="latest sweep failed-rollback".split(),
)
@pytest.mark.parametrize("later", [False, True], ids=["before", "after"])
def test_detects_a_version_written_without_the_lock_after_other_calls(
    tmp_path: Path, work: Any, later: bool
) -> None:
    """Also before the first version of the `with` block, and in either order of the call and the other run."""
    save(CheckpointStore(tmp_path), 1)
    store = CheckpointStore(tmp_path)
    with store:
        if not later:
            work(store)
        another_run(tmp_path, 2)
        if later:
            work(store)
        with pytest.raises(weighbridge.MismatchError) as caught:
            save(store, 1)
        assert caught.value.code == "version-moved" and store.versions == [1, 2]
        # Its files are still there.
        assert (tmp_path / "embeddings_user_0.v2.h5").exists()


@pytest.mark.parametrize(
    "work",
    [
        lambda store: store.prune(1),
        lambda store: store.preserve(1),
        lambda store: store.sweep(newer=True),
        lambda store: store.sweep(older=True),
        lambda store: store.sweep(remnants=True),
    ],
    ids="prune preserve newer older remnants".split(),
)
def test_refuses_changes_after_another_run_moved_the_version(tmp_path: Path, work: Any) -> None:
    save(CheckpointStore(tmp_path), 1)
    with CheckpointStore(tmp_path) as store:
        work(store)
        store.sweep(temporary=True)
        shutil.rmtree(tmp_path / "epoch_1", ignore_errors=True)
        another_run(tmp_path, 2)
        before = sorted(path.name for path in tmp_path.iterdir())
        with pytest.raises(weighbridge.MismatchError) as caught:
            work(store)
        assert (caught.value.code, caught.value.found) == ("version-moved", "version 2")
        assert sorted(path.name for path in tmp_path.iterdir()) == before
        # After an explicit rollback the store continues.
        store.rollback(2)
        work(store)
    # Outside `with` the store expects no particular version.
    another_run(tmp_path, 3)
    CheckpointStore(tmp_path).prune(5)


def test_rollback_or_recover_accepts_a_version_of_another_run(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path, keep=5) as store:
        save(store, 2)
        for choose in (lambda: store.rollback(store.version), store.recover):
            another_run(tmp_path, store.version + 1)
            choose()
            # The next foreign version is detected again.
            another_run(tmp_path, store.version + 1)
            with pytest.raises(weighbridge.MismatchError, match="without the lock"):
                save(store, 1)
            choose()
            save(store, 1)
        (tmp_path / "checkpoint_version.txt").write_text("")
    # Also if the current version is unknown at first.
    with store:
        with pytest.raises(weighbridge.CorruptFileError):
            save(store, 1)
        store.recover()
        save(store, 1)


def test_reports_a_generated_configuration(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    report = store.save({"user": ROWS})
    assert [note["code"] for note in report["notes"]] == ["config-made"] and not report["losses"]
    assert "config" in report["notes"][0]["text"]
    # Now it exists, and no other is generated.
    assert store.save({"user": ROWS})["notes"] == []
    config = json.loads(store.config_text() or "")
    own = CheckpointStore(tmp_path / "own").save({"user": ROWS}, config=config)
    assert own["notes"] == []


def test_rejects_duplicate_row_names(tmp_path: Path) -> None:
    names = ["a", "b", "c", "b", "d", "e"]
    path = ("embeddings", "user")
    for action in (
        lambda: CheckpointStore(tmp_path / "run").save({"user": ROWS}, names={"user": names}),
        lambda: weighbridge.save(tmp_path / "one", {path: ROWS}, format="biggraph", row_names={path: names}),
    ):
        with pytest.raises(weighbridge.MismatchError) as caught:
            action()
        assert (caught.value.code, caught.value.found) == ("name-twice", "b")
        assert caught.value.tensor == "embeddings.user"
    assert CheckpointStore(tmp_path / "run").version == 0 and not (tmp_path / "one").exists()
    # A table from a file is converted unchanged, and `verify` reports it.
    (tmp_path / "twice.tsv").write_text("a\t1.5\t2\na\t3\t4\n")
    weighbridge.convert(
        tmp_path / "twice.tsv", tmp_path / "two", to="biggraph", set={"type": "user", "entities": "yes"}
    )
    found = {finding.code for finding in weighbridge.verify(tmp_path / "two").findings}
    assert "duplicate-name" in found


def test_failed_versions_leave_no_files(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(RuntimeError):
        with store.begin() as version:
            version.write({"user": ROWS})
            assert version.number == 2 and version.is_open
            raise RuntimeError
    with pytest.raises(weighbridge.MismatchError) as caught:
        store.save({"user": ROWS[:, :1]})
    assert caught.value.code == "dimension-differs"
    with pytest.raises(weighbridge.MismatchError) as caught:
        with store.begin() as version:
            version.write({"user": ROWS})
    assert caught.value.code == "incomplete-version"
    assert sorted(path.name for path in tmp_path.iterdir()) == before and store.version == 1
    with pytest.raises(weighbridge.UsageError, match="committed or aborted"):
        version.commit()


CONFIG = {
    "entities": {"user": {"num_partitions": 2}, "item": {"num_partitions": 1}},
    "relations": [
        {"name": "likes", "lhs": "user", "rhs": "item", "operator": "translation"},
        {"name": "knows", "lhs": "user", "rhs": "user", "operator": "none"},
    ],
    "dimension": 2,
    "global_emb": False,
    "entity_path": ".",
    "edge_paths": ["."],
    "checkpoint_path": ".",
}
SHIFT = "relations.0.operator.rhs.translation"


def test_saves_partitions_parameters_and_state(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    names = {"user": [f"u{row}" for row in range(5)], "item": ["x", "y", "z"]}
    shift = numpy.array([1, -1], "float32")
    report = store.save(
        {"user": ROWS[:5], "item": ROWS[:3]},
        parameters={SHIFT: shift},
        state={"user": numpy.ones(5, "float32"), SHIFT: {"step": 4, "sum": shift * 2}},
        names=names,
        config=CONFIG,
        iteration={"epoch_idx": 1, "edge_path": "e"},
        stats=[{"index": 0, "metrics": 1.5}],
    )
    assert report["version"] == 1 and report["files"] == 4 and report["losses"] == []
    latest = store.latest()
    assert latest["user"].partitions == [3, 2] and list(latest["user"].names) == names["user"]
    assert (
        latest.config == CONFIG
        and latest.iteration["epoch_idx"] == 1
        and latest.iteration["edge_path"] == "e"
    )
    assert latest.operator("likes")["translation"].numpy().tolist() == [1, -1]
    state = latest.state[SHIFT]
    assert float(state["step"][()]) == 4 and state["sum"].numpy().tolist() == [2, -2]
    assert json.loads((tmp_path / "training_stats.json").read_text())["metrics"] == 1.5

    # Tables that are not given are carried over; given tables keep their partitions.
    report = store.save({"user": ROWS[:5].astype("float64") * 2})
    assert [loss["code"] for loss in report["losses"]] == ["rounding"] and report["carried"] == 2
    again = store.latest()
    assert again["user"].partitions == [3, 2] and again["user"]["u4"].tolist() == [16, 18]
    assert again["item"]["y"].tolist() == [2, 3]
    assert again.operator("likes")["translation"].numpy().tolist() == [1, -1]
    assert again["user"].state["sum"].numpy().tolist() == [1] * 5

    # A whole checkpoint, and tables of one.
    other = CheckpointStore(tmp_path / "other")
    other.save(again)
    assert other.latest()["user"].numpy().tolist() == again["user"].numpy().tolist()
    other.save({name: table for name, table in latest.items()}, parameters=latest.parameters, config=CONFIG)
    copied = other.latest()
    assert copied["user"].state["sum"].numpy().tolist() == [1] * 5 and copied["user"].partitions == [3, 2]
    with pytest.raises(weighbridge.UsageError, match="unknown table or parameter"):
        other.save({"user": ROWS}, state={"usr": ROWS[:, 0]})


def test_keeps_uneven_partitions(tmp_path: Path) -> None:
    golden = biggraph.open(SETS[0] / "ckpt_std_zip")
    store = CheckpointStore(tmp_path)
    store.save(golden)
    stats = tmp_path / "training_stats.json"
    assert stats.read_bytes() == (SETS[0] / "ckpt_std_zip" / "training_stats.json").read_bytes()
    stats.write_text('{"index": 0}\n')
    store.save(golden)
    assert stats.read_text() == '{"index": 0}\n'
    before = {name: table.partitions for name, table in store.latest().items()}
    store.save({name: table.numpy() * 2 for name, table in golden.items()})
    latest = store.latest()
    assert {name: table.partitions for name, table in latest.items()} == before
    assert numpy.array_equal(latest["user"].numpy(), golden["user"].numpy() * 2)
    assert set(latest.parameters) == set(golden.parameters)


def test_other_kinds_of_files() -> None:
    with pytest.raises(weighbridge.MismatchError) as caught:
        biggraph.open(SETS[0] / "std" / "edges")
    assert caught.value.code == "wrong-kind"
    with pytest.raises(weighbridge.MismatchError):
        biggraph.buckets(SETS[0] / "ckpt_std_zip")
    table = biggraph.open(SETS[0] / "ckpt_std_zip" / "embeddings_user_0.v6.h5")
    assert len(table) == 1 and next(iter(table.values())).shape == (15, 8)


def test_format_modules_are_imported_on_first_use() -> None:
    code = (
        "import sys, weighbridge\n"
        "modules = {'weighbridge.' + name for name in ('biggraph', 'paddle', 'primitiv')}\n"
        "assert not modules & set(sys.modules)\n"
        "assert weighbridge.biggraph.CheckpointStore and 'weighbridge.paddle' not in sys.modules\n"
        "weighbridge.primitiv, weighbridge.paddle\n"
        "assert 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_progress(tmp_path: Path) -> None:
    calls: List[Any] = []
    CheckpointStore(tmp_path).save({"user": ROWS}, progress=lambda done, total: calls.append((done, total)))
    assert calls and 0 < calls[-1][0] <= calls[-1][1]


def test_carries_optimizer_state_over(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    rows, kept = numpy.ones((3, 2), "f4"), numpy.float32([1, 2, 3])
    store.save({"user": rows}, state={"user": kept})
    store.save({"user": rows * 2})
    latest = store.latest()
    assert latest is not None
    assert latest["user"].state["sum"].numpy().tolist() == [1, 2, 3]
    assert latest["user"][0].tolist() == [2, 2]
    with pytest.raises(weighbridge.UsageError) as caught:
        store.save({"user": numpy.ones((4, 2), "f4")})
    assert caught.value.code == "state-of-other-rows"
    store.save({"user": rows}, state={"user": {}})
    latest = store.latest()
    assert latest is not None and not latest["user"].state


@pytest.mark.parametrize(
    "state",
    [
        {"sum": numpy.zeros((3, 2), "f4")},
        {"sum": numpy.zeros(2, "f4")},
        {"sums": numpy.zeros(3, "f4")},
        numpy.zeros(4, "f4"),
    ],
)
def test_rejects_state_of_another_shape_and_keeps_the_version(tmp_path: Path, state: Any) -> None:
    rows = numpy.ones((3, 2), "f4")
    store = biggraph.CheckpointStore(tmp_path)
    store.save({"user": rows}, state={"user": numpy.ones(3, "f4")})
    with pytest.raises(weighbridge.MismatchError) as caught:
        store.save({"user": rows * 2}, state={"user": state})
    assert caught.value.code == "state-slot" and caught.value.tensor is not None
    latest = store.latest()
    assert (
        latest is not None
        and store.versions == [1]
        and latest["user"].state["sum"].numpy().tolist() == [1] * 3
    )


def test_uncommitted_version_releases_the_lock(tmp_path: Path) -> None:
    store = biggraph.CheckpointStore(tmp_path)
    with store:
        version = store.begin()
    assert not version.is_open
    assert biggraph.CheckpointStore(tmp_path).save({"user": numpy.ones((3, 2), "f4")})["version"] == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_process_cannot_write(tmp_path: Path) -> None:
    rows = numpy.ones((3, 2), "f4")
    with biggraph.CheckpointStore(tmp_path) as store:
        store.save({"user": rows})
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                store.begin()
                os.write(writing, b"began")
            except weighbridge.Error as error:
                os.write(writing, error.code.encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 100) == b"locked"
        version = store.begin()
        version.write({"user": rows * 2}, parameters={})
        child = os.fork()
        if child == 0:
            # As at the end of a program: all objects are dropped.
            del version, store
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        version.commit()
    # The lock is free even while such a process lives.
    reading, writing = os.pipe()
    with biggraph.CheckpointStore(tmp_path):
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    assert biggraph.CheckpointStore(tmp_path).save({"user": rows})["version"] == 3
    os.close(writing)
    os.waitpid(child, 0)


def test_writes_a_table_partition_by_partition(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, expected={"user": 2})
    rows = [numpy.full((3, 2), 1, "float32"), numpy.full((2, 2), 2, "float32")]
    sums = [numpy.arange(3, dtype="float32"), numpy.arange(2, dtype="float32")]
    with store.begin() as version:
        for part in range(2):
            assert version.write_partition("user", part, rows[part], state=sums[part]) == []
        version.write({}, parameters={})
    latest = store.latest()
    assert latest["user"].partitions == [3, 2]
    assert numpy.array_equal(latest["user"].numpy(), numpy.concatenate(rows))
    # Omitted state is carried over; another number of rows is an error.
    with store.begin() as version:
        version.write_partition("user", 0, rows[0] * 2)
        version.write_partition("user", 1, rows[1], state={})
        with pytest.raises(weighbridge.UsageError) as caught:
            version.write_partition("user", 0, rows[1])
        assert caught.value.code == "state-of-other-rows"
        with pytest.raises(weighbridge.MismatchError) as unfit:
            version.write_partition("user", 0, rows[0], state={"momentum": sums[0]})
        assert unfit.value.code == "state-slot"
        version.write_partition("user", 0, rows[0] * 2)
        version.write_partition("user", 1, rows[1])
        version.write({}, parameters={})
    latest = store.latest()
    assert numpy.array_equal(latest["user"].numpy(), numpy.concatenate([rows[0] * 2, rows[1]]))
    assert latest["user"].state["sum"].numpy().tolist() == [0, 1, 2, 0, 1]
