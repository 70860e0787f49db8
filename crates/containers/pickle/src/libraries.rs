//! Classes and functions of common libraries, with the effect of unpickling each.
//!
//! `libraries.txt` lists the imports without arguments. [`CALLS`] lists the constructors with arguments, each with the arguments
//! and states that its own library writes.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Effect of unpickling a class or function of a library.
#[derive(Debug, Clone, Copy)]
pub(super) enum Known {
    /// Named, not called.
    Value,
    /// A class whose objects are made without arguments and get a dict of attributes.
    Object,
    /// Same as [`Known::Object`]; the class is a dict.
    Mapping,
    /// Same as [`Known::Object`], for a scipy distribution: its state holds the source text of generated functions.
    Distribution,
    /// A constructor with arguments.
    Call(&'static Call),
}

impl Known {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Value => "a type or function that is named but not called",
            Self::Object | Self::Distribution => {
                "a class; loading only creates the object and sets its attributes"
            }
            Self::Mapping => "a dict",
            Self::Call(_) => "a constructor; calls are checked against the form of its library",
        }
    }
}

/// A constructor: one line of [`CALLS`].
#[derive(Debug)]
pub(super) struct Call {
    module: &'static str,
    /// Separated by spaces.
    names: &'static str,
    /// One letter per argument; those after `?` are optional.
    ///
    /// | letter | argument |
    /// | --- | --- |
    /// | `p` | a value, a container, an array, an object of the same library, a named type |
    /// | `n` | a small number: the constructor may allocate memory for it |
    /// | `t` | text |
    /// | `z` | the name of a time zone |
    /// | `r` | the text of a fraction |
    /// | `c` | a class of the same package that only its constructor makes |
    /// | `g` | the name, the class or an object of a numpy generator |
    /// | `d` | a dict of such values |
    /// | `s` | a shape of at most a thousand elements |
    /// | `f` | the numpy function that makes a generator from its name |
    /// | `-` | `None` |
    pub(super) args: &'static str,
    /// Allowed states: `d` a dict of attributes, `t` a tuple, `m` the state of a masked array, `s` attributes and slots, `b` and
    /// `h` attributes with a model of xgboost and lightgbm, `e` attributes with a formula of patsy or formulaic, `j` the
    /// description of a joblib array, set exactly once.
    pub(super) states: &'static str,
}

const fn call(module: &'static str, names: &'static str, args: &'static str, states: &'static str) -> Call {
    Call { module, names, args, states }
}

const INITIALIZATION: &str = "sInitialization dInitialization cInitialization zInitialization";
const STATESPACE: &str = "sStatespace dStatespace cStatespace zStatespace";
const FILTER: &str = "sKalmanFilter dKalmanFilter cKalmanFilter zKalmanFilter";
const SMOOTHER: &str = "sKalmanSmoother dKalmanSmoother cKalmanSmoother zKalmanSmoother";
const LOSSES: &str = "CyAbsoluteError CyExponentialLoss CyHalfBinomialLoss CyHalfGammaLoss CyHalfMultinomialLoss CyHalfPoissonLoss \
     CyHalfSquaredError CyHalfTweedieLoss CyHalfTweedieLossIdentity CyHuberLoss CyPinballLoss";
const LOSS_UNPICKLERS: &str = "__pyx_unpickle_CyAbsoluteError __pyx_unpickle_CyExponentialLoss \
     __pyx_unpickle_CyHalfBinomialLoss __pyx_unpickle_CyHalfGammaLoss __pyx_unpickle_CyHalfMultinomialLoss \
     __pyx_unpickle_CyHalfPoissonLoss __pyx_unpickle_CyHalfSquaredError __pyx_unpickle_CyHalfTweedieLoss \
     __pyx_unpickle_CyHalfTweedieLossIdentity __pyx_unpickle_CyHuberLoss __pyx_unpickle_CyPinballLoss";
const SGD_LOSSES: &str = "Classification Regression Hinge SquaredHinge Log LogLoss ModifiedHuber SquaredLoss Huber \
     EpsilonInsensitive SquaredEpsilonInsensitive";
const OFFSETS: &str = "BDay BMonthBegin BMonthEnd BQuarterBegin BQuarterEnd BYearBegin BYearEnd BusinessDay BusinessHour \
     BusinessMonthBegin BusinessMonthEnd CBMonthBegin CBMonthEnd CDay CustomBusinessDay CustomBusinessHour \
     CustomBusinessMonthBegin CustomBusinessMonthEnd DateOffset Day Easter FY5253 FY5253Quarter HalfYearBegin HalfYearEnd Hour \
     LastWeekOfMonth Micro Milli Minute MonthBegin MonthEnd Nano QuarterBegin QuarterEnd Second SemiMonthBegin SemiMonthEnd Tick \
     Week WeekOfMonth YearBegin YearEnd";

/// Constructors with arguments.
#[rustfmt::skip]
static CALLS: &[Call] = &[
    call("decimal", "Decimal", "?t", ""),
    call("decimal", "Context", "pppppppp", ""),
    call("fractions", "Fraction", "r?p", ""),
    call("ipaddress", "IPv4Address IPv4Interface IPv4Network IPv6Address IPv6Interface IPv6Network", "p", ""),
    call("operator", "itemgetter", "p?pppp", ""),
    call("random", "Random", "", "t"),
    call("re", "_compile", "tn", ""),
    call("pytz", "_p", "z?ppp", ""),
    call("pytz", "_UTC", "", ""),
    call("dateutil.tz.tz", "tzutc", "", "d"),
    call("uuid", "SafeUUID", "p", ""),
    call("logging", "getLogger", "?t", ""),

    call("numpy.ma.core", "_mareconstruct", "cpsp", "m"),
    call("numpy.ma.core", "MaskedConstant", "", "d"),
    call("numpy.random", "__RandomState_ctor", "", "t"),
    call("numpy.random._pickle", "__bit_generator_ctor", "?g", "dt"),
    call("numpy.random._pickle", "__generator_ctor __randomstate_ctor", "?gf", "d"),
    call("numpy.random.bit_generator", "__pyx_unpickle_SeedSequence", "cn-", "t"),

    call("pandas._libs.internals", "_unpickle_block", "ppn", ""),
    call("pandas.core.internals.managers", "BlockManager SingleBlockManager", "?pp", "t"),
    call("pandas.core.indexes.base", "_new_Index", "cd", ""),
    call("pandas.core.indexes.datetimes", "_new_DatetimeIndex", "cd", ""),
    call("pandas.core.indexes.timedeltas", "_new_TimedeltaIndex", "cd", ""),
    call("pandas.core.indexes.period", "_new_PeriodIndex", "cd", ""),
    call("pandas.core.indexes.interval", "_new_IntervalIndex", "cd", ""),
    call("pandas.core.indexes.frozen", "FrozenList", "p", ""),
    call("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked", "cn-", "td"),
    call("pandas._libs.interval", "__pyx_unpickle_IntervalMixin", "cn-", "td"),
    call("pandas._libs.interval", "Interval", "ppt", ""),
    call("pandas", "Interval", "ppt", ""),
    call("pandas", "Period", "-pp", ""),
    call("pandas._libs.tslibs.period", "Period", "-pp", ""),
    call("pandas", "DateOffset", "?pppp", "d"),
    call("pandas.api.typing", "FrozenList", "p", ""),
    call("pandas", "PeriodDtype", "t", ""),
    call("pandas.core.dtypes.dtypes", "PeriodDtype", "t", ""),
    call("pandas", "StringDtype", "?tp", "d"),
    call("pandas.core.arrays.string_", "StringDtype", "?tp", "d"),
    call("pandas._libs.tslibs.nattype", "_nat_unpickle __nat_unpickle", "-", ""),
    call("pandas._libs.tslibs.timedeltas", "_timedelta_unpickle", "pp", ""),
    call("pandas._libs.tslibs.timestamps", "_unpickle_timestamp", "ppp?p", ""),
    call("pandas._libs.tslibs.offsets", OFFSETS, "?pppppppp", "d"),
    call("pandas._libs.sparse", "IntIndex", "np", ""),
    call("pandas._libs.sparse", "BlockIndex", "npp", ""),

    call("scipy.interpolate._interpolate", "interp1d", "", "s"),
    call("scipy.spatial.transform._rotation", "Rotation", "", "t"),

    call("sklearn._loss._loss", LOSSES, "?p", "d"),
    call("sklearn._loss._loss", LOSS_UNPICKLERS, "cnp", "t"),
    call("_loss", LOSS_UNPICKLERS, "cnp", "t"),
    call("sklearn.linear_model._sgd_fast", SGD_LOSSES, "?pp", ""),
    call("sklearn.metrics._dist_metrics", "newObj", "c", "t"),
    call("sklearn.neighbors._kd_tree", "newObj", "c", "t"),
    call("sklearn.neighbors._ball_tree", "newObj", "c", "t"),
    call("sklearn.impute._iterative", "_ImputerTriplet", "ppp", ""),
    call("sklearn.tree._tree", "Tree", "npn", "d"),

    call("statsmodels.tsa.statespace._initialization", INITIALIZATION, "nppp", "d"),
    call("statsmodels.tsa.statespace._representation", STATESPACE, "ppppppp?ppppppppp", "d"),
    call("statsmodels.tsa.statespace._kalman_filter", FILTER, "p?nnnnnnnnnn", "d"),
    call("statsmodels.tsa.statespace._kalman_smoother", SMOOTHER, "pp?nnnnnn", "d"),

    call("torch.distributed.checkpoint.metadata", "TensorProperties", "", "t"),
    call("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING", "n", ""),
    call("torch.distributed._shard.sharded_tensor.metadata", "TensorProperties", "", "t"),
    call("torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING", "n", ""),

    call("deepspeed.runtime.zero.config", "ZeroStageEnum", "n", ""),

    call("xgboost.core", "Booster", "", "b"),
    call("lightgbm.basic", "Booster", "", "h"),
    call("joblib.numpy_pickle", "NumpyArrayWrapper", "", "j"),
    call("statsmodels.base.data", "FormulaicData ModelData PandasData PatsyData", "", "e"),
];

/// All listed imports by module and name.
///
/// Not a hash map: hashing reads the whole name, and a small pickle can refer to a name of 8 KB 500,000 times. Comparison stops
/// at the first difference.
static NAMES: LazyLock<BTreeMap<(&str, &str), Known>> = LazyLock::new(|| {
    let mut names = BTreeMap::new();
    for line in include_str!("libraries.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let known = match words.next() {
            Some("value") => Known::Value,
            Some("object") => Known::Object,
            Some("mapping") => Known::Mapping,
            Some("distribution") => Known::Distribution,
            _ => continue,
        };
        let module = words.next().unwrap_or_default();
        names.extend(words.map(|name| ((module, name), known)));
    }
    for call in CALLS {
        names.extend(call.names.split_whitespace().map(|name| ((call.module, name), Known::Call(call))));
    }
    names
});

/// Effect of unpickling that class or function, if listed.
pub(super) fn known(module: &str, name: &str) -> Option<Known> {
    NAMES.get(&(module, name)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_form() {
        let mut lines: Vec<_> =
            include_str!("libraries.txt").lines().filter(|line| !line.starts_with('#')).collect();
        let mut all = std::collections::HashSet::new();
        for line in &lines {
            let words: Vec<_> = line.split(' ').collect();
            assert!(
                matches!(words[0], "value" | "object" | "mapping" | "distribution") && words.len() > 2,
                "{line}"
            );
            assert!(words[2..].iter().all(|name| all.insert((words[1], *name))), "{line}");
        }
        let listed = lines.clone();
        lines.sort_by_key(|line| line.split(' ').nth(1));
        assert_eq!(lines, listed);
    }

    #[test]
    fn classes_that_evaluate_load_or_free_are_not_listed() {
        for (module, name) in [
            ("torch.nn.parallel.distributed", "DistributedDataParallel"),
            ("torch.nn.modules.module", "_WrappedHook"),
            ("xgboost.core", "DMatrix"),
            ("lightgbm.basic", "Dataset"),
            ("joblib.memory", "MemorizedResult"),
            ("scipy.spatial._ckdtree", "cKDTree"),
            ("sklearn.metrics._dist_metrics", "PyFuncDistance"),
            ("statsmodels.tools._test_runner", "PytestTester"),
            ("scipy._lib._util", "MapWrapper"),
            ("numpy", "load"),
            ("pandas", "read_pickle"),
        ] {
            assert!(known(module, name).is_none(), "{module} {name}");
        }
    }
}
