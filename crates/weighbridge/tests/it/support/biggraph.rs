//! Golden files of PyTorch-BigGraph, with their contents by h5py and torch.

use crate::support::testdata;
use serde_json::{Map, Value as Json, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge::checkpoint::Value;
use weighbridge::formats::PlanOptions;
use weighbridge::formats::biggraph::ReadOptions;
use weighbridge::ops::hash;
use weighbridge::source::{FileSource, LocalFolder};
use weighbridge::{Checkpoint, OpenOptions, TensorEntry};

/// The sets of golden files.
pub(crate) const SETS: [&str; 2] = ["set1", "set2"];

/// The path of a golden file or folder, such as `set1/ckpt_std_zip`.
pub(crate) fn golden(name: &str) -> PathBuf {
    testdata("biggraph").join(name)
}

/// What is said of each file of a set, by its path in the set.
pub(crate) fn expected(set: &str) -> Map<String, Json> {
    let json: Json = serde_json::from_slice(&fs::read(golden(set).join("expected.json")).unwrap()).unwrap();
    json["files"].as_object().unwrap().clone()
}

pub(crate) fn open(path: impl AsRef<Path>) -> Checkpoint {
    open_with(path, &OpenOptions::default())
}

pub(crate) fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Checkpoint {
    let path = path.as_ref();
    weighbridge::formats::open_with(path, options).unwrap_or_else(|e| panic!("{path:?}: {e}"))
}

/// Options that name a configuration and a folder of entities.
pub(crate) fn knowing(config: Option<PathBuf>, entities: Option<PathBuf>) -> OpenOptions {
    OpenOptions::default().with_own(ReadOptions {
        config: config.map(|path| Arc::new(FileSource::open(path).unwrap()) as _),
        entities: entities.map(|path| Arc::new(LocalFolder::open(path).unwrap()) as _),
        version: None,
    })
}

/// Options that name a version.
pub(crate) fn at_version(version: u64) -> OpenOptions {
    OpenOptions::default().with_own(ReadOptions { version: Some(version), ..ReadOptions::default() })
}

/// How it is planned: of that kind, with these settings.
pub(crate) fn options(kind: Option<&str>, settings: &[(&str, &str)]) -> PlanOptions {
    let settings = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    PlanOptions { kind: kind.map(str::to_owned), settings, ..PlanOptions::default() }
}

/// The SHA-256 of bytes, in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn lenient() -> OpenOptions {
    OpenOptions { lenient: true, ..OpenOptions::default() }
}

/// Copies a folder with all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::write(target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// Compares type, shape and values of a tensor with the `json` of a dataset or a tensor.
pub(crate) fn compare(entry: &TensorEntry, json: &Json, at: &str) {
    let dtype = match json["dtype"].as_str().unwrap() {
        "int64" | ">i8" => "i64",
        "float32" => "f32",
        "float64" => "f64",
        other => panic!("{other}"),
    };
    assert_eq!(entry.dtype().name(), dtype, "{at}");
    assert_eq!(json!(entry.shape.dims()), json["shape"], "{at}");
    assert_eq!(hash::sha256(entry).unwrap(), json["sha256"].as_str().unwrap(), "{at}");
}

/// An unpickled object as plain JSON: `{"dict": [[k, v]]}` an object, `{"list": []}` an array,
/// `{"float": x}` a number.
pub(crate) fn plain(object: &Json) -> Json {
    let Some(map) = object.as_object() else { return object.clone() };
    let (tag, value) = map.iter().next().unwrap();
    match tag.as_str() {
        "dict" => {
            let pairs = value.as_array().unwrap().iter();
            pairs.map(|pair| (key(&pair[0]), plain(&pair[1]))).collect::<Map<_, _>>().into()
        }
        "list" => value.as_array().unwrap().iter().map(plain).collect(),
        "float" => json!(value.as_f64().unwrap()),
        other => panic!("{other}"),
    }
}

fn key(json: &Json) -> String {
    json.as_str().map_or_else(|| json.to_string(), str::to_owned)
}

/// The member of a dict of an unpickled object.
pub(crate) fn member<'a>(object: &'a Json, name: &str) -> Option<&'a Json> {
    let pairs = object["dict"].as_array()?;
    pairs.iter().find(|pair| key(&pair[0]) == name).map(|pair| &pair[1])
}

/// A value of the metadata as JSON; null where there is none.
pub(crate) fn metadata(checkpoint: &Checkpoint, key: &str) -> Json {
    checkpoint.metadata.get(key).map_or(Json::Null, Value::to_json)
}

pub(crate) fn codes(checkpoint: &Checkpoint) -> Vec<&'static str> {
    checkpoint.notes.iter().map(|note| note.code.as_str()).collect()
}
