//! Row names: their sources, and tables without them.

use crate::support::biggraph::{codes, copy, golden, knowing, metadata, open, open_with};
use serde_json::json;
use std::fs;
use weighbridge::finding::Verdict;
use weighbridge::ops::verify::{VerifyOptions, verify};

fn tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    for folder in ["ckpt_crash_before", "dyn"] {
        copy(&golden("set1").join(folder), &tree.path().join(folder));
    }
    tree
}

#[cfg(unix)]
#[test]
fn unreadable_default_entities_do_not_prevent_opening() {
    let tree = tree();
    let (folder, entities) = (tree.path().join("ckpt_crash_before"), tree.path().join("dyn/entities"));
    assert!(open(&folder).tensor("embeddings.all").unwrap().row_names.is_some());
    fs::remove_dir_all(&entities).unwrap();
    // Who follows it never arrives.
    std::os::unix::fs::symlink(&entities, &entities).unwrap();
    let found = open(&folder);
    assert!(codes(&found).contains(&"entities-unreadable"), "{:?}", found.notes);
    assert!(found.tensor("embeddings.all").unwrap().row_names.is_none());
    let report = verify(&folder, &VerifyOptions::default()).unwrap();
    assert_eq!(report.verdict, Verdict::CouldNotTell, "{:?}", report.findings);
    // Nor edges, whose configuration leads there.
    let config = folder.join("config.json");
    let edges = open_with(tree.path().join("dyn/train"), &knowing(Some(config), None));
    assert!(codes(&edges).contains(&"entities-unreadable"), "{:?}", edges.notes);
}

#[test]
fn one_partition_has_the_names_of_its_own_rows() {
    let file = golden("set1/ckpt_std_zip/embeddings_user_2.v6.h5");
    let entities = golden("set1/std/entities");
    let found = open_with(&file, &knowing(None, Some(entities.clone())));
    let table = found.tensor("embeddings.user").unwrap();
    let text = fs::read(entities.join("entity_names_user_2.json")).unwrap();
    let wanted: Vec<String> = serde_json::from_slice(&text).unwrap();
    let list = table.row_names.as_ref().unwrap().read().unwrap();
    assert_eq!(list.iter().collect::<Vec<_>>(), wanted);
    assert!(open(&file).tensor("embeddings.user").unwrap().row_names.is_none());
    // Entities of another graph, and a folder that has none.
    let found = open_with(&file, &knowing(None, Some(golden("set1/dyn/entities"))));
    assert!(found.tensors[0].row_names.is_none() && codes(&found).contains(&"names-missing"));
    for path in [file, golden("set1/ckpt_std_zip"), golden("set1/std/edges")] {
        let options = knowing(None, Some(golden("set1/ckpt_feat")));
        assert_eq!(
            weighbridge::formats::open_with(&path, &options).unwrap_err().code().as_str(),
            "no-entities",
            "{path:?}"
        );
    }
}

#[test]
fn relation_names_come_from_the_entity_folder() {
    let tree = tree();
    let folder = tree.path().join("ckpt_crash_before");
    let found = open(&folder);
    let names: Vec<String> =
        serde_json::from_slice(&fs::read(golden("set1/dyn/entities/dynamic_rel_names.json")).unwrap())
            .unwrap();
    assert_eq!(metadata(&found, "dynamic_relations"), json!(names.len()));
    assert_eq!(metadata(&found, "relation_names"), json!(names));
    // Broken ones take nothing else along, and leave a remark.
    fs::write(tree.path().join("dyn/entities/dynamic_rel_names.json"), "[1").unwrap();
    let broken = open(&folder);
    assert!(broken.tensor("embeddings.all").unwrap().row_names.is_some());
    assert_eq!(metadata(&broken, "dynamic_relations"), json!(names.len()));
    assert!(broken.metadata.get("relation_names").is_none());
    let omitted = broken.notes.iter().filter(|note| note.omission);
    assert_eq!(omitted.filter(|note| note.text.starts_with("dynamic_rel_names.json")).count(), 1);
}
