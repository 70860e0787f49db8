//! Which format is it? Two never both say yes, and what is none gets an explanation.

use super::Outcome;
use std::sync::Arc;
use weighbridge::formats::{self, HEAD};
use weighbridge::source::{MemorySource, SourceRef};

pub(super) fn run(_: &'static str, bytes: &[u8]) -> Outcome {
    let source: SourceRef = Arc::new(MemorySource::new("hostile", bytes.to_vec()));
    let head = &bytes[..bytes.len().min(HEAD)];
    let claims = formats::ALL.iter().filter(|format| format.recognises(head, &source));
    let claims: Vec<_> = claims.map(|format| format.facts().id).collect();
    assert!(claims.len() <= 1, "several formats say that it is theirs: {claims:?}");
    match formats::detect(&source) {
        Ok(format) => {
            assert_eq!(claims, [format.facts().id]);
            Outcome::Opened
        }
        Err(error) => {
            assert!(claims.is_empty() && !error.message().is_empty());
            Outcome::Refused
        }
    }
}
