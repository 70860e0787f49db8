//! Shards of Hugging Face, written shards, and mistakes in shards.
#![allow(clippy::disallowed_methods)]

use super::super::Safetensors;
use super::parse_size;
use crate::opening::open_source;
use safetensors::SafeTensors;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge::formats::registry;
use weighbridge_core::checkpoint::{Checkpoint, Name, Origin, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Severity;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{DType, Encoding, Order, Shape};
use weighbridge_format::shards::IndexFiles;
use weighbridge_format::{DeepCheck, Detect, OpenOptions, PlanOptions, ScanCode, WriteFormat};
use weighbridge_io::source::{FolderRef, MemoryFolder, MemorySource, SourceRef};
use weighbridge_io::testing::materialise;

const LIST: &str = "model.safetensors.index.json";

type Files = BTreeMap<String, Vec<u8>>;

fn testdata() -> PathBuf {
    weighbridge_testkit::testdata("safetensors")
}

fn golden() -> Files {
    let mut files = Files::new();
    for file in std::fs::read_dir(testdata().join("shards")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        files.insert(name, std::fs::read(&path).unwrap());
    }
    files
}

fn folder(files: &Files) -> FolderRef {
    let put = |folder: MemoryFolder, (name, bytes): (&String, &Vec<u8>)| folder.with(name, bytes.clone());
    Arc::new(files.iter().fold(MemoryFolder::new("m"), put))
}

fn open_as(files: &Files, lenient: bool) -> Result<Checkpoint> {
    registry().open_folder(&folder(files), &OpenOptions { lenient, ..OpenOptions::default() })
}

/// Opens the folder and its index, which must have the same result.
fn open(files: &Files) -> Result<Checkpoint> {
    let folder = folder(files);
    let whole = open_as(files, false);
    if let Some(list) = folder.open(Path::new(LIST))? {
        let by_list = registry().open_in_folder(list, &folder, Path::new(LIST), &OpenOptions::default());
        match (&whole, by_list) {
            (Ok(whole), Ok(by_list)) => assert_eq!(checkpoint_json(whole), checkpoint_json(&by_list)),
            (Err(whole), Err(by_list)) => assert_eq!(whole.code().as_str(), by_list.code().as_str()),
            (whole, by_list) => panic!("{whole:?} and by the list {by_list:?}"),
        }
    }
    whole
}

fn checkpoint_json(checkpoint: &Checkpoint) -> Json {
    let mut json = checkpoint.to_json();
    json["path"] = Json::Null;
    json["hex"] = checkpoint.tensors.iter().map(hex).collect();
    json
}

fn hex(tensor: &TensorEntry) -> String {
    tensor.read_tensor(Order::Row).unwrap().iter().map(|b| format!("{b:02x}")).collect()
}

fn written(plan: &WritePlan) -> Files {
    plan.files.iter().map(|file| file.name.clone()).zip(materialise(plan)).collect()
}

fn sized(size: &str) -> PlanOptions {
    PlanOptions { settings: vec![("shard".into(), size.into())], ..PlanOptions::default() }
}

fn list_of(files: &Files) -> Json {
    serde_json::from_slice(&files[LIST]).unwrap()
}

/// The files with a changed index.
fn with_list(files: &Files, change: impl Fn(&mut Json)) -> Files {
    let mut list = list_of(files);
    change(&mut list);
    let mut files = files.clone();
    files.insert(LIST.into(), list.to_string().into_bytes());
    files
}

fn refusal(files: &Files) -> Error {
    open(files).unwrap_err()
}

fn codes(checkpoint: &Checkpoint) -> Vec<&'static str> {
    checkpoint.notes.iter().map(|note| note.code.as_str()).collect()
}

#[test]
fn golden_shards_read_as_the_library_reads_them() {
    let files = golden();
    let checkpoint = open(&files).unwrap();
    assert_eq!((checkpoint.format, checkpoint.kind), ("safetensors", "sharded"));
    assert_eq!(codes(&checkpoint), [""; 0]);
    assert_eq!(checkpoint.metadata.to_json(), json!({"format": "pt"}));
    let truth: Json =
        serde_json::from_slice(&std::fs::read(testdata().join("shards.json")).unwrap()).unwrap();
    assert_eq!(checkpoint.tensors.len(), truth.as_object().unwrap().len());
    for tensor in &checkpoint.tensors {
        let theirs = &truth[tensor.text()];
        assert_eq!(Json::from(tensor.shape.dims()), theirs["shape"]);
        assert_eq!(Json::from(hex(tensor)), theirs["hex"], "{}", tensor.name());
        let file = Path::new("m").join(theirs["file"].as_str().unwrap());
        assert_eq!(Path::new(tensor.extents[0].source.label()), file);
    }
    // Every byte of the shards and of the index is accounted for.
    let accounts =
        weighbridge::ops::account::accounts(&checkpoint, None, &weighbridge_core::Limits::default()).unwrap();
    assert_eq!(accounts.findings, []);
    let accounts = accounts.files;
    assert_eq!(accounts.len(), files.len());
    for account in accounts {
        let name = account.file.strip_prefix("m/").unwrap().to_owned();
        assert_eq!(account.spans.iter().map(|s| s.len).sum::<u64>(), files[&name].len() as u64);
    }
}

#[test]
fn the_index_is_written_as_hugging_face_writes_it() {
    let files = golden();
    // In the order of the split.
    let mut checkpoint = open(&files).unwrap();
    let order = ["embed.weight", "h.0.w", "h.0.b", "h.1.w", "step", "größe", "none"];
    checkpoint.tensors.sort_by_key(|t| order.iter().position(|name| *name == t.text()));
    let plan = Safetensors.plan(&checkpoint, &sized("100")).unwrap();
    assert_eq!((plan.kind, &plan.losses[..]), ("sharded", &[][..]));
    let ours = written(&plan);
    assert_eq!(ours.keys().collect::<Vec<_>>(), files.keys().collect::<Vec<_>>());
    assert_eq!(String::from_utf8_lossy(&ours[LIST]), String::from_utf8_lossy(&files[LIST]));
    for (name, bytes) in ours.iter().filter(|(name, _)| *name != LIST) {
        let (theirs, read) =
            (SafeTensors::deserialize(&files[name]).unwrap(), SafeTensors::deserialize(bytes).unwrap());
        assert_eq!(read.names().len(), theirs.names().len());
        for (key, view) in theirs.iter() {
            assert_eq!(read.tensor(key).unwrap(), view);
        }
        let (_, header) = SafeTensors::read_metadata(bytes).unwrap();
        assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
    }
}

fn entry(path: &[&str], dims: &[u64], value: u8) -> TensorEntry {
    let shape = Shape::new(dims);
    let len = usize::try_from(shape.bytes(DType::F32).unwrap()).unwrap();
    let source: SourceRef = Arc::new(MemorySource::new("s", vec![value; len]));
    let path = TensorPath::new(path.iter().map(|&p| Name::from(p)).collect::<Vec<_>>());
    TensorEntry::dense(path, DType::F32, shape, &source, 0, Encoding::ROW).unwrap()
}

/// A checkpoint that needs bridge metadata.
fn rich() -> Checkpoint {
    let mut checkpoint = Checkpoint::new("primitiv", "model", "x");
    checkpoint.origin = Some(Origin { format: "primitiv".into(), kind: "model".into() });
    checkpoint.tensors = vec![
        entry(&["z", "a.b"], &[5], 1),
        entry(&["z", "a", "b"], &[50], 2),
        entry(&["a"], &[5], 3),
        entry(&["a"], &[5], 4),
        entry(&["größe"], &[0, 3], 5),
    ];
    checkpoint.tensors[3].role = Role::OptimizerState { slot: "Adam.m1".into() };
    checkpoint.tensors[2].role = Role::Embedding;
    for (key, value) in [
        ("text", Value::Text("sü\"ß\u{1f600}\n".into())),
        ("total_size", Value::Text("mine".into())),
        ("count", Value::U64(u64::MAX)),
        ("true", Value::Bool(true)),
        ("none", Value::Null),
        ("nan", Value::F64(0x7ff8_0000_0000_0001)),
        ("list", Value::List(vec![Value::I64(-1), Value::F32(1)])),
    ] {
        checkpoint.metadata.set(key, value);
    }
    checkpoint
}

#[test]
fn shards_read_back_completely() {
    let checkpoint = rich();
    let plan = Safetensors.plan(&checkpoint, &sized("40B")).unwrap();
    let losses: Vec<_> = plan.losses.iter().map(|loss| (loss.code.as_str(), loss.subject.as_str())).collect();
    assert_eq!(losses, [("renamed", "z.a.b")]);
    let files = written(&plan);
    // A large tensor has a shard of its own.
    let map = list_of(&files)["weight_map"].clone();
    let shard = |n: u64| Json::from(format!("model-{n:05}-of-00003.safetensors"));
    assert_eq!(
        map,
        json!({"a": shard(3), "a/Adam.m1": shard(3), "größe": shard(3), "z.a.b": shard(1), "z.a.b~2": shard(2)})
    );
    assert_eq!(list_of(&files)["metadata"]["total_size"], json!(4 * 65));
    let back = open(&files).unwrap();
    assert_eq!(codes(&back), [""; 0]);
    assert_eq!(back.origin, checkpoint.origin);
    for (key, value) in checkpoint.metadata.iter() {
        assert_eq!(back.metadata.get(key), Some(value), "{key}");
    }
    assert_eq!(back.metadata.iter().count(), checkpoint.metadata.iter().count());
    assert_eq!(back.tensors.len(), checkpoint.tensors.len());
    for (ours, theirs) in back.tensors.iter().zip(&checkpoint.tensors) {
        assert_eq!((&ours.path, &ours.role, &ours.shape), (&theirs.path, &theirs.role, &theirs.shape));
        assert_eq!(hex(ours), hex(theirs));
    }
    // Rewritten as shards, and as one file on request.
    assert_eq!(Safetensors.plan(&back, &PlanOptions::default()).unwrap().kind, "sharded");
    let again = Safetensors.plan(&back, &sized("40")).unwrap();
    assert_eq!(written(&again), files);
    let copied =
        again.files.iter().flat_map(|file| &file.segments).all(|s| ["literal", "copy"].contains(&s.action()));
    assert!(copied, "nothing is moved");
    let one = Safetensors.plan(&back, &PlanOptions::of_kind("single")).unwrap();
    assert!(one.is_one_file());
}

#[test]
fn shard_sizes_and_kinds() {
    for (text, bytes) in [
        ("5GB", 5_000_000_000),
        ("500mb", 500_000_000),
        ("64MiB", 64 << 20),
        (" 7 ", 7),
        ("1 KB", 1000),
        ("9B", 9),
    ] {
        assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
    }
    for text in ["", "0", "GB", "-1", "1.5GB", "5XB", "99999999TB", "0x10", "18446744073709551616", "٣"] {
        assert_eq!(parse_size(text).unwrap_err().code().as_str(), "bad-size", "{text}");
    }
    let files = |checkpoint: &Checkpoint, options: &PlanOptions| -> Vec<String> {
        Safetensors.plan(checkpoint, options).unwrap().files.into_iter().map(|file| file.name).collect()
    };
    let one = ["model-00001-of-00001.safetensors", LIST];
    assert_eq!(files(&rich(), &PlanOptions::of_kind("sharded")), one);
    assert_eq!(files(&Checkpoint::new("x", "y", "z"), &sized("1")), [LIST]);
    assert_eq!(files(&rich(), &PlanOptions::default()), [""]);
    let both = PlanOptions { kind: Some("single".into()), ..sized("1") };
    assert_eq!(Safetensors.plan(&rich(), &both).unwrap_err().code().as_str(), "shards-in-a-folder");
    let other = PlanOptions::of_kind("other");
    assert_eq!(Safetensors.plan(&rich(), &other).unwrap_err().code().as_str(), "unknown-kind");
    let empty = written(&Safetensors.plan(&Checkpoint::new("x", "y", "z"), &sized("1")).unwrap());
    assert_eq!(
        String::from_utf8_lossy(&empty[LIST]),
        "{\n  \"metadata\": {\n    \"total_size\": 0\n  },\n  \"weight_map\": {}\n}\n"
    );
    assert_eq!(open(&empty).unwrap().tensors.len(), 0);
}

/// A tensor above the shard size has a shard of its own, in its position.
#[test]
fn splitting_keeps_the_order_of_the_tensors() {
    let mut checkpoint = Checkpoint::new("test", "test", "label");
    let sizes = [("d", 8), ("c", 200), ("b", 40), ("e", 40), ("a", 200), ("f", 8)];
    checkpoint.tensors = sizes.iter().map(|&(name, size)| entry(&[name], &[size], 1)).collect();
    let each = checkpoint.tensors[0].dtype().size().unwrap() as u64;
    let plan = Safetensors.plan(&checkpoint, &sized(&(100 * each).to_string())).unwrap();
    let files = written(&plan);
    let back = open(&files).unwrap();
    let names: Vec<String> = back.tensors.iter().map(TensorEntry::text).collect();
    assert_eq!(names, ["d", "c", "b", "e", "a", "f"]);
    assert_eq!(files.len(), 6);
    // The size of the split reproduces it.
    let again = Safetensors.sharding_settings(&back);
    let options = PlanOptions { settings: again, ..PlanOptions::default() };
    assert_eq!(written(&Safetensors.plan(&back, &options).unwrap()), files);
}

#[test]
fn opens_shards_by_file_name_if_the_index_is_missing() {
    let mut files = golden();
    let whole = open(&files).unwrap();
    files.remove(LIST);
    let family = open(&files).unwrap();
    assert_eq!(codes(&family), ["list-missing"]);
    assert_eq!(checkpoint_json(&family)["hex"], checkpoint_json(&whole)["hex"]);
    let found = Safetensors.check(&family).unwrap();
    assert_eq!((found[0].code.as_str(), found[0].severity), ("list-missing", Severity::Warning));
    // A single file opens as before.
    let (name, bytes) = files.clone().pop_first().unwrap();
    let source: SourceRef = Arc::new(MemorySource::new("m", bytes.clone()));
    let one = registry()
        .open_in_folder(source, &folder(&files), Path::new(&name), &OpenOptions::default())
        .unwrap();
    assert_eq!(one.kind, "single");

    files.insert("other.safetensors".into(), bytes.clone());
    assert_eq!(codes(&open(&files).unwrap()), ["list-missing", "not-listed"]);
    files.insert("b-00001-of-00002.safetensors".into(), bytes.clone());
    assert_eq!(refusal(&files).code().as_str(), "several-models");
}

/// Loaders with a variant read `model.safetensors.index.fp16.json`; without one, the plain index.
#[test]
fn recognizes_the_index_of_a_variant() {
    let mut files = golden();
    let whole = open(&files).unwrap();
    let list = files.remove(LIST).unwrap();
    let variant = "model.safetensors.index.fp16.json".to_owned();
    files.insert(variant.clone(), list.clone());
    let opened = open(&files).unwrap();
    assert_eq!((codes(&opened), checkpoint_json(&opened)), (codes(&whole), checkpoint_json(&whole)));
    let shard = "model-00001-of-00003.safetensors";
    let around = folder(&files);
    let named = IndexFiles::with(&around, shard, &Default::default()).unwrap();
    assert_eq!(named.as_deref(), Some(variant.as_str()));
    assert_eq!(super::index_files(&around, &Default::default()).unwrap().read.len(), 1);
    // The index without a variant takes precedence.
    files.insert(LIST.into(), list);
    files.insert(variant, br#"{"weight_map": {"x": "other.safetensors"}}"#.to_vec());
    assert_eq!(checkpoint_json(&open(&files).unwrap()), checkpoint_json(&whole));
    files.insert("b.safetensors.index.json".into(), files[LIST].clone());
    assert_eq!(open_as(&files, false).unwrap_err().code().as_str(), "several-models");
}

#[test]
fn missing_shards_are_listed() {
    let mut files = golden();
    files.remove("model-00002-of-00003.safetensors");
    let error = refusal(&files);
    assert_eq!(
        (error.code().as_str(), error.found_text()),
        ("shard-missing", Some("no model-00002-of-00003.safetensors"))
    );
    let rest = open_as(&files, true).unwrap();
    let (first, others) = rest.notes.split_first().unwrap();
    assert_eq!(
        (first.code.as_str(), first.omission, rest.tensors.is_empty()),
        ("shard-missing", true, false)
    );
    let mut named: Vec<&str> =
        others.iter().map(|note| note.skipped.as_ref().unwrap().name.as_str()).collect();
    let listed = list_of(&golden())["weight_map"].clone();
    let gone = |(_, file): &(&String, &Json)| *file == "model-00002-of-00003.safetensors";
    let mut expected: Vec<&str> =
        listed.as_object().unwrap().iter().filter(gone).map(|(name, _)| name.as_str()).collect();
    expected.sort_unstable();
    named.sort_unstable();
    assert!(!named.is_empty() && named == expected, "{named:?} {expected:?}");
    files.remove(LIST);
    let error = refusal(&files);
    assert_eq!(
        (error.code().as_str(), error.found_text()),
        ("shard-missing", Some("no model-00002-of-00003.safetensors"))
    );
    // A huge number of shards is counted, not enumerated.
    let (_, bytes) = files.pop_first().unwrap();
    let many = Files::from([("m-00002-of-999999999.safetensors".to_owned(), bytes)]);
    let error = refusal(&many);
    assert!(
        error.found_text().unwrap().ends_with("m-00006-of-999999999.safetensors and 999999993 more"),
        "{error}"
    );
}

#[test]
fn reports_mistakes_in_the_index() {
    let files = golden();
    let at = |n: u64| Json::from(format!("model-{n:05}-of-00003.safetensors"));
    for name in ["../x", "/etc/passwd", "a/../../b", "", ".", "a\0b"] {
        let files = with_list(&files, |list| list["weight_map"]["step"] = name.into());
        let error = refusal(&files);
        assert_eq!(
            (error.code().as_str(), error.file()),
            ("unsafe-name", Some("m/model.safetensors.index.json")),
            "{name}"
        );
    }
    let wrong = with_list(&files, |list| list["weight_map"]["h.0.b"] = at(3));
    assert_eq!((refusal(&wrong).code().as_str(), refusal(&wrong).tensor()), ("wrong-shard", Some("h.0.b")));
    assert_eq!(codes(&open_as(&wrong, true).unwrap()), ["wrong-shard"]);

    let absent = with_list(&files, |list| list["weight_map"]["nowhere"] = at(2));
    assert_eq!(
        (refusal(&absent).code().as_str(), refusal(&absent).tensor()),
        ("tensor-missing", Some("nowhere"))
    );
    let rest = open_as(&absent, true).unwrap();
    assert!(rest.notes[0].omission, "{:?}", rest.notes);

    let unlisted = with_list(&files, |list| {
        list["weight_map"].as_object_mut().unwrap().remove("step");
    });
    let checkpoint = open(&unlisted).unwrap();
    assert_eq!(codes(&checkpoint), ["not-in-list"]);
    assert!(checkpoint.tensor("step").is_ok());
    assert_eq!(Safetensors.check(&checkpoint).unwrap()[0].severity, Severity::Warning);

    for (size, fits) in [(json!(1), false), (json!("x"), false), (json!(-3), false), (json!(null), false)] {
        let sized = with_list(&files, |list| list["metadata"]["total_size"] = size.clone());
        assert_eq!(codes(&open(&sized).unwrap()) == [""; 0], fits, "{size}");
    }
    let total = list_of(&files)["metadata"]["total_size"].as_u64().unwrap();
    let float = with_list(&files, |list| list["metadata"]["total_size"] = json!(total as f64));
    assert_eq!(codes(&open(&float).unwrap()), [""; 0]);
    let none = with_list(&files, |list| list["metadata"] = Json::Null);
    assert_eq!(codes(&open(&none).unwrap()), [""; 0]);

    let torch =
        with_list(&files, |list| list["weight_map"] = json!({"a": "pytorch_model-00001-of-00002.bin"}));
    assert_eq!(refusal(&torch).code().as_str(), "shard-missing");
    let more = with_list(&files, |list| list["extra"] = json!([1, {"a": 2}]));
    assert_eq!(codes(&open(&more).unwrap()), ["unknown-field"]);
    let mut two = files.clone();
    two.insert("b.safetensors.index.json".into(), files[LIST].clone());
    assert_eq!(open_as(&two, false).unwrap_err().code().as_str(), "several-models");
}

#[test]
fn rejects_a_tensor_in_two_shards() {
    let mut files = golden();
    let one = entry(&["step"], &[1], 9);
    let extra = Checkpoint { tensors: vec![one], ..Checkpoint::new("x", "y", "z") };
    let bytes = materialise(&Safetensors.plan(&extra, &PlanOptions::default()).unwrap()).remove(0);
    files.insert("extra.safetensors".into(), bytes);
    // The index names the shard for another tensor.
    let files = with_list(&files, |list| list["weight_map"]["none"] = "extra.safetensors".into());
    assert_eq!((refusal(&files).code().as_str(), refusal(&files).tensor()), ("tensor-twice", Some("step")));
    let lenient = open_as(&files, true).unwrap();
    assert_eq!(codes(&lenient), ["tensor-twice", "wrong-shard"]);
    assert_eq!(lenient.tensor("step").unwrap().dtype(), DType::I64, "the shard that the index names");
}

#[test]
fn rejects_duplicate_keys() {
    for text in [
        r#"{"weight_map": {"a": "x", "a": "x"}}"#,
        r#"{"weight_map": {}, "weight_map": {}}"#,
        r#"{"metadata": {"a": 1, "a": 2}, "weight_map": {}}"#,
    ] {
        let files = Files::from([(LIST.to_owned(), text.into())]);
        assert_eq!(refusal(&files).code().as_str(), "duplicate-key", "{text}");
    }
    for text in
        [r#"{"weight_map": []}"#, r#"{"weight_map": {"a": 1}}"#, r#"{"metadata": 3, "weight_map": {}}"#]
    {
        let files = Files::from([(LIST.to_owned(), text.into())]);
        assert_eq!(open_as(&files, false).unwrap_err().code().as_str(), "bad-header", "{text}");
    }
}

#[test]
fn prefixes_and_changed_bytes_of_the_index_never_panic() {
    let files = golden();
    let list = &files[LIST];
    for len in 0..list.trim_ascii_end().len() {
        let mut cut = files.clone();
        cut.insert(LIST.into(), list[..len].to_vec());
        let error = open_as(&cut, false).unwrap_err();
        assert_eq!(
            (error.code().as_str(), error.file()),
            ("bad-json", Some("m/model.safetensors.index.json")),
            "{len}"
        );
    }
    for (at, &old) in list.iter().enumerate() {
        for value in [0, 0xff, b'"', b'}', b'9', old ^ 1] {
            let mut changed = files.clone();
            changed.get_mut(LIST).unwrap()[at] = value;
            for lenient in [false, true] {
                if let Ok(checkpoint) = open_as(&changed, lenient) {
                    assert!(!checkpoint.tensors.is_empty());
                }
            }
        }
    }
}

#[test]
fn detects_an_index_by_content() {
    let source =
        |text: &str| -> SourceRef { Arc::new(MemorySource::new("x.json", text.as_bytes().to_vec())) };
    let long = format!("{{\"metadata\": {{\"a\": \"{}\"}}, \"weight_map\": {{}}}}", "x".repeat(200_000));
    for text in [r#"{"weight_map":{}}"#, "{\n  \"metadata\": {}, \"weight_map\": {}}", &long] {
        assert_eq!(registry().detect(&source(text)).unwrap().info().id, "safetensors");
        let alone = open_source(source(text), &OpenOptions::default()).unwrap_err();
        assert_eq!(alone.code().as_str(), "list-alone");
        let scan = Safetensors.scan(&source(text), &OpenOptions::default()).unwrap();
        assert_eq!(scan.findings, []);
    }
    for text in ["{}", r#"{"metadata": {}}"#, r#"{"a": 1, "b": "weight_map"}"#, "[]", "{\"metadata"] {
        assert!(registry().detect(&source(text)).is_err(), "{text}");
    }
    let cut = Safetensors.scan(&source(r#"{"weight_map":{"#), &OpenOptions::default()).unwrap();
    assert_eq!(cut.findings[0].severity, Severity::Unchecked);
    let others = Files::from([("model.safetensors".to_owned(), golden().pop_first().unwrap().1)]);
    assert!(!Safetensors.recognises_folder(&folder(&others)));
}

/// The files with other metadata in one shard.
fn with_metadata(files: &Files, name: &str, metadata: &Json) -> Files {
    let mut files = files.clone();
    let bytes = &files[name];
    let len = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let mut header: Json = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    header["__metadata__"] = metadata.clone();
    let header = serde_json::to_vec(&header).unwrap();
    let new = [&(header.len() as u64).to_le_bytes()[..], &header, &bytes[8 + len..]].concat();
    files.insert(name.to_owned(), new);
    files
}

#[test]
fn differing_metadata_of_shards_is_a_loss_but_not_unread() {
    let mut files = with_metadata(&golden(), "model-00001-of-00003.safetensors", &json!({"c": "1"}));
    files = with_metadata(&files, "model-00002-of-00003.safetensors", &json!({"c": "2"}));
    let checkpoint = open(&files).unwrap();
    let note = checkpoint.notes.iter().find(|note| note.code == "metadata-differs").unwrap();
    assert!(note.omission && !note.is_unread() && checkpoint.metadata.to_json()["c"] == "1");
    let losses = checkpoint.left_behind();
    assert!(losses.iter().any(|loss| loss.subject == "metadata-differs"), "{losses:?}");
    // The whole file was checked.
    let report = weighbridge::ops::verify::verify_checkpoint(&checkpoint, &Default::default()).unwrap();
    assert_eq!(report.verdict.as_str(), "sound", "{:?}", report.findings);
}
