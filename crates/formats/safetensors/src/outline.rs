//! What stands around the tensors: the length of the header, the header, and its blanks.

use super::PREFIX;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::Result;
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::text::counted;
use weighbridge_format::shards::ShardIndex;
use weighbridge_io::source::{SourceRef, read_vec};

/// Writers fill the header up so that the elements begin at a multiple of this.
const ALIGNMENT: u64 = 8;

/// A remark on tensors that do not begin at a multiple of the bytes of their elements: a map of the
/// file cannot be used for them as it is.
pub(super) fn unaligned(tensors: &[TensorEntry]) -> Option<Finding> {
    let off = |tensor: &&TensorEntry| {
        let size = tensor.stored.size().unwrap_or(1) as u64;
        tensor.single_extent().is_some_and(|extent| extent.len > 0 && !extent.offset.is_multiple_of(size))
    };
    let first = tensors.iter().find(off)?;
    let count = tensors.iter().filter(off).count();
    let tensors = counted(
        count,
        "tensor does not begin at a multiple of the size of its",
        "tensors do not begin at a multiple of the size of their",
    );
    let text = format!("{tensors} elements");
    Some(Finding::note("unaligned-tensors", text).on_tensor(first.name()))
}

pub(super) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    if ShardIndex::is_index_file(source)? {
        return weighbridge_format::outline::text(source, "index of shards");
    }
    let length = super::read::header_length(source, limits)?;
    let header = read_vec(&**source, PREFIX, length)?;
    let mut outline = Outline::new(Gaps::Forbidden);
    outline.header(0, PREFIX, "length of the header");
    let end = header.iter().rposition(|byte| !byte.is_ascii_whitespace()).map_or(0, |last| last + 1);
    let json = end as u64;
    outline.header(PREFIX, json, "safetensors header");
    let blanks = header.get(end..).unwrap_or_default();
    if blanks.iter().all(|&byte| byte == b' ') {
        outline.padding(PREFIX + json, length - json, "blanks of the header");
    } else {
        // Other blanks can be read as bits; no writer of safetensors fills up with them.
        outline.hidden(PREFIX + json, length - json, "blanks of the header that are not spaces");
    }
    if !(PREFIX + length).is_multiple_of(ALIGNMENT) {
        let text = format!("the elements begin at {}, which is no multiple of {ALIGNMENT}", PREFIX + length);
        outline.findings.push(Finding::note("unaligned-data", text).at(PREFIX + length));
    }
    Ok(outline)
}
