"""Keras 3 and tf-keras judge the models that Weighbridge reads and writes.

Tensors of the golden files are those that h5py reads, with the names and the order that Keras shows. A copy, and a model that is
written with changed weights from safetensors and npz, load in Keras with the same weights, the same optimizer and the same
predictions as a file that h5py changed.

usage: keras_judge.py PATH-OF-THE-COMMAND
"""

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import make_keras_models as made
import h5py
import keras
import numpy as np
import safetensors.numpy
import tf_keras

COMMAND = sys.argv[1]
passed = failed = 0
NAMES = {"float16": "f16", "float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64", "uint32": "u32", "uint8": "u8", "bool": "bool"}


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


def refused(code, *words):
    done = run(*words, "--json", code=(2,))
    found = json.loads(done.stdout or done.stderr)
    check(f"{words[:3]}: {code}", code in json.dumps(found))


def listed(path):
    document = json.loads(run("ls", path, "--json", "--hash").stdout)
    return (document[0] if isinstance(document, list) else document)["tensors"]


def place(tensor):
    return "/".join(tensor["path"])


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def load(name, path):
    """The model of a golden file, with the weights at `path`."""
    k = made.MODELS[name][0]
    if "weights" not in name:
        model = k.models.load_model(path)
    else:
        model = made.make(name)
        rng = np.random.default_rng(1)
        model.set_weights([rng.random(w.shape).astype(w.dtype) for w in model.get_weights()])
        model.load_weights(path)
    return model


def variables(model):
    optimizer = getattr(model, "optimizer", None)
    state = getattr(optimizer, "variables", None) if optimizer is not None else []
    state = state() if callable(state) else state
    return [np.asarray(w) for w in model.weights], [np.asarray(w) for w in state or []]


def predictions(name, model):
    _, inputs = made.MODELS[name][1](made.MODELS[name][0])
    outputs = model(inputs[0] if len(inputs) == 1 else inputs, training=False)
    return [np.asarray(part) for part in (outputs if isinstance(outputs, list) else [outputs])]


def same_models(what, name, path, reference):
    try:
        one, other = load(name, path), load(name, reference)
    except Exception as error:  # noqa: BLE001
        check(f"{what}: Keras loads it: {type(error).__name__} {str(error)[:300]}", False)
        return
    (weights, state), (their_weights, their_state) = variables(one), variables(other)
    check(f"{what}: {len(weights)} weights", len(weights) == len(their_weights) > 0)
    for number, (a, b) in enumerate(zip(weights, their_weights)):
        check(f"{what}: weight {number}", same(a, b))
    check(f"{what}: {len(state)} variables of the optimizer", len(state) == len(their_state))
    check(f"{what}: trained", name in ("k2_dense.keras", "dense.h5") or made.MODELS[name][2] is None or len(state) > 2)
    for number, (a, b) in enumerate(zip(state, their_state)):
        check(f"{what}: variable {number} of the optimizer", same(a, b))
    results = zip(predictions(name, one), predictions(name, other))
    check(f"{what}: predictions", all(same(a, b) for a, b in results))


def same_members(what, path, golden):
    """Members of an archive besides the weights, and the attributes of groups."""
    if path.suffix == ".keras":
        one, other = zipfile.ZipFile(path), zipfile.ZipFile(golden)
        check(f"{what}: the archive is whole", one.testzip() is None)
        check(f"{what}: members", one.namelist() == [n for n in other.namelist() if not n.endswith("/")])
        for member in set(one.namelist()) - {"model.weights.h5"}:
            check(f"{what}: {member}", one.read(member) == other.read(member))

    def attributes(file):
        found = {}

        def visit(key, item):
            for name, value in item.attrs.items():
                found[key, name] = (np.asarray(value).dtype.str, np.asarray(value).tolist())

        visit("", file)
        file.visititems(visit)
        return found

    with made.weights_of(path) as one, made.weights_of(golden) as other:
        check(f"{what}: attributes", attributes(one) == attributes(other))
        groups = [[], []]
        for file, names in zip((one, other), groups):
            file.visititems(lambda name, item, names=names: names.append((name, type(item).__name__)))
        check(f"{what}: groups and datasets", sorted(groups[0]) == sorted(groups[1]))


def golden(name, path):
    """What the index says, against h5py and Keras."""
    tensors, arrays = listed(path), made.datasets(path)
    check(f"{name}: names", {place(t) for t in tensors} == set(arrays))
    for tensor in tensors:
        array = np.asarray(arrays[place(tensor)])
        check(f"{name}: {place(tensor)}: shape and dtype", (tensor["shape"], tensor["dtype"]) == (list(array.shape), NAMES[array.dtype.name]))
        check(f"{name}: {place(tensor)}: elements", tensor["sha256"] == hashlib.sha256(array.tobytes()).hexdigest())
    if path.suffix != ".h5" or name.endswith(".weights.h5"):
        return
    # The order and the names of Keras.
    model = load(name, path)
    top = model.layers
    want = [w for layer in top for w in layer.weights]
    own = [t for t in tensors if t["role"] != "optimizer"]
    check(f"{name}: {len(own)} of {len(want)} variables", len(own) == len(want))
    check(f"{name}: order", sorted(map(str, own)) == sorted(map(str, tensors[: len(own)])))
    if name.startswith("k1"):
        buffers = sum(t["role"] == "buffer" for t in own)
        check(f"{name}: buffers", buffers == 2)
        return
    trained = {id(w) for w in model.trainable_weights}
    ordered = [w for layer in top for w in (*layer.trainable_weights, *layer.non_trainable_weights)]
    for tensor, weight in zip(own, ordered):
        shown = getattr(weight, "path", None) or weight.name
        # Keras 3 builds a loaded layer by itself, and omits the names of the layers around it.
        stated = tensor.get("variable_name") or ""
        check(f"{name}: {tensor['name']} is {shown}", stated == shown or (name[:2] != "k2" and stated.endswith("/" + shown)))
        check(f"{name}: {tensor['name']} has the elements of {shown}", tensor["sha256"] == hashlib.sha256(np.asarray(weight).tobytes()).hexdigest())
        check(f"{name}: role of {shown}", (tensor["role"] == "buffer") == (id(weight) not in trained))
    slots = [t for t in tensors if t["role"] == "optimizer"]
    counters = [t for t in slots if t["shape"] == []]
    known = {t["name"]: t["shape"] for t in own}
    for slot in slots:
        if slot not in counters:
            check(f"{name}: {slot['name']} has a variable", known.get(slot.get("state_of")) == slot["shape"])


def changed(arrays):
    rng = np.random.default_rng(5)
    out = {}
    for key, value in arrays.items():
        value = np.asarray(value)
        if value.dtype.kind == "f":
            value = (np.abs(value) + rng.random(value.shape)).astype(value.dtype)
        out[key] = value
    return out


def patched(path, arrays, target):
    """A copy with other elements, by h5py."""
    data = io.BytesIO(zipfile.ZipFile(path).read("model.weights.h5") if path.suffix == ".keras" else path.read_bytes())
    with h5py.File(data, "r+") as file:
        for key, value in arrays.items():
            file[key][...] = value
    if path.suffix != ".keras":
        target.write_bytes(data.getvalue())
        return
    with zipfile.ZipFile(target, "w") as archive:
        for member in zipfile.ZipFile(path).namelist():
            if member.endswith("/"):
                continue
            archive.writestr(member, data.getvalue() if member == "model.weights.h5" else zipfile.ZipFile(path).read(member))


def written(name, path, work):
    suffix = name[name.index(".") :]
    copy = work / f"copy{suffix}"
    run("convert", path, copy)
    same_members(f"{name}: copy", copy, path)
    same_models(f"{name}: copy", name, copy, path)
    edited = work / f"edited{suffix}"
    run("edit", path, edited)
    check(f"{name}: an edit without rules is the copy", edited.read_bytes() == copy.read_bytes())
    names = {place(t): t["name"] for t in listed(path)}
    arrays = changed(made.datasets(path))
    reference = work / f"reference{suffix}"
    patched(path, arrays, reference)
    flat = {names[key]: np.array(value, order="C") for key, value in arrays.items()}
    safetensors.numpy.save_file(flat, work / "new.safetensors")
    np.savez(work / "new.npz", **flat)
    for source in ("new.safetensors", "new.npz"):
        target = work / f"{source}{suffix}"
        run("convert", work / source, target, "--like", path)
        found = made.datasets(target)
        check(f"{name}: {source}: datasets", set(found) == set(arrays) and all(same(found[k], arrays[k]) for k in found))
        same_members(f"{name}: {source}", target, path)
        same_models(f"{name}: {source}", name, target, reference)
    # From safetensors that Weighbridge wrote, and from column-major arrays.
    run("convert", path, work / "own.safetensors")
    back = work / f"back{suffix}"
    run("convert", work / "own.safetensors", back, "--like", path)
    check(f"{name}: to safetensors and back", back.read_bytes() == copy.read_bytes())
    np.savez(work / "columns.npz", **{key: np.array(value, order="F") for key, value in flat.items()})
    columns = work / f"columns{suffix}"
    run("convert", work / "columns.npz", columns, "--like", path)
    check(f"{name}: column-major arrays", columns.read_bytes() == (work / f"new.npz{suffix}").read_bytes())
    bare = work / f"bare{suffix}"
    with_state = any(t["role"] == "optimizer" for t in listed(path))
    run("convert", work / "new.npz", bare, "--like", path, "--no-state")
    try:
        one, other = load(name, bare), load(name, reference)
        pairs = zip(variables(one)[0], variables(other)[0])
        check(f"{name}: without state: weights", all(same(a, b) for a, b in pairs))
    except Exception as error:  # noqa: BLE001
        check(f"{name}: without state: Keras loads it: {type(error).__name__} {str(error)[:300]}", False)
    if with_state:
        state = {t["name"] for t in listed(path) if t["role"] == "optimizer"}
        np.savez(work / "weights.npz", **{key: value for key, value in flat.items() if key not in state})
        refused("missing-tensors", "convert", work / "weights.npz", work / f"refused{suffix}", "--like", path)
        again = work / f"again{suffix}"
        run("convert", work / "weights.npz", again, "--like", path, "--no-state")
        check(f"{name}: without state", again.read_bytes() == bare.read_bytes())
    refusals(name, path, flat, work, suffix)


def refusals(name, path, flat, work, suffix):
    first = next(key for key, value in flat.items() if value.dtype.kind == "f" and value.ndim)
    value, rest = flat[first], {key: value for key, value in flat.items() if key != first}
    for code, arrays in [
        ("missing-tensors", rest),
        ("extra-tensors", flat | {"another": value}),
        ("shape-differs", rest | {first: value[..., None]}),
        ("dtype-differs", rest | {first: value.astype("i4")}),
    ]:
        if not arrays:
            continue
        np.savez(work / "bad.npz", **arrays)
        refused(code, "convert", work / "bad.npz", work / f"refused{suffix}", "--like", path)
        check(f"{name}: {code}: nothing is written", not (work / f"refused{suffix}").exists())


def names_of_keras(work):
    """Weights under the names that Keras shows are found, too."""
    for name in ("k2_dense.h5", "dense.h5", "k1_weights.h5"):
        path = made.ROOT / name
        run("convert", path, work / "shown.safetensors", "--names", "variable", "--force")
        found = safetensors.numpy.load_file(work / "shown.safetensors")
        want = [t["variable_name"] for t in listed(path)]
        check(f"{name}: names of Keras", set(found) == set(want))
        safetensors.numpy.save_file(found, work / "plain.safetensors")
        target = work / f"shown_{name}"
        run("convert", work / "plain.safetensors", target, "--like", path)
        same_models(f"{name}: by the names of Keras", name, target, path)


def code_is_found(work):
    """Layers with Python code, as both libraries save them."""
    for k, word in ((keras, "keras"), (tf_keras, "k2")):
        layers = [k.layers.Input((2,)), k.layers.Lambda(lambda x: x * 2, name="twice", output_shape=(2,)), k.layers.Dense(1)]
        model = k.Sequential(layers)
        for suffix in (".keras", ".h5"):
            path = work / f"lambda_{word}{suffix}"
            model.save(path)
            report = json.loads(run("scan", path, "--json", code=(1,)).stdout)
            codes = [f["code"] for file in report["files"] for f in file["findings"]]
            check(f"{path.name}: {codes}", "keras-lambda" in codes)
            # Written again, the code is still there and still found.
            again = work / f"again_{word}{suffix}"
            run("convert", path, again)
            report = json.loads(run("scan", again, "--json", code=(1,)).stdout)
            codes = [f["code"] for file in report["files"] for f in file["findings"]]
            check(f"{again.name}: {codes}", "keras-lambda" in codes)


def large(work):
    """A model whose names of layers exceed 64 KiB, which Keras splits, and whose configuration is long."""
    layers = [tf_keras.layers.Input((1,))] + [tf_keras.layers.Dense(1, name=f"{'layer' * 60}_{i}") for i in range(240)]
    model = tf_keras.Sequential(layers)
    path, target = work / "large.h5", work / "large_again.h5"
    model.save(path)
    run("convert", path, work / "large.safetensors")
    run("convert", work / "large.safetensors", target, "--like", path)
    same_members("large.h5", target, path)
    found = tf_keras.models.load_model(target)
    check("large.h5: weights", all(same(a, b) for a, b in zip(found.get_weights(), model.get_weights())))
    order = [t.get("variable_name") for t in listed(path)]
    check("large.h5: order", order == [w.name for w in model.weights])


with tempfile.TemporaryDirectory() as folder:
    for name in made.MODELS:
        work = Path(folder) / name
        work.mkdir()
        golden(name, made.ROOT / name)
        written(name, made.ROOT / name, work)
        shutil.rmtree(work)
    work = Path(folder)
    names_of_keras(work)
    code_is_found(work)
    large(work)
print(f"{passed + failed} checks, {failed} failures")
sys.exit(1 if failed else 0)
