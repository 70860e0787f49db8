"""usearch judges `index`: its Python package loads the files, and finds the neighbors of numpy.

    python judges/biggraph_index.py WEIGHBRIDGE

WEIGHBRIDGE is built with the feature `usearch`. Needs usearch, numpy and h5py. Exit code 0: all agree.
"""

import json
import os
import subprocess
import sys
import tempfile

import h5py
import numpy as np
from usearch.index import Index

ROWS, COLUMNS, PARTS = 20_000, 64, (9_000, 11_000)
QUERIES, COUNT = 1000, 10
RECALL = 0.95
checks = failures = 0


def check(what, good, note=""):
    global checks, failures
    checks += 1
    if not good:
        failures += 1
        print("FAIL", what, note)


def run(*arguments, code=0):
    done = subprocess.run([binary, *map(str, arguments), "--json"], capture_output=True, text=True)
    if done.returncode != code:
        sys.exit(f"{' '.join(map(str, arguments))}: {done.returncode}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def clustered(random):
    """Rows around 200 centres, of different lengths."""
    centres = random.normal(size=(200, COLUMNS))
    rows = centres[random.integers(200, size=ROWS)] + 0.5 * random.normal(size=(ROWS, COLUMNS))
    return (rows * random.uniform(0.5, 1.5, size=(ROWS, 1))).astype(np.float32)


def checkpoint(folder, rows, comparator, bias=False, shift=None):
    """A checkpoint of one type in two partitions, with names."""
    names = [f"user {row} \u00fc" for row in range(ROWS)]
    os.makedirs(os.path.join(folder, "entities"))
    model = os.path.join(folder, "model")
    os.makedirs(model)
    config = dict(
        entities={"user": {"num_partitions": 2}}, dimension=rows.shape[1], comparator=comparator, bias=bias,
        relations=[dict(name="follows", lhs="user", rhs="user", operator="none")], global_emb=shift is not None,
        entity_path="../entities", edge_paths=[], checkpoint_path=".",
    )
    with open(os.path.join(model, "config.json"), "w") as file:
        json.dump(config, file)
    with open(os.path.join(model, "checkpoint_version.txt"), "w") as file:
        file.write("1\n")
    start = 0
    for part, count in enumerate(PARTS):
        with open(os.path.join(folder, "entities", f"entity_count_user_{part}.txt"), "w") as file:
            file.write(f"{count}\n")
        with open(os.path.join(folder, "entities", f"entity_names_user_{part}.json"), "w") as file:
            json.dump(names[start:start + count], file)
        with h5py.File(os.path.join(model, f"embeddings_user_{part}.v1.h5"), "w") as file:
            file.attrs["format_version"] = 1
            file["embeddings"] = rows[start:start + count]
        start += count
    with h5py.File(os.path.join(model, "model.v1.h5"), "w") as file:
        file.attrs["format_version"] = 1
        group = file.create_group("model")
        if shift is not None:
            group["entities/user/global_embedding"] = shift
    return model, names


def nearest(rows, queries, comparator):
    """The rows nearest to each query, and their distances as usearch defines them."""
    rows, queries = rows.astype(np.float64), queries.astype(np.float64)
    if comparator == "cos":
        rows, queries = (own / np.linalg.norm(own, axis=1, keepdims=True) for own in (rows, queries))
    products = queries @ rows.T
    if comparator == "l2":
        distances = (queries**2).sum(1)[:, None] - 2 * products + (rows**2).sum(1)
    else:
        distances = 1 - products
    return np.argsort(distances, axis=1)[:, :COUNT], distances


def judge(what, folder, rows, comparator, tolerance=1e-3):
    """Compares the neighbors of 1,000 rows with those of numpy."""
    index = Index.restore(os.path.join(folder, "index.usearch"))
    if index.dtype.name == "I8":
        # usearch cuts the elements of unit vectors to multiples of 1/127. The neighbors are those of such rows.
        rows = np.trunc(127 * rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    check(f"{what}: size", len(index) == ROWS and index.ndim == rows.shape[1], f"{len(index)} x {index.ndim}")
    picked = np.random.default_rng(3).choice(ROWS, QUERIES, replace=False)
    found = index.search(rows[picked], COUNT)
    truth, distances = nearest(rows, rows[picked], comparator)
    keys = found.keys.astype(np.int64)
    recall = np.mean([len(set(own) & set(true)) for own, true in zip(keys.tolist(), truth.tolist())]) / COUNT
    check(f"{what}: recall", recall >= RECALL, recall)
    # A key is the number of the row with that distance.
    own = np.take_along_axis(distances, keys, 1)
    scale = np.abs(own).max()
    check(f"{what}: distances", np.allclose(found.distances, own, rtol=tolerance, atol=tolerance * scale))
    print(f"{what}: recall@{COUNT} {recall:.4f}")


def main(out):
    random = np.random.default_rng(11)
    rows = clustered(random)
    shift = random.normal(size=COLUMNS).astype(np.float32)
    for comparator in ("cos", "l2", "dot"):
        folder = os.path.join(out, comparator)
        model, names = checkpoint(folder, rows, comparator, shift=shift if comparator == "l2" else None)
        target = os.path.join(folder, "index")
        report = run("index", model, "user", "-o", target)
        check(f"{comparator}: trained comparator", report["comparator"] == comparator and report["names"], report)
        own = rows + shift if comparator == "l2" else rows
        judge(comparator, target, own, comparator)
        with open(os.path.join(target, "names.json"), encoding="utf-8") as file:
            check(f"{comparator}: names", json.load(file) == names)
    before = sorted(os.listdir(target))
    check("an index is not replaced", run("index", model, "user", "-o", target, code=2)["error"]["code"] == "exists")
    run("index", model, "-o", target, "--by", "cos", "--dtype", "i8", "--force")
    judge("cos i8", target, rows, "cos", tolerance=2e-2)
    run("index", model, "-o", target, "--dtype", "f16", "--force")
    judge("dot f16", target, rows, "dot", tolerance=1e-2)
    check("the folder has the same files", sorted(os.listdir(target)) == before, os.listdir(target))
    # The bias is the first column: without a comparator, an index would silently ignore it.
    model, _ = checkpoint(os.path.join(out, "bias"), rows, "dot", bias=True)
    target = os.path.join(out, "bias", "index")
    check("a bias is refused", run("index", model, "-o", target, code=2)["error"]["code"] == "bias")
    report = run("index", model, "-o", target, "--by", "dot")
    check("a bias is noted", [note["code"] for note in report["notes"]] == ["bias-omitted"], report)
    judge("without bias", target, np.ascontiguousarray(rows[:, 1:]), "dot")
    # A table without names.
    path = os.path.join(out, "rows.npy")
    np.save(path, rows.astype(np.float64))
    target = os.path.join(out, "plain")
    report = run("index", path, "-o", target)
    check("no names", not report["names"] and os.listdir(target) == ["index.usearch"], report)
    judge("npy", target, rows, "cos")
    rows[7, 3] = np.nan
    np.save(path, rows)
    failed = run("index", path, "-o", os.path.join(out, "nan"), code=2)["error"]
    check("NaN is refused", failed["code"] == "not-finite" and "row 7" in failed["message"], failed)
    rows[7, 3] = 1e5
    np.save(path, rows)
    failed = run("index", path, "-o", os.path.join(out, "nan"), "--dtype", "f16", code=2)["error"]
    check("numbers beyond f16 are refused", failed["code"] == "not-finite", failed)
    failed = run("index", path, "-o", os.path.join(out, "nan"), "--dtype", "i8", "--by", "l2", code=2)["error"]
    check("i8 keeps no lengths", failed["code"] == "dtype", failed)
    failed = run("index", path, "-o", os.path.join(out, "nan"), "--memory", "10MiB", code=2)["error"]
    check("memory", failed["code"] == "too-little-memory" and not os.path.exists(os.path.join(out, "nan")), failed)


if __name__ == "__main__":
    binary = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as out:
        main(out)
    print(f"{checks} checks, {failures} failures")
    sys.exit(1 if failures else 0)
