"""Judge of `verify`: files with one to three changed bytes, beside the library that owns their format.

Of the files that `verify` calls sound, the owner (pyarrow, numpy) must read all but 0.5 %, and what `convert` makes of
them must have the owner's values.

usage: mutation_judge.py PATH-OF-THE-COMMAND [MUTATIONS-OF-EACH-FORMAT] [FORMAT ...]    (needs numpy, pyarrow)
"""

import hashlib
import io
import json
import random
import select
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

FORMATS = ["parquet", "arrow", "npz"]
# Of the files that are called sound the owner may refuse so many.
MOST_REFUSED = 0.005
# Files that are given to the command at once.
BATCH = 200
# Refused files that are listed.
MOST_SHOWN = 60
# The owner may take so many seconds for one file.
PATIENCE = 30


# What the owner reads.


def digest(array):
    """Type, shape and a hash of the elements, little-endian and row-major."""
    array = np.asarray(array, order="C")
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    kind = {"b": "BOOL", "f": "F", "i": "I", "u": "U", "c": "C"}.get(array.dtype.kind, array.dtype.kind)
    bits = "" if kind == "BOOL" else str(array.dtype.itemsize * 8)
    return [kind + bits, list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]


def numbers(of):
    return pa.types.is_integer(of) or pa.types.is_floating(of)


def elements(table):
    """The table of a schema, by the rules that Weighbridge documents; None where it has none."""
    columns = [(field.name, field.type, table.column(place)) for place, field in enumerate(table.schema)]
    fixed = [c for c in columns if pa.types.is_fixed_size_list(c[1]) and numbers(c[1].value_type)]
    lists = [c for c in columns if (pa.types.is_list(c[1]) or pa.types.is_large_list(c[1])) and numbers(c[1].value_type)]
    plain = [c for c in columns if numbers(c[1])]
    chosen = sorted(fixed, key=lambda c: c[0] != "vector") or sorted(lists, key=lambda c: c[0] != "vector")
    if chosen:
        _, kind, column = chosen[0]
        parts = [part.flatten() for part in column.chunks]
        flat = np.concatenate([p.to_numpy(zero_copy_only=False) for p in parts] or [np.empty(0)])
        width = kind.list_size if pa.types.is_fixed_size_list(kind) else -1
        if width < 0:
            lengths = {len(row) for row in column.to_pylist()}
            width = lengths.pop() if len(lengths) == 1 else 0
        return flat.reshape(len(column), width)
    if plain:
        return np.stack([column.to_numpy() for _, _, column in plain], axis=1)
    return None


def names(table):
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type) or pa.types.is_string_view(field.type):
            return table.column(place).to_pylist()
    return None


def names_digest(texts):
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def owner(path):
    """What the owner reads: a digest of the values by name, or of a table its values and names."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return {name: digest(array) for name, array in arrays.items()}
    if path.suffix == ".parquet":
        table = pq.read_table(path, partitioning=None)
    else:
        table = feather.read_table(path)
    table.validate(full=True)
    array = elements(table)
    of_rows = names(table)
    return {
        "value": None if array is None else digest(array),
        "names": None if of_rows is None else names_digest(of_rows),
    }


def serve():
    """Reads paths from standard input and writes what the owner says of each."""
    for line in sys.stdin:
        try:
            answer = {"read": owner(Path(line.strip()))}
        except Exception as error:
            answer = {"refused": f"{type(error).__name__}: {error}"[:200].replace("\n", " ")}
        print(json.dumps(answer), flush=True)


class Owner:
    """The owner in a process of its own: damage may end it."""

    process = None

    def read(self, path):
        if self.process is None:
            command = [sys.executable, "-W", "ignore", __file__, "--owner"]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.process.kill()
        self.process.wait()
        self.process = None
        return {"refused": "the process ended" if ready else "no answer in time"}


# What Weighbridge reads.


def own(command, path, folder):
    """The values that `convert` gives, as `owner` has them; None where it says that something is wrong."""
    target = folder / "converted.safetensors"
    run = subprocess.run([command, "convert", str(path), str(target), "--force", "-q"], capture_output=True)
    if run.returncode:
        return None
    data = target.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        first, stop = entry["data_offsets"]
        bytes_of = data[end + first : end + stop]
        found[name] = [entry["dtype"], entry["shape"], hashlib.sha256(bytes_of).hexdigest()]
        header[name] = bytes_of
    if path.suffix == ".npz":
        return found
    ends = [name for name in found if name.endswith(".names.ends")]
    of_rows = None
    if ends:
        stem = ends[0].removesuffix(".ends")
        stops = np.frombuffer(header[ends[0]], "<i8")
        text = header[stem + ".text"]
        of_rows = names_digest([text[start:stop].decode() for start, stop in zip([0, *stops], stops)])
        del found[ends[0]], found[stem + ".text"]
    return {"value": next(iter(found.values()), None), "names": of_rows}


# Sound files to begin with.


def tables():
    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((24, 3)).astype("f4")
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 3)
    words = [f"word {i % 7}" for i in range(24)]
    named = pa.table({"name": words, "vector": fixed})
    plain = pa.table({c: rng.standard_normal(24) for c in "abc"})
    whole = pa.table({"id": np.arange(24, dtype="i8"), "x": rng.integers(0, 9, 24)})
    lists = pa.table({"name": words, "vector": pa.array([list(row) for row in vectors], pa.list_(pa.float32()))})
    return {"named": named, "plain": plain, "whole": whole, "lists": lists}


def parquet_seeds():
    of = tables()
    ways = [("named", {"compression": codec, "data_page_version": version}) for codec in ["none", "snappy", "gzip", "zstd", "lz4"] for version in ["1.0", "2.0"]]
    ways += [("plain", {"compression": "none", "use_dictionary": False}), ("plain", {"compression": "zstd", "row_group_size": 10})]
    ways += [("plain", {"compression": "none", "use_dictionary": False, "use_byte_stream_split": True})]
    ways += [("whole", {"compression": "none"}), ("lists", {"compression": "snappy"}), ("lists", {"compression": "none", "data_page_version": "2.0"})]
    ways += [("whole", {"compression": "none", "use_dictionary": False, "column_encoding": "DELTA_BINARY_PACKED"})]
    ways += [("named", {"compression": "snappy", "write_page_checksum": True}), ("named", {"compression": "none", "write_page_index": True, "row_group_size": 9})]
    ways += [("named", {"compression": "none", "use_dictionary": False, "column_encoding": {"name": "DELTA_BYTE_ARRAY"}})]
    ways += [("named", {"compression": "none", "use_dictionary": False, "write_statistics": False, "store_schema": False})]
    for name, options in ways:
        out = io.BytesIO()
        pq.write_table(of[name], out, **options)
        yield out.getvalue()


def arrow_seeds():
    of = tables()
    of["views"] = pa.table({"name": pa.array([f"a name that is longer than twelve {i}" for i in range(24)], pa.string_view()), "vector": of["named"].column("vector")})
    for name, table in of.items():
        for codec in [None, "lz4", "zstd"]:
            for rows in [None, 10]:
                out = io.BytesIO()
                with ipc.new_file(out, table.schema, options=ipc.IpcWriteOptions(compression=codec)) as writer:
                    writer.write_table(table, max_chunksize=rows)
                yield out.getvalue()


def npz_seeds():
    rng = np.random.default_rng(8)
    arrays = {
        "weight": rng.standard_normal((5, 4)).astype("f4"),
        "bias": rng.standard_normal(6),
        "step": np.array(7),
        "mask": np.array([True, False, True]),
        "fortran": np.asfortranarray(rng.integers(0, 99, (3, 4))),
        "big": np.arange(5, dtype=">i4"),
        "empty": np.empty((0, 3), "f2"),
    }
    for save in [np.savez, np.savez_compressed]:
        for chosen in [list(arrays), ["weight"], ["weight", "bias"], ["step", "mask", "big"]]:
            out = io.BytesIO()
            save(out, **{name: arrays[name] for name in chosen})
            yield out.getvalue()


def mutated(seeds, seed):
    """A sound file with one to three other bytes."""
    rng = random.Random(seed)
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data))
        data[at] = data[at] ^ (1 << rng.randrange(8)) if rng.random() < 0.5 else rng.randrange(256)
    return bytes(data)


def verdicts(command, paths):
    run = subprocess.run([command, "verify", "-q", "--json", *map(str, paths)], capture_output=True, text=True)
    if not run.stdout:
        raise RuntimeError(f"no answer, exit code {run.returncode}: {run.stderr[-500:]}, {paths[0]} and others")
    reports = json.loads(run.stdout)
    reports = reports.get("paths", [reports])
    return [report.get("verdict", "error") for report in reports]


def same(path, read, found):
    """True where both have the same values. Of a type that no tensor has, such as text, the owner alone has some."""
    if path.suffix == ".npz":
        return all(found.get(name) == value for name, value in read.items() if value[0][0] in "BFIUC")
    return found == read


def sweep(command, kind, count, folder):
    """True where the format holds."""
    seeds = list({"parquet": parquet_seeds, "arrow": arrow_seeds, "npz": npz_seeds}[kind]())
    paths = [folder / f"seed{number}.{kind}" for number in range(len(seeds))]
    for path, data in zip(paths, seeds):
        path.write_bytes(data)
    process = Owner()
    wrong = [str(path) for path, verdict in zip(paths, verdicts(command, paths)) if verdict != "sound" and "read" in process.read(path)]
    if wrong:
        print(f"FAILED {kind}: not called sound: {wrong}")
    counts, refused, differing = Counter(), [], []
    for first in range(0, count, BATCH):
        batch = []
        for seed in range(first, min(first + BATCH, count)):
            path = folder / f"{seed}.{kind}"
            path.write_bytes(mutated(seeds, seed))
            batch.append(path)
        for path, verdict in zip(batch, verdicts(command, batch)):
            counts[verdict] += 1
            keep = False
            if verdict == "sound":
                answer = process.read(path)
                if "refused" in answer:
                    refused.append((path.stem, answer["refused"]))
                    keep = True
                else:
                    found = own(command, path, folder)
                    if found is not None and not same(path, answer["read"], found):
                        differing.append(path.stem)
                        keep = True
            if not (keep and KEEP):
                path.unlink()
    share = len(refused) / max(1, counts["sound"])
    print(f"{kind}: {dict(counts)}; of the sound ones the owner refuses {len(refused)} ({share:.2%}), {len(differing)} have other values")
    for stem, text in refused[:: max(1, len(refused) // MOST_SHOWN)]:
        print(f"  refused {stem}: {text}")
    for stem in differing:
        print(f"  differs {stem}")
    return not wrong and share <= MOST_REFUSED and not differing


KEEP = None
if __name__ == "__main__":
    if sys.argv[1:] == ["--owner"]:
        serve()
        sys.exit()
    arguments = sys.argv[1:]
    if "--keep" in arguments:
        place = arguments.index("--keep")
        KEEP = Path(arguments[place + 1])
        del arguments[place : place + 2]
    command = arguments[0]
    count = int(arguments[1]) if len(arguments) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder:
        folder = KEEP or Path(folder)
        folder.mkdir(exist_ok=True)
        held = [sweep(command, kind, count, folder) for kind in arguments[2:] or FORMATS]
    sys.exit(0 if all(held) else 1)
