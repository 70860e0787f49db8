"""Makes testdata/verdicts: a folder for each verdict of `verify`, with files that must get it.

usage: make_verdicts.py testdata/verdicts    (needs numpy, pyarrow)

The files with one to three changed bytes are those of mutation_judge.py that the owner refuses; they depend on the version of
pyarrow, so the names of the numbers below say what the owner said of them.
"""

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption

sys.path.insert(0, str(Path(__file__).parent))
import mutation_judge

OUT = Path(sys.argv[1])
for verdict in ["sound", "could-not-tell", "unsound"]:
    (OUT / verdict).mkdir(parents=True, exist_ok=True)


def put(verdict, name, data):
    (OUT / verdict / name).write_bytes(data)


def parquet(table, **options):
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def with_footer(data, change):
    length = int.from_bytes(data[-8:-4], "little")
    footer = change(data[-8 - length : -8])
    return data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def replaced(old, new):
    def change(footer):
        assert footer.count(old) == 1, footer.count(old)
        return footer.replace(old, new)

    return change


# Tables without rows, and without columns.
vectors = pa.FixedSizeListArray.from_arrays(pa.array([], pa.float32()), 3)
empty = {"vectors": pa.table({"name": pa.array([], pa.string()), "vector": vectors}), "plain": pa.table({"a": pa.array([], pa.float32())})}
for name, table in empty.items():
    put("sound", f"no-rows.{name}.parquet", parquet(table))
    feather.write_feather(table, OUT / "sound" / f"no-rows.{name}.arrow", compression="lz4")
put("could-not-tell", "no-columns.parquet", parquet(pa.table({})))

# Lists of several lengths are no table.
put("could-not-tell", "ragged.parquet", parquet(pa.table({"x": [[1.0], [2.0, 3.0]]})))

# A dictionary that is said to begin at 0, as some writers say that there is none: field 11 behind field 9.
plain = parquet(pa.table({"a": np.arange(5, dtype="f4")}), use_dictionary=False, compression="none")
put("sound", "dictionary-at-0.parquet", with_footer(plain, replaced(b"\x26\x08\x3c", b"\x26\x08\x26\x00\x1c")))


class Keys(encryption.KmsClient):
    def __init__(self, config):
        super().__init__()

    def wrap_key(self, key, _):
        return key.hex()

    def unwrap_key(self, key, _):
        return bytes.fromhex(key)


factory = encryption.CryptoFactory(Keys)
for name, plaintext in [("footer", False), ("columns", True)]:
    config = encryption.EncryptionConfiguration(footer_key="f", column_keys={"c": ["a"]}, plaintext_footer=plaintext, double_wrapping=False)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    put("could-not-tell", f"encrypted-{name}.parquet", parquet(pa.table({"a": np.arange(5, dtype="f4")}), encryption_properties=properties))


def archive(raw_name, data, flags=0, extra=b"", more=b"", version=20):
    """An archive of one stored member."""
    crc, length = zlib.crc32(data), len(data)
    facts = struct.pack("<HHHHHIIIHH", version, flags, 0, 0, 0x21, crc, length + len(more), length, len(raw_name), len(extra))
    local = b"PK\3\4" + facts + raw_name + extra + more + data
    central = b"PK\1\2" + struct.pack("<H", 20) + facts + struct.pack("<HHHII", 0, 0, 0, 0, 0) + raw_name + extra
    return local + central + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


def unicode_path(raw_name, name):
    body = b"\1" + struct.pack("<I", zlib.crc32(raw_name)) + name.encode()
    return struct.pack("<HH", 0x7075, len(body)) + body


array = io.BytesIO()
np.save(array, np.arange(6, dtype="f4"))
array = array.getvalue()
put("sound", "unicode-path.npz", archive("wé.npy".encode("cp437"), array, extra=unicode_path("wé.npy".encode("cp437"), "wé.npy")))
big5 = "你好.txt".encode("big5")
put("could-not-tell", "unicode-path-big5.zip", archive(big5, b"text", extra=unicode_path(big5, "你好.txt")))
put("could-not-tell", "encrypted.npz", archive(b"w.npy", array, flags=1, more=b"twelve bytes"))
put("could-not-tell", "version-needed.npz", archive(b"w.npy", array, version=255))

for kind, numbers in {
    "parquet": [8, 62, 269, 468, 699, 827, 915, 997, 1378, 1653, 1718, 1921, 2415, 2992, 3312, 3383, 3489],
    "arrow": [79, 229, 261, 366, 1059, 1256, 1700, 2322, 3264],
}.items():
    seeds = list({"parquet": mutation_judge.parquet_seeds, "arrow": mutation_judge.arrow_seeds}[kind]())
    for number in numbers:
        data = mutation_judge.mutated(seeds, number)
        path = OUT / f"mutated.{kind}"
        path.write_bytes(data)
        try:
            mutation_judge.owner(path)
        except Exception:
            put("unsound", f"{number}.{kind}", data)
        path.unlink()
