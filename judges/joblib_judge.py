"""Judge of joblib: Weighbridge reads dumps of joblib, pickles of numpy arrays and scikit-learn estimators; compared bit for bit with
what joblib and pickle load.

usage: joblib_judge.py PATH-OF-THE-COMMAND    (needs joblib, scikit-learn, numpy, lz4)
"""
import json
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile

import joblib
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_joblib  # noqa: E402

COMMAND = sys.argv[1]
passed = failed = 0


def check(what, condition, note=""):
    global passed, failed
    passed, failed = passed + bool(condition), failed + (not condition)
    if not condition:
        print("FAILED", what, note)


def run(*words):
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True)


def load(path):
    return pickle.loads(path.read_bytes()) if path.suffix == ".pkl" else joblib.load(path)


def compare(path, work):
    """Every array through `ls` and npz."""
    name = path.name
    wanted = make_joblib.arrays(load(path))
    done = run("ls", path, "--json")
    check(f"ls {name}", done.returncode == 0, done.stderr)
    if done.returncode:
        return
    listed = {tensor["name"]: tensor for tensor in json.loads(done.stdout)["tensors"]}
    check(f"{name}: names", listed.keys() == wanted.keys(), listed.keys() ^ wanted.keys())
    target = work / f"{name}.npz"
    done = run("convert", path, target, "--force")
    check(f"convert {name}", done.returncode in (0, 1), done.stderr)
    if not wanted:
        return
    with np.load(target) as found:
        for key, array in wanted.items():
            check(f"{name}: {key}", key in found and found[key].shape == array.shape and make_joblib.raw(found[key]) == make_joblib.raw(array))
            kind = make_joblib.NAMES[array.dtype.newbyteorder("=").name]
            check(f"{name}: dtype of {key}", listed.get(key, {}).get("dtype") == kind)


def fresh(number, work):
    rng = np.random.default_rng(number)
    choose = random.Random(number)
    thing = {}
    for place in range(choose.randrange(1, 15)):
        shape = [choose.randrange(0, 7) for _ in range(choose.randrange(0, 4))]
        array = (rng.random(shape) * 100).astype(choose.choice(list(make_joblib.NAMES)))
        if choose.random() < 0.3:
            array = np.asfortranarray(array)
        thing[f"a{place}"] = choose.choice([array, [array, 1], {"x": {"y": array}}, (array, array)])
    path = work / f"fresh{number}.joblib"
    how = choose.choice([0, 3, ("gzip", 3), ("bz2", 1), ("xz", 1), ("lzma", 1), ("lz4", 3)])
    joblib.dump(thing, path, compress=how, protocol=choose.choice([2, 3, 4, 5]))
    return path


def estimators(work):
    """Estimators of the installed release."""
    paths = []
    for number, (name, thing) in enumerate(make_joblib.estimators().items()):
        path = work / f"own_{name}.joblib"
        joblib.dump(thing, path, compress=number % 3)
        paths.append(path)
        path = work / f"own_{name}.pkl"
        path.write_bytes(pickle.dumps(thing))
        paths.append(path)
    return paths


def main():
    with tempfile.TemporaryDirectory() as place:
        work = pathlib.Path(place)
        for name in json.loads((make_joblib.ROOT / "expected.json").read_text()):
            path = make_joblib.ROOT / "good" / name
            done = run("verify", path)
            # An array of records is not read.
            check(f"verify {name}", done.returncode in (0, 3), done.stdout + done.stderr)
            try:
                compare(path, work)
            except (ImportError, AttributeError, ValueError, TypeError) as error:
                # Another release of scikit-learn cannot load its own old objects.
                print("not loaded:", name, error)
        for path in [*estimators(work), *(fresh(number, work) for number in range(25))]:
            compare(path, work)
    print(f"joblib {joblib.__version__}: {passed + failed} checks, {failed} failures")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
