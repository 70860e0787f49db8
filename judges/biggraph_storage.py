"""PyTorch-BigGraph trains and saves through Weighbridge's checkpoint storage.

    python judges/biggraph_storage.py FIXTURES

FIXTURES is a folder with set1, such as testdata/biggraph. Needs torchbiggraph 1.0.0 and the package `weighbridge`.
Checked: a run saves through the storage, in the foreground and in the background; PyTorch-BigGraph's own storage reads
what was written, and trains on from it; the storage trains on from what PyTorch-BigGraph wrote; snapshots; and a run that
is killed at any moment leaves a version that is complete. Exit code 0: all of it holds.
"""

import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time

import attr
import numpy as np
from torchbiggraph.checkpoint_manager import CheckpointManager
from torchbiggraph.config import ConfigSchema, EntitySchema, parse_config
from torchbiggraph.train import train

import weighbridge
import weighbridge.biggraph.storage  # noqa: F401  (registers the scheme)
from weighbridge.biggraph import CheckpointStore

counted = failures = 0


def check(what, good, note=""):
    global counted, failures
    counted += 1
    if not good:
        failures += 1
        print("FAIL", what, note)


def start(fixtures, **changes):
    """The configuration of a small run in two partitions."""
    base = os.path.join(fixtures, "set1")
    config = json.load(open(os.path.join(base, "ckpt_dyn_affine", "config.json")))
    config.update(entity_path=os.path.join(base, "dyn/entities"), edge_paths=[os.path.join(base, "dyn/train")],
                  num_epochs=2, num_edge_chunks=1, workers=1, checkpoint_preservation_interval=None, init_path=None)
    config.update(changes)
    fields = {f.name for f in attr.fields(ConfigSchema)}
    entity = {f.name for f in attr.fields(EntitySchema)}
    config = {k: v for k, v in config.items() if k in fields}
    config["entities"] = {n: {k: v for k, v in e.items() if k in entity} for n, e in config["entities"].items()}
    return config


def content(manager):
    """All that a checkpoint holds, as PyTorch-BigGraph's manager gives it."""
    found = {}
    for part in range(2):
        rows, state = manager.read("all", part)
        found[part] = (rows.numpy(), state["state"][0]["sum"].numpy())
    model, _ = manager.read_model()
    found["model"] = {name: tensor.numpy() for name, tensor in model.items()}
    return found


def same(a, b):
    parts = all(np.array_equal(x, y) for part in range(2) for x, y in zip(a[part], b[part]))
    return parts and list(a["model"]) == list(b["model"]) and all(
        np.array_equal(a["model"][name], b["model"][name]) for name in a["model"]
    )


def runs(fixtures, out):
    """Runs through the storage, and runs that change from one storage to the other."""
    for background in (False, True):
        folder = os.path.join(out, f"run{background}")
        through = start(fixtures, checkpoint_path=f"weighbridge:{folder}", background_io=background,
                        checkpoint_preservation_interval=1)
        train(parse_config(through))
        own, theirs = CheckpointManager(f"weighbridge://{folder}"), CheckpointManager(folder)
        check(f"background {background}: version", own.checkpoint_version == theirs.checkpoint_version == 2,
              (own.checkpoint_version, theirs.checkpoint_version))
        check(f"background {background}: content", same(content(own), content(theirs)))
        check(f"background {background}: verify", weighbridge.verify(folder).verdict == "sound",
              weighbridge.verify(folder))
        state = CheckpointStore(folder).state()
        check(f"background {background}: snapshots", [s["epoch"] for s in state["snapshots"]] == [1, 2], state)
        check(f"background {background}: nothing staged is left",
              not [n for n in os.listdir(folder) if n.endswith(".part")], os.listdir(folder))
        # PyTorch-BigGraph's own storage trains on, and this one from what that wrote.
        train(parse_config({**through, "checkpoint_path": folder, "num_epochs": 3}))
        check(f"background {background}: trained on", CheckpointManager(folder).checkpoint_version == 3)
        train(parse_config({**through, "num_epochs": 4}))
        check(f"background {background}: and back", CheckpointManager(folder).checkpoint_version == 4)
    # An emptied version file is an error, where PyTorch-BigGraph begins from nothing.
    open(os.path.join(folder, "checkpoint_version.txt"), "w").close()
    try:
        CheckpointManager(f"weighbridge:{folder}")
        check("a lost version file is an error", False)
    except weighbridge.Error as error:
        check("a lost version file is an error", error.code == "version-lost", error)


def killed(fixtures, out):
    """A run that is killed at any moment leaves a complete version, and is taken up again."""
    folder = os.path.join(out, "killed")
    config = start(fixtures, checkpoint_path=f"weighbridge:{folder}", num_epochs=200)
    chance = random.Random(7)
    best = 0
    for turn in range(8):
        process = multiprocessing.Process(target=train, args=(parse_config(config),))
        process.start()
        # From the first version on, at any moment.
        begun = time.monotonic()
        while process.is_alive() and time.monotonic() - begun < 60 and version(folder) <= best:
            time.sleep(0.005)
        time.sleep(chance.random() * 0.3)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        found = CheckpointStore(folder).version
        check(f"killed {turn}: a version counts that is no older", found >= best, (found, best))
        check(f"killed {turn}: it is whole", weighbridge.biggraph.open(folder).version == found)
        content(CheckpointManager(folder))
        best = found
    check("killed runs came forward", best >= 8, best)


def version(folder):
    try:
        return int(open(os.path.join(folder, "checkpoint_version.txt")).read() or 0)
    except (OSError, ValueError):
        return 0


def partitions(out):
    """A table that is written one partition at a time is the table to PyTorch-BigGraph."""
    folder = os.path.join(out, "parts")
    rows = np.random.default_rng(3).standard_normal((12, 4)).astype("float32")
    sums = np.arange(12, dtype="float32")
    config = {"entities": {"all": {"num_partitions": 2}}, "relations": [
        {"name": "r", "lhs": "all", "rhs": "all", "operator": "none"}], "dimension": 4, "entity_path": "e",
        "edge_paths": ["x"], "checkpoint_path": folder}
    with CheckpointStore(folder).begin() as begun:
        begun.write({}, parameters={}, config=config)
        for part, own in enumerate((slice(0, 7), slice(7, 12))):
            begun.write_partition("all", part, rows[own], state=sums[own])
    manager = CheckpointManager(folder)
    read = [manager.read("all", part) for part in range(2)]
    check("partitions: rows", np.array_equal(np.concatenate([r.numpy() for r, _ in read]), rows))
    found = np.concatenate([s["state"][0]["sum"].numpy() for _, s in read])
    check("partitions: sums", np.array_equal(found, sums), found)
    check("partitions: version", manager.checkpoint_version == 1)


if __name__ == "__main__":
    fixtures = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as out:
        runs(fixtures, out)
        killed(fixtures, out)
        partitions(out)
    print(f"{counted} checks, {failures} failures")
    sys.exit(1 if failures else 0)
