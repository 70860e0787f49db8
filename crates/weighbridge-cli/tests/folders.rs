//! Folders with one model file in them, and with others beside it, as a user meets them.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Folder, code, command, golden, json, names, ok, refused};
use serde_json::Value as Json;
use std::fs;

/// A folder as Hugging Face's libraries write it.
fn hugging(folder: &Folder) -> String {
    let model = folder.path("hf");
    fs::create_dir(&model).unwrap();
    let source = folder.model("source.safetensors");
    fs::rename(source, format!("{model}/model.safetensors")).unwrap();
    fs::write(format!("{model}/config.json"), "{\"model_type\": \"bert\"}").unwrap();
    fs::write(format!("{model}/vocab.txt"), "1\t2\n3\t4\n").unwrap();
    model
}

#[test]
fn every_verb_takes_the_one_model_of_a_folder() {
    let folder = Folder::new();
    let hf = hugging(&folder);
    let file = format!("{hf}/model.safetensors");
    assert_eq!(names(&hf), names(&file));
    for verb in ["info", "stats", "scan", "verify"] {
        ok(&[verb, &hf]);
    }
    ok(&["diff", &hf, &file]);
    for (words, target) in [(["convert", &hf], "a.npz"), (["merge", &hf], "b.npz"), (["shard", &hf], "cut")] {
        let target = folder.path(target);
        let o = if words[0] == "merge" { &["-o"][..] } else { &[] };
        ok(&[&words[..], o, &[&target]].concat());
        ok(&["diff", &file, &target, "--no-metadata"]);
    }
    // From within, every file is one file.
    let inside = command(&["verify", ".", "--json"]).current_dir(&hf).output().unwrap();
    let report: Json = serde_json::from_slice(&inside.stdout).unwrap();
    let paths = |key: &str| -> Vec<_> {
        report[key].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect()
    };
    assert_eq!(
        (paths("files"), paths("other_files")),
        (vec!["model.safetensors"], vec!["config.json", "vocab.txt"])
    );
    // All files are sealed, and the tensors of the one.
    let manifest = folder.path("hf.manifest.json");
    let sealed = json(&["seal", &hf, "--json"]);
    assert_eq!(sealed["files"], 3);
    assert_eq!(sealed["tensors"].as_u64().unwrap(), names(&hf).len() as u64);
    assert_eq!(code(&["verify", &hf, "--manifest", &manifest]), 0);
    fs::write(format!("{hf}/config.json"), "{}").unwrap();
    assert_eq!(code(&["verify", &hf, "--manifest", &manifest]), 1);
    // In place it is the file that is edited.
    let error = &json(&["edit", &hf, "--in-place=rewrite", "--set-metadata", "a=b"])["error"];
    assert_eq!(error["code"], "not-a-file");
    assert!(error["hint"].as_str().unwrap().ends_with("hf/model.safetensors"), "{error}");
}

#[test]
fn of_several_models_none_is_guessed() {
    let folder = Folder::new();
    let two = folder.path("two");
    fs::create_dir(&two).unwrap();
    for name in ["encoder.safetensors", "decoder.safetensors"] {
        fs::copy(folder.model(name), format!("{two}/{name}")).unwrap();
    }
    for verb in ["ls", "info", "verify", "seal"] {
        let error = &json(&[verb, &two])["error"];
        assert_eq!(error["code"], "several-models", "{verb}");
        assert_eq!(error["found"], "decoder.safetensors, encoder.safetensors");
        let hint = error["hint"].as_str().unwrap();
        assert!(hint.contains("two/decoder.safetensors"), "{hint}");
        assert_eq!(hint.contains("--files-only"), verb == "seal", "{hint}");
    }
    assert_eq!(code(&["seal", &two, "--files-only"]), 0);
    assert_eq!(code(&["verify", &two, "--manifest", &folder.path("two.manifest.json")]), 0);
    fs::remove_file(format!("{two}/encoder.safetensors")).unwrap();
    assert_eq!(code(&["ls", &two]), 0);
    let part = format!("{two}/m-00001-of-00002.npy");
    fs::rename(format!("{two}/decoder.safetensors"), part).unwrap();
    fs::write(format!("{two}/README.md"), "r").unwrap();
    assert_eq!(refused(&["ls", &two]), "part-of-model");
}

#[test]
fn models_beside_the_one_that_is_taken_are_told() {
    let folder = Folder::new();
    let hf = hugging(&folder);
    let alone = ok(&["verify", &hf]);
    assert!(
        alone.contains("2 files of the folder are not part of the model") && alone.contains("config.json")
    );
    assert!(alone.trim_end().ends_with("sound"), "{alone}");
    fs::copy(golden("npz/good/stored.npz"), format!("{hf}/other.npz")).unwrap();
    let text = ok(&["verify", &hf]);
    assert!(text.contains("other-models") && text.contains("sound, of this model"), "{text}");
    let report = json(&["verify", &hf]);
    assert_eq!(report["verdict"], "sound");
    let others: Vec<_> = report["other_files"].as_array().unwrap().iter().map(|f| &f["model"]).collect();
    assert_eq!(others, [false, true, false]);
    let report = json(&["diff", &hf, &format!("{hf}/model.safetensors")]);
    assert_eq!(report["same"], true);
    assert!(report["notes"][0].as_str().unwrap().contains("other.npz"), "{report}");
    assert!(ok(&["ls", &hf]).contains("other-models"));
    // So are those beside a model of several files.
    let shards = folder.path("shards");
    ok(&["shard", &hf, &shards]);
    fs::copy(golden("npz/good/stored.npz"), format!("{shards}/other.npz")).unwrap();
    assert!(ok(&["diff", &shards, &shards]).contains("other.npz"));
}
