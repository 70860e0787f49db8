"""Exported ONNX graphs, run and compared with the outputs of the original model.

>>> weighbridge.convert("model/", "model.onnx")                              # doctest: +SKIP
>>> weighbridge.onnx.compare("model/", "model.onnx").equal                   # doctest: +SKIP
True

`compare` needs onnxruntime. The outputs of the original come from Paddle, if it is installed, or from arrays that you give.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import nullcontext
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from .dtypes import need
from .errors import MismatchError, UsageError

__all__ = ["Comparison", "OutputComparison", "compare"]

PathLike = Union[str, "os.PathLike[str]"]
#: numpy dtypes of the types that ONNX Runtime names.
_DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(int16)": "int16",
    "tensor(int8)": "int8",
    "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}


class OutputComparison(NamedTuple):
    """Largest differences of one output over all runs."""

    #: Name in the graph.
    name: str
    #: Largest absolute difference.
    max_absolute: float
    #: Largest difference relative to the expected value.
    max_relative: float
    #: True if dtype and shape are the same and every value is within the tolerances.
    equal: bool
    #: First difference in words; empty if equal.
    detail: str


class Comparison(NamedTuple):
    """Result of :func:`compare`."""

    #: True if all outputs of all runs are equal within the tolerances.
    equal: bool
    #: Number of sets of inputs that were run.
    runs: int
    #: One entry for each output of the graph.
    outputs: List[OutputComparison]


def compare(
    model: Optional[PathLike],
    exported: Optional[PathLike] = None,
    *,
    inputs: Optional[Union[Mapping[str, Any], Sequence[Mapping[str, Any]]]] = None,
    expected: Optional[Sequence[Any]] = None,
    sizes: Optional[Mapping[str, int]] = None,
    runs: int = 5,
    seed: int = 0,
    atol: float = 1e-4,
    rtol: float = 1e-3,
) -> Comparison:
    """Runs an ONNX graph in ONNX Runtime and compares its outputs with those of the original model.

    `model` is the Paddle model (a folder, or its program file), `exported` the ONNX file; without it, the model is exported to a
    temporary folder first. `inputs` is a mapping of input names to arrays, or a list of such mappings; random values are used
    without it (integers are 0 or 1, floats from -1 to 1). `sizes` gives the sizes of open dimensions by their names in the graph
    (1 for a first dimension and 32 for others by default). `expected` has the outputs for `inputs`, as lists in the order of the
    graph; without it, Paddle runs the original model. Values are equal within `atol` absolute or `rtol` relative.

    Raises `MissingPackageError` without onnxruntime, or without Paddle where it is needed.
    """
    numpy, runtime = need("numpy", "comparing"), need("onnxruntime", "comparing")
    if model is None and exported is None:
        raise UsageError("neither a model nor an exported graph is given")
    if expected is not None and inputs is None:
        raise UsageError("expected outputs are given without inputs")
    with tempfile.TemporaryDirectory() as folder:
        if exported is None:
            from . import verbs

            exported = os.path.join(folder, "model.onnx")
            verbs.convert(model, exported)
        exported = os.fspath(exported)
        if os.path.isdir(exported):
            exported = os.path.join(exported, "model.onnx")
        session = runtime.InferenceSession(exported, providers=["CPUExecutionProvider"])
        if inputs is None:
            feeds = [_random(numpy, session, sizes or {}, seed + run) for run in range(runs)]
        else:
            feeds = [dict(inputs)] if isinstance(inputs, Mapping) else [dict(one) for one in inputs]
        if expected is None:
            if model is None:
                raise UsageError("neither a model nor expected outputs are given")
            wanted = _paddle(os.fspath(model), feeds)
        else:
            wanted = [expected] if isinstance(inputs, Mapping) else list(expected)
        if len(wanted) != len(feeds):
            raise UsageError(f"{len(wanted)} lists of expected outputs are given for {len(feeds)} sets of inputs")
        return _compared(numpy, session, feeds, wanted, atol, rtol)


def _random(numpy: Any, session: Any, sizes: Mapping[str, int], seed: int) -> Dict[str, Any]:
    """Returns random inputs of a graph."""
    generator = numpy.random.default_rng(seed)
    feeds = {}
    for value in session.get_inputs():
        dtype = _DTYPES.get(value.type)
        if dtype is None:
            raise UsageError(f"no random values for the input {value.name} of type {value.type}: give inputs")
        shape: List[int] = []
        for axis, size in enumerate(value.shape):
            if not isinstance(size, int):
                size = sizes.get(size, 1 if axis == 0 else 32)
            shape.append(size)
        if dtype.startswith("float"):
            feeds[value.name] = generator.uniform(-1, 1, shape).astype(dtype)
        else:
            feeds[value.name] = generator.integers(0, 2, shape).astype(dtype)
    return feeds


def _paddle(model: str, feeds: List[Dict[str, Any]]) -> List[List[Any]]:
    """Returns the outputs of Paddle for each set of inputs."""
    paddle = need("paddle", "running the original model", install="paddlepaddle")
    numpy = need("numpy", "comparing")
    prefix, names, is_pir = _files(model)
    was_dynamic = paddle.in_dynamic_mode()
    paddle.enable_static()
    # Paddle 3 reads programs in protobuf form only outside of PIR.
    guard = getattr(getattr(paddle, "pir_utils", None), "OldIrGuard", nullcontext) if not is_pir else nullcontext
    try:
        executor = paddle.static.Executor(paddle.CPUPlace())
        scope = paddle.static.global_scope().new_scope()
        with guard(), paddle.static.scope_guard(scope):
            program, _, fetches = paddle.static.load_inference_model(prefix, executor, **names)
            outputs = []
            for feed in feeds:
                found = executor.run(program, feed=feed, fetch_list=fetches, return_numpy=False)
                outputs.append([numpy.asarray(output) for output in found])
            return outputs
    finally:
        if was_dynamic:
            paddle.disable_static()


def _files(model: str) -> Tuple[str, Dict[str, str], bool]:
    """Returns the prefix that Paddle takes, the file names where they do not follow from it, and whether it is a PIR program."""
    if os.path.basename(model) == "__model__":
        model = os.path.dirname(model) or "."
    if os.path.isdir(model):
        found = sorted(os.listdir(model))
        if "__model__" in found:
            beside = [name for name in ("__params__", "params") if name in found]
            return model, {"model_filename": "__model__", **({"params_filename": beside[0]} if beside else {})}, False
        programs = [name for name in found if name.endswith((".pdmodel", ".json"))]
        programs = [name for name in programs if name.rsplit(".", 1)[0] + ".pdiparams" in found] or programs
        if len(programs) != 1:
            raise MismatchError(f"{model} holds {len(programs)} programs: give the path of one")
        model = os.path.join(model, programs[0])
    prefix, extension = os.path.splitext(model)
    return prefix, {}, extension == ".json"


def _compared(
    numpy: Any, session: Any, feeds: List[Dict[str, Any]], wanted: Sequence[Sequence[Any]], atol: float, rtol: float
) -> Comparison:
    """Runs the graph and compares."""
    names = [output.name for output in session.get_outputs()]
    known = {value.name for value in session.get_inputs()}
    worst: List[List[float]] = [[0.0, 0.0] for _ in names]
    details = ["" for _ in names]
    for run, (feed, expected) in enumerate(zip(feeds, wanted)):
        found = session.run(None, {name: value for name, value in feed.items() if name in known})
        if len(expected) != len(found):
            raise MismatchError(f"the graph has {len(found)} outputs, expected {len(expected)}")
        for place, (one, other) in enumerate(zip(expected, found)):
            one, other = numpy.asarray(one), numpy.asarray(other)
            if one.dtype != other.dtype or one.shape != other.shape:
                text = f"run {run}: {other.dtype} {list(other.shape)}, expected {one.dtype} {list(one.shape)}"
                details[place] = details[place] or text
                continue
            if one.size == 0:
                continue
            a, b = one.astype("float64"), other.astype("float64")
            same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
            with numpy.errstate(invalid="ignore", divide="ignore"):
                absolute = numpy.where(same, 0.0, numpy.abs(a - b))
                relative = numpy.where(same, 0.0, absolute / numpy.abs(a))
            worst[place][0] = max(worst[place][0], float(absolute.max()))
            worst[place][1] = max(worst[place][1], float(relative.max()))
            exact = one.dtype.kind in "iub"
            close = same if exact else same | (absolute <= atol) | (relative <= rtol)
            if not close.all():
                text = f"run {run}: {int((~close).sum())} of {one.size} values differ"
                details[place] = details[place] or text
    outputs = [
        OutputComparison(name, absolute, relative, not detail, detail)
        for name, (absolute, relative), detail in zip(names, worst, details)
    ]
    return Comparison(all(output.equal for output in outputs), len(feeds), outputs)
