//! Tests of pickled states: golden files of Paddle, written files, damage.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod distributed;
mod golden;
mod losses;
mod malformed;
mod odd;
mod written;

use super::*;
use serde_json::Value as Json;
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge_core::tensor::Order;
use weighbridge_format::{OpenOptions, PlanOptions};
use weighbridge_io::source::SourceRef;
use weighbridge_io::testing::materialise;
use weighbridge_pickle::{Builder, Part, write};
use weighbridge_testkit::memory;

fn good() -> PathBuf {
    weighbridge_testkit::testdata("paddle/good")
}

fn golden(name: &str) -> Vec<u8> {
    weighbridge_testkit::golden(std::path::Path::new("paddle/good").join(name))
}

fn open(bytes: &[u8]) -> weighbridge_core::Result<Checkpoint> {
    read(&memory(bytes), &OpenOptions::default())
}

fn settings(pairs: &[(&str, &str)]) -> PlanOptions {
    let own = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    PlanOptions { settings: pairs.iter().map(own).collect(), ..PlanOptions::default() }
}

fn rewrite(checkpoint: &Checkpoint, pairs: &[(&str, &str)]) -> Vec<u8> {
    materialise(&plan(checkpoint, &settings(pairs)).unwrap()).remove(0)
}

fn sha256(entry: &TensorEntry) -> String {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(entry.read_tensor(Order::Row).unwrap());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lists all pickled states among the golden files.
fn states() -> Vec<String> {
    let mut all = Vec::new();
    for era in ["p262", "p331"] {
        for folder in std::fs::read_dir(good().join(era)).unwrap() {
            for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
                if matches!(extension, "pdparams" | "pdopt" | "pdckpt" | "pdtensor" | "pd" | "distcp") {
                    all.push(path.strip_prefix(good()).unwrap().display().to_string());
                }
            }
        }
    }
    all.sort();
    assert!(all.len() >= 45, "only {} golden states", all.len());
    all
}

/// Encodes a pickle without arrays, or with small ones only.
fn pickled(
    build: impl FnOnce(&mut Builder) -> weighbridge_core::Result<weighbridge_pickle::ObjectId>,
    protocol: u8,
) -> Vec<u8> {
    let mut builder = Builder::new();
    let root = build(&mut builder).unwrap();
    let parts = write(&builder.finish(), root, protocol, &mut |place| panic!("{place:?}")).unwrap();
    let literal = |part: Part| match part {
        Part::Literal(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    parts.into_iter().flat_map(literal).collect()
}
