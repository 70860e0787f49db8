//! Comparison of golden streams with Paddle's own objects; damaged, malformed and foreign files.

#![allow(clippy::disallowed_methods)]

mod damaged;
mod detection;
mod golden;
mod made;
mod malformed;
mod unshipped;

use super::{Dense, combined, dense, selected_rows, vocab};
use serde_json::Value as Json;
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::checkpoint::TensorPath;
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_io::source::{Cursor, SourceRef};
use weighbridge_io::testing::materialise;
use weighbridge_testkit::memory;

/// The folders of golden files, all of them written by Paddle.
const GOOD: [&str; 12] = [
    "p262/cnn_jit",
    "p262/cnn_legacy_combined",
    "p262/cnn_legacy_separate",
    "p262/cnn_static_infer",
    "p262/combined_mixed",
    "p262/lod_tensors",
    "p262/save_as_fp16",
    "p262/selected_rows",
    "p262/separate_mixed",
    "p331/fp8_tensors",
    "p331/save_combine_func",
    "p331/selected_rows",
];

fn testdata(path: &str) -> PathBuf {
    weighbridge_testkit::testdata("").join(path)
}

fn good(path: &str) -> Vec<u8> {
    std::fs::read(testdata("paddle/good").join(path)).unwrap()
}

fn damaged(name: &str) -> Vec<u8> {
    std::fs::read(testdata("paddle/bad/p262/damaged").join(name)).unwrap()
}

fn expected(folder: &str) -> Json {
    serde_json::from_slice(&good(&format!("{folder}/expected.json"))).unwrap()
}

fn read_all(bytes: &[u8]) -> Result<Vec<Dense>> {
    combined::read_all(&memory(bytes), &Limits::default())
}

fn read_rows(bytes: &[u8]) -> Result<Dense> {
    let mut cursor = Cursor::new(memory(bytes), 0);
    let rows = selected_rows::read(&mut cursor, &TensorPath::value(), &Limits::default())?;
    assert!(cursor.position() == rows.header.stream_bytes);
    Ok(rows)
}

fn read_vocab(bytes: &[u8]) -> Result<vocab::Vocab> {
    vocab::read(&mut Cursor::new(memory(bytes), 0), &Limits::default())
}

/// The bytes that a layouter plans.
fn written(layout: impl FnOnce(&mut FileBuilder) -> Result<()>) -> Vec<u8> {
    let mut file = FileBuilder::new("");
    layout(&mut file).unwrap();
    let plan = WritePlan { format: "paddle", kind: "any", files: vec![file.finish()], losses: vec![] };
    materialise(&plan).remove(0)
}

fn rewritten(tensors: &[Dense]) -> Vec<u8> {
    let sum: u64 = tensors.iter().map(|t| dense::stream_bytes(&t.entry).unwrap()).sum();
    let bytes = written(|file| combined::layout(file, tensors.iter().map(|t| &t.entry)));
    assert_eq!(bytes.len() as u64, sum);
    bytes
}

/// A stream as Paddle writes it: no LoD.
fn stream(desc: &[u8], data: &[u8]) -> Vec<u8> {
    let len = i32::try_from(desc.len()).unwrap().to_le_bytes();
    [&[0; 16][..], &len, desc, data].concat()
}

/// A tensor of `n` times f32, as a stream.
fn floats(n: u8) -> Vec<u8> {
    stream(&[0x08, 0x05, 0x10, n], &vec![n; 4 * usize::from(n)])
}

/// Returns the findings of the LoD check for one tensor.
fn lod_problem(entry: &TensorEntry) -> Option<String> {
    weighbridge_core::check::lod(std::slice::from_ref(entry)).pop().map(|finding| finding.text.to_string())
}
