"""Golden files: values equal those recorded by their own libraries."""

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
    """Checks the elements through every access path, in row-major order."""
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
    for expected in truth["tensors"]:
        tensor = checkpoint[expected["name"]]
        holds(tensor, expected["dtype"], expected["shape"], bytes.fromhex(expected["hex"]))
        try:
            own = numpy.load(path)
        except ValueError:
            assert sys.version_info < (3, 10) and path.name == "blanks.npy", (
                "older versions of Python cannot read it"
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
    assert list(checkpoint) == [expected["name"] for expected in truth["tensors"]]
    for expected in truth["tensors"]:
        holds(
            checkpoint[expected["name"]], expected["dtype"], expected["shape"], bytes.fromhex(expected["hex"])
        )
        checkpoint[expected["name"]].check()


@pytest.mark.parametrize("path", SAFETENSORS, ids=lambda path: path.name)
def test_safetensors(path: Path) -> None:
    truth = json.loads(path.with_suffix(".json").read_text("utf-8"))
    checkpoint = weighbridge.open(path)
    assert len(checkpoint) == len(truth["tensors"])
    assert checkpoint.metadata == (truth.get("metadata") or {})
    for expected in truth["tensors"]:
        dtype = SHORT.get(expected["dtype"], expected["dtype"].lower())
        holds(
            checkpoint.tensor((*expected["name"].split("."),)),
            dtype,
            expected["shape"],
            bytes.fromhex(expected["hex"]),
        )


def test_torch() -> None:
    truth = json.loads((TESTDATA / "torch/good/expected.json").read_text("utf-8"))
    seen = 0
    for name, expected in truth.items():
        checkpoint = weighbridge.open(TESTDATA / "torch/good" / name)
        assert checkpoint.format == "torch"
        for one in expected.get("tensors", []):
            holds(checkpoint[one["name"]], one["dtype"], one["shape"], bytes.fromhex(one["hex"]))
            seen += 1
    assert seen > 50


def test_tables() -> None:
    truth = json.loads((TESTDATA / "tables/expected.json").read_text("utf-8"))
    for name, expected in truth.items():
        path = TESTDATA / "tables" / name
        if "error" in expected:
            with pytest.raises(weighbridge.Error) as caught:
                weighbridge.load(path)
            assert caught.value.code == expected["error"]
            continue
        (tensor,) = weighbridge.open(path, format=expected["format"]).values()
        holds(tensor, expected["dtype"], expected["shape"], bytes.fromhex(expected["hex"]))
        names = tensor.row_names
        assert (None if names is None else list(names)) == expected["names"], name
        if names is not None:
            assert len(names) == len(expected["names"])
            assert [names.row_of(one) for one in expected["names"]] == [
                expected["names"].index(one) for one in expected["names"]
            ]
            assert names.rows_of([expected["names"][-1], "unknown"])[1] is None
            assert names[-1] == expected["names"][-1] and "unknown" not in names


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


def primitiv_bytes(expected: Dict[str, Any]) -> bytes:
    return b"".join(int(word, 16).to_bytes(4, "little") for word in expected["bits"].split())


@pytest.mark.parametrize("path", PRIMITIV, ids=lambda path: path.name)
def test_primitiv(path: Path) -> None:
    truth = json.loads(path.with_name(path.name + ".json").read_text("utf-8"))
    checkpoint = weighbridge.open(path)
    count = 0
    for parts, expected in parameters(truth):
        for slot, one in [(None, expected["value"])] + [
            (stat_name(stat), stat["tensor"]) for stat in expected["stats"]
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
        for expected in truth["tensors"]:
            found = checkpoint[expected["name"]]
            assert list(found.shape) == expected["shape"]
            assert hashlib.sha256(found.bytes()).hexdigest() == expected["sha256"], expected["name"]
            seen += 1
    assert seen > 20


def test_biggraph() -> None:
    checkpoint = weighbridge.open(TESTDATA / "biggraph/set1/ckpt_std_zip")
    assert (checkpoint.format, checkpoint.kind) == ("biggraph", "checkpoint")
    table = checkpoint["embeddings", "user"]
    assert table.role == "embedding" and len(table.extents) > 1
    whole = table.numpy()
    rows = 0
    for extent in table.extents:
        first = extent["start"][0]
        part = table[first : first + extent["extent"][0]]
        assert numpy.array_equal(part, whole[first : first + extent["extent"][0]])
        rows += len(part)
    assert rows == len(table) == len(whole)


def test_errors_of_damaged_files_name_the_file() -> None:
    seen = 0
    for path in sorted((TESTDATA / "safetensors/bad").glob("*.safetensors")):
        try:
            weighbridge.open(path)
        except weighbridge.Error as error:
            assert error.file == str(path) and error.code and error.message
            assert isinstance(error, (ValueError, NotImplementedError))
            seen += 1
    assert seen > 5
