"""primitiv objects: golden files, and objects built in Python."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy
import pytest

import weighbridge
from conftest import TESTDATA
from weighbridge import primitiv

GOOD = TESTDATA / "primitiv" / "good"


def files(kind: str) -> List[Path]:
    """Returns the golden files of this kind."""
    found = sorted(path.with_suffix("") for path in GOOD.rglob(f"*.{kind}.json"))
    assert found
    return found


def truth(path: Path) -> Dict[str, Any]:
    return json.loads(Path(f"{path}.json").read_text("utf-8"))


def name_of(expected: Dict[str, Any], key: str = "name") -> Any:
    """Returns the expected name; names that are not UTF-8 are stored as hexadecimal digits."""
    return (
        primitiv.parameter.plain(bytes.fromhex(expected[key + "_hex"]))
        if key + "_hex" in expected
        else expected[key]
    )


def address_of(expected: Dict[str, Any]) -> Tuple[Any, ...]:
    if "key_hex" in expected:
        return tuple(primitiv.parameter.plain(bytes.fromhex(part)) for part in expected["key_hex"])
    return tuple(expected["key"])


def holds(tensor: primitiv.Tensor, expected: Dict[str, Any]) -> None:
    """Checks shape and bits in file order: the first index runs fastest, the batch slowest."""
    assert (list(tensor.shape.dims), tensor.batch) == (expected["dims"], expected["batch"])
    bits = numpy.array([int(word, 16) for word in expected["bits"].split()], "uint32")
    assert tensor.data.view("uint32").tolist() == bits.tolist()
    # Element (i, j, ...) of batch k has position i + d0 * (j + d1 * (... + k)).
    array = tensor.numpy()
    shape = array.shape
    for index in list(numpy.ndindex(*shape))[:50]:
        place, stride = 0, 1
        for one, size in zip(index, shape):
            place += one * stride
            stride *= size
        assert array[index].view("uint32") == bits[place]


def parameter_holds(parameter: primitiv.Parameter, expected: Dict[str, Any]) -> None:
    holds(primitiv.Tensor(parameter.value), expected["value"])
    stats = {name_of(one): one["tensor"] for one in expected["stats"]}
    assert set(parameter.stats) == set(stats)
    for name, own in stats.items():
        holds(parameter.stats.tensor(name), own)


@pytest.mark.parametrize("path", files("model"), ids=lambda path: path.name)
def test_golden_models(path: Path, tmp_path: Path) -> None:
    model = primitiv.load(path)
    expected = truth(path)["parameters"]
    assert [address for address, _ in model.walk()] == [address_of(one) for one in expected]
    for one in expected:
        parameter_holds(model[address_of(one)], one["parameter"])
    model.save(tmp_path / "again.model")
    assert (tmp_path / "again.model").read_bytes() == path.read_bytes()
    assert primitiv.Model(model.get_all_parameters()) == model


@pytest.mark.parametrize("path", files("param"), ids=lambda path: path.name)
def test_golden_parameters(path: Path, tmp_path: Path) -> None:
    parameter = primitiv.load(path)
    parameter_holds(parameter, truth(path)["parameter"])
    parameter.save(tmp_path / "again.param")
    assert (tmp_path / "again.param").read_bytes() == path.read_bytes()
    without = primitiv.Parameter.open(path, with_stats=False)
    assert len(without.stats) == 0 and without.value.tobytes() == parameter.value.tobytes()


@pytest.mark.parametrize("path", files("tensor"), ids=lambda path: path.name)
def test_golden_tensors(path: Path, tmp_path: Path) -> None:
    tensor = primitiv.load(path)
    holds(tensor, truth(path)["tensor"])
    tensor.save(tmp_path / "again.tensor")
    assert (tmp_path / "again.tensor").read_bytes() == path.read_bytes()
    assert primitiv.Tensor.from_data(tensor.data, tensor.shape.dims, tensor.batch) == tensor


@pytest.mark.parametrize("path", files("shape"), ids=lambda path: path.name)
def test_golden_shapes(path: Path) -> None:
    shape = primitiv.load(path)
    expected = truth(path)
    assert (list(shape.dims), shape.batch) == (expected["shape"]["dims"], expected["shape"]["batch"])
    assert (shape.volume, shape.depth) == (expected["volume"], expected["depth"])


@pytest.mark.parametrize("path", files("optimizer"), ids=lambda path: path.name)
def test_golden_optimizers(path: Path, tmp_path: Path) -> None:
    optimizer = primitiv.load(path)
    expected = truth(path)
    assert optimizer.uints == {name_of(one, "key"): one["value"] for one in expected["uint_configs"]}
    bits = {key: struct.pack(">f", value).hex() for key, value in optimizer.floats.items()}
    assert bits == {name_of(one, "key"): one["bits"] for one in expected["float_configs"]}
    if expected["optimizer_class"] in ("SGD", "MomentumSGD", "AdaGrad", "RMSProp", "AdaDelta", "Adam"):
        assert type(optimizer).__name__ == expected["optimizer_class"]
    optimizer.save(tmp_path / "again.optimizer")
    assert (tmp_path / "again.optimizer").read_bytes() == path.read_bytes()


def floats(text: str) -> numpy.ndarray:
    """Converts bit patterns to floats."""
    return numpy.array([int(word, 16) for word in text.split()], "uint32").view("float32")


def test_trained_network_reproduces_primitiv_outputs() -> None:
    path = GOOD / "trained" / "trained_xor_a.model"
    model = primitiv.load(path)
    w1, b1, w2, b2 = (model[name].value for name in ("w1", "b1", "w2", "b2"))
    for sample in truth(path)["inference"]["samples"]:
        found = w2 @ numpy.tanh(w1 @ floats(sample["input_bits"]) + b1) + b2
        assert numpy.allclose(found, floats(sample["output_bits"]), atol=1e-5)


def test_addresses() -> None:
    model = primitiv.Model()
    model["a", "b.c", "w"] = [1]
    model["a.x"] = {"w": [2, 2], "deep": {"b": [3]}}
    assert model["a.b.c.w"] is model["a", "b.c", "w"] is model['["a", "b.c", "w"]']
    assert isinstance(model["a"], primitiv.Model) and model["a"]["x.w"].shape == primitiv.Shape([2])
    assert "a.x.deep" in model and "a.x.deep.b" in model and "a.y" not in model and ("a", "b") not in model
    assert list(model) == [("a", "b.c", "w"), ("a", "x", "deep", "b"), ("a", "x", "w")]
    model["a.b.c.w"] = [5, 5, 5]
    assert model["a", "b.c", "w"].shape == primitiv.Shape([3])
    model["a", "b", "c", "w"] = [6]
    with pytest.raises(weighbridge.MismatchError, match="ambiguous address"):
        model["a.b.c.w"]
    del model["a", "b", "c", "w"]
    assert len(model) == 3
    with pytest.raises(KeyError) as caught:
        model["a.nothing"]
    assert caught.value.code == "unknown-address"


def test_parameters_and_submodels_share_names() -> None:
    model = primitiv.Model({"w": [1], "sub": {"w": [1]}})
    for address, content in (("w.x", [1]), ("sub", [1])):
        with pytest.raises(weighbridge.MismatchError) as caught:
            model[address] = content
        assert caught.value.code == "name-taken"
    with pytest.raises(weighbridge.MismatchError, match="duplicate name"):
        model.add("sub", {})
    assert len(model) == 2
    model.add("again", model)
    with pytest.raises(weighbridge.UsageError, match="contains itself"):
        model.walk()


def test_tied_parameter_is_written_twice(tmp_path: Path) -> None:
    tied = primitiv.Parameter([[1, 2], [3, 4]])
    primitiv.Model({"in": {"w": tied}, "out": {"w": tied}}).save(tmp_path / "tied.model")
    assert [address for address in primitiv.load(tmp_path / "tied.model")] == [("in", "w"), ("out", "w")]


def test_load_replaces_parameters_atomically(tmp_path: Path) -> None:
    stored = primitiv.Model({"w": primitiv.Parameter([1, 2], {"Adam.m1": [3, 4]}), "b": [1]})
    stored.save(tmp_path / "m.model")
    own = primitiv.Model({"w": [0, 0], "b": [0], "more": [9]})
    report = own.load(tmp_path / "m.model")
    assert report.replaced == [("b",), ("w",)] and report.missing == [("more",)]
    assert own["w"].stats["Adam.m1"].tolist() == [3, 4]
    for other, code in (({"w": [0, 0]}, "unknown-address"), ({"w": [0, 0, 0], "b": [7]}, "shape-differs")):
        target = primitiv.Model(other)
        before = {address: parameter.value.tolist() for address, parameter in target.walk()}
        with pytest.raises(weighbridge.MismatchError) as caught:
            target.load(tmp_path / "m.model")
        assert caught.value.code == code
        assert before == {address: parameter.value.tolist() for address, parameter in target.walk()}


def test_accepts_arrays_of_any_order(tmp_path: Path) -> None:
    values = numpy.arange(24, dtype="float32").reshape(2, 3, 4)
    for array in (
        values,
        numpy.asfortranarray(values),
        values.astype("float64"),
        values[::-1][::-1],
        values.astype(">f4"),
    ):
        model = primitiv.Model({"w": array})
        path = tmp_path / f"{id(array)}.model"
        model.save(path)
        assert numpy.array_equal(weighbridge.open(path)["w"].numpy(), values)
        assert path.read_bytes().endswith(values.tobytes("F") + bytes([0xCE, 0, 0, 0, 0]))
    assert primitiv.Tensor(numpy.ones((3, 1, 1))).shape == primitiv.Shape([3])
    assert primitiv.Tensor(numpy.ones((2, 3, 5)), batch=5).shape == primitiv.Shape([2, 3], 5)


def test_rejects_unsupported_values(tmp_path: Path) -> None:
    for make, code in (
        (lambda: primitiv.Tensor(numpy.zeros(3, "complex64")), "dtype"),
        (lambda: primitiv.Tensor(numpy.zeros((0, 2))), "bad-shape"),
        (lambda: primitiv.Tensor(numpy.zeros((2,) * 9)), "bad-shape"),
        (lambda: primitiv.Tensor([1, 2, 3], batch=2), "batch"),
        (lambda: primitiv.Tensor.from_data([1, 2, 3], [2]), "length-mismatch"),
        (lambda: primitiv.Parameter(primitiv.Tensor([[1, 2]], batch=2)), "batched-parameter"),
        (lambda: primitiv.Adam().set_uint("Optimizer.epoch", -1), "setting-type"),
        (lambda: primitiv.Adam().set_float("Adam.alpha", 1e40), "setting-type"),
    ):
        with pytest.raises(weighbridge.Error) as caught:
            make()
        assert caught.value.code == code
    with pytest.raises(FileExistsError):
        (tmp_path / "there.model").write_bytes(b"x")
        primitiv.Model({"w": [1]}).save(tmp_path / "there.model")
    primitiv.Model({"w": [1]}).save(tmp_path / "there.model", force=True)
    with pytest.raises(weighbridge.MismatchError, match="not a primitiv parameter file"):
        primitiv.Parameter.open(tmp_path / "there.model")


def test_stats_may_have_a_batch(tmp_path: Path) -> None:
    parameter = primitiv.Parameter(
        [1, 2, 3], {"mine": primitiv.Tensor(numpy.arange(6).reshape(3, 2), batch=2)}
    )
    parameter.save(tmp_path / "p.param")
    again = primitiv.load(tmp_path / "p.param")
    assert again == parameter and again.stats.tensor("mine").shape == primitiv.Shape([3], 2)
    assert again.stats["mine"].shape == (3, 2)


def test_optimizers(tmp_path: Path) -> None:
    adam = primitiv.Adam(alpha=0.5)
    adam.learning_rate_scaling = 0.25
    adam["My.key"] = 3
    assert adam["Optimizer.lr_scale"] == 0.25 and adam.stats == ("Adam.m1", "Adam.m2")
    adam.save(tmp_path / "o.optimizer")
    with pytest.raises(weighbridge.MismatchError, match="another optimizer"):
        primitiv.SGD.open(tmp_path / "o.optimizer")
    sgd = primitiv.SGD()
    sgd.save(tmp_path / "s.optimizer")
    assert primitiv.SGD.open(tmp_path / "s.optimizer") == sgd != adam
    trained = primitiv.Model({"w": primitiv.Parameter([[1, 2]], {"Adam.m1": [[5, 5]]})})
    primitiv.Adam().add(trained)
    stats = trained["w"].stats
    assert stats["Adam.m1"].tolist() == [[5, 5]] and stats["Adam.m2"].tolist() == [[0, 0]]


def test_makes_models_of_other_formats(tmp_path: Path) -> None:
    weighbridge.save(tmp_path / "x.safetensors", {"fc.w": numpy.arange(6, dtype="float32").reshape(2, 3)})
    with weighbridge.open(tmp_path / "x.safetensors") as opened:
        model = primitiv.Model.of(opened)
        model["copy"] = opened["fc.w"]
    model.save(tmp_path / "x.model")
    assert primitiv.load(tmp_path / "x.model")["fc.w"].value[1, 2] == 5
    assert model["copy"].value.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_errors_survive_pickling() -> None:
    with pytest.raises(weighbridge.Error) as caught:
        primitiv.Model()["x"]
    assert pickle.loads(pickle.dumps(caught.value)).to_dict() == caught.value.to_dict()


def test_stats_keep_the_shape_of_their_value() -> None:
    parameter = primitiv.Parameter(numpy.ones((3, 2), "f4"), {"MomentumSGD.m": numpy.zeros((3, 2), "f4")})
    with pytest.raises(weighbridge.MismatchError) as caught:
        parameter.value = numpy.ones((5, 5), "f4")
    assert caught.value.code == "shape-differs" and parameter.shape == primitiv.Shape([3, 2])
    parameter.value = numpy.zeros((3, 2), "f4")
    parameter.stats.clear()
    parameter.value = numpy.ones((5, 5), "f4")
    assert parameter.shape == primitiv.Shape([5, 5])


def test_parameter_has_the_array_protocol_and_model_is_not_a_path() -> None:
    parameter = primitiv.Parameter([[1, 2], [3, 4]])
    assert numpy.asarray(parameter).tolist() == [[1, 2], [3, 4]]
    assert (numpy.ones((1, 2), "f4") @ numpy.asarray(parameter)).tolist() == [[4, 6]]
    copied = numpy.array(parameter, dtype="f8")
    copied[0, 0] = 9
    assert copied.dtype == "f8" and parameter.value[0, 0] == 1
    with pytest.raises(weighbridge.ArgumentTypeError, match="content must be a mapping"):
        primitiv.Model("f.model")  # type: ignore[arg-type]


def test_rejects_invalid_addresses() -> None:
    model = primitiv.Model({"fc1.w": [1], "fc1.b": [2], "other.x": [3]})
    with pytest.raises(weighbridge.UnknownNameError) as caught:
        model["fc1.ww"]
    assert caught.value.hint is not None and caught.value.hint.startswith("did you mean fc1.w")
    for address, hint in (
        (("fc1", "bb"), "did you mean fc1.b"),
        ("fc2", "did you mean fc1"),
        ("quite.else", None),
    ):
        with pytest.raises(KeyError) as missing:
            model[address]
        found = missing.value.hint  # type: ignore[attr-defined]
        assert found is None if hint is None else hint in found, (address, found)
    with pytest.raises(weighbridge.UnknownNameError):
        del model["fc1.ww"]
    for odd in (0, slice(1), None, 1.5):
        for work in (lambda: model[odd], lambda: model.__setitem__(odd, [1]), lambda: model.__delitem__(odd)):
            with pytest.raises(TypeError, match="list\\(model\\)") as wrong:
                work()
            assert isinstance(wrong.value, weighbridge.ArgumentTypeError)
        assert odd not in model
