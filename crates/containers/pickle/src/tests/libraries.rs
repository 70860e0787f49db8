//! Classes of common libraries: their own pickles are sound, crafted pickles of the same classes are not.

use super::*;
use weighbridge_core::finding::{Severity, Verdict};

/// Codes of the findings above notes in the pickle of these pieces, after its protocol opcode.
fn found(pieces: &[&[u8]]) -> Vec<&'static str> {
    let report =
        inspect(&memory([b"\x80\x04", pieces.concat().as_slice(), b"."].concat()), 0, &Options::default());
    let heavy = report.findings.iter().filter(|f| f.severity > Severity::Note);
    heavy.map(|f| f.code.as_str()).collect()
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
fn objects_are_made_without_arguments_and_get_attributes() {
    let state = dict(&[("alpha", "1"), ("__doc__", "words")]);
    assert_eq!(found(&[RIDGE, b")\x81", &state, b"b"]), [""; 0]);
    assert_eq!(
        found(&[b"ccopyreg\n_reconstructor\n", RIDGE, b"cbuiltins\nobject\nN\x87R", &state, b"b"]),
        [""; 0]
    );
    // Arguments, an invalid state, a dunder attribute, a wrong base, an item.
    assert_eq!(found(&[RIDGE, b"K\x01\x85\x81"]), ["unusual-call"]);
    assert_eq!(found(&[RIDGE, b")\x81K\x01b"]), ["unusual-call"]);
    assert_eq!(found(&[RIDGE, b")\x81", &dict(&[("__setstate__", "x")]), b"b"]), ["unusual-call"]);
    assert_eq!(found(&[b"ccopyreg\n_reconstructor\n", RIDGE, b"cbuiltins\ndict\n}\x87R"]), ["unusual-call"]);
    assert_eq!(found(&[RIDGE, b")\x81K\x01K\x02s"]), ["unusual-call"]);
    // A value may be named, but not called, and its methods must not be used.
    assert_eq!(found(&[b"cnumpy\nadd\n"]), [""; 0]);
    assert_eq!(found(&[b"cnumpy\nadd\n)R"]), ["unusual-call"]);
    assert_eq!(found(&[b"cnumpy\nadd.reduce\n"]), ["dangerous-import"]);
    assert_eq!(found(&[b"cpandas\nDataFrame.to_pickle\n"]), ["dangerous-import"]);
}

#[test]
fn imports_are_allowed_unknown_or_dangerous() {
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
fn rejects_formulas_that_run_code() {
    let model = |formula: &str| {
        let state = dict(&[("formula", formula), ("restore_design_info", "x")]);
        found(&[b"cstatsmodels.base.data\nPandasData\n)\x81", &state, b"b"])
    };
    assert_eq!(model("y ~ a + np.log(b)"), [""; 0]);
    assert_eq!(model("y ~ __import__('os').getcwd()"), ["unusual-call"]);
    assert_eq!(model("y ~ exec(a)"), ["unusual-call"]);
    for class in ["FormulaicData", "ModelData", "PandasData", "PatsyData"] {
        let class = [b"cstatsmodels.base.data\n", class.as_bytes(), b"\n)\x81"].concat();
        let formula = |formula: &str| {
            [text("formula"), text(formula), text("restore_model_spec"), b"\x88".to_vec()].concat()
        };
        let (plain, evil) = (formula("y ~ a"), formula("y ~ __import__('os').getcwd()"));
        assert_eq!(found(&[&class, b"}(", &plain, b"ub"]), [""; 0]);
        assert_eq!(found(&[&class, b"}(", &evil, b"ub"]), ["unusual-call"]);
        // The formula is evaluated as it was at the call, and so is the method that makes the table.
        let late: [&[u8]; 6] = [&class, b"}q\x01(", &evil, b"ubh\x01(", &plain, b"u"];
        assert_eq!(found(&late), ["unusual-call"]);
        let method: [&[u8]; 6] =
            [&class, b"}(", &plain, &text("orig_endog"), b"ctypes\nSimpleNamespace\n)\x81", b"ub"];
        assert_eq!(found(&method), ["unusual-call"]);
    }
}

/// The items of some dicts are their attributes, including the method that sets a state.
#[test]
fn rejects_items_that_replace_methods() {
    let result: &[u8] = b"cscipy.optimize._optimize\nOptimizeResult\n";
    let item = |key: &[u8]| found(&[result, b")\x81", key, b"cnumpy\nmean\ns}b"]);
    assert_eq!(item(&text("fun")), [""; 0]);
    assert_eq!(item(b"K\x01K\x02\x86"), [""; 0]);
    assert_eq!(item(&text("__setstate__")), ["unusual-call"]);
    assert_eq!(item(b"U\x0c__setstate__"), ["unusual-call"]);
    // A key that is the result of a call.
    assert_eq!(item(b"cbuiltins\nstr\nX\x0c\0\0\0__setstate__\x85R"), ["unusual-call"]);
    let base = |key: &str| {
        let dict = dict(&[(key, "x")]);
        found(&[b"ccopyreg\n_reconstructor\n", result, b"cbuiltins\ndict\n", &dict, b"\x87R"])
    };
    assert_eq!(base("fun"), [""; 0]);
    assert_eq!(base("__setstate__"), ["unusual-call"]);
    let bunch: &[u8] = b"cstatsmodels.tools.tools\nBunch\n)\x81";
    let own = |key: &str| found(&[bunch, b"q\x01", &text(key), b"K\x01sh\x01b"]);
    assert_eq!(own("a"), [""; 0]);
    assert_eq!(own("__setstate__"), ["unusual-call"]);
    assert_eq!(found(&[b"cstatsmodels.tools._test_runner\nPytestTester\n)\x81"]), ["unknown-import"]);
}

/// scipy executes the source text of a distribution's functions.
#[test]
fn rejects_distributions_with_foreign_source_text() {
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

/// `getattr` is allowed for time zones and interpolations only.
#[test]
fn rejects_getattr_except_for_known_methods() {
    let zone = |class: &str, method: &str, name: &str| {
        let (method, name) = (text(method), text(name));
        found(&[b"cbuiltins\ngetattr\nc", class.as_bytes(), b"\n", &method, b"\x86R", &name, b"K\x01\x86R"])
    };
    assert_eq!(zone("zoneinfo\nZoneInfo", "_unpickle", "Europe/Berlin"), [""; 0]);
    assert_eq!(zone("zoneinfo\nZoneInfo", "_unpickle", "../../etc/passwd"), ["computed-call"]);
    assert_eq!(zone("zoneinfo\nZoneInfo", "from_file", "UTC"), ["unusual-call", "computed-call"]);
    assert_eq!(zone("pandas\nDataFrame", "eval", "1"), ["unusual-call", "computed-call"]);
    // The function itself must not be stored either.
    assert_eq!(found(&[b"](cbuiltins\ngetattr\ne"]), ["unusual-call"]);
}

#[test]
fn partial_accepts_listed_functions_only() {
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

/// Models of xgboost and lightgbm are bytes and text. A number in their place would be a memory address.
#[test]
fn rejects_numbers_as_library_handles() {
    let model = |class: &str, key: &str, handle: &[u8]| {
        found(&[b"c", class.as_bytes(), b"\n)\x81}", &text(key), handle, b"sb"])
    };
    let (xgboost, lightgbm) = ("xgboost.core\nBooster", "lightgbm.basic\nBooster");
    assert_eq!(model(xgboost, "handle", b"\x96\x02\0\0\0\0\0\0\0ab"), [""; 0]);
    assert_eq!(model(xgboost, "handle", b"K\x07"), ["unusual-call"]);
    assert_eq!(model(lightgbm, "_handle", b"X\x02\0\0\0ab"), [""; 0]);
    assert_eq!(model(lightgbm, "_handle", b"K\x07"), ["unusual-call"]);
}

/// joblib reads the data after an array description as its bytes, Python as opcodes.
#[test]
fn arrays_of_joblib_are_read_in_both_ways() {
    let dump = |data: &[u8], behind: &[u8]| {
        let dtype = b"cnumpy\ndtype\nX\x02\0\0\0u1\x89\x88\x87R(K\x03X\x01\0\0\0|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb";
        let shape = [b"K", [u8::try_from(data.len()).unwrap()].as_slice(), b"\x85"].concat();
        let state = [
            b"}(".to_vec(),
            [text("subclass"), b"cnumpy\nndarray\n".to_vec(), text("order"), text("C")].concat(),
            [text("allow_mmap"), b"\x88".to_vec(), text("shape"), shape].concat(),
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
    // A call after the array.
    assert_eq!(dump(b"\xff\xfe\xfd", b"cos\ngetcwd\n)R").verdict, Verdict::Unsound);
    let bytes = {
        let report = dump(b"\xff", b"");
        assert_eq!(report.verdict, Verdict::Sound);
        report.globals.len()
    };
    assert_eq!(bytes, 3);
    // Without padding the bytes of the array are the next opcodes.
    let hidden = b"cos\ngetcwd\n\xff";
    let pieces: [&[u8]; 4] = [WRAPPER, b")\x81", &described(&[("shape", b"K\x0c\x85")]), hidden];
    assert_eq!(found(&pieces), ["dangerous-import"]);
}

const WRAPPER: &[u8] = b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n";

/// Description of a joblib array with these attributes, followed by BUILD.
fn described(more: &[(&str, &[u8])]) -> Vec<u8> {
    let dtype = b"cnumpy\ndtype\nX\x02\0\0\0u1\x89\x88\x87R(K\x03X\x01\0\0\0|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb";
    let default: [(&str, &[u8]); 4] = [
        ("subclass", b"cnumpy\nndarray\n"),
        ("order", b"X\x01\0\0\0C"),
        ("dtype", dtype),
        ("allow_mmap", b"\x89"),
    ];
    let named = |name: &str| more.iter().any(|(other, _)| *other == name);
    let pairs = default.iter().filter(|(name, _)| !named(name)).chain(more);
    let pairs: Vec<u8> = pairs.flat_map(|(name, value)| [text(name), value.to_vec()].concat()).collect();
    [b"}(".as_slice(), &pairs, b"ub"].concat()
}

/// An array that joblib reads differently from `scan` could hide opcodes.
#[test]
fn rejects_ambiguous_joblib_array_descriptions() {
    let shape: (&str, &[u8]) = ("shape", b"K\x02\x85");
    // The two bytes of the array are also opcodes.
    let made = |more: &[(&str, &[u8])]| found(&[WRAPPER, b")\x81", &described(more), b"N0"]);
    assert_eq!(made(&[shape]), [""; 0]);
    let padded: (&str, &[u8]) = ("numpy_array_alignment_bytes", b"N");
    assert_eq!(made(&[shape, padded]), [""; 0]);
    for more in [
        vec![shape, shape],
        vec![],
        vec![shape, ("safe_get_numpy_array_alignment_bytes", b"ccollections\nChainMap\n".as_slice())],
        vec![shape, ("read", b"N")],
        vec![("shape", b"]K\x02a".as_slice())],
        vec![("shape", b"\x88K\x02\x86".as_slice())],
        vec![("shape", b"\x8a\x08\0\0\0\0\x01\0\0\0\x8a\x08\0\0\0\0\x01\0\0\0\x86".as_slice())],
        vec![shape, ("order", b"N".as_slice())],
        vec![shape, ("subclass", b"ccollections\nChainMap\n".as_slice())],
        vec![shape, ("dtype", b"cnumpy\nfloat64\n".as_slice())],
        vec![shape, ("dtype", b"X\x02\0\0\0u1".as_slice())],
        vec![shape, ("allow_mmap", b"K\x01".as_slice())],
    ] {
        assert!(made(&more).contains(&"unusual-call"), "{more:?}");
    }
    let state = described(&[shape]);
    // Made in another way, without a state, with two states, with a state that changes later.
    let object: [&[u8]; 6] =
        [b"ccopyreg\n_reconstructor\n", WRAPPER, b"cbuiltins\nobject\nN\x87R", &state, b"N0", b""];
    assert!(found(&object).contains(&"unusual-call"));
    assert!(found(&[WRAPPER, b")R", &state, b"N0"]).contains(&"unusual-call"));
    assert!(found(&[WRAPPER, b")\x81"]).contains(&"unusual-call"));
    let twice: [&[u8]; 7] = [WRAPPER, b")\x81q\x01", &state, b"N0", b"0h\x01", &state, b"N0"];
    assert!(found(&twice).contains(&"unusual-call"));
    let body = state.get(1..state.len() - 1).unwrap();
    let late: [&[u8]; 6] = [WRAPPER, b")\x81}q\x01", body, b"bN0h\x01", &text("shape"), b"K\x00\x85s0"];
    assert!(found(&late).contains(&"unusual-call"));
    // Opcodes that only joblib reaches count, even if it then stops.
    let call: &[u8] = b"cos\ngetcwd\n)R0";
    let len = [u8::try_from(call.len()).unwrap()];
    let hidden: [&[u8]; 6] = [WRAPPER, b")\x81", &state, b"C", &len, call];
    let codes = found(&[hidden.concat().as_slice(), b"0"]);
    assert!(codes.contains(&"dangerous-import"), "{codes:?}");
    let stopped = [hidden.concat().as_slice(), b"0"].concat();
    let codes = found(&[&stopped, b"N0X\x02\0\0\0\xff\xff"]);
    assert!(codes.contains(&"dangerous-import"), "{codes:?}");
    // joblib reads the array after the frame.
    let frame = |more: u64| {
        let body = [WRAPPER, b")\x81", &state].concat();
        let len = (body.len() as u64 + more).to_le_bytes();
        found(&[b"\x95", &len, &body, b"N0N0"])
    };
    assert_eq!(frame(0), [""; 0]);
    assert!(frame(2).contains(&"unusual-call"));
}

/// A storage inside a pickle is five pickles, which are inspected; an archive in its place is rejected.
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
