"""Judge: PaddlePaddle 3 loads a program that Weighbridge wrote, runs it, and gets what the original gives.

usage: paddle_pir.py ORIGINAL.json CHANGED.json [--params FILE] [--rename OLD=NEW]... [--fetch-op NAME]

ORIGINAL.json    the program as Paddle saved it; beside it expected.json with the place of every tensor in the
                 parameter file, and the arrays that went in and came out (input_*.npy, output_*.npy)
CHANGED.json     the program as Weighbridge wrote it
--params FILE    combined parameters of ORIGINAL; default: the .pdiparams of the same stem beside it
--rename OLD=NEW a tensor that has another name in CHANGED; the tensors are put in the order of the new names.
                 OLD may be * and NEW hold {}: every tensor, with {} for its old name and {r} for that name reversed
--fetch-op NAME  for programs without outputs, saved for training: compares the result of the last operator of that name,
                 such as pd_op.softmax, in both programs, with inputs and parameters made up alike

Checks that CHANGED loads with static.load_inference_model, that its outputs are bit for bit those of ORIGINAL in the same
process, and within 1e-5 those of the golden arrays. Exit code 0 where all hold, 1 where not.
Needs paddlepaddle 3.3.1 and numpy. Paddle keeps tensors by name in a scope; each program gets a scope of its own.
"""

import argparse
import json
import os
import sys
import tempfile
import warnings
import zlib
from pathlib import Path

warnings.filterwarnings("ignore")
os.environ.setdefault("GLOG_minloglevel", "3")

import numpy as np
import paddle
from paddle import static


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("original", type=Path)
    parser.add_argument("changed", type=Path)
    parser.add_argument("--params", type=Path)
    parser.add_argument("--rename", action="append", default=[])
    parser.add_argument("--fetch-op")
    return parser.parse_args()


def renamer(rules):
    rules = dict(rule.split("=", 1) for rule in rules)
    every = rules.pop("*", "{}")
    return lambda name: rules[name] if name in rules else every.format(name, r=name[::-1])


def stored_names(program):
    """Names of the tensors of the parameter file, in its order, read from the JSON with json alone."""
    names = set()

    def walk(regions):
        for region in regions:
            for block in region["blocks"]:
                for op in block["ops"]:
                    if op["#"] == "p" and op["OA"][0]:
                        names.add(op["A"][3])
                    walk(op.get("regions", []))

    walk(json.loads(program.read_bytes())["program"]["regions"])
    return sorted(names)


def run(program, params, feeds):
    with tempfile.TemporaryDirectory() as folder:
        stem = Path(folder) / "m"
        stem.with_suffix(".json").write_bytes(program)
        stem.with_suffix(".pdiparams").write_bytes(params)
        with static.scope_guard(static.Scope()):
            executor = static.Executor(paddle.CPUPlace())
            loaded, names, fetches = static.load_inference_model(str(stem), executor)
            return names, executor.run(loaded, feed={n: feeds[n] for n in names}, fetch_list=fetches)


def run_forward(path, kind):
    """Runs a program without outputs on made-up data and gives the result of its last operator of that kind."""
    program = static.Program()
    paddle.base.core.deserialize_pir_program(str(path), program, 1)
    found, scope, feeds, tensors = None, static.Scope(), {}, []
    for op in program.global_block().ops:
        if op.name() == kind:
            found = op.result(0)
        if op.name() in ("builtin.parameter", "pd_op.data"):
            value = op.result(0)
            name = op.attrs().get("parameter_name") or op.attrs().get("name")
            tensors.append((name, [2 if d < 0 else d for d in value.shape], op.name(), value.persistable))
    for name, shape, op_name, persistable in sorted(t for t in tensors if "moment" not in t[0] and "pow_acc" not in t[0]):
        # The same array for the same name, whatever else the program holds.
        array = np.random.default_rng(zlib.crc32(name.encode())).random(shape, dtype=np.float32)
        if op_name == "builtin.parameter" or persistable:
            scope.var(name).get_tensor().set(array, paddle.CPUPlace())
        else:
            feeds[name] = array
    for name, shape, _, _ in tensors:
        if "moment" in name or "pow_acc" in name:
            scope.var(name).get_tensor().set(np.full(shape, 0.5, np.float32), paddle.CPUPlace())
    assert found is not None, f"{path} has no {kind}"
    with static.scope_guard(scope):
        return static.Executor(paddle.CPUPlace()).run(program, feed=feeds, fetch_list=[found])


def main():
    options = arguments()
    paddle.enable_static()
    if options.fetch_op:
        old = run_forward(options.original, options.fetch_op)
        new = run_forward(options.changed, options.fetch_op)
        same = all(a.tobytes() == b.tobytes() for a, b in zip(old, new, strict=True))
        print("same" if same else "DIFFERENT", [a.shape for a in new])
        return 0 if same else 1
    golden = options.original.parent
    expected = json.loads((golden / "expected.json").read_bytes())
    inputs = {name: np.load(golden / said["file"]) for name, said in expected["io"]["inputs"].items()}
    outputs = [np.load(golden / said["file"]) for said in expected["io"]["outputs"]]
    file = options.params or options.original.with_suffix(".pdiparams")
    params = file.read_bytes()
    rename = renamer(options.rename)
    streams = {}
    for tensor in expected["tensors"]:
        begin = tensor["stream_offset"]
        streams[rename(tensor["name"])] = params[begin : begin + tensor["stream_bytes"]]
    names = stored_names(options.changed)
    missing = [name for name in names if name not in streams]
    assert not missing, f"CHANGED wants tensors that there are not: {missing}"
    _, old = run(options.original.read_bytes(), params, inputs)
    feeds, new = run(options.changed.read_bytes(), b"".join(streams[n] for n in names), {rename(k): v for k, v in inputs.items()} | inputs)
    failed = 0
    for place, (a, b, gold) in enumerate(zip(old, new, outputs, strict=True)):
        same, near = a.tobytes() == b.tobytes() and a.dtype == b.dtype, np.allclose(b, gold, rtol=1e-5, atol=1e-6)
        failed += not (same and near)
        print(f"output {place}: {'same bits' if same else 'OTHER BITS'}, {'near' if near else 'NOT NEAR'} the golden array")
    print(f"{len(names)} tensors, inputs {feeds}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
