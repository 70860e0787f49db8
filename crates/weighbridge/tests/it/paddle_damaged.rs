//! Damaged Paddle models: each has its finding, and none is sound.

use crate::support::paddle::{bad, copy_folder, expected, good, list, made, with_program};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use weighbridge::OpenOptions;
use weighbridge::finding::{Severity, Verdict};
use weighbridge::ops::verify::{VerifyOptions, VerifyReport, verify};

use Severity::{Error, Note, Warning};
use Verdict::{CouldNotTell, Sound, Unsound};

/// What is found where the program is known: verdict, weight, code, a part of the text; and the
/// verdict where it is not.
type Case = (&'static str, Verdict, Severity, &'static str, &'static str, Verdict);

const CASES: [Case; 21] = [
    ("empty", Unsound, Error, "empty-file", "", Unsound),
    (
        "last_tensor_short_1",
        Unsound,
        Error,
        "truncated-data",
        "last tensor is 1 byte short (not detected",
        Unsound,
    ),
    ("last_tensor_data_missing", Unsound, Error, "truncated-data", "last tensor has no data", Unsound),
    (
        "cut_in_middle",
        Unsound,
        Error,
        "truncated-data",
        "within tensor 7 of 13; the later tensors are missing",
        Unsound,
    ),
    ("cut_at_boundary", Unsound, Error, "missing-tensors", "has 6 tensors, 7 fewer", CouldNotTell),
    ("trailing_byte", Unsound, Error, "trailing-bytes", "1 byte after its last tensor", Unsound),
    ("extra_tensor", Unsound, Error, "extra-tensors", "has 14 tensors, 1 more", CouldNotTell),
    ("stream_version_1", Unsound, Error, "stream-version", "found: 1", Unsound),
    ("tensor_version_7", Unsound, Error, "tensor-version", "found: 7", Unsound),
    ("desc_len_negative", Unsound, Error, "negative-desc-length", "", Unsound),
    ("desc_len_huge", Unsound, Error, "desc-too-long", "desc exceeds the file", Unsound),
    ("dtype_99", Unsound, Error, "unknown-dtype", "found: 99", Unsound),
    ("dtype_not_pod", Unsound, Error, "not-an-element-type", "found: 7", Unsound),
    ("negative_dim", Unsound, Error, "negative-dimension", "", Unsound),
    ("dims_overflow", Unsound, Error, "shape-overflow", "", Unsound),
    ("shape_differs", Unsound, Error, "shape-differs", "declares [8], the tensor is [4, 2]", CouldNotTell),
    ("packed_dims", Sound, Note, "names-joined", "", CouldNotTell),
    ("fields_reversed", Sound, Note, "names-joined", "", CouldNotTell),
    ("unknown_field", Sound, Note, "names-joined", "", CouldNotTell),
    ("bad_lod", Sound, Warning, "lod-end", "ends with 99, but there are 8 rows", CouldNotTell),
    ("size_prefixed", Unsound, Error, "size-prefixed", "Paddle cannot read this file", Unsound),
];

fn report(path: &Path, open: OpenOptions) -> VerifyReport {
    verify(path, &VerifyOptions { open, ..VerifyOptions::default() }).unwrap()
}

fn plain(path: impl AsRef<Path>) -> VerifyReport {
    report(path.as_ref(), OpenOptions::default())
}

/// Fails unless the report has a finding of that weight, code and text.
fn has(report: &VerifyReport, severity: Severity, code: &str, text: &str) {
    let fits = |f: &&weighbridge::finding::Finding| {
        (f.severity, f.code.as_str()) == (severity, code) && f.text.contains(text)
    };
    assert!(report.findings.iter().any(|f| fits(&f)), "{severity:?} {code} {text}: {:#?}", report.findings);
}

/// A copy of a golden model, to be damaged.
fn model(name: &str) -> (TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("model");
    copy_folder(&good(name), &folder);
    (temp, folder)
}

#[test]
fn each_damage_has_its_finding_in_any_location() {
    let folder = bad("p262/damaged");
    let items = expected(&folder);
    assert_eq!(list(&items["items"]).len(), CASES.len());
    let (temp, together) = model("p262/cnn_static_infer");
    let (program, lone) = (good("p262/cnn_static_infer/model.pdmodel"), temp.path().join("lone/lone.bin"));
    fs::create_dir(lone.parent().unwrap()).unwrap();
    for (item, (name, verdict, severity, code, text, alone)) in list(&items["items"]).iter().zip(CASES) {
        assert_eq!(item["file"], format!("{name}.pdiparams"));
        let should = item["should"].as_str().unwrap();
        assert_eq!(verdict == Unsound, should.starts_with("error"), "{name}");
        assert_eq!(severity == Warning, should.starts_with("warning"), "{name}");
        let file = folder.join(format!("{name}.pdiparams"));
        fs::copy(&file, together.join("model.pdiparams")).unwrap();
        fs::copy(&file, &lone).unwrap();
        for report in [
            report(&file, with_program(&program)),
            report(&lone, with_program(&program)),
            plain(together.join("model.pdiparams")),
            plain(together.join("model.pdmodel")),
            plain(&together),
        ] {
            assert_eq!(report.verdict, verdict, "{name}: {:#?}", report.findings);
            has(&report, severity, code, text);
            let heaviest = report.findings.iter().map(|f| f.severity).max();
            assert_eq!(heaviest, Some(severity), "{name}: {:#?}", report.findings);
        }
        let report = plain(&lone);
        assert_eq!(report.verdict, alone, "{name}: {:#?}", report.findings);
        if alone == CouldNotTell {
            has(&report, Severity::Unchecked, "no-program", "without a program");
        } else if name != "cut_in_middle" {
            has(&report, severity, code, text);
        }
    }
}

#[test]
fn whole_models_are_sound() {
    for name in [
        "p262/cnn_static_infer",
        "p262/cnn_jit",
        "p262/cnn_legacy_combined",
        "p262/cnn_legacy_separate",
        "p262/seq_legacy_separate",
        "p262/seq_static_infer",
        "p262/control_flow",
        "p262/cnn_static_train",
        "p262/seq_static_train",
        "p262/jit_multi_function/model.pdmodel",
        "p262/jit_multi_function/model.second.pdmodel",
        "p262/combined_mixed",
        "p262/vocab",
        "p331/cnn_pir",
        "p331/cnn_pir_separate",
        "p331/cnn_pir_train",
        "p331/control_flow_pir",
        "p331/seq_jit",
        "p331_oldir/cnn_jit",
    ] {
        let report = plain(good(name));
        assert_eq!(report.verdict, Sound, "{name}: {:#?}", report.findings);
        // One network keeps a flat copy of weights that nothing reads; one program has no operators.
        let odd = |f: &&weighbridge::finding::Finding| {
            f.severity != Note && !matches!(f.code.as_str(), "unused-parameters" | "lod-differs")
        };
        assert_eq!(report.findings.iter().filter(odd).count(), 0, "{name}: {:#?}", report.findings);
    }
    // The folder has functions that are not looked at.
    let report = plain(good("p262/jit_multi_function"));
    assert_eq!(report.verdict, CouldNotTell);
    has(&report, Severity::Unchecked, "more-programs", "model.second.pdmodel");
    // What Paddle could not save apart is missing.
    let report = plain(good("p262/separate_mixed"));
    assert_eq!(report.verdict, Unsound);
    for name in ["cplx", "flag"] {
        assert!(
            report
                .findings
                .iter()
                .any(|f| f.code == "missing-parameter" && f.tensor.as_deref() == Some(name))
        );
    }
}

#[test]
fn separate_files_are_counted() {
    let (_temp, folder) = model("p262/cnn_legacy_separate");
    fs::copy(folder.join("linear_0.b_0"), folder.join("stranger")).unwrap();
    let report = plain(&folder);
    assert_eq!(report.verdict, Sound);
    has(&report, Note, "files-not-in-program", "stranger");

    fs::remove_file(folder.join("conv2d_0.w_0")).unwrap();
    for path in [folder.clone(), folder.join("__model__")] {
        let report = plain(path);
        assert_eq!(report.verdict, Unsound);
        has(&report, Error, "missing-parameter", "declared in the program as f32 [8, 3, 3, 3]");
        has(&report, Severity::Unchecked, "parameters-missing", "conv2d_0.w_0");
    }
    let short = fs::read(folder.join("linear_0.w_0")).unwrap();
    fs::write(folder.join("linear_0.w_0"), &short[..short.len() - 1]).unwrap();
    has(&plain(&folder), Error, "truncated-data", "1 byte short");
    fs::write(folder.join("linear_0.w_0"), [&short[..], b"x"].concat()).unwrap();
    let report = plain(&folder);
    has(&report, Error, "trailing-bytes", "found: 1 more byte");
    // The rest is checked, too.
    has(&report, Error, "missing-parameter", "");
}

/// A combined file with two of its streams in each other's place.
fn swapped(json: &serde_json::Value, bytes: &[u8], names: [&str; 2]) -> Vec<u8> {
    let place = |name: &str| list(&json["tensors"]).iter().position(|t| t["name"] == name).unwrap();
    let mut order: Vec<usize> = (0..list(&json["tensors"]).len()).collect();
    order.swap(place(names[0]), place(names[1]));
    let stream = |k: usize| {
        let number = |key: &str| usize::try_from(json["tensors"][k][key].as_u64().unwrap()).unwrap();
        &bytes[number("stream_offset")..number("stream_offset") + number("stream_bytes")]
    };
    order.into_iter().flat_map(stream).copied().collect()
}

#[test]
fn tensors_under_each_others_names() {
    let (_temp, folder) = model("p262/cnn_static_infer");
    let json = expected(&good("p262/cnn_static_infer"));
    let bytes = fs::read(folder.join("model.pdiparams")).unwrap();
    let swap = swapped(&json, &bytes, ["linear_0.b_0", "linear_0.w_0"]);
    assert_eq!(swap.len(), bytes.len());
    fs::write(folder.join("model.pdiparams"), swap).unwrap();
    let report = plain(&folder);
    assert_eq!(report.verdict, Unsound);
    has(&report, Error, "shape-differs", "declares [10], the tensor is [16, 10]");
    has(&report, Error, "shape-differs", "declares [16, 10], the tensor is [10]");
    has(&report, Warning, "swapped-tensors", "linear_0.b_0 and linear_0.w_0");
}

#[test]
fn programs_of_other_models() {
    let parameters = good("p262/cnn_static_infer/model.pdiparams");
    for (program, code) in [
        (good("p262/seq_static_infer/model.pdmodel"), "missing-tensors"),
        (good("p262/control_flow/model.pdmodel"), "extra-tensors"),
        (good("p331/seq_pir/model.json"), "missing-tensors"),
    ] {
        let report = report(&parameters, with_program(program));
        assert_eq!(report.verdict, Unsound);
        has(&report, Error, code, "13 tensors");
        has(&report, Note, "parameter-count", "the names are guesses");
    }
    // The same network of another era has the same parameters, and none can tell.
    let twin = report(&parameters, with_program(good("p331/cnn_pir/model.json")));
    assert_eq!(twin.verdict, Sound, "{twin:#?}");
}

#[test]
fn damaged_programs() {
    for (name, file, lens) in [
        ("p262/cnn_static_infer", "model.pdmodel", [0, 1, 1000]),
        ("p331/cnn_pir", "model.json", [0, 1, 1000]),
        ("p262/cnn_legacy_separate", "__model__", [0, 1, 1000]),
    ] {
        let (_temp, folder) = model(name);
        let bytes = fs::read(folder.join(file)).unwrap();
        for len in lens {
            fs::write(folder.join(file), &bytes[..len]).unwrap();
            let report = verify(folder.join(file), &VerifyOptions::default()).unwrap();
            assert_ne!(report.verdict, Sound, "{name} {len}: {:#?}", report.findings);
            let report = plain(&folder);
            assert_ne!(report.verdict, Sound, "{name} {len}: {:#?}", report.findings);
            let parameters = folder.join("model.pdiparams");
            if parameters.exists() {
                let report = plain(parameters);
                assert_ne!(report.verdict, Sound, "{name} {len}: {:#?}", report.findings);
            }
        }
    }
}

#[test]
fn values_are_checked_on_request() {
    let (_temp, folder) = model("p262/cnn_static_infer");
    let json = expected(&good("p262/cnn_static_infer"));
    let file = folder.join("model.pdiparams");
    let mut bytes = fs::read(&file).unwrap();
    let place = |k: usize| usize::try_from(json["tensors"][k]["data_offset"].as_u64().unwrap()).unwrap();
    bytes[place(0)..place(0) + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    bytes[place(1)..place(1) + 4].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    assert!(plain(&folder).findings.iter().all(|f| f.severity == Note));
    for path in [&folder, &file] {
        let options = VerifyOptions { values: true, ..VerifyOptions::default() };
        let report = verify(path, &options).unwrap();
        assert_eq!(report.verdict, Sound, "odd values are no damage");
        for (code, k) in [("nan", 0), ("infinite", 1)] {
            has(&report, Warning, code, "1 of ");
            let finding = report.findings.iter().find(|f| f.code == code).unwrap();
            assert_eq!(finding.tensor.as_deref(), json["tensors"][k]["name"].as_str());
        }
    }
}

/// The first design note's form, with the LoD behind the data.
#[test]
fn forms_that_paddle_cannot_read_are_errors() {
    use weighbridge::ops::{ConvertOptions, convert};
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("x.bin");
    let options = ConvertOptions {
        to: Some("paddle".into()),
        settings: vec![("stream".into(), "design-note".into())],
        ..ConvertOptions::default()
    };
    let (plan, _) = convert(good("p262/lod_tensors/float32_lod2.bin"), &file, &options).unwrap();
    assert_eq!(plan.losses[0].code.as_str(), "paddle-cannot-read");
    let report = plain(&file);
    assert_eq!(report.verdict, Unsound);
    has(&report, Error, "design-note", "Paddle cannot read");
}

/// Vocabularies are checked against the program as well, although they are not tensors.
#[test]
fn missing_words_are_found() {
    use weighbridge::ops::{ConvertOptions, convert};
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("model");
    let options = ConvertOptions {
        to: Some("paddle".into()),
        kind: Some("separate".into()),
        ..ConvertOptions::default()
    };
    convert(good("p262/vocab"), &folder, &options).unwrap();
    assert_eq!(plain(&folder).verdict, Sound);
    fs::remove_file(folder.join("vocab")).unwrap();
    let report = plain(&folder);
    assert_eq!(report.verdict, Unsound);
    assert!(report.findings.iter().any(|f| f.tensor.as_deref() == Some("vocab") && f.severity == Error));
    fs::remove_file(folder.join("another_vocab")).unwrap();
    assert_eq!(plain(&folder).verdict, CouldNotTell);
}

#[test]
fn quantized_models_are_sound() {
    let report = plain(made("ptq"));
    assert_eq!(report.verdict, Sound, "{:#?}", report.findings);
    has(&report, Note, "quantized", "7 quantization scales have");
    has(&report, Note, "quantized", "2 quantized weights are stored as i8");
    assert!(report.findings.iter().all(|f| f.severity <= Note), "{:#?}", report.findings);
    let report = plain(made("lite"));
    assert_eq!(report.verdict, Sound, "{:#?}", report.findings);
    has(&report, Warning, "for-paddle-lite", "2 quantized weights have their scales");
    // A scale of as many elements is one; a weight of other extents is not.
    let temp = tempfile::tempdir().unwrap();
    copy_folder(&made("ptq"), temp.path());
    let file = temp.path().join("inference.pdiparams");
    let mut bytes = fs::read(&file).unwrap();
    let dims = [0x08, 0x15, 0x10, 0x30, 0x10, 0x04];
    let at = bytes.windows(6).position(|window| window == dims).unwrap();
    bytes[at + 3] = 0x04;
    bytes[at + 5] = 0x30;
    fs::write(&file, bytes).unwrap();
    has(&plain(temp.path()), Error, "shape-differs", "the tensor is [4, 48]");
}

#[test]
fn encrypted_folders_are_left_open() {
    let report = plain(made("encrypted"));
    assert_eq!(report.verdict, CouldNotTell, "{:#?}", report.findings);
    has(&report, Severity::Unchecked, "encrypted", "its bytes look random");
    // The parameters alone.
    let temp = tempfile::tempdir().unwrap();
    fs::copy(made("encrypted/inference.pdiparams"), temp.path().join("model.pdiparams")).unwrap();
    fs::copy(good("p262/cnn_static_infer/model.pdmodel"), temp.path().join("model.pdmodel")).unwrap();
    let report = plain(temp.path());
    assert_eq!(report.verdict, CouldNotTell, "{:#?}", report.findings);
    has(&report, Severity::Unchecked, "encrypted", "not a Paddle tensor file");
}

#[test]
fn broken_text_of_a_parameter_in_parts_is_found() {
    let mut bytes = fs::read(good("p262/split_big_param/big.pdparams")).unwrap();
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("big.pdparams");
    fs::write(&file, &bytes).unwrap();
    assert_eq!(plain(&file).verdict, Sound);
    let part = bytes.windows(9).position(|window| window == b"big64@@.0").unwrap();
    let text = bytes[..part].iter().rposition(|&byte| byte == 0xc2).unwrap();
    bytes[text + 1] = b'A';
    fs::write(&file, &bytes).unwrap();
    let report = plain(&file);
    assert_eq!(report.verdict, Unsound, "{:#?}", report.findings);
    assert!(report.findings.iter().any(|f| f.severity == Error && f.tensor.as_deref() == Some("big")));
}
