//! Outlines that several formats give alike.

use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::error::Result;
use weighbridge_io::source::{SourceRef, to_usize};

/// Bytes that are read at once.
const STEP: u64 = 256 << 10;

/// The outline of a file that is text from front to back: what follows the last byte of text is
/// nobody's. Zero bytes and other control characters are no text; letters of any encoding are, and so is DEL, which
/// JSON need not escape, unless a program of ELF begins with it.
pub fn text(source: &SourceRef, what: &'static str) -> Result<Outline> {
    let mut outline = Outline::new(Gaps::Forbidden);
    let (mut at, end) = (0, source.len());
    let mut buffer = vec![0; to_usize(STEP.min(end))?];
    while at < end {
        let take = to_usize(STEP.min(end - at))?;
        source.read_at(at, &mut buffer[..take])?;
        let text = (0..take).position(|at| !is_text(buffer[at]) || buffer[at..take].starts_with(b"\x7fELF"));
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
    byte >= 0x20 || matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c)
}
