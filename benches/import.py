"""Weighbridge's import of edge lists compared with DuckDB and Polars: time and peak memory of whole processes.

usage: import.py PYTHON [EDGES [RUNS]]

Build first: cargo build --profile dist. PYTHON needs duckdb, polars and numpy. The graph has 10,000,000 edges between a million
entities, 50 relations and four partitions, as tab-separated text (220 MB) and as N-Triples (1.3 GB). The other tools number the names,
give edges their ids, sort them by partition and write Parquet. Runs are in turn; the file is in the page cache.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BINARY = ROOT / "target" / "dist" / "weighbridge"

MAKE = r"""
import sys
import numpy as np
edges, tsv, nt = int(sys.argv[1]), sys.argv[2], sys.argv[3]
rng = np.random.default_rng(1)
entities = max(edges // 10, 1)
with open(tsv, "w") as table, open(nt, "w") as triples:
    for start in range(0, edges, 1_000_000):
        n = min(1_000_000, edges - start)
        left = (entities * rng.random(n) ** 2).astype("i8").tolist()
        relation = (50 * rng.random(n) ** 1.5).astype("i8").tolist()
        right = rng.integers(0, entities, n).tolist()
        table.write("".join(f"e{l:07}\tr{r:02}\te{t:07}\n" for l, r, t in zip(left, relation, right)))
        lines = []
        for l, r, t in zip(left, relation, right):
            subject = f"<http://dbpedia.org/resource/Entity_of_the_graph_{l}>"
            if r < 8:
                # Literals: plain text with a language, text with escapes, numbers.
                kind = t % 4
                value = f'"label of {t}"@en' if kind < 2 else f'"caf\\u00E9 \\"{t}\\""' if kind == 2 else f'"{t}"^^<http://www.w3.org/2001/XMLSchema#integer>'
            else:
                value = f"<http://dbpedia.org/resource/Entity_of_the_graph_{t}>"
            lines.append(f"{subject} <http://dbpedia.org/ontology/relation{r}> {value} .\n")
        triples.write("".join(lines))
"""

DUCKDB = r"""
import duckdb, sys
source, target, partitions = sys.argv[1:4]
db = duckdb.connect()
db.execute("SET preserve_insertion_order = false")
db.execute(f"SET temp_directory = '{target}.tmp'")
db.execute(f"CREATE TABLE edges AS SELECT * FROM read_csv('{source}', delim='\t', header=false, quote='', escape='', columns={{'l': 'VARCHAR', 'r': 'VARCHAR', 't': 'VARCHAR'}})")
db.execute("CREATE TABLE names AS SELECT n, row_number() OVER (ORDER BY n) - 1 AS id FROM (SELECT l AS n FROM edges UNION SELECT t FROM edges)")
count = db.execute("SELECT count(*) FROM names").fetchone()[0]
db.execute(f"COPY (SELECT a.id * {partitions} // {count} AS lp, b.id * {partitions} // {count} AS rp, a.id AS li, b.id AS ti, e.r FROM edges e JOIN names a ON e.l = a.n JOIN names b ON e.t = b.n ORDER BY lp, rp) TO '{target}' (FORMAT parquet)")
db.execute(f"COPY (SELECT n FROM names ORDER BY id) TO '{target}.names' (FORMAT parquet)")
"""

POLARS = r"""
import polars as pl, sys
source, target, partitions = sys.argv[1], sys.argv[2], int(sys.argv[3])
df = pl.read_csv(source, separator="\t", has_header=False, quote_char=None, new_columns=["l", "r", "t"])
names = pl.concat([df["l"], df["t"]]).unique().sort().to_frame("n").with_row_index("id")
df = df.join(names, left_on="l", right_on="n").rename({"id": "li"}).join(names, left_on="t", right_on="n").rename({"id": "ti"})
df = df.with_columns((pl.col("li").cast(pl.Int64) * partitions // names.height).alias("lp"), (pl.col("ti").cast(pl.Int64) * partitions // names.height).alias("rp"))
df.sort("lp", "rp").select("lp", "rp", "li", "ti", "r").write_parquet(target)
names.write_parquet(target + ".names")
"""


def measured(command):
    """Runs a command; returns its seconds, CPU seconds and peak memory in MB."""
    begun = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command} ended with {process.returncode}")
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def config(path, dynamic):
    names = ["all"] if dynamic else [f"r{number:02}" for number in range(50)]
    document = {
        "entities": {"all": {"num_partitions": 4}},
        "relations": [{"name": name, "lhs": "all", "rhs": "all", "operator": "none"} for name in names],
        "dynamic_relations": dynamic,
        "dimension": 100,
        "entity_path": "data/entities",
        "edge_paths": ["data/edges"],
        "checkpoint_path": "model",
    }
    path.write_text(json.dumps(document))
    return path


def main():
    python, edges, rounds = sys.argv[1], *map(int, [*sys.argv[2:], *(10_000_000, 3)[len(sys.argv) - 2 :]])
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as temporary:
        work = Path(temporary)
        tsv, nt = work / "graph.tsv", work / "graph.nt"
        subprocess.run([python, "-c", MAKE, str(edges), str(tsv), str(nt)], check=True)
        ours = [BINARY, "import", "--force"]
        jobs = {
            "weighbridge": [*ours, tsv, "--config", config(work / "static.json", False), "-o", work / "static"],
            "duckdb": [python, "-c", DUCKDB, tsv, work / "duckdb.parquet", 4],
            "polars": [python, "-c", POLARS, tsv, work / "polars.parquet", 4],
            "weighbridge, N-Triples": [*ours, nt, "--config", config(work / "dynamic.json", True), "-o", work / "dynamic"],
        }
        runs = {name: [] for name in jobs}
        for _ in range(rounds):
            for name, command in jobs.items():
                runs[name].append(measured(command))
        print(f"{edges} edges, {tsv.stat().st_size / 1e6:.0f} MB of text, {nt.stat().st_size / 1e6:.0f} MB of N-Triples")
        print(f"{'tool':24} {'s':>20} {'CPU s':>8} {'MB':>8}")
        for name, all_runs in runs.items():
            seconds, cpu, memory = (sorted(column) for column in zip(*all_runs))
            spread = f"{seconds[0]:.1f} to {seconds[-1]:.1f}"
            print(f"{name:24} {spread:>20} {statistics.median(cpu):8.1f} {memory[-1]:8.0f}")


if __name__ == "__main__":
    main()
