//! Detection: the first format that recognises a file reads it; an unrecognized file gets an explanation.

use super::Outcome;
use std::sync::Arc;
use weighbridge::formats::{self, HEAD};
use weighbridge::source::{MemorySource, SourceRef};

pub(super) fn run(_: &'static str, bytes: &[u8]) -> Outcome {
    let source: SourceRef = Arc::new(MemorySource::new("input", bytes.to_vec()));
    let head = &bytes[..bytes.len().min(HEAD)];
    let claims = formats::ALL.iter().filter(|format| format.recognises(head, &source));
    let claim = claims.map(|format| format.info().id).next();
    match formats::registry().detect(&source) {
        Ok(format) => {
            assert_eq!(claim, Some(format.info().id));
            Outcome::Opened
        }
        Err(error) => {
            assert!(claim.is_none() && !error.message().is_empty());
            Outcome::Refused
        }
    }
}
