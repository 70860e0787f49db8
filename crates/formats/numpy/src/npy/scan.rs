//! Code scan: pickles that numpy would load with `allow_pickle`.

use super::header::{Header, MAGIC, len_of_unread};
use weighbridge_core::ErrorCode;
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::{Cursor, SourceRef};
use weighbridge_scan::pickles;

/// Maximum length of a scanned header.
const MAX_HEADER_LEN: u64 = 1 << 20;

/// Scans one array: numbers are clean, objects are a pickle.
pub(super) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let mut scan = Scan::default();
    let mut cursor = Cursor::new(source.clone(), 0);
    let budget = options.limits.budget_for(source.len());
    if budget.work_left() == 0 {
        // Reported for the whole file.
        return Ok(scan);
    }
    let header = Header::read(&mut cursor, source.len(), &options.limits);
    budget.spend_work(cursor.position());
    let error = match header {
        Ok(header) => {
            numbers(source, &header, &mut scan);
            return Ok(scan);
        }
        Err(error) if error.kind() == Kind::Io => return Err(error),
        Err(error) => error,
    };
    let Ok((text, data)) = text_of(source) else {
        scan.push_error(error)?;
        return Ok(scan);
    };
    // A numpy dtype with objects contains the letter O or the word object; an escape sequence could hide them.
    let may_be_objects = text.contains('O') || text.contains("object") || text.contains('\\');
    if error.code() == ErrorCode::NpyDtype && !may_be_objects {
        // Texts, dates, records of numbers contain no code; trailing bytes may.
        match len_of_unread(&text, &options.limits) {
            Ok(Some(len)) => check_end(source, data.checked_add(len), &mut scan),
            Ok(None) => scan.push("left-out", "npy-dtype: the length of the array is unknown"),
            Err(error) => scan.push_error(error)?,
        }
        return Ok(scan);
    }
    if may_be_objects {
        pickles(source, data, 1, false, &options.limits, &mut scan);
    }
    if error.code() != ErrorCode::NpyDtype {
        scan.push_error(error)?;
    }
    Ok(scan)
}

/// Reports trailing bytes behind the numbers, which numpy ignores.
fn numbers(source: &SourceRef, header: &Header, scan: &mut Scan) {
    let size = header.dtype.size().unwrap_or(1) as u64;
    let end =
        header.shape.elements().and_then(|n| n.checked_mul(size)).and_then(|n| n.checked_add(header.len));
    check_end(source, end, scan);
}

/// Compares the end of the array with the end of the file.
fn check_end(source: &SourceRef, end: Option<u64>, scan: &mut Scan) {
    match end {
        Some(end) if end < source.len() => {
            let text = format!("{} trailing bytes behind the array were not scanned", source.len() - end);
            scan.push_at("trailing-bytes", end, text);
        }
        Some(end) if end == source.len() => {}
        _ => scan.push("unreadable", "truncated: the file ends within the array"),
    }
}

/// Returns the text of the header, and the offset of the data.
fn text_of(source: &SourceRef) -> Result<(String, u64)> {
    let mut cursor = Cursor::new(source.clone(), 0);
    let start: [u8; 8] = cursor.array("the magic number of the array")?;
    if !start.starts_with(MAGIC) {
        return Err(Error::corrupt("npy-magic", r"not an npy file: the signature \x93NUMPY is missing"));
    }
    let len = match start[6] {
        1 => u64::from(u16::from_le_bytes(cursor.array("the length of the header")?)),
        _ => u64::from(u32::from_le_bytes(cursor.array("the length of the header")?)),
    };
    let bytes = cursor.bytes(len.min(MAX_HEADER_LEN), "the header of the array")?;
    Ok((bytes.into_iter().map(char::from).collect(), cursor.position()))
}
