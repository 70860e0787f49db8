"""MXNet as the judge of its files.

    python judges/mxnet_judge.py target/release/weighbridge

Needs: Python 3.8 with the packages of judges/mxnet.txt.

- Every array of the golden files and of random files, as Weighbridge converts it to safetensors and npz, has the dtype, the shape and
  the bits that MXNet reads.
- MXNet reads the files that Weighbridge writes, from these and from other formats, with the same bits, and unchanged files are equal.
- The operators, inputs and outputs of a symbol are those that MXNet lists.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import mxnet as mx
import numpy as np
import safetensors.numpy
from mxnet import nd

COMMAND = [sys.argv[1]]
GOOD = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "mxnet" / "good"
CHECKS = FAILURES = 0
DTYPES = ["float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool"]
# MXNet 1.9 does not load these.
UNREADABLE = {"mxnet2.params", "none.params"}


def check(good, what):
    global CHECKS, FAILURES
    CHECKS += 1
    if not good:
        FAILURES += 1
        print("FAILURE:", what)


def run(*words, code=0):
    done = subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True)
    if done.returncode != code:
        check(False, f"{words}: exit code {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def load(path):
    """Reads a file with MXNet, in the semantics of its arrays."""
    is_numpy = path.read_bytes()[24:28] == b"\xca\xfa\x93\xf9"
    with mx.util.np_shape(is_numpy):
        found = nd.load(str(path))
    return {str(i): value for i, value in enumerate(found)} if isinstance(found, list) else found


def plain(data):
    """Returns the array; bfloat16 as its bits."""
    data = np.asarray(data)
    return data.view("uint16") if data.dtype.names else data


def arrays(found):
    """Returns the arrays that Weighbridge lists for those of MXNet."""
    is_module = bool(found) and all(name.startswith(("arg:", "aux:")) for name in found)
    out = {}
    for name, value in found.items():
        name = name[4:] if is_module else name
        if value.stype == "default":
            out[name] = plain(value.asnumpy())
            continue
        parts = ["data", "indices"] + (["indptr"] if value.stype == "csr" else [])
        for part in parts:
            out[f"{name}.{part}"] = plain(getattr(value, part).asnumpy())
    return out


def same(left, right):
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def compare(found, wanted, what):
    check(sorted(found) == sorted(wanted), f"{what}: names {sorted(found)} {sorted(wanted)}")
    for name in set(found) & set(wanted):
        check(same(found[name], wanted[name]), f"{what}: {name}")


def judge(path, folder):
    wanted = arrays(load(path))
    has_bf16 = path.name == "bf16.params"
    if wanted:
        target = folder / "m.safetensors"
        run("convert", path, target, "--force", "--allow-loss")
        if has_bf16:
            # This version of safetensors has no numpy dtype for bf16.
            raw = target.read_bytes()
            length = int.from_bytes(raw[:8], "little")
            header = json.loads(raw[8:8 + length])
            begin, end = header["w"]["data_offsets"]
            found = {"w": np.frombuffer(raw[8 + length + begin:8 + length + end], "uint16").reshape(header["w"]["shape"])}
        else:
            found = safetensors.numpy.load_file(str(target))
        compare(found, wanted, f"{path.name} safetensors")
        back = folder / "back.params"
        run("convert", target, back, "--force", "--allow-loss")
        # Other formats sort their tensors; a list keeps its order.
        check(sorted(load(back)) == sorted(load(path)), f"{path.name}: names back from safetensors")
        compare(arrays(load(back)), wanted, f"{path.name} back from safetensors")
    if wanted and not has_bf16:
        target = folder / "m.npz"
        run("convert", path, target, "--force", "--allow-loss")
        with np.load(target) as data:
            found = {name: data[name] for name in data.files if not name.startswith("weighbridge")}
            found = {name: value for name, value in found.items() if name != "__metadata__"}
        compare(found, wanted, f"{path.name} npz")
    copy = folder / "copy.params"
    run("convert", path, copy, "--force", "--allow-loss")
    same_as = GOOD / "sparse.params" if path.name == "sparse_unstated.params" else path
    check(copy.read_bytes() == same_as.read_bytes(), f"{path.name}: a copy differs")


def written(folder):
    """Files of other formats, written as MXNet."""
    rng = np.random.RandomState(11)
    made = {f"layer.{dtype}": (rng.standard_normal((2, 3)) * 9).astype(dtype) for dtype in DTYPES}
    made["empty"] = np.zeros((0, 3), "float32")
    safetensors.numpy.save_file(made, str(folder / "s.safetensors"))
    run("convert", folder / "s.safetensors", folder / "s.params")
    compare(arrays(load(folder / "s.params")), made, "from safetensors")
    made["scalar"] = np.float32(2.5).reshape(())
    np.savez(folder / "n.npz", **made)
    run("convert", folder / "n.npz", folder / "n.params")
    compare(arrays(load(folder / "n.params")), made, "from npz, with a scalar")
    # Casts and renames of sparse arrays.
    run("convert", GOOD / "sparse.params", folder / "half.params", "--cast", "f16", "--rename", "embed=table")
    half, whole = load(folder / "half.params"), load(GOOD / "sparse.params")
    check(half["table.rows"].stype == "row_sparse" and half["matrix"].stype == "csr", "sparse arrays stay sparse")
    check(np.array_equal(half["table.rows"].tostype("default").asnumpy(), whole["embed.rows"].tostype("default").asnumpy().astype("f2")), "cast of rows")


def module(folder):
    """A written model computes what the original does."""
    run("convert", GOOD / "exported-0000.params", folder / "model", "--to", "mxnet", "--kind", "model")
    x = nd.array(np.random.RandomState(1).standard_normal((1, 1, 5, 5)))
    outputs = []
    for root in (GOOD / "exported", folder / "model" / "model"):
        net = mx.gluon.SymbolBlock.imports(f"{root}-symbol.json", ["data"], f"{root}-0000.params")
        outputs.append(net(x).asnumpy())
    check(np.array_equal(*outputs), "the written model computes other values")
    for name in ("module-0003", "exported-0000", "loop-0012", "old-0010"):
        prefix = name.rsplit("-", 1)[0]
        symbol = mx.sym.load(str(GOOD / f"{prefix}-symbol.json"))
        program = json.loads(run("program", GOOD / f"{name}.params", "--json"))["program"]
        stored = {key[4:] for key in load(GOOD / f"{name}.params")}
        inputs = [one for one in symbol.list_inputs() if one not in stored]
        check([feed["name"] for feed in program["inputs"]] == inputs, f"{name}: inputs {inputs}")
        check([fetch["name"] for fetch in program["outputs"]] == symbol.list_outputs() or name.startswith("loop"), f"{name}: outputs {symbol.list_outputs()}")
        nodes = [node["op"] for node in json.loads(symbol.tojson())["nodes"] if node["op"] != "null"]
        own = [operator["type"] for operator in program["blocks"][0]["operators"]]
        check(own == nodes, f"{name}: operators {own} {nodes}")


def random_file(path, rng):
    made = {}
    for number in range(rng.randint(1, 8)):
        dims = tuple(rng.randint(1, 5) for _ in range(rng.randint(1, 5)))
        values = np.random.RandomState(rng.randint(0, 2**31)).standard_normal(dims) * 50
        array = nd.array(values.astype(rng.choice(DTYPES)), dtype=None)
        kind = rng.choice(["default", "default", "row_sparse", "csr"])
        if kind != "default" and len(dims) == 2:
            array = nd.array(values * (np.abs(values) > 20)).tostype(kind)
        # MXNet writes the header of a sparse array too early, if its rows are not computed yet.
        array.wait_to_read()
        made[rng.choice(["arg:", "aux:", "net.", ""]) + f"w{number}"] = array
    if rng.random() < 0.3:
        made = list(made.values())
    nd.save(str(path), made)


def main():
    rng = random.Random(5)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for path in sorted(GOOD.glob("*.params")):
            if path.name not in UNREADABLE:
                judge(path, folder)
        for number in range(60):
            path = folder / f"random{number}.params"
            random_file(path, rng)
            judge(path, folder)
        written(folder)
        module(folder)
    print(f"{CHECKS} checks, {FAILURES} failures")
    sys.exit(FAILURES > 0)


if __name__ == "__main__":
    main()
