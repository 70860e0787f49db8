//! For tests: the bytes that a plan means, without the machinery that writes files.

use super::{Content, WritePlan};
use crate::source::read_vec;

/// The bytes of every file of `plan`, in order.
///
/// # Panics
/// When a source fails, or a segment does not begin where the one before it ends.
pub(crate) fn materialise(plan: &WritePlan) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for file in &plan.files {
        let mut bytes: Vec<u8> = Vec::new();
        for segment in &file.segments {
            assert_eq!(segment.offset, bytes.len() as u64, "segments follow each other");
            let len = usize::try_from(segment.len).unwrap();
            let content = match &segment.content {
                Content::Literal(literal) => literal.clone(),
                Content::Padding(byte) => vec![*byte; len],
                Content::Copy { source, offset, .. } => read_vec(&**source, *offset, segment.len).unwrap(),
                Content::Tensor { entry, order } => crate::engine::read_tensor(entry, *order).unwrap(),
                Content::Crc32(range) => {
                    let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
                    crc32fast::hash(&bytes[range]).to_le_bytes().to_vec()
                }
            };
            assert_eq!(content.len(), len, "a segment has the length that the plan gives it");
            bytes.extend(content);
        }
        assert_eq!(file.len, bytes.len() as u64, "a file has the length that the plan gives it");
        files.push(bytes);
    }
    files
}
