//! Folders with one model file in them, and with others beside it, as a user meets them.

use crate::support::{self, Folder, code, coded_json, command, golden, json, names, ok, refused};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

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

/// A folder of arrays is one model, whatever else was put into it: a description, what a system leaves behind, a seal.
#[test]
fn a_folder_of_arrays_may_hold_other_files() {
    let folder = Folder::new();
    // With an index, as roles of tensors need one; and without, as plain arrays need none.
    let (rich, plain) = (folder.path("rich"), folder.path("plain"));
    ok(&["convert", &folder.model("source.safetensors"), &rich, "--to", "npy"]);
    fs::create_dir(&plain).unwrap();
    for name in ["w1.npy", "w2.npy"] {
        fs::copy(golden("npy/good/float64.npy"), format!("{plain}/{name}")).unwrap();
    }
    let index = |model: &str| Path::new(model).join("weighbridge.index.json").exists();
    assert!(index(&rich) && !index(&plain));
    for model in [&rich, &plain] {
        let before = names(model);
        for stranger in ["README.md", ".DS_Store", "LICENSE"] {
            fs::write(format!("{model}/{stranger}"), "words").unwrap();
        }
        assert_eq!(names(model), before);
        let seal = format!("{model}/seal.json");
        ok(&["seal", model, "-o", &seal]);
        ok(&["seal", model, "-o", &seal, "--force"]);
        assert_eq!(names(model), before);
        let report = json(&["verify", model, "--manifest", &seal]);
        assert_eq!((&report["verdict"], &report["format"]), (&"sound".into(), &"npy".into()), "{report}");
        let others: Vec<&str> =
            report["other_files"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect();
        let own = |name: &&str| {
            ["README.md", ".DS_Store", "LICENSE", "seal.json"].iter().any(|n| name.ends_with(n))
        };
        assert!(others.len() == 4 && others.iter().all(own), "{others:?}");
        // They are not lost where the model is written to its own place.
        assert_eq!(refused(&["convert", model, model, "--to", "npy", "--force"]), "folder-has-other-files");
    }
    // A model of another format beside plain arrays leaves open which one is meant.
    folder.model("plain/x.safetensors");
    assert_eq!(refused(&["ls", &plain]), "several-models");
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
    assert!(alone.contains("verdict   sound"), "{alone}");
    fs::copy(golden("npz/good/stored.npz"), format!("{hf}/other.npz")).unwrap();
    let text = ok(&["verify", &hf]);
    assert!(
        text.contains("other-models")
            && text.contains("(this model only; the folder contains another model file)"),
        "{text}"
    );
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

/// All files below a folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for item in fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => _ = found.insert(path.clone(), fs::read(&path).unwrap()),
        }
    }
    found
}

/// A copy of the golden folder of that name, without what tells of it.
fn copied(folder: &Folder, golden_name: &str, name: &str) -> String {
    let (from, to) = (golden(golden_name), folder.path(name));
    for (path, bytes) in files(Path::new(&from)) {
        let target = Path::new(&to).join(path.strip_prefix(&from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, bytes).unwrap();
    }
    _ = fs::remove_file(format!("{to}/expected.json"));
    to
}

/// Ways to write a folder in its own place.
fn ways(model: &str) -> Vec<(&'static str, Vec<&str>)> {
    let edit = vec!["edit", model, "--in-place=rewrite", "--set-metadata", "a=b"];
    let merge = vec!["merge", model, "-o", model, "-f", "--to", "safetensors", "--kind", "sharded"];
    let mut ways = vec![("shard", vec!["shard", model, model, "-f"]), ("edit", edit), ("merge", merge)];
    let sharded = vec!["convert", model, model, "-f", "--to", "safetensors", "--kind", "sharded"];
    ways.push(("convert", sharded));
    for format in ["biggraph", "paddle", "npy", "safetensors"] {
        ways.push(("convert", vec!["convert", model, model, "-f", "--to", format]));
    }
    ways
}

/// Opening a folder looks into files that are not of its model: they do not go with it.
#[test]
fn no_file_beside_the_model_is_lost_where_a_folder_is_written_to_its_own_place() {
    let folder = Folder::new();
    let source = folder.model("source.safetensors");
    let (one, many, arrays) = (folder.path("one"), folder.path("many"), folder.path("arrays"));
    fs::create_dir(&one).unwrap();
    fs::copy(&source, format!("{one}/model.safetensors")).unwrap();
    ok(&["shard", &source, &many, "--max-shard-size", "32B"]);
    ok(&["convert", &source, &arrays, "--to", "npy"]);
    let state = copied(&folder, "paddle/good/p262/split_big_param", "state");
    let program = copied(&folder, "paddle/good/p262/cnn_legacy_combined", "program");
    let tables = copied(&folder, "biggraph/set1/ckpt_dyn_affine", "tables");
    let edges = copied(&folder, "biggraph/set1/std/edges", "edges");
    let beside: [(&str, &[u8]); 6] = [
        ("tokenizer_config.json", b"{}"),
        ("generation_config.json", b"{\"a\": 1}"),
        ("tokenizer.model", b"\n\x0e\n\x05<unk>"),
        ("LICENSE", b"MIT"),
        ("a.bin", b"bytes"),
        ("sub/words", b"1\t2\n3\t4\n"),
    ];
    for model in [&one, &many, &arrays, &state, &program, &tables, &edges] {
        let name = |word: &str| format!("{model}/{word}");
        fs::create_dir(name("sub")).unwrap();
        for (word, bytes) in beside.iter().chain([&("config.json", &b"{}"[..])]) {
            if !Path::new(&name(word)).exists() {
                fs::write(name(word), bytes).unwrap();
            }
        }
        let before = files(Path::new(model));
        for (verb, words) in ways(model) {
            let (code, report) = coded_json(&words);
            assert_eq!(code, 2, "{words:?}: {report}");
            assert!(files(Path::new(model)) == before, "{words:?}");
            let whole = [&many, &tables, &edges].contains(&model);
            if verb == "shard" || verb == "edit" && whole {
                assert_eq!(report["error"]["code"], "folder-has-other-files", "{words:?}: {report}");
            }
        }
        beside.iter().for_each(|(word, _)| fs::remove_file(name(word)).unwrap());
        fs::remove_dir(name("sub")).unwrap();
    }
    // What belongs to the model and has no place in shards stays as well: files around the tables, programs.
    let left = |model: &str| -> Vec<String> {
        let error = &json(&["shard", model, model, "-f"])["error"];
        assert_eq!(error["code"], "folder-has-other-files", "{error}");
        let mut names: Vec<_> = error["found"].as_str().unwrap().split(", ").map(str::to_owned).collect();
        names.sort();
        names
    };
    assert_eq!(left(&tables), ["config.json", "training_stats.json"]);
    fs::remove_file(format!("{program}/config.json")).unwrap();
    assert_eq!(left(&program), ["__model__"]);
    // Where there is nothing else, the model takes its own place.
    for model in [&one, &many, &arrays, &state] {
        fs::remove_file(format!("{model}/config.json")).unwrap();
        let before = names(model);
        ok(&["shard", model, model, "-f"]);
        assert_eq!(fs::read_dir(model).unwrap().count(), 2, "{model}");
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        assert_eq!(sorted(names(model)), sorted(before));
    }
    // Code in a file of PyTorch has no place in shards.
    let code = folder.path("code");
    fs::create_dir(&code).unwrap();
    fs::copy(golden("torch/good/script.pt"), format!("{code}/model.pt")).unwrap();
    let before = files(Path::new(&code));
    let error = &json(&["shard", &code, &code, "-f"])["error"];
    assert!(error["code"] == "loss-denied" && files(Path::new(&code)) == before, "{error}");
    ok(&["shard", &code, &folder.path("elsewhere")]);
    ok(&["edit", &tables, "--in-place=rewrite", "--set-metadata", "a=b"]);
    for name in ["config.json", "training_stats.json"] {
        assert!(Path::new(&tables).join(name).exists(), "{name}");
    }
}

/// Its metadata has no number, as those of Paddle have; its parts are called alike.
#[test]
fn a_pytorch_distributed_checkpoint_says_what_it_is() {
    let folder = golden("dcp/good/t215_columns");
    let error = support::error(&["info", &format!("{folder}/__0_0.distcp")]);
    assert_eq!(error["code"], "torch-distributed", "{error}");
    for path in [folder.clone(), format!("{folder}/.metadata")] {
        let (exit, report) = coded_json(&["ls", &path]);
        assert_eq!((exit, &report["format"]), (0, &"dcp".into()), "{report}");
    }
    // Paddle's are read.
    ok(&["info", &golden("paddle/good/p331/dist_ckpt")]);
}
