//! End records of an archive: their position, and the bytes after them.

use super::super::{
    END, END_LEN, END_SIZE, END64, END64_LEN, LOCATOR64, LOCATOR64_LEN, MAX16, MAX32, TAIL_LEN,
};
use super::{corrupt, le16, le32, le64, volumes};
use weighbridge_core::checkpoint::Note;
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::text::counted;
use weighbridge_io::source::{Source, read_vec};

/// Values of the end records. `position` is the offset of the first of them.
#[derive(Debug)]
pub(in super::super) struct End {
    pub(super) count: u64,
    pub(super) size: u64,
    pub(super) offset: u64,
    pub(super) position: u64,
    /// Set where the file does not end with the archive comment.
    pub(super) rest: Option<Rest>,
}

/// Bytes after the end record of an archive, or a truncated comment. Python and PyTorch ignore both, as long as
/// the record is in the last 64 KiB; a strict reader refuses both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Bytes after the archive.
    Trailing {
        /// Offset of the first byte.
        at: u64,
        /// Number of bytes.
        len: u64,
    },
    /// The comment is shorter than the end record states.
    ShortComment {
        /// Offset of its first byte.
        at: u64,
        /// Length by the end record.
        said: u64,
        /// Actual length.
        len: u64,
    },
}

impl Rest {
    /// The error of a strict reader: `trailing-bytes` or `zip-comment-cut`.
    pub fn to_error(self) -> Error {
        match self {
            Self::Trailing { at, len } => corrupt("trailing-bytes", "bytes follow the end of the archive")
                .at(at)
                .expected("the end of the file")
                .found(counted(len, "byte more", "bytes more"))
                .hint(phrase![
                    "Python and PyTorch ignore these bytes; use ",
                    Opt::Lenient,
                    " if you trust their origin"
                ]),
            Self::ShortComment { at, said, len } => {
                corrupt("zip-comment-cut", "the archive comment is truncated")
                    .at(at)
                    .expected(counted(said, "byte of comment", "bytes of comment"))
                    .found(counted(len, "byte", "bytes"))
                    .hint(phrase!["no member follows the comment; use ", Opt::Lenient, " to ignore this"])
            }
        }
    }

    /// Returns the error of a strict reader, or adds the note of a lenient one. `label` is the display name of the file.
    ///
    /// # Errors
    /// As [`to_error`](Self::to_error).
    pub fn settle(self, lenient: bool, label: &str, notes: &mut Vec<Note>) -> Result<()> {
        if !lenient {
            return Err(self.to_error().in_file(label));
        }
        notes.push(self.to_note());
        Ok(())
    }

    /// The note of a lenient reader.
    pub fn to_note(self) -> Note {
        match self {
            Self::Trailing { at, len } => {
                let bytes = counted(len, "byte", "bytes");
                let text = format!("{bytes} after the end of the archive ignored, from offset {at} on");
                Note::omission("trailing-bytes", text)
            }
            Self::ShortComment { said, len, .. } => {
                let text = format!("the archive comment is truncated: {len} of {said} bytes");
                Note::omission("zip-comment-cut", text)
            }
        }
    }
}

/// Finds the end records.
///
/// Python and PyTorch use the last signature in the last 64 KiB, whatever follows; other programs require a
/// comment that ends with the file. A record with a fitting comment is accepted only where it is unambiguous;
/// another one only if it has the last signature and the directory ends right before it: in a truncated archive
/// the data of a member may contain a signature.
pub(super) fn find_end(source: &dyn Source) -> Result<End> {
    let tail_len = source.len().min(TAIL_LEN);
    let tail_at = source.len() - tail_len;
    let tail = read_vec(source, tail_at, tail_len)?;
    let marks: Vec<(u64, &[u8])> = memchr::memmem::rfind_iter(&tail, &END)
        .filter_map(|at| Some((tail_at + at as u64, tail.get(at..)?)))
        .collect();
    let two = |position| {
        corrupt("zip-two-ends", "the archive has two end records: programs differ in its content")
            .at(position)
    };
    // From the last signature on.
    let fits =
        |record: &[u8]| record.len() >= END_SIZE && record.len() == END_SIZE + usize::from(le16(record, 20));
    let fitting: Vec<_> = marks.iter().enumerate().filter(|(_, mark)| fits(mark.1)).take(2).collect();
    if let Some(&(behind, &(position, record))) = fitting.first() {
        if behind > 0 || fitting.len() > 1 {
            return Err(two(position));
        }
        return read_ends(source, position, record);
    }
    let whole = |mark: &(usize, &(u64, &[u8]))| mark.1.1.len() >= END_SIZE;
    for (behind, &(position, record)) in marks.iter().enumerate().filter(whole).take(MAX_TRIED) {
        let mut end = match read_ends(source, position, record) {
            Ok(end) if end.offset.checked_add(end.size) == Some(end.position) => end,
            Err(error) if error.kind() == Kind::Io => return Err(error),
            _ => continue,
        };
        if behind > 0 {
            return Err(two(position));
        }
        let (at, said) = (position + END_LEN, u64::from(le16(record, 20)));
        let len = source.len() - at;
        end.rest = Some(match len.checked_sub(said) {
            Some(more) => Rest::Trailing { at: at + said, len: more },
            None => Rest::ShortComment { at, said, len },
        });
        return Ok(end);
    }
    Err(corrupt("zip-no-end", "the archive has no end record in its last 64 KiB; it is probably truncated")
        .at(source.len())
        .hint("the download may be incomplete; download the file again"))
}

/// Signatures that are tried where no comment fits: well-formed files have one.
const MAX_TRIED: usize = 64;

/// Reads the end record at `position`, whose bytes are `end`, and the zip64 record before it.
fn read_ends(source: &dyn Source, position: u64, end: &[u8]) -> Result<End> {
    let locator = match position.checked_sub(LOCATOR64_LEN) {
        Some(at) => {
            Some((at, read_vec(source, at, LOCATOR64_LEN)?)).filter(|(_, l)| l.starts_with(&LOCATOR64))
        }
        None => None,
    };
    let short = [le16(end, 4), le16(end, 6), le16(end, 8), le16(end, 10)].map(u64::from);
    let (size, offset) = (u64::from(le32(end, 12)), u64::from(le32(end, 16)));
    match locator {
        Some((at, locator)) => {
            let wide = read_end64(source, at, &locator)?;
            // Some programs use the zip64 record only where the short record refers to it.
            let agrees = |short: u64, max: u64, wide: u64| short == max || short == wide;
            let same = agrees(short[2], MAX16, wide.count)
                && agrees(short[3], MAX16, wide.count)
                && agrees(size, MAX32, wide.size)
                && agrees(offset, MAX32, wide.offset)
                && short[..2].iter().all(|&disk| agrees(disk, MAX16, 0));
            if !same {
                return Err(corrupt(
                    "zip-ends-differ",
                    "the two end records of the archive contradict each other",
                )
                .at(position));
            }
            Ok(wide)
        }
        None if short[..2] != [0, 0] || short[2] != short[3] => Err(volumes(position)),
        None => Ok(End { count: short[3], size, offset, position, rest: None }),
    }
}

fn read_end64(source: &dyn Source, locator_at: u64, locator: &[u8]) -> Result<End> {
    let at = le64(locator, 8);
    if le32(locator, 4) != 0 || le32(locator, 16) > 1 {
        return Err(volumes(locator_at));
    }
    let fail = || {
        corrupt("zip-bad-zip64", "the zip64 end record is not at the offset in its locator")
            .at(locator_at)
            .hint("the file may consist of two joined archives")
    };
    if at.checked_add(END64_LEN).is_none_or(|end| end > locator_at) {
        return Err(fail());
    }
    let end = read_vec(source, at, END64_LEN)?;
    if !end.starts_with(&END64) || le64(&end, 4).checked_add(12 + at) != Some(locator_at) {
        return Err(fail());
    }
    if le32(&end, 16) != 0 || le32(&end, 20) != 0 || le64(&end, 24) != le64(&end, 32) {
        return Err(volumes(at));
    }
    Ok(End { count: le64(&end, 32), size: le64(&end, 40), offset: le64(&end, 48), position: at, rest: None })
}
