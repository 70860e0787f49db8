//! `diff` as a user meets it.

use crate::support::{Folder, code, error, golden, json, ok, refused, testdata, text, text_of, weighbridge};
use serde_json::Value as Json;
use std::fs;
use std::path::Path;

/// An npy file of these values.
fn npy(path: &Path, values: &[f32]) {
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.len());
    header.push_str(&" ".repeat(117 - header.len()));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(values.iter().flat_map(|x| x.to_le_bytes()));
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_conversion_is_no_difference_in_any_format() {
    let dir = tempfile::tempdir().unwrap();
    let model = &golden("biggraph/set1/ckpt_std_zip");
    for target in ["x.safetensors", "x.npz", "x.pt", "x.h5"] {
        let target = dir.path().join(target);
        let target = target.to_str().unwrap();
        assert_eq!(code(&["convert", model, target, "-q"]), 0);
        let report = json(&["diff", model, target, "--json", "--all"]);
        assert_eq!(report["same"], true, "{report}");
        assert_eq!(report["pairs"].as_array().unwrap().len(), 62);
        // Both ways.
        assert_eq!(code(&["diff", target, model]), 0);
    }
    let cast = dir.path().join("cast.safetensors");
    let cast = cast.to_str().unwrap();
    assert_eq!(code(&["convert", model, cast, "-q", "--cast", "bf16"]), 0);
    let report = json(&["diff", model, cast, "--json", "--no-state", "--no-metadata"]);
    let pairs = report["pairs"].as_array().unwrap();
    let far = |pair: &Json| pair["values"]["max_relative"].as_f64().unwrap();
    assert!(pairs.iter().all(|pair| far(pair) <= 1.0 / 256.0) && far(&pairs[0]) > 0.001, "{report}");
    assert_eq!(pairs[0]["changes"][0]["what"], "dtype");
}

#[test]
fn tolerances_and_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (a, b) = (path("a.npy"), path("b.npy"));
    npy(Path::new(&a), &[1.0, 2.0, f32::NAN]);
    npy(Path::new(&b), &[1.0, 2.125, f32::NAN]);
    assert_eq!(code(&["diff", &a, &a]), 0);
    assert_eq!(code(&["diff", &a, &b]), 1);
    assert_eq!(code(&["diff", &a, &b, "--atol", "0.125"]), 0);
    assert_eq!(code(&["diff", &a, &b, "--rtol", "0.05"]), 1);
    assert_eq!(code(&["diff", &a, &b, "--names-only"]), 0);
    for below in [&["--atol=-1"][..], &["--atol", "-1"], &["--rtol", "-0.5"]] {
        assert_eq!(refused(&[&["diff", &a, &b], below].concat()), "bad-tolerance");
    }
    let near = ok(&["diff", &a, &b, "--atol", "0.125"]);
    assert!(near.contains("tensors: 0 equal, 1 within the tolerance"), "{near}");
    assert_eq!(code(&["diff", &a, &path("none.npy")]), 2);
    let text = String::from_utf8(weighbridge(&["diff", &a, &b]).stdout).unwrap();
    assert!(
        text.contains("1 of 3") && text.contains("1.250e-1") && text.contains("largest at [1]"),
        "{text}"
    );
    assert!(text.contains("NaN: 1 left, 1 right, 0 on one side only"), "{text}");
    let markdown = String::from_utf8(weighbridge(&["diff", &a, &b, "--markdown"]).stdout).unwrap();
    assert!(markdown.starts_with("**different**"), "{markdown}");
}

#[test]
fn the_first_of_what_has_no_distance_is_told() {
    let folder = Folder::new();
    let (a, b) = (folder.path("a.npy"), folder.path("b.npy"));
    npy(Path::new(&a), &[1.0, 2.0, 3.0, 4.0]);
    npy(Path::new(&b), &[1.0, f32::INFINITY, f32::NAN, f32::NAN]);
    let report = json(&["diff", &a, &b]);
    let found = &report["pairs"][0]["values"];
    assert_eq!(
        (&found["at"], &found["nan_moved"], &found["infinite_apart"]),
        (&Json::Null, &2.into(), &1.into())
    );
    assert_eq!((&found["nan_at"], &found["infinite_at"]), (&serde_json::json!([2]), &serde_json::json!([1])));
    for words in [&["diff", &a, &b][..], &["diff", &a, &b, "--markdown"]] {
        let text = text(&weighbridge(words));
        assert!(text.contains("NaN: 0 left, 2 right, 2 on one side only, first at [2]"), "{text}");
        assert!(text.contains("infinities differ at 1 place, first at [1]"), "{text}");
    }
}

/// The files of one model under another name, and its parameters in other forms of the same framework.
#[test]
fn names_of_files_and_kinds_of_pickles_are_no_difference() {
    let folder = Folder::new();
    let other = folder.path("other");
    fs::create_dir(&other).unwrap();
    let model = testdata("paddle/good/p331/cnn_jit");
    for suffix in ["json", "pdiparams"] {
        fs::copy(model.join(format!("model.{suffix}")), format!("{other}/net.{suffix}")).unwrap();
    }
    let model = text_of(&model);
    assert_eq!(json(&["info", &other])["metadata"]["paddle.parameters"], "net.pdiparams");
    let report = json(&["diff", model, &other]);
    assert_eq!((&report["same"], &report["metadata"]), (&true.into(), &Json::Array(Vec::new())), "{report}");
    for target in ["a.pdparams", "a.pdiparams", "a.npz", "a.safetensors"] {
        let target = folder.path(target);
        ok(&["convert", model, &target, "-q"]);
        for (left, right) in [(model, target.as_str()), (&target, &other)] {
            let report = json(&["diff", left, right]);
            // A state does not say which tensors are buffers, and is different for that.
            assert_eq!(report["metadata"], Json::Array(Vec::new()), "{report}");
        }
    }
}

#[test]
fn tensors_that_were_left_out_are_not_called_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (&golden("torch/bad/objects.pt"), &golden("torch/bad/nested.pt"));
    for flags in [&[][..], &["--no-metadata"]] {
        assert_eq!(code(&[&["diff", one, other], flags].concat()), 3);
        let report = json(&[&["diff", one, other, "--json"], flags].concat());
        assert_eq!((&report["same"], &report["left_out"]), (&false.into(), &2.into()), "{report}");
        let text = String::from_utf8(weighbridge(&[&["diff", one, other], flags].concat()).stdout).unwrap();
        assert!(text.contains("could not tell") && text.contains("2 objects omitted"), "{text}");
    }
    // Of the same bytes nothing can be different, whatever they are.
    for name in
        ["torch/bad/objects.pt", "torch/good/script.pt", "hdf5/good/types_latest.h5", "npz/good/object.npz"]
    {
        let copy = dir.path().join(Path::new(name).file_name().unwrap());
        fs::copy(golden(name), &copy).unwrap();
        let report = json(&["diff", &golden(name), copy.to_str().unwrap(), "--json"]);
        assert_eq!((&report["same"], &report["left_out"]), (&true.into(), &0.into()), "{report}");
    }
}

#[test]
fn bytes_that_are_shared_on_one_side_are_a_note() {
    let folder = Folder::new();
    let (model, both) = (folder.model("a.pt"), folder.path("b.pt"));
    let (tied, untied) = (folder.path("tied.pt"), folder.path("untied.pt"));
    let renamed = folder.path("renamed.pt");
    ok(&["edit", &model, &renamed, "--rename", "w1=w3", "-q"]);
    ok(&["merge", &model, &renamed, "-o", &both, "--prefer", "first", "-q"]);
    let text = ok(&["edit", &both, &tied, "--tie", "w3=w1", "--keep", "w*"]);
    assert!(text.contains("  now shares storage with w1"), "{text}");
    let text = ok(&["edit", &tied, &untied, "--untie", "w3"]);
    assert!(text.contains("  no longer shares storage with w1"), "{text}");
    let note = |left: &str, right: &str| {
        let report = json(&["diff", left, right]);
        assert_eq!(report["same"], true, "{report}");
        report["notes"].as_array().unwrap().first().map(|note| note.as_str().unwrap().to_owned())
    };
    let on = |side: &str| Some(format!("storage is shared on the {side} side only: w3 with w1"));
    assert_eq!(note(&tied, &untied), on("left"));
    assert_eq!(note(&untied, &tied), on("right"));
    assert_eq!(note(&tied, &tied), None);
    // A form that cannot share keeps the values, and is no difference.
    let npz = folder.path("tied.npz");
    ok(&["convert", &tied, &npz, "-q"]);
    assert_eq!(json(&["diff", &tied, &npz])["same"], true);
    let shown = ok(&["diff", &tied, &untied]);
    assert!(
        shown.contains("note storage is shared on the left side only") && shown.contains("equal"),
        "{shown}"
    );
    assert!(ok(&["diff", &tied, &untied, "--markdown"]).contains("**Notes**"));
}

#[test]
fn a_damaged_tensor_leaves_the_others_to_be_compared() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (whole, damaged) = (path("whole.npz"), path("damaged.npz"));
    ok(&["convert", &golden("safetensors/good/mlp.safetensors"), &whole, "-q"]);
    let mut bytes = fs::read(&whole).unwrap();
    let report = json(&["ls", &whole, "--json"]);
    let names: Vec<&str> =
        report["tensors"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    // The last byte of the first member is one of its elements.
    let next = bytes.windows(4).enumerate().filter(|(_, w)| w == b"PK\x03\x04").nth(1).unwrap().0;
    bytes[next - 1] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    for (left, right) in [(&whole, &damaged), (&damaged, &whole)] {
        assert_eq!(code(&["diff", left, right]), 3);
        let report = json(&["diff", left, right, "--json", "--all"]);
        assert_eq!(
            (&report["same"], &report["different"], &report["unread"]),
            (&false.into(), &false.into(), &1.into())
        );
        let pairs = report["pairs"].as_array().unwrap();
        assert_eq!((pairs.len(), pairs[0]["status"].as_str()), (names.len(), Some("unread")));
        assert_eq!(pairs[0]["unread"]["code"], "crc-mismatch");
        assert!(pairs[0]["unread"]["file"].as_str().unwrap().ends_with("damaged.npz"), "{report}");
        assert!(pairs[1..].iter().all(|pair| pair["status"] == "same"), "{report}");
        let text = String::from_utf8(weighbridge(&["diff", left, right]).stdout).unwrap();
        assert!(text.contains("could not tell") && text.contains("1 unreadable"), "{text}");
        assert!(text.contains("crc-mismatch: ") && text.contains("damaged.npz, offset "), "{text}");
    }
}

#[test]
fn versions_of_one_folder() {
    let model = &golden("biggraph/set1/ckpt_std_zip");
    assert_eq!(code(&["diff", model, model, "--at", "4", "--right-at", "4"]), 0);
    let report = json(&["diff", model, model, "--right-at", "4", "--json"]);
    let version = report["metadata"].as_array().unwrap().iter().find(|change| change["what"] == "version");
    let version = version.unwrap_or_else(|| panic!("{report}"));
    assert_eq!((&version["left"], &version["right"]), (&Json::from("6"), &Json::from("4")));
    let table =
        report["pairs"].as_array().unwrap().iter().find(|pair| pair["left"] == "embeddings.user").unwrap();
    assert_eq!(table["status"], "values");
}

/// Names as of another framework, and matrices turned: a file of rules says how the two belong together.
#[test]
fn rules_say_how_the_left_side_is_to_be_read() {
    let folder = Folder::new();
    let (left, right) = (folder.model("a.safetensors"), folder.path("b.safetensors"));
    let rules = folder.file(
        "rules.toml",
        "[[rule]]\nrename-regex = '([wb])(\\d)=layer{2}.{1}'\n[[rule]]\ntranspose = \"*.w\"\n",
    );
    ok(&["edit", &left, &right, "--rules", &rules, "-q"]);
    assert_eq!(code(&["diff", &left, &right]), 1);
    assert_eq!(code(&["diff", &left, &right, "--rules", &rules]), 0);
    // By an expression alone names fit, and shapes do not.
    let expression = r"([wb])(\d)=layer{2}.{1}";
    let report = json(&["diff", &left, &right, "--rename-regex", expression]);
    assert_eq!(report["left_alone"], Json::Array(Vec::new()), "{report}");
    assert_eq!(report["pairs"][0]["status"], "shape");
    // After the rules and plain renames, upon what they left.
    let words = ["diff", &left, &right, "--rules", &rules, "--rename", "layer1=first"];
    assert_eq!(code(&words), 1);
    assert_eq!(code(&[&words[..], &["--rename-regex", r"first\.(.*)=layer1.{1}"]].concat()), 0);
    let unused = ["diff", &left, &right, "--rename-regex", "x(.*)=y"];
    assert_eq!(refused(&unused), "no-match");
    let report = json(&[&unused[..], &["--lenient-rules"]].concat());
    assert!(
        report["notes"][0].as_str().unwrap().starts_with("rule-unused: rename-regex x(.*)=y"),
        "{report}"
    );
    // A plain rename that fits nothing is a note as well, in `diff` and in `convert`.
    for words in [&["diff", &left, &left][..], &["convert", &left, &folder.path("d.npz")]] {
        let words = [words, &["--rename", "absent=there"]].concat();
        assert_eq!(refused(&words), "no-match");
        let done = json(&[&words[..], &["--lenient-rules"]].concat());
        assert!(
            done["notes"].to_string().contains("rename absent=there: no tensor matches the rule"),
            "{done}"
        );
    }
    // What fits is done all the same.
    let words =
        ["diff", &left, &left, "--rename", "absent=there", "--rename", "w1=renamed", "--lenient-rules"];
    assert_eq!(json(&words)["pairs"][0]["left"], "renamed");
    let more = folder.file("more.toml", "[[rule]]\ndrop = \"x*\"\n");
    for words in [&["diff", &left, &left][..], &["convert", &left, &folder.path("c.npz")]] {
        let words = [words, &["--rules", &more]].concat();
        let error = error(&words);
        assert_eq!(error["code"], "no-match", "{error}");
        // What the hint says can be done.
        assert!(
            error["hint"].as_str().unwrap().ends_with("; --lenient-rules skips rules without effect"),
            "{error}"
        );
        let done = json(&[&words[..], &["--lenient-rules"]].concat());
        assert!(done["notes"].to_string().contains("rule-unused"), "{done}");
    }
    assert_eq!(refused(&["diff", &left, &right, "--rules", &folder.file("e.toml", "")]), "bad-rule");
}

#[test]
fn a_type_alone_can_be_no_difference() {
    let folder = Folder::new();
    let (model, wide, half) = (folder.model("a.safetensors"), folder.path("w.npz"), folder.path("h.npz"));
    ok(&["convert", &model, &wide, "--cast", "f64", "-q"]);
    ok(&["convert", &model, &half, "--cast", "bf16", "--to", "torch", "-q"]);
    let report = json(&["diff", &model, &wide]);
    assert_eq!((&report["same"], &report["pairs"][0]["status"]), (&false.into(), &"form".into()));
    let report = json(&["diff", &model, &wide, "--ignore-dtype", "--all"]);
    assert_eq!((&report["same"], &report["pairs"][0]["status"]), (&true.into(), &"close".into()), "{report}");
    assert_eq!(report["pairs"][0]["changes"], Json::Array(Vec::new()));
    assert_eq!(code(&["diff", &wide, &model, "--ignore-dtype"]), 0);
    // What was rounded is another value all the same, unless that is near enough.
    assert_eq!(code(&["diff", &model, &half, "--ignore-dtype"]), 1);
    assert_eq!(code(&["diff", &model, &half, "--rtol", "0.004"]), 1);
    assert_eq!(code(&["diff", &model, &half, "--ignore-dtype", "--rtol", "0.004"]), 0);
    assert_eq!(code(&["diff", &model, &half, "--ignore-dtype", "--names-only"]), 0);
}

/// The versions of modules that PyTorch keeps have a place in its own files alone.
#[test]
fn metadata_of_one_format_is_no_difference_unless_asked_for() {
    let folder = Folder::new();
    let source = golden("torch/good/module_state.pt");
    let (bridge, other) = (folder.path("a.safetensors"), folder.path("b.pt"));
    for target in [&bridge, &other] {
        ok(&["edit", &source, target, "--remove-metadata", "_metadata", "-q"]);
    }
    for sides in [[&source, &bridge], [&bridge, &source]] {
        let words = ["diff", sides[0], sides[1]];
        let report = json(&words);
        assert_eq!((code(&words), &report["same"]), (0, &true.into()), "{report}");
        assert!(report["notes"][0].as_str().unwrap().contains("_metadata"), "{report}");
        assert_eq!(code(&[&words[..], &["--metadata"]].concat()), 1);
        assert_eq!(code(&[&words[..], &["--metadata", "--no-metadata"]].concat()), 2);
    }
    // Both of these could hold it.
    assert_eq!(code(&["diff", &source, &other]), 1);
    // What both say is compared, whatever the formats.
    let carried = folder.path("c.safetensors");
    ok(&["convert", &source, &carried, "-q"]);
    assert_eq!(json(&["diff", &source, &carried])["notes"], Json::Array(Vec::new()));
}
