"""PyTorch-BigGraph judges imported folders: its own importer makes the same, and it trains on them.

    python judges/biggraph_import.py WEIGHBRIDGE FIXTURES

FIXTURES is a folder with set1/input, such as testdata/biggraph. Runs with the release on PyPI (torchbiggraph 1.0.0), torch 2.2,
h5py 3, and pyarrow 19 (for numpy 1), which writes the edges as tables. Exit code 0: upstream agrees with everything.
"""

import collections
import gzip
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import h5py
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
from torchbiggraph import graph_storages
from torchbiggraph.config import EntitySchema, RelationSchema, parse_config
from torchbiggraph.converters.import_from_tsv import convert_input_data
from torchbiggraph.train import train

counted = failures = 0


def check(what, good, note=""):
    global counted, failures
    counted += 1
    if not good:
        failures += 1
        print("FAIL", what, str(note)[:600])


def ours(config, inputs, out, *options):
    path = out.with_suffix(".json")
    path.write_text(json.dumps(config))
    command = [binary, "import", *map(str, inputs), "--config", str(path), "-o", str(out), "--no-sync", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        check(" ".join(command), False, done.stderr)
        return None
    return out


def theirs(config, inputs, out, seed, entity_min=1, relation_min=1):
    """Upstream's importer. Its paths are those of the configuration below `out`."""
    random.seed(seed)
    convert_input_data(
        {name: EntitySchema.from_dict(kind) for name, kind in config["entities"].items()},
        [RelationSchema.from_dict(relation) for relation in config["relations"]],
        str(out / "names"),
        [str(out / pathlib.Path(path).name) for path in config["edge_paths"]],
        inputs,
        lhs_col=0,
        rel_col=1,
        rhs_col=2,
        entity_min_count=entity_min,
        relation_type_min_count=relation_min,
        dynamic_relations=config.get("dynamic_relations", False),
    )
    return out


def columns(path):
    with h5py.File(path) as file:
        assert file.attrs["format_version"] == 1
        return {name: dataset[...].tolist() for name, dataset in file.items()}


def files(folder):
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def same_files(what, one, other):
    """Equal names of files, equal texts, equal columns. The release writes the names of static relations nowhere."""
    one, other = files(one), files(other)
    one.pop("names/dynamic_rel_names.json") if "names/dynamic_rel_names.json" not in other else None
    check(f"{what}: files", list(one) == list(other), set(one) ^ set(other))
    for name in set(one) & set(other):
        if name.endswith(".h5"):
            check(f"{what}: {name}", columns(one[name]) == columns(other[name]))
        else:
            check(f"{what}: {name}", one[name].read_bytes() == other[name].read_bytes())


def graph(config, folder):
    """The edges of each set as names, and the names of each type; counts and partitions are checked."""
    names = {}
    for entity, kind in config["entities"].items():
        names[entity] = []
        for part in range(kind["num_partitions"]):
            own = json.loads((folder / f"names/entity_names_{entity}_{part}.json").read_text())
            count = int((folder / f"names/entity_count_{entity}_{part}.txt").read_text())
            check(f"{folder}: {entity} {part}", count == len(own))
            names[entity].append(own)
    dynamic = config.get("dynamic_relations", False)
    relations = [relation["name"] for relation in config["relations"]]
    if dynamic:
        relations = json.loads((folder / "names/dynamic_rel_names.json").read_text())
        check(f"{folder}: relations", int((folder / "names/dynamic_rel_count.txt").read_text()) == len(relations))
    sets = {}
    for path in config["edge_paths"]:
        edges = []
        for file in sorted((folder / pathlib.Path(path).name).iterdir()):
            left, right = map(int, file.stem.split("_")[1:])
            own = columns(file)
            for at, rel in enumerate(own["rel"]):
                relation = config["relations"][0 if dynamic else rel]
                ends = []
                for side, part in (("lhs", left), ("rhs", right)):
                    parts = names[relation[side]]
                    if config["entities"][relation[side]].get("featurized"):
                        check(f"{file}: no entity", own[side][at] == -1)
                        first, last = own[f"{side}d_offsets"][at : at + 2]
                        ends.append(",".join(parts[0][row] for row in own[f"{side}d_data"][first:last]))
                    else:
                        ends.append(parts[part if len(parts) > 1 else 0][own[side][at]])
                edges.append((ends[0], relations[rel], ends[1]))
        sets[path] = collections.Counter(edges)
    flat = {entity: collections.Counter(n for part in parts for n in part) for entity, parts in names.items()}
    sizes = {entity: [len(part) for part in parts] for entity, parts in names.items()}
    return sets, flat, sizes, collections.Counter(relations)


def made(number, folder):
    """A random configuration, its inputs, and the least numbers of uses."""
    dice = random.Random(number)
    parts = dice.choice([1, 2, 3, 4, 5, 8])
    types = dice.randint(1, 4)
    entities = {f"t{k}": {"num_partitions": parts if k == 0 or dice.random() < 0.5 else 1} for k in range(types)}
    dynamic = dice.random() < 0.4
    count = 1 if dynamic else dice.randint(1, 5)
    side = lambda: f"t{dice.randrange(types)}"  # noqa: E731
    relations = [{"name": f"r{k}", "lhs": side(), "rhs": side(), "operator": "none"} for k in range(count)]
    sets = dice.randint(1, 3)
    config = {
        "entities": entities,
        "relations": relations,
        "dynamic_relations": dynamic,
        "global_emb": False,
        "dimension": 4,
        "entity_path": "x/names",
        "edge_paths": [f"x/set{k}" for k in range(sets)],
        "checkpoint_path": "model",
    }
    inputs = []
    for k in range(sets):
        lines = []
        for _ in range(dice.choice([1, 30, 400])):
            relation = dice.choice(relations)
            word = relation["name"] if not dynamic else f"w{int(dice.random() ** 2 * 12)}"
            ends = [f"{relation[s]}é{int(dice.random() ** 2 * 60)}" for s in ("lhs", "rhs")]
            lines.append(f"{ends[0]}\t{word}\t{ends[1]}\n")
        path = folder / f"in{k}.tsv"
        path.write_text("".join(lines))
        inputs.append(path)
    least = (1, 1) if dice.random() < 0.5 else (dice.randint(1, 4), dice.randint(1, 4))
    return config, inputs, least


def trains(what, config, folder, out):
    """Upstream trains an epoch on the folder."""
    config = dict(config, entity_path=str(folder / "names"), checkpoint_path=str(out), workers=1, verbose=0, num_epochs=1)
    config.update(edge_paths=[str(folder / pathlib.Path(path).name) for path in config["edge_paths"]], batch_size=50)
    config.update(num_batch_negs=5, num_uniform_negs=5, eval_fraction=0)
    try:
        train(parse_config(config), rank=0)
        check(f"{what}: trained", (out / "checkpoint_version.txt").read_text() == f"{len(config['edge_paths'])}\n")
    except Exception as error:  # noqa: BLE001
        check(f"{what}: trained", False, repr(error))


def table(path, edges, named, dice):
    """Writes edges as a table in one of the ways of pyarrow, with the names of the columns or in their order."""
    kinds = [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]
    # Only Arrow has views.
    is_parquet = path.suffix == ".parquet"
    columns = {}
    for name, values in zip(("lhs", "rel", "rhs"), zip(*edges)):
        if all(value.isdigit() for value in values):
            columns[name] = pa.array(map(int, values), dice.choice([pa.int64(), pa.uint32()]))
        else:
            columns[name] = pa.array(values).cast(dice.choice(kinds + ([] if is_parquet else [pa.string_view()])))
    columns["weight"] = pa.array([k % 8 / 8 for k in range(len(edges))], dice.choice([pa.float32(), pa.float64()]))
    if named:
        columns["note"] = pa.nulls(len(edges), pa.bool_())
        items = list(columns.items())
        dice.shuffle(items)
        columns = dict(items)
    else:
        columns = {f"c{k}": own for k, own in enumerate(columns.values())}
    own = pa.table(columns)
    rows = dice.choice([7, 100, 10000])
    if is_parquet:
        pa.parquet.write_table(
            own,
            path,
            row_group_size=rows,
            compression=dice.choice(["none", "snappy", "zstd", "gzip", "lz4"]),
            use_dictionary=dice.random() < 0.5,
            data_page_version=dice.choice(["1.0", "2.0"]),
            data_page_size=dice.choice([100, 1 << 20]),
            write_page_index=dice.random() < 0.5,
        )
    else:
        compression = dice.choice(["uncompressed", "lz4", "zstd"])
        # pyarrow 19 crashes where it compresses short views.
        if pa.string_view() in own.schema.types:
            compression = "uncompressed"
        pa.feather.write_feather(own, path, compression=compression, chunksize=rows)


def tables(number, work):
    """Tables with edges give the files that text with the same edges gives."""
    folder = work / f"table{number}"
    folder.mkdir()
    dice = random.Random(number)
    config, inputs, (entity_min, relation_min) = made(number, folder)
    least = ["--entity-min-count", entity_min, "--relation-min-count", relation_min]
    order = ["--order", ["random", "sorted", "seen"][number % 3], "--seed", number]
    text, others = [], []
    is_text, named = dice.random() < 0.3, dice.random() < 0.5
    options = [] if named else ["--columns", "lhs,rel,rhs,weight"]
    for path in inputs:
        edges = [line.split("\t") for line in path.read_text().splitlines()]
        if not is_text:
            edges = [(lhs.split("é")[1], rel, rhs.split("é")[1]) for lhs, rel, rhs in edges]
        text.append(path.with_suffix(".txt"))
        text[-1].write_text("".join("\t".join(edge) + f"\t{k % 8 / 8}\n" for k, edge in enumerate(edges)))
        others.append(path.with_suffix(dice.choice([".parquet", ".feather"])))
        table(others[-1], edges, named, dice)
    one = ours(config, text, folder / "text", "--columns", "lhs,rel,rhs,weight", *order, *least)
    other = ours(config, others, folder / "table", *options, *order, *least)
    if one and other:
        one, other = files(one), files(other)
        check(f"tables {number}: files", list(one) == list(other))
        check(f"tables {number}: bytes", all(one[name].read_bytes() == other[name].read_bytes() for name in one))
    shutil.rmtree(folder)


def fixtures(folder, work):
    """The inputs of the golden folders."""
    config = json.loads((folder / "set1/ckpt_std_zip/config.json").read_text())
    entities = {name: {"num_partitions": kind["num_partitions"]} for name, kind in config["entities"].items()}
    keep = ("name", "lhs", "rhs", "operator")
    relations = [{key: relation[key] for key in keep} for relation in config["relations"]]
    config = dict(entities=entities, relations=relations, dimension=8, entity_path="x/names", checkpoint_path="m")
    config["edge_paths"] = ["x/edges"]
    inputs = [folder / "set1/input/std.tsv"]
    upstream = theirs(config, inputs, work / "std-theirs", 5)
    same_files("std", ours(config, inputs, work / "std-ours", "--like-upstream", "--seed", 5), upstream)
    other = ours(config, inputs, work / "std-other", "--from", "words")
    check("std: content", graph(config, other) == graph(config, upstream))
    trains("std", config, other, work / "std-model")


def random_graph(number, work):
    folder = work / str(number)
    folder.mkdir()
    config, inputs, (entity_min, relation_min) = made(number, folder)
    what = f"graph {number}"
    try:
        upstream = theirs(config, inputs, folder / "theirs", number, entity_min, relation_min)
    except AssertionError:
        # Its floating-point partitions disagree for some numbers of entities.
        return False
    least = ["--entity-min-count", entity_min, "--relation-min-count", relation_min]
    exact = ours(config, inputs, folder / "exact", "--like-upstream", "--seed", number, *least)
    if exact:
        same_files(what, exact, upstream)
    packed = folder / "in0.tsv.gz"
    packed.write_bytes(gzip.compress(inputs[0].read_bytes()))
    order = ["random", "sorted", "seen"][number % 3]
    memory = ["8MiB", "1GiB"][number % 2]
    options = ["--order", order, "--memory", memory, *least]
    other = ours(config, [packed, *inputs[1:]], folder / "other", *options)
    if other:
        check(f"{what}: content", graph(config, other) == graph(config, upstream))
        used = {relation[side] for relation in config["relations"] for side in ("lhs", "rhs")}
        # Upstream does not train types without entities and edges, nor partitioned numbers that differ.
        if entity_min == 1 and relation_min == 1 and "t0" in used:
            trains(what, config, other, folder / "model")
    shutil.rmtree(folder)
    return True


def featurized(number, work):
    """Types with features: upstream trains on them, but its importer does not know them."""
    dice = random.Random(number)
    folder = work / f"features-{number}"
    folder.mkdir()
    parts = dice.choice([1, 1, 2, 3])
    config = {
        "entities": {"word": {"num_partitions": 1, "featurized": True}, "item": {"num_partitions": parts}},
        "relations": [
            {"name": "says", "lhs": "word", "rhs": "item", "operator": "none"},
            {"name": "same", "lhs": "item", "rhs": "item", "operator": "none"},
        ],
        "global_emb": False,
        "dimension": 4,
        "entity_path": "x/names",
        "edge_paths": ["x/set0"],
        "checkpoint_path": "model",
    }
    edges = []
    for _ in range(dice.choice([60, 5000])):
        item = f"i{dice.randrange(40)}"
        if dice.random() < 0.7:
            edges.append((",".join(f"wé{dice.randrange(30)}" for _ in range(dice.randint(1, 5))), "says", item))
        else:
            edges.append((item, "same", f"i{dice.randrange(40)}"))
    source = folder / "in.tsv"
    source.write_text("".join("\t".join(edge) + "\n" for edge in edges))
    out = ours(config, [source], folder / "out", "--memory", "8MiB", "--threads", 16)
    if out:
        check(f"features {number}: content", graph(config, out)[0]["x/set0"] == collections.Counter(edges))
        trains(f"features {number}", config, out, folder / "model")


if __name__ == "__main__":
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    fixture_folder = pathlib.Path(sys.argv[2]).resolve()
    # Otherwise each column takes 50 MiB.
    graph_storages.BufferedDataset.BUFFER_SIZE = 256
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        fixtures(fixture_folder, work)
        judged = sum(random_graph(number, work) for number in range(40))
        for number in range(8):
            featurized(number, work)
        for number in range(60):
            tables(number, work)
        check("at least 30 random graphs", judged >= 30, judged)
    print(f"{counted} checks, {failures} failures")
    sys.exit(1 if failures else 0)
