//! Tests of the whole crate: golden files, damaged files, bombs, every opcode.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod cost_in_python;
mod golden;
mod inspected;
mod libraries;
mod malformed;
mod opcodes;
mod payloads;
mod written;

use super::*;
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge_io::source::{Source, SourceRef};
use weighbridge_testkit::memory;

fn read_bytes(bytes: &[u8]) -> weighbridge_core::Result<Pickle> {
    read(&memory(bytes), 0, &Options::default())
}

fn good() -> PathBuf {
    weighbridge_testkit::testdata("pickle/good")
}

/// Every golden pickle with its bytes, in order of the names.
fn golden_files() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for folder in std::fs::read_dir(good()).unwrap() {
        let folder = folder.unwrap().path();
        for file in std::fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|e| e != "json") {
                let name = path.strip_prefix(good()).unwrap().display().to_string();
                files.push((name, std::fs::read(&path).unwrap()));
            }
        }
    }
    files.sort();
    assert!(files.len() > 90, "golden files are missing");
    files
}

/// Bytes of a plan, filled from its source and the caller's payloads.
fn fill(parts: &[Part], source: &SourceRef, payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let latin1 = |raw: &[u8]| raw.iter().copied().map(char::from).collect::<String>().into_bytes();
    let copy = |span: &Span| weighbridge_io::source::read_vec(&**source, span.offset, span.len).unwrap();
    for part in parts {
        let before = bytes.len() as u64;
        match part {
            Part::Literal(literal) => bytes.extend(literal),
            Part::Payload { key, .. } => bytes.extend(&payloads[usize::try_from(*key).unwrap()]),
            Part::Latin1 { key, .. } => bytes.extend(latin1(&payloads[usize::try_from(*key).unwrap()])),
            Part::Copy(span) => bytes.extend(copy(span)),
            Part::CopyLatin1 { span, .. } => bytes.extend(latin1(&copy(span))),
        }
        assert_eq!(bytes.len() as u64 - before, part.len(), "{part:?}");
    }
    bytes
}

/// Writes the graph of a pickle again.
fn rewrite(pickle: &Pickle, source: &SourceRef, protocol: u8) -> weighbridge_core::Result<Vec<u8>> {
    let mut latin1 = |place: &Location| match place {
        Location::Source(span) => latin1_len(&**source, span.offset, span.len),
        other => panic!("{other:?}"),
    };
    let parts = write(&pickle.graph, pickle.root, protocol, &mut latin1)?;
    Ok(fill(&parts, source, &[]))
}

/// Bytes of an array or scalar, read through a source.
fn elements(source: &SourceRef, payload: &Payload) -> Vec<u8> {
    match payload.place {
        Location::Source(span) => {
            let decoded = PayloadSource::new(source.clone(), span, payload.len).unwrap();
            let bytes = weighbridge_io::source::read_vec(&decoded, 0, decoded.len()).unwrap();
            if let Some(short) = &payload.short {
                assert_eq!(**short, *bytes);
            }
            bytes
        }
        _ => payload.short.as_ref().unwrap().to_vec(),
    }
}
