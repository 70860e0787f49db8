//! Outlines that several formats give alike.

use crate::check::{Gaps, Outline};
use crate::error::Result;
use crate::source::{SourceRef, to_usize};

/// Bytes that are read at once.
const STEP: u64 = 256 << 10;

/// The outline of a file that is text from front to back: what follows the last byte of text is
/// nobody's. Zero bytes and other control characters are no text; letters of any encoding are.
pub(super) fn text(source: &SourceRef, what: &'static str) -> Result<Outline> {
    let mut outline = Outline::new(Gaps::Forbidden);
    let (mut at, end) = (0, source.len());
    let mut buffer = vec![0; to_usize(STEP.min(end))?];
    while at < end {
        let take = to_usize(STEP.min(end - at))?;
        source.read_at(at, &mut buffer[..take])?;
        let text = buffer[..take].iter().position(|&byte| !is_text(byte));
        at += text.unwrap_or(take) as u64;
        if text.is_some() {
            break;
        }
    }
    outline.header(0, at, what);
    Ok(outline)
}

/// True for the bytes of text in any encoding that keeps ASCII.
fn is_text(byte: u8) -> bool {
    byte >= 0x20 && byte != 0x7f || matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c)
}
