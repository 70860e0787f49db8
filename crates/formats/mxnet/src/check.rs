//! Outline of a file: headers and names.

use crate::{array, symbol};
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

/// Returns the ranges of a file without elements.
pub(crate) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let head = read_vec(&**source, 0, source.len().min(512))?;
    if symbol::recognises(&head) {
        return weighbridge_format::outline::text(source, "symbol");
    }
    let content = array::read(source, &limits.with_budget_of(source), false)?;
    let mut outline = Outline::new(Gaps::Forbidden);
    outline.header(0, 24, "MXNet header");
    for array in &content.arrays {
        let mut at = array.at;
        for part in &array.parts {
            outline.header(at, part.at.saturating_sub(at), "array header");
            at = part.at.saturating_add(part.len());
        }
        outline.header(at, array.end.saturating_sub(at), "array header");
    }
    outline.header(content.names_at, content.end.saturating_sub(content.names_at), "names of the arrays");
    Ok(outline)
}
