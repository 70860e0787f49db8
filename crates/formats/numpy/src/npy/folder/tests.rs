//! Folders written and read back, and folders of other content.
#![allow(clippy::disallowed_methods)]

use super::super::Npy;
use crate::opening::{detect_folder, open_folder};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::Arc;
use weighbridge_core::checkpoint::{
    Checkpoint, MemoryRowNames, Name, Note, Origin, Role, TensorEntry, TensorPath, Value,
};
use weighbridge_core::tensor::{DType, Encoding, Endian, Order, Shape};
use weighbridge_format::{Detect, OpenOptions, PlanOptions, WriteFormat};
use weighbridge_io::source::{FolderRef, MemoryFolder, MemorySource, SourceRef};
use weighbridge_io::testing::materialise;

type Files = BTreeMap<String, Vec<u8>>;

fn folder(files: &Files) -> FolderRef {
    let put = |folder: MemoryFolder, (name, bytes): (&String, &Vec<u8>)| folder.with(name, bytes.clone());
    Arc::new(files.iter().fold(MemoryFolder::new("m"), put))
}

fn open(files: &Files) -> weighbridge_core::Result<Checkpoint> {
    let folder = folder(files);
    assert_eq!(detect_folder(&folder).unwrap().info().id, "npy");
    open_folder(&folder, &OpenOptions::default())
}

fn entry(path: &[&str], dims: &[u64], order: Order) -> TensorEntry {
    let shape = Shape::new(dims);
    let len = u8::try_from(shape.bytes(DType::F32).unwrap()).unwrap();
    let source: SourceRef = Arc::new(MemorySource::new("s", (0..len).collect()));
    let path = TensorPath::new(path.iter().map(|&p| Name::from(p)).collect::<Vec<_>>());
    let encoding = Encoding { order, endian: Endian::Little };
    TensorEntry::dense(path, DType::F32, shape, &source, 0, encoding).unwrap()
}

fn rich() -> Checkpoint {
    let mut checkpoint = Checkpoint::new("biggraph", "checkpoint", "x");
    checkpoint.origin = Some(Origin { format: "biggraph".into(), kind: "checkpoint".into() });
    checkpoint.tensors = vec![
        entry(&["z", "user"], &[3, 2], Order::Row),
        entry(&["z.user"], &[2, 3], Order::Column),
        entry(&["z", "user"], &[3], Order::Row),
        entry(&["a", "/../b\\", ""], &[], Order::Row),
        entry(&[""], &[0, 2], Order::Row),
        entry(&["weighbridge", "index"], &[1], Order::Row),
    ];
    let names = ["a", "sü\"ß\u{1f600}", ""].into_iter().collect();
    checkpoint.tensors[0].row_names = Some(MemoryRowNames::shared("names", names));
    checkpoint.tensors[0].role = Role::Embedding;
    checkpoint.tensors[2].role = Role::OptimizerState { slot: "sum".into() };
    checkpoint.metadata.set("text", Value::Text("t\n".into()));
    checkpoint.metadata.set("version", Value::U64(3));
    checkpoint
}

fn written(checkpoint: &Checkpoint) -> Files {
    let plan = Npy.plan(checkpoint, &PlanOptions::default()).unwrap();
    assert_eq!((plan.kind, &plan.losses[..]), ("folder", &[][..]));
    plan.files.iter().map(|file| file.name.clone()).zip(materialise(&plan)).collect()
}

#[test]
fn folders_read_back_completely() {
    let checkpoint = rich();
    let files = written(&checkpoint);
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "_.npy",
            "a.%2F..%2Fb%5C..npy",
            "weighbridge.index.json",
            "weighbridge.index.npy",
            "z.user%2Fsum.npy",
            "z.user.names.json",
            "z.user.npy",
            "z.user~2.npy"
        ]
    );
    let list: Json = serde_json::from_slice(&files["z.user.names.json"]).unwrap();
    assert_eq!(list, serde_json::json!(["a", "sü\"ß\u{1f600}", ""]));
    let back = open(&files).unwrap();
    assert_eq!((back.kind, &back.notes[..]), ("folder", &[][..]));
    assert_eq!((&back.origin, &back.metadata), (&checkpoint.origin, &checkpoint.metadata));
    assert_eq!(back.tensors.len(), checkpoint.tensors.len());
    for (ours, theirs) in back.tensors.iter().zip(&checkpoint.tensors) {
        assert_eq!((&ours.path, &ours.role, &ours.shape), (&theirs.path, &theirs.role, &theirs.shape));
        assert_eq!(ours.read_tensor(Order::Row).unwrap(), theirs.read_tensor(Order::Row).unwrap());
        let names = |t: &TensorEntry| t.row_names.as_ref().map(|labels| labels.read().unwrap());
        assert_eq!(names(ours), names(theirs));
    }
    assert_eq!(back.tensors[1].order(), Order::Column, "kept as it was");
    assert_eq!(written(&back), files, "a folder again, the same");
}

#[test]
fn plain_arrays_need_no_bridge_metadata() {
    let mut checkpoint = Checkpoint::new("x", "y", "z");
    checkpoint.tensors = vec![entry(&["b", "c"], &[2], Order::Row), entry(&["a"], &[2], Order::Row)];
    let files = written(&checkpoint);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["a.npy", "b.c.npy"]);
    let back = open(&files).unwrap();
    assert_eq!(back.tensors.iter().map(TensorEntry::text).collect::<Vec<_>>(), ["a", "b.c"]);
    checkpoint.tensors.pop();
    assert_eq!(Npy.plan(&checkpoint, &PlanOptions::default()).unwrap().kind, "array");
    assert_eq!(Npy.plan(&checkpoint, &PlanOptions::of_kind("folder")).unwrap().kind, "folder");
    checkpoint.tensors.clear();
    let none = Npy.plan(&checkpoint, &PlanOptions::of_kind("folder")).unwrap_err();
    assert_eq!(none.code().as_str(), "no-tensors");
}

#[test]
fn reports_long_metadata_and_mismatched_row_names() {
    let mut checkpoint = rich();
    checkpoint.metadata.set("long", Value::Text("\u{1}".repeat(200_000)));
    checkpoint.notes.push(Note::omission("x", "y"));
    let plan = Npy.plan(&checkpoint, &PlanOptions::default()).unwrap();
    let codes: Vec<_> = plan.losses.iter().map(|loss| (loss.code.as_str(), loss.subject.as_str())).collect();
    assert_eq!(codes, [("metadata-dropped", "long"), ("omitted", "x")]);
    checkpoint.metadata.set("long", Value::Text("x".repeat(1_000_000)));
    checkpoint.notes.clear();
    assert_eq!(open(&written(&checkpoint)).unwrap().metadata, checkpoint.metadata);

    let short = ["a"].into_iter().collect();
    checkpoint.tensors[0].row_names = Some(MemoryRowNames::shared("names", short));
    assert_eq!(Npy.plan(&checkpoint, &PlanOptions::default()).unwrap_err().code().as_str(), "names-differ");
}

#[test]
fn only_folders_of_arrays_are_claimed() {
    let mut files = written(&rich());
    let claims = |files: &Files| Npy.recognises_folder(&folder(files));
    assert!(claims(&files));
    // With bridge metadata other files are allowed; they are not part of the model, so they are not losses.
    for (other, beside) in
        [("readme.md", false), ("x.npz", true), ("more/a.npy", false), (".DS_Store", false)]
    {
        let mut files = files.clone();
        files.insert(other.into(), Vec::new());
        let codes: Vec<_> = open(&files).unwrap().notes.iter().map(|note| note.code.as_str()).collect();
        assert_eq!(codes, if beside { vec!["other-models"] } else { Vec::new() }, "{other}");
    }
    // Without bridge metadata, a folder where all model files are arrays.
    files.remove("weighbridge.index.json");
    assert!(claims(&files));
    for other in ["readme.md", "x.npz", "more/a.npy", "npy"] {
        let mut files = files.clone();
        files.insert(other.into(), Vec::new());
        assert!(!claims(&files), "{other}");
        match other {
            "x.npz" => {
                assert_eq!(detect_folder(&folder(&files)).err().unwrap().code().as_str(), "not-a-file")
            }
            _ => assert_eq!(open(&files).unwrap().tensors.len(), rich().tensors.len(), "{other}"),
        }
    }
    let mut none = files.clone();
    none.retain(|name, _| !name.ends_with(".npy"));
    assert!(!claims(&none) && !claims(&Files::new()));
    // A named format opens the arrays.
    let options = OpenOptions { format: Some("npy".into()), ..OpenOptions::default() };
    let mut more = files.clone();
    more.insert("readme.md".into(), Vec::new());
    let opened = open_folder(&folder(&more), &options).unwrap();
    assert!(opened.notes.is_empty(), "{:?}", opened.notes);
    assert_eq!(open_folder(&folder(&none), &options).unwrap_err().code().as_str(), "no-arrays");
}

#[test]
fn errors_name_the_damaged_file() {
    let files = written(&rich());
    let mut bad = files.clone();
    bad.get_mut("z.user~2.npy").unwrap().pop();
    let error = open(&bad).unwrap_err();
    assert_eq!((error.code().as_str(), error.file()), ("truncated", Some("m/z.user~2.npy")));
    let mut bad = files.clone();
    bad.insert("weighbridge.index.json".into(), b"\"\xff\"".to_vec());
    assert_eq!(open(&bad).unwrap_err().code().as_str(), "not-utf8");
    for len in 0..files["weighbridge.index.json"].len() - 1 {
        let mut cut = files.clone();
        cut.get_mut("weighbridge.index.json").unwrap().truncate(len);
        assert_eq!(open(&cut).unwrap().notes[0].code.as_str(), "carried-index-unreadable");
    }
    for (text, code) in
        [("[\"a\"]", "names-differ"), ("[1]", "not-a-list-of-names"), ("[\"a\",", "not-a-list-of-names")]
    {
        let mut bad = files.clone();
        bad.insert("z.user.names.json".into(), text.into());
        let opened = open(&bad).unwrap();
        assert_eq!(opened.tensors[0].row_names.as_ref().unwrap().read().unwrap_err().code().as_str(), code);
    }
    let mut lone = files.clone();
    lone.insert("unmatched.names.json".into(), b"[]".to_vec());
    assert_eq!(open(&lone).unwrap().notes[0].code.as_str(), "other-files");
}
