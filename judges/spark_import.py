"""Spark judges imports on a cluster: two executors, killed during the import, make the folder that one machine makes.

    python judges/spark_import.py WEIGHBRIDGE

Needs pyspark 4 and its packages, Java 17, and the package `weighbridge`. Exit code 0: all files are equal.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

from pyspark.sql import SparkSession

import weighbridge.spark

ENTITIES = {"user": {"num_partitions": 3}, "item": {"num_partitions": 3}, "city": {"num_partitions": 1}}
RELATIONS = [
    ("follows", "user", "user"),
    ("buys", "user", "item"),
    ("lives", "user", "city"),
    ("near", "city", "city"),
]
CONFIG = {
    "entities": ENTITIES,
    "relations": [{"name": name, "lhs": lhs, "rhs": rhs} for name, lhs, rhs in RELATIONS],
    "dimension": 4,
    "entity_path": "x/names",
    "edge_paths": ["x/train", "x/valid"],
    "checkpoint_path": "m",
}
SCHEMA = "position long, lhs string, rel string, rhs string, weight string"
counted = failures = 0


def check(what, good, note=""):
    global counted, failures
    counted += 1
    if not good:
        failures += 1
        print("FAIL", what, str(note)[:600])


def made(folder, name, count):
    """Writes an edge list, and the same with positions in several files of another order, as a cluster has it."""
    dice = random.Random(count)
    lines = []
    for _ in range(count):
        rel, lhs, rhs = dice.choice(RELATIONS)
        ends = [f"{side}é{int(dice.random() ** 2 * 20_000)}" for side in (lhs, rhs)]
        lines.append(f"{ends[0]}\t{rel}\t{ends[1]}\t{dice.randrange(1000) / 8}")
    (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    placed = [f"{number}\t{line}\n" for number, line in enumerate(lines)]
    dice.shuffle(placed)
    (folder / name).mkdir()
    for part in range(6):
        (folder / name / f"{part}.tsv").write_text("".join(placed[part::6]), "utf-8")


def executors(application):
    """Process ids of the executors of an application."""
    found = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 1) for line in found.splitlines()]
    return [
        int(pid)
        for pid, args in rows
        if "CoarseGrainedExecutorBackend" in args and application in args and "java" in args
    ]


def killer(application, work, pattern, killed, stop):
    """Kills an executor once a task has staged a file that matches `pattern`."""
    while not stop.is_set():
        if any(work.glob(pattern)):
            own = executors(application)
            if own:
                os.kill(own[0], signal.SIGKILL)
                killed.append(own[0])
                return
        time.sleep(0.01)


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def judge(binary, work):
    (work / "config.json").write_text(json.dumps(CONFIG))
    for name, count in (("train", 80_000), ("valid", 10_000)):
        made(work, name, count)
    inputs = [f"{name}={work / name}.tsv" for name in ("train", "valid")]
    options = ["--columns", "lhs,rel,rhs,weight", "--order", "sorted", "--entity-min-count", "2"]
    command = [
        binary,
        "import",
        *inputs,
        "--config",
        str(work / "config.json"),
        "-o",
        str(work / "one"),
        *options,
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    one = files(work / "one")
    check("files of one machine", len(one) == 15 + 2 * 9, len(one))

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": 4,
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": 0.5,
        "spark.speculation.minTaskRuntime": "50ms",
        "spark.local.dir": work / "local",
    }
    for name, value in settings.items():
        builder = builder.config(name, str(value))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    application = spark.sparkContext.applicationId
    frames = {
        name: spark.read.schema(SCHEMA).option("sep", "\t").csv(str(work / name))
        for name in ("train", "valid")
    }
    target = work / "many"
    killed, stop = [], threading.Event()
    # While names are written, and while edges are: what the tasks of the executor had made is lost.
    hidden = [f".many.*/{folder}/.weighbridge-*/*" for folder in ("names", "train")]
    threads = [threading.Thread(target=killer, args=(application, work, own, killed, stop)) for own in hidden]
    for thread in threads:
        thread.start()
    try:
        options = {"order": "sorted", "entity_min_count": 2}
        report = weighbridge.spark.import_edges(spark, frames, target, work / "config.json", **options)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    # The driver, two executors, and one more for each that was killed.
    known = spark.sparkContext._jsc.sc().statusStore().executorList(False).size()
    check("executors killed", len(set(killed)) == 2, killed)
    check("executors that Spark had", known >= 5, known)
    print(report, "after the executors", *killed, "were killed")
    many = files(target)
    check("names of files", sorted(many) == sorted(one), set(many) ^ set(one))
    for name in sorted(set(one) & set(many)):
        check(name, one[name] == many[name])
    left = sorted(path.name for path in work.iterdir() if path.name.startswith("."))
    check("nothing else is left", not left, left)

    # Without positions: the same edges in each bucket.
    loose = {name: frame.drop("position") for name, frame in frames.items()}
    weighbridge.spark.import_edges(spark, loose, work / "loose", work / "config.json", **options)
    for name in ("train", "valid"):
        own, meant = (weighbridge.biggraph.buckets(work / folder / name) for folder in ("loose", "one"))
        for bucket, edges in meant.items():
            pair = [
                sorted(zip(*(c.tolist() for c in (e.lhs, e.rhs, e.rel, e.weight))))
                for e in (edges, own[bucket])
            ]
            check(f"edges of {name} {bucket}", pair[0] == pair[1])
    spark.stop()


if __name__ == "__main__":
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as temporary:
        judge(binary, pathlib.Path(temporary))
    print(f"{counted} checks, {failures} failures")
    sys.exit(1 if failures else 0)
