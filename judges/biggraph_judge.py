"""PyTorch-BigGraph judges folders that Weighbridge wrote: it reads them, and training goes on from them.

    python judges/biggraph_judge.py WEIGHBRIDGE FIXTURES

FIXTURES is a folder with set1 and set2, such as testdata/biggraph. Runs with the release on PyPI
(torchbiggraph 1.0.0), torch 2.2, h5py 3. Exit code 0: upstream agrees with everything.
"""

import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import attr
import h5py
import numpy as np
import torch
from torchbiggraph import graph_storages
from torchbiggraph.checkpoint_manager import CheckpointManager
from torchbiggraph.config import ConfigFileLoader, ConfigSchema, EntitySchema, parse_config
from torchbiggraph.converters.import_from_tsv import convert_input_data
from torchbiggraph.graph_storages import EDGE_STORAGES, ENTITY_STORAGES, RELATION_TYPE_STORAGES
from torchbiggraph.train import train
from torchbiggraph.util import CouldNotLoadData

counted = failures = 0


def check(what, good, note=""):
    global counted, failures
    counted += 1
    if not good:
        failures += 1
        print("FAIL", what, note)


def run(*args):
    done = subprocess.run([binary, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, args))}: {done.stderr}")
    return done.stdout


def verdict(*args):
    """The exit code of a verb that checks."""
    return subprocess.run([binary, *map(str, args)], capture_output=True).returncode


def blob(file):
    if "optimizer/state_dict" not in file:
        return None
    dataset = file["optimizer/state_dict"]
    check(f"{file.filename}: V1", dataset.dtype == np.dtype("V1"), dataset.dtype)
    return torch.load(io.BytesIO(dataset[...].tobytes()), weights_only=True)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def content(path):
    """Everything in an HDF5 file: attributes, groups, datasets."""
    with h5py.File(path, "r") as file:
        found = {"/": [dict(file.attrs)]}
        state = blob(file)

        def look(name, item):
            if name == "optimizer/state_dict":
                return
            if isinstance(item, h5py.Dataset):
                found[name] = [dict(item.attrs), item.dtype.str, item.shape, item[...].tobytes()]
            else:
                found[name] = [dict(item.attrs)]

        file.visititems(look)
    return found, state


def checkpoints(out):
    """Each file of a rewritten checkpoint holds what the original holds, as h5py and torch see it."""
    for number in (1, 2):
        base = os.path.join(fixtures, f"set{number}")
        for name in sorted(n for n in os.listdir(base) if n.startswith("ckpt_")):
            source, target = os.path.join(base, name), os.path.join(out, f"{number}{name}")
            run("convert", source, target, "--to", "biggraph")
            for file in sorted(os.listdir(target)):
                before, after = os.path.join(source, file), os.path.join(target, file)
                if file.endswith(".h5"):
                    (a, s), (b, t) = content(before), content(after)
                    check(f"{name}/{file}", a == b, sorted(set(a) ^ set(b)))
                    check(f"{name}/{file} state", same(s, t))
                else:
                    check(f"{name}/{file}", open(before, "rb").read() == open(after, "rb").read())
            manager = CheckpointManager(target)
            state, _ = manager.read_model()
            config = json.load(open(os.path.join(source, "config.json")))
            for entity, schema in config["entities"].items():
                for part in range(schema["num_partitions"]):
                    rows, optimizer = manager.read(entity, part)
                    check(f"{name} {entity} {part}", rows.shape[1] == (schema["dimension"] or config["dimension"]))
                    check(f"{name} {entity} {part} sum", optimizer["state"][0]["sum"].shape == rows.shape[:1])


def graph(edge_path, entity_path, entities, relations):
    """All edges and counts as upstream reads them, with rows of whole types."""
    storage = ENTITY_STORAGES.make_instance(entity_path)
    starts = {}
    for name, schema in entities.items():
        counts = [storage.load_count(name, part) for part in range(schema["num_partitions"])]
        starts[name] = np.concatenate([[0], np.cumsum(counts)])
    edges = EDGE_STORAGES.make_instance(edge_path)
    parts = lambda side: max(entities[r[side]]["num_partitions"] for r in relations)
    found = []
    for l in range(parts("lhs")):
        for r in range(parts("rhs")):
            if not edges.has_edges(l, r):
                continue
            bucket = edges.load_edges(l, r)
            lhs, rhs, rel = bucket.lhs.tensor.numpy(), bucket.rhs.tensor.numpy(), bucket.rel.numpy()
            for a, b, c, features in zip(lhs, rhs, rel, (bucket.lhs[i].tensor_list for i in range(len(rel)))):
                relation = relations[0] if len(relations) == 1 else relations[c]
                row = lambda side, part, i: int(
                    i if i < 0 else i + starts[relation[side]][part if len(starts[relation[side]]) > 2 else 0]
                )
                list_of = tuple(features.data.tolist())
                found.append((row("lhs", l, a), row("rhs", r, b), int(c), list_of))
    names = {n: sum((storage.load_names(n, p) for p in range(s["num_partitions"])), []) for n, s in entities.items()}
    return sorted(found), {n: int(s[-1]) for n, s in starts.items()}, names


GRAPHS = [
    ("std/edges", "std/entities", "ckpt_std_zip"),
    ("dyn/train", "dyn/entities", "ckpt_dyn_affine"),
    ("feat/edges", "feat/entities", "ckpt_feat"),
]


def edges(out):
    """Edges and entities in other partitions are the same graph to upstream."""
    for number in (1, 2):
        base = os.path.join(fixtures, f"set{number}")
        for edge_path, entity_path, checkpoint in GRAPHS:
            config = json.load(open(os.path.join(base, checkpoint, "config.json")))
            truth = graph(os.path.join(base, edge_path), os.path.join(base, entity_path), config["entities"],
                          config["relations"])
            for parts in (1, 3, 8):
                wanted = ",".join(f"{n}:{parts}" for n, s in config["entities"].items() if s["num_partitions"] > 1)
                target = os.path.join(out, f"{number}{checkpoint}{parts}")
                know = ["--config", os.path.join(base, checkpoint, "config.json"), "--entities",
                        os.path.join(base, entity_path)]
                to = ["--to", "biggraph", "--set", f"partitions={wanted}"]
                run("convert", os.path.join(base, edge_path), target + "_edges", *know, *to)
                run("convert", os.path.join(base, entity_path), target + "_entities", *to)
                entities = {n: {"num_partitions": parts if s["num_partitions"] > 1 else 1}
                            for n, s in config["entities"].items()}
                again = graph(target + "_edges", target + "_entities", entities, config["relations"])
                check(f"{edge_path} in {parts}: edges", again[0] == truth[0])
                check(f"{edge_path} in {parts}: counts", again[1] == truth[1], again[1])
                check(f"{edge_path} in {parts}: names", again[2] == truth[2])
                names = RELATION_TYPE_STORAGES.make_instance(target + "_entities")
                if config["dynamic_relations"]:
                    check(f"{edge_path}: relations", names.load_count() == len(names.load_names()))


def known(config):
    """The keys of a configuration that this release knows."""
    keys = {f.name for f in attr.fields(ConfigSchema)}
    entity = {f.name for f in attr.fields(EntitySchema)}
    config = {k: v for k, v in config.items() if k in keys}
    config["entities"] = {
        n: {k: v for k, v in e.items() if k in entity} for n, e in config["entities"].items()
    }
    return config


def training(out):
    """Upstream trains; what it wrote is cut anew, and it goes on from there."""
    base = os.path.join(fixtures, "set1")
    start = json.load(open(os.path.join(base, "ckpt_dyn_affine", "config.json")))
    start.update(entity_path=os.path.join(base, "dyn/entities"), edge_paths=[os.path.join(base, "dyn/train")],
                 checkpoint_path=os.path.join(out, "trained"), num_epochs=2, num_edge_chunks=1, workers=1,
                 checkpoint_preservation_interval=None, init_path=None)
    start = known(start)
    train(parse_config(start))
    know = ["--config", os.path.join(out, "trained", "config.json"), "--entities", start["entity_path"]]
    for parts in (1, 2, 3):
        to = ["--to", "biggraph", "--set", f"partitions=all:{parts}"]
        target = os.path.join(out, f"cut{parts}")
        run("convert", os.path.join(out, "trained"), target + "_ckpt", *to)
        run("convert", start["edge_paths"][0], target + "_edges", *know, *to)
        run("convert", start["entity_path"], target + "_entities", *to)
        config = json.loads(json.dumps(start))
        config["entities"]["all"]["num_partitions"] = parts
        config.update(entity_path=target + "_entities", edge_paths=[target + "_edges"],
                      checkpoint_path=target + "_ckpt", num_epochs=4)
        before = np.concatenate([CheckpointManager(target + "_ckpt").read("all", p)[0].numpy() for p in range(parts)])
        truth = CheckpointManager(os.path.join(out, "trained"))
        truth = np.concatenate([truth.read("all", p)[0].numpy() for p in range(2)])
        check(f"rows in {parts} partitions", np.array_equal(before, truth))
        train(parse_config(config))
        after = CheckpointManager(target + "_ckpt")
        check(f"{parts} partitions: version", after.checkpoint_version == 4, after.checkpoint_version)
        rows = np.concatenate([after.read("all", p)[0].numpy() for p in range(parts)])
        moved = np.abs(rows - before).max(axis=1)
        # It went on from there: rows are near where they were, and most have moved a little.
        check(f"{parts} partitions: trained on", (moved > 0).mean() > 0.5 and moved.mean() < np.abs(before).mean() * 5,
              moved.mean())
        stats = [json.loads(line) for line in open(os.path.join(target + "_ckpt", "training_stats.json"))]
        loss = lambda epoch: [s["stats"]["metrics"]["loss"] for s in stats
                              if s.get("stats") and s["epoch_idx"] == epoch]
        first, last, on = (np.mean(loss(epoch)) for epoch in (0, 1, 2))
        check(f"{parts} partitions: loss goes on", on < first, (first, last, on))


def from_elsewhere(out):
    """A table of vectors with names becomes a checkpoint that upstream reads, and an init_path."""
    rows = np.random.default_rng(5).standard_normal((11, 6)).astype("f4")
    np.save(os.path.join(out, "vectors.npy"), rows)
    target = os.path.join(out, "made")
    to = ["--to", "biggraph", "--set", "type=thing", "--set", "partitions=thing:3"]
    run("convert", os.path.join(out, "vectors.npy"), target, "--kind", "checkpoint", "--set", "entities=yes", *to)
    manager = CheckpointManager(target)
    found = np.concatenate([manager.read("thing", p)[0].numpy() for p in range(3)])
    check("vectors", np.array_equal(found, rows))
    manager.read_model()
    config = parse_config(known(json.load(open(os.path.join(target, "config.json")))))
    check("made configuration", config.entities["thing"].num_partitions == 3 and config.dimension == 6)
    counts = ENTITY_STORAGES.make_instance(target)
    check("made counts", [counts.load_count("thing", p) for p in range(3)] == [4, 4, 3])
    run("convert", os.path.join(out, "vectors.npy"), os.path.join(out, "init"), "--kind", "init", *to)
    manager = CheckpointManager(os.path.join(out, "init"))
    check("init version", manager.checkpoint_version == 0)
    found = np.concatenate([manager.read("thing", p)[0].numpy() for p in range(3)])
    check("init vectors", np.array_equal(found, rows))


PYTHON_CONFIG = """#!/usr/bin/env python3

base = "data"


def get_torchbiggraph_config():

    config = dict(
        # I/O data
        entity_path=base,
        edge_paths=[r"data/train", 'data/' "valid",],
        checkpoint_path="model",
        entities={"user": {"num_partitions": 2}, 'item': {'num_partitions': 2}},
        relations=[{"name": "likes", "lhs": "user", "rhs": "item", "operator": "translation"},
                   dict(name="knows", lhs="user", rhs="user", weight=0.5, operator="diagonal")],
        dimension=8,
        lr=1e-1,  # as in the examples
        init_scale=.01,
        batch_size=1_000,
        max_norm=None,
        bias=False,
        num_epochs=2,
        num_batch_negs=10, num_uniform_negs=10,
        eval_fraction=0.,
        global_emb=True,
    )

    return config
"""


def configurations(out):
    """A Python configuration is read as upstream reads it."""
    path = os.path.join(out, "config.py")
    with open(path, "w") as file:
        file.write(PYTHON_CONFIG)
    target = os.path.join(out, "config.json")
    run("convert", path, target, "--from", "biggraph", "--to", "biggraph", "--kind", "config")
    found = json.load(open(target))
    truth = ConfigFileLoader().load_config(path)
    check("python configuration", parse_config(known(found)) == truth, found)


def imported(out):
    """A small graph with two types, imported by upstream: most buckets are empty. Returns its configuration."""
    graph_storages.BufferedDataset.BUFFER_SIZE = 64
    lines = [f"u{i}\tlikes\ti{i % 7}\n" for i in range(60)] * 5
    lines = lines + [f"u{i}\tknows\tu{(i * 3) % 60}\n" for i in range(60)] * 5
    with open(os.path.join(out, "edges.tsv"), "w") as file:
        file.writelines(lines)
    config = dict(ConfigFileLoader().load_config(os.path.join(out, "config.py")).to_dict())
    config.update(entity_path=os.path.join(out, "entities"), edge_paths=[os.path.join(out, "edges")],
                  checkpoint_path=os.path.join(out, "model"), workers=1, num_edge_chunks=1, eval_num_batch_negs=10)
    schema = parse_config(config)
    convert_input_data(schema.entities, schema.relations, schema.entity_path, schema.edge_paths,
                       [pathlib.Path(out, "edges.tsv")], lhs_col=0, rhs_col=2, rel_col=1)
    with open(os.path.join(out, "config.json"), "w") as file:
        json.dump(config, file)
    return config


def by_name(config):
    """All edges by the names of their entities, in order of the buckets."""
    found, counts, names = graph(config["edge_paths"][0], config["entity_path"], config["entities"], config["relations"])
    relations = config["relations"]
    return sorted((names[relations[c]["lhs"]][a], relations[c]["name"], names[relations[c]["rhs"]][b]) for a, b, c, _ in found)


def edge_list(out, config, know):
    """The list of the edges by name is what was imported, and upstream imports it again."""
    path = os.path.join(out, "list.tsv")
    run("convert", config["edge_paths"][0], path, *know)
    with open(os.path.join(out, "edges.tsv")) as first, open(path) as second:
        check("the edge list has the imported lines", sorted(first) == sorted(second))
    again = dict(config, entity_path=os.path.join(out, "entities2"), edge_paths=[os.path.join(out, "edges2")])
    schema = parse_config(again)
    convert_input_data(schema.entities, schema.relations, schema.entity_path, schema.edge_paths,
                       [pathlib.Path(path)], lhs_col=0, rhs_col=2, rel_col=1)
    check("the importer reads the edge list", by_name(again) == by_name(config))


def rows(folder, entity, parts=2):
    manager = CheckpointManager(folder)
    return np.concatenate([manager.read(entity, part)[0].numpy() for part in range(parts)])


def stops(config):
    """What upstream stops with when it trains by this configuration."""
    try:
        train(parse_config(config))
    except Exception as error:  # noqa: BLE001
        return error
    return None


def life(out):
    """An imported graph with a bucket missing, training, other names, other partitions, and broken state."""
    with open(os.path.join(out, "config.py"), "w") as file:
        file.write(PYTHON_CONFIG)
    config = imported(out)
    know = ["--config", os.path.join(out, "config.json"), "--entities", config["entity_path"]]
    edge_list(out, config, know)
    # All edges of one bucket go: the importer would have written no file.
    truth = graph(config["edge_paths"][0], config["entity_path"], config["entities"], config["relations"])
    gone = os.path.join(config["edge_paths"][0], "edges_1_0.h5")
    lost = EDGE_STORAGES.make_instance(config["edge_paths"][0]).load_edges(1, 0)
    os.remove(gone)
    left = graph(config["edge_paths"][0], config["entity_path"], config["entities"], config["relations"])[0]
    check("a bucket went", len(left) + len(lost.rel) == len(truth[0]))
    stopped = stops(dict(config, checkpoint_path=os.path.join(out, "stopped")))
    check("upstream stops at a missing bucket", isinstance(stopped, CouldNotLoadData), stopped)
    check("verify finds it", verdict("verify", config["edge_paths"][0], *know) == 1)
    whole = os.path.join(out, "whole")
    run("convert", config["edge_paths"][0], whole, *know, "--to", "biggraph")
    check("verify finds no more", verdict("verify", whole, *know) == 0)
    found = graph(whole, config["entity_path"], config["entities"], config["relations"])[0]
    check("an empty bucket is written", found == left and os.path.exists(os.path.join(whole, "edges_1_0.h5")))
    config["edge_paths"] = [whole]
    config["checkpoint_preservation_interval"] = 1
    train(parse_config(config))
    model = config["checkpoint_path"]
    check("a trained checkpoint is sound", verdict("verify", model) == 0 and verdict("checkpoint", model) == 0)

    # All versions and snapshots go along.
    copy = os.path.join(out, "copy")
    said = run("convert", model, copy, "--to", "biggraph")
    check("what stays behind is named", "snapshot epoch_1" in said and not os.path.exists(copy + "/epoch_1"), said)
    copy = os.path.join(out, "all")
    run("convert", model, copy, "--to", "biggraph", "--versions", "all")
    for folder in ("", "/epoch_1", "/epoch_2"):
        same_rows = all(np.array_equal(rows(model + folder, e), rows(copy + folder, e)) for e in ("user", "item"))
        same_version = CheckpointManager(model + folder).checkpoint_version == CheckpointManager(copy + folder).checkpoint_version
        check(f"versions: {folder or 'current'}", same_rows and same_version)
        CheckpointManager(copy + folder).read_model()
    check("verify of all versions", verdict("verify", copy) == 0 and verdict("checkpoint", copy) == 0)

    # A type gets another name, and training goes on.
    rename = ["--to", "biggraph", "--set", "rename-type=user=person"]
    person = {name: os.path.join(out, "person_" + name) for name in ("model", "entities", "config.json")}
    run("convert", model, person["model"], *rename)
    run("convert", config["entity_path"], person["entities"], *rename)
    run("convert", os.path.join(out, "config.json"), person["config.json"], "--kind", "config", *rename)
    renamed = known(json.load(open(person["config.json"])))
    renamed.update(entity_path=person["entities"], checkpoint_path=person["model"], edge_paths=[whole], num_epochs=4,
                   checkpoint_preservation_interval=None)
    before = rows(model, "user")
    check("renamed rows", np.array_equal(rows(person["model"], "person"), before))
    check("verify of a renamed type", verdict("verify", person["model"], "--entities", person["entities"]) == 0)
    train(parse_config(renamed))
    after = rows(person["model"], "person")
    moved = np.abs(after - before).max(axis=1)
    check("training goes on under another name",
          CheckpointManager(person["model"]).checkpoint_version == 4 and (moved > 0).mean() > 0.5
          and moved.mean() < np.abs(before).mean() * 5, moved.mean())

    # Columns of numpy with rows of whole types are cut in one step.
    starts = {}
    counts = ENTITY_STORAGES.make_instance(config["entity_path"])
    for entity in ("user", "item"):
        starts[entity] = np.cumsum([0] + [counts.load_count(entity, part) for part in range(2)])
    lhs, rhs, rel = (np.array([edge[place] for edge in left]) for place in range(3))
    np.savez(os.path.join(out, "edges.npz"), lhs=lhs, rhs=rhs, rel=rel)
    np.save(os.path.join(out, "edges.npy"), np.stack([lhs, rel, rhs], 1))
    for name, more in (("edges.npz", []), ("edges.npy", ["--set", "columns=lhs,rel,rhs"])):
        target = os.path.join(out, name.replace(".", "_"))
        run("convert", os.path.join(out, name), target, "--to", "biggraph", "--set", "partitions=2", *know, *more)
        found = graph(target, config["entity_path"], config["entities"], config["relations"])[0]
        check(f"{name} is cut", found == left)
    listed = subprocess.run([binary, "convert", os.path.join(out, "edges.npy"), os.path.join(out, "no"), "--to",
                             "biggraph"], capture_output=True, text=True)
    check("an edge list is no table", listed.returncode == 2 and "edge-list" in listed.stderr, listed.stderr)

    # State of the optimizer that upstream stops at, and what verify says of it.
    def spoiled(name, spoil):
        target = os.path.join(out, name)
        run("convert", model, target, "--to", "biggraph")
        manager = CheckpointManager(target)
        path = os.path.join(target, f"model.v{manager.checkpoint_version}.h5")
        with h5py.File(path, "r+") as file:
            state = blob(file)
            spoil(state)
            buffer = io.BytesIO()
            torch.save(state, buffer)
            del file["optimizer/state_dict"]
            data = np.frombuffer(buffer.getvalue(), dtype=np.dtype("V1"))
            file.create_dataset("optimizer/state_dict", data=data)
        return target

    spoilers = {
        "no_step": lambda state: state["state"][1].pop("step"),
        "no_sum": lambda state: state["state"][0].pop("sum"),
        "no_parameter": lambda state: state["state"].pop(2),
        "nothing": lambda state: state["state"].clear(),
        "empty": lambda state: state.clear(),
        "fewer": lambda state: (state["state"].pop(3), state["param_groups"][0]["params"].remove(3)),
        "sound": lambda state: None,
    }
    for name, spoil in spoilers.items():
        target = spoiled(name, spoil)
        codes = verdict("verify", target), verdict("checkpoint", target)
        stopped = stops(dict(config, checkpoint_path=target, num_epochs=3, checkpoint_preservation_interval=None))
        wrong = name != "sound"
        check(f"state {name}: upstream", (stopped is not None) == wrong, stopped)
        # h5py leaves bytes behind that no structure accounts for: of these nothing can be said.
        check(f"state {name}: verify and checkpoint", codes == (1, 1) if wrong else codes in ((0, 0), (3, 0)), codes)

    # A config.json of another model.
    for key, change in {
        "partitions": lambda c: c["entities"]["user"].update(num_partitions=4),
        "dimension": lambda c: c.update(dimension=16),
        "type": lambda c: (c["entities"].update(shop=c["entities"]["item"]), c["relations"][0].update(rhs="shop")),
        "relations": lambda c: c["relations"].pop(),
        "operator": lambda c: c["relations"][0].update(operator="linear"),
    }.items():
        target = os.path.join(out, "other_" + key)
        run("convert", model, target, "--to", "biggraph")
        path = os.path.join(target, "config.json")
        other = json.load(open(path))
        change(other)
        with open(path, "w") as file:
            json.dump(other, file)
        codes = verdict("verify", target), verdict("checkpoint", target)
        check(f"config.json with another {key}", codes == (1, 1), codes)


if __name__ == "__main__":
    binary, fixtures = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    jobs = (checkpoints, edges, from_elsewhere, configurations, training, life)
    with tempfile.TemporaryDirectory() as out:
        # More arguments name the jobs to run.
        for job in (job for job in jobs if job.__name__ in sys.argv[3:] or not sys.argv[3:]):
            place = os.path.join(out, job.__name__)
            os.mkdir(place)
            job(place)
            print(job.__name__, f"{counted} checks, {failures} failures so far")
    sys.exit(1 if failures else 0)
