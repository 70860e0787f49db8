//! Lenient reader of the end records and the directory, as tolerant programs read them.

use super::{Reading, Survey};
use crate::read::{FLAGS_REFUSED, is_renamed, le16, le32, le64, lossy_name, take_wide, zip64_extra};
use crate::{
    CENTRAL, CENTRAL_LEN, END, END_SIZE, END64, END64_LEN, LOCATOR64, LOCATOR64_LEN, MAX16, MAX32, TAIL_LEN,
};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::text::escape;
use weighbridge_io::source::{Cursor, Source, SourceRef, read_vec};

/// File type bits of the Unix mode, and the types.
const KIND: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;

/// Directory with its position.
pub(super) struct Directory {
    /// Value added to offsets, modulo 2^64: the bytes before the archive.
    pub(super) shift: u64,
    /// Offset of the directory.
    pub(super) start: u64,
    /// Offset of its end.
    pub(super) end: u64,
    pub(super) records: Vec<Record>,
}

/// Entry of the directory.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) raw_name: Vec<u8>,
    pub(super) name: String,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) crc32: u32,
    pub(super) compressed_len: u64,
    pub(super) len: u64,
    pub(super) header_offset: u64,
    /// Offset of the entry itself.
    pub(super) at: u64,
}

/// Values of the end records.
struct End {
    count: u64,
    size: u64,
    offset: u64,
    /// Offset of the first of them.
    position: u64,
}

/// Reads the directory of the archive; `None`, with the reason as an oddity, where most readers find no usable
/// directory. `elsewhere` is true where some reader still finds one.
pub(super) fn directory(
    source: &SourceRef,
    elsewhere: bool,
    limits: &Limits,
    survey: &mut Survey,
) -> Result<Option<Directory>> {
    let Some(end) = find_end(&**source, elsewhere, survey)? else { return Ok(None) };
    let Some(start) = end.position.checked_sub(end.size) else {
        survey.odd("zip-damaged", end.position, "the directory begins before the file");
        return Ok(None);
    };
    let Some(shift) = start.checked_sub(end.offset) else {
        let text = format!("the directory begins at {start}, but the end record has offset {}", end.offset);
        survey.odd("zip-end-records", end.position, text);
        return Ok(None);
    };
    if shift > 0 {
        survey.odd("zip-prepended", 0, format!("{shift} bytes precede the archive"));
    }
    Limits::check_part("archive members", "tensors", end.size / CENTRAL_LEN, limits.tensors, 1)?;
    let records = records(source, start, end.position, survey)?;
    if records.len() as u64 != end.count {
        let text = format!("the end record counts {} members, the directory {}", end.count, records.len());
        survey.odd("zip-end-records", end.position, text);
    }
    if records.is_empty() && end.count > 0 {
        return Ok(None);
    }
    Ok(Some(Directory { shift, start, end: end.position, records }))
}

/// Reads the directory that another program finds.
pub(super) fn directory_at(source: &SourceRef, reading: &Reading, survey: &mut Survey) -> Result<Directory> {
    let Reading { start, size, shift, .. } = *reading;
    let end = start.saturating_add(size);
    Ok(Directory { shift, start, end, records: records(source, start, end, survey)? })
}

/// Reads the directory entries in this range, up to the first unreadable one.
fn records(source: &SourceRef, start: u64, end: u64, survey: &mut Survey) -> Result<Vec<Record>> {
    let mut cursor = Cursor::new(source.clone(), start);
    let mut records = Vec::new();
    while cursor.position() < end {
        let at = cursor.position();
        match record(&mut cursor, survey) {
            Ok(Some(record)) => records.push(record),
            Ok(None) => {
                survey.odd("zip-damaged", at, "a directory entry has no signature");
                break;
            }
            Err(error) if error.kind() == weighbridge_core::Kind::Io => return Err(error),
            Err(error) => {
                survey.odd("zip-damaged", at, format!("a directory entry is malformed: {}", error.message()));
                break;
            }
        }
    }
    Ok(records)
}

/// Finds the end record that most readers use: the first whose comment ends with the file, else the last one.
/// `elsewhere` is true where some reader still finds one.
fn find_end(source: &dyn Source, elsewhere: bool, survey: &mut Survey) -> Result<Option<End>> {
    let tail_len = source.len().min(TAIL_LEN);
    let tail_at = source.len() - tail_len;
    let tail = read_vec(source, tail_at, tail_len)?;
    let whole = |at: &usize| tail.len() - at >= END_SIZE;
    let marks: Vec<usize> = memchr::memmem::find_iter(&tail, &END).filter(whole).collect();
    let fits = |at: usize| tail.len() == at + END_SIZE + usize::from(le16(&tail[at..], 20));
    let fitting: Vec<usize> = marks.iter().copied().filter(|&at| fits(at)).collect();
    let Some(&last) = marks.last() else {
        let text = if elsewhere {
            "there is no end record in the range that most programs search"
        } else {
            "the archive has no end record; it is probably truncated"
        };
        survey.odd("zip-damaged", source.len(), text);
        return Ok(None);
    };
    let chosen = fitting.first().copied().unwrap_or(last);
    if fitting.len() > 1 || (!fitting.is_empty() && last > chosen) {
        let text = "there are two end records, one inside the comment of the other";
        survey.odd("zip-end-records", tail_at + last as u64, text);
    }
    let end = &tail[chosen..];
    let position = tail_at + chosen as u64;
    if fitting.is_empty() {
        let behind = END_SIZE + usize::from(le16(end, 20));
        match end.len().checked_sub(behind) {
            Some(more) => survey.odd(
                "zip-appended",
                position + behind as u64,
                format!("{more} bytes follow the end of the archive"),
            ),
            None => survey.odd("zip-damaged", position, "the archive comment is truncated"),
        }
    }
    let mut found = End {
        count: u64::from(le16(end, 10)),
        size: u64::from(le32(end, 12)),
        offset: u64::from(le32(end, 16)),
        position,
    };
    if le16(end, 4) != 0 || le16(end, 6) != 0 || le16(end, 8) != le16(end, 10) {
        let text = "the end record declares several volumes or two different member counts";
        survey.odd("zip-end-records", position, text);
    }
    if let Some(wide) = wide_end(source, position, survey)? {
        let agrees = |short: u64, max: u64, wide: u64| short == max || short == wide;
        if !(agrees(found.count, MAX16, wide.count)
            && agrees(found.size, MAX32, wide.size)
            && agrees(found.offset, MAX32, wide.offset))
        {
            survey.odd(
                "zip-end-records",
                position,
                "the end record and its zip64 record contradict each other",
            );
        }
        found = wide;
    }
    Ok(Some(found))
}

/// Reads the zip64 record before the end record at `position`.
fn wide_end(source: &dyn Source, position: u64, survey: &mut Survey) -> Result<Option<End>> {
    let Some(at) = position.checked_sub(LOCATOR64_LEN) else { return Ok(None) };
    let locator = read_vec(source, at, LOCATOR64_LEN)?;
    if !locator.starts_with(&LOCATOR64) {
        return Ok(None);
    }
    let said = le64(&locator, 8);
    // Python reads it just before the locator, others at the offset in the locator.
    let own = at.checked_sub(END64_LEN);
    if own != Some(said) {
        survey.odd("zip-end-records", at, "the zip64 record is not at the offset in its locator");
    }
    let Some(own) = own else { return Ok(None) };
    let end = read_vec(source, own, END64_LEN)?;
    if !end.starts_with(&END64) {
        survey.odd("zip-end-records", own, "there is no zip64 record before the locator");
        return Ok(None);
    }
    if le32(&end, 16) != 0 || le32(&end, 20) != 0 || le64(&end, 24) != le64(&end, 32) {
        survey.odd("zip-end-records", own, "the zip64 record declares several volumes");
    }
    Ok(Some(End { count: le64(&end, 32), size: le64(&end, 40), offset: le64(&end, 48), position: own }))
}

/// Reads the entry at the cursor; `None` where it has no signature.
fn record(cursor: &mut Cursor, survey: &mut Survey) -> Result<Option<Record>> {
    let at = cursor.position();
    let fixed: [u8; 46] = cursor.array("a directory entry")?;
    if fixed[..4] != CENTRAL {
        return Ok(None);
    }
    let flags = le16(&fixed, 8);
    let raw_name = cursor.bytes(le16(&fixed, 28).into(), "a name in the directory")?;
    let name = lossy_name(&raw_name, flags);
    let extra = cursor.bytes(le16(&fixed, 30).into(), "an extra field in the directory")?;
    cursor.skip(le16(&fixed, 32).into(), "a comment in the directory")?;
    if is_renamed(&extra, &raw_name, flags) {
        let text = format!(
            "`{}`: an extra field gives the member a different name, which some programs use",
            escape(&name)
        );
        survey.odd("zip-headers-differ", at, text);
    }
    let mut wide = match zip64_extra(&extra) {
        Ok(wide) => wide,
        Err(error) => {
            survey.odd("zip-headers-differ", at, format!("`{}`: {}", escape(&name), error.message()));
            &[]
        }
    };
    let mut number = |short: u32| match u64::from(short) {
        MAX32 => take_wide(&mut wide).unwrap_or(MAX32),
        short => short,
    };
    let (len, compressed_len) = (number(le32(&fixed, 24)), number(le32(&fixed, 20)));
    let header_offset = number(le32(&fixed, 42));
    if flags & FLAGS_REFUSED != 0 {
        survey.odd("zip-encrypted", at, format!("`{}` is encrypted", escape(&name)));
    }
    // The upper half is the Unix mode; archives made on DOS have zeros there.
    let kind = (le32(&fixed, 38) >> 16) & KIND;
    if !matches!(kind, 0 | REGULAR | FOLDER) {
        survey.odd("member-link", at, format!("`{}` is a link or a device", escape(&name)));
    }
    Ok(Some(Record {
        raw_name,
        name,
        flags,
        method: le16(&fixed, 10),
        crc32: le32(&fixed, 16),
        compressed_len,
        len,
        header_offset,
        at,
    }))
}
