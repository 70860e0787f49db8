"""The golden files, read through Python: what their own libraries said of them."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import numpy
import pytest
import weighbridge
from conftest import TESTDATA
from weighbridge import dtypes

NPY = sorted((TESTDATA / "npy/good").glob("*.npy"))
NPZ = sorted((TESTDATA / "npz/good").glob("*.npz"))
SAFETENSORS = sorted((TESTDATA / "safetensors/good").glob("*.safetensors"))
PRIMITIV = sorted((TESTDATA / "primitiv/good").glob("*/*.param")) + sorted(
    (TESTDATA / "primitiv/good").glob("*/*.model")
)
SHORT = {"F8_E4M3FN": "f8_e4m3", "F8_E4M3": "f8_e4m3", "F8_E5M2": "f8_e5m2", "F8_E8M0": "f8_e8m0"}


def holds(tensor: weighbridge.Tensor, dtype: str, shape: List[int], data: bytes) -> None:
    """Every way to the elements gives these bytes, in row-major order."""
    assert (tensor.dtype, list(tensor.shape)) == (dtype, shape)
    assert tensor.nbytes == len(data)
    assert tensor.bytes() == data
    assert bytes(tensor.memoryview()) == data
    if sys.version_info >= (3, 12):
        assert hashlib.sha256(tensor).digest() == hashlib.sha256(data).digest()
    if dtype not in dtypes.NUMPY and dtype not in dtypes.ML_DTYPES:
        with pytest.raises(weighbridge.UnsupportedError):
            tensor.numpy()
        return
    if dtype in dtypes.ML_DTYPES:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        if not hasattr(ml_dtypes, dtypes.ML_DTYPES[dtype]):
            return
    array = tensor.numpy()
    assert array.shape == tuple(shape) and array.dtype == tensor.numpy_dtype
    assert not array.flags.writeable
    assert array.tobytes() == data
    assert numpy.asarray(tensor).tobytes() == data
    if shape:
        assert tensor[:].tobytes() == data and tensor[..., ::-1].tobytes() == array[..., ::-1].tobytes()


@pytest.mark.parametrize("path", NPY, ids=lambda path: path.name)
def test_npy(path: Path) -> None:
    truth = json.loads(path.with_name(path.name + ".json").read_text("utf-8"))
    if "tensors" not in truth:
        pytest.skip("no array of numbers")
    checkpoint = weighbridge.open(path)
    assert checkpoint.format == "npy" and len(checkpoint) == len(truth["tensors"])
    for told in truth["tensors"]:
        tensor = checkpoint[told["name"]]
        holds(tensor, told["dtype"], told["shape"], bytes.fromhex(told["hex"]))
        try:
            own = numpy.load(path)
        except ValueError:
            assert sys.version_info < (3, 10) and path.name == "blanks.npy", (
                "older versions of Python refuse it"
            )
            continue
        assert tensor.numpy().tobytes() == own.astype(own.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize("path", NPZ, ids=lambda path: path.name)
def test_npz(path: Path) -> None:
    truth = json.loads(path.with_name(path.name + ".json").read_text("utf-8"))
    if "tensors" not in truth:
        with pytest.raises(weighbridge.Error):
            weighbridge.load(path)
        return
    checkpoint = weighbridge.open(path)
    assert list(checkpoint) == [told["name"] for told in truth["tensors"]]
    for told in truth["tensors"]:
        holds(checkpoint[told["name"]], told["dtype"], told["shape"], bytes.fromhex(told["hex"]))
        checkpoint[told["name"]].check()


@pytest.mark.parametrize("path", SAFETENSORS, ids=lambda path: path.name)
def test_safetensors(path: Path) -> None:
    truth = json.loads(path.with_suffix(".json").read_text("utf-8"))
    checkpoint = weighbridge.open(path)
    assert len(checkpoint) == len(truth["tensors"])
    assert checkpoint.metadata == (truth.get("metadata") or {})
    for told in truth["tensors"]:
        dtype = SHORT.get(told["dtype"], told["dtype"].lower())
        holds(
            checkpoint.tensor((*told["name"].split("."),)), dtype, told["shape"], bytes.fromhex(told["hex"])
        )


def test_torch() -> None:
    truth = json.loads((TESTDATA / "torch/good/expected.json").read_text("utf-8"))
    seen = 0
    for name, told in truth.items():
        checkpoint = weighbridge.open(TESTDATA / "torch/good" / name)
        assert checkpoint.format == "torch"
        for one in told.get("tensors", []):
            holds(checkpoint[one["name"]], one["dtype"], one["shape"], bytes.fromhex(one["hex"]))
            seen += 1
    assert seen > 50


def test_tables() -> None:
    truth = json.loads((TESTDATA / "tables/expected.json").read_text("utf-8"))
    for name, told in truth.items():
        path = TESTDATA / "tables" / name
        if "error" in told:
            with pytest.raises(weighbridge.Error) as caught:
                weighbridge.load(path)
            assert caught.value.code == told["error"]
            continue
        (tensor,) = weighbridge.open(path, format=told["format"]).values()
        holds(tensor, told["dtype"], told["shape"], bytes.fromhex(told["hex"]))
        labels = tensor.labels
        assert (None if labels is None else list(labels)) == told["names"], name
        if labels is not None:
            assert len(labels) == len(told["names"])
            assert [labels.row_of(one) for one in told["names"]] == [
                told["names"].index(one) for one in told["names"]
            ]
            assert labels.rows_of([told["names"][-1], "nobody at all"])[1] is None
            assert labels[-1] == told["names"][-1] and "nobody at all" not in labels


def parameters(truth: Dict[str, Any]) -> Iterator[Tuple[Tuple[Any, ...], Dict[str, Any]]]:
    """Path and content of each parameter of a primitiv file."""
    if "parameter" in truth:
        yield ("value",), truth["parameter"]
    for one in truth.get("parameters", []):
        if "key_hex" in one:
            parts = [bytes.fromhex(part) for part in one["key_hex"]]
        else:
            parts = [part.encode() for part in one["key"]]
        yield tuple(as_part(part) for part in parts), one["parameter"]


def as_part(part: bytes) -> Any:
    try:
        return part.decode()
    except UnicodeDecodeError:
        return part


def primitiv_bytes(told: Dict[str, Any]) -> bytes:
    return b"".join(int(word, 16).to_bytes(4, "little") for word in told["bits"].split())


@pytest.mark.parametrize("path", PRIMITIV, ids=lambda path: path.name)
def test_primitiv(path: Path) -> None:
    truth = json.loads(path.with_name(path.name + ".json").read_text("utf-8"))
    checkpoint = weighbridge.open(path)
    count = 0
    for parts, told in parameters(truth):
        for slot, one in [(None, told["value"])] + [
            (stat_name(stat), stat["tensor"]) for stat in told["stats"]
        ]:
            tensor = checkpoint.tensor(parts, slot)
            assert tensor.path == parts and tensor.slot == slot
            assert tensor.role == ("parameter" if slot is None else "optimizer")
            batch = [one["batch"]] if one["batch"] > 1 else []
            assert list(tensor.shape) == one["dims"] + batch and tensor.dtype == "f32"
            assert tensor.bytes("F") == primitiv_bytes(one)
            assert tensor.numpy().tobytes(order="F") == primitiv_bytes(one)
            assert tensor.numpy().flags.f_contiguous
            count += 1
    assert count == len(checkpoint)


def stat_name(stat: Dict[str, Any]) -> Any:
    return as_part(bytes.fromhex(stat["name_hex"])) if "name_hex" in stat else stat["name"]


def test_paddle() -> None:
    seen = 0
    for folder in sorted((TESTDATA / "paddle/good/p262").iterdir()):
        truth = json.loads((folder / "expected.json").read_text("utf-8"))
        if not isinstance(truth.get("tensors"), list) or not (folder / "model.pdiparams").exists():
            continue
        checkpoint = weighbridge.open(folder / "model.pdiparams")
        assert checkpoint.format == "paddle" and checkpoint.program is not None
        assert checkpoint.program.summary()["operators"] > 0 and checkpoint.program.feeds
        assert "digraph" in checkpoint.program.dot() and checkpoint.program.text()
        for told in truth["tensors"]:
            found = checkpoint[told["name"]]
            assert list(found.shape) == told["shape"]
            assert hashlib.sha256(found.bytes()).hexdigest() == told["sha256"], told["name"]
            seen += 1
    assert seen > 20


def test_biggraph() -> None:
    checkpoint = weighbridge.open(TESTDATA / "biggraph/set1/ckpt_std_zip")
    assert (checkpoint.format, checkpoint.kind) == ("biggraph", "checkpoint")
    table = checkpoint["embeddings", "user"]
    assert table.role == "embedding" and len(table.pieces) > 1
    whole = table.numpy()
    rows = 0
    for piece in table.pieces:
        first = piece["start"][0]
        part = table[first : first + piece["extent"][0]]
        assert numpy.array_equal(part, whole[first : first + piece["extent"][0]])
        rows += len(part)
    assert rows == len(table) == len(whole)


def test_damaged_files_say_where() -> None:
    seen = 0
    for path in sorted((TESTDATA / "safetensors/bad").glob("*.safetensors")):
        try:
            weighbridge.open(path)
        except weighbridge.Error as error:
            assert error.file == str(path) and error.code and error.message
            assert isinstance(error, (ValueError, NotImplementedError))
            seen += 1
    assert seen > 5
