//! Tests with programs written by Paddle, and with damaged and changed ones.

mod build;
mod golden;
mod malformed;
mod rename;
mod strip;
mod text;

use super::ProgramDesc;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use weighbridge_core::limits::Limits;

/// The folder of the golden files.
fn folder() -> PathBuf {
    weighbridge_testkit::testdata("paddle/good")
}

#[allow(clippy::disallowed_methods)]
fn read(path: impl AsRef<Path>) -> Vec<u8> {
    let path = folder().join(path);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn parse(bytes: &[u8]) -> ProgramDesc {
    ProgramDesc::parse(bytes, &Limits::default()).unwrap()
}

fn golden(path: &str) -> ProgramDesc {
    parse(&read(path))
}

/// Returns all golden programs: path below the folder, and the recorded description, if any.
#[allow(clippy::disallowed_methods)]
fn all() -> Vec<(PathBuf, Option<Json>)> {
    let list = |path: &Path| -> Vec<PathBuf> {
        let mut paths: Vec<_> = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let mut found = Vec::new();
    for era in list(&folder()).into_iter().filter(|p| p.is_dir()) {
        for place in list(&era).into_iter().filter(|p| p.join("expected.json").exists()) {
            let expected: Json = serde_json::from_slice(&read(place.join("expected.json"))).unwrap();
            for file in list(&place) {
                let name = file.file_name().unwrap().to_str().unwrap();
                if name.ends_with(".pdmodel") || name == "__model__" || name == "program.pb" {
                    let program = expected.get("programs").map_or(expected.get("program"), |p| p.get(name));
                    found.push((file, program.cloned()));
                }
            }
        }
    }
    assert!(found.len() >= 19, "golden files are missing");
    found
}

/// A field of that number with these bytes.
fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, u64::from(number) << 3 | 2);
    varint(&mut out, bytes.len() as u64);
    out.extend(bytes);
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Returns the error of an invalid file.
fn refused(bytes: &[u8]) -> weighbridge_core::Error {
    ProgramDesc::parse(bytes, &Limits::default()).unwrap_err()
}
