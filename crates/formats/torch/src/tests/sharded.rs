//! Shards with an index in the layout of transformers.

use super::super::Torch;
use crate::opening::{detect, open_folder, open_in_folder};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use weighbridge::formats::safetensors::Safetensors;
use weighbridge_core::checkpoint::{Checkpoint, TensorEntry, TensorPath};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_format::{OpenOptions, PlanOptions, ReadFormat, ScanCode, WriteFormat};
use weighbridge_io::source::{FolderRef, MemoryFolder, MemorySource, SourceRef};
use weighbridge_io::testing::materialise;

const INDEX: &str = "pytorch_model.bin.index.json";
const FIRST: &str = "pytorch_model-00001-of-00002.bin";
const SECOND: &str = "pytorch_model-00002-of-00002.bin";

fn entry(name: &str) -> TensorEntry {
    let source: SourceRef = Arc::new(MemorySource::new("s", vec![7; 800]));
    TensorEntry::dense(
        TensorPath::from_dotted(name),
        DType::F32,
        Shape::new([200]),
        &source,
        0,
        Encoding::ROW,
    )
    .unwrap()
}

fn shard(names: &[&str]) -> Vec<u8> {
    let mut checkpoint = Checkpoint::new("test", "test", "x");
    checkpoint.tensors = names.iter().map(|name| entry(name)).collect();
    materialise(&Torch.plan(&checkpoint, &PlanOptions::default()).unwrap()).remove(0)
}

fn model() -> Vec<(&'static str, Vec<u8>)> {
    let index = json!({
        "metadata": {"total_size": 2400, "origin": "a test"},
        "weight_map": {"a": FIRST, "b": FIRST, "c": SECOND},
    });
    vec![(INDEX, index.to_string().into_bytes()), (FIRST, shard(&["a", "b"])), (SECOND, shard(&["c"]))]
}

fn folder(files: &[(&str, Vec<u8>)]) -> FolderRef {
    let with = |folder: MemoryFolder, (name, bytes): &(&str, Vec<u8>)| folder.with(name, bytes.clone());
    Arc::new(files.iter().fold(MemoryFolder::new("m"), with))
}

fn open(files: &[(&str, Vec<u8>)], lenient: bool, salvage: bool) -> Result<Checkpoint> {
    open_folder(&folder(files), &OpenOptions { lenient, salvage, ..OpenOptions::default() })
}

fn names(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.tensors.iter().map(|tensor| tensor.text()).collect()
}

#[test]
fn an_index_opens_by_its_own_path() {
    let files = model();
    let (folder, options) = (folder(&files), OpenOptions::default());
    let index = folder.open(Path::new(INDEX)).unwrap().unwrap();
    assert_eq!(detect(&index).unwrap().info().id, "torch");
    assert_eq!(Torch.open(index.clone(), &options).unwrap_err().code().as_str(), "list-alone");
    assert_eq!(Torch.scan(&index, &options).unwrap().findings, []);
    let opened = open_in_folder(index, &folder, Path::new(INDEX), &options).unwrap();
    let whole = open(&files, false, false).unwrap();
    for opened in [&opened, &whole] {
        assert_eq!((opened.format, opened.kind, opened.files.len()), ("torch", "sharded", 3));
        assert_eq!((names(opened), &opened.notes[..]), (vec!["a".into(), "b".into(), "c".into()], &[][..]));
        // The metadata of the index is kept.
        assert_eq!(opened.metadata.to_json(), json!({"origin": "a test"}));
    }
    let kept = materialise(&Safetensors.plan(&whole, &PlanOptions::default()).unwrap()).remove(0);
    assert!(String::from_utf8_lossy(&kept).contains("a test"));
}

#[test]
fn a_missing_shard_is_skipped_by_lenient_and_lost_by_salvage() {
    let mut files = model();
    files.pop();
    assert_eq!(open(&files, false, false).unwrap_err().code().as_str(), "shard-missing");
    let lenient = open(&files, true, false).unwrap();
    assert_eq!(names(&lenient), ["a", "b"]);
    let skipped = lenient.notes.iter().find_map(|note| note.skipped.as_ref());
    assert_eq!(skipped.unwrap().name, "c");
    let saved = open(&files, false, true).unwrap();
    let damage = saved.damage.unwrap();
    assert_eq!((damage.lost[0].name.as_str(), damage.expected), ("c", Some(3)));
}

#[test]
fn the_intact_tensors_of_a_damaged_shard_are_salvaged() {
    let mut files = model();
    // The last storage of the first shard.
    let b = files[1].1.windows(6).rposition(|bytes| bytes == b"data/1").unwrap();
    let at = files[1].1[..b].iter().rposition(|&byte| byte == 7).unwrap();
    files[1].1[at] = 8;
    let saved = open(&files, false, true).unwrap();
    let damage = saved.damage.as_ref().unwrap();
    assert_eq!((names(&saved), damage.expected), (vec!["a".to_owned(), "c".to_owned()], Some(3)));
    assert_eq!(damage.lost[0].name, "b");
    files[2].1.truncate(40);
    let saved = open(&files, false, true).unwrap();
    let mut lost: Vec<&str> =
        saved.damage.as_ref().unwrap().lost.iter().map(|lost| lost.name.as_str()).collect();
    lost.sort_unstable();
    assert_eq!((names(&saved), lost), (vec!["a".to_owned()], vec!["b", "c"]));
    // Without its directory, an archive yields its complete members.
    let mut files = model();
    let cut = files[1].1.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
    files[1].1.truncate(cut);
    assert!(open(&files, true, false).is_err());
    let saved = open(&files, false, true).unwrap();
    assert_eq!(names(&saved), ["a", "b", "c"]);
    assert!(saved.notes.iter().any(|note| note.text.contains("is damaged")), "{:?}", saved.notes);
}
