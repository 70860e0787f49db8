//! The JSON documents of the verbs have the keys listed in docs/src/reference/json.md.

use crate::support::{Folder, MODEL, golden, json, ok, testdata};
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// Keys whose value has keys of its own that come from the file, and are no part of the schema.
const OF_THE_FILE: [&str; 9] =
    ["metadata", "roles", "dtypes", "casts", "expected", "damaged", "attributes", "report", "sarif"];

/// Returns the section of the page on the document of a verb.
fn section<'a>(page: &'a str, verb: &str) -> &'a str {
    let after = page.split(&format!("\n## {verb}\n")).nth(1).unwrap_or_default();
    after.split("\n## ").next().unwrap_or_default()
}

fn names(text: &str, key: &str) -> bool {
    text.contains(&format!("`{key}`")) || text.contains(&format!("\"{key}\""))
}

/// The keys of all objects below.
fn below<'a>(document: &'a Json, keys: &mut BTreeSet<&'a str>) {
    match document {
        Json::Object(object) => {
            for (key, value) in object {
                keys.insert(key);
                if !OF_THE_FILE.contains(&key.as_str()) {
                    below(value, keys);
                }
            }
        }
        Json::Array(list) => list.iter().for_each(|item| below(item, keys)),
        _ => {}
    }
}

#[test]
fn every_key_is_documented() {
    let page = std::fs::read_to_string(testdata("../docs/src/reference/json.md")).unwrap();
    let folder = Folder::new();
    let model = golden(MODEL);
    let (a, other, edited) =
        (folder.model("a.safetensors"), folder.path("b.npz"), folder.path("c.safetensors"));
    ok(&["convert", &model, &other, "--cast", "f16"]);
    ok(&["convert", &model, &edited]);
    let cut =
        folder.file("cut.safetensors", &std::fs::read(&a).unwrap()[..std::fs::read(&a).unwrap().len() - 4]);
    let (store, program) = (golden("biggraph/set2/ckpt_dyn_affine"), golden("paddle/exec/save.pdmodel"));
    let mut missing = BTreeSet::new();
    let edges = folder.file("edges.tsv", b"u1\tr\tu2\n");
    let config = folder.file(
        "config.json",
        br#"{"entities": {"n": {"num_partitions": 1}}, "relations": [{"name": "r", "lhs": "n", "rhs": "n"}],
            "dimension": 4, "entity_path": "g/e", "edge_paths": ["g/train"], "checkpoint_path": "m"}"#,
    );
    let (manifest, shards) = (folder.path("m.json"), folder.path("shards"));
    for words in [
        &["info", &model][..],
        &["info", &cut, "--salvage"],
        &["ls", &model, "--hash", "--pieces"],
        &["show", &model, "w1"],
        &["stats", &model],
        &["convert", &model, &folder.path("p.npz"), "--plan"],
        &["convert", &model, &folder.path("p.npz"), "--cast", "f16"],
        &["edit", &model, &folder.path("e.safetensors"), "--cast", "f16", "--plan"],
        &["edit", &edited, "--in-place", "--rename", "w1=w9"],
        &["edit", &edited, "--undo"],
        &["shard", &model, &shards],
        &["merge", &shards, "-o", &folder.path("m.npz")],
        &["seal", &a, "-o", &manifest],
        &["verify", &a, "--manifest", &manifest],
        &["verify", &model, "--account"],
        &["verify", &cut],
        &["verify", &model, &a],
        &["diff", &model, &other],
        &["diff", &golden("paddle/good/p262/cnn_jit"), &golden("paddle/good/p262/seq_jit")],
        &["scan", &golden("scan/bad/import_os.pkl")],
        &["scan", &model, &a],
        &["scan", "--list-rules"],
        &["checkpoint", &store],
        &["program", &program, "--list"],
        &["run", &program, "--plan"],
        &[
            "run",
            &program,
            "--folder",
            &folder.path("run"),
            "--feed",
            &format!("x={}", golden("npy/good/float64.npy")),
        ],
        &["import", &edges, "--config", &config, "-o", &folder.path("graph")],
        &["demo", &folder.path("demo")],
    ] {
        let document = json(words);
        assert!(document.get("error").is_none(), "{words:?}: {document}");
        let (own_section, mut keys) = (section(&page, words[0]), BTreeSet::new());
        let own = document.as_object().unwrap().keys().filter(|key| !names(own_section, key));
        missing.extend(own.map(|key| format!("{}: {key}", words[0])));
        below(&document, &mut keys);
        let others = keys.into_iter().filter(|key| !names(&page, key));
        missing.extend(others.map(|key| format!("{}, below: {key}", words[0])));
    }
    assert!(missing.is_empty(), "docs/src/reference/json.md does not name {missing:?}");
}
