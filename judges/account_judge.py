"""The libraries of the formats judge what verify says each byte is for.

Python's zipfile, struct and json say where the structures of safetensors, npy, npz and PyTorch's archives are; h5py where
the elements and chunks of HDF5 datasets are; pyarrow where the columns of Parquet are.

usage: account_judge.py PATH-OF-THE-COMMAND
"""

import io
import json
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

COMMAND = sys.argv[1]
passed = failed = 0


def check(what, condition):
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print("FAILED", what)


def account(path):
    """The only file's ranges, after they were seen to fill the file."""
    done = subprocess.run([COMMAND, "verify", "--account", "--json", str(path)], capture_output=True, text=True)
    report = json.loads(done.stdout)
    (file,) = report["files"]
    at = 0
    for r in file["ranges"]:
        check(f"{path}: a range begins where the last one ends", r["offset"] == at)
        at += r["bytes"]
    check(f"{path}: the ranges fill the file", at == file["bytes"] == Path(path).stat().st_size)
    sums = sum(file[f"{use}_bytes"] for use in ("tensor", "header", "padding", "unknown"))
    check(f"{path}: the sums are the length", sums == file["bytes"])
    return report, file["ranges"]


def uses(ranges):
    """What every byte is for, one letter a byte."""
    return "".join({"tensor": "t", "header": "h", "padding": "p", "unknown": "u"}[r["use"]] * r["bytes"] for r in ranges)


def compare(path, expected):
    report, ranges = account(path)
    found = uses(ranges)
    where = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), None)
    check(f"{path.name}: {report['verdict']}, first difference at {where}", found == expected)
    return report, ranges


def paint(map_, at, length, letter):
    map_[at : at + length] = letter.encode() * length


def npy_map(data, at, map_):
    """The header of the array at `at`: text, then blanks, then elements, as the format's description has it."""
    major = data[at + 6]
    prefix, length = (10, struct.unpack_from("<H", data, at + 8)[0]) if major == 1 else (12, struct.unpack_from("<I", data, at + 8)[0])
    header = data[at + prefix : at + prefix + length]
    text = len(header.rstrip())
    paint(map_, at, prefix + text, "h")
    paint(map_, at + prefix + text, length - text, "p")
    return prefix + length


def safetensors_map(data):
    (length,) = struct.unpack_from("<Q", data)
    header = data[8 : 8 + length]
    map_ = bytearray(b"u" * len(data))
    text = len(header.rstrip(b" "))
    paint(map_, 0, 8 + text, "h")
    paint(map_, 8 + text, length - text, "p")
    for name, entry in json.loads(header).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            paint(map_, 8 + length + begin, end - begin, "t")
    return map_.decode()


def zip_map(path, member_map):
    """Local headers, data, directory and end by zipfile and the lengths in the headers."""
    data = path.read_bytes()
    map_ = bytearray(b"u" * len(data))
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
            paint(map_, info.header_offset, 30 + name, "h")
            at = info.header_offset + 30 + name
            place, end = at, at + extra
            while place + 4 <= end:
                kind, length = struct.unpack_from("<HH", data, place)
                fill = kind == 0x4246
                paint(map_, place, 4, "h")
                paint(map_, place + 4, length, "p" if fill else "h")
                place += 4 + length
            paint(map_, place, end - place, "p")
            member_map(info, data, end, map_)
            if info.flag_bits & 8:
                rest = data[end + info.compress_size :]
                paint(map_, end + info.compress_size, 16 if rest[:4] == b"PK\x07\x08" else 12, "h")
        directory = archive.start_dir
    paint(map_, directory, len(data) - directory, "h")
    return map_.decode()


def npz_member(info, data, at, map_):
    paint(map_, at, info.compress_size, "t")
    if info.compress_type == zipfile.ZIP_STORED:
        npy_map(data, at, map_)


def arrays():
    rng = np.random.default_rng(7)
    return {
        "plain": rng.standard_normal((5, 7)).astype("f4"),
        "column": np.asfortranarray(rng.standard_normal((3, 4))),
        "none": np.zeros((0, 3), "i8"),
        "one": np.array(3.5),
        "wide": rng.integers(0, 99, (2, 3, 4, 5), dtype="i2"),
    }


def judge_numpy(folder):
    all_ = arrays()
    for name, array in all_.items():
        path = folder / f"{name}.npy"
        np.save(path, array)
        data = path.read_bytes()
        map_ = bytearray(b"t" * len(data))
        npy_map(data, 0, map_)
        report, _ = compare(path, map_.decode())
        check(f"{name} is sound", report["verdict"] == "sound")
    np.savez(folder / "stored.npz", **all_)
    np.savez_compressed(folder / "packed.npz", **all_)
    for name in ("stored.npz", "packed.npz"):
        report, _ = compare(folder / name, zip_map(folder / name, npz_member))
        check(f"{name} is sound", report["verdict"] == "sound")
    # Bytes between the last member and the directory, which zipfile itself writes when asked so.
    path = folder / "hidden.npz"
    with zipfile.ZipFile(path, "w") as archive:
        bytes_ = io.BytesIO()
        np.save(bytes_, all_["plain"])
        archive.writestr("a.npy", bytes_.getvalue())
        archive.fp.write(b"#!/bin/sh\nfalse\n")
        archive.start_dir = archive.fp.tell()
        archive.comment = b"a comment that nobody reads"
    report, ranges = account(path)
    unknown = [(r["offset"], r["bytes"]) for r in ranges if r["use"] == "unknown"]
    with zipfile.ZipFile(path) as archive:
        start, end = archive.start_dir - 16, path.stat().st_size - 27
    check("hidden.npz: a gap and a comment", unknown == [(start, 16), (end, 27)])
    check("hidden.npz could not be told", report["verdict"] == "could-not-tell")


def judge_safetensors(folder):
    try:
        from safetensors.numpy import save_file
    except ImportError:
        print("no safetensors here: left out")
        return
    path = folder / "m.safetensors"
    save_file({n: np.ascontiguousarray(a) for n, a in arrays().items()}, path, metadata={"who": "judge"})
    report, _ = compare(path, safetensors_map(path.read_bytes()))
    check("m.safetensors is sound", report["verdict"] == "sound")


def judge_torch(folder):
    try:
        import torch
    except ImportError:
        print("no torch here: left out")
        return
    model = {n: torch.tensor(np.ascontiguousarray(a)) for n, a in arrays().items()}
    model["view"] = torch.arange(20.0)[3:7]
    path = folder / "m.pt"
    torch.save(model, path)

    def member(info, data, at, map_):
        # Of a storage, elements and what no tensor has are told apart by the tensors: see below.
        paint(map_, at, info.compress_size, "t" if "/data/" in info.filename else "h")

    expected = bytearray(zip_map(path, member).encode())
    with zipfile.ZipFile(path) as archive:
        views = [i for i in archive.infolist() if "/data/" in i.filename and i.file_size == 80]
    data = path.read_bytes()
    for info in views:
        name, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
        at = info.header_offset + 30 + name + extra
        paint(expected, at, 12, "h")
        paint(expected, at + 28, 52, "h")
    check("the storage of the view is there", len(views) == 1)
    compare(path, expected.decode())


def judge_hdf5(folder):
    try:
        import h5py
    except ImportError:
        print("no h5py here: left out")
        return
    for libver in ("earliest", "latest"):
        path = folder / f"{libver}.h5"
        with h5py.File(path, "w", libver=libver) as file:
            for name, array in arrays().items():
                file.create_dataset(f"group/{name}", data=array)
            file.create_dataset("chunks", data=np.arange(1000.0).reshape(20, 50), chunks=(7, 13))
            file.create_dataset("packed", data=np.arange(5000) % 17, chunks=(512,), compression="gzip")
            file.create_dataset("grows", data=np.arange(90), chunks=(16,), maxshape=(None,))
            file.create_dataset("words", data=["a", "bc", "d" * 100], dtype=h5py.string_dtype())
            for i in range(40):
                file.attrs[f"attribute {i}"] = f"value {i}"
        report, ranges = account(path)
        letters = uses(ranges)
        check(f"{path.name}: nothing is unknown", "u" not in letters)
        expected = bytearray(b"." * len(letters))
        with h5py.File(path) as file:

            def take(name, item):
                if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "iuf":
                    return
                if item.chunks is None:
                    if item.id.get_offset() is not None:
                        paint(expected, item.id.get_offset(), item.id.get_storage_size(), "t")
                    return
                for i in range(item.id.get_num_chunks()):
                    chunk = item.id.get_chunk_info(i)
                    size = chunk.size
                    if item.ndim == 1 and item.compression is None:
                        # What of the last chunk lies behind the last element belongs to no tensor.
                        size = min(size, (len(item) - chunk.chunk_offset[0]) * item.dtype.itemsize)
                    paint(expected, chunk.byte_offset, size, "t")

            file.visititems(take)
        found = "".join("t" if c == "t" else "." for c in letters)
        check(f"{path.name}: elements are where h5py has them", found == expected.decode())


def judge_parquet(folder):
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        print("no pyarrow here: left out")
        return
    rows = 5000
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(rows * 4, dtype="f4")), 4)
    names = pa.array([f"n{i}" for i in range(rows)])
    table = pa.table({"name": names, "vector": vectors})
    for codec in ("none", "zstd", "gzip"):
        path = folder / f"{codec}.parquet"
        pq.write_table(table, path, compression=codec, row_group_size=1500, write_page_index=True, write_page_checksum=True)
        report, ranges = account(path)
        check(f"{path.name} is sound", report["verdict"] == "sound")
        letters = uses(ranges)
        check(f"{path.name}: nothing is unknown", "u" not in letters)
        metadata = pq.ParquetFile(path).metadata
        inside = 0
        for group in range(metadata.num_row_groups):
            column = metadata.row_group(group).column(1)
            start = column.dictionary_page_offset or column.data_page_offset
            inside += letters[start : start + column.total_compressed_size].count("t")
        check(f"{path.name}: elements are in their columns", inside == letters.count("t") > 0)
        # A page that is not what was written.
        data = bytearray(path.read_bytes())
        data[letters.index("t") + 9] ^= 1
        path.write_bytes(data)
        done = subprocess.run([COMMAND, "verify", "--json", str(path)], capture_output=True, text=True)
        codes = [f["code"] for f in json.loads(done.stdout)["findings"]]
        check(f"{path.name}: a damaged page is found", done.returncode == 1 and "page-crc" in codes)


with tempfile.TemporaryDirectory() as folder:
    for judge in (judge_numpy, judge_safetensors, judge_torch, judge_hdf5, judge_parquet):
        judge(Path(folder))
print(f"{passed} checks hold, {failed} do not")
sys.exit(1 if failed else 0)
