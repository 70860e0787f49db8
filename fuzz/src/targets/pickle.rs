//! Pickles: reading, inspection, disassembly and JSON must agree.

use super::Outcome;
use std::sync::Arc;
use weighbridge::finding::Verdict;
use weighbridge::pickle::{self, JsonBounds, NdArray, Options};
use weighbridge::source::{MemorySource, SourceRef};

pub(super) fn run(_: &'static str, bytes: &[u8]) -> Outcome {
    let source: SourceRef = Arc::new(MemorySource::new("input", bytes.to_vec()));
    let options = Options::default();
    let report = pickle::inspect(&source, 0, &options);
    let mut lines = 0u64;
    let listed = pickle::disassemble(&source, 0, &mut |_, line| {
        assert!(!line.is_empty());
        lines += 1;
        Ok(())
    });
    let read = pickle::read(&source, 0, &options);
    assert_eq!(read.is_ok(), report.error.is_none(), "reading and inspection agree: {:?}", report.error);
    match read {
        Ok(read) => {
            assert!(listed.is_ok(), "a readable pickle can be disassembled: {listed:?}");
            assert_eq!(lines, report.instructions);
            assert_eq!((read.globals.len(), Some(read.end)), (report.globals.len(), report.end));
            let json = pickle::to_json(&read.graph, read.root, &options, JsonBounds::default());
            assert!(!json.to_string().is_empty());
            if let Err(error) = NdArray::of(&read.graph, read.root, &options) {
                assert!(!error.to_string().is_empty());
            }
            Outcome::Opened
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_ne!(report.verdict, Verdict::Sound, "an incomplete pickle is not sound");
            Outcome::Refused
        }
    }
}
