//! Files of a format: opened in every mode, and processed with all fast operations.

use super::Outcome;
use std::sync::Arc;
use weighbridge::checkpoint::Checkpoint;
use weighbridge::formats::{self, OpenOptions, PlanOptions, registry};
use weighbridge::ops::scan::scan_source;
use weighbridge::source::{MemorySource, SourceRef};
use weighbridge::tensor::Order;

/// Largest tensor that is read, in bytes.
const MAX_READ: u64 = 1 << 20;

pub(super) fn run(format: &'static str, bytes: &[u8]) -> Outcome {
    let source: SourceRef = Arc::new(MemorySource::new("input", bytes.to_vec()));
    let outcome = open(format, &source);
    match scan_source(&source, &OpenOptions::default()) {
        Ok(scanned) => assert!(!scanned.label.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    outcome
}

fn open(format: &'static str, source: &SourceRef) -> Outcome {
    let lenient = OpenOptions { lenient: true, ..OpenOptions::default() };
    let strictly = registry().open_source(source.clone(), &OpenOptions::default());
    let leniently = registry().open_source(source.clone(), &lenient);
    salvage(format, source, strictly.is_ok());
    match (&strictly, &leniently) {
        (Ok(strictly), Ok(leniently)) => {
            assert_eq!(
                strictly.tensors.len(),
                leniently.tensors.len(),
                "lenient reading returns the same tensors"
            );
            examine(strictly);
            Outcome::Opened
        }
        (Ok(_), Err(error)) => panic!("strict reading succeeds, lenient reading fails: {error}"),
        (Err(error), Ok(leniently)) => {
            assert!(!error.to_string().is_empty());
            assert!(!leniently.notes.is_empty(), "lenient reading adds a note: {error}");
            examine(leniently);
            Outcome::OpenedLeniently
        }
        (Err(error), Err(_)) => {
            assert!(!error.to_string().is_empty());
            if error.code() == "unknown-format" {
                // The reader must also survive files that detection rejects: a user can name the format.
                let forced = OpenOptions { format: Some(format.to_owned()), ..lenient };
                if let Ok(checkpoint) = registry().open_source(source.clone(), &forced) {
                    examine(&checkpoint);
                }
            }
            Outcome::Refused
        }
    }
}

/// Salvages the bytes. A result from refused bytes must be marked as damaged. Reads small tensors, which are reported as
/// intact.
fn salvage(format: &'static str, source: &SourceRef, opens: bool) {
    // Detection may fail for refused bytes: the user, or the extension, names the format.
    let named = (!opens && formats::registry().by_id(format).is_ok()).then(|| format.to_owned());
    let options = OpenOptions { salvage: true, format: named, ..OpenOptions::default() };
    let Ok(saved) = registry().open_source(source.clone(), &options) else { return };
    assert!(
        opens || options.format.is_some() || saved.damage.is_some(),
        "a salvaged checkpoint is marked as damaged"
    );
    if let Some(damage) = &saved.damage {
        assert!(!damage.losses(0).is_empty());
        assert!(saved.notes.iter().any(|note| note.code == "damaged" && note.omission));
    }
    for tensor in saved.tensors.iter().filter(|t| t.bytes() <= MAX_READ / 16).take(3) {
        match tensor.read_tensor(Order::Row) {
            Ok(bytes) => assert_eq!(bytes.len() as u64, tensor.bytes()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Lists the checkpoint, reads its smallest tensors, plans it in every format, and runs its deep check.
pub(super) fn examine(checkpoint: &Checkpoint) {
    let json = checkpoint.to_json();
    assert_eq!(json["tensors"].as_array().unwrap().len(), checkpoint.tensors.len());
    let mut by_size: Vec<_> = checkpoint.tensors.iter().filter(|t| t.bytes() <= MAX_READ).collect();
    by_size.sort_by_key(|t| t.bytes());
    for tensor in by_size.into_iter().take(3) {
        for order in [Order::Row, Order::Column] {
            match tensor.read_tensor(order) {
                Ok(bytes) => assert_eq!(bytes.len() as u64, tensor.bytes()),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    for format in formats::ALL {
        match format.plan(checkpoint, &PlanOptions::default()) {
            Ok(plan) => assert_eq!(plan.bytes(), plan.files.iter().map(|f| f.len).sum::<u64>()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    if let Ok(format) = formats::registry().by_id(checkpoint.format) {
        match format.checker().map_or(Ok(Vec::new()), |own| own.check(checkpoint)) {
            Ok(findings) => assert!(findings.iter().all(|finding| !finding.text.is_empty())),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
