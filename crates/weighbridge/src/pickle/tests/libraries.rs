//! Classes of common libraries: their own pickles are harmless, and what is made of the same classes by hand is not.

use super::*;
use crate::finding::{Severity, Verdict};

/// What weighs something in the pickle of these pieces, behind the instruction of its protocol.
fn found(pieces: &[&[u8]]) -> Vec<&'static str> {
    let report =
        inspect(&memory(&[b"\x80\x04", pieces.concat().as_slice(), b"."].concat()), 0, &Options::default());
    let heavy = report.findings.iter().filter(|f| f.severity > Severity::Note);
    heavy.map(|f| f.code).collect()
}

/// A text.
fn text(text: &str) -> Vec<u8> {
    [b"X".as_slice(), &u32::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes()].concat()
}

/// A dict of texts.
fn dict(pairs: &[(&str, &str)]) -> Vec<u8> {
    let pairs = pairs.iter().flat_map(|(key, value)| [text(key), text(value)]).flatten();
    [b"}(".to_vec(), pairs.collect(), b"u".to_vec()].concat()
}

const RIDGE: &[u8] = b"csklearn.linear_model._ridge\nRidge\n";

#[test]
fn objects_are_made_empty_and_given_attributes() {
    let state = dict(&[("alpha", "1"), ("__doc__", "words")]);
    assert_eq!(found(&[RIDGE, b")\x81", &state, b"b"]), [""; 0]);
    assert_eq!(
        found(&[b"ccopyreg\n_reconstructor\n", RIDGE, b"cbuiltins\nobject\nN\x87R", &state, b"b"]),
        [""; 0]
    );
    // Arguments, a state that is none, a method in place of one of Python's, a base that it has not, an item.
    assert_eq!(found(&[RIDGE, b"K\x01\x85\x81"]), ["unusual-call"]);
    assert_eq!(found(&[RIDGE, b")\x81K\x01b"]), ["unusual-call"]);
    assert_eq!(found(&[RIDGE, b")\x81", &dict(&[("__setstate__", "x")]), b"b"]), ["unusual-call"]);
    assert_eq!(found(&[b"ccopyreg\n_reconstructor\n", RIDGE, b"cbuiltins\ndict\n}\x87R"]), ["unusual-call"]);
    assert_eq!(found(&[RIDGE, b")\x81K\x01K\x02s"]), ["unusual-call"]);
    // What is only named is not called, and its methods are not reached.
    assert_eq!(found(&[b"cnumpy\nadd\n"]), [""; 0]);
    assert_eq!(found(&[b"cnumpy\nadd\n)R"]), ["unusual-call"]);
    assert_eq!(found(&[b"cnumpy\nadd.reduce\n"]), ["dangerous-import"]);
    assert_eq!(found(&[b"cpandas\nDataFrame.to_pickle\n"]), ["dangerous-import"]);
}

#[test]
fn imports_are_weighed_by_what_is_known_of_them() {
    for harmless in ["decimal Decimal", "types SimpleNamespace", "torch.nn.modules.linear Linear"] {
        assert_eq!(found(&[b"c", harmless.replace(' ', "\n").as_bytes(), b"\n"]), [""; 0], "{harmless}");
    }
    for unknown in ["mymodule Thing", "__main__ Net", "pandas.core.frame Other", "enum Enum"] {
        assert_eq!(
            found(&[b"c", unknown.replace(' ', "\n").as_bytes(), b"\n"]),
            ["unknown-import"],
            "{unknown}"
        );
    }
    for dangerous in [
        "types CodeType",
        "builtins print",
        "idlelib.run main",
        "mymodule system",
        "joblib load",
        "numpy load",
        "pandas.io.pickle read_pickle",
        "torch.jit load",
        "torch._dynamo.guards GuardBuilder",
        "numpy.f2py.crackfortran myeval",
        "pip main",
        "operator attrgetter",
        "_io FileIO",
    ] {
        let codes = found(&[b"c", dangerous.replace(' ', "\n").as_bytes(), b"\n"]);
        assert_eq!(codes, ["dangerous-import"], "{dangerous}");
    }
}

/// statsmodels evaluates the formula of a model again when it is loaded.
#[test]
fn formulas_are_evaluated() {
    let model = |formula: &str| {
        let state = dict(&[("formula", formula), ("restore_design_info", "x")]);
        found(&[b"cstatsmodels.base.data\nPandasData\n)\x81", &state, b"b"])
    };
    assert_eq!(model("y ~ a + np.log(b)"), [""; 0]);
    assert_eq!(model("y ~ __import__('os').getcwd()"), ["unusual-call"]);
    assert_eq!(model("y ~ exec(a)"), ["unusual-call"]);
}

/// scipy makes the functions of a distribution anew from a text.
#[test]
fn functions_of_distributions_are_scipys_own() {
    let parser = "\ndef _parse_args(self,  loc=0, scale=1):\n    return (), loc, scale\n\n\
                  def _parse_args_rvs(self,  loc=0, scale=1, size=None):\n    \
                  return self._argcheck_rvs( loc, scale, size=size)\n\n\
                  def _parse_args_stats(self,  loc=0, scale=1, moments='mv'):\n    \
                  return (), loc, scale, moments\n";
    let distribution = |parser: &str| {
        let state = dict(&[("_parse_arg_template", parser)]);
        found(&[b"cscipy.stats._continuous_distns\nnorm_gen\n)\x81", &state, b"b"])
    };
    assert_eq!(distribution(parser), [""; 0]);
    assert_eq!(distribution(&format!("{parser}import os\n")), ["unusual-call"]);
    assert_eq!(distribution("import os"), ["unusual-call"]);
    assert_eq!(found(&[b"cscipy.stats._continuous_distns\nnorm_gen\n)\x81}b"]), ["unusual-call"]);
}

/// Attributes of classes are looked up for time zones and interpolations alone.
#[test]
fn attributes_are_not_looked_up() {
    let zone = |class: &str, method: &str, name: &str| {
        let (method, name) = (text(method), text(name));
        found(&[b"cbuiltins\ngetattr\nc", class.as_bytes(), b"\n", &method, b"\x86R", &name, b"K\x01\x86R"])
    };
    assert_eq!(zone("zoneinfo\nZoneInfo", "_unpickle", "Europe/Berlin"), [""; 0]);
    assert_eq!(zone("zoneinfo\nZoneInfo", "_unpickle", "../../etc/passwd"), ["computed-call"]);
    assert_eq!(zone("zoneinfo\nZoneInfo", "from_file", "UTC"), ["unusual-call", "computed-call"]);
    assert_eq!(zone("pandas\nDataFrame", "eval", "1"), ["unusual-call", "computed-call"]);
    // Nor is the function kept.
    assert_eq!(found(&[b"](cbuiltins\ngetattr\ne"]), ["unusual-call"]);
}

#[test]
fn functions_that_are_called_later_are_listed() {
    let partial = |function: &str, named: &[u8]| {
        let function = [b"c", function.as_bytes(), b"\n"].concat();
        found(&[b"cfunctools\npartial\n", &function, b"q\x00\x85R(h\x00)", named, b"Ntb"])
    };
    assert_eq!(partial("numpy\nmean", b"}"), [""; 0]);
    assert_eq!(partial("mymodule\nf", b"}"), ["unknown-import"]);
    assert_eq!(partial("os\ngetcwd", b"}"), ["dangerous-import"]);
    assert_eq!(partial("builtins\neval", b"}"), ["unusual-call", "unusual-call"]);
    assert_eq!(partial("numpy.core.multiarray\n_reconstruct", b"}"), ["unusual-call"]);
}

/// Models of xgboost and lightgbm are bytes and text. A number in their place would be an address.
#[test]
fn models_are_no_addresses() {
    let model = |class: &str, key: &str, handle: &[u8]| {
        found(&[b"c", class.as_bytes(), b"\n)\x81}", &text(key), handle, b"sb"])
    };
    let (xgboost, lightgbm) = ("xgboost.core\nBooster", "lightgbm.basic\nBooster");
    assert_eq!(model(xgboost, "handle", b"\x96\x02\0\0\0\0\0\0\0ab"), [""; 0]);
    assert_eq!(model(xgboost, "handle", b"K\x07"), ["unusual-call"]);
    assert_eq!(model(lightgbm, "_handle", b"X\x02\0\0\0ab"), [""; 0]);
    assert_eq!(model(lightgbm, "_handle", b"K\x07"), ["unusual-call"]);
}

/// joblib takes what follows the description of an array for its bytes; Python for instructions.
#[test]
fn arrays_of_joblib_are_read_in_both_ways() {
    let dump = |data: &[u8], behind: &[u8]| {
        let dtype = b"cnumpy\ndtype\nX\x02\0\0\0u1\x89\x88\x87R(K\x03X\x01\0\0\0|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb";
        let shape = [b"K", [u8::try_from(data.len()).unwrap()].as_slice(), b"\x85"].concat();
        let state = [
            b"}(".to_vec(),
            [text("shape"), shape].concat(),
            [text("dtype"), dtype.to_vec()].concat(),
            [text("numpy_array_alignment_bytes"), b"K\x10".to_vec()].concat(),
            b"u".to_vec(),
        ];
        let state = state.concat();
        let wrapper: [&[u8]; 3] = [b"\x80\x04](cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81", &state, b"b"];
        let bytes = [wrapper.concat().as_slice(), b"\x02\xff\xff", data, b"e", behind, b"."].concat();
        inspect(&memory(&bytes), 0, &Options::default())
    };
    let report = dump(b"\xff\xfe\xfd", b"");
    assert_eq!((report.verdict, report.error.is_none()), (Verdict::Sound, true), "{report:?}");
    // What is behind the array, and what only Python comes to.
    assert_eq!(dump(b"\xff\xfe\xfd", b"cos\ngetcwd\n)R").verdict, Verdict::Unsound);
    let bytes = {
        let report = dump(b"\xff", b"");
        assert_eq!(report.verdict, Verdict::Sound);
        report.globals.len()
    };
    assert_eq!(bytes, 2);
    // Without padding the bytes of the array are the next instructions.
    let state = [text("shape"), b"K\x0c\x85".to_vec(), text("dtype")].concat();
    let dtype = b"cnumpy\ndtype\nX\x02\0\0\0u1\x89\x88\x87R(K\x03X\x01\0\0\0|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb";
    let hidden = b"cos\ngetcwd\n\xff";
    let pieces: [&[u8]; 6] =
        [b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81}(", &state, dtype, b"ub", hidden, b""];
    assert_eq!(found(&pieces), ["dangerous-import"]);
}

/// A storage within a pickle is five pickles, which are judged; an archive in its place is not.
#[test]
fn storages_within_a_pickle_are_pickles() {
    let stored = |bytes: &[u8]| {
        let len = u32::try_from(bytes.len()).unwrap().to_le_bytes();
        found(&[b"ctorch.storage\n_load_from_bytes\nB", &len, bytes, b"\x85R"])
    };
    let magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.";
    assert_eq!(stored(magic), [""; 0]);
    assert_eq!(stored(b"PK\x03\x04 and so on, for many bytes"), ["unusual-call"]);
    assert_eq!(stored(b"\x80\x02cos\ngetcwd\n)R. and so on"), ["unusual-call"]);
}
