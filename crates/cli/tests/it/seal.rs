//! `seal` and `verify --manifest` as a user meets them.

use crate::support::{Folder, MODEL, code, command, json, ok, testdata, weighbridge};
use serde_json::Value as Json;
use std::fs;
use std::path::Path;

/// A model in a new folder.
fn model(dir: &Path) -> String {
    let path = dir.join("a.model");
    fs::copy(testdata(MODEL), &path).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn sealed_verified_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path());
    let manifest = format!("{model}.manifest.json");
    let text = String::from_utf8(weighbridge(&["seal", &model]).stdout).unwrap();
    assert!(text.contains("1 file, 245 B, 4 tensors") && text.contains("not signed"), "{text}");
    // It is never replaced unasked.
    let before = fs::read(&manifest).unwrap();
    assert_eq!(json(&["seal", &model, "--json"])["error"]["code"], "exists");
    let report = json(&["seal", &model, "--json", "--force", "--threads", "8"]);
    assert_eq!(
        (&report["files"], &report["tensors"], &report["scope"]),
        (&1.into(), &4.into(), &"file".into())
    );
    assert_eq!(fs::read(&manifest).unwrap(), before);
    // The same to standard output, and from within the folder.
    assert_eq!(weighbridge(&["seal", &model, "-o", "-", "--threads", "1"]).stdout, before);
    let inside = command(&["seal", "a.model", "-o", "-"]).current_dir(dir.path()).output().unwrap();
    assert_eq!(inside.stdout, before);

    assert_eq!(code(&["verify", &model, "--manifest", &manifest]), 0);
    let report = json(&["verify", &model, "--manifest", &manifest, "--json"]);
    assert_eq!(report["manifest"]["files"]["equal"], 1);
    assert!(report["checked"].as_array().unwrap().contains(&"manifest".into()));
    let npz = dir.path().join("b.npz");
    let npz = npz.to_str().unwrap();
    assert_eq!(code(&["convert", &model, npz, "-q"]), 0);
    // The tensors are the same; what became of the files is not known, unless that does not matter.
    let words = ["verify", npz, "--manifest", &manifest];
    assert_eq!(code(&words), 3);
    let text = String::from_utf8(weighbridge(&words).stdout).unwrap();
    assert!(text.contains("files-not-compared") && text.contains("--tensors-only"), "{text}");
    let report = json(&["verify", npz, "--manifest", &manifest, "--tensors-only", "--json"]);
    assert!(report["findings"].as_array().unwrap().iter().any(|f| f["code"] == "tensors-only"), "{report}");
    assert_eq!((&report["verdict"], &report["manifest"]["tensors"]["equal"]), (&"sound".into(), &4.into()));
    assert_eq!(report["manifest"]["files"], Json::Null);

    // One bit of one weight: nothing else would notice.
    let place = json(&["ls", &model, "--pieces", "--json"])["tensors"][0]["pieces"][0]["offset"].as_u64();
    let mut bytes = fs::read(&model).unwrap();
    bytes[usize::try_from(place.unwrap()).unwrap()] ^= 1;
    fs::write(&model, bytes).unwrap();
    assert_eq!(code(&["verify", &model]), 0);
    assert_eq!(code(&["verify", &model, "--manifest", &manifest]), 1);
    let text = String::from_utf8(weighbridge(&["verify", &model, "--manifest", &manifest]).stdout).unwrap();
    assert!(text.contains("file-changed") && text.contains("tensor-changed"), "{text}");
    assert!(text.contains("files: 0 unchanged, 1 changed; tensors: 3 unchanged, 1 changed"), "{text}");
}

#[test]
fn usage_and_odd_manifests() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path());
    let error = |words: &[&str]| json(words)["error"]["code"].as_str().unwrap().to_owned();
    assert_eq!(error(&["seal", &model, "-o", "-", "--json"]), "two-outputs");
    assert_eq!(error(&["seal", &model, "-o", &model, "--force", "--json"]), "output-is-input");
    assert_eq!(error(&["seal", &model, "--algorithms", "md5", "--json"]), "bad-arguments");
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert_eq!(error(&["seal", empty.to_str().unwrap(), "--json"]), "not-a-file");
    fs::remove_dir(empty).unwrap();
    assert_eq!(error(&["verify", &model, "--manifest", &model, "--json"]), "not-a-manifest");
    assert!(Path::new(&model).metadata().unwrap().len() == 245);
    assert_eq!(code(&["verify", &model, "--manifest", "none"]), 2);
    // A folder that is no model can be sealed as files.
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("notes.txt"), "n").unwrap();
    let folder = folder.to_str().unwrap();
    let manifest = format!("{folder}.manifest.json");
    assert_eq!(code(&["seal", &format!("{folder}/"), "--files-only"]), 0);
    assert_eq!(code(&["verify", folder, "--manifest", &manifest]), 0);
    fs::write(format!("{folder}/more.txt"), "m").unwrap();
    assert_eq!(code(&["verify", folder, "--manifest", &manifest]), 1);
    // What is not known is neither sound nor unsound.
    let text =
        fs::read_to_string(&manifest).unwrap().replace("\"method\":\"files\"", "\"method\":\"shards\"");
    fs::write(&manifest, text).unwrap();
    assert_eq!(code(&["verify", folder, "--manifest", &manifest]), 3);
}

/// A model that was sealed is opened to be held against its seal: where that cannot be done, it is not sound.
#[test]
fn what_cannot_be_opened_is_not_sound() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("m");
    fs::create_dir(&folder).unwrap();
    fs::copy(testdata("npy/good/float64.npy"), folder.join("a.npy")).unwrap();
    fs::copy(testdata("npz/good/stored.npz"), folder.join("b.npz")).unwrap();
    let (path, manifest) = (folder.to_str().unwrap(), dir.path().join("m.json"));
    let manifest = manifest.to_str().unwrap();
    let severity = |report: &Json| {
        let all = report["findings"].as_array().unwrap();
        let told: Vec<_> = all.iter().filter(|f| f["code"] == "not-opened").collect();
        assert_eq!(told.len(), 1, "{report}");
        told[0]["severity"].as_str().unwrap().to_owned()
    };
    // Of several models one was meant, and nobody says which.
    assert_eq!(code(&["seal", path, "-o", manifest, "--from", "npy"]), 0);
    assert_eq!(code(&["verify", path, "--manifest", manifest, "--from", "npy"]), 0);
    assert_eq!(code(&["verify", path, "--manifest", manifest]), 3);
    let report = json(&["verify", path, "--manifest", manifest, "--json"]);
    assert_eq!((severity(&report), &report["manifest"]["files"]["equal"]), ("unchecked".into(), &2.into()));
    // Files that were sealed without a look into them are what they were; that they are a model nobody says.
    assert_eq!(code(&["seal", path, "-o", manifest, "--files-only", "--force"]), 0);
    let report = json(&["verify", path, "--manifest", manifest, "--json"]);
    assert_eq!((severity(&report), &report["verdict"]), ("note".into(), &"sound".into()));
    // So are words; but what is of a format and cut short is no more sound than without the manifest.
    let file = dir.path().join("f.safetensors");
    let bytes = fs::read(model(dir.path())).unwrap();
    for (content, verdict) in
        [(&b"\x01\x02 of no format"[..], "sound"), (&bytes[..bytes.len() - 3], "unsound")]
    {
        fs::write(&file, content).unwrap();
        let path = file.to_str().unwrap();
        assert_eq!(code(&["seal", path, "-o", manifest, "--files-only", "--force"]), 0);
        let report = json(&["verify", path, "--manifest", manifest, "--json"]);
        assert_eq!((&report["verdict"], &report["manifest"]["files"]["equal"]), (&verdict.into(), &1.into()));
    }
    // An unfinished copy: the folder is of a format, by its names.
    let folder = dir.path().join("bg");
    fs::create_dir(&folder).unwrap();
    for name in ["embeddings_n_0.v1.h5", "model.v1.h5"] {
        fs::copy(testdata(format!("biggraph/set1/ckpt_weighted/{name}")), folder.join(name)).unwrap();
    }
    fs::write(folder.join("checkpoint_version.txt"), "one").unwrap();
    let path = folder.to_str().unwrap();
    assert_eq!(code(&["seal", path, "-o", manifest, "--files-only", "--force"]), 0);
    assert_eq!(json(&["verify", path, "--json"])["verdict"], "unsound");
    assert_eq!(json(&["verify", path, "--manifest", manifest, "--json"])["verdict"], "unsound");
}

#[test]
fn a_list_of_shards_takes_its_shards_along() {
    let dir = tempfile::tempdir().unwrap();
    let source = model(dir.path());
    let folder = dir.path().join("sharded");
    let words =
        ["convert", &source, folder.to_str().unwrap(), "--to", "safetensors", "--kind", "sharded", "-q"];
    let done = weighbridge(&words);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut files = fs::read_dir(&folder).unwrap().map(|item| item.unwrap().path());
    let list = files.find(|path| path.extension().is_some_and(|e| e == "json")).unwrap();
    fs::write(folder.join("other.txt"), "not a part of it").unwrap();
    let list = list.to_str().unwrap();
    let report = json(&["seal", list, "--json"]);
    assert_eq!(report["scope"], "files", "{report}");
    let manifest = report["manifest"].as_str().unwrap();
    let told: Json = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    let names =
        told["predicate"]["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap());
    let names: Vec<&str> = names.collect();
    assert!(names.len() >= 2 && !names.contains(&"other.txt"), "{names:?}");
    assert_eq!(code(&["verify", list, "--manifest", manifest]), 0);
    // A list beside it was not sealed, though all that was sealed is there.
    let evil = folder.join("evil.safetensors.index.json");
    fs::copy(list, &evil).unwrap();
    assert_eq!(code(&["verify", evil.to_str().unwrap(), "--manifest", manifest]), 1);
    let shard = folder.join(names.iter().find(|name| name.ends_with(".safetensors")).unwrap());
    let mut bytes = fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&shard, bytes).unwrap();
    assert_eq!(code(&["verify", list, "--manifest", manifest]), 1);
}

#[test]
fn what_is_said_to_be_left_out_was_there() {
    let folder = Folder::new();
    let model = folder.path("net");
    std::fs::create_dir(&model).unwrap();
    folder.model("net/a.safetensors");
    assert!(!ok(&["seal", &model]).contains("not sealed"));
    std::fs::create_dir(folder.path("net/.git")).unwrap();
    folder.file("net/.git/config", "x");
    assert!(ok(&["seal", &model, "--force"]).contains("not sealed: .git\n"));
    let report = json(&["seal", &model, "--force"]);
    assert_eq!(report["left_out"], serde_json::json!([".git"]));
    assert_eq!(report["ignored"].as_array().unwrap().len(), 4);
}

/// A manifest is not put in the place of what it is about, whatever may be replaced; an earlier one is.
#[test]
fn no_file_of_a_sealed_folder_becomes_its_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let source = model(dir.path());
    let folder = dir.path().join("m");
    fs::create_dir(&folder).unwrap();
    let names = ["model.safetensors", "config.json"].map(|name| folder.join(name));
    assert_eq!(code(&["convert", &source, names[0].to_str().unwrap(), "-q"]), 0);
    fs::write(&names[1], "{}").unwrap();
    let shown = folder.to_str().unwrap();
    for path in &names {
        let before = fs::read(path).unwrap();
        for more in [&["--force"][..], &["--force", "--files-only"]] {
            let words = [&["seal", shown, "-o", path.to_str().unwrap(), "--json"], more].concat();
            let found = json(&words)["error"]["code"].as_str().unwrap_or_default().to_owned();
            assert_eq!(found, "output-is-input", "{words:?}");
        }
        assert_eq!(fs::read(path).unwrap(), before);
    }
    let own = folder.join("seal.json");
    for _ in 0..2 {
        assert_eq!(code(&["seal", shown, "-o", own.to_str().unwrap(), "--force"]), 0);
    }
    #[cfg(unix)]
    {
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&names[0], &link).unwrap();
        let report = json(&["seal", shown, "-o", link.to_str().unwrap(), "--force", "--json"]);
        assert_eq!(report["error"]["code"], "link");
    }
}
