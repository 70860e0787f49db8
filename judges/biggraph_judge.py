"""PyTorch-BigGraph judges folders that Weighbridge wrote: it reads them, and training goes on from them.

    python judges/biggraph_judge.py WEIGHBRIDGE FIXTURES

FIXTURES is a folder with set1 and set2, such as testdata/biggraph. Runs with the release on PyPI
(torchbiggraph 1.0.0), torch 2.2, h5py 3. Exit code 0: upstream agrees with everything.
"""

import io
import json
import os
import subprocess
import sys
import tempfile

import attr
import h5py
import numpy as np
import torch
from torchbiggraph.checkpoint_manager import CheckpointManager
from torchbiggraph.config import ConfigSchema, EntitySchema, parse_config
from torchbiggraph.graph_storages import EDGE_STORAGES, ENTITY_STORAGES, RELATION_TYPE_STORAGES
from torchbiggraph.train import train

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
    return done.stderr


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


if __name__ == "__main__":
    binary, fixtures = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as out:
        for job in (checkpoints, edges, from_elsewhere, training):
            place = os.path.join(out, job.__name__)
            os.mkdir(place)
            job(place)
            print(job.__name__, f"{counted} checks, {failures} failures so far")
    sys.exit(1 if failures else 0)
