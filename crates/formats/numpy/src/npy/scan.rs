//! What numpy would run if it opened an array with `allow_pickle`.

use super::header::{Header, MAGIC, len_of_unread};
use weighbridge_core::ErrorCode;
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::{Cursor, SourceRef};
use weighbridge_scan::pickles;

/// The longest header that is looked at.
const LONGEST: u64 = 1 << 20;

/// Looks through one array: numbers are clean, objects are a pickle.
pub(super) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let mut scan = Scan::default();
    let mut cursor = Cursor::new(source.clone(), 0);
    let budget = options.limits.budget_for(source.len());
    if budget.work_left() == 0 {
        // It is told of the whole file.
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
    // A type of numpy has objects only where it says so, by a letter or by its name. An escape could hide it.
    let may_be_objects = text.contains('O') || text.contains("object") || text.contains('\\');
    if error.code() == ErrorCode::NpyDtype && !may_be_objects {
        // Texts, dates, records of numbers: nothing here that runs. What follows behind them may.
        match len_of_unread(&text, &options.limits) {
            Ok(Some(len)) => held(source, data.checked_add(len), &mut scan),
            Ok(None) => scan.push("left-out", "npy-dtype: the length of the array is not known"),
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

/// What follows behind the numbers is told; numpy does not look at it.
fn numbers(source: &SourceRef, header: &Header, scan: &mut Scan) {
    let size = header.dtype.size().unwrap_or(1) as u64;
    let end =
        header.shape.elements().and_then(|n| n.checked_mul(size)).and_then(|n| n.checked_add(header.len));
    held(source, end, scan);
}

/// Holds the end of the array against that of the file.
fn held(source: &SourceRef, end: Option<u64>, scan: &mut Scan) {
    match end {
        Some(end) if end < source.len() => {
            let text = format!("{} bytes follow behind the array and were not looked at", source.len() - end);
            scan.push_at("trailing-bytes", end, text);
        }
        Some(end) if end == source.len() => {}
        _ => scan.push("unreadable", "truncated: the file ends before its array does"),
    }
}

/// The text of the header, and where the data begins.
fn text_of(source: &SourceRef) -> Result<(String, u64)> {
    let mut cursor = Cursor::new(source.clone(), 0);
    let start: [u8; 8] = cursor.array("the magic of the array")?;
    if !start.starts_with(MAGIC) {
        return Err(Error::corrupt("npy-magic", "this does not begin as an array does"));
    }
    let len = match start[6] {
        1 => u64::from(u16::from_le_bytes(cursor.array("the length of the header")?)),
        _ => u64::from(u32::from_le_bytes(cursor.array("the length of the header")?)),
    };
    let bytes = cursor.bytes(len.min(LONGEST), "the header of the array")?;
    Ok((bytes.into_iter().map(char::from).collect(), cursor.position()))
}
