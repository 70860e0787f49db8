//! Local headers: compared with the directory, and searched where it names none.

use super::central::{Directory, Record};
use super::{Found, Survey};
use crate::read::{
    FLAG_DESCRIPTOR, FLAGS_REFUSED, Member, Method, is_renamed, le16, le32, lossy_name, take_wide,
    zip64_extra,
};
use crate::{DESCRIPTOR_LEN, FLAG_UTF8, LOCAL, LOCAL_LEN, MAX16, MAX32};
use weighbridge_core::error::{Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::escape;
use weighbridge_io::source::{Cursor, SourceRef, read_vec};

/// Total bytes between members that are scanned.
const MAX_GAP_BYTES: u64 = 16 << 20;
/// Total length of all local headers that are read, in lengths of the archive; [`MAX_GAP_BYTES`] are added. Well-formed
/// headers do not share bytes, but a name may be long.
const MAX_HEADER_RATIO: u64 = 4;
/// Longest local header, in bytes.
const MAX_LOCAL_LEN: u64 = LOCAL_LEN + 2 * MAX16;
/// Bytes searched at once; first a few, as the next header is usually near.
const WINDOW: u64 = 1 << 20;
const FIRST_WINDOW: u64 = 4 << 10;

/// Values of a local header.
struct Local {
    raw_name: Vec<u8>,
    name: String,
    flags: u16,
    method: u16,
    crc32: u32,
    compressed_len: u64,
    len: u64,
    data_offset: u64,
    /// True where an extra field gives the member a different name.
    renamed: bool,
}

impl Local {
    fn has_descriptor(&self) -> bool {
        self.flags & FLAG_DESCRIPTOR != 0
    }

    /// The member as described by the header alone; `available` bytes follow the header.
    fn found(self, header_offset: u64, available: u64) -> Found {
        let known = !(self.has_descriptor() && self.compressed_len == 0);
        let readable = known && self.flags & FLAGS_REFUSED == 0 && self.compressed_len <= available;
        Found {
            member: Member {
                name: self.name,
                method: Method::new(self.method),
                header_offset,
                data_offset: self.data_offset,
                compressed_len: self.compressed_len.min(available),
                len: self.len,
                crc32: self.crc32,
            },
            readable,
        }
    }
}

/// Reads the local header at `at`; `None` where it is missing or truncated.
fn read_local(source: &SourceRef, at: u64) -> Result<Option<Local>> {
    let mut cursor = Cursor::new(source.clone(), at);
    let read = |cursor: &mut Cursor| -> Result<Option<Local>> {
        let fixed: [u8; 30] = cursor.array("a local header")?;
        if fixed[..4] != LOCAL {
            return Ok(None);
        }
        let flags = le16(&fixed, 6);
        let raw_name = cursor.bytes(le16(&fixed, 26).into(), "a name")?;
        let extra = cursor.bytes(le16(&fixed, 28).into(), "an extra field")?;
        let mut wide = zip64_extra(&extra).unwrap_or_default();
        let mut number = |short: u32| match u64::from(short) {
            MAX32 => take_wide(&mut wide).unwrap_or(MAX32),
            short => short,
        };
        let (len, compressed_len) = (number(le32(&fixed, 22)), number(le32(&fixed, 18)));
        Ok(Some(Local {
            renamed: is_renamed(&extra, &raw_name, flags),
            name: lossy_name(&raw_name, flags),
            raw_name,
            flags,
            method: le16(&fixed, 8),
            crc32: le32(&fixed, 14),
            compressed_len,
            len,
            data_offset: cursor.position(),
        }))
    };
    match read(&mut cursor) {
        Err(error) if error.kind() != Kind::Io => Ok(None),
        read => read,
    }
}

/// Compares every directory entry with its member, and scans the bytes between members.
pub(super) fn compare(
    source: &SourceRef,
    directory: Directory,
    limits: &Limits,
    survey: &mut Survey,
) -> Result<()> {
    let Directory { shift, start, end, records } = directory;
    // Byte range of each member.
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut headers = max_header_bytes(source);
    for record in records {
        let at = record.header_offset.wrapping_add(shift);
        // Not read inside the directory: many entries may refer to one header there and would not be counted.
        let apart = at < start || (at >= end && at < source.len());
        let local = if apart { read_local(source, at)? } else { None };
        let Some(local) = local else {
            // The name of a truncated header may have been read.
            let cut = source.len().saturating_sub(at).min(MAX_LOCAL_LEN);
            headers = headers.saturating_sub(if cut < MAX_LOCAL_LEN { cut } else { LOCAL_LEN });
            let text = format!(
                "`{}`: there is no local header at the offset in the directory",
                escape(&record.name)
            );
            survey.odd("zip-headers-differ", record.at, text);
            continue;
        };
        let Some(rest) = headers.checked_sub(local.data_offset - at) else {
            survey.odd("zip-overlap", at, "members share their headers; the rest was not scanned");
            break;
        };
        headers = rest;
        differences(&record, &local, at, survey);
        let most = if at < start { start } else { source.len() };
        let available = most.saturating_sub(local.data_offset);
        let fits = record.compressed_len <= available;
        if !fits {
            survey.odd("zip-overlap", at, format!("`{}` extends into the directory", escape(&record.name)));
        }
        let packed = record.compressed_len.min(available);
        ranges.push((at, local.data_offset + packed));
        let stored_alike = record.method != 0 || record.len == record.compressed_len;
        survey.members.push(Found {
            member: Member {
                name: record.name,
                method: Method::new(record.method),
                header_offset: at,
                data_offset: local.data_offset,
                compressed_len: packed,
                len: if record.method == 0 { packed } else { record.len },
                crc32: record.crc32,
            },
            readable: fits && stored_alike && (record.flags | local.flags) & FLAGS_REFUSED == 0,
        });
    }
    ranges.sort_unstable();
    // No bytes precede the archive if the directory is before its recorded offset.
    let mut before = if shift <= start { shift } else { 0 };
    let mut left = MAX_GAP_BYTES;
    for (from, to) in ranges {
        if from < before {
            survey.odd(
                "zip-overlap",
                from,
                format!("a member overlaps the previous one by {} bytes", before - from),
            );
        } else {
            between(source, before, from, &mut left, limits, survey)?;
        }
        before = before.max(to);
    }
    between(source, before, start, &mut left, limits, survey)
}

fn differences(record: &Record, local: &Local, at: u64, survey: &mut Survey) {
    let mut differs: Vec<&str> = Vec::new();
    if record.raw_name != local.raw_name {
        differs.push("name");
    }
    if local.renamed {
        differs.push("name in an extra field");
    }
    if (record.flags ^ local.flags) & FLAGS_REFUSED != 0 {
        differs.push("encryption");
    }
    if (record.flags ^ local.flags) & FLAG_UTF8 != 0 && !local.raw_name.is_ascii() {
        differs.push("encoding of the name");
    }
    if record.method != local.method {
        differs.push("method");
    }
    if (record.flags | local.flags) & FLAG_DESCRIPTOR == 0 {
        if record.crc32 != local.crc32 {
            differs.push("CRC-32");
        }
        if (record.len, record.compressed_len) != (local.len, local.compressed_len) {
            differs.push("length");
        }
    }
    // Encryption adds its own bytes before stored data.
    if record.method == 0 && record.len != record.compressed_len && record.flags & FLAGS_REFUSED == 0 {
        differs.push("lengths of stored data");
    }
    if !differs.is_empty() {
        let text = format!(
            "`{}`: the directory and the local header differ: {}",
            escape(&record.name),
            differs.join(", ")
        );
        survey.odd("zip-headers-differ", at, text);
    }
}

/// Scans bytes that belong to no member of the directory.
fn between(
    source: &SourceRef,
    from: u64,
    to: u64,
    left: &mut u64,
    limits: &Limits,
    survey: &mut Survey,
) -> Result<()> {
    let len = to.saturating_sub(from);
    if len == 0 {
        return Ok(());
    }
    let scanned = len.min(*left);
    *left -= scanned;
    let bytes = read_vec(&**source, from, scanned)?;
    let mut hidden = false;
    for at in memchr::memmem::find_iter(&bytes, &LOCAL) {
        let at = from + at as u64;
        let Some(local) = read_local(source, at)? else { continue };
        let Some(rest) = left.checked_sub(local.data_offset - at) else {
            survey.odd("zip-gap", at, "more members that are missing from the directory were not scanned");
            break;
        };
        *left = rest;
        hidden = true;
        let available = source.len().saturating_sub(local.data_offset);
        let text = format!("`{}` is not in the directory", escape(&local.name));
        survey.odd("zip-hidden-member", at, text);
        Limits::check("archive members", "tensors", survey.members.len() as u64, limits.tensors)?;
        survey.members.push(local.found(at, available));
    }
    if !hidden && (len > DESCRIPTOR_LEN || scanned < len) {
        survey.odd("zip-gap", from, format!("{len} bytes belong to no member"));
    }
    Ok(())
}

/// Finds members by their local headers alone: the next header is searched after the data if the header has the
/// length, else after the header. Each byte is read once at most.
pub(super) fn walk(source: &SourceRef, limits: &Limits, survey: &mut Survey) -> Result<()> {
    let mut at = 0;
    let mut headers = max_header_bytes(source);
    while let Some(mark) = next_signature(source, at)? {
        at = mark + LOCAL.len() as u64;
        let Some(local) = read_local(source, mark)? else { continue };
        let Some(rest) = headers.checked_sub(local.data_offset - mark) else {
            survey.odd("zip-overlap", mark, "members share their headers; the rest was not scanned");
            break;
        };
        headers = rest;
        if local.flags & FLAGS_REFUSED != 0 {
            survey.odd("zip-encrypted", mark, format!("`{}` is encrypted", escape(&local.name)));
        }
        let available = source.len() - local.data_offset;
        let found = local.found(mark, available);
        if found.readable {
            at = found.member.data_offset + found.member.compressed_len;
        }
        Limits::check("archive members", "tensors", survey.members.len() as u64 + 1, limits.tensors)?;
        survey.members.push(found);
    }
    Ok(())
}

/// Total bytes of local headers that may be read.
fn max_header_bytes(source: &SourceRef) -> u64 {
    source.len().saturating_mul(MAX_HEADER_RATIO).saturating_add(MAX_GAP_BYTES)
}

/// Offset of the next local header signature from `at` on.
fn next_signature(source: &SourceRef, mut at: u64) -> Result<Option<u64>> {
    let mut window = FIRST_WINDOW;
    while source.len().saturating_sub(at) >= LOCAL_LEN {
        let len = window.min(source.len() - at);
        window = WINDOW.min(window * 2);
        let bytes = read_vec(&**source, at, len)?;
        if let Some(found) = memchr::memmem::find(&bytes, &LOCAL) {
            return Ok(Some(at + found as u64));
        }
        // A signature may cross the border of two windows.
        at += (len - 3).max(1);
    }
    Ok(None)
}
