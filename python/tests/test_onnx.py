"""`weighbridge.onnx.compare`, with a runtime of the test's own; `judges/onnx/compare.py` uses ONNX Runtime and Paddle."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, Dict, List

import numpy
import pytest

import weighbridge


class Session:
    """A graph that doubles `x` and counts its elements."""

    def __init__(self, path: str, providers: List[str]) -> None:
        self.path = path

    def get_inputs(self) -> List[Any]:
        return [SimpleNamespace(name="x", type="tensor(float)", shape=["x_0", 3])]

    def get_outputs(self) -> List[Any]:
        return [SimpleNamespace(name="y"), SimpleNamespace(name="n")]

    def run(self, _: None, feed: Dict[str, Any]) -> List[Any]:
        return [feed["x"] * 2, numpy.array(feed["x"].size, "int64")]


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("onnxruntime")
    module.InferenceSession = Session  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "onnxruntime", module)


X = numpy.arange(6, dtype="float32").reshape(2, 3)
N = numpy.array(6, "int64")


def test_equal_outputs(runtime: None) -> None:
    report = weighbridge.onnx.compare(None, "m.onnx", inputs={"x": X}, expected=[X * 2, N])
    assert report.equal and report.runs == 1
    assert [(output.name, output.max_absolute, output.detail) for output in report.outputs] == [
        ("y", 0.0, ""),
        ("n", 0.0, ""),
    ]


def test_differences_are_measured_and_within_tolerances(runtime: None) -> None:
    off = X * 2
    off[1, 2] += 0.5
    report = weighbridge.onnx.compare(None, "m.onnx", inputs=[{"x": X}], expected=[[off, N]])
    first, second = report.outputs
    assert not report.equal and not first.equal and second.equal
    assert first.max_absolute == 0.5 and first.detail == "run 0: 1 of 6 values differ"
    assert weighbridge.onnx.compare(None, "m.onnx", inputs={"x": X}, expected=[off, N], atol=0.5).equal


def test_integers_dtypes_and_shapes_must_be_the_same(runtime: None) -> None:
    for wrong in (numpy.array(7, "int64"), numpy.array(6, "int32"), numpy.array([6], "int64")):
        report = weighbridge.onnx.compare(None, "m.onnx", inputs={"x": X}, expected=[X * 2, wrong], atol=10)
        assert not report.equal and report.outputs[0].equal


def test_arguments_that_do_not_fit(runtime: None) -> None:
    with pytest.raises(weighbridge.UsageError):
        weighbridge.onnx.compare(None)
    with pytest.raises(weighbridge.UsageError):
        weighbridge.onnx.compare(None, "m.onnx", expected=[X])
    with pytest.raises(weighbridge.UsageError):
        weighbridge.onnx.compare(None, "m.onnx", inputs=[{"x": X}], expected=[])
    with pytest.raises(weighbridge.MismatchError):
        weighbridge.onnx.compare(None, "m.onnx", inputs={"x": X}, expected=[X * 2])


def test_the_runtime_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(weighbridge.MissingPackageError) as error:
        weighbridge.onnx.compare(None, "m.onnx", inputs={"x": X}, expected=[X])
    assert error.value.hint == "pip install onnxruntime"
