"""Dtypes in all accepted spellings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, List

import numpy
import pytest
import weighbridge

GIVEN = [
    ("f16", "f16"),
    ("F16", "f16"),
    ("half", "f16"),
    ("fp16", "f16"),
    ("torch.float16", "f16"),
    ("BF16", "bf16"),
    ("torch.bfloat16", "bf16"),
    ("F64", "f64"),
    (numpy.float16, "f16"),
    (numpy.half, "f16"),
    (numpy.double, "f64"),
    (numpy.dtype("f2"), "f16"),
    (numpy.dtype(">f8"), "f64"),
    (numpy.zeros(1, "f2").dtype, "f16"),
]


class dtype:
    """Imitates a torch dtype, so that torch need not be installed."""

    def __init__(self, name: str) -> None:
        self.name_of_torch = name

    def __str__(self) -> str:
        return f"torch.{self.name_of_torch}"


dtype.__module__ = "torch"


def casts(net: Path, folder: Path) -> List[Callable[[Any], str]]:
    """Returns all ways to cast; each returns the resulting dtype."""
    path = folder / "x.safetensors"

    def written() -> str:
        return weighbridge.open(path)["fc1.bias"].dtype

    def save(given: Any) -> str:
        weighbridge.save(path, weighbridge.open(net), cast=given, force=True)
        return written()

    def convert(given: Any) -> str:
        weighbridge.convert(net, path, cast=given, force=True)
        return written()

    def edit(given: Any) -> str:
        weighbridge.edit(net, path, cast=given, force=True)
        return written()

    def edit_some(given: Any) -> str:
        weighbridge.edit(net, path, cast={"*.bias": given}, force=True)
        assert weighbridge.open(path)["fc1.weight"].dtype == "f32"
        return written()

    def edit_list(given: Any) -> str:
        weighbridge.edit(net, path, cast=[given], force=True)
        return written()

    return [
        lambda given: weighbridge.open(net)["fc1.bias"].cast(given).dtype,
        save,
        convert,
        edit,
        edit_some,
        edit_list,
    ]


def test_accepts_all_spellings_of_dtypes(net: Path, tmp_path: Path) -> None:
    for given, wanted in [*GIVEN, (dtype("float16"), "f16"), (dtype("bfloat16"), "bf16")]:
        assert [cast(given) for cast in casts(net, tmp_path)] == [wanted] * 6, given
    weighbridge.edit(net, tmp_path / "y.safetensors", cast="*.bias=torch.float16")
    assert weighbridge.open(tmp_path / "y.safetensors")["fc1.bias"].dtype == "f16"
    # A cast to the current dtype is always allowed.
    steps = weighbridge.open(net)["steps"]
    assert steps.cast(numpy.int64).dtype == steps.cast("int64").dtype == "i64"


def test_accepts_ml_dtypes_objects(net: Path, tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for given in (ml_dtypes.bfloat16, numpy.dtype(ml_dtypes.bfloat16)):
        assert [cast(given) for cast in casts(net, tmp_path)] == ["bf16"] * 6


def test_accepts_torch_dtypes(net: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for given, wanted in ((torch.float16, "f16"), (torch.half, "f16"), (torch.double, "f64")):
        assert [cast(given) for cast in casts(net, tmp_path)] == [wanted] * 6
        assert weighbridge.open(net)["fc1.bias"].cast(str(given)).dtype == wanted


def test_rejects_wrong_dtypes_with_the_same_error(net: Path, tmp_path: Path) -> None:
    for given in ("float", "i16", numpy.int16, "numpy.float16", "", numpy.dtype("M8[s]"), dtype("int16")):
        errors = set()
        for cast in casts(net, tmp_path):
            with pytest.raises(weighbridge.UsageError) as caught:
                cast(given)
            error = caught.value
            assert error.message.endswith(": casts go to f16, bf16, f32, f64, f8_e4m3, f8_e5m2 or i8"), given
            errors.add((type(error), error.code, error.found, error.expected))
        assert len(errors) == 1, errors
    for wrong in (float, 16, numpy.zeros(1), numpy.float32(1), dtype, b"f16"):
        for cast in casts(net, tmp_path)[:4]:
            with pytest.raises(weighbridge.ArgumentTypeError, match="must be the name of a dtype"):
                cast(wrong)
    assert not (tmp_path / "x.safetensors").exists()
