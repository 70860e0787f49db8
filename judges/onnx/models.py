"""Whole models: Paddle against ONNX Runtime, on random inputs of several shapes.

    python judges/onnx/models.py COMMAND FOLDER... [--only SUBSTRING] [--table FILE] [--peer PYTHON --peer-version 1.2.11]

Every folder with `specs.json` below the folders is a model (`zoo.py` and `public.py` make them). The program is in `model.pdmodel`,
`model.json` or `__model__`. `--peer` names a Python with paddle2onnx, which exports the same models; the table then compares both.
Environments: `paddle-2.6.txt`, `paddle-3.3.txt`. Exit code 0: every model that Paddle runs gives equal outputs.
"""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 5
LIMIT = 600


def measured(words, log):
    """Runs a command; returns its exit code, seconds and peak memory in MB."""
    start = time.time()
    with open(log, "w") as out:
        child = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, time.time() - start, usage.ru_maxrss / 1024


def program_of(folder):
    for name in ("model.json", "model.pdmodel", "__model__"):
        if (folder / name).exists():
            return folder / name
    return None


def found(folders, only):
    """Returns the folders of models, with the form of each."""
    models = []
    is_old = importlib.metadata.version("paddlepaddle").startswith("2.")
    for folder in folders:
        for specs in sorted(Path(folder).rglob("specs.json")):
            program = program_of(specs.parent)
            if program and is_old and program.suffix == ".json":
                continue
            if program and (not only or any(word in str(specs.parent) for word in only.split(","))):
                models.append((specs.parent, "pir" if program.suffix == ".json" else "protobuf"))
    return models


# ---- the judge of one model, in a process of its own that serves many: a crash of Paddle ends that process alone


def legacy(folder):
    """Loads a program with a file for each parameter."""
    import paddle
    from run import CPU, Reference

    reference = Reference.__new__(Reference)
    reference.exe = paddle.static.Executor(CPU)
    reference.scope = paddle.static.Scope() if hasattr(paddle.static, "Scope") else paddle.base.core.Scope()
    program = paddle.static.deserialize_program((folder / "__model__").read_bytes())
    block = program.global_block()
    with paddle.static.scope_guard(reference.scope):
        skipped = {"feed", "fetch"}
        stored = [v for v in program.list_vars() if v.persistable and v.name not in skipped]
        paddle.static.io.load_vars(reference.exe, str(folder), main_program=program, vars=stored)
    feeds = [(op.attr("col"), op.output("Out")[0]) for op in block.ops if op.type == "feed"]
    fetches = [(op.attr("col"), op.input("X")[0]) for op in block.ops if op.type == "fetch"]
    reference.program, reference.has_arrays = program, False
    reference.feeds = [name for _, name in sorted(feeds)]
    reference.fetches = [block.var(name) for _, name in sorted(fetches)]
    return reference


class Stored:
    """The outputs of a layer of one output, stored by `zoo.py` for each set of inputs."""

    def __init__(self, path):
        import numpy as np

        self.outputs, self.place = np.load(path), -1

    def run(self, feeds):
        self.place = (self.place + 1) % ROUNDS
        return [self.outputs[str(self.place)]]


def feeds_of(specs, place):
    """Returns random inputs. Those with row lengths are pairs of an array and the lengths."""
    import numpy as np
    from zoo import arrays

    feeds = arrays(specs["inputs"], place, np.random.default_rng(place))
    for one in specs["inputs"]:
        if "lengths" in one:
            feeds[one["name"]] = (feeds[one["name"]], [one["lengths"][place % len(one["lengths"])]])
    return feeds


def labels_differ(expected, found, margin):
    """Returns true if the best class differs by more than the margin."""
    import numpy as np

    best = np.take_along_axis(expected, found.argmax(-1)[..., None], -1)[..., 0]
    return bool((expected.max(-1) - best > margin).any())


def cleanliness(path):
    """Returns what is untidy in a graph: unused or duplicate initializers, open dimensions without a name."""
    import onnx

    graph = onnx.load(str(path)).graph
    used = set()

    def collect(inner):
        for node in inner.node:
            used.update(node.input)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    collect(attribute.g)
        used.update(output.name for output in inner.output)

    collect(graph)
    faults, seen = [], {}
    for one in graph.initializer:
        if one.name not in used:
            faults.append(f"unused initializer {one.name}")
        key = (one.data_type, tuple(one.dims), one.raw_data)
        if one.raw_data and key in seen and one.name.startswith("constant") and seen[key].startswith("constant"):
            faults.append(f"initializers {seen[key]} and {one.name} are equal")
        seen.setdefault(key, one.name)
    for value in graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.WhichOneof("value") is None:
                faults.append(f"input {value.name} has a dimension without a name")
    return faults


def operators_of(program):
    """Returns the number of operators of a loaded program, those of bodies included."""
    if hasattr(program, "num_ops"):
        return program.num_ops()
    return sum(1 for block in program.blocks for op in block.ops if op.type not in ("feed", "fetch"))


def judge(folder, target, result):
    """Judges an exported model and adds facts to `result`; raises `Failed` if it is not right."""
    import numpy as np
    from run import Failed, Reference, compare, differs, load

    specs = json.loads((folder / "specs.json").read_text())
    try:
        # A model that the inference engine made must give what the original gives.
        original = (folder / specs.get("reference", ".")).resolve()
        reference = legacy(original) if (original / "__model__").exists() else Reference(original / "model")
        result["operators"] = operators_of(reference.program)
        if (folder / "expected.npz").exists():
            reference = Stored(folder / "expected.npz")
        sets = [feeds_of(specs, place) for place in range(ROUNDS)]
        outputs = [reference.run(feeds) for feeds in sets]
    except Exception as error:
        raise Failed("no reference", str(error).strip()[-300:]) from error
    for one in outputs[0]:
        if one.size and one.dtype.kind != "c":
            result["spread"] = max(result["spread"], float(np.nanstd(one.astype("float64"))))
    if not target.exists():
        raise Failed("refused", "")
    session = load(target)
    compare(reference, session, sets, specs["atol"], specs["rtol"])
    if specs["classify"]:
        names = {i.name for i in session.get_inputs()}
        for feeds, expected in zip(sets, outputs):
            got = session.run(None, {k: v for k, v in feeds.items() if k in names})
            if labels_differ(expected[0], got[0], 1e-5):
                raise Failed("differs", "labels differ")
    if target.name == "model.onnx":
        result["faults"] = cleanliness(target)


def serve():
    """Judges the models named on standard input; prints one line of JSON for each."""
    from run import Failed

    for line in sys.stdin:
        folder, target = json.loads(line)
        answer = {"result": "equal", "spread": 0.0, "operators": 0}
        try:
            judge(Path(folder), Path(target), answer)
        except Failed as error:
            answer |= {"result": error.kind, "why": str(error)}
        except Exception as error:
            answer |= {"result": "judge fails", "why": f"{type(error).__name__}: {error}"[:400]}
        print("ANSWER", json.dumps(answer), flush=True)


class Server:
    """Process that judges models of one form."""

    def __init__(self, form):
        self.form, self.child = form, None

    def ask(self, folder, target):
        if self.child is None:
            environment = dict(os.environ, OMP_NUM_THREADS="1", GLOG_minloglevel="4")
            if self.form == "protobuf":
                environment["FLAGS_enable_pir_api"] = "0"
            words = [sys.executable, __file__, "--serve"]
            log = subprocess.DEVNULL
            self.child = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        try:
            self.child.stdin.write(json.dumps([str(folder), str(target)]) + "\n")
            self.child.stdin.flush()
            for line in self.child.stdout:
                if line.startswith("ANSWER "):
                    return json.loads(line[7:])
        except BrokenPipeError:
            pass
        self.child.wait()
        code, self.child = self.child.returncode, None
        return {"result": "crashes", "why": f"the judge ended with {code}", "operators": 0, "spread": 0.0}


PEER = """
import sys
model, parameters, target = sys.argv[1:]
import paddle2onnx
try:
    made = paddle2onnx.export(model, parameters, target, opset_version=17)
except TypeError:
    made = paddle2onnx.export(model, parameters, save_file=target, opset_version=17)
"""


def combined(folder):
    """Returns the parameter file of a model."""
    for name in ("model.pdiparams", "__params__"):
        if (folder / name).exists():
            return str(folder / name)
    return ""


def export_by_peer(python, program, target, log):
    """Exports with paddle2onnx; returns the exit code."""
    environment_words = [python, "-c", PEER, str(program), combined(program.parent), str(target)]
    return measured(["timeout", str(LIMIT), *environment_words], log)


def main():
    if sys.argv[1:] == ["--serve"]:
        return serve()
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=Path, help="folder for the exported models")
    parser.add_argument("--table", type=Path, help="Markdown table to write")
    parser.add_argument("--peer", help="Python with paddle2onnx")
    parser.add_argument("--peer-version", default="")
    args = parser.parse_args()
    servers = {form: Server(form) for form in ("pir", "protobuf")}
    rows, failed, without = [], 0, 0
    with tempfile.TemporaryDirectory() as work:
        work = args.keep or Path(work)
        for folder, form in found(args.folders, args.only):
            program = program_of(folder)
            target = work / folder.parent.name / folder.name / "model.onnx"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            log = target.with_suffix(".log")
            source = folder if program.name == "__model__" else program
            code, seconds, memory = measured([args.command, "convert", str(source), str(target), "--force"], log)
            answer = servers[form].ask(folder, target)
            if code != 0 and answer["result"] != "no reference":
                answer |= {"result": "refused" if code == 1 else "crashes", "why": log.read_text().strip()[-3000:]}
            count = answer["operators"]
            failed += answer["result"] not in ("equal", "no reference")
            without += answer["result"] == "no reference"
            name = f"{folder.parent.name}/{folder.name}"
            note = answer.get("why", "") or "; ".join(answer.get("faults", [])[:3])
            if answer["result"] == "equal" and answer["spread"] < 1e-3:
                note += " (outputs hardly vary)"
            print(f"{name:40} {form:9} {count:4} {answer['result']:14} {seconds:5.2f} s {memory:5.0f} MB {note}", flush=True)
            row = [name, form, str(count), answer["result"]]
            if args.peer:
                theirs = target.with_name("peer.onnx")
                theirs.unlink(missing_ok=True)
                code, seconds, memory = export_by_peer(args.peer, program, theirs, target.with_name("peer.log"))
                peer = servers[form].ask(folder, theirs)
                if not theirs.exists() and peer["result"] == "refused":
                    # It aborts for operators that it lacks.
                    log = target.with_name("peer.log").read_text()
                    peer["result"] = "refused" if code in (0, 1, -6, 134) or "ERROR" in log else "crashes"
                    peer["why"] = log.strip()[-200:]
                print(f"    paddle2onnx {args.peer_version}: {peer['result']} {peer.get('why', '')[:200]}", flush=True)
                row.append(peer["result"])
            rows.append(row)
    equal = len(rows) - failed - without
    print(f"{equal} of {len(rows) - without} models have equal outputs; {without} do not run in Paddle itself")
    if args.table:
        head = ["model", "form", "operators", "Weighbridge"] + ([f"paddle2onnx {args.peer_version}"] if args.peer else [])
        lines = [head, ["---"] * len(head), *rows]
        args.table.write_text("".join("| " + " | ".join(line) + " |\n" for line in lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
