"""What real Paddle makes of files: values of parameters and outputs of models. Used by the judges of both versions.

Paddle 2.6.2 takes protobuf programs with combined or separate parameters, Paddle 3.3.1 takes PIR json.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("GLOG_minloglevel", "3")
os.environ.setdefault("FLAGS_call_stack_level", "0")

import numpy as np
import paddle
from paddle.base import core

VERSION = paddle.__version__
OLD = VERSION.startswith("2.")


def array(tensor):
    """A tensor of Paddle as numpy, bfloat16 as its uint16 bits."""
    return np.array(tensor)


def stored(program):
    """The variables of a program that stand in parameter files, by Paddle's own rule."""
    from paddle.static.io import is_persistable

    raw = core.VarDesc.VarType.RAW
    found = {v.name: v for v in program.list_vars() if is_persistable(v) and v.type != raw}
    return [found[name] for name in sorted(found)]


def run_protobuf(folder, program_name, params_name, feeds):
    """Loads a program with its parameters (`params_name` None: one file each) and runs it.

    Returns ({parameter: array}, [output arrays]).
    """
    paddle.enable_static()
    executor = paddle.static.Executor(paddle.CPUPlace())
    with paddle.static.scope_guard(paddle.static.Scope()):
        program = paddle.static.deserialize_program((Path(folder) / program_name).read_bytes())
        variables = stored(program)
        paddle.static.load_vars(executor, str(folder), program, vars=variables, filename=params_name)
        scope = paddle.static.global_scope()
        values = {v.name: array(scope.find_var(v.name).get_tensor()) for v in variables}
        outputs = None
        if feeds is not None:
            block = program.global_block()
            fetches = sorted((op.attr("col"), op.input("X")[0]) for op in block.ops if op.type == "fetch")
            outputs = executor.run(program, feed=feeds, fetch_list=[name for _, name in fetches])
    return values, outputs


def run_pir(prefix, feeds):
    """As `run_protobuf`, for PREFIX.json with PREFIX.pdiparams in Paddle 3."""
    paddle.enable_static()
    executor = paddle.static.Executor(paddle.CPUPlace())
    with paddle.static.scope_guard(paddle.static.Scope()):
        program, _, fetches = paddle.static.load_inference_model(str(prefix), executor)
        scope = paddle.static.global_scope()
        parameters = [op for op in program.global_block().ops if op.name() == "builtin.parameter"]
        names = [op.attrs()["parameter_name"] for op in parameters if op.results()[0].persistable]
        values = {}
        for name in names:
            variable = scope.find_var(name)
            if variable is not None and variable.get_tensor()._is_initialized():
                values[name] = array(variable.get_tensor())
        outputs = None if feeds is None else executor.run(program, feed=feeds, fetch_list=fetches)
    return values, outputs


def flat(value, path=()):
    """{path: array} of everything that `paddle.load` gave."""
    if isinstance(value, (paddle.Tensor, np.ndarray)):
        return {path: value.numpy() if isinstance(value, paddle.Tensor) else value}
    pairs = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, (list, tuple)):
        pairs = enumerate(value)
    found = {}
    for key, inner in pairs:
        found.update(flat(inner, path + (str(key),)))
    return found


def load_state(path):
    """{path: array} of a pickle, as paddle.load reads it."""
    paddle.disable_static()
    return flat(paddle.load(str(path)))


def same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


if __name__ == "__main__":
    golden = Path(sys.argv[1])
    if OLD:
        feeds = {"image": np.load(golden / "p262/cnn_static_infer/input_image.npy")}
        values, outputs = run_protobuf(golden / "p262/cnn_static_infer", "model.pdmodel", "model.pdiparams", feeds)
        print(len(values), np.abs(outputs[0] - np.load(golden / "p262/cnn_static_infer/output_0.npy")).max())
        values, outputs = run_protobuf(golden / "p262/cnn_legacy_separate", "__model__", None, feeds)
        print(len(values), np.abs(outputs[0] - np.load(golden / "p262/cnn_legacy_separate/output_0.npy")).max())
    else:
        feeds = {"image": np.load(golden / "p331/cnn_pir/input_image.npy")}
        values, outputs = run_pir(golden / "p331/cnn_pir/model", feeds)
        print(len(values), np.abs(outputs[0] - np.load(golden / "p331/cnn_pir/output_0.npy")).max())
    state = load_state(golden / ("p262" if OLD else "p331") / "cnn_state_dict/m_p4.pdopt")
    print(len(state), list(state)[:2])
