"""Exports a Paddle model, runs it in Paddle and in ONNX Runtime, and compares the outputs.

The helpers here serve `cases.py` (one operator each) and `models.py` (whole models). They need Paddle 2.6 or 3.3, onnx and
onnxruntime in one environment.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import paddle

paddle.enable_static()
onnxruntime.set_default_logger_severity(3)
IS_PIR = paddle.__version__.startswith("3.")
CPU = paddle.CPUPlace()


class Failed(Exception):
    """An export that is not right; `kind` is a word for the table."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind = kind


def export(command, folder, target):
    """Exports the model in a folder."""
    done = subprocess.run(
        [command, "convert", str(folder), str(target), "--force"], capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0 and not Path(target).exists():
        raise Failed("refused", done.stderr.strip()[-2000:])
    return done


def load(path):
    """Checks a model strictly and opens it in ONNX Runtime."""
    try:
        onnx.checker.check_model(str(path), full_check=True)
        if os.path.getsize(path) < 1 << 30:
            onnx.shape_inference.infer_shapes(onnx.load(str(path)), check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:
        raise Failed("invalid", str(error)[:2000]) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Failed("does not load", str(error)[:2000]) from error


class Reference:
    """A saved model as Paddle itself runs it, without the optimizations of its inference engine."""

    def __init__(self, prefix, model=None, params=None):
        self.exe = paddle.static.Executor(CPU)
        self.scope = paddle.static.Scope() if hasattr(paddle.static, "Scope") else paddle.base.core.Scope()
        with paddle.static.scope_guard(self.scope):
            if model is not None:
                loaded = paddle.static.load_inference_model(
                    str(prefix), self.exe, model_filename=model, params_filename=params
                )
            else:
                loaded = paddle.static.load_inference_model(str(prefix), self.exe)
        self.program, self.feeds, self.fetches = loaded
        is_desc = hasattr(self.program, "desc")
        operators = [op.type for block in self.program.blocks for op in block.ops] if is_desc else []
        self.has_arrays = "write_to_array" in operators

    def run(self, feeds):
        """Returns the outputs as arrays, in order. A feed may be an array, or a pair of an array and its LoD lengths."""
        # Arrays of Paddle 2.6 keep their elements from one run to the next.
        with paddle.static.scope_guard(self.scope.new_scope() if self.has_arrays else self.scope):
            values = {}
            for name, value in feeds.items():
                if isinstance(value, tuple):
                    array, lengths = value
                    value = paddle.base.create_lod_tensor(array, lengths, CPU)
                values[name] = value
            outs = self.exe.run(self.program, feed=values, fetch_list=self.fetches, return_numpy=False)
            return [np.asarray(out) for out in outs]


def differs(name, expected, found, atol=1e-4, rtol=1e-3):
    """Returns what differs between two outputs, or None."""
    if expected.dtype != found.dtype:
        return f"{name}: dtype {found.dtype}, expected {expected.dtype}"
    if expected.shape != found.shape:
        return f"{name}: shape {found.shape}, expected {expected.shape}"
    if expected.dtype.kind in "iub?":
        wrong = int((expected != found).sum())
        return f"{name}: {wrong} of {expected.size} values differ" if wrong else None
    a, b = expected.astype(np.float64), found.astype(np.float64)
    if expected.dtype == np.float16:
        atol, rtol = max(atol, 4e-3), max(rtol, 4e-3)
    close = np.isclose(a, b, atol=atol, rtol=rtol, equal_nan=True)
    if close.all():
        return None
    with np.errstate(invalid="ignore"):
        worst = np.nanmax(np.abs(a - b)) if a.size else 0.0
    return f"{name}: {int((~close).sum())} of {a.size} values differ, at most by {worst:.3g}"


def fits(shape, declared):
    """Returns true if an output has the declared sizes. Open sizes have names or are None. A rank that is known at run time only is
    declared as in the program."""
    return len(shape) != len(declared) or all(not isinstance(b, int) or a == b for a, b in zip(shape, declared))


def compare(reference, session, feed_sets, atol=1e-4, rtol=1e-3):
    """Compares the outputs for each set of feeds; raises `Failed` for the first difference."""
    for feeds in feed_sets:
        expected = reference.run(feeds)
        arrays = {k: (v[0] if isinstance(v, tuple) else v) for k, v in feeds.items()}
        wanted = {i.name for i in session.get_inputs()}
        try:
            found = session.run(None, {k: v for k, v in arrays.items() if k in wanted})
        except Exception as error:
            raise Failed("does not run", str(error)[:2000]) from error
        if len(expected) != len(found):
            raise Failed("differs", f"{len(found)} outputs, expected {len(expected)}")
        for place, (a, b) in enumerate(zip(expected, found)):
            if isinstance(b, list):
                raise Failed("differs", f"output {place} is a list")
            why = differs(f"output {place}", a, np.asarray(b), atol, rtol)
            declared = session.get_outputs()[place].shape
            if not fits(np.asarray(b).shape, declared):
                why = why or f"output {place}: declared as {declared}, shape {np.asarray(b).shape}"
            if why:
                raise Failed("differs", why)
