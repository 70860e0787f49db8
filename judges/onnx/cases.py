"""Programs of one operator: Paddle against ONNX Runtime, over a grid of attributes.

    python judges/onnx/cases.py target/debug/weighbridge [--only SUBSTRING] [--keep FOLDER]

Each family of operators has its cases in a module `case_*.py` beside this file. Exit code 0: every case gives equal outputs.
"""

import argparse
import importlib
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
import paddle

from run import CPU, IS_PIR, Failed, Reference, compare, export, load

CASES = []


class Case:
    """One program. `inputs`: name -> (dtype, declared shape with None for open, list of arrays to try)."""

    def __init__(self, name, make, inputs, atol, rtol, only, options=None):
        self.name, self.make, self.inputs = name, make, inputs
        self.atol, self.rtol, self.only, self.options = atol, rtol, only, options or {}

    def save(self, folder):
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(main, startup):
            feeds = []
            for name, (shape, arrays) in self.inputs.items():
                is_lod = isinstance(arrays[0], tuple)
                dtype = str((arrays[0][0] if is_lod else arrays[0]).dtype)
                feeds.append(paddle.static.data(name, shape, dtype, lod_level=int(is_lod)))
            outs = self.make(*feeds)
            outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
            exe = paddle.static.Executor(CPU)
            scope = paddle.static.global_scope().new_scope()
            with paddle.static.scope_guard(scope):
                exe.run(startup)
                paddle.static.save_inference_model(str(folder / "m"), feeds, outs, exe, program=main, **self.options)

    def sets(self):
        count = max(len(arrays) for _, arrays in self.inputs.values())
        for place in range(count):
            yield {name: arrays[min(place, len(arrays) - 1)] for name, (_, arrays) in self.inputs.items()}


def case(name, make, inputs, atol=1e-4, rtol=1e-3, only=None, **options):
    """Adds a case. `make` gets the inputs as variables and returns the outputs.

    `inputs`: name -> array (declared with its shape), or (declared shape, [arrays]) with None for open dimensions.
    An array may be a sequence: a pair of an array and its LoD lengths.
    `only`: "2.6" or "3.3" if the other version lacks the operator. `options` are those of `save_inference_model`.
    """
    full = {}
    for key, value in inputs.items():
        full[key] = value if isinstance(value, tuple) else (list(value.shape), [value])
    CASES.append(Case(name, make, full, atol, rtol, only, options))


def raw(kind, inputs, outputs, attributes=None, dtype="float32"):
    """Appends an operator of `ProgramDesc` by its name (Paddle 2.6). `inputs`: slot -> variable or list; `outputs`: list of slots,
    or slot -> dtype. Returns the variables of the outputs."""
    block = paddle.static.default_main_program().current_block()
    if not isinstance(outputs, dict):
        outputs = {slot: dtype for slot in outputs}
    made = {}
    for slot, kind_of in outputs.items():
        made[slot] = block.create_var(
            name=paddle.utils.unique_name.generate(f"{kind}.{slot}"), dtype=kind_of, shape=None
        )
    lists = {slot: (v if isinstance(v, list) else [v]) for slot, v in inputs.items()}
    block.append_op(type=kind, inputs=lists, outputs={k: [v] for k, v in made.items()}, attrs=attributes or {})
    return list(made.values())


def rng(seed=0):
    return np.random.default_rng(seed)


def floats(*shape, seed=0, low=-2.0, high=2.0, dtype="float32"):
    """Returns random floats."""
    return rng(seed).uniform(low, high, shape).astype(dtype)


def ints(*shape, seed=0, low=-5, high=6, dtype="int64"):
    """Returns random integers."""
    return rng(seed).integers(low, high, shape).astype(dtype)


def bools(*shape, seed=0):
    """Returns random booleans."""
    return rng(seed).integers(0, 2, shape).astype("bool")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep")
    args = parser.parse_args()
    here = Path(__file__).parent
    for module in sorted(here.glob("case_*.py")):
        importlib.import_module(module.stem)
    version = "3.3" if IS_PIR else "2.6"
    passed, failures, skipped = 0, [], 0
    with tempfile.TemporaryDirectory() as work:
        for one in CASES:
            if args.only not in one.name:
                continue
            if one.only not in (None, version):
                skipped += 1
                continue
            folder = Path(args.keep or work) / one.name.replace("/", "_").replace(" ", "_")
            folder.mkdir(parents=True, exist_ok=True)
            try:
                one.save(folder)
                reference = Reference(folder / "m")
                sets = list(one.sets())
                for feeds in sets:
                    reference.run(feeds)
            except Exception as error:
                failures.append((one.name, "Paddle", str(error).strip()[-300:]))
                if args.only:
                    traceback.print_exc()
                continue
            target = folder / "m.onnx"
            try:
                export(args.command, folder / ("m.json" if IS_PIR else "m.pdmodel"), target)
                compare(reference, load(target), sets, one.atol, one.rtol)
                passed += 1
            except Failed as error:
                failures.append((one.name, error.kind, str(error)[:400]))
            except Exception as error:
                failures.append((one.name, "Paddle", str(error).strip()[-300:]))
    for name, kind, text in failures:
        print(f"FAILED {name}: {text}" if kind != "Paddle" else f"NO REFERENCE {name}: {text}")
    print(f"{passed} of {passed + len(failures)} cases have equal outputs; {skipped} of another version")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.modules["cases"] = sys.modules["__main__"]
    sys.exit(main())
