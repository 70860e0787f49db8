"""Errors: classes, messages, and equality with the JSON of the command."""

from __future__ import annotations

import copy
import errno
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import weighbridge
from conftest import TESTDATA
from weighbridge import errors


def raised(action: Any, *given: Any, **named: Any) -> weighbridge.Error:
    with pytest.raises(weighbridge.Error) as caught:
        action(*given, **named)
    return caught.value


def test_unknown_names(net: Path) -> None:
    checkpoint = weighbridge.open(net)
    error = raised(checkpoint.__getitem__, "fc1.wieght")
    assert isinstance(error, weighbridge.UnknownNameError) and isinstance(error, KeyError)
    assert (error.code, error.file, error.tensor) == ("no-such-tensor", str(net), "fc1.wieght")
    assert "fc1.weight" in error.hint
    error = raised(checkpoint.__getitem__, ("fc1", "wieght"))
    assert isinstance(error, KeyError) and "fc1.weight" in error.hint
    # A dotted name differs from a path of one part.
    error = raised(checkpoint.__getitem__, ("fc1.weight",))
    assert isinstance(error, KeyError) and "parts" in error.hint
    assert checkpoint.get("nope") is None and "nope" not in checkpoint and ("fc1", "bias") in checkpoint
    assert isinstance(raised(checkpoint.__getitem__, 3), weighbridge.UsageError)
    assert isinstance(raised(checkpoint.tensor, "fc1.weight", "Adam.m1"), KeyError)


def test_os_errors_have_builtin_classes(tmp_path: Path) -> None:
    error = raised(weighbridge.open, tmp_path / "nope.npz")
    assert isinstance(error, weighbridge.FileMissingError) and isinstance(error, FileNotFoundError)
    assert error.code == "not-found" and error.errno == 2 and error.filename == str(tmp_path / "nope.npz")
    secret = tmp_path / "secret.npz"
    secret.write_bytes(b"PK")
    secret.chmod(0)
    if os.access(secret, os.R_OK):
        assert errors.class_of("io", "permission-denied") is weighbridge.FileDeniedError
    else:
        assert isinstance(raised(weighbridge.open, secret), PermissionError)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert isinstance(raised(weighbridge.open, empty), weighbridge.UsageError)
    error = raised(weighbridge.save, tmp_path / "no" / "where.npz", {"w": b"x"})
    assert isinstance(error, FileNotFoundError)


def test_damaged_files_raise_their_code() -> None:
    seen = set()
    for path in sorted((TESTDATA / "npy/bad").glob("*.npy")):
        truth = json.loads(path.with_name(path.name + ".json").read_text("utf-8"))
        error = raised(lambda own: [tensor.bytes() for tensor in weighbridge.open(own).values()], path)
        assert error.code == truth["code"], path
        assert isinstance(
            error, (weighbridge.CorruptFileError, weighbridge.UnsupportedError, weighbridge.LimitError)
        )
        seen.add(type(error))
    assert weighbridge.CorruptFileError in seen and weighbridge.UnsupportedError in seen


def test_limits(net: Path) -> None:
    error = raised(weighbridge.open, net, limits={"tensors": 2})
    assert isinstance(error, weighbridge.LimitError)
    assert "`tensors`" in error.hint and error.found == "3"
    assert len(weighbridge.open(net, limits=weighbridge.Limits(tensors=3))) == 3
    error = raised(weighbridge.open, net, limits={"colour": 2})
    assert isinstance(error, weighbridge.UsageError) and error.code == "unknown-limit"
    assert set(weighbridge.Limits.__annotations__) == set(weighbridge._weighbridge.LIMITS)
    for value, also in [
        (-1, ValueError),
        (1 << 64, ValueError),
        ("x", TypeError),
        (1.5, TypeError),
        (True, TypeError),
    ]:
        error = raised(weighbridge.open, net, limits={"tensors": value})
        assert (
            isinstance(error, weighbridge.UsageError)
            and isinstance(error, also)
            and "tensors" in error.message
        )


def test_usage(net: Path, tmp_path: Path) -> None:
    for code, given in [
        ("unknown-format", {"format": "xyz"}),
        ("unknown-names", {"names": "odd"}),
        ("not-found", {"program": tmp_path / "nope"}),
    ]:
        assert raised(weighbridge.open, net, **given).code == code
    error = raised(weighbridge.save, net, {"w": b"x"})
    assert isinstance(error, weighbridge.TargetExistsError) and isinstance(error, FileExistsError)
    assert error.code == "exists"
    weighbridge.save(net, {"w": b"x"}, force=True)
    assert list(weighbridge.open(net)) == ["w"]


def test_error_fields_and_pickling(net: Path) -> None:
    error = raised(weighbridge.open(net).__getitem__, "fc1.\x1b[2J")
    fields = error.to_dict()
    assert set(fields) == {"kind", "code", "message", "file", "offset", "tensor", "expected", "found", "hint"}
    assert fields["kind"] == "mismatch" and "\x1b" not in str(error)
    assert str(error).splitlines()[0] == error.message and f"  file:     {net}" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and again.to_dict() == fields
    with_offset = errors.CorruptFileError("broken", code="x", offset=255, file="a")
    assert str(with_offset) == "broken\n  file:     a\n  offset:   255 (0xff)"


def test_os_error_fields_survive_pickling(net: Path, tmp_path: Path) -> None:
    taken = raised(weighbridge.save, net, {"w": b"x"})
    missing = raised(weighbridge.open, tmp_path / "nope.npz")
    assert (taken.errno, taken.filename) == (errno.EEXIST, str(net))
    assert (missing.errno, missing.filename) == (errno.ENOENT, str(tmp_path / "nope.npz"))
    assert missing.strerror == os.strerror(errno.ENOENT)
    denied = errors.from_json({**missing.to_dict(), "code": "permission-denied"})
    assert isinstance(denied, PermissionError) and denied.errno == errno.EACCES
    other = errors.from_json({**missing.to_dict(), "code": "storage-full"}, errno.ENOSPC)
    assert other.errno == errno.ENOSPC and errors.from_json(other.to_dict()).errno is None
    package = weighbridge.MissingPackageError("no numpy", code="no-numpy")
    package.name = "numpy"
    for error in (taken, missing, denied, other, package, raised(weighbridge.open(net).__getitem__, "nope")):
        getattr(error, "add_note", lambda _: None)("while testing")
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            assert type(again) is type(error) and again.to_dict() == error.to_dict()
            assert (str(again), repr(again), again.args) == (str(error), repr(error), error.args)
            for name in ("errno", "strerror", "filename", "filename2", "msg", "name", "__notes__"):
                assert getattr(again, name, None) == getattr(error, name, None), name


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names of files are text there")
def test_paths_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.npz")
    weighbridge.save(name, {"w": numpy.arange(3.0)})
    assert os.listdir(os.fsencode(tmp_path)) == [b"\xff.npz"]
    for path in (name, os.fsencode(name), Path(name)):
        checkpoint = weighbridge.open(path)
        assert checkpoint["w"].numpy().tolist() == [0, 1, 2] and checkpoint.path == name
        assert "\\udcff.npz" in repr(checkpoint) and "\\udcff.npz" in checkpoint._repr_html_()
        assert weighbridge.verify(path).is_sound and weighbridge.info(path).format == "npz"
    weighbridge.convert(name, name + ".safetensors")
    assert weighbridge.diff(name, name + ".safetensors").same
    other = name.replace("\udcff", "\udcfe")
    for action in (weighbridge.open, weighbridge.info):
        error = raised(action, other)
        assert error.filename == other and not os.path.exists(error.filename)
        # The text can be printed anywhere.
        assert str(error).encode("utf-8")
    assert raised(weighbridge.save, name, {"w": b"x"}).filename == name
    table = {"user": numpy.zeros((1, 2), "f4")}
    with weighbridge.biggraph.CheckpointStore(os.fsdecode(os.fsencode(tmp_path) + b"/\xfd")) as store:
        store.save(table)
        assert "udcfd" in repr(store) and "udcfd" in repr(store.latest())


def test_wrong_types(net: Path, tmp_path: Path) -> None:
    zeros = {"w": numpy.zeros(2)}
    path = tmp_path / "x.npz"
    tensor = weighbridge.open(net)["fc1.weight"]
    for action, what in [
        (lambda: weighbridge.save(path, {3: numpy.zeros(2)}), "a name"),
        (lambda: weighbridge.save(path, {("a", 3): numpy.zeros(2)}), "a part of a name"),
        (lambda: weighbridge.save(path, [numpy.zeros(2)]), "tensors"),
        (lambda: weighbridge.save(path, zeros, metadata={3: "x"}), "a metadata key"),
        (lambda: weighbridge.save(path, zeros, metadata=["x"]), "metadata"),
        (lambda: weighbridge.save(path, zeros, settings=3), "settings"),
        (lambda: weighbridge.save(path, zeros, format=3), "format"),
        (lambda: weighbridge.save(path, zeros, threads="2"), "threads"),
        (lambda: weighbridge.save(path, zeros, cast=16), "cast"),
        (lambda: weighbridge.save(path, zeros, roles={"w": 3}), "a role"),
        (lambda: weighbridge.save(path, zeros, roles={"w": ("optimizer", 3)}), "a role"),
        (lambda: weighbridge.save(path, zeros, row_names={"w": [1, 2]}), "a row name"),
        (lambda: weighbridge.save(path, zeros, row_names={"w": 3}), "row_names"),
        (lambda: weighbridge.save(3, zeros), "path"),
        (lambda: weighbridge.open(None), "path"),
        (lambda: weighbridge.biggraph.CheckpointStore(3), "folder"),
        (lambda: weighbridge.save(path, zeros, progress=3), "progress"),
        (lambda: weighbridge.open(net, limits=3), "limits"),
        (lambda: weighbridge.open(net, at="x"), "at"),
        (lambda: weighbridge.open(net, names=3), "names"),
        (lambda: weighbridge.info(3), "path"),
        (lambda: weighbridge.convert(net, None), "target"),
        (lambda: weighbridge.verify([net, 3]), "paths"),
        (lambda: weighbridge.verify(3), "paths"),
        (lambda: weighbridge.show(net, 3), "name"),
        (lambda: tensor.cast(float), "dtype"),
        (lambda: weighbridge.open(net)[3], "a name"),
        (lambda: weighbridge.open(net)["fc1", 3], "a part of a name"),
        (lambda: weighbridge.open(net)["fc1", ["w"]], "a part of a name"),
    ]:
        error = raised(action)
        assert type(error) is weighbridge.ArgumentTypeError, error
        assert isinstance(error, TypeError) and isinstance(error, weighbridge.UsageError)
        assert error.message.startswith(f"{what} must be "), error
        assert error.found and not path.exists()
    for named in ({"threads": -1}, {"memory": -1}, {"seed": 1 << 64}):
        assert "must be" in raised(weighbridge.save, path, zeros, **named).message
    with pytest.raises(TypeError):
        weighbridge.open(net, colour=3)


def test_rejects_text_that_utf8_cannot_encode(net: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    checkpoint = weighbridge.open(net)
    assert "\udcff" not in checkpoint and checkpoint.get("\udcff") is None
    assert isinstance(raised(checkpoint.__getitem__, "\udcff"), KeyError)
    assert isinstance(raised(checkpoint.tensor, ("fc1", "\udcff")), KeyError)
    assert ("fc1", 3) not in checkpoint and ("fc1", ["w"]) not in checkpoint and 3 not in checkpoint
    zeros = numpy.zeros(2)
    for given, named in [
        ({"\udcff": zeros}, {}),
        ({("a", "\udcff"): zeros}, {}),
        ({"w": zeros}, {"metadata": {"\udcff": 1}}),
        ({"w": zeros}, {"metadata": {"a": "\udcff"}}),
        ({"w": zeros}, {"row_names": {"w": ["a", "\udcff"]}}),
    ]:
        error = raised(weighbridge.save, path, given, **named)
        assert error.code == "not-utf8" and type(error) is weighbridge.UsageError and "udcff" in error.found
    weighbridge.save(path, {("a", b"\xff"): zeros})
    assert weighbridge.open(path)["a", b"\xff"].path == ("a", b"\xff")


def test_rejects_values_that_are_not_arrays(tmp_path: Path) -> None:
    class Broken:
        """Has the array protocol, but raises."""

        def __array__(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no data")

    for value in (None, object(), "abc", 3.0, [1, 2], {"a": 1}, weighbridge, Broken(), print):
        error = raised(weighbridge.save, tmp_path / "x.npz", {"good": numpy.zeros(1), "odd": value})
        assert type(error) is weighbridge.ArgumentTypeError and isinstance(error, TypeError), value
        assert (error.code, error.tensor) == ("not-an-array", "odd")
        assert type(value).__name__ in error.found
    assert "asarray" in raised(weighbridge.save, tmp_path / "x.npz", {"odd": [1, 2]}).hint
    for value in (numpy.float32, numpy.array([object()]), numpy.array(["a"])):
        error = raised(weighbridge.save, tmp_path / "x.npz", {"odd": value})
        assert (error.code, error.tensor) == ("unknown-dtype", "odd")


def test_every_kind_has_a_class() -> None:
    kinds = {"corrupt", "unsupported", "limit", "mismatch", "io", "usage", "cancelled"}
    for kind in kinds:
        own = errors.class_of(kind, "anything")
        assert own.kind == kind and issubclass(own, weighbridge.Error)
    assert issubclass(errors.class_of("cancelled", "cancelled"), KeyboardInterrupt)
    assert issubclass(errors.class_of("io", "file-shrank"), OSError)


def test_names_with_equal_display_are_ambiguous(tmp_path: Path) -> None:
    path = tmp_path / "ambiguous.model"
    weighbridge.save(path, {("a.b", "w"): numpy.zeros(2, "f4"), ("a", "b", "w"): numpy.ones(2, "f4")})
    checkpoint = weighbridge.open(path)
    assert sorted(checkpoint) == ['["a","b","w"]', '["a.b","w"]']
    error = raised(checkpoint.__getitem__, "a.b.w")
    assert error.code == "ambiguous-name" and not isinstance(error, KeyError)
    for key, tensor in checkpoint.items():
        assert checkpoint[tensor.path].bytes() == checkpoint[key].bytes() == tensor.bytes()
    assert checkpoint["a.b", "w"].numpy()[0] == 0 and checkpoint["a", "b", "w"].numpy()[0] == 1
