//! `shard` and `merge` as a user meets them.

use crate::support::{self, Folder, error, hashes, json, names, ok, refused, testdata};
use serde_json::Value as Json;
use std::fs;
use std::path::Path;

/// Whichever verb writes.
#[test]
fn a_part_of_what_is_read_is_never_written_over() {
    let folder = Folder::new();
    let source = folder.model("a.safetensors");
    let (shards, program) = (folder.path("shards"), folder.path("program"));
    ok(&["shard", &source, &shards, "--max-shard-size", "32B"]);
    fs::create_dir(&program).unwrap();
    for name in ["model.pdmodel", "model.pdiparams", "model.pdiparams.info"] {
        let from = testdata(format!("paddle/good/p262/seq_jit/{name}"));
        fs::copy(from, format!("{program}/{name}")).unwrap();
    }
    let first = fs::read_dir(&shards).unwrap().map(|item| item.unwrap().path()).min().unwrap();
    let (shard, of_program) = (first.to_str().unwrap(), format!("{program}/model.pdmodel"));
    let kept = || [shard, &of_program].map(|path| fs::read(path).unwrap());
    let before = kept();
    for words in [
        &["edit", &shards, shard, "--prefix", "x", "--force"][..],
        &["merge", &shards, &source, "--prefer", "first", "-o", shard, "--force"],
        &["convert", &shards, shard, "--force"],
        &["program", &program, "--rename", "embedding_0.w_0=z", "-o", &of_program, "--force"],
    ] {
        assert_eq!(refused(words), "output-is-input", "{words:?}");
    }
    assert_eq!(kept(), before);
    // The same program without what it was made from fits the parameters as before.
    ok(&["program", &of_program, "--strip", "source", "-o", &of_program, "--force"]);
}

#[test]
fn shards_and_back() {
    let folder = Folder::new();
    let source = folder.model("a.safetensors");
    let shards = folder.path("shards");
    let text = ok(&["shard", &source, &shards, "--max-shard-size", "32B", "--plan"]);
    assert!(
        text.contains("larger than the shard size") && text.contains("would write") && folder.count() == 1,
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

/// Shards that stand in the folder are not replaced by those of another file: they are named in order, and what they are
/// is said.
#[test]
fn shards_of_another_model_are_not_replaced() {
    let folder = Folder::new();
    let source = folder.model("a.safetensors");
    let shards = folder.path("shards");
    ok(&["shard", &source, &shards, "--max-shard-size", "8B"]);
    let error = error(&["shard", &source, &shards, "--max-shard-size", "1GB", "--force"]);
    assert_eq!(error["code"], "folder-has-other-files");
    let mut old: Vec<String> = fs::read_dir(&shards)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("-of-"))
        .collect();
    old.sort();
    let more = if old.len() > 5 { ", and more" } else { "" };
    assert_eq!(error["found"], format!("{}{more}", old[..old.len().min(5)].join(", ")));
    assert!(error["hint"].as_str().unwrap().contains("shards of an earlier split"), "{error}");
    fs::write(format!("{shards}/LICENSE"), "words").unwrap();
    let words = ["shard", &source, &shards, "--max-shard-size", "1GB", "--force"];
    assert!(support::error(&words)["found"].as_str().unwrap().starts_with("LICENSE, model-00001-of-"));
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

/// What holds of all shards stands in their list: a glob that names the shards alone finds it there.
#[test]
fn a_glob_of_shards_is_their_model() {
    let folder = Folder::new();
    let (model, source) = (folder.model("a.safetensors"), folder.path("v.safetensors"));
    ok(&["edit", &model, &source, "--set-metadata", "version=3", "--set-metadata", "format=pt"]);
    let sharded = folder.path("sharded");
    ok(&["shard", &source, &sharded, "--max-shard-size", "32B"]);
    let mut files: Vec<String> = fs::read_dir(&sharded)
        .unwrap()
        .map(|item| item.unwrap().path().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    let list = files.pop().unwrap();
    assert!(list.ends_with(".index.json") && files.len() > 2, "{files:?}");
    let mut count = 0;
    let mut merged = |sources: &[&String], more: &[&str]| {
        count += 1;
        let target = folder.path(&format!("m{count}.safetensors"));
        let mut words = vec!["merge", "-o", &target];
        words.extend(sources.iter().map(|source| source.as_str()));
        let report = json(&[&words[..], more].concat());
        assert!(report["error"].is_null(), "{report}");
        (target, report)
    };
    let shards: Vec<&String> = files.iter().collect();
    let with_list: Vec<&String> = files.iter().chain([&list]).collect();
    for sources in [&shards, &with_list] {
        let (target, report) = merged(sources, &[]);
        assert_eq!(fs::read(&target).unwrap(), fs::read(&source).unwrap(), "{report}");
        assert_eq!(report["sources"].as_array().unwrap().len(), sources.len());
    }
    // Beside another model, and with a preference.
    let (other, renamed) = (folder.path("o.npz"), folder.path("r.safetensors"));
    ok(&["convert", &model, &other, "--rename", "=other", "-q"]);
    let (target, _) = merged(&[&[&other][..], &shards].concat(), &["--prefer", "last"]);
    assert_eq!(json(&["ls", &target])["metadata"]["version"], "3");
    assert_eq!(names(&target).len(), 2 * names(&model).len());
    // Of some of them alone, what is said of all is not taken, which is said.
    let (target, report) = merged(&shards[1..], &[]);
    assert!(json(&["ls", &target])["metadata"]["version"].is_null());
    assert_eq!(report["notes"][0]["code"], "shards-in-part", "{report}");
    // A list that names fewer of the same files drops none of them.
    let stale = folder.path("sharded/stale.safetensors.index.json");
    let mut short: serde_json::Value = serde_json::from_slice(&fs::read(&list).unwrap()).unwrap();
    let first = files[0].rsplit('/').next().unwrap();
    short["weight_map"].as_object_mut().unwrap().retain(|_, file| file == first);
    fs::write(&stale, short.to_string()).unwrap();
    let (target, report) = merged(&shards, &[]);
    assert_eq!(fs::read(&target).unwrap(), fs::read(&source).unwrap(), "{report}");
    assert!(
        report["notes"].as_array().unwrap().iter().any(|n| n["code"] == "shards-in-two-lists"),
        "{report}"
    );
    fs::remove_file(stale).unwrap();
    // One that is damaged may have been theirs.
    let text = fs::read_to_string(&list).unwrap();
    for len in [0, 5, 40, text.len() - 3] {
        fs::write(&list, &text[..len]).unwrap();
        let (target, report) = merged(&shards, &[]);
        assert!(json(&["ls", &target])["metadata"]["version"].is_null());
        let note = &report["notes"][0];
        assert_eq!(note["code"], "list-not-read", "{len}: {report}");
        assert!(note["text"].as_str().unwrap().starts_with(&list), "{note}");
    }
    fs::write(&list, text).unwrap();
    fs::write(folder.path("sharded/other.index.json"), "{\"a\": 1}").unwrap();
    assert_eq!(merged(&shards, &[]).1["notes"], serde_json::json!([]));
    // Each below its own name is what it says; and one that is named twice is itself twice.
    let (target, _) = merged(&shards, &["--prefix-each"]);
    assert!(names(&target).iter().all(|name| name.starts_with("model-0000")), "{:?}", names(&target));
    let twice = [&["merge", "-o", &renamed][..], &[&files[0], &files[0]], &[&files[1]]].concat();
    assert_eq!(refused(&twice), "name-collision");
}
