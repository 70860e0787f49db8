//! Outline of files of values and nodes.

use super::ocdbt::{BEGINNING, node_at};
use weighbridge_core::check::Outline;
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

/// Bytes per read.
const STEP: u64 = 1 << 20;
/// Maximum bytes of the metadata of an array; TensorStore writes a few hundred.
const MAX_METADATA: u64 = 2 << 10;
/// Beginning of the metadata of an array, a JSON object.
const OBJECT: &[u8] = b"{\"";
/// Key of the metadata of an array.
const KEY: &[u8] = b"\"zarr_format\"";

/// Adds the nodes of trees and the metadata of arrays. Chunks are elements of tensors.
///
/// # Errors
/// Errors of the source.
pub(super) fn data(source: &SourceRef, limits: &Limits, outline: &mut Outline) -> Result<()> {
    let (mut at, end) = (0, source.len());
    let budget = limits.budget_of(source);
    // End of the last part: its content has no other parts.
    let mut done = 0;
    while at < end {
        // The beginnings may be at the end of a step.
        let bytes = read_vec(&**source, at, (end - at).min(STEP + 1))?;
        let mut places: Vec<u64> = memchr::memmem::find_iter(&bytes, &BEGINNING)
            .chain(memchr::memmem::find_iter(&bytes, OBJECT))
            .map(|place| at + place as u64)
            .collect();
        places.sort_unstable();
        for place in places {
            if place < done {
                continue;
            }
            if let Some(len) = node_at(source, place, limits)? {
                outline.header(place, len, "node of a tree");
                done = place + len;
                continue;
            }
            budget.take_work(MAX_METADATA)?;
            if let Some(len) = metadata_at(source, place)? {
                outline.header(place, len, "metadata of an array");
                done = place + len;
            }
        }
        at += STEP;
    }
    Ok(())
}

/// Returns the length of the metadata of an array at an offset.
fn metadata_at(source: &SourceRef, offset: u64) -> Result<Option<u64>> {
    let bytes = read_vec(&**source, offset, (source.len() - offset).min(MAX_METADATA))?;
    if !bytes.starts_with(OBJECT) || memchr::memmem::find(&bytes, KEY).is_none() {
        return Ok(None);
    }
    let mut values = serde_json::Deserializer::from_slice(&bytes).into_iter::<serde_json::Value>();
    let is_array = matches!(values.next(), Some(Ok(json)) if json.get("zarr_format").is_some());
    Ok(is_array.then(|| values.byte_offset() as u64))
}
