//! Outline of an array: the header and its padding.

use super::Header;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::error::Result;
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{Cursor, SourceRef, read_vec};

/// Minimum alignment of the elements in bytes: numpy uses 64, older versions 16.
const ALIGNMENT: u64 = 16;

/// Outline of a file of one array, or of another file in a folder of arrays.
pub(super) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let mut magic = [0; 6];
    if source.len() < magic.len() as u64 {
        return weighbridge_format::outline::text(source, "text");
    }
    source.read_at(0, &mut magic)?;
    if magic != super::header::MAGIC {
        return weighbridge_format::outline::text(source, "text");
    }
    let mut outline = Outline::new(Gaps::Forbidden);
    array(&mut outline, source, 0, source.len(), limits)?;
    Ok(outline)
}

/// Claims the header of an array that takes `len` bytes of `source` from `start` on.
///
/// # Errors
/// As [`Header::read`].
pub(crate) fn array(
    outline: &mut Outline,
    source: &SourceRef,
    start: u64,
    len: u64,
    limits: &Limits,
) -> Result<()> {
    let header = Header::read(&mut Cursor::new(source.clone(), start), len, limits)?;
    let bytes = read_vec(&**source, start, header.len)?;
    let end = bytes.iter().rposition(|byte| !is_blank(*byte)).map_or(0, |last| last + 1);
    let (text, blanks) = (end as u64, bytes.get(end..).unwrap_or_default());
    outline.header(start, text, "npy header");
    let (place, count) = (start + text, header.len - text);
    match blanks.split_last() {
        // Spaces and a line feed, as numpy writes them.
        Some((b'\n', spaces)) if spaces.iter().all(|&byte| byte == b' ') => {
            outline.padding(place, count, "padding of the npy header");
        }
        Some(_) if blanks.iter().all(|&byte| byte == b' ') => {
            outline.padding(place, count, "padding of the npy header");
        }
        Some(_) => outline.hidden(place, count, "padding of the npy header that numpy does not write"),
        None => {}
    }
    if blanks.last() != Some(&b'\n') {
        let text = "the npy header does not end with a line feed";
        outline.findings.push(Finding::warning("npy-header-end", text).at(start + header.len));
    }
    if !header.len.is_multiple_of(ALIGNMENT) {
        let text = format!("the elements begin at offset {}, not a multiple of {ALIGNMENT}", header.len);
        outline.findings.push(Finding::note("npy-alignment", text).at(start + header.len));
    }
    Ok(())
}

/// True for whitespace that Python's parser skips.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c)
}
