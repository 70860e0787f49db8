"""Golden files of joblib, pickle and scikit-learn: testdata/joblib/good.

    python judges/make_joblib.py

`expected.json` has what the libraries read: dtype, shape and elements of every array, by its path in the object.
Needs: joblib, scikit-learn, numpy, lz4.
"""
import hashlib
import json
import pathlib
import pickle
import warnings

import joblib
import numpy as np

warnings.filterwarnings("ignore")
ROOT = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "joblib"
NAMES = {
    "bool": "bool", "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32", "uint64": "u64",
    "int64": "i64", "float16": "f16", "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128",
}


def raw(array):
    """Elements in row-major order, little-endian."""
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes()


def arrays(thing, path=(), found=None, around=()):
    """Every array in an object that a tensor can hold, by its path: keys, positions, attributes."""
    found = {} if found is None else found
    if isinstance(thing, np.ndarray):
        if thing.dtype == object:
            for place, item in enumerate(thing.reshape(-1)):
                arrays(item, (*path, str(place)), found, around)
        elif thing.dtype.newbyteorder("=").name in NAMES:
            found[".".join(path) or "value"] = thing
        return found
    if isinstance(thing, (str, bytes, bool, int, float, type(None), type, np.generic, np.dtype)) or id(thing) in around:
        return found
    around = (*around, id(thing))
    if isinstance(thing, dict):
        for key, item in thing.items():
            arrays(item, (*path, str(key)), found, around)
    elif isinstance(thing, (list, tuple, set, frozenset)):
        for place, item in enumerate(thing):
            arrays(item, (*path, str(place)), found, around)
    elif callable(thing) and not hasattr(thing, "__dict__"):
        pass
    else:
        try:
            _, arguments, state, *_ = (*thing.__reduce_ex__(4), None, None)[:3]
        except (TypeError, AttributeError, ValueError):
            return found
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                arrays(part, path, found, around)
        if isinstance(state, tuple):
            for place, part in enumerate(state):
                if not isinstance(part, dict):
                    arrays(part, (*path, str(place)), found, around)
        for place, part in enumerate(arguments):
            arrays(part, (*path, "args", str(place)), found, around)
    return found


def plain():
    every = {f"w_{name}": (np.arange(6) % 2 if name == "bool" else np.arange(6)).astype(name).reshape(2, 3) for name in NAMES}
    return {
        **every, "scalar": np.array(1.5), "none": np.zeros((0, 4), "f4"), "columns": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        "swapped": np.arange(5, dtype=">i4"), "strided": np.arange(10.0)[::2], "list": [np.ones(2), {"a": np.zeros(3, "i2")}],
        "step": 7, "rate": np.float32(0.5), "name": "run", "pair": (1, 2.5), "missing": None, "dtype": np.dtype("f4"), 3: np.ones(1),
    }


def estimators():
    from sklearn import cluster, decomposition, ensemble, linear_model, naive_bayes, neighbors, neural_network, pipeline, preprocessing, svm
    rng = np.random.RandomState(0)
    x, y = rng.rand(40, 4), rng.randint(0, 3, 40)
    return {
        "linear": linear_model.LinearRegression().fit(x, y),
        "logistic": linear_model.LogisticRegression().fit(x, y),
        "pipeline": pipeline.make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(2), linear_model.Ridge()).fit(x, y),
        "forest": ensemble.RandomForestClassifier(3, max_depth=2, random_state=0).fit(x, y),
        "boosting": ensemble.GradientBoostingClassifier(n_estimators=2, max_depth=2, random_state=0).fit(x, y),
        "means": cluster.KMeans(3, n_init=1, random_state=0).fit(x),
        "support": svm.SVC(kernel="rbf").fit(x, y),
        "neighbors": neighbors.KNeighborsClassifier(3, algorithm="brute").fit(x, y),
        "bayes": naive_bayes.GaussianNB().fit(x, y),
        "network": neural_network.MLPClassifier((5,), max_iter=3, random_state=0).fit(x, y),
    }


def shared():
    one = np.arange(6.0)
    return {"a": one, "b": one, "view": one[2:4], "objects": np.array([np.ones(2), np.zeros(3), "text"], dtype=object),
            "records": np.zeros(2, dtype=[("x", "f4"), ("y", "i4")])}


def files():
    """Name of each file, with its object and the call that writes it."""
    made = {}
    for protocol in (2, 3, 4, 5):
        made[f"plain_p{protocol}.joblib"] = (plain(), lambda thing, path, p=protocol: joblib.dump(thing, path, protocol=p))
    for kind, level in [("zlib", 3), ("gzip", 3), ("bz2", 9), ("xz", 6), ("lzma", 6), ("lz4", 1)]:
        made[f"plain_{kind}.joblib"] = (plain(), lambda thing, path, how=(kind, level): joblib.dump(thing, path, compress=how))
    made["shared.joblib"] = (shared(), joblib.dump)
    made["array.joblib"] = (np.arange(12, dtype="f4").reshape(3, 4), joblib.dump)
    made["values.joblib.gz"] = ({"a": 1, "b": "text"}, joblib.dump)
    for name, thing in estimators().items():
        made[f"{name}.joblib"] = (thing, joblib.dump)
    made["forest.pkl"] = (made["forest.joblib"][0], lambda thing, path: pathlib.Path(path).write_bytes(pickle.dumps(thing)))
    made["linear_p2.pkl"] = (made["linear.joblib"][0], lambda thing, path: pathlib.Path(path).write_bytes(pickle.dumps(thing, 2)))
    made["boosting.joblib.xz"] = (made["boosting.joblib"][0], joblib.dump)
    return made


def main():
    good = ROOT / "good"
    good.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, (thing, write) in files().items():
        write(thing, str(good / name))
        back = pickle.loads((good / name).read_bytes()) if name.endswith(".pkl") else joblib.load(good / name)
        expected[name] = {
            path: {"dtype": NAMES[array.dtype.newbyteorder("=").name], "shape": list(array.shape), "sha256": hashlib.sha256(raw(array)).hexdigest()}
            for path, array in arrays(back).items()
        }
        print(name, (good / name).stat().st_size, "bytes", len(expected[name]), "arrays")
    (ROOT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
