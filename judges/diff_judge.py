"""numpy judges the measures of diff: the same arrays, the measures by their definitions.

usage: diff_judge.py PATH-OF-THE-COMMAND
"""

import json
import subprocess
import sys
import tempfile
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


def diff(*words):
    done = subprocess.run([COMMAND, "diff", *map(str, words), "--json", "--all"], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)


def number(value):
    """JSON has no infinities; they are texts."""
    return float(value)


def near(a, b):
    return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def steps(a, b):
    """The places of floats in their order, apart."""
    size = a.dtype.itemsize
    signed, sign = np.dtype(f"i{size}"), 1 << (8 * size - 1)
    place = lambda x: [int(n) if n >= 0 else -(int(n) + sign) for n in x.view(signed)]
    return max((abs(m - n) for m, n in zip(place(a), place(b))), default=0)


def judge(what, a, b, folder, atol=None, rtol=None):
    np.save(folder / "a.npy", a)
    np.save(folder / "b.npy", b)
    words = [folder / "a.npy", folder / "b.npy"]
    if atol is not None:
        words += ["--atol", atol, "--rtol", rtol]
    code, report = diff(*words)
    found = report["pairs"][0]["values"]
    same_type = a.dtype == b.dtype
    bits = same_type and a.astype(a.dtype.newbyteorder("<")).tobytes() == b.astype(b.dtype.newbyteorder("<")).tobytes()
    check(f"{what}: bits", found["same_bits"] == bits)
    if bits:
        check(f"{what}: code", code == 0)
        return
    whole = all(x.dtype.kind in "iub" for x in (a, b))
    wide = (lambda x: x.astype(object)) if whole else (lambda x: x.astype("c16" if "c" in (a.dtype.kind + b.dtype.kind) else "f8"))
    x, y = wide(a).ravel(), wide(b).ravel()
    fine = np.array([True] * x.size) if whole else np.isfinite(x) & np.isfinite(y)
    with np.errstate(invalid="ignore"):
        equal = np.array([bool(p == q) or bool(p != p and q != q) for p, q in zip(x, y)], dtype=bool)
        close = equal | (fine & np.array([abs(p - q) <= (atol or 0) + (rtol or 0) * abs(q) for p, q in zip(x, y)], dtype=bool))
    apart = [abs(p - q) for p, q in zip(x[fine], y[fine])]
    share = [abs(p - q) / max(abs(p), abs(q)) for p, q in zip(x[fine], y[fine]) if p != q]
    check(f"{what}: beyond {found['beyond']}", found["beyond"] == int((~close).sum()))
    check(f"{what}: finite", found["finite"] == int(fine.sum()))
    check(f"{what}: max_abs", near(number(found["max_abs"]), float(max(apart, default=0))))
    check(f"{what}: max_relative", near(number(found["max_relative"]), float(max(share, default=0))))
    check(f"{what}: mean_abs", near(number(found["mean_abs"]), float(sum(apart)) / max(len(apart), 1)))
    if found["at"] is not None:
        check(f"{what}: at", near(float(abs(wide(a)[tuple(found["at"])] - wide(b)[tuple(found["at"])])), float(max(apart))))
    if found["cosine"] is not None:
        p, q = x[fine].astype("f8"), y[fine].astype("f8")
        check(f"{what}: cosine", abs(found["cosine"] - p @ q / np.sqrt((p @ p) * (q @ q))) < 1e-9)
    if same_type and a.dtype.kind == "f":
        check(f"{what}: ulp", found["max_ulp"] == steps(a.ravel()[fine], b.ravel()[fine]))
    else:
        check(f"{what}: no ulp", found["max_ulp"] is None)
    nan = [np.isnan(z) if not whole else np.zeros(z.size, bool) for z in (x, y)]
    check(f"{what}: nan", [found["nan_left"], found["nan_right"], found["nan_moved"]]
          == [int(nan[0].sum()), int(nan[1].sum()), int((nan[0] ^ nan[1]).sum())])
    moved = nan[0] ^ nan[1]
    first = lambda places: [int(n) for n in np.argwhere(places.reshape(a.shape))[0]] if places.any() else None
    check(f"{what}: nan_at {found['nan_at']}", found["nan_at"] == first(moved))
    check(f"{what}: infinite_at {found['infinite_at']}", found["infinite_at"] == first(~fine & ~equal & ~moved))
    agreed = close.all() if atol is not None else equal.all()
    check(f"{what}: code", code == int(not (agreed and same_type and (atol is not None or bits))))


def main():
    rng = np.random.default_rng(7)
    kinds = ["f2", "f4", "f8", "i1", "u2", "i4", "i8", "u8", "c8", "c16", "?"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in kinds:
            for shape in [(), (1,), (7, 5), (3, 4, 5), (300, 401), (0, 3)]:
                size = int(np.prod(shape))
                if np.dtype(kind).kind in "fc":
                    a = rng.standard_normal(size).astype(kind).reshape(shape)
                    noise = (rng.standard_normal(size) * 10.0 ** rng.integers(-9, 1, size)).astype(kind).reshape(shape)
                    b = (a + noise).astype(kind)
                    if size > 30 and kind[0] == "f":
                        for at, value in enumerate([np.nan, np.inf, -np.inf, 0.0, -0.0]):
                            a.flat[rng.integers(0, size)] = value
                            b.flat[rng.integers(0, size)] = value
                else:
                    a = np.frombuffer(rng.bytes(size * np.dtype(kind).itemsize), dtype=kind if kind != "?" else "u1").reshape(shape)
                    a = (a & 1).astype(bool) if kind == "?" else a
                    b = a.copy()
                    if size:
                        b.flat[size // 2] = not b.flat[size // 2] if kind == "?" else b.flat[size // 2] // 2 + 1
                what = f"{kind} {shape}"
                judge(what, a, a.copy(), folder)
                judge(what, a, b, folder)
                judge(f"{what} within", a, b, folder, 1e-4, 1e-3)
                if shape:
                    judge(f"{what} in the other order", np.asfortranarray(a), b, folder)
                for other in ["f4", "f8"] + (["c16"] if kind[0] in "fc" else []):
                    if np.dtype(other) != a.dtype and not (a.dtype.kind == "c" and other[0] == "f") and kind not in ("i8", "u8"):
                        judge(f"{what} beside {other}", a, b.astype(other), folder)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
