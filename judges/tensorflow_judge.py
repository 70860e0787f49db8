"""TensorFlow judges checkpoints that Weighbridge reads and writes, and graphs that it reads.

The tensors of the golden files and of checkpoints made here are those that TensorFlow reads, as listed, and as converted to
safetensors and npz. What Weighbridge writes is read by `tf.train.load_checkpoint`, restored by `tf.train.Checkpoint` and loaded by
`tf.saved_model.load`, with equal values.

usage: tensorflow_judge.py PATH-OF-THE-COMMAND
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import make_tensorflow as made
import ml_dtypes  # noqa: F401: dtypes of safetensors
import numpy as np
import safetensors.numpy
import tensorflow as tf
import tf_keras

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
        check(f"{words}: {done.returncode} {done.stderr[-600:]}", False)
    return done


def listed(path):
    document = json.loads(run("ls", path, "--json", "--hash").stdout)
    return (document[0] if isinstance(document, list) else document)["tensors"]


def key_of(tensor):
    """The key of a listed tensor in its file."""
    if "checkpoint_key" in tensor:
        return tensor["checkpoint_key"]
    return "/".join([*tensor["path"], *([tensor["slot"]] if tensor.get("slot") else [])])


def golden(path):
    want = made.expected(path)
    found = {key_of(t): t for t in listed(path)}
    numbers = {k: v for k, v in want.get("tensors", {}).items() if v} | {k: v for k, v in want.get("constants", {}).items() if v}
    check(f"{path.name}: names {sorted(set(found) ^ set(numbers))[:5]}", set(found) == set(numbers))
    for key, tensor in numbers.items():
        same = key in found and all(found[key][k] == tensor[k] for k in ("dtype", "shape", "sha256"))
        check(f"{path.name}: {key}", same)
    for key, name in want.get("names", {}).items():
        if key in found:
            check(f"{path.name}: name of {key}", found[key].get("variable_name") == name)


def values(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {k: reader.get_tensor(k) for k in reader.get_variable_to_shape_map()}


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def same_checkpoints(what, a, b):
    check(f"{what}: keys {sorted(set(a) ^ set(b))[:5]}", set(a) == set(b))
    for key in set(a) & set(b):
        check(f"{what}: {key}", same(a[key], b[key]) or (a[key] == b[key] if isinstance(a[key], bytes) else False))


def random_tree(rng, count):
    tree = tf.train.Checkpoint()
    words = ["float32", "float64", "int32", "int64", "uint8", "int8", "int16", "uint16", "bool", "float16", "bfloat16", "complex64", "uint32", "uint64"]
    for i in range(count):
        shape = tuple(int(n) for n in rng.integers(0, 7, size=rng.integers(0, 4)))
        word = words[i % len(words)]
        bits = rng.integers(0, 256, size=(*shape, tf.as_dtype(word).size), dtype=np.uint8)
        data = (bits[..., 0] > 127) if word == "bool" else bits.view(tf.as_dtype(word).as_numpy_dtype)[..., 0]
        setattr(tree, f"v{i}_{'x' * int(rng.integers(1, 60))}", tf.Variable(np.asarray(data).reshape(shape), dtype=word, name=f"v{i}"))
    return tree


def bridges(work, rng):
    """Random checkpoints: to safetensors and npz, and back."""
    for number in range(6):
        prefix = work / f"random{number}" / "ckpt"
        random_tree(rng, 40 if number else 3000).write(str(prefix))
        want = {k: v for k, v in values(prefix).items() if k != made.OBJECT_GRAPH}
        names = {key_of(t): t["name"] for t in listed(prefix.parent)}
        target = work / f"random{number}.safetensors"
        run("convert", prefix.parent, target)
        found = safetensors.numpy.load_file(target)
        for key, value in want.items():
            check(f"random {number} as safetensors: {key}", key in names and same(found[names[key]], value))
        back = work / f"back{number}"
        run("convert", target, back, "--to", "tensorflow")
        again = {k: v for k, v in values(back / "ckpt").items() if k != "weighbridge.index"}
        same_checkpoints(f"random {number} from safetensors", again, want)
        copy = work / f"copy{number}"
        run("convert", prefix.parent, copy, "--to", "tensorflow")
        for file in prefix.parent.iterdir():
            check(f"random {number}: {file.name} is the same", (copy / file.name).read_bytes() == file.read_bytes())
        # A new index of the same tensors, in blocks, is that of TensorFlow.
        if number < 2:
            first = next(iter(names.values()))
            renamed = work / f"renamed{number}"
            run("edit", prefix.parent, renamed, "--to", "tensorflow", "--rename", f"{first}=renamed")
            after = values(renamed / "ckpt")
            check(f"random {number} renamed", len(after) == len(want) + 1 and f"renamed{made.SUFFIX}" in after)
    prefix = work / "npz" / "ckpt"
    tree = tf.train.Checkpoint(**{f"a{i}": tf.Variable(rng.standard_normal((i, 3)).astype(np.float32)) for i in range(8)})
    tree.write(str(prefix))
    run("convert", prefix.parent, work / "a.npz")
    with np.load(work / "a.npz") as archive:
        for i in range(8):
            check(f"npz: a{i}", same(archive[f"a{i}"], getattr(tree, f"a{i}").numpy()))
    arrays = {"x/w": rng.standard_normal((5, 4)), "columns": np.asfortranarray(rng.standard_normal((4, 3)).astype(np.float32)), "s": np.int64(3), "e": np.zeros((0, 2))}
    np.savez(work / "b.npz", **arrays)
    run("convert", work / "b.npz", work / "b", "--to", "tensorflow")
    found = values(work / "b" / "ckpt")
    for name, value in arrays.items():
        check(f"from npz: {name}", name in found and same(found[name], value))
    check("from npz: latest", tf.train.latest_checkpoint(str(work / "b")) == str(work / "b" / "ckpt"))


def restored(work):
    """A model with its optimizer: written by Weighbridge, restored by TensorFlow."""
    for name, kit, optimizer in [("legacy", tf_keras, tf_keras.optimizers.legacy.Adam), ("tfkeras", tf_keras, tf_keras.optimizers.Adam), ("keras3", made.keras, made.keras.optimizers.Adam)]:
        model = made.train(made.dense_model(kit, 9), optimizer(0.01))
        step = tf.Variable(5, dtype=tf.int64)
        prefix = work / name / "ckpt"
        tf.train.Checkpoint(net=model, opt=model.optimizer, step=step).write(str(prefix))
        first, second = work / f"{name}_a", work / f"{name}_b"
        run("edit", prefix.parent, first, "--to", "tensorflow", "--rename", "step=steps")
        run("edit", first, second, "--to", "tensorflow", "--rename", "steps=step")
        check(f"{name}: the same index", (second / "ckpt.index").read_bytes() == prefix.with_suffix(".index").read_bytes())
        for target, key in [(first, "steps"), (second, "step")]:
            fresh = made.train(made.dense_model(kit, 1), optimizer(0.5), steps=1)
            counter = tf.Variable(0, dtype=tf.int64)
            status = tf.train.Checkpoint(net=fresh, opt=fresh.optimizer, step=counter).read(str(target / "ckpt"))
            status.assert_existing_objects_matched()
            check(f"{name}: {key}", int(counter) == 5)
            tf.train.Checkpoint(net=fresh, opt=fresh.optimizer, step=counter).restore(str(target / "ckpt")).assert_nontrivial_match()
            for a, b in zip(model.get_weights(), fresh.get_weights()):
                check(f"{name}: weights", same(a, b))
            state = lambda m: [np.asarray(v) for v in (m.optimizer.variables() if callable(m.optimizer.variables) else m.optimizer.variables)]
            for a, b in zip(state(model), state(fresh), strict=True):
                check(f"{name}: state", same(a, b))


def names_of_version_1(work):
    """Checkpoints of names, partitioned and sharded ones, joined in one file."""
    v1 = made.v1
    for name in ("partitioned", "sharded", "names_adam", "split_by_size", "compressed"):
        path = made.GOOD / name
        prefix = next(path.glob("*.index")).with_suffix("")
        want = values(prefix)
        target = work / name
        run("convert", path, work / f"{name}.safetensors")
        run("convert", work / f"{name}.safetensors", target, "--to", "tensorflow")
        found = {k: v for k, v in values(target / "ckpt").items() if k != "weighbridge.index"}
        want.pop(made.OBJECT_GRAPH, None)
        same_checkpoints(f"{name} joined", found, want)
    with tf.Graph().as_default(), v1.Session() as session:
        made.partitioned()
        v1.train.Saver().restore(session, str(work / "partitioned" / "ckpt"))
        reader = tf.train.load_checkpoint(str(next((made.GOOD / "partitioned").glob("*.index")).with_suffix("")))
        rows = np.concatenate([session.run(v) for v in v1.global_variables() if v.name.startswith("rows/")])
        check("slices are restored from a whole tensor", same(rows, reader.get_tensor("rows")))


def models(work):
    for name in ("saved_module", "saved_v1", "saved_assets"):
        target = work / name
        run("convert", made.GOOD / name, target, "--to", "tensorflow")
        loaded, before = tf.saved_model.load(str(target)), tf.saved_model.load(str(made.GOOD / name))
        if "serving_default" in before.signatures:
            x = tf.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
            call = lambda model: list(model.signatures["serving_default"](x=x).values())[0].numpy()
            check(f"{name}: outputs", same(call(before), call(loaded)))
        else:
            check(f"{name}: variables", same(before.w.numpy(), loaded.w.numpy()))


def damaged():
    """Weighbridge accepts no damage that TensorFlow rejects."""
    for path in sorted(made.BAD.iterdir()):
        done = run("verify", path, "--values", "--from", "tensorflow", code=range(256))
        check(f"bad/{path.name}: not sound", done.returncode in (1, 2, 3) and "panicked" not in done.stderr)


with tempfile.TemporaryDirectory() as folder:
    work = Path(folder)
    for path in sorted(made.GOOD.iterdir()):
        golden(path)
    bridges(work, np.random.default_rng(7))
    restored(work)
    names_of_version_1(work)
    models(work)
    damaged()
print(f"{passed + failed} checks, {failed} failures")
sys.exit(1 if failed else 0)
