"""Weighbridge compared with h5py, a plain file and PyTorch-BigGraph's exporter, in one run, in turn: medians and ratios.

usage: biggraph.py PYTHON

Build first: cargo build --profile dist && cargo build --profile dist -p weighbridge-benches --examples. PYTHON needs h5py, numpy,
torch 2.2 and torchbiggraph (see judges/biggraph.txt). A table of 2,000,000 x 100 float32 (800 MB) with 8 MB of optimizer
state, a checkpoint of 1,000 partitions, 16 buckets with 10,000,000 edges; everything in the page cache. Jobs are timed
inside each process; exports are timed as whole processes, that of PyTorch-BigGraph once.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "target" / "dist"
RUNS = 5
ROWS, COLUMNS = 2_000_000, 100

PEER = r"""
import io, json, os, sys, time
import h5py, numpy as np
job, source, target = sys.argv[1:4]
ROWS, COLUMNS = 2_000_000, 100
def state(rows):
    import torch
    blob = io.BytesIO()
    groups = [{"lr": 0.1, "lr_decay": 0, "weight_decay": 0, "params": [0]}]
    torch.save({"state": {0: {"sum": torch.rand(rows)}}, "param_groups": groups}, blob)
    return np.frombuffer(blob.getvalue(), dtype="V1")
def write(path, table, blob, text):
    with h5py.File(path, "w") as file:
        file.attrs["format_version"] = 1
        file.attrs["config/json"] = text
        file.create_dataset("embeddings", data=table)
        if blob is not None: file.create_dataset("optimizer/state_dict", data=blob)
def config(parts):
    return json.dumps({"entities": {"all": {"num_partitions": parts}}, "relations": [{"name": "r", "lhs": "all", "rhs": "all"}],
        "dimension": COLUMNS, "global_emb": False, "entity_path": "entities", "edge_paths": ["edges"], "checkpoint_path": "."})
rng = np.random.default_rng(1)
if job == "make":
    os.makedirs(source, exist_ok=True)
    write(source + "/embeddings_all_0.v1.h5", rng.standard_normal((ROWS, COLUMNS), dtype="f4"), state(ROWS), config(1))
    many = source + "/many"
    os.makedirs(many)
    blob = state(10)
    for part in range(1000):
        write(f"{many}/embeddings_all_{part}.v1.h5", rng.standard_normal((10, COLUMNS), dtype="f4"), blob, config(1000))
    with h5py.File(many + "/model.v1.h5", "w") as file:
        file.attrs["format_version"] = 1; file.attrs["config/json"] = config(1000); file.create_group("model")
    open(many + "/config.json", "w").write(config(1000)); open(many + "/checkpoint_version.txt", "w").write("1\n")
    edges = source + "/edges"
    os.makedirs(edges)
    for l in range(4):
        for r in range(4):
            with h5py.File(f"{edges}/edges_{l}_{r}.h5", "w") as file:
                file.attrs["format_version"] = 1
                for name in ("lhs", "rhs", "rel"): file.create_dataset(name, data=rng.integers(0, 250000, 625000))
    small = source + "/export"
    os.makedirs(small + "/entities")
    write(small + "/embeddings_all_0.v1.h5", rng.standard_normal((1_000_000, COLUMNS), dtype="f4"), None, config(1))
    with h5py.File(small + "/model.v1.h5", "w") as file:
        file.attrs["format_version"] = 1; file.attrs["config/json"] = config(1); file.create_group("model")
    open(small + "/config.json", "w").write(config(1)); open(small + "/checkpoint_version.txt", "w").write("1\n")
    open(small + "/entities/entity_count_all_0.txt", "w").write("1000000\n")
    json.dump([f"e{i:07d}" for i in range(1_000_000)], open(small + "/entities/entity_names_all_0.json", "w"), indent=4)
    json.dump(["r"], open(small + "/entities/dynamic_rel_names.json", "w"))
    upstream = {**json.loads(config(1)), "entity_path": small + "/entities", "checkpoint_path": small}
    open(small + "/config.py", "w").write(f"def get_torchbiggraph_config():\n    return {upstream!r}\n")
    sys.exit()
if job.startswith("save"):
    with h5py.File(source) as file: table, blob = file["embeddings"][...], file["optimizer/state_dict"][...]
    begun = time.perf_counter()
    if job == "save-h5py":
        write(target, table, blob, config(1))
    else:
        with open(target, "wb") as file: table.tofile(file); file.write(blob.tobytes())
    fd = os.open(target, os.O_RDWR); os.fsync(fd)
    print(time.perf_counter() - begun); sys.exit()
begun = time.perf_counter()
if job == "load-h5py":
    with h5py.File(source) as file:
        table = np.empty(file["embeddings"].shape, "f4"); file["embeddings"].read_direct(table); file["optimizer/state_dict"][...]
elif job == "load-plain":
    size = os.path.getsize(source); data = bytearray(size); open(source, "rb", buffering=0).readinto(data)
elif job == "edges-h5py":
    for name in os.listdir(source):
        with h5py.File(source + "/" + name) as file: [file[key][...] for key in ("lhs", "rhs", "rel")]
elif job == "open-h5py":
    for part in range(1000):
        with h5py.File(f"{source}/embeddings_all_{part}.v1.h5") as file: file["embeddings"].shape
print(time.perf_counter() - begun)
"""


def run(*words):
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout


def inner(*words):
    return float(run(*words).split()[-1])


def compare(what, ours, peers):
    """Times each side in turn, RUNS times, and prints medians and ratios."""
    times = {name: [] for name in ["ours", *peers]}
    for _ in range(RUNS):
        times["ours"].append(ours())
        for name, peer in peers.items():
            times[name].append(peer())
    own = statistics.median(times["ours"])
    for name in peers:
        ratio = statistics.median(a / b for a, b in zip(times["ours"], times[name]))
        print(f"{what:<36} {name:<14} ours {own:8.4f} s  other {statistics.median(times[name]):8.4f} s  ratio {ratio:.3f}", flush=True)


def main():
    python = sys.argv[1]
    job, command = BUILT / "examples" / "biggraph_job", BUILT / "weighbridge"
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder:
        folder = Path(folder)
        table, out = folder / "embeddings_all_0.v1.h5", folder / "out"
        run(python, "-W", "ignore", "-c", PEER, "make", folder, out)

        def peer(what, source):
            return lambda: inner(python, "-W", "ignore", "-c", PEER, what, source, out)

        def fresh(work):
            def anew():
                out.unlink(missing_ok=True)
                return work()
            return anew

        compare("save 800 MB + state, synced", fresh(lambda: inner(job, "save", table, out)), {
            "h5py": fresh(peer("save-h5py", table)), "plain file": fresh(peer("save-plain", table))})
        out.unlink(missing_ok=True)
        compare("load 800 MB + state", lambda: inner(job, "load", table), {
            "h5py": peer("load-h5py", table), "plain file": peer("load-plain", table)})
        compare("open 1,000 partitions", lambda: inner(job, "open", folder / "many"), {"h5py": peer("open-h5py", folder / "many")})
        compare("read 16 buckets, 10M edges", lambda: inner(job, "load", folder / "edges"), {"h5py": peer("edges-h5py", folder / "edges")})
        medians = {}
        for floats in ("shortest", "upstream"):
            times = []
            for _ in range(3):
                target = folder / f"{floats}.tsv"
                target.unlink(missing_ok=True)
                begun = time.perf_counter()
                run(command, "convert", folder / "export", target, "--entities", folder / "export" / "entities",
                    "--select", "embeddings.all", "--set", f"floats={floats}", "--no-sync")
                times.append(time.perf_counter() - begun)
            medians[floats] = statistics.median(times)
        begun = time.perf_counter()
        run(Path(python).parent / "torchbiggraph_export_to_tsv", folder / "export" / "config.py",
            "--entities-output", out, "--relation-types-output", folder / "relations.tsv")
        upstream = time.perf_counter() - begun
        same = subprocess.run(["cmp", out, folder / "upstream.tsv"]).returncode == 0
        for floats, own in medians.items():
            size = (folder / f"{floats}.tsv").stat().st_size
            print(f"export 1M x 100 to TSV, {floats}: ours {own:.2f} s, {size / 1e6:.0f} MB; upstream {upstream:.1f} s, {upstream / own:.0f} times as long")
        print("floats=upstream equals the exporter's output:", same)


if __name__ == "__main__":
    main()
