//! What stands around the tensors: the length of the header, the header, and its blanks.

use super::{PREFIX, shards};
use crate::check::{Gaps, Outline};
use crate::error::Result;
use crate::finding::Finding;
use crate::limits::Limits;
use crate::source::{SourceRef, read_vec};

/// Writers fill the header up so that the elements begin at a multiple of this.
const ALIGNMENT: u64 = 8;

pub(super) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    if shards::is_list_file(source)? {
        return crate::formats::outline::text(source, "list of shards");
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
