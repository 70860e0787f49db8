"""Writes testdata/pickle/good/python, pickles by CPython's own pickler, and testdata/pickle/bad.

Run with any Python 3.8 or newer that has numpy 1 or 2; the names of numpy's modules in the files
show which. Tests need neither. The bytes depend on CPython's pickler only.
"""

import collections
import json
import pathlib
import pickle
import sys

import numpy as np

here = pathlib.Path(__file__).parent
good = here / "good" / "python"
good.mkdir(parents=True, exist_ok=True)


def text(length, salt=0):
    """A new text object of this length."""
    return "".join(chr(97 + (i * 7 + salt) % 26) for i in range(length))


def cycle_list():
    items = [1]
    items.append(items)
    return items


def cycle_tuple(size):
    inner = []
    outer = (inner, *range(size - 1))
    inner.append(outer)
    return outer


def cycle_reduce():
    holder = collections.OrderedDict()
    holder["self"] = holder
    return holder


shared = [text(5), (1, 2)]
cases = {
    "ints": [0, 1, -1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63,
             -(2**63), -(2**63) - 1, 2**64, 127 << 56, 128 << 56, -(128 << 56), 1 << 2100, -(1 << 2100)],
    "plain": [None, True, False, 0.0, -0.0, 1.5, float("inf"), "", "ä€😀", text(255), text(256), b"", b"a", b"\xff\x80",
              bytes(range(256)), (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1], {}, {"k": 1}],
    "sets": [set(), {1}, frozenset(), frozenset({1}), frozenset(range(5)), set(range(1000)), set(range(1001))],
    "bytearrays": [bytearray(), bytearray(b"x"), bytearray(range(200)), bytearray(300)],
    "list_1000": list(range(1000)),
    "list_1001": list(range(1001)),
    "dict_1000": {i: i for i in range(1000)},
    "dict_1001": {i: i for i in range(1001)},
    "ordered_1": collections.OrderedDict([(text(3), 1)]),
    "ordered_1000": collections.OrderedDict((i, i) for i in range(1000)),
    "ordered_1001": collections.OrderedDict((i, i) for i in range(1001)),
    "shared": [shared, shared, shared[0], shared[1]],
    "cycle_list": cycle_list(),
    "cycle_tuple_1": cycle_tuple(1),
    "cycle_tuple_3": cycle_tuple(3),
    "cycle_tuple_5": cycle_tuple(5),
    "cycle_reduce": cycle_reduce(),
    "long_text": [text(65535), text(65536, 1), "after", text(70000, 2), text(300, 3)],
    "long_bytes": [bytes(65535), 1, bytes(65536), 2, bytes(70000), bytes(65536), bytes(3)],
    "many_texts": [text(1 + i % 40, i) for i in range(4000)],
    "frame_edges": [text(n, n) for n in (65000, 200, 300, 21, 22, 23, 24, 65400, 100, 65530, 1, 65531, 2)],
    "types": [int, dict, str, collections.OrderedDict, Exception, range(3), slice(1, 2)],
    "arrays": {"a": np.zeros((2, 2), "f4"), "e": np.zeros((0, 3), "f8"), "one": np.array([98], "u1"),
               "other": np.array([98], "u1"), "big": np.arange(16384, dtype="i4") % 251,
               "f": np.asfortranarray(np.arange(6, dtype="f8").reshape(2, 3)), "be": np.ones(3, ">i2"),
               "s": np.float32(1.5), "t": np.True_, "scalar": np.array(3, "i8")},
    "odd_arrays": [np.array([None, 1], dtype=object), np.zeros(2, [("x", "f4"), ("y", "i2")]), np.array(["ab"]),
                   np.zeros(1, "M8[s]")],
    "empty": None,
}

FRAMES = ("long_text", "long_bytes", "many_texts", "frame_edges")
for name, value in cases.items():
    # Frames and long strings matter from protocol 4 on.
    for protocol in (4,) if name in FRAMES else (2, 3, 4):
        file = good / f"{name}_p{protocol}.pkl"
        file.write_bytes(pickle.dumps(value, protocol))
for name in ("plain", "ints", "shared", "arrays", "types"):
    for protocol in (0, 1, 5):
        value = cases[name]
        if name == "arrays":
            value = {key: value[key] for key in ("a", "e", "f", "be", "s")}
        (good / f"{name}_p{protocol}.pkl").write_bytes(pickle.dumps(value, protocol))

def u(text):
    """A text of protocol 4."""
    data = text.encode()
    return b"\x8c" + bytes([len(data)]) + data


def glob(module, name):
    return u(module) + u(name) + b"\x93"


P4 = b"\x80\x04"
# name: bytes, the code of the error that reading gives or None, the verdict of looking at it
bad = {
    "os_system_p0": (b"cos\nsystem\n(S'echo'\ntR.", None, "unsound"),
    "os_system_p4": (P4 + glob("os", "system") + u("echo") + b"\x85R.", None, "unsound"),
    "system_through_memo": (P4 + u("system") + b"\x94" + u("posix") + b"h\x00\x93" + u("echo") + b"\x85R.", None, "unsound"),
    "inst_import": (b"(S'echo'\nios\nsystem\n.", None, "unsound"),
    "obj_import": (b"(cos\nsystem\nS'echo'\no.", None, "unsound"),
    "newobj_unknown": (P4 + glob("evil", "Class") + b")\x81.", None, "could-not-tell"),
    "import_only": (P4 + glob("antigravity", "x") + b".", None, "unsound"),
    "import_thrown_away": (P4 + glob("os", "system") + b"0N.", None, "unsound"),
    "dotted_name": (P4 + glob("numpy", "core.os.system") + u("echo") + b"\x85R.", None, "unsound"),
    "eval_code": (P4 + glob("builtins", "eval") + u("__import__('os')") + b"\x85R.", None, "unsound"),
    "eval_other_name": (P4 + glob("builtins", "eval") + u("data") + b"}" + u("date") + b"Ns\x86R.", None, "unsound"),
    "eval_two_names": (P4 + glob("builtins", "eval") + u("data") + b"}(" + u("data") + b"N" + u("x") + b"Nu\x86R.", None, "unsound"),
    "eval_handed_on": (P4 + glob("collections", "OrderedDict") + glob("builtins", "eval") + b"\x85R.", None, "unsound"),
    "encode_other_codec": (P4 + glob("_codecs", "encode") + u("x") + u("zip") + b"\x86R.", None, "unsound"),
    "computed_call": (P4 + glob("collections", "OrderedDict") + b")R)R.", None, "unsound"),
    "load_from_bytes": (P4 + glob("torch.storage", "_load_from_bytes") + b"C\x01.\x85R.", None, "unsound"),
    "damage_then_import": (P4 + b"0" + b"cos\nsystem\n.", "pickle-stack", "unsound"),
    "damage_then_stack_global": (P4 + b"0" + glob("numpy", "dtype") + b".", "pickle-stack", "could-not-tell"),
    "damage": (P4 + b"0N.", "pickle-stack", "could-not-tell"),
    "cut": (P4 + b"]", "truncated", "could-not-tell"),
    "empty": (b"", "truncated", "could-not-tell"),
    "extension": (P4 + b"\x82\x01.", None, "could-not-tell"),
    "protocol_6": (b"\x80\x06N.", "pickle-protocol", "could-not-tell"),
    "no_instruction": (P4 + b"\xffN.", "pickle-opcode", "could-not-tell"),
    "frame_past_end": (P4 + b"\x95" + (99).to_bytes(8, "little") + b"N.", "truncated", "could-not-tell"),
    "frame_short": (P4 + b"\x95" + (1).to_bytes(8, "little") + u("abc") + b".", None, "could-not-tell"),
    "text_past_end": (P4 + b"\x8d" + (1 << 63).to_bytes(8, "little") + b"x.", "truncated", "could-not-tell"),
    "bytes_past_end": (P4 + b"\x8e" + b"\xff" * 8 + b"x.", "truncated", "could-not-tell"),
    "string_negative": (b"\x80\x02T\xff\xff\xff\xff.", "pickle-length", "could-not-tell"),
    "long_huge": (b"\x80\x02\x8b\xff\xff\xff\x7f.", "truncated", "could-not-tell"),
    "string_without_quotes": (b"Sabc\n.", "pickle-string", "could-not-tell"),
    "string_bad_escape": (b"S'\\xzz'\n.", "pickle-string", "could-not-tell"),
    "int_no_number": (b"Iabc\n.", "pickle-number", "could-not-tell"),
    "put_no_number": (b"Np-1\n.", "pickle-number", "could-not-tell"),
    "line_too_long": (b"c" + b"a" * 5000 + b"\nb\n.", "pickle-line", "could-not-tell"),
    "memo_empty": (P4 + b"h\x07.", "pickle-memo", "could-not-tell"),
    "no_mark": (P4 + b"t.", "pickle-mark", "could-not-tell"),
    "below_mark": (P4 + b"N(0a.", "pickle-stack", "could-not-tell"),
    "append_to_tuple": (P4 + b")Na.", "pickle-target", "could-not-tell"),
    "build_on_import": (P4 + glob("numpy", "dtype") + b"}b.", "pickle-target", "could-not-tell"),
    "odd_pairs": (P4 + b"}(Nu.", "pickle-pairs", "could-not-tell"),
    "global_of_number": (P4 + b"K\x01K\x02\x93.", "pickle-global", "could-not-tell"),
}
folder = here / "bad"
folder.mkdir(exist_ok=True)
table = {}
for name, (data, error, verdict) in bad.items():
    (folder / f"{name}.pkl").write_bytes(data)
    table[name] = {"error": error, "verdict": verdict}
(folder / "expected.json").write_text(json.dumps(table, indent=1) + "\n")
print(sys.version, np.__version__)
