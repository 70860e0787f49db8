//! PyTorch-BigGraph: counts, partitions, configurations and names.

use crate::harness::{End, Opens, Range, Refused};
use crate::made::{Part, made};
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge::source::{Folder, FolderItem, FolderRef, MemoryFolder, SkippedItem, SourceRef};

fn golden(name: &str) -> Vec<u8> {
    let folder = [env!("CARGO_MANIFEST_DIR"), "..", "testdata", "biggraph", "set1", "ckpt_dyn_affine", name];
    std::fs::read(folder.iter().collect::<PathBuf>()).unwrap()
}

/// Makes a checkpoint folder of one entity type in `partitions` partitions.
fn checkpoint(partitions: &str, extra: &str) -> MemoryFolder {
    let config = format!(
        r#"{{"entities": {{"all": {{"num_partitions": {partitions}}}}}, "relations": [{{"name": "r", "lhs": "all",
            "rhs": "all", "operator": "none"}}], "dimension": 8, "entity_path": "e", "edge_paths": ["t"],
            "checkpoint_path": "c"{extra}}}"#
    );
    let mut folder = MemoryFolder::new("bomb").with("config.json", config.into());
    for name in ["checkpoint_version.txt", "embeddings_all_0.v1.h5", "embeddings_all_1.v1.h5", "model.v1.h5"]
    {
        folder = folder.with(name, golden(name));
    }
    folder
}

fn shared(folder: MemoryFolder) -> FolderRef {
    Arc::new(folder)
}

#[test]
fn biggraph_folders() {
    let Some(mut range) = Range::alone("biggraph") else { return };
    for (name, partitions) in
        [("10^18 partitions", "1000000000000000000"), ("10^30 partitions", "1e30"), ("-1 partitions", "-1")]
    {
        range.folder(name, shared(checkpoint(partitions, "")), Opens(14));
    }
    let long = "9".repeat(100_000);
    range.folder("partitions of 10^5 digits", shared(checkpoint(&long, "")), Opens(14));
    let deep = format!(r#", "x": {}0{}"#, "[".repeat(1_000_000), "]".repeat(1_000_000));
    range.folder("a deep configuration", shared(checkpoint("1", &deep)), Opens(14));
    let version = MemoryFolder::new("bomb")
        .with("checkpoint_version.txt", b"9".repeat(100_000))
        .with("embeddings_all_0.v1.h5", b"x".to_vec());
    range.folder("a version of 10^5 digits", shared(version), Refused("limit"));
    // One file claims to be the last of 2^64.
    let last = MemoryFolder::new("bomb")
        .with("checkpoint_version.txt", b"1".to_vec())
        .with("embeddings_all_18446744073709551615.v1.h5", golden("embeddings_all_0.v1.h5"));
    range.folder("part 2^64 - 1", shared(last), Refused("limit"));
    let bucket =
        MemoryFolder::new("bomb").with("edges_18446744073709551615_18446744073709551615.h5", b"x".to_vec());
    range.folder("bucket 2^64 - 1", shared(bucket), Refused("hdf5-magic"));
    for (name, count) in [
        ("a count of 10^30", format!("1{}", "0".repeat(30))),
        ("a count of 10^18", format!("1{}", "0".repeat(18))),
    ] {
        let entities = MemoryFolder::new("bomb")
            .with("entity_count_all_0.txt", count.clone().into_bytes())
            .with("entity_names_all_0.json", b"[\"a\"]".to_vec());
        range.folder(name, shared(entities), Opens(1));
    }
}

/// A folder with one generated file.
#[derive(Debug)]
struct One(PathBuf, SourceRef, MemoryFolder);

impl Folder for One {
    fn label(&self) -> &str {
        "bomb"
    }
    fn list(&self, depth: usize) -> weighbridge::Result<Vec<FolderItem>> {
        let mut items = self.2.list(depth)?;
        items.push(FolderItem { name: self.0.clone(), len: self.1.len() });
        items.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(items)
    }
    fn skipped(&self, depth: usize) -> weighbridge::Result<Vec<SkippedItem>> {
        self.2.skipped(depth)
    }
    fn open(&self, name: &std::path::Path) -> weighbridge::Result<Option<SourceRef>> {
        if name == self.0 { Ok(Some(self.1.clone())) } else { self.2.open(name) }
    }
}

#[test]
fn biggraph_texts() {
    let Some(mut range) = Range::alone("biggraph") else { return };
    let mut names = |name: &str, text: Vec<Part>, end: End| {
        let folder = MemoryFolder::new("bomb").with("entity_count_all_0.txt", b"1000".to_vec());
        let folder: FolderRef = Arc::new(One("entity_names_all_0.json".into(), made(text), folder));
        range.folder(name, folder, end);
    };
    let open = Part::Bytes(b"[\"".to_vec());
    names("a name of 64 MiB", vec![open, Part::Repeat(b"a".to_vec(), 1 << 26)], Opens(1));
    names("10^8 nested lists", vec![Part::Repeat(b"[".to_vec(), 100_000_000)], Opens(1));
    names(
        "10^7 names",
        vec![Part::Bytes(b"[".to_vec()), Part::Repeat(b"\"a\",".to_vec(), 40_000_000)],
        Opens(1),
    );
    names("16 MiB of blanks", vec![Part::Repeat(b" ".to_vec(), 1 << 24)], Opens(1));
    let mut count = |name: &str, text: Vec<Part>, end: End| {
        let folder = MemoryFolder::new("bomb").with("entity_names_all_0.json", b"[\"a\"]".to_vec());
        range.folder(name, Arc::new(One("entity_count_all_0.txt".into(), made(text), folder)), end);
    };
    count("a count of 1 GiB", vec![Part::Repeat(b"9".to_vec(), 1 << 30)], Opens(1));
    count("a count in 1 GiB of blanks", vec![Part::Repeat(b" ".to_vec(), 1 << 30)], Opens(1));
}

/// Makes an entity folder with this configuration.
fn entities(config: String) -> MemoryFolder {
    MemoryFolder::new("bomb")
        .with("config.json", config.into_bytes())
        .with("entity_count_a_0.txt", b"1".to_vec())
        .with("entity_names_a_0.json", b"[\"x\"]".to_vec())
}

fn config(types: &[String], partitions: u64, relation: &str, relations: usize) -> String {
    let types: Vec<_> =
        types.iter().map(|name| format!(r#""{name}":{{"num_partitions":{partitions}}}"#)).collect();
    let relation = format!(r#"{{"name":"r","lhs":"{relation}","rhs":"{relation}","operator":"none"}}"#);
    format!(
        r#"{{"entities":{{{}}},"relations":[{}],"dimension":4,"entity_path":"e","edge_paths":[],"checkpoint_path":"m"}}"#,
        types.join(","),
        vec![relation; relations].join(",")
    )
}

#[test]
fn biggraph_configurations() {
    let Some(mut range) = Range::alone("biggraph") else { return };
    // Compared with file names: the name occurs once per partition.
    let long = vec!["a".repeat(1_000_000)];
    range.folder("a name of 1 MB", shared(entities(config(&long, 3000, "a", 1))), Opens(1));
    range.file("a name of 1 MB, alone", config(&long, 3000, "a", 1).into_bytes(), Refused("config"));
    let one = vec!["a".to_owned()];
    range.folder("50,000 partitions", shared(entities(config(&one, 50_000, "a", 1))), Opens(1));
    range.folder("1,000,000 partitions", shared(entities(config(&one, 1_000_000, "a", 1))), Refused("limit"));
    // The largest allowed part number in a file name.
    let last = MemoryFolder::new("bomb")
        .with("checkpoint_version.txt", b"1".to_vec())
        .with("embeddings_all_49999.v1.h5", golden("embeddings_all_0.v1.h5"));
    range.folder("part 49,999 alone", shared(last), Refused("partition-missing"));
    let many: Vec<_> = (0..16_000).map(|n| format!("a{n:06}")).collect();
    range.file(
        "16,000 types and 40,000 relations",
        config(&many, 1, "a015999", 40_000).into_bytes(),
        Opens(0),
    );
    range.folder("16,000 types", shared(entities(config(&many, 1, "a000000", 1))), Opens(16_000));
    range.file("60,000 relations", config(&one, 1, "a", 60_000).into_bytes(), Opens(0));
    let values = format!(r#"{{"entities":[{}],"num_partitions":0}}"#, vec!["0"; 2_000_000].join(","));
    range.folder("2,000,000 numbers", shared(entities(values)), Opens(1));
}

#[test]
fn biggraph_relations() {
    let Some(mut range) = Range::alone("biggraph") else { return };
    for (count, end) in [(1_300_000, Refused("limit")), (78_000, Opens(1))] {
        let folder = MemoryFolder::new("bomb")
            .with("entity_count_a_0.txt", b"1".to_vec())
            .with("entity_names_a_0.json", b"[\"x\"]".to_vec())
            .with("dynamic_rel_count.txt", count.to_string().into_bytes())
            .with("dynamic_rel_names.json", format!("[{}]", vec!["\"\""; count].join(",")).into_bytes());
        range.folder(&format!("{count} names of nothing"), shared(folder), end);
    }
}
