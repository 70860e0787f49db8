//! Outline of a file: header length, header and padding.

use super::PREFIX;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::Result;
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::text::counted;
use weighbridge_format::shards::ShardIndex;
use weighbridge_io::source::{SourceRef, read_vec};

/// Alignment of the data in bytes; writers pad the header to it.
const ALIGNMENT: u64 = 8;

/// Finding about tensors whose offset is not a multiple of their element size: a memory map cannot be used for
/// them directly.
pub(super) fn unaligned(tensors: &[TensorEntry]) -> Option<Finding> {
    let off = |tensor: &&TensorEntry| {
        let size = tensor.stored.size().unwrap_or(1) as u64;
        tensor.single_extent().is_some_and(|extent| extent.len > 0 && !extent.offset.is_multiple_of(size))
    };
    let first = tensors.iter().find(off)?;
    let count = tensors.iter().filter(off).count();
    let tensors = counted(
        count,
        "tensor is not aligned to the size of its",
        "tensors are not aligned to the size of their",
    );
    let text = format!("{tensors} elements");
    Some(Finding::note("unaligned-tensors", text).on_tensor(first.name()))
}

pub(super) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    if ShardIndex::is_index_file(source)? {
        return weighbridge_format::outline::text(source, "shard index");
    }
    let length = super::read::header_length(source, limits)?;
    let header = read_vec(&**source, PREFIX, length)?;
    let mut outline = Outline::new(Gaps::Forbidden);
    outline.header(0, PREFIX, "header length");
    let end = header.iter().rposition(|byte| !byte.is_ascii_whitespace()).map_or(0, |last| last + 1);
    let json = end as u64;
    outline.header(PREFIX, json, "safetensors header");
    let blanks = header.get(end..).unwrap_or_default();
    if blanks.iter().all(|&byte| byte == b' ') {
        outline.padding(PREFIX + json, length - json, "padding of the header");
    } else {
        // Other whitespace can encode hidden data; writers pad with spaces only.
        outline.hidden(PREFIX + json, length - json, "padding of the header that is not spaces");
    }
    if !(PREFIX + length).is_multiple_of(ALIGNMENT) {
        let text = format!("the data begins at offset {}, not a multiple of {ALIGNMENT}", PREFIX + length);
        outline.findings.push(Finding::note("unaligned-data", text).at(PREFIX + length));
    }
    Ok(outline)
}
