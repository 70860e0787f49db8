"""An import that is killed at any moment, or hits a full disk, continues to the same bytes.

    python judges/import_kills.py WEIGHBRIDGE [ROUNDS]

A graph of 300,000 edges is imported undisturbed. Then, in each round, the import is killed (SIGKILL) one to four times at random
moments, and run to its end. Before the end nothing of the target is visible; after it all bytes are those of the undisturbed
import, and no other files are left. The same for imports whose files may not grow beyond a size. Exit code 0: all is so.
"""

import collections
import gzip
import json
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

EDGES = 300_000
# Sizes beyond which no file may grow: the first steps fail, or the output.
SIZES = [100, 4 << 10, 100 << 10, 200 << 10, 300 << 10, 400 << 10]


def graph(folder):
    """Edges with dynamic relations and weights, in two sets of several files."""
    dice = random.Random(20)
    parts = {"a.tsv": 0.3, "b.tsv.gz": 0.3, "c.tsv": 0.3, "valid.tsv.gz": 0.1}
    for name, share in parts.items():
        lines = []
        for _ in range(int(EDGES * share)):
            lhs, rhs = int(dice.random() ** 2 * 60_000), int(dice.random() ** 2 * 40_000)
            lines.append(f"user {lhs}\trelation {int(dice.random() ** 2 * 300)}\titem é{rhs}\t{dice.random():.4f}\n")
        text = "".join(lines).encode()
        (folder / name).write_bytes(gzip.compress(text, 1) if name.endswith(".gz") else text)
    config = {
        "entities": {"user": {"num_partitions": 4}, "item": {"num_partitions": 4}},
        "relations": [{"name": "all", "lhs": "user", "rhs": "item", "operator": "none"}],
        "dynamic_relations": True,
        "dimension": 4,
        "entity_path": "x/names",
        "edge_paths": ["x/train", "x/valid"],
        "checkpoint_path": "model",
    }
    (folder / "config.json").write_text(json.dumps(config))


def command(target):
    words = ["import", *(f"train={name}" for name in ("a.tsv", "b.tsv.gz", "c.tsv")), "valid=valid.tsv.gz"]
    words += ["--config", "config.json", "--columns", "lhs,rel,rhs,weight", "--memory", "8MiB", "--threads", "4"]
    return [binary, *words, "--no-sync", "--json", "-o", target]


def finish(target):
    done = subprocess.run(command(target), cwd=work, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"FAIL: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)["resumed"]


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def visible():
    return {path.name for path in work.iterdir() if not path.name.startswith(".")}


def check(good, what):
    if not good:
        raise SystemExit(f"FAIL: {what}")


def step():
    """The step that a killed import was in."""
    if any(path.name.startswith(".data.weighbridge-") for path in work.iterdir()):
        return "output"
    names = {path.name for path in folder.iterdir()} if (folder := work / ".data.import").exists() else set()
    if "dictionary" in names:
        return "ids"
    return "dictionaries" if "parsed" in names else "lines" if any(n.startswith("edges-") for n in names) else "start"


def settled():
    """The target is complete, and nothing else is left. Returns whether steps of an earlier run were used."""
    resumed = finish("data")
    check(tree(work / "data") == expected, "other bytes than those of the undisturbed import")
    check({path.name for path in work.iterdir()} == inputs | {"data"}, f"files are left: {list(work.iterdir())}")
    shutil.rmtree(work / "data")
    return resumed


def killed(moment):
    """Kills an import after some seconds; returns false if it ended before."""
    process = subprocess.Popen(command("data"), cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(timeout=moment)
    except subprocess.TimeoutExpired:
        process.kill()
    return process.wait() == -signal.SIGKILL


def kills(rounds, duration):
    dice = random.Random(21)
    steps, runs, resumed, ended = collections.Counter(), 0, 0, 0
    for _ in range(rounds):
        for _ in range(dice.choice([1, 1, 2, 3, 4])):
            runs += 1
            begun = time.monotonic()
            if not killed(dice.random() * duration):
                # The machine is faster now.
                duration = min(duration, time.monotonic() - begun)
            else:
                steps["published" if (work / "data").exists() else step()] += 1
            if (work / "data").exists():
                break
            check(visible() == inputs, f"visible before the end: {visible() - inputs}")
        if (work / "data").exists():
            # The import had ended, or was killed between its last step and its end.
            ended += 1
            check(tree(work / "data") == expected, "a visible target that is not complete")
            again = subprocess.run(command("data"), cwd=work, capture_output=True, text=True)
            check(again.returncode == 2 and '"exists"' in again.stdout + again.stderr, again.stderr)
            check({path.name for path in work.iterdir()} == inputs | {"data"}, "the work folder is left")
            shutil.rmtree(work / "data")
        else:
            resumed += settled()
    print(f"{runs} runs, {sum(steps.values())} killed midway: {dict(steps)}")
    print(f"{rounds} imports: {resumed} continued with finished steps, {ended} ended before they were killed, the others began anew")
    check(sum(steps.values()) > runs / 2 and resumed > rounds / 2, "most imports were not killed midway")


def full_disks():
    def limited(size):
        # The system reports an error instead of ending the process.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    resumed = 0
    for size in SIZES:
        with (work / ".report").open("w") as report:
            done = subprocess.run(
                command("data"),
                cwd=work,
                stdout=subprocess.PIPE,
                stderr=report,
                text=True,
                restore_signals=False,
                preexec_fn=lambda size=size: limited(size),
            )
        (work / ".report").unlink()
        check(done.returncode == 2 and visible() == inputs, f"files up to {size} bytes: {done.returncode} {visible()}")
        error = json.loads(done.stdout)["error"]
        check(error["kind"] == "io" and error["file"], error)
        print(f"files up to {size} bytes: {error['file']}: {error['message']}")
        resumed += settled()
    check(resumed >= 2, "no import continued")


if __name__ == "__main__":
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        graph(work)
        inputs = {path.name for path in work.iterdir()}
        begun = time.monotonic()
        finish("data")
        duration = time.monotonic() - begun
        expected = tree(work / "data")
        shutil.rmtree(work / "data")
        print(f"undisturbed: {duration:.2f} s, {len(expected)} files, {sum(map(len, expected.values()))} bytes")
        kills(rounds, duration)
        full_disks()
    print("all as expected")
