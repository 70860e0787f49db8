"""Makes testdata/tables: tables as pyarrow, pandas and numpy write them, and expected.json beside.

usage: make_tables.py    (needs pyarrow, numpy)
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

OUT = Path(__file__).resolve().parent.parent / "testdata" / "tables"
expected = {}
rng = np.random.default_rng(5)


def tell(file, form, array, names, guessed=False):
    array = np.ascontiguousarray(array)
    dtype = {"f": "f", "i": "i", "u": "u"}[array.dtype.kind] + str(array.dtype.itemsize * 8)
    expected[file] = {
        "format": form,
        "dtype": dtype,
        "shape": list(array.shape),
        "hex": array.astype(array.dtype.newbyteorder("<")).tobytes().hex(),
        "names": names,
        "guessed": guessed,
    }


def fixed(array):
    return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])


def both(stem, table, array, names, guessed=False, batch=None, **parquet):
    pq.write_table(table, OUT / f"{stem}.parquet", row_group_size=batch, **parquet)
    tell(f"{stem}.parquet", "parquet", array, names, guessed)
    for compression in ["uncompressed", "lz4", "zstd"]:
        file = f"{stem}.{compression}.arrow"
        feather.write_feather(table, OUT / file, compression=compression, chunksize=batch)
        tell(file, "arrow", array, names, guessed)


OUT.mkdir(parents=True, exist_ok=True)
a = rng.standard_normal((9, 4)).astype(np.float32)
a.view(np.uint32)[0, 0] = 0x7FC00001
a[1, 1], a[2, 2] = -np.inf, -0.0
names = [f"näme {i}" for i in range(9)]
both("fixed", pa.table({"name": names, "vector": fixed(a)}), a, names, batch=4)
both("lists", pa.table({"id": names, "v": pa.array([list(map(float, r)) for r in np.arange(18).reshape(9, 2)], pa.list_(pa.float64()))}),
     np.arange(18, dtype=np.float64).reshape(9, 2), names, guessed=True, batch=5)
c = rng.integers(-9, 9, (7, 3)).astype(np.int32)
both("plain", pa.table({f"x{i}": c[:, i] for i in range(3)}), c, None, compression="zstd")
h = rng.standard_normal((6, 2)).astype(np.float16)
both("half", pa.table({"other": fixed(h[:, :1]), "vector": fixed(h), "name": pa.array(names[:6], pa.large_string())}), h, names[:6])
holes = pa.table({"x": pa.array([1.0, None, 3.0])})
pq.write_table(holes, OUT / "holes.parquet")
feather.write_feather(holes, OUT / "holes.arrow", compression="uncompressed")
ragged = pa.table({"x": pa.array([[1.0], [2.0, 3.0]])})
pq.write_table(ragged, OUT / "ragged.parquet")
for file, code in [("holes.parquet", "nulls"), ("holes.arrow", "nulls"), ("ragged.parquet", "ragged-list")]:
    expected[file] = {"error": code}

plain = rng.standard_normal((5, 3)).astype(np.float32)
np.savetxt(OUT / "savetxt.tsv", plain, delimiter="\t")
tell("savetxt.tsv", "tsv", np.loadtxt(OUT / "savetxt.tsv", dtype=np.float32), None, True)
words = ["the", "größe", "of"]
with open(OUT / "text.vec", "w", encoding="utf8", newline="") as f:
    f.write("3 3\n" + "".join(f"{w} " + " ".join(repr(float(x)) for x in r) + " \n" for w, r in zip(words, plain)))
tell("text.vec", "word2vec", plain[:3], words, True)
for file, end in [("gensim.bin", b""), ("original.bin", b"\n")]:
    body = b"".join(w.encode() + b" " + r.tobytes() + end for w, r in zip(words, plain))
    (OUT / file).write_bytes(b"3 3\n" + body)
    tell(file, "word2vec", plain[:3], words)
# As others pack their pages, and one that is not read.
packed = pa.table({"name": names, "vector": fixed(a)})
for codec in ["gzip", "snappy", "lz4", "brotli"]:
    pq.write_table(packed, OUT / f"fixed.{codec}.parquet", compression=codec, data_page_version="2.0")
    tell(f"fixed.{codec}.parquet", "parquet", a, names)
expected["fixed.brotli.parquet"]["error"] = "codec"
pq.write_table(packed, OUT / "fixed.checksums.parquet", compression="none", use_dictionary=False, write_page_checksum=True)
tell("fixed.checksums.parquet", "parquet", a, names)
# Metadata that are no text, and keys that would be one in the index or belong to a library.
t = np.array([[1, 4], [2, 5], [3, 6]], dtype=np.float32)
for stem, metadata in {
    "odd_metadata": {b"ok": "é".encode(), b"k\xff": b"v", b"bin": b"\xff\x00\x01"},
    "odd_keys": {
        b"\xff": b"bytes", b"\\xff": b"text", b"k\xff": b"1", b"k\xfe": b"2", b"k\x1a": b"own",
        b"pandas": b"\xff", b"weighbridge.own": b"x",
    },
}.items():
    table = pa.table({"name": ["a", "b", "c"], "vector": fixed(t)}).replace_schema_metadata(metadata)
    pq.write_table(table, OUT / f"{stem}.parquet")
    feather.write_feather(table, OUT / f"{stem}.uncompressed.arrow", compression="uncompressed")
    tell(f"{stem}.parquet", "parquet", t, ["a", "b", "c"])
    tell(f"{stem}.uncompressed.arrow", "arrow", t, ["a", "b", "c"])
(OUT / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
