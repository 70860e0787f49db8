//! The command as a user meets it: what it prints, what it writes, how it ends.

use crate::support::{command, complaint, json, ok, testdata, text, text_of as path, weighbridge};
use serde_json::Value as Json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

#[test]
fn the_demo_does_the_main_job() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("demo");
    // Twice: a second run replaces what the first one wrote.
    for _ in 0..2 {
        let shown = ok(&["demo", path(&folder)]);
        assert!(
            shown.contains("conv1.weight") && shown.contains("Adam.m1") && shown.contains("The files are in")
        );
    }
    for name in
        ["model.pt", "model.safetensors", "mlp.model", "paddle/model.pdmodel", "graph/model/config.json"]
    {
        assert!(folder.join(name).is_file(), "{name}");
    }
    let document = json(&["demo", path(&folder), "--json"]);
    assert_eq!(document["files"].as_array().unwrap().len(), 11);
}

#[test]
fn the_demo_replaces_only_its_own_files() {
    let dir = tempfile::tempdir().unwrap();
    for (name, others) in [("mlp.model", false), ("model.safetensors", false), ("model.pt", true)] {
        let folder = dir.path().join(name);
        if others {
            ok(&["demo", path(&folder)]);
        } else {
            fs::create_dir(&folder).unwrap();
        }
        fs::write(folder.join(name), b"precious").unwrap();
        let output = weighbridge(&["demo", path(&folder)]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert_eq!(fs::read(folder.join(name)).unwrap(), b"precious");
    }
}

/// A file of primitiv.
fn golden(name: &str) -> PathBuf {
    testdata("primitiv/good").join(name)
}

/// The keys of an object, sorted.
fn keys(json: &Json) -> Vec<&str> {
    let mut keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn the_json_of_ls_has_its_schema() {
    let model = golden("trained/trained_mlp_a.model");
    let document = json(&["ls", path(&model), "--json", "--hash"]);
    assert_eq!(keys(&document), ["format", "kind", "metadata", "notes", "path", "tensors"]);
    assert_eq!((&document["format"], &document["kind"]), (&Json::from("primitiv"), &Json::from("model")));
    let tensors = document["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 18);
    for tensor in tensors {
        let mut expected = vec!["bytes", "dtype", "name", "order", "path", "role", "sha256", "shape"];
        if tensor["role"] == "optimizer" {
            expected.push("slot");
        }
        assert_eq!(keys(tensor), expected);
        assert_eq!(tensor["sha256"].as_str().unwrap().len(), 64);
    }
    let weights = tensors.iter().find(|t| t["name"] == "fc1.w").unwrap();
    assert_eq!(weights["path"], serde_json::json!(["fc1", "w"]));
    assert_eq!(weights["dtype"], "f32");
    assert_eq!(weights["shape"], serde_json::json!([12, 2]));
    assert_eq!(weights["order"], "column");
    assert_eq!(weights["bytes"], 96);
    assert_eq!(weights["role"], "parameter");
    let state = tensors.iter().find(|t| t["name"] == "fc1.w/Adam.m1").unwrap();
    assert_eq!((&state["path"], &state["slot"]), (&weights["path"], &Json::from("Adam.m1")));
}

#[test]
fn batches_and_odd_names_in_json() {
    let tensors = |name: &str| json(&["ls", path(&golden(name)), "--json"])["tensors"].clone();
    let batch = tensors("tensor/tensor_batch_a.tensor");
    let last = batch[0]["shape"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(batch[0]["batch"], last);
    assert_eq!(batch[0]["path"], serde_json::json!(["value"]));
    let odd = tensors("model/model_non_utf8_names_a.model");
    assert_eq!(odd[1]["path"], serde_json::json!([{ "hex": "c0af" }]));
}

#[test]
fn optimizer_and_shape_files_speak_in_metadata() {
    let info = json(&["ls", path(&golden("optimizer/optimizer_adam_a.optimizer")), "--json"]);
    assert_eq!(info["tensors"], serde_json::json!([]));
    assert_eq!(info["metadata"]["uint_configs"]["Optimizer.epoch"], 0);
    assert_eq!(info["metadata"]["float_configs"]["Adam.beta1"], 0.9);
    let info = json(&["ls", path(&golden("shape/shape_matrix_a.shape")), "--json"]);
    assert_eq!(info["metadata"]["dims"], serde_json::json!([3, 5]));
    assert_eq!(info["metadata"]["batch"], 1);
}

#[test]
fn hashes_are_the_same_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let model = golden("model/model_nested_adam_a.model");
    let hashes = |file: &Path| -> Vec<(Json, Json)> {
        let document = json(&["ls", path(file), "--json", "--hash"]);
        let pair = |t: &Json| (t["name"].clone(), t["sha256"].clone());
        document["tensors"].as_array().unwrap().iter().map(pair).collect()
    };
    let truth = hashes(&model);
    assert!(truth.len() > 60);
    for name in ["x.safetensors", "x.npz", "x.model"] {
        let target = dir.path().join(name);
        ok(&["convert", path(&model), path(&target)]);
        assert_eq!(hashes(&target), truth, "{name}");
    }
}

#[test]
fn show_prints_slices() {
    let model = golden("model/model_two_level_a.model");
    assert_eq!(ok(&["show", path(&model), "p"]), "[[1. 3.]\n [2. 4.]]\nf32 [2, 2]\n");
    assert_eq!(ok(&["show", path(&model), "sm.p[1,:]"]), "[6. 8.]\nf32 [2]\n");
    let document = json(&["show", path(&model), "[\"sm\",\"p\"][:,1]", "--json"]);
    assert_eq!(document["values"], serde_json::json!([7.0, 8.0]));
    let output = weighbridge(&["show", path(&model), "q"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("did you mean"));
}

#[test]
fn stats_draw_a_histogram() {
    let model = golden("trained/trained_mlp_a.model");
    let shown = ok(&["stats", path(&model), "fc1.w"]);
    assert!(shown.contains("mean") && shown.contains('█'), "{shown}");
    let all = ok(&["stats", path(&model)]);
    assert!(all.contains("fc1.w") && all.contains("fc3.b"));
    let document = json(&["stats", path(&model), "fc1.w", "--json"]);
    assert_eq!(document["tensors"][0]["count"], 24);
}

#[test]
fn a_plan_is_printed_and_nothing_written() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("x.safetensors");
    let model = golden("trained/trained_mlp_a.model");
    let shown = ok(&["convert", path(&model), path(&target), "--plan"]);
    assert!(shown.lines().any(|line| line.contains("f32") && line.ends_with("fc1.w")), "{shown}");
    let document = json(&["convert", path(&model), path(&target), "--plan", "--json"]);
    assert_eq!(document["files"][0]["bytes"], document["bytes"]);
    let segments = document["files"][0]["segments"].as_array().unwrap();
    let action = |tensor: &str| {
        let segment = segments.iter().find(|segment| segment["tensor"] == tensor);
        segment.unwrap_or_else(|| panic!("{tensor}: {document}"))["action"].clone()
    };
    // A matrix changes its order, a vector does not.
    assert_eq!((action("fc1.w"), action("fc1.b")), ("transform".into(), "copy".into()));
    assert!(!target.exists());
}

#[test]
fn a_plan_says_that_the_target_is_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let model = golden("trained/trained_xor_a.model");
    let code = |target: &Path, more: &[&str]| {
        json(&[&["convert", path(&model), path(target), "--plan", "--json"], more].concat())["error"]["code"]
            .clone()
    };
    let target = dir.path().join("x.npz");
    fs::write(&target, "old").unwrap();
    assert_eq!(code(&target, &[]), "exists");
    assert_eq!(code(&target, &["--force"]), Json::Null);
    assert_eq!(code(&dir.path().join("none/x.npz"), &[]), "not-found");
    assert_eq!(code(dir.path(), &["--to", "npz", "--force"]), "not-a-file");
    assert_eq!(fs::read(&target).unwrap(), b"old");
}

#[test]
fn casts_round_as_they_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let model = golden("trained/trained_xor_a.model");
    let target = dir.path().join("x.safetensors");
    let mut worst = Vec::new();
    for rounding in ["nearest", "paddle-3.3", "paddle-2.6"] {
        let words =
            ["convert", path(&model), path(&target), "--cast", "bf16", "--rounding", rounding, "--force"];
        let document = json(&[&words[..], &["--json"]].concat());
        assert_eq!(document["files"][0]["bytes"], document["bytes"]);
        worst.push(document["casts"]["w1"]["worst_error"].as_f64().unwrap());
    }
    assert_eq!(worst[0], worst[1]);
    assert!(worst[2] > worst[0] && worst[0] > 0.0, "{worst:?}");
    for words in [&["--rounding", "paddle-2.6"][..], &["--cast", "f16", "--rounding", "up"]] {
        let output = weighbridge(&[&["convert", path(&model), path(&target), "--force"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn losses_are_said_and_can_be_denied() {
    let dir = tempfile::tempdir().unwrap();
    let model = golden("trained/trained_xor_a.model");
    let target = dir.path().join("x.safetensors");
    let shown = ok(&["convert", path(&model), path(&target), "--cast", "f16"]);
    assert!(shown.contains("loss rounding: b1, b2, w1 and 1 more: f32 values are rounded to f16"), "{shown}");
    let output =
        weighbridge(&["convert", path(&model), path(&target), "--cast", "f16", "--force", "--deny-loss"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("losses are denied"));
    ok(&["convert", path(&model), path(&target), "--force", "--deny-loss"]);
}

#[test]
fn targets_are_safe() {
    let dir = tempfile::tempdir().unwrap();
    let model = golden("trained/trained_xor_a.model");
    let target = dir.path().join("x.npz");
    ok(&["convert", path(&model), path(&target)]);
    let output = weighbridge(&["convert", path(&model), path(&target)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("--force"));
    let before = fs::read(&target).unwrap();
    ok(&["convert", path(&model), path(&target), "--force"]);
    assert!(fs::read(&target).unwrap() == before, "the same input gives the same bytes");
    // Onto itself, in another form: read whole, then replaced.
    let own = dir.path().join("own.model");
    fs::copy(&model, &own).unwrap();
    ok(&["convert", path(&own), path(&own), "--to", "safetensors", "--force"]);
    assert_eq!(json(&["ls", path(&own), "--json"])["format"], "safetensors");
}

#[test]
fn errors_are_clear_in_text_and_json() {
    let dir = tempfile::tempdir().unwrap();
    // An archive of one empty file `a`: its head, the directory of one entry, and the end.
    let head = [&b"PK\x03\x04"[..], &[0; 22], &[1, 0, 0, 0], b"a"].concat();
    let directory = [&b"PK\x01\x02"[..], &[0; 24], &[1, 0], &[0; 16], b"a"].concat();
    let end = [&b"PK\x05\x06"[..], &[0, 0, 0, 0, 1, 0, 1, 0, 47, 0, 0, 0, 31, 0, 0, 0, 0, 0]].concat();
    let cases: [(&str, &[u8], &str, &str); 7] = [
        ("empty", b"", "empty-file", "empty"),
        ("lfs", b"version https://git-lfs.github.com/spec/v1\n", "unknown-format", "Git LFS"),
        ("zip", &[&head[..], &directory, &end].concat(), "unknown-format", "PyTorch"),
        ("cut.zip", &head, "truncated", "is truncated"),
        (
            "cut.model",
            &fs::read(golden("trained/trained_xor_a.model")).unwrap()[..100],
            "truncated",
            "ends within",
        ),
        ("html", b"<!DOCTYPE html>", "unknown-format", "web page"),
        ("evil\x1b[2J", b"garbage!", "unknown-format", "--from"),
    ];
    for (name, bytes, code, hint) in cases {
        let file = dir.path().join(name);
        fs::write(&file, bytes).unwrap();
        for verb in ["info", "ls"] {
            let output = weighbridge(&[verb, path(&file)]);
            assert_eq!(output.status.code(), Some(2));
            assert_eq!(text(&output), "");
            assert!(complaint(&output).contains(hint), "{}", complaint(&output));
            assert!(!complaint(&output).contains("\u{1b}[2J"));
            let output = weighbridge(&[verb, path(&file), "--json"]);
            assert_eq!(output.status.code(), Some(2));
            let error = serde_json::from_slice::<Json>(&output.stdout).unwrap()["error"].clone();
            assert_eq!(error["code"], code);
            for key in ["message", "file", "offset", "tensor", "hint"] {
                assert!(error.get(key).is_some(), "{key}");
            }
        }
    }
    for missing in [dir.path().join("none"), dir.path().to_path_buf()] {
        assert_eq!(weighbridge(&["ls", path(&missing)]).status.code(), Some(2));
    }
    let output = weighbridge(&["ls", "--json", "--nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(serde_json::from_slice::<Json>(&output.stdout).unwrap()["error"]["code"], "bad-arguments");
}

#[test]
fn names_cannot_steer_a_terminal() {
    let shown = ok(&["ls", path(&golden("model/model_odd_names_a.model"))]);
    let plain = |c: char| c == '\n' || !c.is_control();
    assert!(shown.chars().all(plain), "{shown:?}");
    let tree = ok(&["ls", "--tree", path(&golden("model/model_odd_names_a.model"))]);
    assert!(tree.chars().all(plain), "{tree:?}");
}

#[test]
fn colours_only_where_they_are_wanted() {
    let model = golden("trained/trained_xor_a.model");
    assert!(!ok(&["ls", path(&model)]).contains('\u{1b}'));
    assert!(ok(&["ls", path(&model), "--color", "always"]).contains('\u{1b}'));
    assert!(!ok(&["ls", path(&model), "--color", "never"]).contains('\u{1b}'));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    // Enough output to fill a pipe.
    let names = golden("model/model_long_names_b.model");
    let mut child = command(&["ls", path(&names), "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    drop(dir);
}

#[test]
fn a_verdict_outlives_a_closed_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let bad = dir.path().join("cut.model");
    let model = fs::read(golden("trained/trained_xor_a.model")).unwrap();
    fs::write(&bad, &model[..model.len() - 1]).unwrap();
    let good = golden("trained/trained_xor_a.model");
    let other = dir.path().join("other.model");
    ok(&["convert", path(&good), path(&other), "--rename", "=net"]);
    for (words, code) in [
        (&["verify", path(&bad)][..], 1),
        (&["verify", path(&good)], 0),
        (&["scan", path(&bad)], 3),
        (&["ls", path(&good)], 0),
        (&["diff", path(&good), path(&other)], 1),
        (&["diff", path(&good), path(&good)], 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = command(words).stdout(writer).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{words:?}");
    }
}

#[test]
fn completions_and_manual_are_made() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(ok(&["completions", shell]).contains("weighbridge"));
    }
    assert!(ok(&["man"]).contains(".TH weighbridge"));
    assert!(ok(&["man", "convert"]).contains("deny\\-loss"));
    assert_eq!(weighbridge(&["man", "nope"]).status.code(), Some(2));
}

#[test]
fn help_shows_examples() {
    for verb in ["info", "ls", "show", "stats", "convert", "verify", "diff", "scan", "program"] {
        assert!(ok(&[verb, "--help"]).contains("Example"), "{verb}");
    }
}

/// Values that are odd are no fault of the file, unless somebody says that they are.
#[test]
fn values_that_are_not_finite_can_be_denied() {
    let dir = tempfile::tempdir().unwrap();
    for (value, denied) in [(f32::NAN, Some("nan")), (f32::INFINITY, Some("infinite")), (1.0, None)] {
        let header = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} "#;
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &value.to_le_bytes()].concat();
        let file = dir.path().join("a.safetensors");
        fs::write(&file, bytes).unwrap();
        assert_eq!(weighbridge(&["verify", path(&file), "--values"]).status.code(), Some(0));
        let words = ["verify", path(&file), "--deny-nonfinite", "--json"];
        let document = json(&words);
        assert_eq!(weighbridge(&words).status.code(), Some(i32::from(denied.is_some())));
        let errors = document["findings"].as_array().unwrap().iter().filter(|f| f["severity"] == "error");
        assert_eq!(errors.map(|f| f["code"].as_str().unwrap()).collect::<Vec<_>>(), Vec::from_iter(denied));
        assert!(document["checked"].as_array().unwrap().contains(&Json::from("values")));
    }
}

#[test]
fn verify_says_what_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let model = golden("trained/trained_xor_a.model");
    let shown = ok(&["verify", path(&model)]);
    assert!(shown.ends_with("verdict   sound, but its tensors have no checksums of their own\n"), "{shown}");
    assert!(shown.contains("checked   opening, names, extents, bytes, format\n"), "{shown}");
    let ranges = ok(&["verify", path(&model), "--account"]);
    assert!(ranges.contains("offset  bytes  use     what      tensor\n"), "{ranges}");
    assert!(ranges.lines().any(|l| l.contains("tensor  elements  w1")), "{ranges}");

    let document = json(&["verify", path(&model), "--values", "--json"]);
    assert_eq!(keys(&document), ["checked", "files", "findings", "format", "kind", "path", "verdict"]);
    assert_eq!((&document["verdict"], &document["kind"]), (&Json::from("sound"), &Json::from("model")));
    assert!(document["checked"].as_array().unwrap().contains(&Json::from("values")));
    let sums = ["bytes", "header_bytes", "padding_bytes", "path", "tensor_bytes", "unknown_bytes"];
    assert_eq!(keys(&document["files"][0]), sums);
    assert_eq!(document["files"][0]["bytes"], fs::metadata(&model).unwrap().len());
    let document = json(&["verify", path(&model), "--account", "--json"]);
    let range = &document["files"][0]["ranges"][1];
    assert_eq!(keys(range), ["bytes", "offset", "tensor", "use", "what"]);

    let bytes = fs::read(&model).unwrap();
    let longer = dir.path().join("longer.model");
    fs::write(&longer, [bytes.as_slice(), b"more"].concat()).unwrap();
    let output = weighbridge(&["verify", path(&longer)]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output);
    assert!(shown.starts_with("error     trailing-bytes: "), "{shown}");
    assert!(shown.contains(&format!("          offset   {} (0x", bytes.len())), "{shown}");
    assert!(shown.ends_with("verdict   unsound\n"), "{shown}");
    let output = weighbridge(&["verify", path(&longer), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let document: Json = serde_json::from_slice(&output.stdout).unwrap();
    let finding = &document["findings"][0];
    assert_eq!(keys(finding), ["code", "file", "hint", "offset", "severity", "tensor", "text"]);
    assert_eq!((&finding["code"], &finding["offset"]), (&"trailing-bytes".into(), &bytes.len().into()));
}

#[test]
fn verify_ends_with_the_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let file = dir.path().join(name);
        fs::write(&file, bytes).unwrap();
        file
    };
    let model = fs::read(golden("trained/trained_xor_a.model")).unwrap();
    let npy = |name: &str| weighbridge_testkit::testdata("npy/bad").join(name);
    for (path_of, code) in [
        (golden("trained/trained_mlp_a.model"), 0),
        (file("cut.model", &model[..model.len() - 1]), 1),
        (file("empty", b""), 1),
        (file("evil\x1b[2J", b"garbage!"), 3),
        (npy("object.npy"), 3),
        (npy("trailing.npy"), 1),
        (dir.path().join("none"), 2),
        // The one model in it is cut.
        (dir.path().to_path_buf(), 1),
    ] {
        for more in [&["verify"][..], &["verify", "--json", "--values", "--account"]] {
            let output = weighbridge(&[more, &[path(&path_of)]].concat());
            assert_eq!(output.status.code(), Some(code), "{path_of:?}");
            assert!(!text(&output).contains('\u{1b}'));
        }
    }
    let output = weighbridge(&["verify", path(&golden("trained/trained_mlp_a.model")), "--program", "none"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn files_without_a_program_say_so() {
    let model = golden("trained/trained_xor_a.model");
    for form in [&[][..], &["--list"], &["--dot"]] {
        let output = weighbridge(&[&["program", path(&model)], form].concat());
        assert_eq!(output.status.code(), Some(2));
        let said = complaint(&output);
        assert!(
            said.contains("no program") && said.contains("primitiv model") && said.contains("hint:"),
            "{said}"
        );
    }
    assert_eq!(json(&["program", path(&model), "--json"])["error"]["code"], "no-program");
    assert_eq!(weighbridge(&["program", path(&model), "--list", "--dot"]).status.code(), Some(2));
}

/// The package of the command contains copies, since it is published without the rest of the repository.
#[test]
fn the_files_of_the_demo_are_the_samples() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("demo");
    let files = json(&["demo", path(&folder), "--json"])["files"].clone();
    for file in files.as_array().unwrap().iter().map(|file| file.as_str().unwrap()) {
        let name = Path::new(file).strip_prefix(&folder).unwrap();
        if name != Path::new("model.safetensors") {
            assert_eq!(fs::read(file).unwrap(), fs::read(testdata("samples").join(name)).unwrap(), "{file}");
        }
    }
    let golden = weighbridge_testkit::golden("primitiv/good/trained/trained_mlp_a.model");
    assert_eq!(fs::read(folder.join("mlp.model")).unwrap(), golden);
}
