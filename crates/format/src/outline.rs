//! Outline of text files.

use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::error::Result;
use weighbridge_io::source::{SourceRef, to_usize};

/// Bytes per read.
const STEP: u64 = 256 << 10;

/// Returns the outline of a text file: bytes from the first non-text byte on are unclaimed. Zero bytes and other control characters
/// are not text. Letters of any encoding are text, and so is DEL, which JSON does not escape, except as the start of an ELF
/// program.
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

/// Returns true for bytes of text in any encoding compatible with ASCII.
fn is_text(byte: u8) -> bool {
    byte >= 0x20 || matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c)
}
