//! Golden files of Paddle, with their contents by Paddle.

use crate::support::testdata;
use serde_json::{Value as Json, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge::formats::paddle::ReadOptions;
use weighbridge::ops::hash;
use weighbridge::source::{FileSource, SourceRef};
use weighbridge::{Checkpoint, OpenOptions, TensorEntry};

/// The path of a golden file or folder, such as `p262/cnn_jit`.
pub(crate) fn good(name: &str) -> PathBuf {
    testdata("paddle/good").join(name)
}

/// The path of a file or folder that `judges/make_paddle.py` wrote.
pub(crate) fn made(name: &str) -> PathBuf {
    testdata("paddle/made").join(name)
}

/// The path of a broken file or folder.
pub(crate) fn bad(name: &str) -> PathBuf {
    testdata("paddle/bad").join(name)
}

/// What Paddle says of the files in a folder.
pub(crate) fn expected(folder: &Path) -> Json {
    serde_json::from_slice(&fs::read(folder.join("expected.json")).unwrap()).unwrap()
}

/// An array of JSON; none where there is none.
pub(crate) fn list(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}

/// An array of texts.
pub(crate) fn texts(json: &Json) -> Vec<&str> {
    list(json).iter().map(|text| text.as_str().unwrap()).collect()
}

pub(crate) fn open(path: impl AsRef<Path>) -> Checkpoint {
    let path = path.as_ref();
    weighbridge::formats::open(path).unwrap_or_else(|e| panic!("{path:?}: {e}"))
}

pub(crate) fn source(path: impl AsRef<Path>) -> SourceRef {
    Arc::new(FileSource::open(path.as_ref()).unwrap())
}

/// Options that name a program.
pub(crate) fn with_program(path: impl AsRef<Path>) -> OpenOptions {
    let own = ReadOptions { program: Some(source(path)), program_info: None };
    OpenOptions::default().with_own(own)
}

/// The word for an element type, from that of Paddle or numpy.
fn dtype(json: &Json) -> &'static str {
    match json["numpy_dtype"].as_str().or(json["dtype"].as_str()).unwrap() {
        "bool" | "BOOL" => "bool",
        "uint8" | "UINT8" => "u8",
        "int8" | "INT8" => "i8",
        "int16" | "INT16" => "i16",
        "int32" | "INT32" => "i32",
        "int64" | "INT64" => "i64",
        "float16" | "FP16" => "f16",
        "uint16" | "BF16" => "bf16",
        "float32" | "FP32" => "f32",
        "float64" | "FP64" => "f64",
        "complex64" | "COMPLEX64" => "c64",
        "complex128" | "COMPLEX128" => "c128",
        "FP8_E4M3FN" => "f8_e4m3",
        "FP8_E5M2" => "f8_e5m2",
        other => panic!("{other}"),
    }
}

/// Type, shape, values, levels and rows of a tensor are what Paddle says.
pub(crate) fn compare(entry: &TensorEntry, json: &Json, at: &str) {
    assert_eq!(entry.dtype().name(), dtype(json), "{at}");
    assert_eq!(json!(entry.shape.dims()), json["shape"], "{at}");
    assert_eq!(hash::sha256(entry).unwrap(), json["sha256"].as_str().unwrap(), "{at}");
    let attribute = |key: &str| entry.attributes.get(key).map(|value| value.to_json());
    assert_eq!(attribute("lod").as_ref(), Some(&json["lod"]).filter(|lod| !list(lod).is_empty()), "{at}");
    assert_eq!(attribute("rows").as_ref(), json.get("rows"), "{at}");
    assert_eq!(attribute("height").as_ref(), json.get("height"), "{at}");
}

/// The tensors are these, by name, in this order, and none of them is a guess.
pub(crate) fn compare_all(checkpoint: &Checkpoint, tensors: &[Json], at: &str) {
    let names: Vec<_> = checkpoint.tensors.iter().map(|t| t.path.to_text()).collect();
    let wanted: Vec<_> = tensors.iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, wanted, "{at}");
    for (entry, json) in checkpoint.tensors.iter().zip(tensors) {
        assert!(!entry.guessed, "{at}");
        compare(entry, json, &format!("{at}: {}", json["name"]));
    }
}

/// All files below a folder, as paths relative to it, sorted.
pub(crate) fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for item in fs::read_dir(folder).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// A copy of a folder's files, without what only tests need.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    for name in files_below(from) {
        if is_data(&name) {
            let target = to.join(&name);
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::copy(from.join(&name), target).unwrap();
        }
    }
}

/// True for files that Paddle wrote as part of a model.
pub(crate) fn is_data(name: &Path) -> bool {
    name.file_name().is_some_and(|n| n != "expected.json") && name.extension().is_none_or(|e| e != "npy")
}

/// Fails unless two folders hold the same files with the same bytes.
pub(crate) fn same_files(ours: &Path, golden: &Path) {
    let of = |root: &Path| files_below(root).into_iter().filter(|n| is_data(n)).collect::<Vec<_>>();
    assert_eq!(of(ours), of(golden), "{golden:?}");
    for name in of(golden) {
        assert!(
            fs::read(ours.join(&name)).unwrap() == fs::read(golden.join(&name)).unwrap(),
            "{golden:?} {name:?}"
        );
    }
}
