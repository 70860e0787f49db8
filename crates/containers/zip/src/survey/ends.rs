//! End records, and the directories that different programs find from them.
//!
//! Zip is read from its end, and programs differ in how they find it:
//!
//! | program | end record | directory |
//! | --- | --- | --- |
//! | Python's `zipfile` | the last signature of the last 64 KiB, whatever follows | just before the end records |
//! | miniz, in PyTorch's reader | the last signature with a whole record | at the offset in the record |
//! | Java, libzip, others | a record whose comment ends with the file | either |
//!
//! With a zip64 locator before the end record, the zip64 record is just before the locator or at its offset.

use crate::read::{le16, le32, le64};
use crate::{
    CENTRAL, CENTRAL_LEN, END, END_SIZE, END64, END64_LEN, LOCATOR64, LOCATOR64_LEN, MAX32, TAIL_LEN,
};
use weighbridge_core::error::Result;
use weighbridge_io::source::{Source, SourceRef, read_vec};

/// Bytes from the end that some program searches for an end record: miniz reads whole blocks, so one block more.
const MAX_TAIL_LEN: u64 = TAIL_LEN + 4095;
/// Signatures that are tried.
const MAX_SIGNATURES: usize = 100;

/// Directory that some program finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Offset of the end record.
    pub end: u64,
    /// Offset of the directory.
    pub start: u64,
    /// Length of the directory in bytes, as that program reads it.
    pub(crate) size: u64,
    /// Value that the program adds to member offsets, modulo 2^64: usually the bytes before the archive.
    pub shift: u64,
}

/// Finds the directories that programs read from the end of `source`, first those of the most common end record. Each
/// begins with an entry signature; empty where no program would find an archive with members.
///
/// # Errors
/// As the source.
pub fn readings(source: &SourceRef) -> Result<Vec<Reading>> {
    let source = &**source;
    let len = source.len().min(MAX_TAIL_LEN);
    let at = source.len() - len;
    let tail = read_vec(source, at, len)?;
    let whole = |place: &usize| tail.len() - place >= END_SIZE;
    // Backwards from the end.
    let marks: Vec<usize> =
        memchr::memmem::rfind_iter(&tail, &END).filter(whole).take(MAX_SIGNATURES).collect();
    let comment = |place: usize| usize::from(le16(&tail[place..], 20));
    let fits = |place: &usize| tail.len() == place + END_SIZE + comment(*place);
    let mut first: Vec<usize> = marks.iter().copied().filter(fits).collect();
    first.extend(marks.first());
    first.extend(marks.iter().find(|&&place| tail.len() >= place + END_SIZE + comment(place)));
    let mut found = Vec::new();
    for place in first {
        read_from(source, at + place as u64, &tail[place..place + END_SIZE], &mut found)?;
    }
    // The end record of a nested archive does not belong to the outer one.
    for &place in &marks {
        if !found.is_empty() {
            break;
        }
        read_from(source, at + place as u64, &tail[place..place + END_SIZE], &mut found)?;
    }
    Ok(found)
}

/// Adds the directories that the end record at `end` refers to.
fn read_from(source: &dyn Source, end: u64, record: &[u8], found: &mut Vec<Reading>) -> Result<()> {
    // `before`: the end of the directory, for programs that count back from there.
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
    // No program counts back from the end record if a zip64 record precedes it.
    let before = if is_wide { None } else { Some(end) };
    let (size, offset) = (u64::from(le32(record, 12)), u64::from(le32(record, 16)));
    if size == MAX32 { Ok(()) } else { add(before, size, offset) }
}

/// True where the bytes at `at` are this signature.
fn starts_with(source: &dyn Source, at: u64, mark: &[u8; 4]) -> Result<bool> {
    if at.checked_add(4).is_none_or(|end| end > source.len()) {
        return Ok(false);
    }
    let mut bytes = [0; 4];
    source.read_at(at, &mut bytes)?;
    Ok(bytes == *mark)
}
