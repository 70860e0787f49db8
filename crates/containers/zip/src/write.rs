//! Planner for archives of stored members.

use super::{
    CENTRAL, END, END64, END64_LEN, EXTRA_ALIGNMENT, EXTRA_ZIP64, FLAG_UTF8, LOCAL, LOCAL_LEN, LOCATOR64,
    MAX16, MAX32,
};
use std::collections::HashSet;
use std::ops::Range;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{FileBuilder, PlannedFile};
use weighbridge_core::text::escape as escape_text;

/// Alignment of the data of every member, so that it can be mapped.
const ALIGNMENT: u64 = 64;
/// Version 2.0 of the format: folders and deflate.
const VERSION: u16 = 20;
/// Version 4.5 of the format: zip64.
const VERSION64: u16 = 45;
/// Creator system Unix, in the upper byte of the version. For DOS, some programs ignore the UTF-8 flag of names.
const ON_UNIX: u16 = 3 << 8;
/// Unix mode of a regular file that all may read, in the upper half of the attributes.
const FILE_MODE: u32 = 0o100_644 << 16;
/// 1980-01-01, the first day of DOS dates: the output does not depend on the current date.
const DATE: u16 = 1 << 5 | 1;

/// Plans an archive of stored members, each with its data at a multiple of 64.
#[derive(Debug)]
pub struct ZipBuilder {
    file: FileBuilder,
    members: Vec<Written>,
    names: HashSet<String>,
}

#[derive(Debug)]
struct Written {
    name: String,
    header_offset: u64,
    data: Range<u64>,
}

impl ZipBuilder {
    /// Starts an archive in the empty `file`.
    pub fn new(file: FileBuilder) -> Self {
        Self { file, members: Vec::new(), names: HashSet::new() }
    }

    /// Adds a member of `len` bytes, which `fill` appends.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `name-too-long` for a name above 65,535 bytes, `bad-name` for one
    /// with a NUL, `duplicate-member` for a second one of the name; [`weighbridge_core::Kind::Usage`] where
    /// `fill` appends a different number of bytes; and the errors of `fill`.
    pub fn member(
        &mut self,
        name: &str,
        len: u64,
        fill: impl FnOnce(&mut FileBuilder) -> Result<()>,
    ) -> Result<()> {
        let Ok(name_len) = u16::try_from(name.len()) else {
            return Err(Error::mismatch(
                "name-too-long",
                "the member name is longer than 65535 bytes, the limit of zip",
            )
            .found(format_args!("{} bytes", name.len())));
        };
        if name.contains('\0') {
            return Err(
                Error::mismatch("bad-name", "the member name contains a NUL").found(escape_text(name))
            );
        }
        if !self.names.insert(name.to_owned()) {
            return Err(Error::mismatch("duplicate-member", "duplicate member name").found(escape_text(name)));
        }
        let header_offset = self.file.position();
        let wide = len >= MAX32;
        let mut extra = Vec::new();
        if wide {
            extra.extend(EXTRA_ZIP64.to_le_bytes());
            extra.extend(16u16.to_le_bytes());
            extra.extend(len.to_le_bytes());
            extra.extend(len.to_le_bytes());
        }
        let unpadded = header_offset + LOCAL_LEN + u64::from(name_len) + extra.len() as u64;
        extra.extend(alignment_extra(unpadded));
        // At most 20 + 69 bytes.
        let extra_len = u16::try_from(extra.len()).unwrap_or(u16::MAX);
        let data_offset = header_offset + LOCAL_LEN + u64::from(name_len) + extra.len() as u64;
        // This leaves space for the directory: no plan comes near 2^63 bytes.
        let Some(data_end) = data_offset.checked_add(len).filter(|&end| end < 1 << 63) else {
            return Err(Error::mismatch("archive-too-large", "the archive exceeds 2^63 bytes"));
        };
        let data = data_offset..data_end;

        let file = &mut self.file;
        file.literal(LOCAL);
        file.literal(common(name, wide));
        file.crc32(data.clone());
        let short = short32(len).to_le_bytes();
        file.literal([short, short].concat());
        file.literal([name_len.to_le_bytes(), extra_len.to_le_bytes()].concat());
        file.literal(name);
        file.literal(extra);
        fill(file)?;
        if file.position() != data_end {
            return Err(Error::usage(
                "member-length",
                "the data of a member does not have the announced length",
            )
            .expected(format_args!("{len} bytes"))
            .found(format_args!("{} bytes", file.position() - data_offset)));
        }
        self.members.push(Written { name: name.to_owned(), header_offset, data });
        Ok(())
    }

    /// Appends the directory and the end records.
    pub fn finish(self) -> PlannedFile {
        let Self { mut file, members, .. } = self;
        let directory = file.position();
        for member in &members {
            central(&mut file, member);
        }
        let (count, end) = (members.len() as u64, file.position());
        let size = end - directory;
        if count >= MAX16 || size >= MAX32 || directory >= MAX32 {
            file.literal(END64);
            file.literal((END64_LEN - 12).to_le_bytes());
            file.literal([VERSION64.to_le_bytes(), VERSION64.to_le_bytes()].concat());
            file.literal([0; 8]); // this volume, and the volume of the directory
            file.literal([count, count, size, directory].map(u64::to_le_bytes).concat());
            file.literal(LOCATOR64);
            file.literal([0; 4]);
            file.literal(end.to_le_bytes());
            file.literal(1u32.to_le_bytes());
        }
        let short_count = u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes();
        file.literal(END);
        file.literal([0; 4]);
        file.literal([short_count, short_count].concat());
        file.literal([short32(size), short32(directory)].map(u32::to_le_bytes).concat());
        file.literal([0; 2]); // no comment
        file.finish()
    }
}

/// Appends one directory entry.
fn central(file: &mut FileBuilder, member: &Written) {
    let len = member.data.end - member.data.start;
    let mut extra: Vec<u8> = Vec::new();
    if len >= MAX32 {
        extra.extend(len.to_le_bytes());
        extra.extend(len.to_le_bytes());
    }
    if member.header_offset >= MAX32 {
        extra.extend(member.header_offset.to_le_bytes());
    }
    // At most 28 bytes with its header; the length of the name was checked when the member was added.
    let field_len = u16::try_from(extra.len()).unwrap_or(u16::MAX);
    let wide = field_len > 0;
    let extra_len = if wide { field_len + 4 } else { 0 };
    let name_len = u16::try_from(member.name.len()).unwrap_or(u16::MAX);
    file.literal(CENTRAL);
    let version = if wide { VERSION64 } else { VERSION };
    file.literal((version | ON_UNIX).to_le_bytes());
    file.literal(common(&member.name, wide));
    file.crc32(member.data.clone());
    let short = short32(len).to_le_bytes();
    file.literal([short, short].concat());
    file.literal([name_len.to_le_bytes(), extra_len.to_le_bytes()].concat());
    file.literal([0; 6]); // comment, volume, text flag
    file.literal(FILE_MODE.to_le_bytes());
    file.literal(short32(member.header_offset).to_le_bytes());
    file.literal(&member.name);
    if wide {
        file.literal([EXTRA_ZIP64.to_le_bytes(), field_len.to_le_bytes()].concat());
        file.literal(extra);
    }
}

/// Fields of both headers between signature and CRC: version needed, flags, method, time, date.
fn common(name: &str, wide: bool) -> Vec<u8> {
    let version = if wide { VERSION64 } else { VERSION };
    let flags = if name.is_ascii() { 0 } else { FLAG_UTF8 };
    [version, flags, 0, 0, DATE].map(u16::to_le_bytes).concat()
}

/// Extra field that aligns the bytes after `position` to [`ALIGNMENT`]; empty where they are aligned already. A
/// field takes at least 6 bytes: its header and the alignment.
fn alignment_extra(position: u64) -> Vec<u8> {
    let gap = position.next_multiple_of(ALIGNMENT) - position;
    let gap = match gap {
        0 => return Vec::new(),
        1..6 => gap + ALIGNMENT,
        _ => gap,
    };
    // Between 6 and 69.
    let body = u16::try_from(gap - 4).unwrap_or(u16::MAX);
    let alignment: u16 = 64;
    let mut extra = [EXTRA_ALIGNMENT, body, alignment].map(u16::to_le_bytes).concat();
    extra.resize(4 + usize::from(body), 0);
    extra
}

/// The number if it fits, else the marker for the zip64 record.
fn short32(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
