"""Checkpoints as mappings, and their display."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
import weighbridge
from conftest import TESTDATA, small


def test_mapping(net: Path) -> None:
    checkpoint = weighbridge.open(net)
    assert isinstance(checkpoint, Mapping)
    assert set(checkpoint) == set(small()) == set(checkpoint.keys())
    assert [tensor.name for tensor in checkpoint.values()] == list(checkpoint)
    for name, tensor in checkpoint.items():
        assert name in checkpoint and tensor.path in checkpoint and list(tensor.path) == name.split(".")
        assert checkpoint[tensor.path].name == checkpoint[name].name == name
        assert checkpoint.tensor(list(tensor.path)).name == name
    assert checkpoint['["fc1","bias"]'].shape == (2,)
    assert len(checkpoint) == 3 and checkpoint.nbytes == 64 and bool(checkpoint)
    assert checkpoint.metadata == {"by": "the tests"} and checkpoint.path == str(net)
    assert checkpoint.program is None and checkpoint.origin is None and checkpoint.damage is None
    assert checkpoint == checkpoint and checkpoint != weighbridge.open(net)
    assert {checkpoint: 1}[checkpoint] == 1


def test_closed_checkpoint_raises(net: Path) -> None:
    with weighbridge.open(str(net)) as checkpoint:
        assert len(checkpoint) == 3
    for action in (lambda: len(checkpoint), lambda: list(checkpoint), lambda: checkpoint.metadata):
        with pytest.raises(weighbridge.UsageError, match="closed"):
            action()
    checkpoint.close()


def test_to_dict_has_the_schema_of_the_command(net: Path) -> None:
    document = weighbridge.open(net).to_dict()
    assert set(document) >= {"path", "format", "kind", "tensors", "metadata", "notes"}
    assert document["tensors"][0] == weighbridge.open(net)[document["tensors"][0]["name"]].to_dict()
    assert document["tensors"][0]["order"] == "row"


def test_escapes_names_in_displays(tmp_path: Path) -> None:
    path = tmp_path / "odd.model"
    name = "<b>\x1b[31m\u202e&\"'"
    weighbridge.save(path, {(name, b"\xff"): numpy.zeros(3, "f4"), "w": numpy.zeros(2, "f4")})
    checkpoint = weighbridge.open(path)
    tensor = checkpoint[name, b"\xff"]
    assert tensor.path == (name, b"\xff")
    page = checkpoint._repr_html_()
    assert "<b>" not in page and "&lt;b&gt;" in page and page.count("<tr>") == 3
    for text in (page, repr(checkpoint), str(tensor), str(checkpoint.tree())):
        assert "\x1b" not in text and "\u202e" not in text


def test_notebook_tables_are_limited(tmp_path: Path) -> None:
    path = tmp_path / "many.npz"
    weighbridge.save(path, {f"t{number}": b"x" for number in range(250)})
    page = weighbridge.open(path)._repr_html_()
    assert page.count("<tr>") == 201 and "and 50 more" in page


def test_tree(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    one = numpy.zeros(2, "f4")
    weighbridge.save(
        path,
        {"a": one, "a.b": one, "a.b.c": one, ("x.y",): one, "a.s": one},
        roles={"a.s": ("optimizer", "m")},
    )
    tree = weighbridge.open(path).tree()
    assert (
        tree["a"][""].name == "a" and tree["a"]["b"][""].name == "a.b" and tree["a"]["b"]["c"].name == "a.b.c"
    )
    assert tree["a"]["s/m"].slot == "m" and tree["x.y"].path == ("x.y",)
    assert repr(tree) == str(tree)
    depth = 3000
    path = tmp_path / "deep.model"
    weighbridge.save(path, {tuple("x" * depth): one})
    tree = weighbridge.open(path).tree()
    assert str(tree).count("\n") == depth - 1


def test_salvage(tmp_path: Path, net: Path) -> None:
    path = tmp_path / "cut.safetensors"
    path.write_bytes(net.read_bytes()[:-20])
    with pytest.raises(weighbridge.CorruptFileError):
        weighbridge.open(path)
    left = weighbridge.open(path, salvage=True)
    assert set(left) == {"steps", "fc1.bias"} and left.damage is not None
    assert {"damaged", "missing-damaged"} <= {note.code for note in left.notes}
    assert any(note.omission for note in left.notes)


def test_lenient(tmp_path: Path, net: Path) -> None:
    path = tmp_path / "longer.safetensors"
    path.write_bytes(net.read_bytes() + b"more")
    with pytest.raises(weighbridge.CorruptFileError):
        weighbridge.open(path)
    assert set(weighbridge.open(path, lenient=True)) == set(small())


def test_check_detects_a_changed_byte(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    numpy.savez(path, w=numpy.arange(100, dtype="f4"))
    weighbridge.open(path)["w"].check()
    content = bytearray(path.read_bytes())
    place = weighbridge.open(path)["w"].extents[0]["offset"] + 7
    content[place] ^= 1
    path.write_bytes(content)
    tensor = weighbridge.open(path)["w"]
    with pytest.raises(weighbridge.CorruptFileError) as caught:
        tensor.check()
    assert caught.value.code == "crc-mismatch" and caught.value.tensor == "w"


def test_programs() -> None:
    checkpoint = weighbridge.open(TESTDATA / "paddle/good/p262/cnn_jit/model.pdiparams")
    program = checkpoint.program
    assert program is not None and program.form == "program-desc" and program.writer == "2.6.2"
    assert program.bytes() == (TESTDATA / "paddle/good/p262/cnn_jit/model.pdmodel").read_bytes()
    assert (
        program.to_dict()
        and "conv2d" in program.text()
        and repr(program).startswith("<Program: program-desc")
    )
    assert set(weighbridge.open(checkpoint.path, names="structured")) != set(checkpoint)


def test_options(net: Path, tmp_path: Path) -> None:
    assert weighbridge.open(net, format="safetensors").format == "safetensors"
    with pytest.raises(TypeError):
        weighbridge.load(net, colour="red")
    for wrong in (3, None, b"\x00"):
        with pytest.raises((TypeError, ValueError, OSError)):
            weighbridge.open(wrong)  # type: ignore[arg-type]


class CustomPath:
    """An `os.PathLike` that is neither `str` nor `Path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


def test_paths(net: Path) -> None:
    given: Any = CustomPath(net)
    assert weighbridge.open(given).path == str(net)


def test_path_lookup_is_thread_safe(tmp_path):
    import sys
    import threading

    weighbridge.save(tmp_path / "many.npz", {("a", f"b{i}"): numpy.ones(1) for i in range(1000)})
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    failed = []

    def ask(checkpoint, start):
        start.wait()
        try:
            checkpoint["a", "b999"]
        except KeyError as error:
            failed.append(error)

    try:
        for _ in range(5):
            checkpoint, start = weighbridge.open(tmp_path / "many.npz"), threading.Barrier(6)
            threads = [threading.Thread(target=ask, args=(checkpoint, start)) for _ in range(6)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
    finally:
        sys.setswitchinterval(interval)
    assert not failed


def test_contains_is_false_for_other_types(tmp_path):
    import pickle

    weighbridge.save(tmp_path / "a.npz", {"a": numpy.ones(1)})
    checkpoint = weighbridge.open(tmp_path / "a.npz")
    assert "a" in checkpoint and ("a",) in checkpoint
    assert 5 not in checkpoint and None not in checkpoint and "b" not in checkpoint
    for opened in (checkpoint, checkpoint["a"]):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(opened)
