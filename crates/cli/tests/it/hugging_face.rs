//! Folders of Hugging Face's libraries: shards of PyTorch, other files, metadata that loaders ask for.

use crate::support::{Folder, coded_json, golden, hashes, json, names, ok, refused, testdata, text_of};
use serde_json::{Value as Json, json as value};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A state dict of PyTorch with the names of modules.
const STATE: &str = "torch/good/tied.pt";

/// The metadata of a file of safetensors.
fn metadata(path: &str) -> Json {
    let bytes = fs::read(path).unwrap();
    let length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let header: Json = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    header["__metadata__"].clone()
}

/// A folder of two shards of PyTorch with their index, as transformers saves a model, and other files.
fn sharded(folder: &Folder, name: &str) -> String {
    let model = folder.path(name);
    fs::create_dir_all(format!("{model}/sub")).unwrap();
    let whole = folder.model("whole.safetensors");
    let mut map = BTreeMap::new();
    for (number, tensors) in [(1, ["w1", "b1"]), (2, ["w2", "b2"])] {
        let shard = format!("pytorch_model-0000{number}-of-00002.bin");
        let path = format!("{model}/{shard}");
        ok(&[
            "convert",
            &whole,
            &path,
            "--to",
            "torch",
            "--no-state",
            "--plain",
            "--select",
            tensors[0],
            "--select",
            tensors[1],
        ]);
        map.extend(tensors.map(|tensor| (tensor, shard.clone())));
    }
    let index = value!({ "metadata": { "total_size": 4 }, "weight_map": map });
    fs::write(format!("{model}/pytorch_model.bin.index.json"), index.to_string()).unwrap();
    for other in ["config.json", "tokenizer.model", "sub/config.json", ".hidden"] {
        fs::write(format!("{model}/{other}"), format!("{{\"of\": \"{other}\"}}")).unwrap();
    }
    model
}

fn files(folder: &str) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn shards_of_pytorch_open_as_one_model() {
    let folder = Folder::new();
    let model = sharded(&folder, "m");
    let whole = folder.path("whole.safetensors");
    let mut all = names(&model);
    all.sort();
    assert_eq!(all, ["b1", "b2", "w1", "w2"]);
    let info = json(&["info", &model]);
    assert_eq!((info["format"].as_str(), info["kind"].as_str()), (Some("torch"), Some("sharded")));
    assert_eq!(json(&["verify", &model])["verdict"], "sound");
    assert_eq!(json(&["scan", &model])["verdict"], "clean");
    // Companions of files that macOS writes are no indexes.
    for hidden in ["._pytorch_model.bin.index.json", "._model.safetensors"] {
        fs::write(format!("{model}/{hidden}"), "\0").unwrap();
    }
    let joined = folder.path("joined.safetensors");
    ok(&["convert", &model, &joined]);
    let wanted = folder.path("wanted.safetensors");
    ok(&["convert", &whole, &wanted, "--no-state", "--plain"]);
    assert_eq!((names(&joined), hashes(&joined)), (names(&wanted), hashes(&wanted)));
    // The path of the index opens the same model.
    let index = format!("{model}/pytorch_model.bin.index.json");
    assert_eq!((names(&index), hashes(&index)), (names(&model), hashes(&model)));
    assert_eq!(json(&["scan", &index])["verdict"], "clean");
}

#[test]
fn faults_of_shards_of_pytorch_are_refused() {
    let folder = Folder::new();
    let model = sharded(&folder, "m");
    let index = format!("{model}/pytorch_model.bin.index.json");
    let first = "pytorch_model-00001-of-00002.bin";
    let good = fs::read_to_string(&index).unwrap();
    let with = |from: &str, to: &str| {
        assert!(good.contains(from));
        fs::write(&index, good.replacen(from, to, 1)).unwrap();
        refused(&["ls", &model])
    };
    assert_eq!(with("\"w1\"", "\"gone\""), "tensor-missing");
    assert_eq!(
        with(&format!("\"w1\":\"{first}\""), "\"w1\":\"pytorch_model-00002-of-00002.bin\""),
        "wrong-shard"
    );
    assert_eq!(with("pytorch_model-00001", "../pytorch_model-00001"), "unsafe-name");
    assert_eq!(with("pytorch_model-00001", "pytorch_model-00007"), "shard-missing");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.path("m"), format!("{model}/linked")).unwrap();
        assert_eq!(with("pytorch_model-00001", "linked/pytorch_model-00001"), "unsafe-name");
        fs::remove_file(format!("{model}/linked")).unwrap();
    }
    fs::write(&index, &good).unwrap();
    let short = good.replacen(&format!("\"b1\":\"{first}\","), "", 1);
    assert_ne!(short, good);
    fs::write(&index, short).unwrap();
    assert_eq!(json(&["ls", &model])["notes"][0]["code"], "not-in-list");
    fs::write(&index, &good).unwrap();
    fs::copy(format!("{model}/{first}"), format!("{model}/pytorch_model.bin")).unwrap();
    // Loaders take the single file, and then the single file of safetensors.
    assert_eq!(names(&model).len(), 2);
    fs::copy(folder.path("whole.safetensors"), format!("{model}/model.safetensors")).unwrap();
    assert_eq!(json(&["info", &model])["format"], "safetensors");
}

#[test]
fn other_files_of_a_folder_are_named_and_copied() {
    let folder = Folder::new();
    let model = sharded(&folder, "m");
    let (_, left) = coded_json(&["convert", &model, &folder.path("a.safetensors")]);
    let notes: Vec<&Json> =
        left["notes"].as_array().unwrap().iter().filter(|n| n["code"] == "other-files").collect();
    assert_eq!(
        notes[0]["text"],
        "not copied: config.json, sub/config.json, tokenizer.model; --copy-others copies them"
    );
    let out = folder.path("out");
    let report = json(&["convert", &model, &out, "--copy-others"]);
    assert!(report["notes"].as_array().unwrap().iter().all(|note| note["code"] != "other-files"), "{report}");
    assert_eq!(files(&out), ["config.json", "model.safetensors", "sub", "tokenizer.model"]);
    for other in ["config.json", "sub/config.json"] {
        assert_eq!(
            fs::read(format!("{out}/{other}")).unwrap(),
            fs::read(format!("{model}/{other}")).unwrap()
        );
    }
    assert_eq!(hashes(&out).len(), 4);
    // To PyTorch again, under the name that its loaders look for; and in shards.
    let (back, cut) = (folder.path("back"), folder.path("cut"));
    ok(&["convert", &out, &back, "--to", "torch", "--copy-others"]);
    assert_eq!(files(&back), ["config.json", "pytorch_model.bin", "sub", "tokenizer.model"]);
    ok(&["convert", &back, &cut, "--copy-others", "--set", "shard=16B"]);
    assert!(files(&cut).contains(&"model.safetensors.index.json".to_owned()), "{:?}", files(&cut));
    // To Flax and back: each framework has a name of its own.
    let (flax, again) = (folder.path("flax"), folder.path("again"));
    ok(&["convert", &out, &flax, "--to", "flax", "--copy-others"]);
    assert_eq!(files(&flax), ["config.json", "flax_model.msgpack", "sub", "tokenizer.model"]);
    ok(&["convert", &flax, &again, "--to", "safetensors", "--copy-others"]);
    assert_eq!(files(&again), files(&out));
    ok(&["convert", &flax, &folder.path("torch"), "--to", "torch", "--copy-others"]);
    assert_eq!(files(&folder.path("torch")), files(&back));
    // Files are no folders.
    let file = format!("{out}/model.safetensors");
    assert_eq!(refused(&["convert", &file, &folder.path("x"), "--copy-others"]), "copy-others");
    assert_eq!(refused(&["convert", &out, &folder.path("x.npz"), "--copy-others"]), "copy-others");
    // Other models are not copied.
    fs::copy(golden(STATE), format!("{out}/optimizer.pt")).unwrap();
    let alone = folder.path("alone");
    ok(&["convert", &out, &alone, "--copy-others"]);
    assert!(!Path::new(&format!("{alone}/optimizer.pt")).exists());
}

#[test]
fn what_is_of_pytorch_says_so_in_safetensors() {
    let folder = Folder::new();
    let target = folder.path("a.safetensors");
    let mut checked = 0;
    for item in fs::read_dir(testdata("torch/good")).unwrap() {
        let path = item.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "pt") {
            continue;
        }
        let (code, _) = coded_json(&["convert", text_of(&path), &target, "-f"]);
        if code == 2 {
            continue;
        }
        assert_eq!(metadata(&target)["format"], "pt", "{path:?}");
        checked += 1;
    }
    assert!(checked > 15, "{checked}");
    // On the way back nothing of it is left.
    let (back, again) = (folder.path("back.pt"), folder.path("again.pt"));
    ok(&["convert", &golden(STATE), &target, "-f"]);
    ok(&["convert", &target, &back]);
    ok(&["convert", &golden(STATE), &again]);
    assert_eq!(json(&["info", &back])["metadata"], json(&["info", &again])["metadata"]);
    // Arrays with the names of modules are for PyTorch, others are not.
    let arrays = folder.path("a.npz");
    ok(&["convert", &folder.model("m.safetensors"), &arrays, "--no-state", "--plain"]);
    ok(&["convert", &arrays, &target, "-f"]);
    assert_eq!(metadata(&target), Json::Null);
    ok(&["convert", &arrays, &target, "-f", "--rename", "w1=fc1.weight"]);
    assert_eq!(metadata(&target)["format"], "pt");
    ok(&["convert", &arrays, &target, "-f", "--rename", "w1=fc1.weight", "--set-metadata", "format=tf"]);
    assert_eq!(metadata(&target)["format"], "tf");
}

#[test]
fn plain_files_have_no_entries_of_weighbridge() {
    let folder = Folder::new();
    let model = folder.model("m.safetensors");
    assert!(metadata(&model).get("weighbridge.index").is_some());
    for name in ["a.safetensors", "a.npz", "a.h5", "a.pt", "arrays", "cut", "table.parquet", "table.arrow"] {
        let target = folder.path(name);
        let format = match name {
            "arrays" => &["--to", "npy"][..],
            "cut" => &["--to", "safetensors", "--set", "shard=16B"],
            "table.parquet" | "table.arrow" => &["--select", "w1", "--no-state"],
            _ => &[],
        };
        let words =
            [&["convert", &model, &target, "--plain", "--set-metadata", "license=mit"][..], format].concat();
        let (code, report) = coded_json(&words);
        assert!(code < 2, "{name}: {report}");
        let lost = report["losses"].as_array().unwrap();
        assert!(
            lost.iter()
                .any(|loss| ["index-dropped", "name-dropped"].contains(&loss["code"].as_str().unwrap())),
            "{name}: {report}"
        );
        let mut held = Vec::new();
        for path in walk(Path::new(&target)) {
            assert!(!path.to_string_lossy().contains("weighbridge."), "{path:?}");
            held.extend(fs::read(&path).unwrap());
        }
        let own = b"weighbridge.";
        assert!(!held.windows(own.len()).any(|bytes| bytes == own), "{name}");
        assert!(code == 0 || !lost.is_empty());
    }
    assert_eq!(metadata(&folder.path("a.safetensors")), value!({ "license": "mit" }));
    assert_eq!(
        refused(&["convert", &model, &folder.path("b.npz"), "--set-metadata", "weighbridge.x=1"]),
        "reserved-key"
    );
}

/// The files at `path` or below it.
fn walk(path: &Path) -> Vec<std::path::PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    fs::read_dir(path).unwrap().flat_map(|item| walk(&item.unwrap().path())).collect()
}
