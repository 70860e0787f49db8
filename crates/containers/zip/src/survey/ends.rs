//! End records, and where the programs that read archives look for a directory from there.
//!
//! Zip is read from its end, and programs differ in what they take for it:
//!
//! | program | end record | directory |
//! | --- | --- | --- |
//! | Python's `zipfile` | the last mark of the last 64 KiB, whatever follows | just before the end records |
//! | miniz, of PyTorch's reader | the last mark with a whole record | at the offset that the record says |
//! | Java, libzip, others | a record whose comment ends with the file | either |
//!
//! Where a zip64 locator stands before the end record, the zip64 record is just before it, or where it says.

use crate::read::{le16, le32, le64};
use crate::{
    CENTRAL, CENTRAL_LEN, END, END_SIZE, END64, END64_LEN, LOCATOR64, LOCATOR64_LEN, MAX32, TAIL_LEN,
};
use weighbridge_core::error::Result;
use weighbridge_io::source::{Source, SourceRef, read_vec};

/// Bytes from the end in which some program looks for an end record: miniz reads whole blocks, so one more of them.
const REACH: u64 = TAIL_LEN + 4095;
/// Marks that are followed.
const MOST: usize = 100;

/// A directory as some program finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Where the end record stands.
    pub end: u64,
    /// Where the directory begins.
    pub start: u64,
    /// Its length in bytes, as that program takes it.
    pub(crate) size: u64,
    /// What that program adds to the offsets of members, modulo 2^64: mostly the bytes before the archive.
    pub shift: u64,
}

/// The directories that programs find in `source` from its end, those of the record that most take first. Each begins
/// with the mark of an entry; none where no program would see an archive with members.
///
/// # Errors
/// What the source says.
pub fn readings(source: &SourceRef) -> Result<Vec<Reading>> {
    let source = &**source;
    let len = source.len().min(REACH);
    let at = source.len() - len;
    let tail = read_vec(source, at, len)?;
    let whole = |place: &usize| tail.len() - place >= END_SIZE;
    // From the end on.
    let marks: Vec<usize> = memchr::memmem::rfind_iter(&tail, &END).filter(whole).take(MOST).collect();
    let comment = |place: usize| usize::from(le16(&tail[place..], 20));
    let fits = |place: &usize| tail.len() == place + END_SIZE + comment(*place);
    let mut first: Vec<usize> = marks.iter().copied().filter(fits).collect();
    first.extend(marks.first());
    first.extend(marks.iter().find(|&&place| tail.len() >= place + END_SIZE + comment(place)));
    let mut found = Vec::new();
    for place in first {
        read_from(source, at + place as u64, &tail[place..place + END_SIZE], &mut found)?;
    }
    // The end of an archive within another is none of the outer one.
    for &place in &marks {
        if !found.is_empty() {
            break;
        }
        read_from(source, at + place as u64, &tail[place..place + END_SIZE], &mut found)?;
    }
    Ok(found)
}

/// The directories to which the end record at `end` leads.
fn read_from(source: &dyn Source, end: u64, record: &[u8], found: &mut Vec<Reading>) -> Result<()> {
    // `before`: where the directory ends, for programs that count from there.
    let mut add = |before: Option<u64>, size: u64, offset: u64| -> Result<()> {
        let counted = before.and_then(|before| before.checked_sub(size));
        let counted = counted.map(|start| (start, start.wrapping_sub(offset)));
        for (start, shift) in [counted, Some((offset, 0))].into_iter().flatten() {
            if size < CENTRAL_LEN || start > source.len() {
                continue;
            }
            let reading = Reading { end, start, size: size.min(source.len() - start), shift };
            let known = found.iter().any(|known| (known.start, known.shift) == (start, shift));
            if !known && starts_with(source, start, &CENTRAL)? {
                found.push(reading);
            }
        }
        Ok(())
    };
    let mut is_wide = false;
    if let Some(at) = end.checked_sub(LOCATOR64_LEN)
        && starts_with(source, at, &LOCATOR64)?
    {
        let said = le64(&read_vec(source, at, LOCATOR64_LEN)?, 8);
        let own = at.checked_sub(END64_LEN);
        for wide in [own, Some(said)].into_iter().flatten() {
            let fits = wide.checked_add(END64_LEN).is_some_and(|end| end <= source.len());
            if fits && starts_with(source, wide, &END64)? {
                let wide_record = read_vec(source, wide, END64_LEN)?;
                is_wide |= Some(wide) == own;
                add(Some(wide), le64(&wide_record, 40), le64(&wide_record, 48))?;
            }
        }
    }
    // Nobody counts from the end record where a zip64 record stands before it.
    let before = if is_wide { None } else { Some(end) };
    let (size, offset) = (u64::from(le32(record, 12)), u64::from(le32(record, 16)));
    if size == MAX32 { Ok(()) } else { add(before, size, offset) }
}

/// True where these bytes stand at `at`.
fn starts_with(source: &dyn Source, at: u64, mark: &[u8; 4]) -> Result<bool> {
    if at.checked_add(4).is_none_or(|end| end > source.len()) {
        return Ok(false);
    }
    let mut bytes = [0; 4];
    source.read_at(at, &mut bytes)?;
    Ok(bytes == *mark)
}
