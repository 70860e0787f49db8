"""The programs in `examples/python` run correctly."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest

from conftest import TESTDATA
from weighbridge import biggraph, paddle, primitiv

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, *words: Any) -> str:
    """Runs an example program; returns its output."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *map(str, words)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def floats(text: str) -> numpy.ndarray:
    """Converts bit patterns to floats."""
    return numpy.array([int(word, 16) for word in text.split()], "uint32").view("float32")


@pytest.mark.parametrize("variant", ["a", "b"])
def test_primitiv_lstm(variant: str) -> None:
    path = TESTDATA / "primitiv" / "good" / "trained" / f"trained_lstm_{variant}.model"
    samples = json.loads(Path(f"{path}.json").read_text("utf-8"))["inference"]["samples"]
    characters = [int(floats(sample["input_bits"])[0]) for sample in samples]
    scores = example("primitiv_lstm").run(primitiv.load(path), characters)
    for score, sample in zip(scores, samples):
        assert numpy.allclose(score, floats(sample["output_bits"]), atol=1e-4)
    printed = run("primitiv_lstm", path, *characters).splitlines()
    assert [int(line) for line in printed[-len(characters) :]] == [int(score.argmax()) for score in scores]


def test_biggraph_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = TESTDATA / "biggraph" / "set1" / "ckpt_std_zip"
    table = biggraph.open(folder)["user"]
    rows = table.numpy().astype("float64")
    unit = rows / numpy.linalg.norm(rows, axis=1, keepdims=True)
    order = [row for row in numpy.argsort(-(unit @ unit[7])) if row != 7][:5]
    wanted = [table.names[int(row)] for row in order]
    module = example("biggraph_neighbours")
    for block in (1 << 16, 10):
        monkeypatch.setattr(module, "BLOCK", block)
        assert [name for name, _ in module.nearest(table, table.names[7], 5)] == wanted
    printed = run("biggraph_neighbours", folder, "user", table.names[7], 5)
    assert [line.split("  ", 1)[1] for line in printed.splitlines()] == wanted


def test_paddle_to_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    base = TESTDATA / "paddle" / "good" / "p262" / "cnn_jit"
    paddle.save(paddle.load_params(base, names="structured"), tmp_path / "net.pdparams")
    run("paddle_to_torch", tmp_path / "net.pdparams", tmp_path / "net.pt")

    class Net(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False)
            self.bn1 = torch.nn.BatchNorm2d(8)
            self.conv2 = torch.nn.Conv2d(8, 16, 3, stride=2, padding=1)
            self.bn2 = torch.nn.BatchNorm2d(16)
            self.fc = torch.nn.Linear(16, 10)

        def forward(self, x: Any) -> Any:
            x = torch.nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
            x = torch.relu(self.bn2(self.conv2(x))).mean((2, 3))
            return torch.softmax(self.fc(x), -1)

    net = Net().eval()
    missing = net.load_state_dict(torch.load(tmp_path / "net.pt", weights_only=True), strict=False)
    assert (
        all(name.endswith("num_batches_tracked") for name in missing.missing_keys)
        and not missing.unexpected_keys
    )
    with torch.no_grad():
        found = net(torch.from_numpy(numpy.load(base / "input_image.npy")))
    assert numpy.allclose(found.numpy(), numpy.load(base / "output_0.npy"), atol=1e-5)


def test_paddle_to_torch_does_not_transpose_embeddings(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    rows = numpy.arange(6, dtype="float32").reshape(3, 2)
    moved = example("paddle_to_torch").to_torch(
        {"words.weight": rows, "fc.weight": rows, "LR_Scheduler": {}}, ["words"]
    )
    assert moved["words.weight"].tolist() == rows.tolist() and moved["fc.weight"].tolist() == rows.T.tolist()


def test_resume_embeddings(tmp_path: Path) -> None:
    module = example("resume_embeddings")
    straight = module.train(str(tmp_path / "straight"), 6)
    assert len(straight) == 6 and straight == sorted(straight, reverse=True)
    # Three epochs, then three more in another process, equal six at once.
    assert module.train(str(tmp_path / "resumed"), 3) == straight[:3]
    printed = run("resume_embeddings", tmp_path / "resumed", 6)
    assert printed.splitlines()[:3] == [f"{loss:.6f}" for loss in straight[3:]]
    one, other = (biggraph.open(tmp_path / name) for name in ("straight", "resumed"))
    assert one.version == other.version == 6
    assert numpy.array_equal(one["point"].numpy(), other["point"].numpy())
    assert list(other["point"].names) == module.NAMES and other["point"].partitions == [32, 32]
    assert module.train(str(tmp_path / "resumed"), 6) == []
