#!/usr/bin/env python3
"""Writes small HDF5 files with h5py, and what h5py reads from them: testdata/hdf5/good; and
smaller ones beside it, testdata/hdf5/small; a large one, testdata/hdf5/heaps; and one with attributes of all
types and one with named types, testdata/hdf5/forms; virtual datasets and what they are made of, testdata/hdf5/virtual.

    python judges/make_hdf5.py testdata/hdf5/good

Needs h5py and numpy. Each file comes in the oldest form that the library writes ("default") and in
the newest ("latest"). expected.json holds for each file: datasets with type, shape and the SHA-256
of the elements as little-endian row-major bytes, texts, attributes, groups, links and the paths
that must be reported as unreadable. testdata/hdf5/rules has files that tests judge by a rule each.
"""

import ctypes
import hashlib
import json
import os
import sys

import h5py
import numpy as np

DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
NAMES = {"bool": "bool", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32",
         "uint32": "u32", "int64": "i64", "uint64": "u64", "float16": "f16", "float32": "f32",
         "float64": "f64", "complex64": "c64", "complex128": "c128"}


def values(dtype, *shape):
    n = int(np.prod(shape, dtype=np.int64))
    x = (np.arange(n, dtype=np.int64) * 37 + 11) % 251
    if np.dtype(dtype).kind == "c":
        return (x - 1j * (x % 7)).astype(dtype).reshape(shape)
    return (x % 120).astype(dtype).reshape(shape)


def types(f):
    for dtype in DTYPES:
        for order, name in (("<", "le"), (">", "be")):
            f[f"{name}/{dtype}"] = values(order + dtype, 3, 5)
    f["bool"] = np.array([[True, False], [False, True]])
    f["opaque1"] = np.frombuffer(b"PK\x03\x04\x00\xff", "V1")
    f["opaque3"] = np.frombuffer(b"abcdefghi", "V3")
    f["scalar"] = np.float32(2.5)
    f["empty"] = np.zeros((0,), "f4")
    f["empty2"] = np.zeros((3, 0, 2), "i8")
    f["null"] = h5py.Empty("f4")
    f["nan"] = np.array([0x7FC00001, 0x80000000, 0x7F800000, 1], "<u4").view("<f4")
    bf16 = h5py.h5t.IEEE_F32LE.copy()
    bf16.set_fields(15, 7, 8, 0, 7)
    bf16.set_size(2)
    bf16.set_ebias(127)
    space = h5py.h5s.create_simple((3,))
    ds = h5py.h5d.create(f.id, b"bf16", bf16, space)
    ds.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1.0, -2.0, 0.5], "f4"))
    odd = h5py.h5t.STD_I32LE.copy()
    odd.set_precision(24)
    odd.set_offset(8)
    h5py.h5d.create(f.id, b"odd_int", odd, space)
    x87 = h5py.h5t.IEEE_F64LE.copy()
    x87.set_fields(60, 50, 10, 0, 50)
    h5py.h5d.create(f.id, b"odd_float", x87, space)
    f["enum"] = np.array([1, 2], h5py.enum_dtype({"RED": 1, "BLUE": 2}, basetype="i2"))
    f["record"] = np.zeros(2, [("a", "i4"), ("b", "f8")])
    f["refs"] = np.array([f.ref], h5py.ref_dtype)
    f["lists"] = np.array([np.arange(2), np.arange(3)], dtype=h5py.vlen_dtype("i4"))
    f.create_dataset("arrays", (2,), np.dtype("(3,)f4"))
    f["fixed"] = np.array([b"abc", b"", b"defgh"], "S5")
    f.create_dataset("long", data=["süß", "", "a" * 300], dtype=h5py.string_dtype())
    f["committed"] = np.dtype("<f4")
    f.create_dataset("by_committed", data=values("<f4", 4), dtype=f["committed"])


def layouts(f):
    def make(name, data, **options):
        f.create_dataset(name, data=data, **options)
    x = values("<f4", 13, 7)
    make("contiguous", x)
    make("rows", x, chunks=(4, 7))
    make("rows_grow", x, chunks=(4, 7), maxshape=(None, 7))
    make("one", values("<i8", 50), chunks=(16,), maxshape=(None,))
    make("boxes", x, chunks=(5, 3))
    make("boxes_be", values(">f8", 13, 7), chunks=(5, 3), shuffle=True, compression="gzip")
    make("boxes_grow", x, chunks=(5, 3), maxshape=(40, 30))
    make("boxes_fixed", x, chunks=(5, 3), maxshape=(20, 7), compression="gzip")
    make("boxes_free", x, chunks=(5, 3), maxshape=(None, None), compression="gzip")
    make("boxes_first", x, chunks=(5, 3), maxshape=(None, 7), shuffle=True)
    make("boxes_last", x, chunks=(5, 3), maxshape=(13, None))
    make("single", x, chunks=(13, 7), compression="gzip")
    make("single_plain", x, chunks=(13, 7))
    make("three", values("<i2", 6, 5, 4), chunks=(2, 3, 4), compression="gzip", fletcher32=True)
    make("all", x, chunks=(6, 2), compression="gzip", compression_opts=9, shuffle=True, fletcher32=True)
    make("sum", values("u1", 100), chunks=(33,), fletcher32=True)
    make("scale", values("<i4", 64), chunks=(16,), scaleoffset=0)
    make("many", values("<i4", 700), chunks=(3,), compression="gzip")
    make("many_grow", values("<i4", 700), chunks=(2,), maxshape=(None,))
    make("opaque", np.frombuffer(bytes(range(60)), "V3"), chunks=(7,))
    make("texts", [f"name {i}" for i in range(9)], dtype=h5py.string_dtype(), chunks=(4,))
    f.create_dataset("never", (3, 4), "<f4", fillvalue=1.5)
    f.create_dataset("never_zero", (3, 4), "<i8")
    f.create_dataset("never_chunked", (9, 4), ">i4", chunks=(2, 2), fillvalue=7)
    some = f.create_dataset("some", (9, 4), "<i4", chunks=(2, 4), fillvalue=-1)
    some[2:4] = 5
    some = f.create_dataset("some_boxes", (9, 9), "<i2", chunks=(2, 4), fillvalue=0x1234, compression="gzip")
    some[3, 5] = 9
    shrunk = f.create_dataset("shrunk", data=values("<f4", 20, 6), chunks=(3, 2), maxshape=(None, None))
    shrunk.resize((7, 3))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    compact = values("<i4", 5)
    ds = h5py.h5d.create(f.id, b"compact", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((5,)), plist)
    ds.write(h5py.h5s.ALL, h5py.h5s.ALL, compact)
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4,))
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    ds = h5py.h5d.create(f.id, b"implicit", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((10,), (14,)), plist)
    ds.write(h5py.h5s.ALL, h5py.h5s.ALL, values("<i4", 10))
    f.create_dataset("lzf", data=x, chunks=(5, 3), compression="lzf")
    f.create_dataset("external", (4,), "<i4", external=[("elsewhere.raw", 0, 16)])
    layout = h5py.VirtualLayout((13, 7), "<f4")
    layout[...] = h5py.VirtualSource("elsewhere.h5", "x", (13, 7))
    f.create_virtual_dataset("virtual", layout)


def groups(f):
    deep = f.create_group("model/relations/0/operator/rhs")
    deep["translation"] = values("<f4", 8)
    for i in range(12):
        f[f"twelve/d{i:02}"] = np.int32(i)
    ordered = f.create_group("ordered", track_order=True)
    for name in ["z", "a", "m"]:
        ordered[name] = np.int32(len(name))
    f["hard"] = f["model/relations/0/operator/rhs/translation"]
    f["again"] = f["model"]
    f["model/up"] = f["/"]
    f["soft"] = h5py.SoftLink("/twelve/d01")
    f["soft_lost"] = h5py.SoftLink("nowhere")
    f["outside"] = h5py.ExternalLink("elsewhere.h5", "/x")
    f.create_group("süß")
    f["with.dot"] = np.int32(1)


def many(f):
    for i in range(310):
        f[f"wide/{i:03}"] = np.uint8(i % 256)


def attributes(f):
    d = f.create_dataset("d", data=np.int32(1))
    for at in (f, d, f.create_group("g")):
        at.attrs["int"] = 3
        at.attrs["u64"] = np.uint64(2**64 - 1)
        at.attrs["be"] = np.array(-2, ">i2")
        at.attrs["float"] = 0.1
        at.attrs["f4"] = np.float32(0.1)
        at.attrs["bool"] = True
        at.attrs["list"] = np.arange(3)
        at.attrs["matrix"] = np.arange(6.0).reshape(2, 3)
        at.attrs["empty"] = h5py.Empty("f4")
        at.attrs["none"] = np.zeros((0,), "i4")
        at.attrs["text"] = "süß"
        at.attrs["texts"] = ["a", "", "ccc"]
        at.attrs["fixed"] = np.bytes_(b"abc")
        at.attrs["opaque"] = np.void(b"\x00\x01\xff")
        at.attrs["enum"] = np.array(2, h5py.enum_dtype({"RED": 1, "BLUE": 2}, basetype="i2"))
        at.attrs["long"] = "x" * 5000
    f["kind"] = np.dtype("<f4")
    d.attrs.create("committed", 1.5, dtype=f["kind"])
    d.attrs["reference"] = f.ref
    d.attrs["complex"] = np.complex64(1 + 2j)


# Small files with one thing each, for damage: each byte of them matters.
SMALL = {
    "plain": lambda f: f.create_dataset("a/x", data=values("<f4", 3, 2)),
    "gzip": lambda f: f.create_dataset("x", data=values("<f4", 9, 5), chunks=(4, 3), compression="gzip", shuffle=True,
                                       fletcher32=True),
    "grow": lambda f: f.create_dataset("x", data=values("<i2", 40), chunks=(3,), maxshape=(None,)),
    "free": lambda f: f.create_dataset("x", data=values("<i2", 6, 4), chunks=(2, 3), maxshape=(None, None)),
    "texts": lambda f: f.create_dataset("x", data=["one", "two"], dtype=h5py.string_dtype()),
    "attributes": lambda f: f.attrs.update({f"a{i}": v for i, v in enumerate(
        [1, 0.5, "text", [1, 2], True, np.void(b"ab"), b"c", "d", "e", "f"])}),
}


MAKERS = {"types": types, "layouts": layouts, "groups": groups, "many": many, "attributes": attributes}


def make_forms(forms):
    """Attributes of all types that have a value, null datasets, a group without members, a dimension scale."""
    with h5py.File(os.path.join(forms, "attributes.h5"), "w", libver="latest") as f:
        f.create_group("hollow")
        f.create_group("a_group").create_group("below")
        a = f.create_dataset("a", data=np.arange(6, dtype="f4").reshape(2, 3))
        a.attrs["plain"], a.attrs["text"], a.attrs["truth"] = 5, "größe", np.bool_(True)
        a.attrs["i8"], a.attrs["u16"], a.attrs["f32"] = np.int8(-3), np.uint16(65535), np.float32(0.1)
        a.attrs["f16s"], a.attrs["big"] = np.array([1.5, -2], "f2"), np.array([1, -2], ">i4")
        a.attrs["matrix"] = np.arange(6.).reshape(2, 3)
        a.attrs["none"], a.attrs["no_rows"] = h5py.Empty("f4"), np.zeros((0, 3), "i2")
        a.attrs["bytes"], a.attrs["texts"] = np.bytes_(b"\xff\xfe"), np.array([b"ab", b"c"], "S4")
        a.attrs["strings"] = np.array([["a", "b"]], object)
        a.attrs.create("kind", 1, dtype=h5py.enum_dtype({"RED": 0, "BLUE": 1}, "u1"))
        a.attrs["none_text"] = h5py.Empty("S5")
        f["null"] = h5py.Empty("f4")
        f["scale"] = np.arange(2.)
        f["scale"].make_scale("lon")
        f.attrs["version"], f["a_group"].attrs["names"] = np.int32(2), np.array([b"x", b"yz"])


def make_named_types(forms):
    """Types under names of their own: one that a dataset uses, one with an attribute that is kept in a heap."""
    with h5py.File(os.path.join(forms, "named_types.h5"), "w") as f:
        f["kind"], f["below/noted"] = np.dtype("<f4"), np.dtype("<i2")
        f["below/noted"].attrs["why"] = "kept"
        f.create_dataset("w", data=values("<f4", 3), dtype=f["kind"])


def make_narrow(forms):
    """Addresses of four bytes, as wide as the checksums of indexes: chunks in an extensible array and in a fixed array
    with pages. Each dataset counts from 0."""
    created, access = h5py.h5p.create(h5py.h5p.FILE_CREATE), h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    created.set_sizes(4, 8)
    access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    path = os.path.join(forms, "narrow.h5").encode()
    with h5py.File(h5py.h5f.create(path, h5py.h5f.ACC_TRUNC, fcpl=created, fapl=access)) as f:
        f.create_dataset("extensible", data=np.arange(300, dtype="<i2"), maxshape=(None,), chunks=(2,))
        f.create_dataset("fixed", data=np.arange(2300, dtype="<i2"), chunks=(2,))
        f.create_dataset("packed", data=np.arange(300, dtype="<i2"), maxshape=(None,), chunks=(2,), compression="gzip")
        f.flush()
    with h5py.File(path) as f:
        assert all((f[name][:] == np.arange(len(f[name]))).all() for name in f)


def make_heaps(heaps):
    """More links of a group and attributes of a dataset than the first rows of the tables of a heap hold, 512 KiB:
    further down there are tables within tables. The names say what is expected."""
    os.makedirs(heaps, exist_ok=True)
    with h5py.File(os.path.join(heaps, "large_latest.h5"), "w", libver="latest") as f:
        d = f.create_dataset("d", data=np.int32(1))
        for i in range(180):
            d.attrs[f"a{i:03}"] = np.full(800, i, "<i4")
        wide = f.create_group("wide")
        wide["0000"] = np.int32(2)
        for i in range(1, 1000):
            wide[f"{i:04}" + "n" * 600] = wide["0000"]


def attr_json(value):
    if isinstance(value, h5py.Empty):
        return None
    if isinstance(value, (bytes, np.bytes_)):
        return value.decode()
    if isinstance(value, np.void):
        return {"hex": value.tobytes().hex()}
    if isinstance(value, np.ndarray):
        return [attr_json(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def attrs_of(obj):
    found = {}
    for name in obj.attrs:
        value = obj.attrs[name]
        if isinstance(value, (h5py.Reference, complex, np.complexfloating)):
            found[name] = {"unreadable": True}
        else:
            found[name] = attr_json(value)
    return found


def describe(ds):
    kind = ds.dtype
    if ds.id.get_type().get_class() == h5py.h5t.BITFIELD or ds.is_virtual or ds.external:
        return {"unreadable": True}
    shape = [0] if ds.shape is None else list(ds.shape)
    if h5py.check_string_dtype(kind):
        return {"texts": [v.decode() for v in ds[()].ravel()], "shape": shape}
    if ds.name in ("/odd_int", "/odd_float", "/record", "/refs", "/lists", "/arrays"):
        return {"other": True, "shape": shape}
    if ds.shape is None:
        return {"dtype": NAMES[kind.name], "shape": shape, "sha256": hashlib.sha256(b"").hexdigest()}
    if ds.name == "/bf16":
        raw = np.array([0x3F80, 0xC000, 0x3F00], "<u2").tobytes()
        return {"dtype": "bf16", "shape": shape, "sha256": hashlib.sha256(raw).hexdigest()}
    data = ds[()]
    data = np.asarray(data)
    if kind.kind == "V":
        size = kind.itemsize
        shape = shape + ([size] if size != 1 else [])
        return {"dtype": "u8", "shape": shape, "sha256": hashlib.sha256(data.tobytes()).hexdigest()}
    little = data.astype(data.dtype.newbyteorder("<"))
    return {"dtype": NAMES[kind.newbyteorder("=").name], "shape": shape,
            "sha256": hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest()}


def walk(group, path, seen, out):
    for name in group:
        link = group.get(name, getlink=True)
        at = path + "/" + name
        if isinstance(link, h5py.SoftLink):
            out["links"].append(at)
            target = group.get(name)
            if isinstance(target, h5py.Dataset):
                out["soft"].append([at, {**describe(target), "attributes": attrs_of(target)}])
            continue
        if isinstance(link, h5py.ExternalLink):
            out["problems"].append(at)
            continue
        obj = group[name]
        if isinstance(obj, h5py.Datatype):
            continue
        if isinstance(obj, h5py.Group):
            if obj.id in seen:
                out["links"].append(at)
                continue
            seen.append(obj.id)
            out["items"].append([at, {"attributes": attrs_of(obj)}])
            walk(obj, at, seen, out)
            continue
        item = describe(obj)
        if item.get("unreadable"):
            out["problems"].append(at)
            continue
        item["attributes"] = attrs_of(obj)
        out["items"].append([at, item])


def make_bad(small, bad):
    """Files that contradict themselves, each with the code of the error beside it."""
    os.makedirs(bad, exist_ok=True)
    with open(os.path.join(small, "grow_default.h5"), "rb") as f:
        scalar = bytearray(f.read(0x578))
    # A dataset of one element without dimensions, in chunks of none, of which no chunk was written.
    assert scalar[0x338:0x33c] == b"\1\1\1\0" and scalar[0x380:0x383] == b"\3\2\2"
    scalar[0x339:0x33b] = b"\0\0"
    scalar[0x382:0x38b] = b"\1" + b"\xff" * 8
    scalar[0x28:0x30] = len(scalar).to_bytes(8, "little")
    for name, content, code in [("scalar_chunked.h5", scalar, "hdf5-corrupt")]:
        with open(os.path.join(bad, name), "wb") as out:
            out.write(content)
        with open(os.path.join(bad, name + ".json"), "w") as out:
            json.dump({"code": code}, out)
            out.write("\n")


def make_old_shared(path):
    """A dataset of a named type, whose header refers to it as HDF5 before 1.6 did."""
    with h5py.File(path, "w", libver="earliest") as f:
        f["type"] = np.dtype("<f4")
        f.create_dataset("of_type", data=values("<f4", 4), dtype=f["type"])
        address = h5py.h5o.get_info(f["of_type"].id).addr
        target = h5py.h5o.get_info(f["type"].id).addr
    with open(path, "rb") as f:
        data = bytearray(f.read())
    at, end, messages = address + 16, address + 16 + int.from_bytes(data[address + 8:address + 12], "little"), []
    while at < end:
        kind, size = int.from_bytes(data[at:at + 2], "little"), int.from_bytes(data[at + 2:at + 4], "little")
        messages.append([kind, bytes(data[at + 4:at + 8]), bytes(data[at + 8:at + 8 + size])])
        at += 8 + size
    for message in messages:
        if message[0] == 3:
            assert message[1][0] & 2, "the type is shared"
            # Version, kind, six bytes; where the name would be; where the object is.
            old = bytes([1]) + bytes(7) + bytes(8) + target.to_bytes(8, "little")
            more, message[2] = len(old) - len(message[2]), old
    room = max((m for m in messages if m[0] == 0), key=lambda m: len(m[2]))
    assert more >= 0 and len(room[2]) >= more
    room[2] = room[2][more:]
    out = b"".join(k.to_bytes(2, "little") + len(p).to_bytes(2, "little") + h + p for k, h, p in messages)
    assert len(out) == end - address - 16
    data[address + 16:end] = out
    with open(path, "wb") as f:
        f.write(data)
    with h5py.File(path) as f:
        assert np.array_equal(f["of_type"][()], values("<f4", 4))


class ImageConfig(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int32), ("generate", ctypes.c_bool), ("resize", ctypes.c_bool),
                ("ageout", ctypes.c_int32)]


def make_cache_image(path):
    """A file whose metadata is in an image of the cache, not at its place."""
    with open("/proc/self/maps") as maps:
        library = ctypes.CDLL(next(line.split()[-1] for line in maps if "libhdf5-" in line))
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_LATEST)
    config = ImageConfig(1, True, False, -1)
    assert library.H5Pset_mdc_image_config(ctypes.c_int64(access.id), ctypes.byref(config)) >= 0
    with h5py.File(h5py.h5f.create(path.encode(), h5py.h5f.ACC_TRUNC, fapl=access)) as f:
        f["group/a"] = values("<f4", 3, 4)
        f.create_dataset("chunks", data=values("<i4", 30), chunks=(4,))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((5,))
        h5py.h5d.create(f.id, b"compact", h5py.h5t.STD_I32LE, space, plist).write(
            h5py.h5s.ALL, h5py.h5s.ALL, values("<i4", 5))
        f["group"].attrs["epoch"] = 3
    with open(path, "rb") as f:
        assert b"MDCI" in f.read()


def make_killed(path):
    """A file whose writer was killed."""
    child = os.fork()
    if child == 0:
        f = h5py.File(path, "w", libver="latest")
        f["a"] = values("<f4", 3)
        f.flush()
        os._exit(0)
    os.waitpid(child, 0)


def make_free_room(path):
    """A file that keeps lists of its free room."""
    with h5py.File(path, "w", libver="latest", fs_strategy="fsm", fs_persist=True) as f:
        f["a"] = values("<f4", 3)
        f["gone"] = values("<f8", 100)
    with h5py.File(path, "r+", libver="latest") as f:
        del f["gone"]


def make_soft(path):
    """Soft links: to datasets, along groups and other links, to a group, in a circle, to nothing."""
    with h5py.File(path, "w") as f:
        f["g/inner/a"] = values("<f4", 3)
        f["g/near"] = h5py.SoftLink("inner/a")
        f["far"] = h5py.SoftLink("/g/./inner/a")
        f["group"] = h5py.SoftLink("g")
        f["along"] = h5py.SoftLink("group/near")
        f["circle"] = h5py.SoftLink("/circle")
        f["nothing"] = h5py.SoftLink("/g/b")


def make_oldest(path):
    """A file of the oldest form, which has no checksums: tests damage it in many ways."""
    with h5py.File(path, "w", libver="earliest") as f:
        f["a"] = values("<f4", 6, 5)
        f["c"] = 2.5
        f.create_dataset("g/b", data=values("<i8", 8, 5), chunks=(3, 2), compression="gzip", shuffle=True)


def slabs(dims, *all_of_them):
    """A selection of hyperslabs, each a start, a stride, a count and a block for each dimension."""
    space = h5py.h5s.create_simple(dims)
    for n, (start, stride, count, block) in enumerate(all_of_them):
        space.select_hyperslab(start, count, stride, block, op=h5py.h5s.SELECT_OR if n else h5py.h5s.SELECT_SET)
    return space


def every(*dims):
    space = h5py.h5s.create_simple(dims)
    space.select_all()
    return space


def box(dims, start, extent):
    return slabs(dims, (start, (1,) * len(dims), extent, (1,) * len(dims)))


def map_virtual(f, name, dims, dtype, *mappings, fill=None, most=None):
    """A virtual dataset, each mapping a file, a path, a selection of the source and one of the dataset."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if fill is not None:
        plist.set_fill_value(np.array(fill, dtype))
    for file, path, source, own in mappings:
        plist.set_virtual(own, file.encode(), path.encode(), source)
    h5py.h5d.create(f.id, name.encode(), h5py.h5t.py_create(np.dtype(dtype), logical=True),
                    h5py.h5s.create_simple(dims, most), plist)


def virtual_sources(folder):
    """The files that virtual datasets are made of."""
    with h5py.File(os.path.join(folder, "part_0.h5"), "w") as f:
        f["x"] = values("<f4", 6, 5)
        f["one"] = np.float32(2.5)
        f["be"] = values(">i4", 7)
        f["opaque"] = np.frombuffer(bytes(range(12)), "V3")
        f["bool"] = np.array([True, False, True])
        f["texts"] = np.array([b"ab", b"c"], "S2")
        f.create_dataset("long", data=["one", "two"], dtype=h5py.string_dtype())
        f["g/soft"] = h5py.SoftLink("/x")
        f.create_dataset("zeros", (1 << 20,), "u1")
    with h5py.File(os.path.join(folder, "part_1.h5"), "w", libver="latest") as f:
        f.create_dataset("g/x", data=values("<f4", 8, 5) + 1000, chunks=(3, 2), compression="gzip", shuffle=True)
        f.create_dataset("rows", data=values("<f4", 9, 4) + 2000, chunks=(2, 4))
    with h5py.File(os.path.join(folder, "100%.h5"), "w") as f:
        f["x"] = values("<f4", 3)


def virtual(f):
    a, b = "part_0.h5", "part_1.h5"
    x, gx, rows = every(6, 5), every(8, 5), every(9, 4)
    map_virtual(f, "rows", (14, 5), "<f4", (a, "x", x, box((14, 5), (0, 0), (6, 5))),
                (b, "/g/x", gx, box((14, 5), (6, 0), (8, 5))))
    map_virtual(f, "columns", (6, 10), "<f4", (a, "x", x, box((6, 10), (0, 0), (6, 5))),
                (b, "g/x", box((8, 5), (2, 0), (6, 5)), box((6, 10), (0, 5), (6, 5))))
    map_virtual(f, "strided", (9, 12), "<f4",
                (b, "g/x", slabs((8, 5), ((0, 1), (3, 2), (3, 2), (2, 1))), slabs((9, 12), ((1, 0), (2, 6), (3, 2), (1, 2)))),
                (a, "x", slabs((6, 5), ((0, 0), (2, 1), (3, 4), (1, 1))), slabs((9, 12), ((0, 2), (4, 3), (3, 2), (1, 2)))),
                fill=-1.5)
    odd = [((0, 0), (1, 1), (2, 3), (1, 1)), ((1, 2), (1, 1), (1, 1), (3, 3)), ((5, 0), (1, 2), (1, 3), (1, 1))]
    count = slabs((6, 5), *odd).get_select_npoints()
    map_virtual(f, "irregular", (count + 2,), "<f4", (a, "x", slabs((6, 5), *odd), box((count + 2,), (1,), (count,))))
    map_virtual(f, "irregular_own", (7, 6), "<f4",
                (b, "rows", slabs((9, 4), ((0, 1), (4, 2), (2, 2), (2, 1)), ((8, 0), (1, 1), (1, 1), (1, 3))),
                 slabs((7, 6), ((0, 0), (3, 3), (2, 2), (2, 1)), ((6, 2), (1, 1), (1, 1), (1, 3)))), fill=3)
    map_virtual(f, "overlap", (6, 5), "<f4", (a, "x", x, every(6, 5)),
                (b, "rows", box((9, 4), (2, 0), (3, 3)), box((6, 5), (1, 1), (3, 3))),
                (a, "x", box((6, 5), (0, 0), (2, 5)), box((6, 5), (2, 0), (2, 5))))
    map_virtual(f, "gaps", (5, 4), "<f4", (a, "one", h5py.h5s.create(h5py.h5s.SCALAR), box((5, 4), (3, 2), (1, 1))), fill=7)
    none = every(6, 5)
    none.select_none()
    map_virtual(f, "nothing", (3,), "<f4", (a, "x", none, none), fill=4)
    map_virtual(f, "reshaped", (3, 2, 5), "<f4", (a, "g/soft", x, every(3, 2, 5)), most=(h5py.h5s.UNLIMITED, 2, 5))
    f["here"] = values("<f4", 4, 3)
    map_virtual(f, "own", (3, 4), "<f4", (".", "here", every(4, 3), every(3, 4)))
    map_virtual(f, "be", (9,), ">i4", (a, "be", every(7), slabs((9,), ((1,), (2,), (3,), (1,)), ((6,), (1,), (1,), (3,)),
                                                                ((2,), (1,), (1,), (1,)))), fill=-9)
    map_virtual(f, "opaque", (6,), "V3", (a, "opaque", every(4), box((6,), (2,), (4,))))
    map_virtual(f, "bool", (4,), "?", (a, "bool", every(3), box((4,), (1,), (3,))))
    map_virtual(f, "percent", (4,), "<f4", ("100%%.h5", "x", every(3), box((4,), (0,), (3,))))
    map_virtual(f, "dot", (6, 5), "<f4", ("./" + a, "./x", x, every(6, 5)))
    map_virtual(f, "empty", (0, 3), "<f4", (a, "x", none, none))


def virtual_refused(f):
    """Virtual datasets that are not read, by the code of the error."""
    a = "part_0.h5"
    x, four = every(6, 5), box((4,), (0,), (4,))
    for name, file in (("file", "missing.h5"), ("long", "m" * 300)):
        map_virtual(f, f"hdf5-virtual-missing~{name}", (6, 5), "<f4", (file, "x", x, x))
    for name, path in (("dataset", "nothing"), ("group", "g"), ("root", "/"), ("below", "x/y")):
        map_virtual(f, f"hdf5-virtual-missing~{name}", (6, 5), "<f4", (a, path, x, x))
    for name, file in (("up", "../part_0.h5"), ("absolute", "/part_0.h5"), ("below", "sub/part_0.h5"), ("dots", ".."),
                       ("through", "sub/../part_0.h5")):
        map_virtual(f, f"unsafe-name~{name}", (6, 5), "<f4", (file, "x", x, x))
    f["here"] = values("<f4", 4)
    map_virtual(f, "inner", (4,), "<f4", (".", "here", every(4), every(4)))
    map_virtual(f, "hdf5-virtual~nested", (4,), "<f4", (".", "inner", every(4), every(4)))
    map_virtual(f, "hdf5-virtual~itself", (4,), "<f4", (".", "hdf5-virtual~itself", every(4), every(4)))
    map_virtual(f, "hdf5-virtual~circle", (4,), "<f4", ("refused.h5", "inner", every(4), every(4)))
    map_virtual(f, "hdf5-virtual-type~wide", (6, 5), "<f8", (a, "x", x, x))
    map_virtual(f, "hdf5-virtual-type~order", (7,), "<i4", (a, "be", every(7), every(7)))
    map_virtual(f, "hdf5-virtual-type~number", (3,), "i1", (a, "bool", every(3), every(3)))
    endless = slabs((4,), ((0,), (1,), (h5py.h5s.UNLIMITED,), (1,)))
    map_virtual(f, "hdf5-virtual-unlimited~both", (4,), "<f4", (".", "here", endless, endless), most=(h5py.h5s.UNLIMITED,))
    map_virtual(f, "hdf5-virtual-unlimited~blocks", (4,), "<f4",
                ("part_%b.h5", "x", box((4,), (0,), (1,)), slabs((4,), ((0,), (1,), (h5py.h5s.UNLIMITED,), (1,)))),
                most=(h5py.h5s.UNLIMITED,))
    map_virtual(f, "hdf5-type~texts", (2,), "S2", (a, "texts", every(2), every(2)))
    map_virtual(f, "hdf5-type~long", (2,), h5py.string_dtype(), (a, "long", every(2), every(2)))
    map_virtual(f, "hdf5-corrupt~beyond", (8,), "<f4", (".", "here", box((6,), (0,), (6,)), box((8,), (0,), (6,))))
    map_virtual(f, "hdf5-corrupt~fewer", (8,), "<f4", (".", "here", every(5), box((8,), (0,), (5,))))
    map_virtual(f, "hdf5-corrupt~rank_box", (4,), "<f4", (".", "here", box((2, 2), (0, 0), (2, 2)), four))
    map_virtual(f, "limit~unwritten", (1 << 29,), "u1", (a, "zeros", every(1 << 20), box((1 << 29,), (0,), (1 << 20,))))
    evens = slabs((1 << 20,), ((0,), (2,), (1 << 19,), (1,)))
    map_virtual(f, "inflated~runs", (1 << 20,), "u1", *[(a, "zeros", evens, evens)] * 40)
    map_virtual(f, "inflated~over", (1 << 20,), "u1", *[(a, "zeros", every(1 << 20), every(1 << 20))] * 1100)


def make_virtual(folder):
    os.makedirs(folder, exist_ok=True)
    virtual_sources(folder)
    expected = {}
    for form, libver in (("default", None), ("latest", "latest")):
        path = os.path.join(folder, f"maps_{form}.h5")
        with h5py.File(path, "w", libver=libver) as f:
            virtual(f)
        with h5py.File(path) as f:
            own = {name: elements(f[name]) for name in f if f[name].is_virtual}
        assert not expected or own == expected
        expected = own
        path = os.path.join(folder, f"small_{form}.h5")
        with h5py.File(path, "w", libver=libver) as f:
            x = every(6, 5)
            map_virtual(f, "v", (3, 4), "<f4", ("part_0.h5", "x", box((6, 5), (1, 1), (2, 3)), box((3, 4), (0, 1), (2, 3))),
                        ("part_1.h5", "rows", slabs((9, 4), ((1, 0), (5, 2), (2, 2), (1, 1)), ((0, 3), (1, 1), (1, 1), (1, 1))),
                         slabs((3, 4), ((0, 0), (2, 1), (2, 1), (1, 1)), ((2, 1), (1, 1), (1, 3), (1, 1)))), fill=5)
        with h5py.File(path) as f:
            small = elements(f["v"])
    expected["small"] = small
    with h5py.File(os.path.join(folder, "refused.h5"), "w", libver="latest") as f:
        virtual_refused(f)
    with h5py.File(os.path.join(folder, "side_by_side.h5"), "w", libver="latest") as f:
        x = f.create_dataset("x", (1 << 20, 96), "u1", chunks=(1 << 20, 1), compression="gzip", compression_opts=9)
        x[...] = np.zeros(x.shape, "u1")
        layout = h5py.VirtualLayout((1 << 20, 97), "u1")
        layout[:, :96] = h5py.VirtualSource(".", "x", shape=x.shape)
        f.create_virtual_dataset("v", layout)
    with open(os.path.join(folder, "expected.json"), "w") as out:
        json.dump(expected, out, indent=0)
        out.write("\n")


def elements(dataset):
    data = np.ascontiguousarray(dataset[()])
    little = data if data.dtype.kind == "V" else data.astype(data.dtype.newbyteorder("<"))
    return hashlib.sha256(little.tobytes()).hexdigest()


RULES = {"oldest": make_oldest, "old_shared": make_old_shared, "cache_image": make_cache_image, "killed": make_killed,
         "free_room": make_free_room, "soft": make_soft}


def main():
    target = sys.argv[1]
    os.makedirs(target, exist_ok=True)
    expected = {}
    for stem, maker in MAKERS.items():
        for form, libver in (("default", None), ("latest", "latest")):
            name = f"{stem}_{form}.h5"
            block = {"userblock_size": 512} if (stem, form) == ("groups", "latest") else {}
            with h5py.File(os.path.join(target, name), "w", libver=libver, **block) as f:
                maker(f)
            with h5py.File(os.path.join(target, name), "r") as f:
                out = {"items": [], "soft": [], "links": [], "problems": [], "attributes": attrs_of(f),
                       "user_block": f.userblock_size}
                walk(f, "", [f.id], out)
                # What soft links lead to comes behind all else.
                out["items"] += out.pop("soft")
            expected[name] = out
    small = os.path.join(target, "..", "small")
    os.makedirs(small, exist_ok=True)
    for stem, maker in SMALL.items():
        for form, libver in (("default", None), ("latest", "latest")):
            with h5py.File(os.path.join(small, f"{stem}_{form}.h5"), "w", libver=libver) as f:
                maker(f)
    rules = os.path.join(target, "..", "rules")
    os.makedirs(rules, exist_ok=True)
    for stem, maker in RULES.items():
        maker(os.path.join(rules, f"{stem}.h5"))
    make_bad(small, os.path.join(target, "..", "bad"))
    make_heaps(os.path.join(target, "..", "heaps"))
    forms = os.path.join(target, "..", "forms")
    os.makedirs(forms, exist_ok=True)
    make_forms(forms)
    make_named_types(forms)
    make_narrow(forms)
    make_virtual(os.path.join(target, "..", "virtual"))
    with open(os.path.join(target, "expected.json"), "w") as out:
        json.dump(expected, out, indent=0, ensure_ascii=False)
        out.write("\n")


if __name__ == "__main__":
    main()
