"""Flax, Orbax and TensorStore judge the checkpoints that Weighbridge reads and writes.

Every array of the golden files and of random trees is bit-equal when converted to safetensors and npz. A Flax file written without
changes has the same bytes; what Weighbridge makes of other formats, flax.serialization reads with the same values.

usage: XLA_FLAGS=--xla_force_host_platform_device_count=4 python flax_judge.py PATH-OF-THE-COMMAND
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
sys.path.insert(0, str(Path(__file__).parent))

import flax.serialization as fs
import jax
import jax.numpy as jnp
import make_flax as made
import ml_dtypes
import msgpack
import numpy as np
import optax
import orbax.checkpoint as ocp
import safetensors.numpy
from flax.training import train_state

COMMAND = sys.argv[1]
passed = failed = 0


def check(what, condition):
    global passed, failed
    passed, failed = passed + bool(condition), failed + (not condition)
    if not condition:
        print("FAILED", what)


def run(*words, code=(0,)):
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True)
    if done.returncode not in code:
        check(f"{words}: {done.returncode} {done.stderr[-500:]}", False)
    return done


def arrays(tree):
    """Arrays by display name."""
    return {".".join(path) if path else "value": np.asarray(leaf) for path, leaf in made.leaves(tree) if made.is_array(leaf)}


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return (a.dtype.name, a.shape) == (b.dtype.name, b.shape) and a.tobytes() == b.tobytes()


def converted(what, path, want, work, skipped=()):
    """Through safetensors and npz, which do not hold all dtypes and names."""
    target = work / "t.safetensors"
    wide = [name for name, array in want.items() if array.dtype == np.complex128]
    run("convert", path, target, "--force", *(word for name in wide for word in ("--drop", name)), *["--allow-loss"] * bool(skipped or wide))
    found = tensors_of(target)
    names = [name for name in want if name not in wide]
    check(f"{what}: names in safetensors {set(found) ^ set(names)}", set(found) == set(names))
    for name in names:
        check(f"{what}: {name} in safetensors", name in found and same(found[name], want[name]))
    plain = {name: array for name, array in want.items() if array.dtype.isbuiltin == 1}
    others = set(want) - set(plain)
    if plain:
        target = work / "t.npz"
        run("convert", path, target, "--force", *(word for name in others for word in ("--drop", name)), *["--allow-loss"] * bool(skipped or others))
        with np.load(target) as npz:
            for name, array in plain.items():
                check(f"{what}: {name} in npz", name in npz and same(npz[name], array))


def tensors_of(path):
    """safetensors of numpy, also of dtypes that its numpy loader does not know."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    types = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz"}
    found = {}
    for name, about in json.loads(data[8:8 + length]).items():
        if name != "__metadata__" and about["dtype"] in types:
            begin, end = (8 + length + at for at in about["data_offsets"])
            found[name] = np.frombuffer(data[begin:end], types[about["dtype"]]).reshape(about["shape"])
    if not found:
        return dict(safetensors.numpy.load(data))
    codes = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "u2", "I16": "i2", "U32": "u4", "I32": "i4", "U64": "u8", "I64": "i8", "F16": "f2", "F32": "f4", "F64": "f8", "C64": "c8"}
    for name, about in json.loads(data[8:8 + length]).items():
        if name != "__metadata__" and name not in found:
            begin, end = (8 + length + at for at in about["data_offsets"])
            found[name] = np.frombuffer(data[begin:end], codes[about["dtype"]]).reshape(about["shape"])
    return found


def written(what, path, tree, work):
    """The same bytes when nothing changes; equal values when the tree is renamed."""
    target = work / "same.msgpack"
    run("convert", path, target, "--force")
    check(f"{what}: the same bytes", target.read_bytes() == path.read_bytes())
    if isinstance(tree, dict) and "params" in tree:
        run("edit", path, target, "--force", "--rename", "params.=weights.")
        back = fs.msgpack_restore(target.read_bytes())
        want = {name.replace("params.", "weights.", 1) if name.startswith("params.") else name: array for name, array in arrays(tree).items()}
        back = {name: array for name, array in arrays(back).items()}
        check(f"{what}: renamed", set(back) == set(want) and all(same(back[name], want[name]) for name in want))


def golden_flax(work):
    for name, want in json.loads((made.ROOT / "flax" / "expected.json").read_text()).items():
        path = made.ROOT / "flax" / "good" / name
        if path.is_dir():
            tree = {}
            for part in sorted(path.glob("*.msgpack")):
                merge(tree, fs.msgpack_restore(part.read_bytes()))
        elif want["skipped"]:
            tree = {"w": np.ones(2, "f4")}
        else:
            tree = fs.msgpack_restore(path.read_bytes())
        converted(name, path, arrays(tree), work, want["skipped"])
        if path.is_file() and not want["skipped"]:
            written(name, path, tree, work)


def merge(tree, part):
    for key, value in part.items():
        if isinstance(value, dict) and key in tree:
            merge(tree[key], value)
        else:
            tree[key] = value


def random_tree(rng, depth=0):
    tree = {}
    for number in range(rng.integers(1, 5)):
        key = "".join(rng.choice(list("abc_0é "), rng.integers(1, 6))) + str(number)
        if depth < 4 and rng.random() < 0.4:
            tree[key] = random_tree(rng, depth + 1)
        else:
            shape = tuple(rng.integers(0, 6, rng.integers(0, 4)))
            dtype = rng.choice([name for name in made.DTYPES if name != "complex128"])
            tree[key] = made.bits(dtype, shape, int(rng.integers(1 << 30)))
            if shape == () and rng.random() < 0.5:
                tree[key] = tree[key][()]
    return tree


def random_flax(work):
    rng = np.random.default_rng()
    for number in range(9):
        tree = random_tree(rng)
        if number % 2:
            tree |= {"step": int(rng.integers(-2**40, 2**40)), "name": "x" * int(rng.integers(0, 400)), "rate": float(rng.standard_normal()), "none": None, "empty": {}}
        path = work / "random.msgpack"
        path.write_bytes(made.chunked(tree, 64) if number % 3 == 0 else fs.to_bytes(tree))
        converted(f"random {number}", path, arrays(fs.msgpack_restore(path.read_bytes())), work)
        written(f"random {number}", path, tree, work)


def large_flax(work):
    """Arrays of several megabytes, copied as ranges."""
    rng = np.random.default_rng(3)
    tree = {"params": {f"layer_{i}": {"kernel": rng.standard_normal((700, 900)).astype("f4"), "bias": rng.standard_normal(900)} for i in range(4)}}
    path = work / "large.msgpack"
    path.write_bytes(fs.to_bytes(tree))
    converted("large", path, arrays(tree), work)
    written("large", path, tree, work)


def from_others(work):
    """Trees that Weighbridge makes of safetensors and npz."""
    weights = {f"encoder.layers.{i}.{name}": np.random.default_rng(i).standard_normal(shape).astype("f4") for i in range(3) for name, shape in (("weight", (4, 3)), ("bias", (4,)))}
    weights["odd"] = np.arange(6, dtype="i8").reshape(2, 3)
    path, target = work / "other.safetensors", work / "other.msgpack"
    safetensors.numpy.save_file(weights, path)
    run("convert", path, target, "--force")
    back = arrays(fs.msgpack_restore(target.read_bytes()))
    check("from safetensors", set(back) == set(weights) and all(same(back[name], weights[name]) for name in weights))
    np.savez(work / "other.npz", **{name: np.asfortranarray(array) for name, array in weights.items()})
    run("convert", work / "other.npz", target, "--force")
    back = arrays(fs.msgpack_restore(target.read_bytes()))
    check("from npz", all(same(back[name], weights[name]) for name in weights))
    run("convert", path, target, "--force", "--cast", "bf16")
    back = arrays(fs.msgpack_restore(target.read_bytes()))
    check("cast", all(same(back[name], array.astype(ml_dtypes.bfloat16)) for name, array in weights.items() if array.dtype == np.float32))
    run("convert", target, work / "back.safetensors", "--force")
    check("and back", set(tensors_of(work / "back.safetensors")) == set(weights))


def train_states(work):
    """A train state is restored by Flax from a file that went through safetensors."""
    net = made.Net()
    for name, tx in (("adam", optax.adam(1e-3)), ("momentum", optax.sgd(1e-2, momentum=0.9)), ("chain", optax.chain(optax.clip(1.0), optax.adamw(1e-3)))):
        state = made.trained(tx)
        path, middle, target = work / f"{name}.msgpack", work / f"{name}.safetensors", work / f"{name}_back.msgpack"
        path.write_bytes(fs.to_bytes(state))
        run("convert", path, middle, "--force")
        run("convert", middle, target, "--force")
        back = fs.from_bytes(jax.tree.map(jnp.zeros_like, state), target.read_bytes())
        pairs = zip(jax.tree.leaves(back), jax.tree.leaves(state), strict=True)
        check(f"state {name}: restored", all(same(a, b) if made.is_array(b) else int(a) == int(b) for a, b in pairs))
        check(f"state {name}: the same bytes", target.read_bytes() == path.read_bytes())


def golden_orbax(work):
    for name, want in json.loads((made.ROOT / "orbax" / "expected.json").read_text()).items():
        path = made.ROOT / "orbax" / "good" / name
        listed = json.loads(run("ls", path, "--json", "--hash").stdout)
        listed = listed[0] if isinstance(listed, list) else listed
        found = {t["name"]: {key: t[key] for key in ("dtype", "shape", "sha256")} for t in listed["tensors"]}
        check(f"{name}: tensors", found == want["tensors"])
        if (path / "_METADATA").exists():
            converted(name, path, arrays(made.fixed(made.load(path))), work)
    done = run("ls", made.ROOT / "orbax" / "good" / "two_steps", code=(2,))
    check("several steps are named", "1, 20" in done.stderr)


def random_orbax(work):
    rng = np.random.default_rng()
    dtypes = [name for name in made.DTYPES if name not in ("complex128", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3fn", "float8_e5m2", "int64", "uint64", "float64")]
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a", "b"))
    for number, options in enumerate([{}, {"use_ocdbt": False}, {"use_zarr3": True}, {"use_zarr3": True, "use_ocdbt": False}]):
        tree = {f"block_{i}": {"w": jnp.asarray(made.bits(rng.choice(dtypes), tuple(rng.integers(1, 40, rng.integers(0, 4))), int(rng.integers(1 << 30)))), "n": [np.float32(i), np.zeros((3, 300), "i4")]} for i in range(8)}
        tree["split"] = jax.device_put(jnp.asarray(rng.standard_normal((64, 48)).astype("f4")), split)
        path = work / f"random_{number}"
        made.save(path, tree, chunk=int(rng.integers(500, 5000)), **options)
        converted(f"random Orbax {number} {options}", path, arrays(made.fixed(made.load(path))), work)


with tempfile.TemporaryDirectory() as folder:
    work = Path(folder)
    golden_flax(work)
    random_flax(work)
    large_flax(work)
    from_others(work)
    train_states(work)
    golden_orbax(work)
    random_orbax(work)

print(f"{passed + failed} checks, {failed} failures")
sys.exit(failed > 0)
