"""Shared by the tests: the folder of golden files, and a small model."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, Dict

import numpy
import pytest
import weighbridge

TESTDATA = Path(__file__).resolve().parents[2] / "testdata"

# A background process of a script ignores SIGINT, and its children inherit that. The tests interrupt processes, so they restore
# the default handler.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def small() -> Dict[str, Any]:
    """Returns the tensors of the model in the documentation examples."""
    return {
        "fc1.weight": numpy.arange(12, dtype="float32").reshape(4, 3),
        "fc1.bias": numpy.array([0.5, 1.5], "float32"),
        "steps": numpy.array(7),
    }


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A safetensors file of three tensors."""
    path = tmp_path / "net.safetensors"
    weighbridge.save(path, small(), metadata={"by": "the tests"})
    return path


def graph(folder: Path) -> None:
    """Writes the PyTorch-BigGraph checkpoint `graph` and its edges `edges` of the documentation examples."""
    from weighbridge.biggraph import CheckpointStore

    config = {
        "entities": {"user": {"num_partitions": 1}},
        "relations": [{"name": "follows", "lhs": "user", "rhs": "user", "operator": "translation"}],
        "dimension": 2,
        "global_emb": False,
        "entity_path": ".",
        "edge_paths": ["."],
        "checkpoint_path": ".",
    }
    CheckpointStore(folder / "graph").save(
        {"user": numpy.arange(8, dtype="float32").reshape(4, 2)},
        parameters={"relations.0.operator.rhs.translation": numpy.array([0.5, -0.5], "float32")},
        state={"user": numpy.ones(4, "float32")},
        names={"user": ["alice", "bob", "carol", "dan"]},
        config=config,
    )
    paths = {"entity_path": "shop/entities", "edge_paths": ["shop/train"]}
    (folder / "shop.json").write_text(json.dumps({**config, **paths}))
    (folder / "edges.tsv").write_text("alice\tfollows\tbob\nbob\tfollows\tcarol\nalice\tfollows\tdan\n")
    columns = {
        ("0_0", "lhs"): [0, 1],
        ("0_0", "rhs"): [1, 0],
        ("0_0", "rel"): [0, 0],
        ("0_1", "lhs"): [0],
        ("0_1", "rhs"): [1],
        ("0_1", "rel"): [0],
    }
    arrays = {path: numpy.array(values) for path, values in columns.items()}
    roles = {path: "edges" for path in arrays}
    weighbridge.save(folder / "edges", arrays, format="biggraph", kind="edges", roles=roles)
