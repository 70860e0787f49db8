"""Writing: all formats, all sources of elements, roles, row names, losses."""

from __future__ import annotations

import array
import ctypes
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any, Dict

import numpy
import pytest
import weighbridge
from conftest import TESTDATA, small

TABLE = numpy.arange(12, dtype="f4").reshape(4, 3)
NAMES = ["a", "b", "ü", "d_d"]

TARGETS: Dict[str, Dict[str, Any]] = {
    "primitiv": {"path": "x.model"},
    "paddle": {"path": "x.pdparams"},
    "safetensors": {"path": "x.safetensors"},
    "npy": {"path": "x.npy"},
    "npz": {"path": "x.npz"},
    "torch": {"path": "x.pt"},
    "flax": {"path": "x.msgpack"},
    "hdf5": {"path": "x.h5", "format": "hdf5"},
    "parquet": {"path": "x.parquet"},
    "arrow": {"path": "x.arrow"},
    "tensorflow": {"path": "x", "format": "tensorflow"},
    "tsv": {"path": "x.tsv"},
    "word2vec": {"path": "x.vec", "format": "word2vec"},
    "gguf": {"path": "x.gguf"},
    "mxnet": {"path": "x.params"},
    "biggraph": {"path": "x", "format": "biggraph"},
    "dcp": {"path": "x", "format": "dcp"},
}


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_format(name: str, tmp_path: Path) -> None:
    options = dict(TARGETS[name])
    path = tmp_path / options.pop("path")
    key = ("embeddings", "user") if name == "biggraph" else "user"
    report = weighbridge.save(path, {key: TABLE}, roles={key: "embedding"}, row_names={key: NAMES}, **options)
    assert report["format"] == name and report["path"] == str(path)
    back = weighbridge.open(path, format=name)
    (tensor,) = [one for one in back.values() if one.role != "optimizer"]
    assert tensor.shape == (4, 3)
    assert numpy.array_equal(tensor.numpy(), TABLE)


def test_all_formats_are_tested() -> None:
    # An ONNX model is a graph: arrays are not enough. Files of the others are read only.
    others = {"onnx", "caffe", "coreml", "darknet", "deepspeed", "joblib", "ncnn", "openvino", "orbax", "tflite"}
    assert {*TARGETS, *others} == set(weighbridge.formats())


def test_accepts_all_array_protocols(tmp_path: Path) -> None:
    path = tmp_path / "any.npz"
    base = numpy.arange(24, dtype="i2").reshape(2, 3, 4)
    given = {
        "rows": base,
        "columns": numpy.asfortranarray(base),
        "turned": base.T,
        "steps": base[:, ::2, ::-1],
        "foreign": base.astype(">i2"),
        "number": numpy.float32(2.5),
        "none": numpy.zeros((3, 0, 2), "f8"),
        "truth": base > 5,
        "complex": (base * 1j).astype("c8"),
        "bytes": b"\x00\x01",
        "bytearray": bytearray(b"abc"),
        "buffer": array.array("d", [1.0, 2.0]),
        "ctypes": (ctypes.c_int32 * 3)(1, 2, 3),
        "view": memoryview(base)[1:],
    }
    weighbridge.save(path, given)
    back = weighbridge.load(path)
    for name, value in given.items():
        wanted = (
            numpy.frombuffer(value, "u1") if isinstance(value, (bytes, bytearray)) else numpy.asarray(value)
        )
        wanted = wanted.astype(wanted.dtype.newbyteorder("="))
        assert back[name].dtype == wanted.dtype and back[name].shape == wanted.shape, name
        assert back[name].tobytes() == wanted.tobytes(), name
    assert numpy.load(path)["columns"].flags.f_contiguous


def test_accepts_dlpack(tmp_path: Path) -> None:
    class Given:
        """An object with the DLPack protocol only."""

        def __init__(self, own: Any, old: bool) -> None:
            self.own, self.old = own, old

        def __dlpack__(self, **options: Any) -> Any:
            if self.old and options:
                raise TypeError("unexpected keyword")
            return self.own.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return (1, 0)

    tensor = weighbridge.open(TESTDATA / "primitiv/good/trained/trained_xor_a.model")["w1"]
    path = tmp_path / "x.npz"
    weighbridge.save(path, {"new": Given(tensor, False), "old": Given(tensor, True)})
    for name in ("new", "old"):
        assert weighbridge.open(path)[name].bytes() == tensor.bytes()
    if hasattr(numpy.ndarray, "__dlpack__"):
        weighbridge.save(path, {"w": Given(TABLE, True)}, force=True)
        assert numpy.array_equal(weighbridge.load(path)["w"], TABLE)
    with pytest.raises(weighbridge.UsageError, match="capsule"):
        weighbridge.save(path, {"w": type("Bad", (), {"__dlpack__": lambda self, **_: 3})()}, force=True)


def test_releases_arrays(tmp_path: Path) -> None:
    class Given:
        """An object with the DLPack protocol only."""

        def __dlpack__(self, **_: Any) -> Any:
            return weighbridge.open(tmp_path / "x.npz")["w"].__dlpack__(max_version=(1, 0))

    array, buffer = numpy.arange(1000.0), bytearray(b"abc")
    before = sys.getrefcount(array)
    for _ in range(3):
        weighbridge.save(tmp_path / "x.npz", {"w": array, "v": array[::2], "b": buffer}, force=True)
        weighbridge.save(tmp_path / "y.npz", {"w": Given()}, force=True)
    with pytest.raises(weighbridge.UsageError):
        weighbridge.save(tmp_path / "x.npz", {"w": array})
    assert sys.getrefcount(array) == before
    # No export remains: it can be resized.
    buffer += b"d"
    assert numpy.array_equal(weighbridge.load(tmp_path / "y.npz")["w"], array)


def test_rejects_unsupported_values(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    for value in (
        "text",
        3,
        None,
        [1, 2],
        numpy.array(["a"]),
        numpy.array([None]),
        numpy.datetime64("2020-01-01"),
    ):
        with pytest.raises(weighbridge.UsageError):
            weighbridge.save(path, {"w": value})
    with pytest.raises(weighbridge.UsageError, match="mapping"):
        weighbridge.save(path, [TABLE])  # type: ignore[arg-type]
    with pytest.raises(weighbridge.UsageError) as caught:
        weighbridge.save(path, {"a.b": TABLE, ("a", "b"): TABLE})
    assert caught.value.code == "name-collision"
    for wrong in (
        {"roles": {"x": "parameter"}},
        {"roles": {"w": "king"}},
        {"row_names": {"w": NAMES[:3]}},
        {"cast": "x"},
    ):
        with pytest.raises(weighbridge.Error):
            weighbridge.save(path, {"w": TABLE}, **wrong)
    with pytest.raises(weighbridge.UsageError):
        weighbridge.save(tmp_path / "x.unknown", {"w": TABLE})
    assert list(tmp_path.iterdir()) == []


def test_tensors_of_other_files_keep_path_slot_and_role(tmp_path: Path) -> None:
    source = weighbridge.open(TESTDATA / "primitiv/good/trained/trained_xor_b.model")
    path = tmp_path / "x.model"
    weighbridge.save(path, dict(source))
    back = weighbridge.open(path)
    assert {(one.path, one.slot) for one in back.values()} == {
        (one.path, one.slot) for one in source.values()
    }
    for key, tensor in source.items():
        assert back[key].bytes() == tensor.bytes() and back[key].role == tensor.role
    states = [one for one in back.values() if one.role == "optimizer"]
    assert states and back.tensor(states[0].path, states[0].slot).name == states[0].name


def test_whole_checkpoints_round_trip(tmp_path: Path) -> None:
    source = TESTDATA / "primitiv/good/trained/trained_mlp_a.model"
    there, back = tmp_path / "x.safetensors", tmp_path / "y.model"
    weighbridge.save(there, weighbridge.open(source))
    assert weighbridge.open(there).origin == ("primitiv", "model")
    weighbridge.save(back, weighbridge.open(there))
    assert back.read_bytes() == source.read_bytes()


def test_roles_and_metadata(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    metadata = {
        "a": "text",
        "n": 3,
        "m": -(1 << 63),
        "f": 0.5,
        "l": [True, None, {"k": b"\xff"}],
        "u": (1 << 64) - 1,
    }
    roles = {"w": "buffer", "s": ("optimizer", "m1")}
    tensors = {"w": TABLE, ("w",): TABLE}
    weighbridge.save(path, {"w": TABLE, "s": TABLE}, metadata=metadata, roles=roles)
    back = weighbridge.open(path)
    assert back["w"].role == "buffer"
    state = back.tensor("s/m1")
    assert state.role == "optimizer" and state.slot == "m1" and state.path == ("s",)
    assert back.metadata == metadata
    for wrong in ({"a": 1 << 64}, {"a": object()}, {"a": {1, 2}}):
        with pytest.raises(weighbridge.UsageError):
            weighbridge.save(path, {"w": TABLE}, metadata=wrong, force=True)
    nested: Any = 1
    for _ in range(10_000):
        nested = [nested]
    with pytest.raises(weighbridge.UsageError, match="deep"):
        weighbridge.save(path, {"w": TABLE}, metadata={"a": nested}, force=True)
    with pytest.raises(weighbridge.UsageError):
        weighbridge.save(path, tensors, force=True)


def test_losses_are_reported_and_can_be_denied(tmp_path: Path) -> None:
    source = weighbridge.open(TESTDATA / "primitiv/good/trained/trained_xor_b.model")
    names = {"w": "embedding"}
    report = weighbridge.save(
        tmp_path / "x.npz", {"w": TABLE}, roles=names, row_names={"w": NAMES}, metadata={"n": "x"}
    )
    assert isinstance(report["losses"], list)
    with pytest.warns(weighbridge.LossWarning, match=r"n: metadata dropped: an npy file has no place for it") as warned:
        report = weighbridge.save(tmp_path / "x.npy", {"w": TABLE}, metadata={"n": "x"})
    assert [own["code"] for own in report["losses"]] == [own.code for own in report.losses]
    left_out = tuple(own for own in report.losses if own.left_out)
    assert [(own.code, own.subject) for own in left_out] == [("metadata-dropped", "n")]
    (warning,) = warned
    assert warning.filename == __file__ and "deny_loss=True" in str(warning.message)
    assert isinstance(warning.message, weighbridge.LossWarning) and warning.message.losses == left_out
    with pytest.raises(weighbridge.MismatchError) as caught:
        weighbridge.save(tmp_path / "y.npy", {"w": TABLE}, metadata={"n": "x"}, deny_loss=True)
    assert caught.value.code == "loss-denied"
    assert not (tmp_path / "y.npy").exists()
    assert len(source) > 4


def test_reports_of_save_and_convert_are_equal(tmp_path: Path) -> None:
    weighbridge.save(tmp_path / "a.safetensors", {"w": TABLE})
    with weighbridge.open(tmp_path / "a.safetensors") as source:
        saved = weighbridge.save(tmp_path / "x.npz", source, cast="f16")
    converted = weighbridge.convert(tmp_path / "a.safetensors", tmp_path / "x.npz", cast="f16", force=True)
    assert isinstance(saved, weighbridge.SaveReport) and isinstance(saved, weighbridge.Conversion)
    assert saved.to_dict() == converted.to_dict() == dict(saved)
    assert (saved.losses, saved.casts, saved.files) == (converted.losses, converted.casts, converted.files)
    assert saved.done and saved.losses[0].code == "rounding" and not saved.losses[0].left_out
    assert repr(saved) == repr(converted).replace("Conversion", "SaveReport")
    # Returned fields are copies.
    saved["files"].clear()
    assert (
        saved["files"]
        and "format" in saved
        and saved.get("nothing") is None
        and set(saved) == set(saved.keys())
    )
    with pytest.raises(TypeError):
        saved["format"] = "npy"  # type: ignore[index]
    with pytest.raises(KeyError):
        saved["nothing"]


def test_warns_of_omissions_but_not_of_changes(tmp_path: Path) -> None:
    source, table = tmp_path / "a.npz", tmp_path / "t.tsv"
    weighbridge.save(source, {"w": TABLE, "b": TABLE.reshape(2, 2, 3)}, row_names={"w": NAMES})
    works: Dict[str, Any] = {
        "save": lambda **given: weighbridge.save(table, weighbridge.open(source), force=True, **given),
        "convert": lambda **given: weighbridge.convert(source, table, force=True, **given),
        "edit": lambda **given: weighbridge.edit(source, table, prefix="x", force=True, **given),
    }
    for name, work in works.items():
        with pytest.warns(
            weighbridge.LossWarning, match="b: tensor of shape .* dropped: it is not a table"
        ) as warned:
            report = work()
        assert [own.code for own in report.losses if own.left_out] == ["not-a-table"], name
        assert [own.filename for own in warned] == [__file__], name
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(weighbridge.MismatchError, match="losses are denied"):
                work(deny_loss=True)
            # A plan omits nothing.
            if name != "save":
                work(plan=True)
            # Rounded values are not omitted.
            weighbridge.convert(source, tmp_path / "half.npz", cast="f16", force=True)
            # The warning can be ignored.
            warnings.simplefilter("ignore", weighbridge.LossWarning)
            work()


def test_casts_and_settings(tmp_path: Path) -> None:
    report = weighbridge.save(
        tmp_path / "x.safetensors", {"w": TABLE * 1e6, "n": TABLE.astype("i4")}, cast="f16"
    )
    assert report["casts"]["w"]["overflowed"] > 0
    back = weighbridge.open(tmp_path / "x.safetensors")
    assert (back["w"].dtype, back["n"].dtype) == ("f16", "i32")
    (name, setting) = next(
        (one.id, one.settings[0]) for one in weighbridge.formats().values() if one.settings
    )
    assert setting.values and setting.what
    with pytest.raises(weighbridge.UsageError):
        weighbridge.save(tmp_path / "y", {"w": TABLE}, format=name, settings={"no-such": 1})


def test_writes_pending_casts_and_ml_dtypes(tmp_path: Path, net: Path) -> None:
    tensor = weighbridge.open(net)["fc1.weight"]
    given: Dict[str, Any] = {"w": tensor.cast("bf16")}
    ml_dtypes = pytest.importorskip("ml_dtypes")
    given["v"] = TABLE.astype(ml_dtypes.bfloat16)
    given["e"] = TABLE.astype(ml_dtypes.float8_e5m2).T
    weighbridge.save(tmp_path / "x.safetensors", given)
    back = weighbridge.open(tmp_path / "x.safetensors")
    assert [back[name].dtype for name in "wve"] == ["bf16", "bf16", "f8_e5m2"]
    assert back["w"].bytes() == back["v"].bytes()
    assert numpy.array_equal(back["e"].numpy(), given["e"])


def test_load(net: Path) -> None:
    arrays = weighbridge.load(net)
    assert {name: array.tolist() for name, array in arrays.items()} == {
        name: value.tolist() for name, value in small().items()
    }
    assert not any(array.flags.writeable for array in arrays.values())
    copies = weighbridge.load(str(net), copy=True)
    assert all(array.flags.writeable for array in copies.values())
    copies["fc1.weight"][...] = 0
    assert arrays["fc1.weight"].sum() == 66


def test_load_rejects_unknown_options(net: Path) -> None:
    with pytest.raises(TypeError, match=r"load\(\) has no option 'cast'; it has copy, .*, limits$"):
        weighbridge.load(net, cast="f16")
    for load in (weighbridge.paddle.load, weighbridge.biggraph.buckets, weighbridge.biggraph.edges):
        with pytest.raises(TypeError, match=rf"^{load.__name__}\(\) has no option 'cast'"):
            load(net, cast="f16")
    for odd in ({"framework": "jax"}, {"device": "cpu"}, {"framework": "numpy", "device": "cpu"}):
        with pytest.raises(weighbridge.UsageError):
            weighbridge.load(net, **odd)


def test_can_overwrite_its_own_source(net: Path) -> None:
    checkpoint = weighbridge.open(net)
    arrays = weighbridge.load(net)
    weighbridge.save(net, {name: tensor for name, tensor in reversed(list(checkpoint.items()))}, force=True)
    # Arrays opened before still use the old file.
    assert arrays["fc1.weight"].sum() == 66 and checkpoint["fc1.weight"].numpy().sum() == 66
    assert weighbridge.load(net)["fc1.weight"].sum() == 66


def test_progress(tmp_path: Path) -> None:
    calls = []
    weighbridge.save(
        tmp_path / "x.npz", {"w": TABLE}, progress=lambda done, total: calls.append((done, total))
    )
    assert calls and calls[-1][0] == calls[-1][1] > 0
    assert all(done <= total for done, total in calls)
    weighbridge.save(tmp_path / "y.npz", {"w": TABLE}, progress=True)
    with pytest.raises(weighbridge.UsageError):
        weighbridge.save(tmp_path / "z.npz", {"w": TABLE}, progress="bar")  # type: ignore[arg-type]

    def fails(done: int, total: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        weighbridge.save(tmp_path / "z.npz", {"w": TABLE}, progress=fails)


def test_mappings_of_tensors_keep_paths_and_metadata(tmp_path):
    import weighbridge.primitiv as primitiv

    primitiv.Model({("a.b",): [1, 2]}).save(tmp_path / "d.model")
    opened = weighbridge.open(tmp_path / "d.model")
    weighbridge.save(tmp_path / "e.model", dict(opened), format="primitiv", kind="model")
    assert list(primitiv.load(tmp_path / "e.model")) == [("a.b",)]

    weighbridge.save(tmp_path / "m.npz", {"w": numpy.ones(2)}, metadata={"by": "hand"})
    weighbridge.save(tmp_path / "n.npz", weighbridge.open(tmp_path / "m.npz"), roles={"w": "embedding"})
    again = weighbridge.open(tmp_path / "n.npz")
    assert again.metadata == {"by": "hand"} and again["w"].role == "embedding"


def test_refuses_silent_losses_and_ambiguity(tmp_path):
    with zipfile.ZipFile(tmp_path / "o.npz", "w") as file:
        for name, array in {"x": numpy.zeros(2, "V3"), "y": numpy.ones(2)}.items():
            with file.open(f"{name}.npy", "w") as member:
                numpy.lib.format.write_array(member, array)
    with pytest.raises(weighbridge.UnsupportedError) as caught:
        weighbridge.load(tmp_path / "o.npz")
    assert caught.value.code == "left-out"
    assert list(weighbridge.load(tmp_path / "o.npz", partial=True)) == ["y"]

    third = (
        weighbridge.save(tmp_path / "t.npz", {"t": numpy.float32([1 / 3])})
        and weighbridge.open(tmp_path / "t.npz")["t"]
    )
    half = third.cast("f16")
    assert half.cast("f16").numpy() == numpy.float16(1 / 3)
    with pytest.raises(weighbridge.UnsupportedError, match="already"):
        half.cast("f32")
    with pytest.raises(weighbridge.UnsupportedError, match="already"):
        weighbridge.save(tmp_path / "u.npz", {"t": half}, cast="f32")

    for tensors, more, code in [
        ({"x": numpy.ma.array([1, 2], mask=[0, 1])}, {}, "masked"),
        ({"x": numpy.ones((3, 1))}, {"row_names": {"x": "abc"}}, "bad-labels"),
    ]:
        with pytest.raises(weighbridge.UsageError) as caught:
            weighbridge.save(tmp_path / "v.npz", tensors, **more)
        assert caught.value.code == code


def test_load_with_copy_verifies_checksums(tmp_path):
    weighbridge.save(tmp_path / "w.npz", {"w": numpy.ones(1000)})
    bytes_ = bytearray((tmp_path / "w.npz").read_bytes())
    bytes_[4000] ^= 1
    (tmp_path / "w.npz").write_bytes(bytes_)
    with pytest.raises(weighbridge.CorruptFileError):
        weighbridge.load(tmp_path / "w.npz", copy=True)


def test_keeps_optimizer_state_without_slot(tmp_path: Path) -> None:
    source = weighbridge.open(TESTDATA / "torch/good/nested.pt")
    name = "optimizer.state.0.exp_avg"
    assert (source[name].role, source[name].slot) == ("optimizer", None)
    weighbridge.save(tmp_path / "x.npz", {name: source[name], "w": source["model.0.weight"]})
    again = weighbridge.open(tmp_path / "x.npz")
    assert [(t.role, t.slot) for t in again.values()] == [("optimizer", None), ("parameter", None)]
    with pytest.raises(weighbridge.UsageError, match="without a slot"):
        weighbridge.save(tmp_path / "y.npz", {"a": TABLE}, roles={"a": "optimizer"})
