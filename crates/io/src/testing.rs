//! Running a plan in memory, for tests of layouters.
#![allow(clippy::unwrap_used)]

use crate::engine::{read_region, read_tensor};
use weighbridge_core::plan::{Content, PlannedFile, WritePlan};

/// The bytes of every file of `plan`, in order. Checks that segments follow each other without
/// gaps and fill the length that was planned.
///
/// # Panics
/// Where they do not.
pub fn materialise(plan: &WritePlan) -> Vec<Vec<u8>> {
    plan.files.iter().map(file).collect()
}

fn file(file: &PlannedFile) -> Vec<u8> {
    if file.is_estimated() {
        return crate::engine::encoded(file);
    }
    let mut bytes: Vec<u8> = Vec::new();
    let mut late = Vec::new();
    let index = |n: u64| usize::try_from(n).unwrap();
    for segment in &file.segments {
        assert_eq!(segment.offset, bytes.len() as u64, "a gap or an overlap in the plan");
        match &segment.content {
            Content::Literal(literal) => bytes.extend_from_slice(literal),
            Content::Padding(byte) => bytes.resize(bytes.len() + index(segment.len), *byte),
            Content::Copy { source, offset, .. } => {
                let mut copied = vec![0; index(segment.len)];
                source.read_at(*offset, &mut copied).unwrap();
                bytes.extend_from_slice(&copied);
            }
            Content::Tensor { entry, order } => bytes.extend(read_tensor(entry, *order).unwrap()),
            Content::Latin1 { entry, order, region } => {
                let elements = read_region(entry, region, *order).unwrap();
                let text: String = elements.into_iter().map(char::from).collect();
                bytes.extend_from_slice(text.as_bytes());
            }
            Content::Crc32(range) => {
                late.push((bytes.len(), index(range.start)..index(range.end)));
                bytes.extend([0; 4]);
            }
        }
        assert_eq!(bytes.len() as u64, segment.offset + segment.len, "a segment of another length");
    }
    assert_eq!(bytes.len() as u64, file.len);
    // A CRC may stand before what it covers, as in a zip's local header.
    for (at, range) in late {
        let crc = crc32fast::hash(&bytes[range]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}
