"""Judge of edge lists: h5py and json read BigGraph's buckets and names, and every row of the written lists must have the same names.

    python judges/biggraph_edges.py WEIGHBRIDGE FIXTURES

FIXTURES is a folder with set1 and set2, such as testdata/biggraph. Needs numpy, h5py and pyarrow. Exit code 0: all rows agree.
"""

import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

counted = failures = 0


def check(what, good, note=""):
    global counted, failures
    counted += 1
    if not good:
        failures += 1
        print("FAIL", what, note)


def run(*args):
    return subprocess.run([binary, *map(str, args)], capture_output=True, text=True)


def texts(path):
    return json.loads(path.read_text("utf-8"))


def expected(edges, entities, config):
    """The rows of a folder: names of both sides and of the relation, and the weight where there is one."""
    kept = {}

    def names(kind, part):
        part = 0 if config["entities"][kind].get("num_partitions", 1) == 1 else part
        if (kind, part) not in kept:
            kept[kind, part] = texts(entities / f"entity_names_{kind}_{part}.json")
        return kept[kind, part]

    dynamic = config.get("dynamic_relations", False)
    relations = config["relations"]
    words = texts(entities / "dynamic_rel_names.json") if dynamic else [r["name"] for r in relations]
    rows = []
    for left, right in itertools.product(range(64), range(64)):
        path = edges / f"edges_{left}_{right}.h5"
        if not path.exists():
            continue
        with h5py.File(path, "r") as file:
            lhs, rel, rhs = (file[name][...].tolist() for name in ("lhs", "rel", "rhs"))
            weight = [file["weight"][...].tolist()] if "weight" in file else []
        for a, r, b, *w in zip(lhs, rel, rhs, *weight):
            kinds = relations[0 if dynamic else r]
            rows.append((names(kinds["lhs"], left)[a], words[r], names(kinds["rhs"], right)[b], *w))
    return rows


def lines(path, number):
    split = [line.split("\t") for line in path.read_text("utf-8").split("\n")]
    assert split.pop() == [""]
    return [(*row[:3], *map(number, row[3:])) for row in split]


def batches(path):
    if path.suffix == ".arrow":
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
    else:
        table = pq.read_table(path)
    return table.schema, list(zip(*(column.to_pylist() for column in table.columns)))


def compare(what, edges, entities, config, folder, number=int, text=True, *words):
    """All three forms of a folder, against its own files."""
    rows = expected(edges, entities, json.loads(config.read_text()))
    check(f"{what}: edges", len(rows) > 5)
    options = ["--config", config, "--entities", entities, "--force", *words]
    for name in ["edges.tsv"] * text + ["edges.parquet", "edges.arrow"]:
        target = folder / name
        done = run("convert", edges, target, *options)
        check(f"{what} {name}: exit code", done.returncode == 0 and "no-names" not in done.stderr, done.stderr)
        if name == "edges.tsv":
            # White space separates the fields for BigGraph's own importer.
            check(f"{what} {name}: fields", all(len(line.split()) == len(rows[0]) for line in open(target, encoding="utf-8")))
            found = lines(target, number)
        else:
            schema, found = batches(target)
            check(f"{what} {name}: columns", schema.names == ["lhs", "rel", "rhs", "weight"][: len(rows[0])])
            check(f"{what} {name}: types", all(pa.types.is_string(field.type) for field in list(schema)[:3]))
        check(f"{what} {name}: {len(rows)} rows", found == rows)


def own(folder, shift, weights, dtype):
    """Folders of a graph with two types, three partitions of one, and odd columns; names by `shift`."""
    dice = np.random.default_rng(5)
    edges, entities = folder / "edges", folder / "entities"
    edges.mkdir(parents=True)
    entities.mkdir()
    counts = {"u": [70, 0, 90], "c": [11]}
    for kind, parts in counts.items():
        for part, count in enumerate(parts):
            (entities / f"entity_count_{kind}_{part}.txt").write_text(f"{count}\n")
            names = [shift(f"{kind}{part}/{row}") for row in range(count)]
            (entities / f"entity_names_{kind}_{part}.json").write_text(json.dumps(names, indent=4))
    relations = [{"name": "knows", "lhs": "u", "rhs": "u", "operator": "none"}, {"name": "in", "lhs": "u", "rhs": "c", "operator": "none"}]
    config = {
        "entities": {"u": {"num_partitions": 3}, "c": {"num_partitions": 1}},
        "relations": relations, "dimension": 4, "entity_path": "entities", "edge_paths": ["edges"], "checkpoint_path": "model",
    }
    (folder / "config.json").write_text(json.dumps(config))
    for left, right in itertools.product(range(3), range(3)):
        n = int(dice.integers(1, 3000)) if counts["u"][left] and counts["u"][right] else 0
        rel = dice.integers(0, 2, n)
        rhs = np.where(rel == 0, dice.integers(0, max(counts["u"][right], 1), n), dice.integers(0, 11, n))
        with h5py.File(edges / f"edges_{left}_{right}.h5", "w") as file:
            file.attrs["format_version"] = 1
            file.create_dataset("lhs", data=dice.integers(0, max(counts["u"][left], 1), n).astype(dtype))
            file.create_dataset("rhs", data=rhs.astype(">i4"))
            file.create_dataset("rel", data=rel.astype("u1"), compression="gzip" if n else None)
            if weights is not None:
                file.create_dataset("weight", data=dice.normal(size=n).astype(weights))
    return edges, entities, folder / "config.json"


binary, fixtures = sys.argv[1], pathlib.Path(sys.argv[2])
with tempfile.TemporaryDirectory() as place:
    place = pathlib.Path(place)
    for number in ("set1", "set2"):
        golden = fixtures / number
        for graph, edges, checkpoint in [
            ("std", "edges", "ckpt_std_zip"),
            ("dyn", "train", "ckpt_dyn_affine"),
            ("dyn", "valid", "ckpt_dyn_affine"),
            ("weighted", "edges", "ckpt_weighted"),
        ]:
            config = golden / checkpoint / "config.json"
            compare(f"{number} {graph}/{edges}", golden / graph / edges, golden / graph / "entities", config, place)
        done = run("convert", golden / "feat/edges", place / "feat.tsv", "--config", golden / "ckpt_feat/config.json")
        check(f"{number} feat: refused", done.returncode == 2 and "featurised-edges" in done.stderr, done.stderr)
    made = own(place / "made", str, "f8", "i8")
    compare("float weights", *made, place, float)
    compare("one thread", *made, place, float, True, "--threads", "1", "--memory", "16MiB")
    compare("f32 weights", *own(place / "f32", lambda name: name + "é€😀", "f4", "u2"), place, lambda text: float(np.float32(text)))
    compare("no weights", *own(place / "none", str, None, "i4"), place)
    # Names that only columns of text can hold.
    made = own(place / "blanks", lambda name: f" {name}\t\n\u3000", None, "i8")
    compare("white space", *made, place, int, False)
    done = run("convert", made[0], place / "blanks.tsv", "--config", made[2], "--entities", made[1])
    check("white space: refused", done.returncode == 2 and "name-separates" in done.stderr and not (place / "blanks.tsv").exists())

print(f"{counted} checks, {failures} failures")
sys.exit(bool(failures))
