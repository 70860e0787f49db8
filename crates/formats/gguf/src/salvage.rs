//! Certainty of the tensors of a damaged file.
//!
//! The format has no checksums, but its header is redundant: each tensor begins where the one before ends, and the last one ends with
//! the file.

use crate::header::{Described, Header};
use crate::quantization::ElementType;
use crate::read::bytes_of;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{SourceRef, read_vec};

/// Maximum bytes of padding in front of the data that are read.
const MAX_PADDING: u64 = 1 << 20;

/// Returns for each tensor whether its range in `source` is certain. All are, if all descriptions agree, and padding precedes the
/// data. If some are damaged, the offset of the data is proved by the end of the file, and a tensor by the offset of the next one.
///
/// # Errors
/// Errors of the source.
pub(crate) fn certain(header: &Header, source: &SourceRef) -> Result<Vec<bool>> {
    let (tensors, len) = (&header.tensors, source.len());
    let padded = |end: u64| end.checked_next_multiple_of(header.alignment);
    let end = |described: &Described| bytes_of(described)?.checked_add(described.offset);
    let ends_at = |described: &Described, next: u64| match ElementType::of_id(described.kind) {
        Some(_) => end(described).and_then(padded) == Some(next),
        // Unknown types have an unknown length.
        None => described.offset < next,
    };
    let in_order = tensors.windows(2).all(|pair| ends_at(&pair[0], pair[1].offset));
    if in_order && tensors.first().is_none_or(|first| first.offset == 0) && is_padded(header, source)? {
        return Ok(vec![true; tensors.len()]);
    }
    let last = tensors.last().and_then(end).and_then(|end| header.data.checked_add(end));
    let fills = last.is_some_and(|last| last == len || padded(last) == Some(len));
    let next = tensors.iter().skip(1).map(|next| Some(next.offset)).chain([None]);
    let is_certain = |(described, next): (&Described, Option<u64>)| {
        fills && next.is_none_or(|next| ends_at(described, next))
    };
    Ok(tensors.iter().zip(next).map(is_certain).collect())
}

/// Returns true if zeros are between header and data. With a damaged alignment, elements are there.
fn is_padded(header: &Header, source: &SourceRef) -> Result<bool> {
    let len = header.data.min(source.len()).saturating_sub(header.end).min(MAX_PADDING);
    Ok(read_vec(&**source, header.end, len)?.iter().all(|&byte| byte == 0))
}

/// Returns the error of a tensor whose range is not certain.
pub(crate) fn uncertain(described: &Described) -> Error {
    Error::corrupt("bad-offsets", "the place of the elements is uncertain: the header is damaged")
        .at(described.at)
        .expected("a tensor that ends where the next one begins")
        .found(format_args!("an offset of {} in the data", described.offset))
}
