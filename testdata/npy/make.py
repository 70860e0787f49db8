#!/usr/bin/env python3
"""Makes the golden npy and npz files with numpy itself, and with each what it must give.

    python3 testdata/npy/make.py        needs numpy 2

Beside NAME stands NAME.json: {"tensors": [{"name", "dtype", "shape", "order", "hex"}], "unread"}.
"hex" is the elements as little-endian bytes in row-major order. In bad/, NAME.json is
{"code": ...}: the code of the error, from opening the file or from reading all of its tensors.
"""

import io
import json
import pathlib
import struct
import warnings
import zipfile
import zlib

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
NPY, NPZ = HERE, HERE.parent / "npz"
NAMES = {
    "bool": "bool", "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32",
    "int32": "i32", "uint64": "u64", "int64": "i64", "float16": "f16", "float32": "f32",
    "float64": "f64", "complex64": "c64", "complex128": "c128",
}
warnings.simplefilter("ignore")


def truth(name, array):
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    little = array.astype(array.dtype.newbyteorder("<"))
    return {
        "name": name,
        "dtype": NAMES[array.dtype.newbyteorder("=").name],
        "shape": list(array.shape),
        "order": "column" if fortran else "row",
        "hex": little.tobytes("C").hex(),
    }


def put(folder, name, data, told):
    (folder / name).write_bytes(data)
    (folder / (name + ".json")).write_text(json.dumps(told, indent=1) + "\n")


def npy(array, version=None):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def good_npy(name, array, version=None):
    put(NPY / "good", name, npy(array, version), {"tensors": [truth("value", array)]})


def raw_npy(header, data, version=1, encoding="latin1"):
    text = header.encode(encoding) + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def hand_npy(name, header, data, version=1):
    """A header that numpy would not write but reads: numpy says what it means."""
    blob = raw_npy(header, data, version)
    array = np.load(io.BytesIO(blob))
    put(NPY / "good", name, blob, {"tensors": [truth("value", array)]})


def npy_files():
    bits = np.arange(24 * 16, dtype="u1") * 37 + 11
    for dtype in NAMES:
        size = np.dtype(dtype).itemsize
        if dtype == "bool":
            array = (bits[:6] & 1).astype("bool").reshape(2, 3)
        else:
            # Any bits: NaN payloads and denormals are among them.
            array = np.frombuffer(bits[: 6 * size].tobytes(), dtype=dtype).reshape(2, 3)
        good_npy(f"{dtype}.npy", array)
        if size > 1:
            good_npy(f"{dtype}_big.npy", array.astype(array.dtype.newbyteorder(">")))
    specials = np.array(
        [0x7FC00001, 0xFFC12345, 0x80000000, 0x00000001, 0x7F800000, 0xFF800000], dtype="u4"
    ).view("f4")
    good_npy("specials.npy", specials)
    cube = np.arange(24, dtype="f4").reshape(2, 3, 4)
    for version in (1, 2, 3):
        good_npy(f"v{version}.npy", cube, (version, 0))
    good_npy("fortran.npy", np.asfortranarray(cube))
    good_npy("fortran_big.npy", np.asfortranarray(cube.astype(">i4")))
    good_npy("scalar.npy", np.array(2.5, dtype="f8"))
    good_npy("empty.npy", np.zeros((0,), dtype="f4"))
    good_npy("empty_middle.npy", np.zeros((3, 0, 2), dtype="i8", order="F"))
    good_npy("vector_fortran.npy", np.asfortranarray(np.arange(5, dtype="i2")))
    good_npy("ones.npy", np.asfortranarray(np.arange(5, dtype="i2").reshape(1, 5, 1)))
    good_npy("many_dims.npy", np.arange(8, dtype="u1").reshape((2,) * 3 + (1,) * 29))
    four = struct.pack("<4f", 1, 2, 3, 4)
    hand_npy("python2_long.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 2L), }", four)
    hand_npy("other_order.npy", '{"shape":(2,2),"fortran_order":True,"descr":"<f4"}', four)
    hand_npy("blanks.npy", " { 'descr' :\n '<f4' ,\t'fortran_order':False,'shape':( 2 ,\n2 , ) , }  ", four)
    hand_npy("unaligned.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", four)
    hand_npy("unicode_texts.npy", "{u'descr': u'<f4', u'fortran_order': False, u'shape': (4,)}", four)
    hand_npy("escape.npy", "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (4,)}", four)
    hand_npy("native.npy", "{'descr': '=f4', 'fortran_order': False, 'shape': (4,)}", four)
    hand_npy("no_order.npy", "{'descr': 'f4', 'fortran_order': False, 'shape': (4,)}", four)
    hand_npy("bar.npy", "{'descr': '|i2', 'fortran_order': False, 'shape': (2, 4)}", four)
    hand_npy("big_byte.npy", "{'descr': '>u1', 'fortran_order': False, 'shape': (16,)}", four)


def bad_npy(name, code, data):
    put(NPY / "bad", name, data, {"code": code})


def bad_npy_files():
    fine = npy(np.arange(6, dtype="f4"))
    head = "{'descr': %s, 'fortran_order': %s, 'shape': %s, }"
    four = bytes(16)

    def bad(name, code, descr="'<f4'", order="False", shape="(4,)", data=four, version=1):
        bad_npy(name, code, raw_npy(head % (descr, order, shape), data, version))

    bad_npy("truncated_data.npy", "truncated", fine[:-1])
    bad_npy("truncated_header.npy", "truncated", fine[:60])
    bad_npy("only_magic.npy", "truncated", fine[:8])
    bad_npy("trailing.npy", "trailing-bytes", fine + b"\0")
    bad_npy("header_past_end.npy", "truncated", fine[:8] + b"\xff\xff" + fine[10:])
    bad_npy("header_huge.npy", "npy-header-length", b"\x93NUMPY\x02\0\xff\xff\xff\xff" + fine[10:])
    bad_npy("version_4.npy", "npy-version", fine[:6] + b"\x04\0" + fine[8:])
    bad_npy("not_utf8.npy", "npy-header", raw_npy(head % ("'<f4\xe9'", "False", "(4,)"), four, 3))
    bad("shape_overflow.npy", "shape-overflow", shape="(4294967296, 4294967296)")
    bad("shape_huge.npy", "npy-shape", shape="(18446744073709551616,)")
    bad("shape_past_end.npy", "truncated", shape="(1000000000000,)")
    bad("shape_negative.npy", "npy-shape", shape="(-1,)")
    bad("shape_list.npy", "npy-shape", shape="[4]")
    bad("shape_int.npy", "npy-shape", shape="(4)")
    bad("shape_bool.npy", "npy-shape", shape="(True,)")
    bad("shape_float.npy", "npy-header", shape="(4.0,)")
    bad("shape_65_dims.npy", "limit", shape="(" + "1, " * 65 + ")")
    bad("long_in_v3.npy", "npy-header", shape="(4L,)", version=3)
    bad("order_int.npy", "npy-header", order="0")
    bad("code.npy", "npy-header", shape="__import__('os').system('id')")
    bad("deep.npy", "npy-header", shape="(" * 5000)
    bad("many_items.npy", "limit", shape="(" + "1," * 10_000 + ")", version=2)
    bad("many_keys.npy", "npy-header", descr="{" + "1:1," * 10_000 + "}")
    bad_npy("no_shape.npy", "npy-header", raw_npy("{'descr': '<f4', 'fortran_order': False}", four))
    bad_npy("twice.npy", "npy-header", raw_npy("{'shape': (2,), " + (head % ("'<f4'", "False", "(4,)"))[1:], four))
    bad_npy("more_keys.npy", "npy-header", raw_npy("{'x': 1, " + (head % ("'<f4'", "False", "(4,)"))[1:], four))
    bad_npy("behind.npy", "npy-header", raw_npy(head % ("'<f4'", "False", "(4,)") + "; x", four))
    bad_npy("open_text.npy", "npy-header", raw_npy("{'descr", four))
    bad_npy("object.npy", "npy-dtype", npy(np.array([{}, None], dtype=object)))
    bad_npy("text.npy", "npy-dtype", npy(np.array(["a", "bc"])))
    bad_npy("bytes.npy", "npy-dtype", npy(np.array([b"a", b"bc"])))
    bad_npy("date.npy", "npy-dtype", npy(np.array(["2020-01-01"], dtype="M8[D]")))
    bad_npy("record.npy", "npy-dtype", npy(np.zeros(2, dtype=[("x", "<f4"), ("y", "<i4", (2,))])))
    bad_npy("longdouble.npy", "npy-dtype", npy(np.zeros(2, dtype="g")))
    bad("void.npy", "npy-dtype", descr="'|V2'")


def npz(arrays, save=np.savez):
    out = io.BytesIO()
    save(out, **arrays)
    return out.getvalue()


def good_npz(name, data, unread=()):
    tensors = []
    with np.load(io.BytesIO(data), allow_pickle=True) as file:
        for key in file.files:
            if key not in unread:
                tensors.append(truth(key, file[key]))
    put(NPZ / "good", name, data, {"tensors": tensors, "unread": list(unread)})


class Pipe(io.RawIOBase):
    """A file that cannot go back: zipfile then writes data descriptors."""

    def __init__(self):
        self.data = b""

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


def zipped(members, method=zipfile.ZIP_STORED, comment=b"", out=None, wide=False):
    out = out or io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        file.comment = comment
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            with file.open(info, "w", force_zip64=wide) as member:
                member.write(data)
    return out.data if isinstance(out, Pipe) else out.getvalue()


def npz_files():
    rng = np.random.default_rng(1)
    arrays = {
        "fc1.w": np.asfortranarray(rng.standard_normal((12, 2), dtype="f4")),
        "fc1.b": rng.standard_normal(12, dtype="f4"),
        "step": np.array(7, dtype="i8"),
        "none": np.zeros((0, 3), dtype="f2"),
        "big": np.arange(4, dtype=">u2"),
        "größe": np.arange(3, dtype="u1"),
    }
    good_npz("stored.npz", npz(arrays))
    good_npz("compressed.npz", npz(arrays, np.savez_compressed))
    good_npz("positional.npz", npz({"arr_0": np.eye(3), "arr_1": np.arange(3) * 1j}))
    good_npz("none.npz", npz({}))
    # More than one window of compressed bytes.
    good_npz("long.npz", npz({"x": rng.integers(0, 2, 10_000, dtype="u1"), "y": np.zeros(10_000, "u1")}, np.savez_compressed))
    mixed = {"a": np.arange(3), "objects": np.array([{}, 1], dtype=object), "texts": np.array(["x"])}
    good_npz("object.npz", npz(mixed), ["objects", "texts"])
    a, b = npy(np.arange(5, dtype="f4")), npy(np.arange(6, dtype="i2").reshape(2, 3))
    good_npz("zip64.npz", zipped([("a.npy", a), ("b.npy", b)], wide=True))
    good_npz("comment.npz", zipped([("a.npy", a), ("b.npy", b)], comment=b"hello you"))
    good_npz("descriptors.npz", zipped([("a.npy", a), ("b.npy", b)], zipfile.ZIP_DEFLATED, out=Pipe()))
    good_npz("descriptors_stored.npz", zipped([("a.npy", a), ("b.npy", b)], out=Pipe()))
    good_npz("other_members.npz", zipped([("a.npy", a), ("sub/", b""), ("readme.txt", b"hi")]), ["sub/", "readme.txt"])
    good_npz("bzip2.npz", two_methods(a, b), ["b"])
    # Code page 437: the flag for UTF-8 is absent, the byte is not ASCII.
    cp437 = zipped([("a.npy", a), ("bXb.npy", b)]).replace(b"bXb.npy", b"b\x81b.npy")
    good_npz("cp437.npz", cp437)


def two_methods(a, b):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr(zipfile.ZipInfo("a.npy"), a)
        file.writestr(zipfile.ZipInfo("b.npy"), b, zipfile.ZIP_BZIP2)
    return out.getvalue()


def bad_npz(name, code, data):
    put(NPZ / "bad", name, data, {"code": code})


def patched(data, *changes):
    data = bytearray(data)
    for at, new in changes:
        data[at : at + len(new)] = new
    return bytes(data)


def bad_npz_files():
    a, b = npy(np.arange(5, dtype="f4")), npy(np.arange(6, dtype="i2").reshape(2, 3))
    fine = zipped([("a.npy", a), ("b.npy", b)])
    packed = zipped([("a.npy", a), ("b.npy", b)], zipfile.ZIP_DEFLATED)
    local = [fine.index(b"PK\x03\x04", k) for k in (0, 1)]
    central = [fine.index(b"PK\x01\x02"), fine.rindex(b"PK\x01\x02")]
    end = fine.rindex(b"PK\x05\x06")
    pcentral = [packed.index(b"PK\x01\x02"), packed.rindex(b"PK\x01\x02")]
    plocal = [0, packed.index(b"PK\x03\x04", 1)]
    u32 = lambda n: struct.pack("<I", n)
    u16 = lambda n: struct.pack("<H", n)
    bad_npz("truncated.npz", "zip-no-end", fine[:-1])
    bad_npz("half.npz", "zip-no-end", fine[: len(fine) // 2])
    # Python and PyTorch take the last mark within 64 KiB from the end; what follows it is refused, unless leniently read.
    bad_npz("behind.npz", "trailing-bytes", fine + b"x")
    bad_npz("behind64.npz", "trailing-bytes", zip64_end(fine, end, central[0], 2) + bytes(100))
    commented = zipped([("a.npy", a), ("b.npy", b)], comment=b"hello you")
    bad_npz("comment_behind.npz", "trailing-bytes", commented + b"and more")
    bad_npz("comment_cut.npz", "zip-comment-cut", commented[:-3])
    bad_npz("mark_behind.npz", "zip-two-ends", fine + b"PK\x05\x06" + bytes(30))
    bad_npz("mark_behind_cut.npz", "zip-two-ends", fine + b"PK\x05\x06")
    bad_npz("inserted.npz", "zip-misplaced-directory", fine[: central[0]] + b"xx" + fine[central[0] :])
    comment = patched(fine, (end + 20, u16(22))) + fine[end:]
    bad_npz("two_ends.npz", "zip-two-ends", comment)
    # Python takes the last mark for the end record, others the one whose comment fits.
    marked = zipped([("a.npy", a)], comment=b"hello PK\x05\x06 you" + bytes(20))
    bad_npz("mark_in_comment.npz", "zip-two-ends", marked)
    bad_npz("duplicate.npz", "duplicate-member", patched(fine, (central[1] + 46, b"a"), (local[1] + 30, b"a")))
    bad_npz("name_differs.npz", "zip-headers-differ", patched(fine, (local[1] + 30, b"c")))
    bad_npz("method_differs.npz", "zip-headers-differ", patched(fine, (local[1] + 8, u16(8))))
    bad_npz("length_differs.npz", "zip-headers-differ", patched(fine, (central[1] + 20, u32(8) * 2)))
    bad_npz("crc_differs.npz", "zip-headers-differ", patched(fine, (central[1] + 16, u32(8))))
    bad_npz("overlap.npz", "zip-overlap", patched(fine, (central[1] + 42, u32(0)), (central[1] + 46, b"b")))
    bad_npz("no_member.npz", "zip-bad-local-header", patched(fine, (central[1] + 42, u32(local[1] + 1))))
    bad_npz("member_outside.npz", "zip-outside", patched(fine, (central[1] + 42, u32(end + 1))))
    bad_npz("encrypted.npz", "zip-encrypted", patched(fine, (central[1] + 8, u16(1)), (local[1] + 6, u16(1))))
    bad_npz("encrypted_local.npz", "zip-encrypted", patched(fine, (local[1] + 6, u16(1))))
    bad_npz("nul_name.npz", "zip-bad-name", patched(fine, (local[1] + 30, b"\0"), (central[1] + 46, b"\0")))
    bad_npz("count.npz", "zip-count", patched(fine, (end + 8, u16(1) * 2)))
    bad_npz("count_huge.npz", "zip-count", patched(fine, (end + 8, u16(60000) * 2)))
    bad_npz("volumes.npz", "zip-volumes", patched(fine, (end + 4, u16(1))))
    lengths = struct.pack("<II", len(b), len(b) + 1)
    bad_npz("stored_lengths.npz", "zip-stored-length", patched(fine, (central[1] + 20, lengths), (local[1] + 18, lengths)))
    wide = zipped([("a.npy", a), ("b.npy", b)], wide=True)
    bad_npz("zip64_missing.npz", "zip-bad-extra", patched(wide, (wide.rindex(b"PK\x01\x02") + 24, u32(2**32 - 1))))
    bad_npz("zip64_locator.npz", "zip-bad-zip64", fine[:end] + b"PK\x06\x07" + bytes(4) + b"\xff" * 8 + u32(1) + fine[end:])
    bad_npz("zip64_differs.npz", "zip-ends-differ", zip64_end(fine, end, central[0], 1))
    good_npz("zip64_end.npz", zip64_end(fine, end, central[0], 2))
    bad_npz("array_short.npz", "truncated", zipped([("a.npy", a[:-1])]))
    bad_npz("array_long.npz", "trailing-bytes", zipped([("a.npy", a + b"x")]))
    bad_npz("array_magic.npz", "npy-magic", zipped([("a.npy", a), ("b.npy", b"x" * 200)]))

    claim = u32(2**31)
    bomb = patched(packed, (pcentral[1] + 24, claim), (plocal[1] + 22, claim))
    bad_npz("deflate_claim.npz", "deflate-claim", bomb)
    crc = u32(zlib.crc32(b) ^ 1)
    bad_npz("crc_wrong.npz", "crc-mismatch", patched(packed, (pcentral[1] + 16, crc), (plocal[1] + 14, crc)))
    stretched = npy(np.arange(7, dtype="i2"))
    bad_npz("deflate_short.npz", "deflate-too-short", deflated_claim(b, stretched))
    bad_npz("deflate_long.npz", "deflate-too-long", deflated_claim(stretched[:128] + bytes(40), stretched))
    at = plocal[1] + 30 + 5
    bad_npz("deflate_damaged.npz", "bad-deflate", patched(packed, (at, b"\xff\xff\xff")))


def deflated_claim(content, claimed):
    """An archive whose second member inflates to `content` but claims length and CRC of `claimed`."""
    first = npy(np.arange(2))
    data = zipped([("a.npy", first), ("b.npy", content)], zipfile.ZIP_DEFLATED)
    local, central = data.index(b"PK\x03\x04", 1), data.rindex(b"PK\x01\x02")
    facts = struct.pack("<I", zlib.crc32(claimed))
    length = struct.pack("<I", len(claimed))
    return patched(data, (local + 14, facts), (local + 22, length), (central + 16, facts), (central + 24, length))


def zip64_end(data, end, directory, count):
    size = end - directory
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, size, directory)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, end, 1)
    return data[:end] + record + locator + data[end:]


for folder in (NPY, NPZ):
    for part in ("good", "bad"):
        (folder / part).mkdir(parents=True, exist_ok=True)
npy_files()
bad_npy_files()
npz_files()
bad_npz_files()
