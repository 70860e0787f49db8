"""PaddlePaddle: states, parameters and programs of golden files, and states written from Python."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import numpy
import pytest

import weighbridge
from conftest import TESTDATA
from weighbridge import paddle

GOOD = TESTDATA / "paddle" / "good"


def truth(folder: Path) -> Dict[str, Any]:
    return json.loads((folder / "expected.json").read_text("utf-8"))


def pickles() -> Iterator[Tuple[Path, Dict[str, Any]]]:
    """Yields every golden pickle with its expected content."""
    for folder in sorted({path.parent for path in GOOD.glob("*/*/expected.json")}):
        entries = truth(folder).get("entries", [])
        known = {
            expected["file"]: expected.get("raw_pickle") for expected in entries if isinstance(entries, list)
        }
        for name, expected in known.items():
            while expected is not None and "same_content_as" in expected:
                expected = known[expected["same_content_as"]]
            if expected is not None and (folder / name).is_file():
                yield folder / name, expected


PICKLES = list(pickles())


def sha(array: Any) -> str:
    return hashlib.sha256(numpy.ascontiguousarray(array).tobytes()).hexdigest()


def holds(value: Any, expected: Dict[str, Any], place: str) -> int:
    """Compares a loaded value with the expected one. Returns the number of compared values."""
    kind = expected["kind"]
    if kind == "tuple" and len(expected["items"]) == 2 and expected["items"][1]["kind"] == "ndarray":
        # A tensor with its name.
        return holds(value, expected["items"][1], place)
    if kind == "ndarray":
        assert isinstance(value, numpy.ndarray), place
        assert list(value.shape) == expected["shape"] and str(value.dtype) == expected["numpy_dtype"], place
        assert sha(value) == expected["sha256"], place
        return 1
    if kind in ("dict", "OrderedDict"):
        items = {
            key: own
            for key, own in expected["items"].items()
            if key not in ("StructuredToParameterName@@", "UnpackBigParamInfor@@")
        }
        assert isinstance(value, dict), place
        if "UnpackBigParamInfor@@" not in expected["items"]:
            assert [str(key) for key in value] == list(items), place
            return sum(
                holds(one, own, f"{place}.{key}") for (key, one), own in zip(value.items(), items.values())
            )
        return len(value)
    if kind in ("list", "tuple"):
        assert type(value).__name__ == kind and len(value) == len(expected["items"]), place
        return sum(
            holds(one, own, f"{place}[{number}]")
            for number, (one, own) in enumerate(zip(value, expected["items"]))
        )
    if kind == "numpy_scalar":
        assert value == expected["value"] and str(value.dtype) == expected["numpy_dtype"], place
        return 1
    assert type(value).__name__ == kind and value == expected["value"], place
    return 1


def test_golden_pickles_exist() -> None:
    assert len(PICKLES) > 40


@pytest.mark.parametrize(
    "path, expected",
    PICKLES,
    ids=[f"{path.parent.parent.name}-{path.parent.name}-{path.name}" for path, _ in PICKLES],
)
def test_golden_pickles(path: Path, expected: Dict[str, Any], tmp_path: Path) -> None:
    loaded = paddle.load(path)
    assert holds(loaded, expected, path.name) > 0 or not loaded
    # Round trip.
    paddle.save(loaded, tmp_path / "again.pd", bfloat16=True)
    assert same(paddle.load(tmp_path / "again.pd"), loaded)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, numpy.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return (
            type(one) is type(other)
            and list(one) == list(other)
            and all(same(one[key], other[key]) for key in one)
        )
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or one != one)


def test_bfloat16() -> None:
    path = GOOD / "p262" / "master_weights" / "lin_p4.pdparams"
    as_bits = paddle.load(path)["weight"]
    as_floats = paddle.load(path, bfloat16="float32", copy=True)["weight"]
    assert as_bits.dtype == "uint16" and as_floats.dtype == "float32" and as_floats.flags.writeable
    assert numpy.array_equal(as_bits.astype("uint32") << 16, as_floats.view("uint32"))
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert paddle.load(path, bfloat16="ml_dtypes")["weight"].dtype == ml_dtypes.bfloat16
    with pytest.raises(weighbridge.UsageError):
        paddle.load(path, bfloat16="float64")


def test_keeps_the_name_table(tmp_path: Path) -> None:
    path = GOOD / "p262" / "cnn_state_dict"
    path = next(iter(sorted(path.glob("*.pdparams"))))
    with path.open("rb") as file:
        table = pickle.load(file, encoding="latin1")["StructuredToParameterName@@"]
    loaded = paddle.load(path, keep_name_table=True)
    assert loaded["StructuredToParameterName@@"] == table
    # The names survive a rewrite.
    paddle.save(loaded, tmp_path / "again.pdparams")
    assert (
        paddle.load(tmp_path / "again.pdparams", keep_name_table=True)["StructuredToParameterName@@"] == table
    )
    # Keys need not be text.
    numbered = GOOD / "p262" / "odd_states" / "ints_p4.pd"
    assert list(paddle.load(numbered)) == [0, 1]
    assert paddle.load(numbered, keep_name_table=True)["StructuredToParameterName@@"][1] == "linear_0.b_0"


def test_saved_pickles_equal_those_of_paddle(tmp_path: Path) -> None:
    state = {"w": numpy.ones((2, 3), "float32"), "LR_Scheduler": {"last_epoch": 4, "last_lr": 0.5}}
    for protocol in (2, 3, 4):
        path = tmp_path / f"{protocol}.pdparams"
        paddle.save(state, path, protocol)
        raw = pickle.loads(path.read_bytes(), encoding="latin1")
        assert list(raw) == ["w", "LR_Scheduler", "StructuredToParameterName@@"]
        assert (
            raw["StructuredToParameterName@@"] == {"w": "w"} and raw["LR_Scheduler"] == state["LR_Scheduler"]
        )
        assert numpy.array_equal(raw["w"], state["w"])
        assert path.read_bytes()[:2] == bytes([0x80, protocol])


def test_nested_objects_round_trip(tmp_path: Path) -> None:
    obj = {
        "a.b": numpy.arange(3),
        "a": {"b": numpy.arange(4.0)},
        "list": [numpy.float32(1.5), (numpy.zeros((0, 2), "int8"), None, True, -5, 2.5, "text", b"bytes")],
        "ordered": OrderedDict([("z", 1), ("a", numpy.array(7))]),
        "@dict": {3: numpy.ones(1), ("t", 1): "x"},
    }
    paddle.save(obj, tmp_path / "x.pd")
    assert same(paddle.load(tmp_path / "x.pd"), obj)
    raw = pickle.loads((tmp_path / "x.pd").read_bytes())
    assert raw["a.b"][0] == "a.b" and numpy.array_equal(raw["a.b"][1], obj["a.b"])
    for alone in (numpy.arange(6).reshape(2, 3), [1, "two"], 5, {}, {"a": 1}):
        paddle.save(alone, tmp_path / "y.pd", force=True)
        assert same(paddle.load(tmp_path / "y.pd"), alone)


def test_dicts_of_dicts_keep_arrays(tmp_path: Path) -> None:
    """Paddle saves such a dict as a state without tensors: with an empty name table."""
    path = tmp_path / "any"
    array = numpy.ones(2, "float32")
    for obj in ({"m": {"a": array}}, OrderedDict(m={"d": [array]}, n={}), {0: {"a": array}}):
        paddle.save(obj, path, force=True)
        raw = pickle.loads(path.read_bytes())
        assert raw.pop("StructuredToParameterName@@") == {} and list(raw) == list(obj)
        back = paddle.load(path)
        assert list(back) == list(obj) and str(back) == str({**obj})
    # With other values, or with tensors of an opened checkpoint, they become tensors.
    own = weighbridge.open(path)["0.a"]
    for other in ({"m": {"a": array}, "k": 3}, {"m": {"a": array}, "n": {"own": own}}, [{"a": array}]):
        target = tmp_path / "other"
        paddle.save(other, target, force=True)
        assert "StructuredToParameterName@@" not in pickle.loads(target.read_bytes())


def test_saves_array_subclasses(tmp_path: Path) -> None:
    path = tmp_path / "any"
    numpy.save(tmp_path / "x.npy", numpy.arange(6.0).reshape(2, 3))
    mapped = numpy.load(tmp_path / "x.npy", mmap_mode="r")
    assert type(mapped) is numpy.memmap
    paddle.save({"a": mapped, "n": numpy.float32(2), "b": [mapped[1]]}, path)
    back = paddle.load(path)
    assert back["a"].tolist() == mapped.tolist() and back["b"][0].tolist() == [3, 4, 5]
    assert type(back["n"]) is numpy.float32
    # Arrays of any class stay arrays if saved with a Paddle tensor.
    beside = {"w": paddle_tensor(), "a": mapped, "masked": numpy.ma.array([1.0, 2.0])}
    paddle.save(beside, path, force=True)
    raw = pickle.loads(path.read_bytes())
    assert raw["w"][0] == "w_0" and all(type(raw[name]) is numpy.ndarray for name in ("a", "masked"))


def paddle_tensor() -> Any:
    """Imitates a Paddle tensor, so that Paddle need not be installed."""

    def elements(self: Any, dtype: Any = None, copy: Any = None) -> Any:
        return numpy.zeros(2, "float32")

    return type("Tensor", (), {"__module__": "paddle", "name": "w_0", "__array__": elements})()


def test_rejects_unsupported_objects(tmp_path: Path) -> None:
    loop: List[Any] = []
    loop.append(loop)
    for obj, code in (
        ({"x": object()}, "not-plain"),
        ({"x": {1, 2}}, "not-plain"),
        (loop, "too-deep"),
        ({"x": loop}, "too-deep"),
        ({"x": numpy.zeros(2, "uint16")}, "uint16"),
        ({"x": numpy.array(["text"])}, "unknown-dtype"),
    ):
        with pytest.raises(weighbridge.Error) as caught:
            paddle.save(obj, tmp_path / "x.pd")
        assert caught.value.code == code
    assert list(tmp_path.iterdir()) == []
    paddle.save({}, tmp_path / "x.pd")
    with pytest.raises(FileExistsError):
        paddle.save({}, tmp_path / "x.pd")


def test_pickles_are_not_executed(tmp_path: Path) -> None:
    marker = tmp_path / "called"

    class Evil:
        def __reduce__(self) -> Tuple[Any, ...]:
            return Path.touch, (marker,)

    (tmp_path / "evil.pdparams").write_bytes(
        pickle.dumps({"w": numpy.zeros(2), "evil": Evil(), "kind": OrderedDict}, 4)
    )
    loaded = paddle.load(tmp_path / "evil.pdparams", format=None)
    assert not marker.exists()
    assert numpy.array_equal(loaded["w"], [0, 0]) and isinstance(loaded["evil"], paddle.Inert)


MODELS = [
    ("p262/cnn_static_infer", "model.pdmodel", None),
    ("p262/seq_jit", "model.pdmodel", "model.pdiparams"),
    ("p262/cnn_legacy_combined", "__model__", "__params__"),
    ("p262/seq_legacy_separate", "", None),
    ("p331/cnn_pir", "model.json", "model.pdiparams"),
    ("p331_oldir/cnn_jit", "model.pdmodel", None),
]


@pytest.mark.parametrize("folder, model, params", MODELS, ids=[model[0] for model in MODELS])
def test_golden_models(folder: str, model: str, params: Any) -> None:
    base = GOOD / folder
    found = paddle.load_params(base / model, None if params is None else base / params)
    expected = {tensor["name"]: tensor for tensor in truth(base)["tensors"]}
    assert set(found) == set(expected)
    for name, array in found.items():
        assert list(array.shape) == expected[name]["shape"] and sha(array) == expected[name]["sha256"]


PROGRAMS = [
    "p262/cnn_static_infer/model.pdmodel",
    "p262/control_flow/model.pdmodel",
    "p262/op_attrs/main.pdmodel",
    "p262/op_attrs/startup.pdmodel",
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden_programs(name: str, tmp_path: Path) -> None:
    path = GOOD / name
    program = paddle.load_program(path)
    expected = truth(path.parent)
    expected = expected.get("program") or expected["programs"][path.name]
    assert len(program.blocks) == len(expected["blocks"])
    for block, own in zip(program.blocks, expected["blocks"]):
        assert [operator.type for operator in block.ops] == [one["type"] for one in own["ops"]]
        assert {variable.name for variable in block.vars} == {one["name"] for one in own["vars"]}
        for operator, one in zip(block.ops, own["ops"]):
            assert {slot: names for slot, names in operator.inputs.items() if names} == {
                slot: names for slot, names in one["inputs"].items() if names
            }
    assert [variable.name for variable in program.parameters()] == expected["persistable_names_sorted"]
    program.save(tmp_path / "again.pdmodel")
    assert (tmp_path / "again.pdmodel").read_bytes() == path.read_bytes() == bytes(program)
    assert paddle.load_program(tmp_path / "again.pdmodel") == program
    whole = weighbridge.open(path.parent if (path.parent / "model.pdmodel").is_file() else path)
    assert paddle.Program(whole.program) == program
    assert program.to_dict()["form"] == program.form == "program-desc"
    assert (
        program.ops[0].type in program.text()
        and "blocks {" in program.prototxt()
        and "digraph" in program.dot()
    )


def test_strip_removes_source_code(tmp_path: Path) -> None:
    path = GOOD / "p262" / "cnn_static_infer" / "model.pdmodel"
    program = paddle.load_program(path)
    leaks = program.leaks()
    assert leaks and all(leak.attribute == "op_callstack" for leak in leaks)
    clean = program.strip()
    assert clean.leaks() == [] and clean.removed["attributes"] == len(leaks)
    assert len(clean.ops) == len(program.ops) and clean != program
    assert clean.feed_names == program.feed_names == ["image"]
    clean.save(tmp_path / "clean.pdmodel")
    assert paddle.load_program(tmp_path / "clean.pdmodel").leaks() == []
    assert all("op_callstack" not in operator.attrs for operator in clean.ops)
    pir = paddle.load_program(GOOD / "p331" / "cnn_pir" / "model.json")
    assert pir.form == "pir" and pir.ops and pir.strip().removed["operators"] == 0
    with pytest.raises(weighbridge.UnsupportedError):
        pir.prototxt()


@pytest.mark.parametrize("protocol", [2, 4])
def test_loads_pickled_memmaps_as_arrays(tmp_path: Path, protocol: int) -> None:
    """A pickled `numpy.memmap` contains its class and all elements."""
    numpy.save(tmp_path / "x.npy", numpy.arange(6, dtype="f4").reshape(2, 3))
    mapped = numpy.load(tmp_path / "x.npy", mmap_mode="r")
    path = tmp_path / "mapped.pdparams"
    columns = numpy.memmap(tmp_path / "raw", "i8", "w+", shape=(2, 2), order="F")
    columns[:] = [[1, 2], [3, 4]]
    path.write_bytes(pickle.dumps({"w": mapped, "opt": {"m": columns}, "epoch": 3}, protocol))
    assert b"memmap" in path.read_bytes()
    loaded = paddle.load(path)
    assert loaded["w"].tolist() == mapped.tolist() and loaded["w"].dtype == numpy.float32
    assert loaded["opt"]["m"].tolist() == [[1, 2], [3, 4]] and loaded["epoch"] == 3
    opened = weighbridge.open(path)
    assert [note.code for note in opened.notes] == ["array-class"] and len(opened) == 2
    assert weighbridge.scan(path).is_clean
    # A call of the class would create or truncate a file.
    victim = tmp_path / "victim"
    victim.write_bytes(b"12345678")

    class Evil:
        def __reduce__(self) -> Any:
            return numpy.memmap, (str(victim), "u1", "w+", 0, (1,))

    path.write_bytes(pickle.dumps({"w": mapped, "x": Evil()}, protocol))
    found = weighbridge.scan(path)
    assert found.verdict == "found" and "unusual-call" in {finding.code for finding in found.findings}
    assert isinstance(paddle.load(path)["x"], paddle.Inert) and victim.read_bytes() == b"12345678"


def test_loads_the_program_of_a_folder(tmp_path: Path) -> None:
    for folder, name in (("p262/cnn_static_infer", "model.pdmodel"), ("p331/cnn_pir", "model.json")):
        assert paddle.load_program(GOOD / folder) == paddle.load_program(GOOD / folder / name)
    old = GOOD / "p262" / "cnn_static_infer" / "model.pdmodel"
    shutil.copy(old, tmp_path / "__model__")
    assert paddle.load_program(tmp_path) == paddle.load_program(old)
    shutil.copy(old, tmp_path / "other.pdmodel")
    with pytest.raises(weighbridge.UsageError) as caught:
        paddle.load_program(tmp_path)
    assert caught.value.code == "several-models" and caught.value.file == str(tmp_path)
    assert sorted(caught.value.found.split(", ")) == ["__model__", "other.pdmodel"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(weighbridge.UsageError) as caught:
        paddle.load_program(tmp_path / "empty")
    assert caught.value.code == "no-program"


def test_open_accepts_a_loaded_program(tmp_path: Path) -> None:
    folder = GOOD / "p262" / "cnn_static_infer"
    alone = shutil.copy(folder / "model.pdiparams", tmp_path / "alone.bin")
    program = paddle.load_program(folder)
    expected = {name: tensor.bytes() for name, tensor in weighbridge.open(folder).items()}
    for given in (program, weighbridge.open(folder).program, folder / "model.pdmodel"):
        with weighbridge.open(alone, program=given) as opened:
            assert {name: tensor.bytes() for name, tensor in opened.items()} == expected
            assert paddle.Program(opened.program) == program
    for wrong in (3, {"a": 1}, [program]):
        with pytest.raises(weighbridge.ArgumentTypeError, match="program must be a path"):
            weighbridge.open(alone, program=wrong)
    # Verbs accept files only, as the command does.
    with pytest.raises(weighbridge.ArgumentTypeError, match="save the program and pass the path"):
        weighbridge.info(alone, program=program)


def test_other_kinds_of_files() -> None:
    tensors = paddle.load(GOOD / "p262" / "cnn_static_infer" / "model.pdiparams")
    assert set(tensors) == set(paddle.load_params(GOOD / "p262" / "cnn_static_infer" / "model.pdmodel"))
    with pytest.raises(weighbridge.Error):
        paddle.load_program(GOOD / "p262" / "cnn_static_infer" / "model.pdiparams")
