"""Judges `weighbridge scan` with files that libraries write for everyday objects: nearly all are clean, none is found.

    python judges/scan_libraries.py make FOLDER            writes the files with the libraries that are installed
    python judges/scan_libraries.py judge WEIGHBRIDGE FOLDER...

`make` needs numpy; scikit-learn, pandas, xgboost, lightgbm, statsmodels, scipy, joblib and torch are used where they are
installed. `judge` needs Python alone: it scans each folder and exits with 1 where a file is found, or fewer than 190 of
206 files are clean.
"""

import collections
import datetime
import decimal
import fractions
import json
import pathlib
import pickle
import re
import subprocess
import sys
import types
import uuid
import warnings
from collections import Counter

SHARE = 190 / 206


class Writer:
    """Writes files and counts what could not be made."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.number = 0
        self.failed = []

    def pickle(self, name, make, protocols=None):
        """Pickles what `make` returns, in one protocol of those given, in turn where none is."""
        try:
            value = make()
            for protocol in protocols or [self.number % 6]:
                self.number += 1
                data = pickle.dumps(value, protocol)
                (self.folder / f"{name}.p{protocol}.pkl").write_bytes(data)
        except Exception as error:
            self.failed.append(f"{name}: {type(error).__name__}: {error}")

    def file(self, name, write):
        """Lets `write` make a file."""
        try:
            write(self.folder / name)
        except Exception as error:
            self.failed.append(f"{name}: {type(error).__name__}: {error}")


def python_objects(out):
    """Objects of Python's own library."""
    utc = datetime.timezone.utc
    now = datetime.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=utc)
    values = {
        "decimal": [decimal.Decimal("1.50"), decimal.Decimal("NaN"), decimal.Decimal("-Infinity")],
        "fraction": [fractions.Fraction(3, 7), fractions.Fraction(-10**30, 7)],
        "decimal_context": decimal.getcontext(),
        "counter": collections.Counter("mississippi"),
        "ordered": collections.OrderedDict(a=1, b=[2]),
        "defaultdict": collections.defaultdict(list, a=[1]),
        "deque": collections.deque([1, 2, 3], maxlen=5),
        "userdict": collections.UserDict(a=1),
        "userlist": collections.UserList([1]),
        "datetimes": [now, now.date(), now.time(), datetime.timedelta(days=2, microseconds=1)],
        "timezone": datetime.timezone(datetime.timedelta(hours=2), "CEST"),
        "paths": [pathlib.PurePosixPath("/a/b"), pathlib.PureWindowsPath("c:/x"), pathlib.Path("m.pt")],
        "uuid": uuid.UUID(int=7),
        "namespace": types.SimpleNamespace(lr=0.1, layers=[1, 2]),
        "plain": {"a": [1, 2.5, "x", b"y", None, True, (1, 2), {3}, frozenset([4]), 2**80, 1j]},
        "bytes": [b"", b"\x00\xff", bytearray(b"abc")],
        "ranges": [range(3), slice(1, 2, 3), Ellipsis, NotImplemented],
        "shared": (lambda x: [x, x, {"x": x}])([1, 2]),
        "types": [int, float, dict, collections.OrderedDict, type(None)],
    }
    for name, value in values.items():
        out.pickle(f"python_{name}", lambda value=value: value, [0, 2, 4] if name in ("decimal", "paths") else None)
    import argparse
    import ipaddress
    import random
    import string
    import zoneinfo

    out.pickle("python_arguments", lambda: argparse.Namespace(lr=0.1, data=pathlib.Path("x")))
    out.pickle("python_addresses", lambda: [ipaddress.ip_address("10.0.0.1"), ipaddress.ip_network("10.0.0.0/8")])
    out.pickle("python_random", lambda: random.Random(3))
    out.pickle("python_template", lambda: string.Template("$a"))
    out.pickle("python_zone", lambda: zoneinfo.ZoneInfo("UTC"))
    out.pickle("python_pattern", lambda: re.compile("a+b"))


def numpy_objects(out):
    import numpy as np

    ma = np.ma
    values = {
        "array": np.arange(12.0).reshape(3, 4),
        "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        "scalars": [np.float32(1), np.int8(2), np.bool_(True), np.complex128(1j), np.str_("x"), np.bytes_(b"y")],
        "records": np.zeros(3, dtype=[("a", "<f4"), ("b", "<i8", (2,))]),
        "recarray": np.rec.array([(1, 2.0), (3, 4.0)], names="a,b"),
        "objects": np.array([None, "a", [1, 2], {"b": 3}], dtype=object),
        "text": np.array(["a", "bcd"]),
        "dates": np.array(["2024-01-01", "NaT"], dtype="datetime64[D]"),
        "deltas": np.array([1, 2], dtype="timedelta64[ns]"),
        "date_scalars": [np.datetime64("2024-01-01T00"), np.timedelta64(3, "s")],
        "masked": ma.masked_array([1.0, 2.0, 3.0], mask=[0, 1, 0]),
        "masked_records": ma.masked_array([(1, 2.0)], dtype=[("a", int), ("b", float)], mask=[(0, 1)]),
        "masked_constant": ma.masked,
        "matrix": np.matrix([[1, 2], [3, 4]]),
        "generator": np.random.default_rng(5),
        "generator_philox": np.random.Generator(np.random.Philox(4)),
        "generator_mt": np.random.Generator(np.random.MT19937(4)),
        "generator_sfc": np.random.Generator(np.random.SFC64(4)),
        "bit_generator": np.random.PCG64DXSM(7),
        "seed_sequence": np.random.SeedSequence(11),
        "random_state": np.random.RandomState(6),
        "dtypes": [np.dtype("f4"), np.dtype([("a", "O")]), np.dtype("M8[us]"), np.dtype("U5")],
        "types": [np.float32, np.int64, np.ndarray, np.dtype],
        "ufuncs": [np.add, np.exp, np.logaddexp],
        "functions": {"mean": np.mean, "nanmax": np.nanmax},
        "poly": np.poly1d([1, 2, 3]),
        "polynomial": np.polynomial.Polynomial([1, 2, 3]),
        "chararray": np.char.array(["a", "b"]),
    }
    for name, value in values.items():
        protocols = [0, 2, 4, 5] if name in ("array", "masked", "generator", "random_state") else None
        out.pickle(f"numpy_{name}", lambda value=value: value, protocols)


def data(seed=0):
    import numpy as np

    random = np.random.default_rng(seed)
    x = random.normal(size=(40, 4))
    return x, (x[:, 0] + 0.3 * x[:, 1] > 0).astype(int), x @ [1.0, 2, 0, -1] + random.normal(size=40) * 0.1


def sklearn_objects(out):
    from sklearn import (calibration, cluster, compose, covariance, cross_decomposition, decomposition,
                         discriminant_analysis, dummy, ensemble, feature_extraction, feature_selection,
                         gaussian_process, impute, isotonic, kernel_approximation, kernel_ridge, linear_model,
                         manifold, metrics, mixture, model_selection, multiclass, multioutput, naive_bayes, neighbors,
                         neural_network, pipeline, preprocessing, random_projection, semi_supervised, svm, tree)

    x, y, t = data()
    p = abs(x)
    words = ["good fine film", "fine bad plot", "good dull end", "end film"] * 3
    labels = [0, 1, 0, 1] * 3
    fitted = {
        "logistic": lambda: linear_model.LogisticRegression().fit(x, y),
        "logistic_cv": lambda: linear_model.LogisticRegressionCV(cv=3).fit(x, y),
        "linear": lambda: linear_model.LinearRegression().fit(x, t),
        "ridge": lambda: linear_model.Ridge().fit(x, t),
        "ridge_cv": lambda: linear_model.RidgeCV().fit(x, t),
        "lasso": lambda: linear_model.Lasso(0.01).fit(x, t),
        "elastic_cv": lambda: linear_model.ElasticNetCV(cv=3).fit(x, t),
        "sgd": lambda: linear_model.SGDClassifier(max_iter=50, tol=None).fit(x, y),
        "sgd_regressor": lambda: linear_model.SGDRegressor(max_iter=50, tol=None).fit(x, t),
        "perceptron": lambda: linear_model.Perceptron().fit(x, y),
        "huber": lambda: linear_model.HuberRegressor().fit(x, t),
        "bayes_ridge": lambda: linear_model.BayesianRidge().fit(x, t),
        "poisson": lambda: linear_model.PoissonRegressor().fit(x, abs(t)),
        "gamma": lambda: linear_model.GammaRegressor().fit(x, abs(t) + 1),
        "ransac": lambda: linear_model.RANSACRegressor(random_state=1).fit(x, t),
        "quantile": lambda: linear_model.QuantileRegressor().fit(x, t),
        "omp": lambda: linear_model.OrthogonalMatchingPursuit().fit(x, t),
        "svc": lambda: svm.SVC(probability=False).fit(x, y),
        "svr": lambda: svm.SVR().fit(x, t),
        "linear_svc": lambda: svm.LinearSVC().fit(x, y),
        "one_class": lambda: svm.OneClassSVM().fit(x),
        "nu_svc": lambda: svm.NuSVC().fit(x, y),
        "tree": lambda: tree.DecisionTreeClassifier().fit(x, y),
        "tree_regressor": lambda: tree.DecisionTreeRegressor().fit(x, t),
        "extra_tree": lambda: tree.ExtraTreeClassifier().fit(x, y),
        "forest": lambda: ensemble.RandomForestClassifier(5).fit(x, y),
        "forest_regressor": lambda: ensemble.RandomForestRegressor(5).fit(x, t),
        "extra_trees": lambda: ensemble.ExtraTreesClassifier(5).fit(x, y),
        "boosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=5).fit(x, y),
        "boosting_regressor": lambda: ensemble.GradientBoostingRegressor(n_estimators=5).fit(x, t),
        "hist": lambda: ensemble.HistGradientBoostingClassifier(max_iter=5).fit(x, y),
        "hist_regressor": lambda: ensemble.HistGradientBoostingRegressor(max_iter=5).fit(x, t),
        "ada": lambda: ensemble.AdaBoostClassifier(n_estimators=5).fit(x, y),
        "bagging": lambda: ensemble.BaggingClassifier(n_estimators=3).fit(x, y),
        "isolation": lambda: ensemble.IsolationForest(n_estimators=5).fit(x),
        "voting": lambda: ensemble.VotingClassifier([("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier())]).fit(x, y),
        "stacking": lambda: ensemble.StackingRegressor([("a", linear_model.Ridge()), ("b", svm.LinearSVR())], cv=3).fit(x, t),
        "knn": lambda: neighbors.KNeighborsClassifier(3).fit(x, y),
        "knn_ball": lambda: neighbors.KNeighborsRegressor(3, algorithm="ball_tree").fit(x, t),
        "kd_tree": lambda: neighbors.KDTree(x),
        "nearest": lambda: neighbors.NearestNeighbors(algorithm="kd_tree").fit(x),
        "centroid": lambda: neighbors.NearestCentroid().fit(x, y),
        "lof": lambda: neighbors.LocalOutlierFactor().fit(x),
        "density": lambda: neighbors.KernelDensity().fit(x),
        "gaussian_nb": lambda: naive_bayes.GaussianNB().fit(x, y),
        "multi_nb": lambda: naive_bayes.MultinomialNB().fit(p, y),
        "bernoulli_nb": lambda: naive_bayes.BernoulliNB().fit(x, y),
        "lda": lambda: discriminant_analysis.LinearDiscriminantAnalysis().fit(x, y),
        "qda": lambda: discriminant_analysis.QuadraticDiscriminantAnalysis().fit(x, y),
        "mlp": lambda: neural_network.MLPClassifier(hidden_layer_sizes=(5,), max_iter=5).fit(x, y),
        "mlp_regressor": lambda: neural_network.MLPRegressor(hidden_layer_sizes=(5,), solver="lbfgs", max_iter=5).fit(x, t),
        "rbm": lambda: neural_network.BernoulliRBM(3, n_iter=2).fit(p / p.max()),
        "kmeans": lambda: cluster.KMeans(3, n_init=1).fit(x),
        "minibatch": lambda: cluster.MiniBatchKMeans(3, n_init=1).fit(x),
        "dbscan": lambda: cluster.DBSCAN().fit(x),
        "hdbscan": lambda: cluster.HDBSCAN().fit(x),
        "agglomerative": lambda: cluster.AgglomerativeClustering(2).fit(x),
        "birch": lambda: cluster.Birch(n_clusters=2).fit(x),
        "mean_shift": lambda: cluster.MeanShift().fit(x),
        "spectral": lambda: cluster.SpectralClustering(2).fit(x),
        "affinity": lambda: cluster.AffinityPropagation().fit(x),
        "gmm": lambda: mixture.GaussianMixture(2).fit(x),
        "bgmm": lambda: mixture.BayesianGaussianMixture(n_components=2).fit(x),
        "pca": lambda: decomposition.PCA(2).fit(x),
        "ipca": lambda: decomposition.IncrementalPCA(2).fit(x),
        "kernel_pca": lambda: decomposition.KernelPCA(2, kernel="rbf").fit(x),
        "svd": lambda: decomposition.TruncatedSVD(2).fit(x),
        "nmf": lambda: decomposition.NMF(2, max_iter=20).fit(p),
        "ica": lambda: decomposition.FastICA(2).fit(x),
        "factor": lambda: decomposition.FactorAnalysis(2).fit(x),
        "topics": lambda: decomposition.LatentDirichletAllocation(2, max_iter=2).fit(p),
        "tsne": lambda: manifold.TSNE(perplexity=5, max_iter=250).fit(x) if "max_iter" in manifold.TSNE().get_params() else manifold.TSNE(perplexity=5, n_iter=250).fit(x),
        "isomap": lambda: manifold.Isomap().fit(x),
        "lle": lambda: manifold.LocallyLinearEmbedding().fit(x),
        "gp": lambda: gaussian_process.GaussianProcessRegressor(gaussian_process.kernels.RBF() + gaussian_process.kernels.WhiteKernel()).fit(x, t),
        "gpc": lambda: gaussian_process.GaussianProcessClassifier().fit(x, y),
        "kernel_ridge": lambda: kernel_ridge.KernelRidge(kernel="rbf").fit(x, t),
        "isotonic": lambda: isotonic.IsotonicRegression().fit(x[:, 0], t),
        "pls": lambda: cross_decomposition.PLSRegression(2).fit(x, t),
        "covariance": lambda: covariance.LedoitWolf().fit(x),
        "envelope": lambda: covariance.EllipticEnvelope().fit(x),
        "scaler": lambda: preprocessing.StandardScaler().fit(x),
        "minmax": lambda: preprocessing.MinMaxScaler().fit(x),
        "robust": lambda: preprocessing.RobustScaler().fit(x),
        "quantiles": lambda: preprocessing.QuantileTransformer(n_quantiles=10).fit(x),
        "power": lambda: preprocessing.PowerTransformer().fit(x),
        "polynomial": lambda: preprocessing.PolynomialFeatures(2).fit(x),
        "spline": lambda: preprocessing.SplineTransformer().fit(x),
        "bins": lambda: preprocessing.KBinsDiscretizer(3).fit(x),
        "onehot": lambda: preprocessing.OneHotEncoder().fit([["a", 1], ["b", 2]]),
        "ordinal": lambda: preprocessing.OrdinalEncoder().fit([["a"], ["b"]]),
        "labels": lambda: preprocessing.LabelEncoder().fit(["a", "b"]),
        "binarizer": lambda: preprocessing.LabelBinarizer().fit([1, 2, 3]),
        "multilabel": lambda: preprocessing.MultiLabelBinarizer().fit([(1, 2), (3,)]),
        "function": lambda: preprocessing.FunctionTransformer().fit(x),
        "function_log": lambda: preprocessing.FunctionTransformer(__import__("numpy").log1p).fit(p),
        "target": lambda: preprocessing.TargetEncoder(cv=2).fit([["a"], ["b"]] * 20, t),
        "imputer": lambda: impute.SimpleImputer().fit(x),
        "knn_imputer": lambda: impute.KNNImputer().fit(x),
        "count": lambda: feature_extraction.text.CountVectorizer().fit(words),
        "tfidf": lambda: feature_extraction.text.TfidfVectorizer().fit(words),
        "hashing": lambda: feature_extraction.text.HashingVectorizer().fit(words),
        "dict": lambda: feature_extraction.DictVectorizer().fit([{"a": 1}, {"b": 2}]),
        "kbest": lambda: feature_selection.SelectKBest(k=2).fit(x, y),
        "rfe": lambda: feature_selection.RFE(linear_model.LogisticRegression()).fit(x, y),
        "from_model": lambda: feature_selection.SelectFromModel(tree.DecisionTreeClassifier()).fit(x, y),
        "variance": lambda: feature_selection.VarianceThreshold().fit(x),
        "pipeline": lambda: pipeline.make_pipeline(preprocessing.StandardScaler(), svm.SVC()).fit(x, y),
        "text_pipeline": lambda: pipeline.make_pipeline(feature_extraction.text.TfidfVectorizer(), linear_model.LogisticRegression()).fit(words, labels),
        "union": lambda: pipeline.make_union(decomposition.PCA(1), preprocessing.StandardScaler()).fit(x),
        "columns": lambda: compose.ColumnTransformer([("a", preprocessing.StandardScaler(), [0, 1]), ("b", preprocessing.MinMaxScaler(), slice(2, 4))]).fit(x),
        "ttarget": lambda: compose.TransformedTargetRegressor(linear_model.Ridge(), transformer=preprocessing.StandardScaler()).fit(x, t),
        "grid": lambda: model_selection.GridSearchCV(svm.SVC(), {"C": [1, 10]}, cv=3).fit(x, y),
        "random_search": lambda: model_selection.RandomizedSearchCV(tree.DecisionTreeClassifier(), {"max_depth": [1, 2, 3]}, n_iter=2, cv=3).fit(x, y),
        "kfold": lambda: model_selection.StratifiedKFold(3, shuffle=True, random_state=1),
        "ovr": lambda: multiclass.OneVsRestClassifier(linear_model.LogisticRegression()).fit(x, y),
        "multi_output": lambda: multioutput.MultiOutputRegressor(linear_model.Ridge()).fit(x, x[:, :2]),
        "calibrated": lambda: calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=3).fit(x, y),
        "dummy": lambda: dummy.DummyClassifier().fit(x, y),
        "nystroem": lambda: kernel_approximation.Nystroem(n_components=5).fit(x),
        "sampler": lambda: kernel_approximation.RBFSampler().fit(x),
        "projection": lambda: random_projection.SparseRandomProjection(2).fit(x),
        "label_spreading": lambda: semi_supervised.LabelSpreading().fit(x, y),
        "scorer": lambda: metrics.make_scorer(metrics.f1_score),
        "bunch": lambda: __import__("sklearn.datasets", fromlist=["x"]).load_iris(),
    }
    for name, fit in fitted.items():
        out.pickle(f"sklearn_{name}", fit)
    try:
        import joblib
    except ImportError:
        return
    forms = {"": {}, ".z": {"compress": 3}, ".gz": {"compress": ("gzip", 3)}}
    some = ["logistic", "forest", "boosting", "pipeline", "knn", "kmeans", "tfidf", "gp", "hist", "columns", "grid", "bunch"]
    for number, name in enumerate(some):
        for form, options in forms.items():
            if form and number > 1:
                continue
            out.file(f"joblib_{name}.joblib{form}", lambda path, name=name, options=options: joblib.dump(fitted[name](), path, **options))
    import numpy as np

    arrays = {"a": np.arange(1000.0), "b": np.array([["x", 1]], dtype=object), "c": np.asfortranarray(np.ones((20, 30))), "d": np.float64(3)}
    out.file("joblib_arrays.joblib", lambda path: joblib.dump(arrays, path))


def pandas_objects(out):
    import numpy as np
    import pandas as pd

    days = pd.date_range("2024-01-01", periods=3, tz="Europe/Berlin")
    values = {
        "frame": pd.DataFrame({"a": [1, 2, 3], "b": [1.0, None, 3], "c": ["x", "y", None], "d": [True, False, True]}),
        "frame_wide": pd.DataFrame(np.arange(12.0).reshape(3, 4), columns=list("abcd"), index=["x", "y", "z"]),
        "multi": pd.DataFrame({"a": [1, 2]}, index=pd.MultiIndex.from_tuples([("x", 1), ("y", 2)])),
        "series": pd.Series([1, 2, 3], name="s"),
        "series_text": pd.Series(["a", "b"], dtype="string"),
        "series_nullable": pd.Series([1, None], dtype="Int64"),
        "series_boolean": pd.Series([True, None], dtype="boolean"),
        "series_float": pd.Series([1.5, None], dtype="Float32"),
        "series_category": pd.Series(["a", "b", "a"], dtype="category"),
        "series_dates": pd.Series(days),
        "series_naive": pd.Series(pd.date_range("2024-01-01", periods=3)),
        "series_deltas": pd.Series(pd.to_timedelta([1, 2], "D")),
        "series_periods": pd.Series(pd.period_range("2024-01", periods=3, freq="M")),
        "series_intervals": pd.Series(pd.interval_range(0, 3)),
        "series_sparse": pd.Series(pd.arrays.SparseArray([0, 0, 1])),
        "index": pd.Index([1, 2, 3]),
        "index_range": pd.RangeIndex(5),
        "index_dates": days,
        "index_text": pd.Index(["a", "b"]),
        "index_category": pd.CategoricalIndex(["a", "b"]),
        "index_period": pd.period_range("2024", periods=2, freq="D"),
        "index_delta": pd.timedelta_range("1D", periods=2),
        "index_interval": pd.interval_range(0, 2),
        "timestamp": pd.Timestamp("2024-01-01", tz="UTC"),
        "timedelta": pd.Timedelta("1D"),
        "period": pd.Period("2024-01", "M"),
        "interval": pd.Interval(0, 1),
        "na": [pd.NA, pd.NaT],
        "offsets": [pd.offsets.Day(2), pd.offsets.MonthEnd(), pd.offsets.BusinessDay()],
        "categorical": pd.Categorical(["a", "b"], ordered=True),
        "dtypes": [pd.CategoricalDtype(["a"]), pd.Int64Dtype(), pd.DatetimeTZDtype(tz="UTC"), pd.StringDtype()],
    }
    for name, value in values.items():
        protocols = [2, 3, 4, 5] if name in ("frame", "frame_wide") else None
        out.pickle(f"pandas_{name}", lambda value=value: value, protocols)
    out.file("pandas_written.pkl", lambda path: values["frame"].to_pickle(path))


def scipy_objects(out):
    import numpy as np
    import scipy
    from scipy import interpolate, optimize, sparse, spatial, stats

    dense = np.eye(3)
    for kind in ("csr", "csc", "coo", "bsr", "dia", "dok", "lil"):
        out.pickle(f"scipy_{kind}", lambda kind=kind: getattr(sparse, f"{kind}_matrix")(dense))
        out.pickle(f"scipy_{kind}_array", lambda kind=kind: getattr(sparse, f"{kind}_array")(dense))
    values = {
        "norm": lambda: stats.norm(1, 2),
        "kde": lambda: stats.gaussian_kde([1.0, 2, 4]),
        "bspline": lambda: interpolate.BSpline([0, 1, 2, 3], [1.0, 2], 1),
        "interp": lambda: interpolate.interp1d([0, 1, 2], [0.0, 1, 4]),
        "grid": lambda: interpolate.RegularGridInterpolator(([0, 1], [0, 1]), np.ones((2, 2))),
        "kd": lambda: spatial.cKDTree(np.ones((3, 2))),
        "rotation": lambda: spatial.transform.Rotation.identity(),
        "result": lambda: optimize.minimize(np.linalg.norm, [1.0, 2.0]),
        "bounds": lambda: optimize.Bounds([0], [1]),
    }
    for name, make in values.items():
        out.pickle(f"scipy_{name}", make)


def xgboost_objects(out):
    import xgboost as xgb

    x, y, t = data()
    out.pickle("xgboost_classifier", lambda: xgb.XGBClassifier(n_estimators=3).fit(x, y))
    out.pickle("xgboost_regressor", lambda: xgb.XGBRegressor(n_estimators=3).fit(x, t))
    out.pickle("xgboost_ranker", lambda: xgb.XGBRanker(n_estimators=3).fit(x, y, qid=[0] * 20 + [1] * 20))
    out.pickle("xgboost_forest", lambda: xgb.XGBRFClassifier(n_estimators=3).fit(x, y))
    out.pickle("xgboost_booster", lambda: xgb.train({"max_depth": 2}, xgb.DMatrix(x, t), 3), [2, 4, 5])


def lightgbm_objects(out):
    import lightgbm as lgb

    x, y, t = data()
    quiet = {"verbose": -1, "n_estimators": 3}
    out.pickle("lightgbm_classifier", lambda: lgb.LGBMClassifier(**quiet).fit(x, y))
    out.pickle("lightgbm_regressor", lambda: lgb.LGBMRegressor(**quiet).fit(x, t))
    out.pickle("lightgbm_ranker", lambda: lgb.LGBMRanker(**quiet).fit(x, y, group=[20, 20]))
    out.pickle("lightgbm_booster", lambda: lgb.train({"verbose": -1}, lgb.Dataset(x, t), 3), [2, 4, 5])


def statsmodels_objects(out):
    import numpy as np
    import pandas as pd
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    x, y, t = data()
    frame = pd.DataFrame(x, columns=list("abcd")).assign(t=t, y=y)
    values = {
        "ols": lambda: sm.OLS(t, sm.add_constant(x)).fit(),
        "ols_frame": lambda: sm.OLS(frame["t"], frame[["a", "b"]]).fit(),
        "wls": lambda: sm.WLS(t, x, weights=np.ones(40)).fit(),
        "gls": lambda: sm.GLS(t, x).fit(),
        "glm": lambda: sm.GLM(y, x, family=sm.families.Binomial()).fit(),
        "logit": lambda: sm.Logit(y, x[:, 1:]).fit(disp=0),
        "poisson": lambda: sm.Poisson(y, x).fit(disp=0),
        "formula": lambda: smf.ols("t ~ a + b", frame).fit(),
        "quantreg": lambda: sm.QuantReg(t, x).fit(),
        "rlm": lambda: sm.RLM(t, x).fit(),
        "arima": lambda: sm.tsa.ARIMA(t, order=(1, 0, 0)).fit(),
        "holt": lambda: sm.tsa.ExponentialSmoothing(t).fit(),
    }
    for name, make in values.items():
        out.pickle(f"statsmodels_{name}", make)


def torch_objects(out):
    import torch
    from torch import nn

    modules = {
        "linear": lambda: nn.Linear(3, 2),
        "mlp": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2), nn.Softmax(1)),
        "conv": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Flatten(), nn.GELU()),
        "conv1d": lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.AvgPool1d(2), nn.LeakyReLU(), nn.ConvTranspose1d(4, 2, 3)),
        "lstm": lambda: nn.LSTM(4, 5, 2, bidirectional=True),
        "gru": lambda: nn.GRU(4, 5),
        "rnn": lambda: nn.RNN(4, 5),
        "embedding": lambda: nn.ModuleDict({"e": nn.Embedding(10, 3), "l": nn.ModuleList([nn.LayerNorm(3), nn.GroupNorm(1, 3)])}),
        "attention": lambda: nn.MultiheadAttention(8, 2),
        "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2),
        "transformer": lambda: nn.Transformer(8, 2, 1, 1, 16),
        "losses": lambda: nn.ModuleList([nn.CrossEntropyLoss(), nn.MSELoss(), nn.BCEWithLogitsLoss()]),
        "activations": lambda: nn.ModuleList([nn.Sigmoid(), nn.Tanh(), nn.ELU(), nn.PReLU(), nn.SiLU(), nn.Identity(), nn.Hardswish(), nn.LogSoftmax(1)]),
        "parameters": lambda: nn.ParameterList([nn.Parameter(torch.ones(2))]),
    }
    for number, (name, make) in enumerate(modules.items()):
        out.file(f"torch_{name}.pt", lambda path, make=make, number=number: torch.save(make(), path, _use_new_zipfile_serialization=number % 3 != 2))
    states = {
        "state": lambda: nn.Linear(3, 2).state_dict(),
        "optimizer": lambda: torch.optim.Adam(nn.Linear(3, 2).parameters()).state_dict(),
        "checkpoint": lambda: {"epoch": 3, "model": nn.Linear(2, 2).state_dict(), "best": torch.tensor(0.5), "args": {"lr": 0.1}},
        "adam": lambda: torch.optim.Adam(nn.Linear(3, 2).parameters()),
        "sgd": lambda: torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.1),
        "scheduler": lambda: torch.optim.lr_scheduler.StepLR(torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.1), 2).state_dict(),
        "dataset": lambda: torch.utils.data.TensorDataset(torch.ones(3, 2), torch.zeros(3)),
        "shapes": lambda: [torch.Size([1, 2]), torch.device("cpu"), torch.float16, torch.strided],
        "generator": lambda: torch.get_rng_state(),
        "distribution": lambda: torch.distributions.Normal(torch.zeros(2), torch.ones(2)),
        "sparse": lambda: torch.eye(3).to_sparse(),
    }
    for name, make in states.items():
        out.file(f"torch_{name}.pt", lambda path, make=make: torch.save(make(), path))


def make(folder):
    """Writes what the libraries that are installed write."""
    warnings.filterwarnings("ignore")
    out = Writer(folder)
    python_objects(out)
    for make_some in (numpy_objects, scipy_objects, pandas_objects, sklearn_objects, xgboost_objects, lightgbm_objects,
                      statsmodels_objects, torch_objects):
        try:
            make_some(out)
        except ImportError as error:
            print(f"skipped {make_some.__name__}: {error}")
    for line in out.failed:
        print("not made:", line)
    print(len(list(out.folder.iterdir())), "files in", out.folder)


def judge(weighbridge, folders):
    """Scans the folders; false where a file is found, or too few are clean."""
    good = True
    for folder in folders:
        done = subprocess.run([weighbridge, "scan", "--json", folder], capture_output=True, check=False)
        verdicts, reasons = Counter(), Counter()
        for file in json.loads(done.stdout)["files"]:
            verdicts[file["verdict"]] += 1
            if file["verdict"] != "clean":
                worst = [f for f in file["findings"] if f["severity"] in ("error", "unchecked")]
                print(f"{file['verdict']:15} {pathlib.Path(file['path']).name:40}", "; ".join(sorted({f["text"] for f in worst}))[:200])
                reasons.update({f["text"] for f in worst})
        total = sum(verdicts.values())
        print(folder, dict(verdicts), "of", total)
        for text, count in reasons.most_common(40):
            print(f"   {count:4} {text[:160]}")
        good &= verdicts["found"] == 0 and verdicts["clean"] >= SHARE * total
    return good


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    else:
        sys.exit(0 if judge(sys.argv[2], sys.argv[3:]) else 1)
