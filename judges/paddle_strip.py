"""Judge: real Paddle computes the same before and after `weighbridge program --strip`.

usage: paddle_strip.py WEIGHBRIDGE TESTDATA

WEIGHBRIDGE  the command
TESTDATA     the folder testdata: its training programs are cut down too

Builds models with the Paddle that runs this script (2.6 writes protobuf, 3.x writes PIR), strips them and compares:

- models for inference, with loops, conditions, tensor arrays, recurrent cells, operators in place, prints, assertions and
  random numbers: `--strip training` and `--strip all` leave every output as it was, to the bit, in two runs one after the
  other with the same seed;
- training programs (batch_norm, dropout, loops, conditions, clipping, regularisation, averages): `--strip all --outputs NAME`
  has the operators, inputs and outputs of Paddle's own `clone(for_test=True)` and `normalize_program`, and computes the same;
- without outputs a training program has the operators of `clone(for_test=True)`; in PIR, which has no such function, those that
  it had before the gradients came;
- an output that it does not have is refused.

Exit code 0 where all hold, 1 where not.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

warnings.filterwarnings("ignore")
os.environ.setdefault("GLOG_minloglevel", "3")
os.environ.setdefault("FLAGS_call_stack_level", "0")

import numpy as np
import paddle
from paddle import nn, static
from paddle.static import InputSpec

COMMAND, TESTDATA = sys.argv[1], Path(sys.argv[2])
OLD = paddle.__version__.startswith("2.")
SUFFIX = ".pdmodel" if OLD else ".json"
failures = checks = 0


def report(what, good, note=""):
    global failures, checks
    checks += 1
    failures += not good
    if not good:
        print("FAIL", what, note)


def weighbridge(*arguments):
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True)


def stem(folder):
    """The path of the model in a folder without its extension. A program without parameters is a file."""
    folder = Path(folder)
    if folder.is_file():
        alone = folder.rename(f"{folder}.file")
        folder.mkdir()
        (folder / "m.pdiparams").touch()
        alone.rename(folder / f"m{SUFFIX}")
    found = [p for p in folder.iterdir() if p.suffix == SUFFIX and p.stem != "expected"]
    assert len(found) == 1, list(Path(folder).iterdir())
    return found[0].with_suffix("")


def operators(program):
    if OLD:
        return [op.type for op in program.global_block().ops]
    return [op.name() for op in program.global_block().ops]


def run(prefix, feeds, runs=2):
    """Operators, inputs, and the outputs of several runs with one seed."""
    paddle.enable_static()
    try:
        executor = static.Executor(paddle.CPUPlace())
        with static.scope_guard(static.Scope()):
            program, names, fetches = static.load_inference_model(str(prefix), executor)
            paddle.seed(7)
            given = {name: feeds[name] for name in names}
            outputs = [executor.run(program, feed=given, fetch_list=fetches) for _ in range(runs)]
        return operators(program), names, [array for one in outputs for array in one]
    finally:
        paddle.disable_static()


def same(left, right):
    pairs = list(zip(left, right))
    return len(left) == len(right) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs
    )


# Models for inference.


class Arrays(nn.Layer):
    """A list that grows in a loop."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x):
        rows = []
        for i in range(x.shape[0]):
            rows.append(self.inner(x[i : i + 1]))
        return paddle.concat(rows, axis=0)


class TwoArrays(nn.Layer):
    """Two lists, one of which no output needs."""

    def forward(self, x):
        kept, idle = [], []
        for i in range(x.shape[0]):
            kept.append(x[i] * 2)
            idle.append(x[i] + 1)
        return paddle.stack(kept)


class Recurrent(nn.Layer):
    """A cell of its own in a loop, backwards."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state = self.cell.get_initial_states(x[0])
        rows = []
        for i in range(x.shape[0]):
            y, state = self.cell(x[i], state)
            rows.append(y)
        return paddle.flip(paddle.stack(rows), axis=[0])


class Layered(nn.Layer):
    """Layers of Paddle, with lengths: a loop and masks inside."""

    def __init__(self, kind):
        super().__init__()
        self.net = kind(3, 4, direction="bidirect")

    def forward(self, x, length):
        return self.net(x, None, length)[0]


class Loop(nn.Layer):
    def forward(self, x):
        i = paddle.zeros([1], "int64")
        y = x
        while i < 5:
            if y.sum() > 10:
                y = y - x
            else:
                y = y * 2
            i = i + 1
        return y, i


class Nested(nn.Layer):
    """A loop in a loop, with a list that both see."""

    def __init__(self):
        super().__init__()
        self.w = self.create_parameter([3, 3])

    def forward(self, x):
        rows = []
        total = paddle.zeros([3])
        for i in range(x.shape[0]):
            j = paddle.zeros([1], "int64")
            while j < 3:
                total = total + paddle.matmul(x[i : i + 1], self.w).sum(0)
                j = j + 1
            rows.append(total)
        return paddle.stack(rows).sum(0)


class Branches(nn.Layer):
    """A condition whose branches write to a list."""

    def forward(self, x):
        rows = []
        for i in range(x.shape[0]):
            if x[i].sum() > 0:
                rows.append(x[i])
            else:
                rows.append(-x[i])
        return paddle.stack(rows)


class InPlace(nn.Layer):
    def forward(self, x):
        y = x + 1
        y[0] = 5.0
        z = paddle.nn.functional.relu_(y * 1.0)
        z = paddle.add(z, y)
        paddle.assign(x * 3, z)
        return z, y


class Counting(nn.Layer):
    """Changes a variable in place that an output reads."""

    def forward(self, x):
        n = paddle.full([1], 3.0)
        paddle.increment(n, 2.0)
        return x * n


class Talking(nn.Layer):
    """A print and an assertion of values that no output needs."""

    def forward(self, x):
        m = x.mean()
        static.Print(m, message="mean", summarize=1) if not paddle.in_dynamic_mode() else None
        assert (x.sum() < 1e9), "too much"
        return x * 2


class Drawing(nn.Layer):
    """Random numbers; those of the first draw go nowhere, and the second depends on it."""

    def forward(self, x):
        paddle.uniform([2, 3])
        idle = paddle.randn([4])
        return x + paddle.uniform([2, 3]) + paddle.randint(0, 9, [2, 3]).astype("float32")


class Trained(nn.Layer):
    """Saved as it is trained, not evaluated."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2D(3, 4, 3), nn.BatchNorm2D(4), nn.ReLU(), nn.Dropout(0.4), nn.Dropout(0.3, mode="downscale_in_infer")
        )
        self.head = nn.Linear(144, 5)

    def forward(self, x):
        return self.head(self.net(x).flatten(1))


def spec(*shape, dtype="float32", name="x"):
    return InputSpec(list(shape), dtype, name)


def draw(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype("float32")


MODELS = {
    "arrays": (Arrays(), [spec(None, 3)], {"x": draw(4, 3)}),
    "two-arrays": (TwoArrays(), [spec(None, 3)], {"x": draw(4, 3)}),
    "gru-cell": (Recurrent(nn.GRUCell(3, 4)), [spec(None, 2, 3)], {"x": draw(5, 2, 3)}),
    "lstm-cell": (Recurrent(nn.LSTMCell(3, 4)), [spec(None, 2, 3)], {"x": draw(5, 2, 3)}),
    "rnn-cell": (Recurrent(nn.SimpleRNNCell(3, 4)), [spec(None, 2, 3)], {"x": draw(5, 2, 3)}),
    "gru": (Layered(nn.GRU), [spec(None, 6, 3), spec(None, dtype="int64", name="n")], {"x": draw(2, 6, 3), "n": np.array([6, 4])}),
    "lstm": (Layered(nn.LSTM), [spec(None, 6, 3), spec(None, dtype="int64", name="n")], {"x": draw(2, 6, 3), "n": np.array([6, 4])}),
    "loop": (Loop(), [spec(2, 3)], {"x": np.abs(draw(2, 3))}),
    "nested": (Nested(), [spec(None, 3)], {"x": draw(4, 3)}),
    "branches": (Branches(), [spec(None, 3)], {"x": draw(4, 3)}),
    "in-place": (InPlace(), [spec(2, 3)], {"x": draw(2, 3)}),
    "counting": (Counting(), [spec(2, 3)], {"x": draw(2, 3)}),
    "talking": (Talking(), [spec(2, 3)], {"x": draw(2, 3)}),
    "drawing": (Drawing(), [spec(2, 3)], {"x": draw(2, 3)}),
    "trained": (Trained(), [spec(None, 3, 8, 8)], {"x": draw(2, 3, 8, 8)}),
}

MUST_STAY = {"talking": "print assert", "drawing": "uniform gaussian randint"}


def inference(work):
    for name, (model, specs, feeds) in MODELS.items():
        folder = work / name
        model.train() if name == "trained" else model.eval()
        try:
            paddle.jit.save(paddle.jit.to_static(model, input_spec=specs), str(folder / "m"))
            runs = 2
            try:
                kept, inputs, before = run(folder / "m", feeds)
            except RuntimeError:
                # Paddle 2.6 runs programs with tensor arrays once.
                runs = 1
                kept, inputs, before = run(folder / "m", feeds, runs)
        except Exception as error:  # This Paddle cannot make it, or cannot run what it made.
            print("skip", name, type(error).__name__, str(error).strip().splitlines()[-1][:100])
            continue
        for part in ("training", "all"):
            target = work / f"{name}-{part}"
            done = weighbridge("program", folder, "--strip", part, "-o", target)
            what = f"{name} --strip {part}"
            report(f"{what}: written", done.returncode == 0, done.stderr)
            if done.returncode:
                continue
            check = weighbridge("verify", target)
            report(f"{what}: sound", check.returncode == 0, check.stdout + check.stderr)
            left, names, after = run(stem(target), feeds, runs)
            report(f"{what}: same outputs", same(before, after))
            report(f"{what}: same inputs", names == inputs, (inputs, names))
            gone = Counter(kept) - Counter(left)
            for word in MUST_STAY.get(name, "").split():
                report(f"{what}: keeps {word}", not any(word in op for op in gone), gone)


# Training programs.


def image(training=True):
    x, y = static.data("x", [None, 3, 8, 8], "float32"), static.data("y", [None, 1], "int64")
    h = nn.Conv2D(3, 4, 3)(x)
    h = nn.functional.relu(nn.BatchNorm2D(4)(h))
    h = nn.functional.dropout(h, 0.4)
    h = nn.functional.dropout(h, 0.3, mode="downscale_in_infer")
    out = nn.functional.softmax(nn.Linear(144, 5)(h.flatten(1)))
    loss = nn.functional.cross_entropy(out, y, use_softmax=False).mean()
    return [x], [out], loss, {"x": draw(4, 3, 8, 8), "y": np.array([[1], [2], [0], [4]])}


def heads():
    """Two outputs, and a branch with batch_norm and labels that no output needs."""
    x, y = static.data("x", [None, 6], "float32"), static.data("y", [None, 1], "float32")
    h = nn.functional.tanh(nn.Linear(6, 8)(x))
    a, b = nn.Linear(8, 3)(h), nn.functional.sigmoid(nn.Linear(8, 2)(h))
    side = nn.BatchNorm1D(8)(h + y)
    loss = (a.sum() + b.mean() + nn.functional.dropout(side, 0.5).mean()) * 0.1
    return [x], [b, a], loss, {"x": draw(4, 6), "y": draw(4, 1)}


def looped():
    """A loop. Paddle 3.3 aborts where it saves one through which a gradient goes."""
    x = static.data("x", [4, 3], "float32")
    y = static.data("y", [4, 3], "float32")
    inner = nn.Linear(3, 3)
    i = paddle.full([1], 0, "int64")
    n = paddle.full([1], 3, "int64")
    first = nn.Linear(3, 3)(x) if OLD else x
    _, out = static.nn.while_loop(lambda i, h: i < n, lambda i, h: [i + 1, nn.functional.tanh(inner(h))], [i, first])
    out = nn.Linear(3, 3)(out)
    return [x], [out], ((out - y) ** 2).mean(), {"x": draw(4, 3), "y": draw(4, 3)}


def chosen():
    """A condition, with a gradient as far as Paddle can save it."""
    x, y = static.data("x", [4, 3], "float32"), static.data("y", [4, 2], "float32")
    if OLD:
        left, right = nn.Linear(3, 3), nn.Linear(3, 3)
    else:
        left, right = nn.functional.tanh, paddle.exp
    out = static.nn.cond(x.sum() > 0, lambda: left(x), lambda: nn.functional.relu(right(x)))
    out = nn.functional.dropout(nn.Linear(3, 2)(out), 0.5)
    return [x], [out], ((out - y) ** 2).mean(), {"x": draw(4, 3), "y": draw(4, 2)}


def sequence():
    ids, y = static.data("ids", [None, 6], "int64"), static.data("y", [None, 1], "int64")
    h = nn.Embedding(11, 4)(ids)
    h, _ = nn.GRU(4, 5, dropout=0.2, num_layers=2)(h)
    h = nn.LayerNorm(5)(h)
    out = nn.Linear(5, 3)(h.mean(1))
    loss = nn.functional.cross_entropy(out, y).mean()
    return [ids], [out], loss, {"ids": np.arange(12).reshape(2, 6) % 11, "y": np.array([[1], [0]])}


OPTIMIZERS = {
    "adam": lambda: paddle.optimizer.Adam(1e-2),
    "momentum": lambda: paddle.optimizer.Momentum(
        paddle.optimizer.lr.NoamDecay(10, 5), weight_decay=1e-3, grad_clip=nn.ClipGradByGlobalNorm(1.0)
    ),
    "adamw": lambda: paddle.optimizer.AdamW(1e-2, grad_clip=nn.ClipGradByNorm(1.0)),
}


def value_names(program, prefix, values):
    """What `--outputs` calls these values: variables by name, values of PIR by the number that they have in the file."""
    if OLD:
        return [value.name for value in values]
    written = json.loads(Path(f"{prefix}.json").read_bytes())["program"]["regions"][0]["blocks"][0]["ops"]
    ops = list(program.global_block().ops)
    names = []
    for value in values:
        maker = next(k for k, op in enumerate(ops) if any(r.is_same(value) for r in op.results()))
        place = next(k for k, r in enumerate(ops[maker].results()) if r.is_same(value))
        results = written[maker]["O"]
        names.append(f"%{(results if isinstance(results, list) else [results])[place]['%']}")
    return names


def normal(program, feeds, fetches):
    """Paddle's own program for inference."""
    if OLD:
        test = program.clone(for_test=True)
        block = test.global_block()
        feeds, fetches = [block.var(v.name) for v in feeds], [block.var(v.name) for v in fetches]
        # It adds its scales to the program that it is given.
        return static.normalize_program(test, feeds, fetches)
    return static.normalize_program(program, feeds, fetches)


def parsed(path):
    if OLD:
        return static.Program.parse_from_string(path.read_bytes())
    program = static.Program()
    paddle.base.core.deserialize_pir_program(str(path), program, 1)
    return program


def compare_training(what, work, program, forward, feeds, fetches, arrays, prefix, scope):
    names = value_names(program, prefix, fetches)
    executor = static.Executor(paddle.CPUPlace())
    whole = weighbridge("program", prefix.parent, "--strip", "all", "-o", work / "whole")
    report(f"{what}: whole", whole.returncode == 0 and "no-outputs" in whole.stdout, whole.stdout + whole.stderr)
    want = operators(program.clone(for_test=True) if OLD else forward[0])
    left = operators(parsed(next((work / "whole").glob(f"*{SUFFIX}"))))
    if not OLD:
        # Parameters and inputs are no operators in the older programs.
        named = ("builtin.parameter", "pd_op.data")
        left, want = [op for op in left if op not in named], [op for op in want if op not in named]
    report(f"{what}: whole: Paddle's operators", Counter(left) == Counter(want), (Counter(left) - Counter(want), Counter(want) - Counter(left)))
    unknown = weighbridge("program", prefix.parent, "--strip", "all", "--outputs", "no.such", "-o", work / "refused")
    report(f"{what}: unknown output", unknown.returncode == 2 and "no.such" in unknown.stderr, unknown.stderr)
    report(f"{what}: nothing written", not (work / "refused").exists())
    target = work / "stripped"
    done = weighbridge("program", prefix.parent, "--strip", "all", "--outputs", ",".join(names), "-o", target)
    report(f"{what}: written", done.returncode == 0, done.stderr)
    if done.returncode:
        return
    with static.scope_guard(scope):
        wanted = normal(program, feeds, fetches)
        want = operators(wanted)
        if OLD:
            last = [op.input("X")[0] for op in wanted.global_block().ops if op.type == "fetch"]
            before = executor.run(wanted, feed={v.name: arrays[v.name] for v in feeds}, fetch_list=last)
        else:
            # Paddle 3.3 aborts where it writes programs that had a gradient of a condition; it writes what
            # normalize_program makes of the forward pass with the trained parameters.
            untrained, values = forward
            feeds_of = [values.look_up(v) for v in feeds]
            fetches_of = [values.look_up(v) for v in fetches]
            static.save_inference_model(str(work / "wanted" / "m"), feeds_of, fetches_of, executor, program=untrained)
    paddle.disable_static()
    if not OLD:
        _, _, before = run(work / "wanted" / "m", arrays, runs=1)
    ops, inputs, after = run(stem(target), arrays, runs=1)
    paddle.enable_static()
    report(f"{what}: same outputs", same(before, after), [np.abs(a - b).max() for a, b in zip(before, after)])
    report(f"{what}: same inputs", inputs == [v.name for v in feeds], inputs)
    # Paddle 2.6 hands each output through a scale.
    if OLD:
        for _ in fetches:
            want.remove("scale")
    report(f"{what}: Paddle's operators", Counter(ops) == Counter(want), (Counter(ops) - Counter(want), Counter(want) - Counter(ops)))
    check = weighbridge("verify", target)
    report(f"{what}: sound", check.returncode == 0, check.stdout + check.stderr)


def training(work):
    paddle.enable_static()
    for build in (image, heads, looped, chosen, sequence):
        for kind, optimizer in OPTIMIZERS.items():
            what = f"{build.__name__} {kind}"
            folder = work / f"{build.__name__}-{kind}"
            main, start, scope = static.Program(), static.Program(), static.Scope()
            paddle.seed(5)
            try:
                with static.scope_guard(scope), static.program_guard(main, start):
                    feeds, fetches, loss, arrays = build()
                    forward = None
                    if not OLD:
                        values = paddle.pir.IrMapping()
                        forward = main.clone(values), values
                    optimizer().minimize(loss)
                    executor = static.Executor(paddle.CPUPlace())
                    executor.run(start)
                    for _ in range(3):
                        executor.run(main, feed=arrays, fetch_list=[loss])
                    prefix = folder / "model" / "net"
                    prefix.parent.mkdir(parents=True)
                    static.save(main, str(prefix))
            except Exception as error:  # This Paddle cannot make it.
                print("skip", what, type(error).__name__, str(error).strip().splitlines()[-1][:100])
                continue
            compare_training(what, folder, main, forward, feeds, fetches, arrays, prefix, scope)
    paddle.disable_static()


def golden_training(work):
    """Training programs that are kept as files: the operators are Paddle's."""
    paddle.enable_static()
    era = TESTDATA / "paddle/good" / ("p262" if OLD else "p331")
    for path in sorted(era.glob(f"*/train{SUFFIX}")):
        program = parsed(path)
        if OLD:
            block = program.global_block()
            wanted = [op.output("Out")[0] for op in block.ops if op.type in ("softmax", "elementwise_add")][-1:]
            feeds = [v.name for v in block.vars.values() if v.desc.need_check_feed()]
            fetches = [block.var(name) for name in wanted]
            found = None
            for feed in [feeds, *[[f] for f in feeds]]:
                try:
                    found = normal(program, [block.var(name) for name in feed], fetches)
                except ValueError:
                    continue
            names = wanted
        else:
            ops = program.global_block().ops
            fetches = [[op for op in ops if op.name() in ("pd_op.softmax", "pd_op.add")][-1].result(0)]
            names = value_names(program, path.with_suffix(""), fetches)
            data = [op.result(0) for op in ops if op.name() == "pd_op.data" and not op.result(0).persistable]
            found = None
            for feed in [data, *[[d] for d in data]]:
                try:
                    found = normal(program, feed, fetches)
                except ValueError:
                    continue
        target = work / f"golden-{path.parent.name}"
        done = weighbridge("program", path, "--strip", "all", "--outputs", ",".join(names), "-o", target)
        what = f"{path.parent.name} {names}"
        report(f"{what}: written", done.returncode == 0, done.stderr)
        if done.returncode or found is None:
            report(f"{what}: Paddle can", found is not None)
            continue
        mine = next(target.glob(f"*{SUFFIX}")) if target.is_dir() else target
        left = operators(parsed(mine))
        want = operators(found)
        if OLD:
            want.remove("scale")
        report(f"{what}: Paddle's operators", Counter(left) == Counter(want), (Counter(left) - Counter(want), Counter(want) - Counter(left)))
    paddle.disable_static()


def golden_inference(work):
    """Models that are kept as files lose no operator and give what they gave."""
    era = TESTDATA / "paddle/good" / ("p262" if OLD else "p331")
    folders = [p.parent for p in sorted(era.glob(f"*/model{SUFFIX}"))] + sorted((TESTDATA / "paddle/strip").glob("*_pir" if not OLD else "*_desc"))
    for folder in folders:
        feeds = {p.stem.removeprefix("input_"): np.load(p) for p in folder.glob("input_*.npy")}
        if not feeds or not list(folder.glob("*.pdiparams")):
            continue
        try:
            kept, inputs, before = run(stem(folder), feeds)
        except RuntimeError as error:  # Saved with trainable=False: Paddle cannot run it.
            print("skip", folder.name, str(error).strip().splitlines()[-1][:100])
            continue
        for part in ("training", "all"):
            target = work / f"kept-{folder.name}-{part}"
            done = weighbridge("program", folder, "--strip", part, "-o", target)
            what = f"{folder.name} --strip {part}"
            report(f"{what}: written", done.returncode == 0, done.stderr)
            if done.returncode == 0:
                left, names, after = run(stem(target), feeds)
                report(f"{what}: same outputs", same(before, after))
                lost = Counter(kept) - Counter(left)
                # A tensor that no operator reads and no file holds.
                report(f"{what}: same operators", set(lost) <= {"builtin.parameter"} and names == inputs, lost)


with tempfile.TemporaryDirectory() as place:
    for part in (inference, golden_inference, training, golden_training):
        folder = Path(place) / part.__name__
        folder.mkdir()
        part(folder)
print(f"Paddle {paddle.__version__}: {checks} checks, {failures} failures")
sys.exit(1 if failures else 0)
