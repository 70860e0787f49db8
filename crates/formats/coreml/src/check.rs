//! Outline of a file: the model without its elements, blobs of weights, or the manifest.

use crate::tree::Range;
use crate::{blob, package, read};
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

/// Maximum bytes of alignment between two blobs.
const ALIGNMENT: u64 = 63;

/// Returns the ranges of a file without elements.
pub(crate) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let head = read_vec(&**source, 0, source.len().min(weighbridge_format::HEAD as u64))?;
    if !read::recognises(&head, source) {
        if package::is_manifest(source) {
            return weighbridge_format::outline::text(source, "manifest");
        }
        let mut outline = Outline::new(Gaps::Zeros(ALIGNMENT));
        if blob::is_file(source) {
            blob::outline(source, &mut outline)?;
        }
        return Ok(outline);
    }
    let mut outline = Outline::new(Gaps::Forbidden);
    let (listed, unread) = read::unread(source, limits)?;
    let mut ranges: Vec<(Range, bool)> = listed.into_iter().map(|range| (range, false)).collect();
    ranges.extend(unread.into_iter().map(|range| (range, true)));
    ranges.sort_unstable_by_key(|(range, _)| (range.at, range.len));
    let mut at = 0;
    for (Range { at: start, len }, is_unread) in ranges {
        outline.header(at, start.saturating_sub(at), "Core ML model");
        if is_unread {
            outline.unread(start, len, "elements that are not listed");
        }
        at = at.max(start.saturating_add(len));
    }
    outline.header(at, source.len().saturating_sub(at), "Core ML model");
    Ok(outline)
}
