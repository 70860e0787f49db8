"""Judge of tables: pyarrow, and plain readers of text, read what Weighbridge wrote and compare it with what went in.

usage: tables_judge.py PATH-OF-THE-COMMAND    (needs numpy, pyarrow)
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

COMMAND = sys.argv[1]
passed = failed = 0


def check(what, condition):
    global passed, failed
    passed, failed = passed + bool(condition), failed + (not condition)
    if not condition:
        print("FAILED", what)


def convert(source, target, *words):
    subprocess.run([COMMAND, "convert", str(source), str(target), "--force", *words], check=True, capture_output=True)


def vectors(table):
    return [table.column("vector").combine_chunks().flatten().to_numpy(), table.column("vector").type.list_size]


def same(what, array, table):
    flat, width = vectors(table)
    check(what, width == array.shape[1] and flat.tobytes() == array.tobytes() and flat.dtype == array.dtype)


def words(path):
    """As gensim reads the text form."""
    lines = path.read_text("utf8").split("\n")
    count, width = map(int, lines[0].split())
    rows = [line.rstrip().split(" ") for line in lines[1 : count + 1]]
    return [row[0] for row in rows], np.array([row[1:] for row in rows], dtype=np.float32).reshape(count, width)


def binary_words(path):
    """As gensim reads the binary form."""
    data = path.read_bytes()
    end = data.index(b"\n")
    count, width = map(int, data[:end].split())
    at, names, rows = end + 1, [], []
    for _ in range(count):
        blank = data.index(b" ", at)
        names.append(data[at:blank].lstrip(b"\n").decode())
        rows.append(np.frombuffer(data, np.float32, width, blank + 1))
        at = blank + 1 + 4 * width
    check("no byte is left", at == len(data))
    return names, np.array(rows).reshape(count, width)


rng = np.random.default_rng(3)
with tempfile.TemporaryDirectory() as folder:
    folder = Path(folder)
    for rows, width in [(1, 1), (10, 3), (70_000, 33)]:
        for dtype in ["f4", "f8", "f2", "i4", "u1", "i8"]:
            array = (rng.standard_normal((rows, width)) * 50).astype(dtype)
            for order in "CF":
                np.save(folder / "a.npy", np.asarray(array, order=order))
                what = f"{rows} x {width} {dtype} {order}"
                for compression in ["none", "snappy", "zstd"]:
                    convert(folder / "a.npy", folder / "a.parquet", "--set", f"compression={compression}")
                    same(f"parquet {what} {compression}", array, pq.read_table(folder / "a.parquet"))
                convert(folder / "a.npy", folder / "a.arrow")
                same(f"arrow {what}", array, feather.read_table(folder / "a.arrow"))
        array = rng.standard_normal((rows, width)).astype("f4")
        array.ravel()[:3] = [np.inf, -0.0, 1e-30][: min(3, array.size)]
        names = [f"größe {i}" for i in range(rows)]
        vector = pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), width)
        table = pa.table({"name": names, "vector": vector})
        for codec in ["none", "snappy", "gzip", "zstd", "lz4"]:
            for version in ["1.0", "2.0"]:
                pq.write_table(table, folder / "p.parquet", compression=codec, data_page_version=version)
                convert(folder / "p.parquet", folder / "p.npz")
                with np.load(folder / "p.npz") as packed:
                    own = [packed[name] for name in packed if packed[name].dtype == np.float32]
                check(f"packed by {codec} {version}", len(own) == 1 and own[0].tobytes() == array.tobytes())
        pq.write_table(table, folder / "n.parquet")
        convert(folder / "n.parquet", folder / "n.arrow")
        back = feather.read_table(folder / "n.arrow")
        same(f"named {rows}", array, back)
        check("names", back.column("name").to_pylist() == names)
        convert(folder / "n.arrow", folder / "n.tsv")
        lines = [line.split("\t") for line in (folder / "n.tsv").read_text("utf8").splitlines()]
        check("tsv names", [line[0] for line in lines] == names)
        check("tsv bits", np.array([line[1:] for line in lines], dtype="f4").tobytes() == array.tobytes())
        convert(folder / "n.arrow", folder / "u.tsv", "--set", "floats=upstream")
        expected = "".join("\t".join([n] + ["%.9f" % x for x in row]) + "\n" for n, row in zip(names, array.tolist()))
        check("tsv as upstream", (folder / "u.tsv").read_text("utf8") == expected)
        table = pa.table({"name": [n.replace(" ", "_") for n in names], "vector": vector})
        pq.write_table(table, folder / "w.parquet")
        for form, read in [("text", words), ("binary", binary_words)]:
            convert(folder / "w.parquet", folder / "w.vec", "--set", f"form={form}")
            own, rows_read = read(folder / "w.vec")
            check(f"word2vec {form}", own == table.column("name").to_pylist() and rows_read.tobytes() == array.tobytes())
    # Metadata of any bytes.
    table = table.replace_schema_metadata({b"bin": bytes(range(256)), b"k\xff": b"v", b"text": "größe".encode()})
    pq.write_table(table, folder / "m.parquet")
    feather.write_feather(table, folder / "m.arrow")
    for name in ["m.parquet", "m.arrow"]:
        told = json.loads(subprocess.run([COMMAND, "ls", str(folder / name), "--json"], capture_output=True, check=True).stdout)
        kept = told["metadata"]
        check(f"{name}: bytes", kept == {"bin": {"hex": bytes(range(256)).hex()}, "k\\xff": "v", "text": "größe"})
        check(f"{name}: sound", subprocess.run([COMMAND, "verify", str(folder / name)], capture_output=True).returncode == 0)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
