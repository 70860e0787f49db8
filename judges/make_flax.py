"""Golden files of Flax and Orbax, written by these libraries: testdata/flax, testdata/orbax.

    python judges/make_flax.py

Needs: judges/flax.txt. `expected.json` has what the libraries read: dtype, shape and elements of every array, and plain values.
"""
import hashlib
import json
import pathlib
import shutil

import flax.linen as nn
import flax.serialization as fs
import jax
import jax.numpy as jnp
import ml_dtypes
import msgpack
import numpy as np
import optax
import orbax.checkpoint as ocp
import tensorstore as ts
from flax import nnx
from flax.training import checkpoints, train_state

ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata"
DTYPES = {
    "bool": "bool", "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32", "uint64": "u64",
    "int64": "i64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128",
    "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2", "float8_e8m0fnu": "f8_e8m0", "float8_e4m3fnuz": "f8_e4m3fnuz",
    "float8_e5m2fnuz": "f8_e5m2fnuz",
}
UNSUPPORTED = ["int4", "uint4", "float8_e4m3b11fnuz", "float8_e3m4", "float8_e4m3", "float4_e2m1fn"]


def bits(dtype, shape, seed=1):
    """Elements of any bits: NaN payloads, infinities, subnormals."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    data = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    if np.dtype(dtype) == bool:
        data &= 1
    return np.frombuffer(data.tobytes(), dtype).reshape(shape)


def entry(array):
    array = np.asarray(array)
    array = array.astype(array.dtype.newbyteorder("<"))
    return {"dtype": DTYPES[array.dtype.name], "shape": list(array.shape), "sha256": hashlib.sha256(array.tobytes("C")).hexdigest()}


def leaves(tree, path=()):
    """Paths and leaves of nested maps and lists; empty ones are leaves."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, (list, tuple)) else None
    if items is None or len(tree) == 0:
        yield path, tree
        return
    if isinstance(tree, (list, tuple)) and not has_arrays(tree):
        yield path, tree
        return
    for key, value in items:
        yield from leaves(value, (*path, str(key)))


def has_arrays(x):
    if isinstance(x, (dict, list, tuple)):
        return any(has_arrays(y) for y in (x.values() if isinstance(x, dict) else x))
    return is_array(x)


def is_array(x):
    return isinstance(x, (np.ndarray, np.generic, jax.Array))


def name(path):
    dotted = ".".join(path)
    plain = list(path) == dotted.split(".") and path and not dotted.startswith("[")
    return dotted if plain else json.dumps(list(path), separators=(",", ":"), ensure_ascii=False)


def expected(tree):
    """Arrays by display name, and the names of those that cannot be read."""
    arrays, skipped = {}, []
    for path, leaf in leaves(tree):
        if is_array(leaf):
            if np.asarray(leaf).dtype.name in DTYPES:
                arrays[name(path) if path else "value"] = entry(leaf)
            else:
                skipped.append(".".join(path))
    values = {name(path): plain(leaf) for path, leaf in leaves(tree) if not is_array(leaf)}
    return {"tensors": arrays, "skipped": skipped, "values": values}


def plain(x):
    if isinstance(x, bytes):
        return {"hex": x.hex()}
    if isinstance(x, msgpack.ExtType):
        return {"hex": x.data.hex()}
    if isinstance(x, float) and not np.isfinite(x):
        return str(x)
    if isinstance(x, complex):
        return [x.real, x.imag]
    return x


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.Embed(5, 4)(x)
        x = nn.Dense(6)(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        return nn.Dense(2, param_dtype=jnp.bfloat16)(x)


class State(train_state.TrainState):
    batch_stats: dict


def trained(tx):
    net = Net()
    variables = net.init(jax.random.key(0), jnp.zeros((2, 3), jnp.int32))
    state = State.create(apply_fn=net.apply, params=variables["params"], tx=tx, batch_stats=variables["batch_stats"])
    grads = jax.tree.map(jnp.ones_like, state.params)
    return state.apply_gradients(grads=grads).apply_gradients(grads=grads)


def chunked(tree, most):
    """As Flax writes arrays above 1 GiB, with a smaller bound."""
    before, fs.MAX_CHUNK_SIZE = fs.MAX_CHUNK_SIZE, most
    try:
        return fs.msgpack_serialize(tree)
    finally:
        fs.MAX_CHUNK_SIZE = before


def flax_files():
    rng = np.random.default_rng(7)
    variables = Net().init(jax.random.key(3), jnp.zeros((2, 3), jnp.int32))
    yield "params", fs.to_bytes(variables["params"])
    yield "variables", fs.to_bytes(variables)
    yield "adam", fs.to_bytes(trained(optax.adam(1e-3)))
    yield "adamw_chain", fs.to_bytes(trained(optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.constant_schedule(1e-3)))))
    yield "momentum", fs.to_bytes(trained(optax.sgd(1e-2, momentum=0.9)))
    yield "adafactor", fs.to_bytes(trained(optax.adafactor(1e-2, min_dim_size_to_factor=2)))
    yield "multi_transform", fs.to_bytes(trained(optax.multi_transform({"a": optax.adam(1e-3), "b": optax.set_to_zero()}, lambda p: {k: "a" if "Dense" in k else "b" for k in p})))
    yield "every_dtype", fs.to_bytes({name: bits(name, (2, 3)) for name in DTYPES})
    yield "unsupported_dtypes", fs.to_bytes({"w": np.ones(2, "f4"), **{name: np.ones((2, 3), name) for name in UNSUPPORTED}, "text": np.array(["ab", "c"])})
    yield "scalars", fs.to_bytes({"zero_d": np.array(1.5, "f4"), "numpy": np.float32(2.5), "bf16": ml_dtypes.bfloat16(3), "numpy_bool": np.bool_(True), "i": np.int64(-3)})
    yield "values", fs.msgpack_serialize({
        "w": np.arange(3, dtype="i4"), "none": None, "yes": True, "no": False, "ints": {str(n): n for n in [0, 127, 128, 65536, 2**32, 2**64 - 1, -1, -32, -33, -129, -2**31, -2**63]},
        "f": 0.1, "nan": float("inf"), "text": "naïve", "long": "x" * 300, "bytes": b"\x00\xff" * 20, "complex": 1.5 - 2j, "list": [1, "a", [2.5, None], {"k": 1}], "empty": {}, "empty_list": []})
    yield "order", fs.to_bytes({"z": np.zeros(1, "f4"), "b": 1, "a": np.ones(2, "f4"), "m": {}, "c": {"y": 2, "x": np.zeros(3, "i2"), "w": {}}, "last": "text"})
    yield "list_of_arrays", fs.msgpack_serialize({"layers": [np.ones(2, "f4"), {"w": np.zeros(3, "f4"), "n": 1}, [np.arange(2)]], "n": 4})
    yield "odd_names", fs.to_bytes({"a.b": np.ones(1, "f4"), "": np.ones(2, "f4"), "a": {"c": np.ones(3, "f4")}, "größe/x": np.ones(4, "f4"), "[0]": 5, "0": {"1": np.ones(5, "f4")}})
    yield "empty_arrays", fs.to_bytes({"a": np.zeros((0, 3), "f4"), "b": np.zeros((2, 0), "i8"), "c": np.ones(1, "u1")})
    yield "bare_array", fs.to_bytes(np.arange(6, dtype="f4").reshape(2, 3))
    yield "bare_scalar", fs.to_bytes(np.float64(2.5))
    yield "chunked", chunked({"a": rng.standard_normal((5, 7)).astype("f4"), "b": {"c": bits("bfloat16", (40,)), "small": np.ones(3, "f4")}}, 64)
    yield "chunked_odd", chunked({"a": bits("float16", (3, 3, 3)), "z": np.zeros(1, "i1")}, 22)
    yield "many_keys", fs.to_bytes({f"k{i:03}": np.full(1, i, "i4") for i in range(300)})
    yield "fortran", fs.to_bytes({"f": np.asfortranarray(np.arange(12, dtype="f4").reshape(3, 4)), "t": np.arange(12.0).reshape(3, 4).T})
    yield "ranks", fs.to_bytes({str(r): np.arange(2**r, dtype="i4").reshape([2] * r) for r in range(10)})
    yield "optim", fs.to_bytes({"target": {"Dense_0": {"kernel": np.ones((2, 3), "f4"), "bias": np.ones(3, "f4")}}, "state": {"step": np.int32(4), "param_states": {
        "Dense_0": {k: {s: np.full(a, .5, "f4") for s in ("grad_ema", "grad_sq_ema")} for k, a in (("kernel", (2, 3)), ("bias", 3))}}}})
    yield "extension", msgpack.packb({"w": msgpack.ExtType(1, fs._ndarray_to_bytes(np.ones(2, "f4"))), "own": msgpack.ExtType(42, b"abc")})


def sharded(folder):
    """Shards with an index, as transformers wrote them."""
    folder.mkdir(parents=True)
    tree = {"model": {"embed": {"embedding": np.arange(20, dtype="f4").reshape(5, 4)}, "layers": {"0": {"kernel": bits("bfloat16", (4, 4)), "bias": np.ones(4, "f4")}}}, "head": {"kernel": np.ones((4, 2), "f4")}}
    parts = [{"model": {"embed": tree["model"]["embed"]}}, {"head": tree["head"], "model": {"layers": tree["model"]["layers"]}}]
    weights = {}
    for number, part in enumerate(parts, 1):
        file = f"flax_model-{number:05}-of-00002.msgpack"
        (folder / file).write_bytes(fs.to_bytes(part))
        weights.update({"/".join(path): file for path, _ in leaves(part)})
    total = sum(leaf.nbytes for _, leaf in leaves(tree))
    (folder / "flax_model.msgpack.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weights}, indent=2, sort_keys=True) + "\n")
    return tree


def make_flax():
    good = ROOT / "flax" / "good"
    shutil.rmtree(good, ignore_errors=True)
    good.mkdir(parents=True)
    all_expected = {}
    for name, data in flax_files():
        path = good / f"{name}.msgpack"
        path.write_bytes(data)
        all_expected[path.name] = expected(restore(data))
    bad = ROOT / "flax" / "bad"
    shutil.rmtree(bad, ignore_errors=True)
    bad.mkdir(parents=True)
    for name, data in bad_files():
        (bad / f"{name}.msgpack").write_bytes(data)
    all_expected["sharded"] = expected(sharded(good / "sharded"))
    checkpoints.save_checkpoint(str(good), {"w": np.ones(2, "f4"), "step": 5}, 5, prefix="legacy_", overwrite=True)
    made = good / "legacy_5"
    if made.is_dir():
        # With Orbax as a backend: as Flax wrote it before.
        shutil.rmtree(made)
        made.write_bytes(fs.to_bytes({"w": np.ones(2, "f4"), "step": 5}))
    all_expected[made.name] = expected(restore(made.read_bytes()))
    write(ROOT / "flax" / "expected.json", all_expected)


def restore(data):
    """As flax.serialization.msgpack_restore, also for texts as elements, which it cannot read."""
    try:
        return fs.msgpack_restore(data)
    except TypeError:
        tree = msgpack.unpackb(data, strict_map_key=False)
        for key, leaf in tree.items():
            shape, dtype, buffer = msgpack.unpackb(leaf.data)
            tree[key] = np.frombuffer(buffer, "S8" if dtype.startswith("str") else dtype).reshape(shape if not dtype.startswith("str") else -1)
        return tree


def write(path, document):
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def bad_files():
    """Malformed trees, one fault each."""
    array = lambda *parts: msgpack.ExtType(1, msgpack.packb(parts, use_bin_type=True))
    pack = lambda tree: msgpack.packb(tree, strict_types=False)
    w = fs._ndarray_to_bytes(np.ones((2, 3), "f4"))
    good = pack({"params": {"b": msgpack.ExtType(1, fs._ndarray_to_bytes(np.zeros(2, "f4"))), "w": msgpack.ExtType(1, w)}})
    one = lambda n, dtype="float32": array((n,), dtype, np.ones(n, dtype).tobytes())
    yield "bytes-after-the-tree", good + b"\0"
    yield "truncated", good[:-5]
    yield "duplicate-key", b"\x81\xa1a\x82\xa1b\x01\xa1b\x02"
    yield "key-is-a-number", b"\x81\xa1a\x81\x01\x02"
    yield "length-of-another-shape", pack({"a": {"w": array((2, 4), "float32", bytes(24))}})
    yield "shape-overflow", pack({"w": array((2**32, 2**32), "float32", bytes(16))})
    yield "two-items", pack({"w": array((2,), "float32")})
    yield "negative-dimension", pack({"w": array((-2,), "float32", bytes(8))})
    yield "extension-longer-than-its-array", pack({"w": msgpack.ExtType(1, w + b"\0")})
    key = "__msgpack_chunked_array__"
    yield "chunks-of-two-dtypes", pack({"w": {key: True, "shape": {"0": 4}, "chunks": {"0": one(2), "1": one(2, "int32")}}})
    yield "chunks-of-another-length", pack({"w": {key: True, "shape": {"0": 5}, "chunks": {"0": one(2), "1": one(2)}}})
    yield "chunked-key-second", pack({"w": {"shape": {"0": 4}, key: True, "chunks": {"0": one(4)}}})
    yield "nested", b"\x81\xa1a" * 300 + b"\x01"
    yield "text-not-utf8", b"\x81\xa1a\xa2\xff\xfe"
    yield "complex", pack({"c": msgpack.ExtType(2, msgpack.packb((1, 2)))})


def orbax_trees():
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a", "b"))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(("a", "b")))
    state = trained(optax.adam(1e-3))
    small = {"params": {"Dense_0": {"kernel": np.arange(12, dtype="f4").reshape(3, 4), "bias": np.zeros(4, "f4")}}, "step": 3, "lr": 0.5, "name": "abc", "empty": {}, "none": None, "list": [jnp.ones(2, jnp.bfloat16), jnp.int32(5)]}
    types = {name: jnp.asarray(bits(name, (2, 3))) for name in DTYPES if name not in ("float64", "int64", "uint64", "complex128", "float8_e8m0fnu")}
    wide = {name: bits(name, (2, 3)) for name in ("float64", "int64", "uint64", "complex128", "complex64", "float16", "bool")}
    parts = {"w": jax.device_put(jnp.arange(48, dtype="float32").reshape(8, 6), split), "v": jax.device_put(jnp.arange(64, dtype="int32"), rows), "one": jnp.ones(3)}
    large = {"w": np.random.default_rng(0).integers(0, 9, (60, 70)).astype("i4"), "zeros": np.zeros((100, 100), "f4")}
    yield "small", small, {}
    yield "small_zarr", small, {"use_ocdbt": False}
    yield "small_zarr3", small, {"use_zarr3": True}
    yield "small_zarr3_folders", small, {"use_zarr3": True, "use_ocdbt": False}
    yield "state", state_tree(state), {}
    yield "types", types, {}
    yield "types_zarr3", {k: v for k, v in types.items() if k not in ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3fn", "float8_e5m2")}, {"use_zarr3": True}
    yield "wide_types_zarr", wide, {"use_ocdbt": False}
    yield "sharded", parts, {}
    yield "sharded_zarr", parts, {"use_ocdbt": False}
    yield "sharded_zarr3", parts, {"use_zarr3": True}
    yield "large", large, {}
    yield "many", {f"layer_{i:03}": {"kernel": np.full((2, 2), i, "f4"), "bias": np.full(2, i, "f4")} for i in range(100)}, {}
    yield "nnx", nnx.to_pure_dict(nnx.state(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))), {}


def state_tree(state):
    return {"step": state.step, "params": state.params, "batch_stats": state.batch_stats, "opt_state": state.opt_state}


def save(path, tree, chunk=None, **options):
    shutil.rmtree(path, ignore_errors=True)
    handler = ocp.PyTreeCheckpointHandler(**options)
    with ocp.Checkpointer(handler) as checkpointer:
        args = {} if chunk is None else {"save_args": jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=chunk), tree)}
        checkpointer.save(path, tree, **args)


def load(path):
    """What Orbax reads, as numpy."""
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        meta = checkpointer.metadata(path)
        tree = getattr(meta, "item_metadata", meta)
        tree = getattr(tree, "tree", tree)
        args = jax.tree.map(lambda leaf: ocp.RestoreArgs(restore_type=str if "String" in type(leaf).__name__ else np.ndarray), tree)
        return checkpointer.restore(path, restore_args=args)


def fixed(tree):
    """Strings and scalars as Orbax stores them: scalars are arrays."""
    if isinstance(tree, dict):
        return {k: fixed(v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [fixed(v) for v in tree]
    return np.asarray(tree) if isinstance(tree, (int, float)) and not isinstance(tree, bool) else tree


def manager(path):
    """A folder of one step, and one of several."""
    tree = {"w": np.arange(4, dtype="f4"), "b": {"c": np.ones(2, "i4")}}
    for folder, steps in ((path / "one_step", [7]), (path / "two_steps", [1, 20])):
        shutil.rmtree(folder, ignore_errors=True)
        with ocp.CheckpointManager(folder) as saved:
            for step in steps:
                saved.save(step, args=ocp.args.StandardSave(jax.tree.map(lambda x: x + step, tree)))
            saved.wait_until_finished()
    folder = path / "items"
    shutil.rmtree(folder, ignore_errors=True)
    with ocp.CheckpointManager(folder) as saved:
        saved.save(3, args=ocp.args.Composite(params=ocp.args.StandardSave(tree), extra=ocp.args.StandardSave({"x": np.zeros(2)}), about=ocp.args.JsonSave({"a": 1})))
        saved.wait_until_finished()
    return {"one_step": jax.tree.map(lambda x: x + 7, tree), "items": {"params": tree, "extra": {"x": np.zeros(2)}}}


def by_tensorstore(path):
    """Stores that TensorStore writes with other options: trees of several levels, no compression, other orders and codecs."""
    made = {}

    def store(name, kvstore, arrays, driver="zarr", **metadata):
        folder = path / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for key, (array, chunks, more) in arrays.items():
            if kvstore == "ocdbt":
                base = {"driver": "ocdbt", "base": f"file://{folder}", "path": f"{key}/", "config": metadata["config"]}
            else:
                base = {"driver": "file", "path": f"{folder}/{key}/"}
            own = {"shape": list(array.shape), **({"chunks": chunks} if driver == "zarr" else {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}}}), **more}
            spec = {"driver": driver, "kvstore": base, "metadata": own, "create": True, "delete_existing": True, "store_data_equal_to_fill_value": metadata.get("fill", False)}
            array_store = ts.open(spec, dtype=ts.dtype(array.dtype)).result()
            array_store.write(array).result()
        if kvstore == "file":
            # Old checkpoints: the tree in one file, with placeholders.
            tree = {}
            for key in arrays:
                at = tree
                *parents, last = key.split(".")
                for part in parents:
                    at = at.setdefault(part, {})
                at[last] = f"PLACEHOLDER://{key}"
            tree["inline"] = np.arange(3, dtype="f4")
            tree["n"] = 2
            (folder / "checkpoint").write_bytes(fs.msgpack_serialize(tree))
        nested = {}
        for key, (array, _, _) in arrays.items():
            at = nested
            *parents, last = key.split(".")
            for part in parents:
                at = at.setdefault(part, {})
            at[last] = array
        if kvstore == "file":
            nested |= {"inline": np.arange(3, dtype="f4"), "n": 2}
        made[name] = nested

    rng = np.random.default_rng(5)
    w = rng.standard_normal((7, 5)).astype("f4")
    holes = np.zeros((6, 6), "f4")
    holes[0, 0] = 1
    plain = {"compressor": None}
    zstd = {"compressor": {"id": "zstd", "level": 1}}
    store("tree_of_levels", "ocdbt", {f"block_{i:02}.w": (w + i, [7, 5], zstd) for i in range(40)}, config={"max_decoded_node_bytes": 700, "max_inline_value_bytes": 32})
    store("uncompressed_nodes", "ocdbt", {"a.w": (w, [3, 2], plain), "a.b": (w[0], [5], plain)}, config={"compression": None, "max_inline_value_bytes": 0})
    store("inline", "ocdbt", {"a.w": (w, [3, 2], plain), "s": (np.array(4, "i8"), [], zstd)}, config={"max_inline_value_bytes": 1000})
    store("aggregate", "file", {"params.w": (w, [7, 5], {"compressor": {"id": "gzip", "level": 5}}), "params.f": (w, [4, 3], {**zstd, "order": "F"}), "params.h": (holes, [2, 2], plain),
                                "params.big_endian": (w.astype(">f4"), [3, 5], {**plain, "dtype": ">f4"}), "params.fill": (np.full((4, 4), 2.5, "f4"), [2, 2], {**zstd, "dtype": "<f4", "fill_value": 2.5})})
    shard = lambda inner, codecs: {"codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": inner, "codecs": codecs, "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]}}], "data_type": "float32"}
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    store("zarr3_codecs", "ocdbt", {
        "plain": (w, [3, 5], {"codecs": [little], "data_type": "float32"}), "big": (w, [3, 2], {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}], "data_type": "float32"}),
        "shards": (w, [4, 6], shard([2, 3], [little])), "packed": (w, [4, 6], shard([2, 3], [little, {"name": "zstd", "configuration": {"level": 3}}])), "holes": (holes, [4, 4], shard([2, 2], [little])),
        "gzip": (w, [7, 5], {"codecs": [little, {"name": "gzip", "configuration": {"level": 6}}], "data_type": "float32"}),
        "transposed": (w, [7, 5], {"codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, little], "data_type": "float32"})}, driver="zarr3", config={})
    return made


def make_orbax():
    good = ROOT / "orbax" / "good"
    shutil.rmtree(good, ignore_errors=True)
    good.mkdir(parents=True)
    all_expected = {}
    for name, tree, options in orbax_trees():
        save(good / name, tree, chunk=20_000 if name == "large" else None, **options)
        all_expected[name] = expected(fixed(load(good / name)))
    for name, tree in manager(good).items():
        all_expected[name] = expected(fixed(tree))
    for name, tree in by_tensorstore(good).items():
        all_expected[name] = expected(tree)
        if name == "zarr3_codecs":
            del all_expected[name]["tensors"]["transposed"]
            all_expected[name]["skipped"] = ["transposed"]
    write(ROOT / "orbax" / "expected.json", all_expected)


if __name__ == "__main__":
    make_flax()
    make_orbax()
