"""Errors: their classes, what they say, and that they are those of the command's JSON."""

from __future__ import annotations

import json
import os
import pickle
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
    # A name with a dot and a path of one part are two things.
    error = raised(checkpoint.__getitem__, ("fc1.weight",))
    assert isinstance(error, KeyError) and "parts" in error.hint
    assert checkpoint.get("nope") is None and "nope" not in checkpoint and ("fc1", "bias") in checkpoint
    assert isinstance(raised(checkpoint.__getitem__, 3), weighbridge.UsageError)
    assert isinstance(raised(checkpoint.tensor, "fc1.weight", "Adam.m1"), KeyError)


def test_the_operating_system(tmp_path: Path) -> None:
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
    assert isinstance(raised(weighbridge.open, tmp_path), weighbridge.UsageError)
    error = raised(weighbridge.save, tmp_path / "no" / "where.npz", {"w": b"x"})
    assert isinstance(error, FileNotFoundError)


def test_damage() -> None:
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
    with pytest.raises((TypeError, OverflowError)):
        weighbridge.open(net, limits={"tensors": -1})


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


def test_what_is_said(net: Path) -> None:
    error = raised(weighbridge.open(net).__getitem__, "fc1.\x1b[2J")
    told = error.to_dict()
    assert set(told) == {"kind", "code", "message", "file", "offset", "tensor", "expected", "found", "hint"}
    assert told["kind"] == "mismatch" and "\x1b" not in str(error)
    assert str(error).splitlines()[0] == error.message and f"  file:     {net}" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and again.to_dict() == told
    with_offset = errors.CorruptFileError("broken", code="x", offset=255, file="a")
    assert str(with_offset) == "broken\n  file:     a\n  offset:   255 (0xff)"


def test_every_kind_has_a_class() -> None:
    kinds = {"corrupt", "unsupported", "limit", "mismatch", "io", "usage", "cancelled"}
    for kind in kinds:
        own = errors.class_of(kind, "anything")
        assert own.kind == kind and issubclass(own, weighbridge.Error)
    assert issubclass(errors.class_of("cancelled", "cancelled"), KeyboardInterrupt)
    assert issubclass(errors.class_of("io", "file-shrank"), OSError)


def test_names_that_are_shown_alike(tmp_path: Path) -> None:
    path = tmp_path / "twice.model"
    weighbridge.save(path, {("a.b", "w"): numpy.zeros(2, "f4"), ("a", "b", "w"): numpy.ones(2, "f4")})
    checkpoint = weighbridge.open(path)
    assert sorted(checkpoint) == ['["a","b","w"]', '["a.b","w"]']
    error = raised(checkpoint.__getitem__, "a.b.w")
    assert error.code == "ambiguous-name" and not isinstance(error, KeyError)
    for key, tensor in checkpoint.items():
        assert checkpoint[tensor.path].bytes() == checkpoint[key].bytes() == tensor.bytes()
    assert checkpoint["a.b", "w"].numpy()[0] == 0 and checkpoint["a", "b", "w"].numpy()[0] == 1
