//! safetensors: one file of named tensors with a JSON header.
//!
//! ```text
//! offset  bytes
//!      0      8  N, the length of the header, little-endian
//!      8      N  the header: one JSON object, UTF-8, begins with {, padded with spaces
//!                {"__metadata__": {"key": "text", ...},
//!                 "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//!  8 + N         the data: dense, little-endian, row-major; the offsets count from here
//! ```
//!
//! The tensors fill the data without a hole and without an overlap, up to the end of the file. What
//! the original reader refuses is refused here, with the reason and the place; keys that stand
//! twice, which the original takes the last of, are refused too.

mod header;
mod read;
#[cfg(test)]
mod tests;
mod write;

use super::{Facts, Format, LabelsIn, OpenOptions, PlanOptions};
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::plan::WritePlan;
use crate::source::SourceRef;
use crate::tensor::{DType, Order};

/// The format.
#[derive(Debug)]
pub struct Safetensors;

/// The one kind of file.
const KIND: &str = "single";
/// The key of the header that is no tensor.
const METADATA: &str = "__metadata__";
/// Bytes before the header.
const PREFIX: u64 = 8;
/// The longest header that the original reads.
const MAX_HEADER: u64 = 100_000_000;

static FACTS: Facts = Facts {
    id: "safetensors",
    title: "safetensors, one file",
    extensions: &[("safetensors", KIND)],
    dtypes: &DTYPES,
    order: Some(Order::Row),
    settings: &[],
};

/// The element types, by growing alignment: the order in which the original declares them, and by
/// which, backwards, it sorts the tensors that it writes.
const NAMED: [(DType, &str); 22] = [
    (DType::Bool, "BOOL"),
    (DType::F4, "F4"),
    (DType::F6E2M3, "F6_E2M3"),
    (DType::F6E3M2, "F6_E3M2"),
    (DType::U8, "U8"),
    (DType::I8, "I8"),
    (DType::F8E5M2, "F8_E5M2"),
    (DType::F8E4M3, "F8_E4M3"),
    (DType::F8E8M0, "F8_E8M0"),
    (DType::F8E4M3Fnuz, "F8_E4M3FNUZ"),
    (DType::F8E5M2Fnuz, "F8_E5M2FNUZ"),
    (DType::I16, "I16"),
    (DType::U16, "U16"),
    (DType::F16, "F16"),
    (DType::BF16, "BF16"),
    (DType::I32, "I32"),
    (DType::U32, "U32"),
    (DType::F32, "F32"),
    (DType::C64, "C64"),
    (DType::F64, "F64"),
    (DType::I64, "I64"),
    (DType::U64, "U64"),
];

/// The types of [`NAMED`].
const DTYPES: [DType; 22] = {
    let mut types = [DType::Bool; 22];
    let mut i = 0;
    while i < types.len() {
        types[i] = NAMED[i].0;
        i += 1;
    }
    types
};

impl Format for Safetensors {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    /// A length that fits the file, or could, and the beginning of a JSON object. Text, also JSON,
    /// has a length above 2^56 in its first 8 characters.
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        let Some((&length, [b'{', next, ..])) = head.split_first_chunk::<8>() else { return false };
        let length = u64::from_le_bytes(length);
        let fits = length <= MAX_HEADER || length <= source.len().saturating_sub(PREFIX);
        length >= 2 && fits && matches!(next, b'"' | b'}' | b' ' | b'\t' | b'\n' | b'\r')
    }

    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(source, options)
    }

    fn labels_in(&self) -> LabelsIn {
        LabelsIn::Tensors
    }

    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }
}
