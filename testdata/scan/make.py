"""Makes the crafted files of `bad/`, one at least for each rule of `weighbridge scan`, and `expected.json`.

Run with numpy, h5py and pyarrow: `python make.py`. What the pickles would call is harmless: `os.getcwd`, `print`.
The bytes are the same each time, but for what h5py and pyarrow put into theirs.

`expected.json` holds for each file the verdict, and codes that must be among its findings.
"""

import base64
import io
import json
import pickle
import shutil
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
BAD = HERE / "bad"
EXPECTED = {}


def put(name, data, verdict, *codes):
    path = BAD / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    EXPECTED[name] = {"verdict": verdict, "codes": sorted(codes)}


# Pickles, spelled out: c MODULE NAME imports, ( marks, t makes a tuple, R calls, . ends.
GETCWD = b"cos\ngetcwd\n)R"
PRINT = b"cbuiltins\nprint\n(Vhello\ntR"
EVIL = b"\x80\x02" + GETCWD + b"."
GOOD = pickle.dumps({"a": 1}, 2)


def text(word):
    return b"\x8c" + bytes([len(word)]) + word.encode()


def pickles():
    put("import_os.pkl", EVIL, "found", "dangerous-import")
    put("import_unknown.pkl", b"\x80\x02cmymodule\nThing\n)\x81.", "could-not-tell", "unknown-import")
    put("call_computed.pkl", b"\x80\x02ccollections\nOrderedDict\n)R)R.", "found", "computed-call")
    put("call_unusual.pkl", b"\x80\x02cbuiltins\neval\nX\x03\x00\x00\x001+1\x85R.", "found", "unusual-call")
    put("zeros.pkl", b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.", "found", "unusual-call")
    put("codec.pkl", b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.", "found", "unusual-call")
    tensor = b"ctorch._tensor\n_rebuild_from_type_v2\n(%b\nctorch\nTensor\n(%btNtR."
    put("indirect.pkl", b"\x80\x02" + tensor % (b"cbuiltins\nbytearray", b"\x8a\x06" + bytes(5) + b"\x01"), "found", "unusual-call")
    # POP of an empty stack breaks every machine; imports follow.
    broken = b"\x80\x040" + text("mymodule") + text("Thing") + b"\x93."
    put("import_behind_break.pkl", broken, "could-not-tell", "unfollowed-import", "pickle-breaks")
    put("os_behind_break.pkl", b"\x80\x040" + text("os") + text("getcwd") + b"\x93)R.", "found", "dangerous-import")
    put("os_before_break.pkl", b"\x80\x02" + GETCWD + b"\xff", "found", "dangerous-import", "pickle-breaks")
    put("extension.pkl", b"\x80\x02\x82\x01.", "could-not-tell", "extension")
    put("breaks.pkl", GOOD[:-3], "could-not-tell", "pickle-breaks")
    put("frames.pkl", b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00" + text("abcdef") + b".", "could-not-tell", "frames-disagree")
    put("trailing.pkl", GOOD + b"\xff\xfe\xfd", "could-not-tell", "trailing-bytes")
    put("two.pkl", GOOD + GOOD, "clean", "another-pickle")
    put("second_is_evil.pdparams", GOOD + EVIL, "found", "another-pickle", "dangerous-import")
    put("second_is_old.pdparams", GOOD + GETCWD + b".", "found", "another-pickle", "dangerous-import")
    put("nested.pkl", pickle.dumps({"inner": GOOD + b""}, 3), "clean", "nested-pickle")
    put("nested_evil.pkl", pickle.dumps([pickle.dumps(EVIL, 3)], 4), "found", "nested-pickle", "dangerous-import")
    # Bytes as protocol 2 spells them, behind very many strings, of protocol 0, behind a pickle that does nothing.
    put("nested_protocol_2.pkl", pickle.dumps({"x": EVIL}, 2), "found", "nested-pickle", "dangerous-import")
    put("nested_bytearray.pkl", pickle.dumps({"x": bytearray(EVIL)}, 2), "found", "nested-pickle", "dangerous-import")
    put("nested_array.pdparams", pickle.dumps({"x": np.frombuffer(EVIL, np.uint8)}, 2), "found", "nested-pickle", "dangerous-import")
    put("nested_protocol_0.pkl", pickle.dumps({"x": GETCWD + b"."}, 3), "found", "nested-pickle", "dangerous-import")
    put("nested_as_line.pkl", b"V\x80\x02cos\\u000agetcwd\\u000a)R.\n.", "found", "nested-pickle", "dangerous-import")
    put("nested_second.pkl", pickle.dumps({"x": GOOD + EVIL}, 3), "found", "nested-pickle", "dangerous-import")
    # Numbers as C reads them; an import at the edge of what is looked at first; a machine that does not stop where ours does.
    ends = b"0" + GETCWD + b"."
    for name, start in {
        "nested_prefix": b"I0x1\n", "nested_underscore": b"Np1_0\n", "nested_zero": b"I1\0abc\n", "nested_blanks": b"I" + b"\x0b" * 600 + b"1\n",
        "nested_at_edge": b"N0" * 255 + b"N", "nested_string_at_edge": b"N0" * 255 + b"S''\n", "nested_list_item": b"]K\0aK\0K\1s",
        "nested_long": b"\x8b" + struct.pack("<I", 2000) + b"\1" * 2000,
    }.items():
        put(f"{name}.pkl", pickle.dumps({"x": start + ends}, 3), "found", "nested-pickle", "dangerous-import")
    old = b"\x80\x04U\x02osU\x06getcwd\x93)R."
    put("nested_old_strings.pkl", pickle.dumps({"x": old}, 3), "found", "nested-pickle", "dangerous-import")
    put("nested_registry.pkl", pickle.dumps({"x": b"\x82\x01."}, 3), "could-not-tell", "nested-pickle", "extension")
    put("called_by_name.pkl", pickle.dumps({"add": [("add", np.float32)], "append": dict}, 4), "clean")
    of_libraries()
    sums()
    # The length of the header is a zero for Python's protocol 0, and so is what follows, up to the end of a line in the data.
    data = b"\n" + ends
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode().ljust(ord("I"))
    put("length_as_number.safetensors", struct.pack("<Q", ord("I")) + header + data, "found", "two-formats", "dangerous-import")
    # Our machine stops at an item set in a list, Python does not.
    data = b"\n]K\0aK\0K\1s" + ends
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode().ljust(ord("I"))
    put("stops_here_alone.safetensors", struct.pack("<Q", ord("I")) + header + data, "found", "two-formats", "dangerous-import")
    put("size_as_text.pkl", b"\x80\x03cbuiltins\nbytes\ncbuiltins\nint\nX\x0c\0\0\x00999999999999\x85R\x85R.", "found", "unusual-call")
    put("size_by_name.pkl", b"\x80\x04cbuiltins\nbytes\n)}" + text("source") + b"J\xff\xff\xff\x7fs\x92.", "found", "unusual-call")
    put("size_of_range.pkl", b"\x80\x03ctorch\nSize\ncbuiltins\nrange\nJ\xff\xff\xff\x7f\x85R\x85R.", "found", "unusual-call")
    put("size_of_array.pkl", b"\x80\x03cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85\x85R.", "found", "unusual-call")
    state = b"\x80\x04cargparse\nNamespace\n)\x81}" + text("__setstate__") + b"cbuiltins\nbytearray\nsbJ\xff\xff\xff\x7fb."
    put("calls_its_state.pkl", state, "found", "unusual-call")
    # Paddle writes a tensor with LoD as eval("data", {"data": array}), and its levels.
    put("lod.pdparams", lod_tensor(HERE.parent / "pickle/good/p262_nested_ckpt"), "clean", "lod-eval")
    put("persistent.pkl", b"\x80\x02X\x01\x00\x00\x00kQ.", "clean", "persistent-id")
    put("next_buffer.pkl", b"\x80\x05\x97.", "clean", "out-of-band")
    put("odd.pkl", b"\x80\x02NN0.", "clean", "odd-pickle")
    put("many.pkl", b"\x80\x02" + b"N0" * 2000 + b"N.", "clean", "more-findings", "odd-pickle")
    put("many_then_os.pkl", b"\x80\x02" + b"N0" * 12000 + GETCWD + b".", "found", "more-findings", "dangerous-import")
    # Python's memo is an array as long as the furthest place.
    put("memo_far.pkl", b"\x80\x02]r\0\0\0\x04.", "found", "memo-far")
    put("memo_far_line.pkl", b"]p67108864\n.", "found", "memo-far", "odd-pickle")
    # A tuple that holds the one before twice, eighteen times over, as a key.
    put("large_keys.pkl", b"\x80\x02}K\x01\x85" + b"2\x86" * 18 + b"K\x01s.", "found", "large-keys")
    put("large_keys_of_set.pkl", b"\x80\x02cbuiltins\nset\n]K\x01\x85" + b"2\x86" * 18 + b"a\x85R.", "found", "large-keys")
    part = np.zeros(4, np.float32)
    for name, parts, slices in [
        ("parts_multiply", {"w@@.0": part}, ["w@@.0"] * 2),
        ("parts_of_same_array", {"w@@.0": part, "w@@.1": part}, ["w@@.0", "w@@.1"]),
        ("parts_of_text", {"w": part}, "ww"),
    ]:
        split = {"UnpackBigParamInfor@@": {"w": {"OriginShape": (8,), "slices": slices}}}
        put(f"{name}.pdparams", pickle.dumps(parts | split, 2), "found", "parts-multiply")
    put("inst.pkl", b"(ios\ngetcwd\n.", "found", "dangerous-import")
    put("obj.pkl", b"(cos\ngetcwd\no.", "found", "dangerous-import")
    memo = b"\x80\x04" + text("os") + b"\x94" + text("getcwd") + b"\x9400h\x00h\x01\x93)R."
    put("global_through_memo.pkl", memo, "found", "dangerous-import")
    put("newobj_ex.pkl", b"\x80\x04" + text("subprocess") + text("Popen") + b"\x93)}\x92.", "found", "dangerous-import")
    put("build.pkl", b"\x80\x02cmymodule\nThing\n)\x81}b.", "could-not-tell", "unknown-import")
    put("old_print.pkl", PRINT + b".", "found", "dangerous-import")
    put("state.pdiparams.info", EVIL, "found", "dangerous-import")


def of_libraries():
    """Pickles of classes of libraries that are given what their own library does not give them."""

    def name(module, attribute):
        return f"c{module}\n{attribute}\n".encode()

    def items(*pairs):
        return b"}(" + b"".join(text(key) + value for key, value in pairs) + b"u"

    # joblib and Python go on at different places behind the description of an array: of two bytes, then of four.
    dtype = name("numpy", "dtype") + text("u1") + b"\x89\x88\x87R(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    usual = [("subclass", name("numpy", "ndarray")), ("order", text("C")), ("dtype", dtype), ("allow_mmap", b"\x89")]
    wrapper = name("joblib.numpy_pickle", "NumpyArrayWrapper")
    made = b"\x80\x04" + wrapper + b")\x81"
    code = b"\xff\xff" + GETCWD + b"."
    hidden = b"C" + bytes([len(code)]) + code + b"0."
    two, four = ("shape", b"K\x02\x85"), ("shape", b"K\x04\x85")
    as_object = b"\x80\x04" + name("copyreg", "_reconstructor") + wrapper + name("builtins", "object") + b"N\x87R"
    put("joblib_reconstructed.joblib", as_object + items(*usual, four) + b"b" + hidden, "found", "unusual-call")
    skipped = ("shape", b"K" + bytes([len(hidden) - 2]) + b"\x85")
    put("joblib_duplicate_key.joblib", made + items(*usual, skipped, four) + b"b" + hidden, "found", "unusual-call")
    override = ("safe_get_numpy_array_alignment_bytes", name("collections", "ChainMap"))
    put("joblib_override.joblib", made + items(*usual, two, override) + b"b" + hidden, "found", "unusual-call")
    # The product of the extents is a multiple of 2**64; bytes that are behind a frame.
    large = b"\x8a\x08" + struct.pack("<q", 1 << 32)
    put("joblib_overflow.joblib", made + items(*usual, ("shape", large * 2 + b"\x86")) + b"b" + hidden, "found", "unusual-call")
    body = wrapper + b")\x81" + items(*usual, four) + b"bN0"
    frame = b"\x80\x04\x95" + struct.pack("<Q", len(body))
    put("joblib_frame.joblib", frame + body + hidden, "found", "unusual-call")
    # Formulas are evaluated, also as they were before the dict changed. An item of a dict may be a method.
    formulas = name("statsmodels.base.data", "FormulaicData") + b")\x81"
    evil, plain = ("formula", text("y ~ __import__('os').getcwd()")), ("formula", text("y ~ a"))
    again = ("restore_model_spec", b"\x88")
    put("formulaic.pkl", b"\x80\x04" + formulas + items(again, evil) + b"b.", "found", "unusual-call")
    late = items(again, evil) + b"q\x01bh\x01(" + text("formula") + plain[1] + b"u0."
    put("formulaic_late.pkl", b"\x80\x04" + formulas + late, "found", "unusual-call")
    result = name("scipy.optimize._optimize", "OptimizeResult") + b")\x81" + text("__setstate__") + name("numpy", "mean") + b"s}b."
    put("item_is_method.pkl", b"\x80\x04" + result, "found", "unusual-call")
    put("runs_tests.pkl", b"\x80\x04" + name("statsmodels.tools._test_runner", "PytestTester") + b")\x81.", "could-not-tell", "unknown-import")


def sums():
    """Pickles of allowed names alone, which come to something else together."""

    def call(module, name, *args):
        return f"c{module}\n{name}\n".encode() + tup(*args) + b"R"

    def tup(*items):
        return b"(" + b"".join(items) + b"t"

    def num(n):
        return b"J" + struct.pack("<i", n)

    def kind(code, flags, size=-1, fields=b"NN"):
        state = tup(num(3), text("|"), b"N", fields, num(size), num(-1 if size == -1 else 1), num(flags))
        return call("numpy", "dtype", text(code), b"\x89", b"\x88") + state + b"b"

    def array(dtype, shape, data):
        empty = call("numpy.core.multiarray", "_reconstruct", b"cnumpy\nndarray\n", tup(num(0)), b"C\x01b")
        return empty + tup(num(1), shape, dtype, b"\x89", data) + b"b"

    def put_sum(name, body, suffix="pkl"):
        put(f"{name}.{suffix}", b"\x80\x04" + body + b".", "found", "unusual-call")

    space = b"cargparse\nNamespace\n"
    layout = b"ctorch.serialization\n_get_layout\n"
    itself = lambda thing: call("numpy.core.multiarray", "scalar", call("numpy", "dtype", text("O8")), thing)
    floats = array(kind("f4", 0), tup(num(1)), b"C\x04" + b"\0" * 4)
    # The dict of eval holds all of Python's own functions afterwards; a function with a state gives them out.
    evaluated = b"cbuiltins\neval\n" + text("data") + b"}q\0" + text("data") + floats + b"s\x86R"
    put_sum("sum_of_eval", tup(evaluated, b"h\0"))
    put_sum("sum_state_of_function", itself(layout) + b"}" + text("cache") + b"}sb")
    put_sum("sum_state_of_class", itself(space) + b"}" + text("dump_patches") + b"\x88sb", "pt")
    made = space + b")\x81}" + text("__new__") + call("torch.serialization", "_get_layout", text("exec")) + b"sb"
    put_sum("sum_object_as_base", call("copyreg", "_reconstructor", text("pass"), made, b"}"))
    put_sum("sum_size_for_base", call("copyreg", "_reconstructor", *[b"cbuiltins\nbytearray\n"] * 2, num(2**31 - 1)))
    put_sum("sum_of_layout", call("torch.serialization", "_get_layout", space))
    # Numbers that are read as the places of objects, a field behind the end of its element, fewer objects than elements.
    put_sum("type_of_no_objects", array(kind("O8", 0), tup(num(1)), b"C\x08" + b"A" * 8))
    put_sum("type_of_objects", array(kind("i8", 63), tup(num(1)), b"C\x08" + b"A" * 8))
    field = b"(" + text("a") + b"t}" + text("a") + tup(kind("i8", 0), num(100000)) + b"s"
    put_sum("type_field_outside", array(kind("V8", 16, 8, field), tup(num(1)), b"C\x08" + b"A" * 8))
    put_sum("too_few_objects", array(kind("O8", 63), tup(num(1000)), b"]"))
    put_sum("elements_of_no_bytes", array(kind("V0", 0, 0), tup(num(2**31 - 1)), b"C\0"))
    # A record that is nearly all padding, made of one object; an object among bytes; names of other fields; an object with fields.
    one = tup(num(1))
    wide = b"(" + text("o") + b"t}" + text("o") + tup(kind("O8", 63), num(0)) + b"s"
    put_sum("type_of_a_gigabyte", array(kind("V1000000000", 27, 10**9, wide), one, b"](Nta"))
    number = text("n") + tup(kind("i8", 0), num(0))
    both = b"(" + text("o") + text("n") + b"t}(" + text("o") + tup(kind("O8", 63), num(0)) + number + b"u"
    put_sum("type_fields_overlap", array(kind("V8", 27, 8, both), one, b"](NK\1ta"))
    put_sum("type_names_no_fields", array(kind("V8", 0, 8, b"(" + text("z") + b"t}(" + number + b"u"), one, b"C\x08" + b"A" * 8))
    put_sum("type_object_with_fields", array(kind("O8", 63, 8, b"(" + text("n") + b"t}(" + number + b"u"), one, b"]Na"))
    # Python uses what it is given as it is at the call, not as it is at the end.
    put_sum("late_objects", tup(b"]q\0", array(kind("O8", 63), tup(num(20000)), b"h\0") + b"q\1", b"h\0(" + b"N" * 20000 + b"e"))
    shape = b"](\x8a\5" + struct.pack("<q", 10**10)[:5] + b"eq\0"
    empty = lambda shape: call("numpy.core.multiarray", "_reconstruct", b"cnumpy\nndarray\n", shape, b"C\x01b")
    put_sum("late_shape", tup(shape, empty(b"h\0"), b"h\0K\0a"))
    raw = call("numpy", "dtype", text("V8"), b"\x89", b"\x88") + b"q\0"
    grows = tup(num(3), text("|"), b"N", wide, num(8), num(1), num(27)) + b"b"
    outer = kind("V8", 27, 8, b"(" + text("p") + b"t}" + text("p") + tup(b"h\0", num(0)) + b"s")
    put_sum("late_type", tup(raw, array(outer, one, b"](C\x08" + b"A" * 8 + b"ta"), b"h\0" + grows))
    record = call("numpy", "dtype", b"cnumpy\nrecord\n", b"\x89", b"\x88") + b"q\0"
    far = b"(" + text("n") + b"t}" + text("n") + tup(kind("i8", 0), num(99992)) + b"s"
    grows = tup(num(3), text("|"), b"N", far, num(100000), num(1), num(0)) + b"b"
    put_sum("late_size", tup(record, array(b"h\0", one, b"C\0"), b"h\0" + grows))
    put_sum("late_size_of_scalar", tup(record, call("numpy.core.multiarray", "scalar", b"h\0", b"C\x01A"), b"h\0" + grows))
    # It is given bytes of its own later, and the tensor keeps the place of those that it had.
    put_sum("late_array", tup(
        empty(tup(num(1))) + b"q\0",
        call("torch._utils", "_rebuild_device_tensor_from_numpy", b"h\0", b"ctorch\nfloat32\n", text("cpu"), b"\x89"),
        b"h\0" + tup(num(1), one, kind("f4", 0), b"\x89", b"C\4" + bytes(4)) + b"b"))
    # numpy 1 writes flags as a signed byte, and for an array of objects within a record those of the objects.
    flat = b"(" + text("a") + text("b") + b"t}(" + text("a") + tup(kind("i1", 0), num(0)) + text("b") + tup(kind("f8", 0), num(8)) + b"u"
    put("type_aligned.pkl", b"\x80\x04" + kind("V16", -112, 16, flat) + b".", "clean")
    inner = call("numpy", "dtype", text("V16"), b"\x89", b"\x88")
    inner += tup(num(3), text("|"), tup(kind("O8", 63), tup(num(2))), b"NN", num(16), num(8), num(63)) + b"b"
    rows = kind("V16", 27, 16, b"(" + text("o") + b"t}" + text("o") + tup(inner, num(0)) + b"s")
    put("type_array_of_objects.pkl", b"\x80\x04" + array(rows, one, b"](](NNeta") + b".", "clean")
    put_sum("type_array_as_element", array(inner, tup(num(1)), b"]Na"))
    # What numpy takes from the state as it is: a size of -1, the size of a type that is added to it, no alignment, flags that do not say
    # that the memory of objects is cleared first. The four bytes of O4 are eight. An array has no bytes besides those of its elements.
    def exact(code, flags, size, alignment, fields=b"NN", part=b"N"):
        state = tup(num(3), text("|"), part, fields, num(size), num(alignment), num(flags))
        return call("numpy", "dtype", text(code) if isinstance(code, str) else code, b"\x89", b"\x88") + state + b"b"

    places = [array(kind("i8", 0), tup(num(64)), b"B" + struct.pack("<I", 512) + b"A" * 512) + b"0"] * 10
    for name, flags in {"init": 63 - 8, "lock": 63 - 16}.items():
        put_sum(f"type_objects_no_{name}", b"".join(places) + array(kind("O8", flags), tup(num(64)), b"](" + b"N" * 64 + b"e"))
    put_sum("type_of_half_an_object", array(exact("V4", 27, 4, 1, b"(" + text("o") + b"t}" + text("o") + tup(kind("O4", 63), num(0)) + b"s"), one, b"](Nta"))
    for letter in "SUV":
        put_sum(f"type_size_minus_{letter}", call("numpy.core.multiarray", "scalar", exact(letter + "8", 0, -1, 1), b"C\x20" + b"A" * 32))
    put_sum("type_size_of_added", array(exact(b"cml_dtypes\nbfloat16\n", 0, 1, 2), tup(num(2)), b"C\2AA"))
    put_sum("type_no_alignment", array(exact("U2", 0, 8, 0), tup(num(5)), b"C\x28" + b"A\0\0\0" * 10))
    put_sum("type_array_with_rest", exact("V24", 63, 24, 8, part=tup(kind("O8", 63), tup(num(2)))))
    put("type_added.pkl", b"\x80\x04" + array(exact(b"cml_dtypes\nbfloat16\n", 64, 2, 2), tup(num(2)), b"C\4AAAA") + b".", "clean")
    # Some fields of records that have objects, which numpy writes as if they had, too; and one record with objects.
    some = exact("V12", 27, 12, 1, b"(" + text("n") + b"t}" + text("n") + tup(kind("i4", 0), num(0)) + b"s")
    put("type_some_fields.pkl", b"\x80\x04" + array(some, one, b"](K\1ta") + b".", "clean")
    with_object = exact("V8", 27, 8, 1, wide) + b"q\0"
    for name, shape, verdict in [("type_one_record", b")", "clean"), ("type_many_records", tup(num(2)), "found")]:
        codes = [] if verdict == "clean" else ["unusual-call"]
        items = b"](" + b"N\x85" * (1 if shape == b")" else 2) + b"e"
        put(f"{name}.pkl", b"\x80\x04" + call("numpy.core.multiarray", "scalar", with_object, array(b"h\0", shape, items)) + b".", verdict, *codes)
    torch_sums(call, tup, num, put_sum)
    items = b"](" + b"".join(num(n) for n in range(300, 3300)) + b"eq\0"
    put_sum("same_items", tup(items, b"cbuiltins\nset\nq\1h\0\x85q\2R" + b"h\1h\2R" * 200))
    # Each list twice in the next: a text of any length; the same bytes, copied by each call.
    doubled = text("A" * 64) + b"q\0" + b"".join(b"0h%c" % (k - 1) + b"h%c" % (k - 1) + b"\x86q%c" % k for k in range(1, 31))
    put_sum("text_of_lists", doubled + b"0cbuiltins\nstr\nh\x1e\x85R")
    put_sum("same_bytes", b"(cbuiltins\nbytearray\nq\1B" + struct.pack("<I", 40000) + b"a" * 40000 + b"q\0" + b"h\1h\0\x85R" * 500 + b"t")
    put_sum("storage_module", b"(" + text("module") + made + text("file") + text("source") + b"tQ")


def torch_sums(call, tup, num, put_sum):
    """Tensors that calls of PyTorch copy, or do not look at, and that do not lie within their storages."""

    def tensor(name, kind, key, elements, offset, extents, strides, *more):
        storage = tup(text("storage"), f"ctorch\n{kind}Storage\n".encode(), text(key), text("cpu"), num(elements)) + b"Q"
        view = [storage, num(offset), tup(*map(num, extents)), tup(*map(num, strides))]
        return call("torch._utils", name, *view, *more, b"\x89", b"ccollections\nOrderedDict\n)R")

    plain = lambda *args: tensor("_rebuild_tensor_v2", *args)
    scheme = tup(b"ctorch\nper_tensor_affine\n", b"G" + struct.pack(">d", 0.5), num(0))
    quantized = lambda *args, scheme=scheme: tensor("_rebuild_qtensor", "QInt8", *args, scheme)
    many = 2 * 10**8
    put_sum("quantized_outside", quantized("0", 4, 10**9, [4], [1]))
    put_sum("quantized_steps_outside", quantized("0", 4, 0, [2], [4096]))
    put_sum("storage_of_two_sizes", tup(plain("QInt8", "0", 4, 0, [1], [1]), quantized("0", many, 0, [many], [1])))
    put_sum("storage_of_two_classes", tup(plain("Char", "0", 4, 0, [1], [1]), quantized("0", 4, 0, [4], [1])))
    scales = [plain(kind, key, 4, 0, [many], [0]) for kind, key in (("Float", "1"), ("Int", "2"))]
    channels = tup(b"ctorch\nper_channel_affine\n", *scales, num(0))
    put_sum("scales_of_one_number", quantized("0", 4, 0, [4], [1], scheme=channels))
    values = tup(plain("Byte", "0", 4, 0, [1, many], [0, 0]), plain("Byte", "0", 4, 0, [many], [0]), tup(num(5)))
    put_sum("sparse_of_one_number", call("torch._utils", "_rebuild_sparse_tensor", b"ctorch\nsparse_coo\n", values))
    shapes = [plain("Long", "2", 4, 0, extents, [0] * len(extents)) for extents in ([many, 1], [many, 1], [many])]
    put_sum("nested_of_one_number", call("torch._utils", "_rebuild_nested_tensor", plain("Float", "1", 4, 0, [4], [1]), *shapes))


def lod_tensor(folder):
    for path in sorted(folder.iterdir()):
        data = path.read_bytes() if path.suffix != ".json" else b""
        if b"eval" in data:
            return data
    raise FileNotFoundError("no file with a tensor with LoD")


STAMP = (1980, 1, 1, 0, 0, 0)


def member(name, mode=0o644, system=3):
    info = zipfile.ZipInfo(name, STAMP)
    info.create_system = system
    info.external_attr = (0o100000 | mode) << 16
    return info


def zipped(members, **options):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        for name, data in members:
            archive.writestr(name if isinstance(name, zipfile.ZipInfo) else member(name), data)
    return buffer.getvalue()


def local(name, data, crc=None, method=0, flags=0):
    crc = zlib.crc32(data) if crc is None else crc
    return struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, flags, method, 0, 0x21, crc, len(data), len(data), len(name), 0) + name + data


def central(name, data, at, crc=None, method=0, flags=0):
    crc = zlib.crc32(data) if crc is None else crc
    return struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, flags, method, 0, 0x21, crc, len(data), len(data), len(name), 0, 0, 0, 0, 0, at) + name


def end(count, size, at, comment=b""):
    return struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, count, count, size, at, len(comment)) + comment


def wide_zip(members):
    """As torch writes it: a zip64 end record and its locator stand before the end record."""
    data = zipped(members)
    at = len(data) - 22
    count, size, start = struct.unpack("<HII", data[at + 10 : at + 20])
    record = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start)
    return data[:at] + record + struct.pack("<4sIQI", b"PK\x06\x07", 0, at, 1) + data[at:]


def archive(entries, directory, count=None):
    """Local headers as they are; `directory`: entries of the directory."""
    body, names = b"".join(entries), b"".join(directory)
    return body + names + end(len(directory) if count is None else count, len(names), len(body))


def two(entries, names):
    """Members at their places, the directory with `names` of its own."""
    at, directory = 0, []
    for (name, data), shown in zip(entries, names):
        directory.append(central(shown, data, at))
        at += 30 + len(name) + len(data)
    return archive([local(name, data) for name, data in entries], directory)


def zips():
    note = ("note.txt", b"words")
    put("duplicate.zip", two([(b"a.pkl", GOOD), (b"a.pkl", EVIL)], [b"a.pkl", b"a.pkl"]), "found", "zip-duplicate-name", "dangerous-import")
    put("similar.zip", zipped([("a.txt", b"1"), ("A.txt.", b"2")]), "found", "zip-similar-names")
    put("headers_differ.zip", two([(b"a.txt", b"words"), (b"evil.p", EVIL)], [b"a.txt", b"good.p"]), "found", "zip-headers-differ", "dangerous-import")
    differs = local(b"a.txt", b"words", flags=1) + central(b"a.txt", b"words", 0)
    put("flags_differ.zip", differs + end(1, 51, 40), "found", "zip-headers-differ")
    put("method_differs.zip", archive([local(b"a.txt", b"words", method=8)], [central(b"a.txt", b"words", 0)]), "found", "zip-headers-differ")
    put("crc_differs.zip", archive([local(b"a.txt", b"words", crc=1)], [central(b"a.txt", b"words", 0)]), "found", "zip-headers-differ")
    path = struct.pack("<2HBI", 0x7075, 10, 1, zlib.crc32(b"a.npy")) + b"b.npy"
    body, entry = local(b"a.npy", array("<f4", (1,), b"abcd")), central(b"a.npy", array("<f4", (1,), b"abcd"), 0)
    entry = entry[:30] + struct.pack("<H", len(path)) + entry[32:] + path
    put("unicode_path.npz", archive([body], [entry]), "found", "zip-headers-differ")
    inner = zipped([note])
    put("two_ends.zip", inner[:-2] + struct.pack("<H", len(inner)) + inner, "found", "zip-end-records")
    put("count.zip", archive([local(b"a.txt", b"words")], [central(b"a.txt", b"words", 0)], count=2), "found", "zip-end-records")
    put("prepended.zip", b"MZ is no program" + zipped([note]), "found", "zip-prepended")
    put("appended.zip", zipped([note]) + b"more", "found", "zip-appended")
    wide = zipped([note])
    at = len(wide) - 22
    record = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 7, 7, 9, 9) + struct.pack("<4sIQI", b"PK\x06\x07", 0, at, 1)
    put("zip64.zip", wide[:at] + record + wide[at:], "found", "zip-end-records")
    # Python counts back from the end record, and finds the second directory; miniz takes the first, where the record says.
    body = local(b"pad.pkl", GOOD) + local(b"evil.pk", EVIL)
    size = 46 + 7
    names = central(b"evil.pk", EVIL, 30 + 7 + len(GOOD)), central(b"pad.pkl", GOOD, (1 << 32) - size)
    put("two_directories.zip", body + b"".join(names) + end(1, size, len(body)), "found", "zip-end-records", "dangerous-import")
    body = local(b"a.txt", local(b"b.txt", b"words"))
    names = [central(b"a.txt", local(b"b.txt", b"words"), 0), central(b"b.txt", b"words", 35)]
    put("overlap.zip", archive([body], names), "found", "zip-overlap")
    hidden = local(b"a.txt", b"words") + local(b"evil.pkl", EVIL)
    put("hidden.zip", archive([hidden], [central(b"a.txt", b"words", 0)]), "found", "zip-hidden-member", "dangerous-import")
    put("bomb.zip", bomb(), "found", "zip-bomb")
    put("crc.zip", archive([local(b"a.pkl", EVIL, crc=1)], [central(b"a.pkl", EVIL, 0, crc=1)]), "found", "zip-crc", "dangerous-import")
    # As zip encrypts what it does not pack: twelve bytes stand before the data.
    secret = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 1, 0, 0, 0x21, 7, 16, 4, 5, 0) + b"a.txt" + bytes(range(16))
    names = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 1, 0, 0, 0x21, 7, 16, 4, 5, 0, 0, 0, 0, 0, 0) + b"a.txt"
    put("encrypted_stored.zip", archive([secret], [names]), "could-not-tell", "zip-encrypted")
    put("encrypted.zip", archive([local(b"a.pkl", EVIL, flags=1)], [central(b"a.pkl", EVIL, 0, flags=1)]), "could-not-tell", "zip-encrypted")
    whole = zipped([("a.txt", b"words"), ("b.pkl", GOOD)])
    put("damaged.zip", whole[: len(whole) - 30], "could-not-tell", "zip-damaged")
    whole = zipped([("a.txt", b"words"), ("b.pkl", EVIL)])
    put("damaged_evil.zip", whole[: len(whole) - 60], "found", "zip-damaged", "dangerous-import")
    put("gap.zip", archive([local(b"a.txt", b"words"), bytes(100)], [central(b"a.txt", b"words", 0)]), "could-not-tell", "zip-gap")
    names = ["../up.txt", "/etc/absolute.txt", "C:drive.txt", "a/../../x.txt"]
    back = two([(b"a\\b.txt", b"1")], [b"a\\b.txt"])
    put("member_names.zip", zipped([(name, b"1") for name in names]), "found", "unsafe-member-name")
    put("backslash.zip", back, "found", "unsafe-member-name")
    put("odd_names.zip", zipped([("exe\u202etxt.pkl", GOOD), ("a\x1bb.txt", b"1")]), "found", "odd-member-name")
    put("nul_name.zip", two([(b"a.txt\0.pkl", GOOD)], [b"a.txt\0.pkl"]), "found", "odd-member-name")
    link = member("link")
    link.external_attr = 0o120777 << 16
    put("link.zip", zipped([(link, "/etc")]), "found", "member-link")
    put("nested.zip", zipped([("inner.zip", zipped([("evil.pkl", EVIL)]))]), "found", "dangerous-import")
    deep = zipped([note])
    for depth in range(130):
        deep = zipped([(f"{depth}.zip", deep)])
    put("deep.zip", deep, "could-not-tell", "nested-too-deep")
    put("model.keras", zipped([("config.json", LAMBDA), ("metadata.json", "{}")]), "found", "keras-lambda")
    info = member("evil.pkl")
    info.compress_type = zipfile.ZIP_DEFLATED
    put("deflated.zip", zipped([(info, EVIL)]), "found", "dangerous-import")


def bomb():
    """A member that claims more than deflate can give."""
    data = zlib.compress(bytes(100_000), 9)[2:-4]
    crc = zlib.crc32(bytes(100_000))
    facts = struct.pack("<HHHHIII", 0, 8, 0, 0x21, crc, len(data), 0x7FFFFFFF)
    first = b"PK\x03\x04\x14\x00" + facts + struct.pack("<2H", 5, 0) + b"a.bin" + data
    entry = b"PK\x01\x02\x14\x00\x14\x00" + facts + struct.pack("<5H2I", 5, 0, 0, 0, 0, 0, 0) + b"a.bin"
    return first + entry + end(1, len(entry), len(first))


def tars():
    def tarred(members):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for info, data in members:
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return buffer.getvalue()

    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    put("links.tar", tarred([(link, b""), (tarfile.TarInfo("../up"), b"")]), "found", "member-link", "unsafe-member-name")
    old = [(tarfile.TarInfo("sys_info"), GOOD), (tarfile.TarInfo("pickle"), EVIL), (tarfile.TarInfo("storages"), GOOD)]
    put("old_torch.pt", tarred(old), "found", "dangerous-import")

    def block(name, kind, data, length=None):
        info = tarfile.TarInfo(name)
        info.type, info.size = kind, len(data) if length is None else length
        return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)

    inner = block("evil.pkl", b"0", EVIL)
    put("directory_with_data.tar", block("d", b"5", inner) + bytes(1024), "found", "tar-layout", "dangerous-import")
    texts = array("<U1", (1,), b"a\0\0\0").ljust(512, b"\0")
    put("pax_size.tar", block("p", b"x", b"12 size=512\n") + block("a.npy", b"0", texts + inner) + bytes(1024), "found", "tar-layout", "dangerous-import")
    put("global_size.tar", block("p", b"g", b"12 size=512\n") + block("a.npy", b"0", texts) + bytes(1024), "found", "tar-layout")

    def sealed(data, sum_of):
        """The first header with the checksum that `sum_of` makes of its other bytes."""
        others = data[:148] + b" " * 8 + data[156:512]
        return data[:148] + sum_of(others).ljust(8, b" ") + data[156:]

    # Of the legacy form, and a tar archive for Python: its checksum is of signed bytes, or written oddly.
    def legacy(sum_of):
        front = b"".join(pickle.dumps(x, 2) for x in (0x1950A86A20F9469CFC6C, 1001, {})) + b"\x80\x03B"
        rest = inner + bytes(1024) + b"." + pickle.dumps([], 2)
        header = (front + struct.pack("<I", 512 - len(front) - 4 + len(rest) - 5)).ljust(512, b"\0")
        return sealed(header[:124] + b"0" + header[125:], sum_of) + rest

    put("tar_signed.pt", legacy(lambda bytes_: b"%06o\0 " % sum(struct.unpack("512b", bytes_))), "found", "two-formats", "dangerous-import")
    put("tar_prefixed.pt", legacy(lambda bytes_: b"0o%o" % sum(bytes_)), "found", "two-formats", "tar-layout", "dangerous-import")
    put("tar_base_256.pt", legacy(lambda bytes_: b"\x80" + sum(bytes_).to_bytes(7, "big")), "found", "two-formats", "tar-layout", "dangerous-import")
    # By Python the number ends at the first NUL: what seems to be data are members.
    hidden = block("a.npy", b"0", inner)
    hidden = hidden[:124] + b"\0%010o\0" % len(inner) + hidden[136:]
    hidden = sealed(hidden, lambda bytes_: b"%06o\0 " % sum(bytes_))
    put("tar_length.tar", hidden + bytes(1024), "found", "tar-layout", "dangerous-import")
    # Its name, read as a pickle: c MODULE NAME, with the newlines that a name of a member may have.
    put("pickle.tar", block("cos\ngetcwd\n)R.", b"0", b"1") + bytes(1024), "found", "two-formats", "dangerous-import")


def safetensors(header, data=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def safetensors_and_pickle():
    """A file of safetensors that protocol 0 reads as strings, `U` LENGTH TEXT, up to the data, which import."""
    data = GETCWD + b"."
    length = 0x4055  # U, and a string of 64 bytes, behind which the next one begins
    front = '{"__metadata__":{"x":"'
    text = front + "A" * (58 - len(front))
    last = '"},"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (len(data), len(data))
    left = length - len(text)
    text += ("U~" + "B" * 126) * (left // 128 - 1)
    left -= (left // 128 - 1) * 128
    first = left - 2 - 2 - 100
    text += "U" + chr(first) + "C" * first + "Ud" + "D" * (100 - len(last)) + last
    assert len(text) == length and json.loads(text)
    return struct.pack("<Q", length) + text.encode() + data


ONE = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
LAMBDA = json.dumps({"class_name": "Functional", "module": "keras", "config": {"layers": [
    {"class_name": "Lambda", "module": "keras.layers", "config": {"name": "run", "function": ["4wEA", None, None], "function_type": "lambda"}},
]}})


def names():
    index = {"metadata": {}, "weight_map": {"a": "../../outside.safetensors", "b": "model-1.safetensors"}}
    put("traversal.index.json", json.dumps(index).encode(), "found", "name-leads-out")
    config = {"entities": {"../user": {"num_partitions": 1}}, "relations": [{"name": "r", "lhs": "../user", "rhs": "../user"}],
              "entity_path": "data/e", "edge_paths": ["data/x"], "checkpoint_path": "model"}
    put("entity_types/config.json", json.dumps(config).encode(), "found", "name-leads-out")
    put("tensor_names.safetensors", safetensors({"../../w": ONE}, b"abcd"), "clean", "path-like-name")
    put("absolute/config.json", b'{"data": "/home/someone/data/train.tsv"}', "clean", "absolute-path")
    put("remote_code/config.json", b'{"auto_map": {"AutoModel": "modeling.Model"}}', "found", "remote-code")
    put("remote_code/tokenizer_config.json", b'{"auto_map": ["tokenizer.Tokenizer", null]}', "found", "remote-code")
    put("template.json", b'{"chat_template": "{{ \'\'.__class__.__mro__[1].__subclasses__() }}"}', "found", "remote-code")
    put("template_pieces.json", b'{"chat_template": "{{ (cycler|attr(\'_\'~\'_init_\'~\'_\'))[\'o\'~\'s\'] }}"}', "found", "remote-code")
    put("template_key.json", b'{"chat_template": "{{ cycler[\'_\'~\'_init_\'~\'_\'] }}"}', "found", "remote-code")
    put("template_escape.json", b'{"chat_template": "{{ \'\'[\'\\\\x5f\\\\x5fclass\\\\x5f\\\\x5f\'] }}"}', "found", "remote-code")
    templates = {
        "newline": "{{ ''[\"\\\r\n__class__\"] }}",
        "unpacked": "{{ ''[nothing|default(*['__class__'])] }}",
        "pairs": "{% set d = {} %}{% set _ = d.update([('k', '__class__')]) %}{{ ''[d.k] }}",
        "nested": "{% set a, (b, c) = 'x', ('y', '__class__') %}{{ ''[c] }}",
        "steps": "{{ ''[[{'a': {'b': '__class__'}}]|map(attribute='a.b')|first] }}",
        "macros": "{% macro a(q) %}{% endmacro %}{% macro b() %}{{ ''[kwargs.q] }}{% endmacro %}{{ b(q='__class__') }}",
        "cycle": "{% for i in [1] %}{{ ''[{'get': loop.cycle}['get']('__class__')] }}{% endfor %}",
    }
    for name, text in templates.items():
        put(f"template_{name}.json", json.dumps({"chat_template": text}).encode(), "found", "remote-code")
    # Keys that are computed: the words do not show which name it is.
    striptags = {"chat_template": "{{ ''['&#95;&#95;class&#95;&#95;'|striptags] }}"}
    put("template_striptags.json", json.dumps(striptags).encode(), "could-not-tell", "left-out")
    token = {"extra_special_tokens": {"foo": "x__class__"}, "chat_template": "{{ ''[foo[1:]] }}"}
    put("template_token.json", json.dumps(token).encode(), "could-not-tell", "left-out")
    put("target_os.json", b'{"_target_": "os.getcwd"}', "found", "remote-code")
    put("target.json", b'{"model": {"_target_": "mymodule.Model"}}', "could-not-tell", "names-callable")
    for name, words in {
        "tag": "x: !!python/object/apply:os.getcwd []\n",
        "percent": "x: !!pyth%6fn/object/apply:os.getcwd []\n",
        "handle": "%TAG !p! tag:yaml.org,2002:pyth\n---\nx: !p!on/object/apply:os.getcwd []\n",
        "target": "model:\n  _target_: mymodule.Model\n",
    }.items():
        put(f"yaml_{name}.yaml", words.encode(), "could-not-tell", "names-callable")
    put("yaml_target_os.yaml", b"model:\n  _target_: os.getcwd\n", "found", "remote-code")
    put("yaml_escaped_target.yaml", b'"\\x5ftarget_": os.getcwd\n', "found", "remote-code")
    put("inference.yml", b"PreProcess:\n- Resize:\n    scale: 1./255.\n    note: 50% of it!\n", "clean")

    def layer(kind, **config):
        return json.dumps({"module": "keras.layers", "class_name": kind, "config": dict(config, name="x")}).encode()

    value = base64.b64encode(EVIL).decode()
    module = {"class_name": "__bytes__", "config": {"value": value}}
    put("torch_module.json", layer("TorchModuleWrapper", module=module), "found", "keras-loads", "dangerous-import")
    put("saved_model.json", layer("TFSMLayer", filepath="saved_model", call_endpoint="serve"), "found", "keras-loads")
    put("vocabulary.json", layer("StringLookup", vocabulary="https://example.org/words"), "found", "keras-loads")


def programs():
    def program(*ops, variables=""):
        return ("blocks {\n  idx: 0\n  parent_idx: -1\n" + variables + "".join(f"  ops {{\n{op}  }}\n" for op in ops) + "}\n").encode()

    def op(kind, **attributes):
        lines = f'    type: "{kind}"\n'
        for name, value in attributes.items():
            lines += f'    attrs {{\n      name: "{name}"\n      type: STRING\n      s: "{value}"\n    }}\n'
        return lines

    stack = '    attrs {\n      name: "op_callstack"\n      type: STRINGS\n      strings: "  File \\"/home/me/train.py\\", line 3, in main"\n    }\n'
    put("source.pdmodel", program(op("relu") + stack), "found", "source-code")
    put("save.pdmodel", program(op("save", file_path="/tmp/out")), "found", "writes-files")
    put("py_func.pdmodel", program(op("py_func")), "found", "runs-python")
    put("network.pdmodel", program(op("listen_and_serv", endpoint="0.0.0.0:80")), "found", "network")
    put("load.pdmodel", program(op("load", file_path="w")), "clean", "reads-files")
    variable = '  vars {\n    name: "../../w"\n    persistable: true\n    type {\n      type: LOD_TENSOR\n      lod_tensor {\n        tensor {\n          data_type: FP32\n          dims: 1\n        }\n      }\n    }\n  }\n'
    put("variable_names.pdmodel", program(op("relu"), variables=variable), "found", "name-leads-out")
    put("class_names.json", (HERE.parent / "paddle/good/p331/control_flow_pir/model.json").read_bytes(), "clean", "class-names")
    put("chat_template.jinja", b"{% set k = '_' ~ '_class_' ~ '_' %}\n{{ messages[k] }}\n", "found", "remote-code")
    put("unread.jinja", b"{% for m in messages %}{% unheard of %}{% endfor %}\n", "could-not-tell", "left-out")
    code = zipped([("m/data.pkl", GOOD), ("m/code/__torch__.py", b"def f(): pass\n"), ("m/version", b"3\n")])
    put("script.pt", code, "found", "torchscript-code")
    # A node of the domain com.example.
    put("custom.onnx", b'\x08\x08:\x1d\n\x15\x12\x01y"\x03Run:\x0bcom.example\x12\x04mainB\x0f\n\x0bcom.example\x10\x01', "could-not-tell", "custom-operators")
    buffer = io.BytesIO()
    field = pa.field("x", pa.binary(), metadata={"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": GETCWD + b"."})
    schema = pa.schema([field, pa.field("y", pa.float32())])
    with pa.ipc.new_file(buffer, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array([b"a"]), pa.array([1.0], pa.float32())], schema=schema))
    put("pickled_type.arrow", buffer.getvalue(), "found", "arrow-pickled-type")


    def table(column):
        schema = pa.schema([pa.field("x", column.type), pa.field("y", pa.float32())])
        return pa.table([column, pa.array([1.0] * len(column), pa.float32())], schema=schema)

    def arrow(column):
        buffer = io.BytesIO()
        with pa.ipc.new_file(buffer, table(column).schema) as writer:
            writer.write_table(table(column))
        return buffer.getvalue()

    def parquet(column):
        buffer = io.BytesIO()
        pq.write_table(table(column), buffer)
        return buffer.getvalue()

    values = pa.array([b"honest", None, EVIL])
    put("bytes_column.arrow", arrow(values), "found", "nested-pickle", "dangerous-import")
    put("bytes_column.parquet", parquet(values), "found", "nested-pickle", "dangerous-import")
    put("fixed_bytes.parquet", parquet(pa.array([EVIL, bytes(len(EVIL))], pa.binary(len(EVIL)))), "found", "dangerous-import")
    put("zip_in_column.arrow", arrow(pa.array([zipped([("evil.pkl", EVIL)]), b"honest"])), "found", "dangerous-import")
    texts = pa.array(["honest", None, (GETCWD + b".").decode()])
    put("text_column.arrow", arrow(texts), "found", "nested-pickle", "dangerous-import")
    put("text_column.parquet", parquet(texts), "found", "nested-pickle", "dangerous-import")
    put("texts_in_lists.parquet", parquet(pa.array([["honest", (GETCWD + b".").decode()]])), "found", "dangerous-import")
    put("texts_in_lists.arrow", arrow(pa.array([["honest", (GETCWD + b".").decode()]])), "could-not-tell", "left-out")
    put("bytes_in_lists.parquet", parquet(pa.array([[EVIL]])), "found", "left-out", "dangerous-import")
    put("bytes_in_lists.arrow", arrow(pa.array([[EVIL]])), "could-not-tell", "left-out")


def array(descr, shape, data):
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def contents():
    plain = safetensors({"w": ONE}, b"abcd")
    put("safetensors_and_zip.safetensors", plain + zipped([("evil.pkl", EVIL)]), "found", "two-formats", "dangerous-import")
    evil = [("m/data.pkl", EVIL), ("m/version", b"3\n")]
    put("safetensors_and_torch.safetensors", plain + wide_zip(evil), "found", "two-formats", "dangerous-import")
    put("npy_and_torch.npy", array("|u1", (len(wide_zip(evil)),), wide_zip(evil)), "found", "two-formats", "dangerous-import")
    put("program_and_torch.pt", b"\x7fELF\x02\x01\x01" + bytes(57) + wide_zip(evil), "found", "program-file", "two-formats", "dangerous-import")
    put("words_and_torch.pt", b"some words\n" + wide_zip(evil), "found", "zip-prepended", "dangerous-import")
    # Bytes behind the archive, a comment that is shorter than it says: Python reads both.
    inner = zipped([("evil.pkl", EVIL)])
    put("zip_and_zeros.safetensors", plain + inner + bytes(100), "found", "two-formats", "dangerous-import")
    put("cut_comment.safetensors", plain + inner[:-2] + struct.pack("<H", 50) + b"cut", "found", "two-formats", "dangerous-import")
    # Where its record says, and not before it: miniz, which PyTorch reads with, finds this one.
    at = len(plain)
    body = local(b"evil.pkl", EVIL)
    names = central(b"evil.pkl", EVIL, at)
    data = plain + body + names + bytes(40) + end(1, len(names), at + len(body))
    put("absolute_directory.safetensors", data, "found", "two-formats", "dangerous-import")
    put("empty.safetensors", b"", "could-not-tell", "unknown-content")
    both = safetensors_and_pickle()
    put("safetensors_and_pickle.safetensors", both, "found", "two-formats", "dangerous-import")
    put("safetensors_and_pickle.pt", both, "found", "two-formats", "dangerous-import", "name-of-a-pickle")
    put("safetensors.pt", plain, "clean", "name-of-a-pickle")
    put("npy_and_zip.npy", array("<f4", (1,), b"\0\0\0\0") + zipped([("note.txt", b"1")]), "found", "two-formats")
    put("pickle_before_zip.pkl", GOOD + zipped([("evil.pkl", EVIL)]), "found", "two-formats", "dangerous-import")
    put("pickle.safetensors", EVIL, "found", "extension-differs", "dangerous-import")
    put("pickle.npy", EVIL, "found", "extension-differs", "dangerous-import")
    put("zip.json", zipped([("note.txt", b"1")]), "found", "extension-differs")
    put("program.bin", b"\x7fELF\x02\x01\x01" + bytes(57), "could-not-tell", "program-file")
    put("script.sh", b"#!/bin/sh\necho hello\n", "could-not-tell", "program-file")
    put("table.py", b"__import__('os').getcwd()\t-1.0\n", "could-not-tell", "program-file")
    put("words.txt", b"cidlelib.run\nmain\n(tR and more words\n", "found", "dangerous-import", "pickle-breaks")
    put("page.pt", b"<!DOCTYPE html>\n<html></html>\n", "could-not-tell", "program-file")
    put("noise.bin", bytes(range(200, 256)), "could-not-tell", "unknown-content")
    put("packed.bin.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\x03\x00" + bytes(8), "could-not-tell", "archive-not-entered")
    put("cut.safetensors", plain[:-2], "could-not-tell", "unreadable")
    objects = array("|O", (1,), b"\x80\x02" + GETCWD + b".")
    put("objects.npy", objects, "found", "dangerous-import")
    # As numpy of Python 2 wrote objects, a range among them.
    old = b"\x80\x02cnumpy.core._internal\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x02\x85cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R"
    old += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb\x89](Nc__builtin__\nxrange\netb."
    put("objects_python2.npy", array("|O8", (2,), old), "clean")
    put("objects_by_name.npy", array("object", (1,), b"\x80\x02" + GETCWD + b"."), "found", "dangerous-import")
    put("objects.npz", zipped([("a.npy", objects)]), "found", "dangerous-import")
    put("objects_as_metadata.npz", zipped([("weighbridge.metadata.npy", objects)]), "found", "dangerous-import")
    put("texts_behind.npy", array("<U1", (1,), b"a\0\0\0") + EVIL, "could-not-tell", "trailing-bytes")
    put("objects.zip", zipped([("m/a.npz", zipped([("a.npy", objects)]))]), "found", "dangerous-import")
    put("behind.npy", array("<f4", (1,), b"\0\0\0\0") + EVIL, "could-not-tell", "trailing-bytes")
    put("evil.pt", zipped([("m/data.pkl", EVIL), ("m/version", b"3\n")]), "found", "dangerous-import")
    facts = [("m/data.pkl", GOOD), ("m/version", b"3\n"), ("m/.data/serialization_id", b"\x7fELF" + bytes(400))]
    put("facts.pt", zipped(facts), "could-not-tell", "program-file")
    put("extra.pt", zipped([("m/data.pkl", GOOD), ("m/version", b"3\n"), ("m/extra/evil.bin", EVIL)]), "found", "dangerous-import")
    legacy = b"".join(pickle.dumps(x, 2) for x in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    put("legacy.pt", legacy + EVIL + pickle.dumps([], 2), "found", "dangerous-import")
    put("legacy_behind.pt", legacy + GOOD + pickle.dumps([], 2) + EVIL, "found", "trailing-bytes", "dangerous-import")


def hdf5():
    def made(name, verdict, codes, fill, **options):
        path = BAD / name
        path.unlink(missing_ok=True)
        with h5py.File(path, "w", **options) as file:
            fill(file)
        put(name, path.read_bytes(), verdict, *codes)

    def external(file):
        file["out"] = h5py.ExternalLink("/etc/other.h5", "/x")

    def virtual(file):
        layout = h5py.VirtualLayout((4,), "<f4")
        layout[:] = h5py.VirtualSource("other.h5", "x", (4,))
        file.create_virtual_dataset("v", layout)

    def plugin(file):
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (0,))
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, space, plist)

    def soft(file):
        file["x"] = np.zeros(2, "f4")
        file["y"] = h5py.SoftLink("/x")

    def opaque(file):
        file["x"] = np.void(b"some bytes")

    def pickled(file):
        file["x"] = np.void(EVIL)

    def bytewise(file):
        file["x"] = np.frombuffer(EVIL, "u1")

    def attribute(file):
        file.attrs["pickled"] = np.void(EVIL)

    def text_attribute(file):
        file.attrs["title"] = (GETCWD + b".").decode()

    def text(file):
        file["x"] = (GETCWD + b".").decode()

    def texts(file):
        file["x"] = np.array([b"honest words", EVIL], "S16")

    # In pieces: letters; with zeros at the end of a piece, which h5py takes off; with filling behind each; in a heap.
    def letters(file):
        file["x"] = np.frombuffer(GETCWD + b".", "S1")

    def pieces(file):
        long = b"\x80\x04X\x02\0\0\0osX\x06\0\0\0getcwd\x93)R."
        file["x"] = np.frombuffer(long + bytes(-len(long) % 5), "S5")

    def padded(file):
        old = GETCWD + b"."
        file["x"] = np.array([old[at : at + 3] for at in range(0, len(old), 3)], "S8")

    def in_heap(file):
        old = (GETCWD + b".").decode()
        file["x"] = [old[at : at + 3] for at in range(0, len(old), 3)]

    def blank_attribute(file):
        file.attrs["config"] = "\n " + LAMBDA

    def broken_text(file):
        file["x"] = (GETCWD + b"0").decode()

    def rows(file):
        file["x"] = np.frombuffer(EVIL + bytes(-len(EVIL) % 4), "u1").reshape(-1, 4)

    def numbers(file):
        file["x"] = np.frombuffer(EVIL + bytes(-len(EVIL) % 8), "<f4").reshape(-1, 2)

    def array_attribute(file):
        file.attrs["pickled"] = np.frombuffer(EVIL, "u1")

    def wide_attribute(file):
        file.attrs["pickled"] = np.frombuffer(EVIL + bytes(-len(EVIL) % 4), "<i4")

    def zip_as_numbers(file):
        file["x"] = np.frombuffer(wide_zip([("m/data.pkl", EVIL), ("m/version", b"3\n")]), "u1")

    def good_zip_as_numbers(file):
        file["x"] = np.frombuffer(wide_zip([("m/data.pkl", GOOD), ("m/version", b"3\n")]), "u1")

    def state(file):
        blob = zipped([("archive/data.pkl", EVIL), ("archive/version", b"3\n")])
        file.attrs["format_version"] = 1
        group = file.create_group("optimizer")
        group["state_dict"] = np.frombuffer(blob, "u1")
        file.create_group("model")

    def compound(file):
        file["x"] = np.zeros(2, [("a", "f4"), ("b", "i4")])

    def config(text):
        def fill(file):
            file.attrs["model_config"] = text
            file.create_group("model_weights")["w"] = np.zeros(2, "f4")

        return fill

    made("external_link.h5", "found", ["hdf5-external-link"], external)
    made("external_storage.h5", "found", ["hdf5-external-storage"], lambda f: f.create_dataset("x", (4,), "<f4", external=[("/etc/passwd", 0, 16)]))
    made("virtual.h5", "found", ["hdf5-virtual"], virtual, libver="latest")
    made("plugin_filter.h5", "could-not-tell", ["hdf5-plugin-filter"], plugin)
    made("soft_link.h5", "clean", ["hdf5-soft-link"], soft)
    made("opaque.h5", "could-not-tell", ["opaque-bytes"], opaque)
    made("opaque_pickle.h5", "found", ["nested-pickle", "dangerous-import"], pickled)
    made("bytes_pickle.h5", "found", ["nested-pickle", "dangerous-import"], bytewise)
    made("attribute_pickle.h5", "found", ["nested-pickle", "dangerous-import"], attribute)
    made("attribute_text.h5", "found", ["nested-pickle", "dangerous-import"], text_attribute)
    found = ["nested-pickle", "dangerous-import"]
    for name, fill in [("text", text), ("texts", texts), ("rows", rows), ("array_attribute", array_attribute)]:
        made(f"{name}_pickle.h5", "found", found, fill)
    for name, fill in [("letters", letters), ("pieces", pieces), ("padded_texts", padded), ("texts_in_heap", in_heap)]:
        made(f"{name}_pickle.h5", "found", found, fill)
    made("blank_attribute.h5", "found", ["keras-lambda"], blank_attribute)
    made("wide_attribute_pickle.h5", "found", found, wide_attribute)
    made("numbers_pickle.h5", "found", found, numbers)
    made("broken_text_pickle.h5", "found", [*found, "pickle-breaks"], broken_text)
    made("zip_as_numbers.h5", "found", ["dangerous-import"], zip_as_numbers)
    made("good_zip_as_numbers.h5", "clean", [], good_zip_as_numbers)
    made("optimizer_state.h5", "found", ["dangerous-import"], state)
    made("compound.h5", "could-not-tell", ["left-out"], compound)
    made("keras_lambda.h5", "found", ["keras-lambda"], config(LAMBDA))
    foreign = {"class_name": "Sequential", "module": "keras", "config": {"layers": [{"class_name": "system", "module": "os", "config": "id"}]}}
    made("keras_module.h5", "found", ["keras-foreign-module"], config(json.dumps(foreign)))
    calls = {"class_name": "TFOpLambda", "config": {"name": "x", "function": "io.write_file"}}
    made("keras_function.h5", "found", ["keras-foreign-module"], config(json.dumps(calls)))
    made("keras_unread.h5", "could-not-tell", ["keras-unread"], config("{broken"))
    made("user_block.h5", "found", ["two-formats"], soft, userblock_size=512)
    block = zipped([("note.txt", b"1")])
    data = (BAD / "user_block.h5").read_bytes()
    put("user_block.h5", block + data[len(block):], "found", "two-formats")
    # A link of a kind of its own: h5py makes none, so the kind of an external one is changed.
    made("user_link.h5", "found", ["hdf5-user-link"], external)
    data = bytearray((BAD / "user_link.h5").read_bytes())
    at = data.index(b"\x03out") - 1
    while data[at] != 64:
        at -= 1
    data[at] = 65
    put("user_link.h5", bytes(data), "found", "hdf5-user-link")


if __name__ == "__main__":
    shutil.rmtree(BAD, ignore_errors=True)
    BAD.mkdir()
    for make in (pickles, zips, tars, names, programs, contents, hdf5):
        make()
    (HERE / "expected.json").write_text(json.dumps(EXPECTED, indent=1, sort_keys=True) + "\n")
    print(f"{len(EXPECTED)} files")
