//! Runs plans in memory, for tests of planners.
#![allow(clippy::unwrap_used)]
use crate::source::{Source, check_range, to_usize};
use weighbridge_core::error::Result;
use weighbridge_core::plan::{Content, PlannedFile, WritePlan};

/// Returns the bytes of every file of `plan`, in order. Checks that segments are contiguous and fill the
/// planned length.
///
/// # Panics
/// Panics where a check fails.
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
        assert_eq!(segment.offset, bytes.len() as u64, "the plan has a gap or an overlap");
        match &segment.content {
            Content::Literal(literal) => bytes.extend_from_slice(literal),
            Content::Padding(byte) => bytes.resize(bytes.len() + index(segment.len), *byte),
            Content::Copy { source, offset, .. } => {
                let mut copied = vec![0; index(segment.len)];
                source.read_at(*offset, &mut copied).unwrap();
                bytes.extend_from_slice(&copied);
            }
            Content::Tensor { entry, order } => bytes.extend(entry.read_tensor(*order).unwrap()),
            Content::Latin1 { entry, order, region } => {
                let elements = entry.read_region(region, *order).unwrap();
                let text: String = elements.into_iter().map(char::from).collect();
                bytes.extend_from_slice(text.as_bytes());
            }
            Content::Crc32(range) => {
                late.push((bytes.len(), index(range.start)..index(range.end)));
                bytes.extend([0; 4]);
            }
        }
        assert_eq!(
            bytes.len() as u64,
            segment.offset + segment.len,
            "the content of a segment does not have the planned length"
        );
    }
    assert_eq!(bytes.len() as u64, file.len);
    // A CRC may precede its range, as in the local header of zip.
    for (at, range) in late {
        let crc = crc32fast::hash(&bytes[range]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

/// A planned file as a source, without writing it: literals, and zeros elsewhere.
#[derive(Debug)]
pub struct PlanSource(PlannedFile);

impl PlanSource {
    /// Creates the source of `file`.
    pub fn new(file: PlannedFile) -> Self {
        Self(file)
    }
}

impl Source for PlanSource {
    fn len(&self) -> u64 {
        self.0.len
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        buffer.fill(0);
        let end = offset + buffer.len() as u64;
        let first = self.0.segments.partition_point(|s| s.offset + s.len <= offset);
        for segment in self.0.segments[first..].iter().take_while(|s| s.offset < end) {
            if let Content::Literal(bytes) = &segment.content {
                let (from, to) = (segment.offset.max(offset), (segment.offset + segment.len).min(end));
                let within = to_usize(from - segment.offset)?..to_usize(to - segment.offset)?;
                buffer[to_usize(from - offset)?..to_usize(to - offset)?].copy_from_slice(&bytes[within]);
            }
        }
        Ok(())
    }
    fn label(&self) -> &str {
        "plan"
    }
}
