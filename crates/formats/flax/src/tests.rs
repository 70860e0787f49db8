//! Golden files of Flax and Orbax, damaged files, and what is written.
#![allow(clippy::disallowed_methods)]

mod damage;
mod golden;
mod written;

use crate::{Flax, Orbax};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::Result;
use weighbridge_core::source::SourceRef;
use weighbridge_core::tensor::Order;
use weighbridge_format::{OpenOptions, Registry};
use weighbridge_testkit::testdata;

fn registry() -> Registry {
    Registry::new([&Flax as _, &Orbax as _])
}

fn open_path(path: &Path) -> Result<Checkpoint> {
    registry().open_with(path, &OpenOptions::default())
}

fn open(source: SourceRef) -> Result<Checkpoint> {
    registry().open_source(source, &OpenOptions { format: Some("flax".into()), ..OpenOptions::default() })
}

/// Golden files of a format with their expected content.
fn expected(format: &str) -> BTreeMap<PathBuf, Json> {
    let text = std::fs::read(testdata(format).join("expected.json")).unwrap();
    let all: BTreeMap<String, Json> = serde_json::from_slice(&text).unwrap();
    assert!(all.len() >= 20);
    all.into_iter().map(|(name, json)| (testdata(format).join("good").join(name), json)).collect()
}

/// Bytes of the single golden files of Flax by name.
fn files() -> BTreeMap<String, Vec<u8>> {
    let path = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let all = expected("flax").into_keys().filter(|path| path.is_file());
    all.map(|file| (path(&file), std::fs::read(&file).unwrap())).collect()
}

/// Tensors by key: dtype, shape and hash of the elements.
fn content(checkpoint: &Checkpoint) -> BTreeMap<String, Json> {
    let entry = |tensor: &weighbridge_core::TensorEntry| {
        let bytes = tensor.read_tensor(Order::Row).unwrap();
        let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let json = serde_json::json!({ "dtype": tensor.dtype().name(), "shape": tensor.shape.dims(), "sha256": hash });
        (crate::keys::key_of(&tensor.path), json)
    };
    checkpoint.tensors.iter().map(entry).collect()
}
