//! `shard` and `merge` as a user meets them.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used, clippy::panic)]

use serde_json::Value as Json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

fn weighbridge(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weighbridge")).args(words).stdin(Stdio::null()).output().unwrap()
}

fn ok(words: &[&str]) -> String {
    let output = weighbridge(words);
    let (text, complaint) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{words:?}: {text}{complaint}");
    text
}

fn json(words: &[&str]) -> Json {
    let output = weighbridge(&[words, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The code of the error with which it must end.
fn refused(words: &[&str]) -> String {
    let output = weighbridge(&[words, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(2), "{words:?}: {}", String::from_utf8_lossy(&output.stdout));
    let document: Json = serde_json::from_slice(&output.stdout).unwrap();
    document["error"]["code"].as_str().unwrap().to_owned()
}

fn names(path: &str) -> Vec<String> {
    let document = json(&["ls", path]);
    let tensors = document["tensors"].as_array().unwrap_or_else(|| panic!("{document}"));
    tensors.iter().map(|t| t["name"].as_str().unwrap().to_owned()).collect()
}

/// The hashes of the elements, in order.
fn hashes(path: &str) -> Vec<String> {
    let document = json(&["ls", path, "--hash"]);
    document["tensors"].as_array().unwrap().iter().map(|t| t["sha256"].as_str().unwrap().to_owned()).collect()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
    /// A model of a few tensors with optimizer state, in the format of that extension.
    fn model(&self, name: &str) -> String {
        let path = self.path(name);
        let golden = testdata("primitiv/good/trained/trained_xor_a.model");
        ok(&["convert", golden.to_str().unwrap(), &path, "-q", "--force"]);
        path
    }
    fn count(&self) -> usize {
        fs::read_dir(self.0.path()).unwrap().count()
    }
}

#[test]
fn shards_and_back() {
    let folder = Folder::new();
    let source = folder.model("a.safetensors");
    let shards = folder.path("shards");
    let text = ok(&["shard", &source, &shards, "--max-shard-size", "32B", "--plan"]);
    assert!(
        text.contains("larger than a shard") && text.contains("would write") && folder.count() == 1,
        "{text}"
    );
    ok(&["shard", &source, &shards, "--max-shard-size", "32B"]);
    let list: Json =
        serde_json::from_slice(&fs::read(format!("{shards}/model.safetensors.index.json")).unwrap()).unwrap();
    let total: u64 = json(&["ls", &source])["tensors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(list["metadata"]["total_size"], total);
    let joined = folder.path("joined.safetensors");
    ok(&["merge", &shards, "-o", &joined]);
    assert_eq!(fs::read(&joined).unwrap(), fs::read(&source).unwrap());
    assert_eq!(refused(&["shard", &source, &folder.path("s"), "--max-shard-size", "much"]), "bad-size");
    assert_eq!(refused(&["shard", &source, &shards]), "exists");
    // A folder of shards is edited as a whole.
    let words = ["edit", &shards, "--in-place=rewrite", "--rename", "w1=x1"];
    let listed = |folder: &str| -> Vec<String> {
        let items = fs::read_dir(folder).unwrap().map(|item| item.unwrap().file_name());
        let mut names: Vec<_> = items.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let before = listed(&shards);
    assert!(before.len() > 3, "{before:?}");
    ok(&words);
    assert!(names(&shards).contains(&"x1".to_owned()));
    // It is cut as it was; and anew where that is asked for.
    assert_eq!(listed(&shards), before);
    ok(&["shard", &shards, &shards, "-f"]);
    assert_eq!(listed(&shards), ["model-00001-of-00001.safetensors", "model.safetensors.index.json"]);
    ok(&["shard", &shards, &shards, "-f", "--max-shard-size", "70"]);
    let two = listed(&shards);
    ok(&["edit", &shards, "--in-place=rewrite", "--rename", "x1=y1"]);
    assert_eq!((listed(&shards), names(&shards).contains(&"y1".to_owned())), (two.clone(), true));
    // What is not of the model stays, or nothing is done.
    fs::write(format!("{shards}/notes.txt"), "mine").unwrap();
    let words = ["edit", &shards, "--in-place=rewrite", "--rename", "y1=x1"];
    assert_eq!(json(&words)["error"]["found"], "notes.txt");
    assert_eq!(refused(&["shard", &shards, &shards, "-f"]), "folder-has-other-files");
    fs::remove_file(format!("{shards}/notes.txt")).unwrap();
    ok(&words);
    // One shard alone is not edited where it is: the list would not follow.
    for how in ["--in-place", "--in-place=rewrite"] {
        let shard = format!("{shards}/{}", two[0]);
        let kept = fs::read(&shard).unwrap();
        let words = ["edit", &shard, how, "--set-metadata", "a=b"];
        assert_eq!(refused(&words), "belongs-to-a-model");
        assert_eq!((fs::read(&shard).unwrap(), listed(&shards)), (kept, two.clone()));
    }
    assert_eq!(json(&["verify", &shards])["verdict"], "sound");
    assert_eq!(refused(&["edit", &shards, "--in-place", "--rename", "x1=w1"]), "not-a-file");
}

#[test]
fn shards_count_tensors_without_elements() {
    let folder = Folder::new();
    let empty = folder.path("e.npy");
    fs::write(&empty, npy_without_elements()).unwrap();
    let (one, both) = (folder.model("a.safetensors"), folder.path("b.safetensors"));
    ok(&["merge", &one, &empty, "-o", &both]);
    let report = json(&["shard", &both, &folder.path("m")]);
    assert_eq!(report["shards"][0]["tensors"], names(&one).len() + 1, "{report}");
    let list = fs::read(folder.path("m/model.safetensors.index.json")).unwrap();
    let list: Json = serde_json::from_slice(&list).unwrap();
    assert_eq!(list["weight_map"].as_object().unwrap().len(), names(&both).len());
}

/// An array of shape (0, 4), as numpy writes it.
fn npy_without_elements() -> Vec<u8> {
    let mut header = "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4), }".to_owned();
    while !(header.len() + 11).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.bytes());
    bytes
}

#[test]
fn merging_keeps_state_with_its_parameter() {
    let folder = Folder::new();
    let (a, b) = (folder.model("a.safetensors"), folder.model("b.npz"));
    let target = folder.path("c.safetensors");
    let error = json(&["merge", &a, &b, "-o", &target])["error"].clone();
    assert_eq!(error["code"], "name-collision");
    let found = error["found"].as_str().unwrap();
    assert!(found.contains("a.safetensors") && found.contains("b.npz"), "{found}");
    ok(&["merge", &a, &b, "-o", &target, "--prefer", "first"]);
    assert_eq!(hashes(&target), hashes(&a));
    ok(&["merge", &a, &b, "-o", &target, "--prefix-each", "--force"]);
    assert_eq!(names(&target).len(), 2 * names(&a).len());
    assert!(names(&target).contains(&"b.w1".to_owned()));
    assert_eq!(refused(&["merge", &a, &b, "-o", &target]), "exists");
    assert_eq!(refused(&["merge", "-o", &target]), "bad-arguments");
}

/// Paddle keeps state in a file of its own, which knows parameters by their variables.
#[test]
fn merging_states_of_paddle() {
    let folder = Folder::new();
    let golden = testdata("paddle/good/p262/master_weights");
    let found = |extension: &str| {
        let mut files = fs::read_dir(&golden).unwrap().map(|item| item.unwrap().path());
        files.find(|path| path.extension().is_some_and(|e| e == extension)).unwrap()
    };
    let copy = |extension: &str, name: &str| {
        fs::copy(found(extension), folder.path(name)).unwrap();
        folder.path(name)
    };
    let (base, state, tuned) =
        (copy("pdparams", "lin.pdparams"), copy("pdopt", "lin.pdopt"), copy("pdparams", "tuned.pdparams"));
    let target = folder.path("m.safetensors");
    for which in ["first", "last"] {
        for more in [&[][..], &["--names", "variable"]] {
            let words = ["merge", &base, &state, &tuned, "--prefer", which, "-o", &target];
            assert_eq!(refused(&[&words[..], more].concat()), "state-of-which", "{which} {more:?}");
            assert!(!Path::new(&target).exists());
        }
    }
    // First each model with its own state, then the two.
    let whole = folder.path("whole.safetensors");
    ok(&["merge", &base, &state, "-o", &whole]);
    assert!(names(&whole).iter().any(|name| name.contains('/')), "{:?}", names(&whole));
    ok(&["merge", &whole, &tuned, "--prefer", "last", "-o", &target]);
    assert!(!names(&target).iter().any(|name| name.contains('/')), "{:?}", names(&target));

    let both = folder.path("both.pdparams");
    ok(&["merge", &base, &tuned, "--prefix-each", "-o", &both]);
    let variables = json(&["ls", &both, "--names", "variable"]);
    let told: Vec<&str> =
        variables["tensors"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    let half = names(&base).len();
    assert_eq!(told.len(), 2 * half, "{variables}");
    assert!(told.iter().filter(|name| name.starts_with("lin.")).count() == half, "{told:?}");
    assert_eq!(json(&["verify", &both])["verdict"], "sound");
}
