//! Reader of the directory of an archive, which compares it with the local headers.

mod end;
mod outline;

pub use end::Rest;
pub use outline::outline;

use super::inflate::inflate_prefix;
use super::{
    CENTRAL, CENTRAL_LEN, DEFLATE_RATIO, EXTRA_UNICODE_PATH, EXTRA_ZIP64, FLAG_UTF8, InflateSource, LOCAL,
    MAX16, MAX32,
};
use end::{End, find_end};
use std::collections::HashSet;
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::escape as escape_text;
use weighbridge_io::source::{Cursor, RangeSource, SourceRef};

/// Flags of unsupported data: encrypted, patch, strongly encrypted, masked.
pub(super) const FLAGS_REFUSED: u16 = 1 | 1 << 5 | 1 << 6 | 1 << 13;
/// Flag: CRC and sizes are not in the local header but follow the data.
pub(super) const FLAG_DESCRIPTOR: u16 = 1 << 3;

/// Newest version of the zip format, times ten. Python refuses members that need a newer one.
const NEWEST_VERSION: u8 = 63;

/// Compression method of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Uncompressed.
    Stored,
    /// A raw deflate stream.
    Deflated,
    /// An unsupported method, by its number.
    Other(u16),
}

impl Method {
    pub(super) fn new(number: u16) -> Self {
        match number {
            0 => Self::Stored,
            8 => Self::Deflated,
            other => Self::Other(other),
        }
    }
}

/// Member of an archive. Its range was checked against the archive; its bytes were not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name, decoded from UTF-8 or code page 437, as in Python.
    pub name: String,
    /// Compression method.
    pub method: Method,
    /// Offset of the local header in the archive.
    pub header_offset: u64,
    /// Offset of the first byte of the data in the archive.
    pub data_offset: u64,
    /// Compressed length in bytes.
    pub compressed_len: u64,
    /// Uncompressed length in bytes: unverified, unless the member is stored.
    pub len: u64,
    /// CRC-32 of the uncompressed data: unverified.
    pub crc32: u32,
}

impl Member {
    /// Returns the data as a source: a range of `archive`, or an [`InflateSource`] over one. Reads nothing;
    /// the CRC of a stored member is not checked.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`], code `zip-method`, for other methods.
    pub fn open(&self, archive: &SourceRef) -> Result<SourceRef> {
        match self.method {
            Method::Stored => Ok(Arc::new(RangeSource::new(archive.clone(), self.data_offset, self.len)?)),
            Method::Deflated => Ok(Arc::new(InflateSource::new(archive.clone(), self)?)),
            Method::Other(number) => {
                Err(unsupported("zip-method", "the compression method of the member is not supported")
                    .at(self.header_offset)
                    .expected("stored (0) or deflated (8)")
                    .found(format_args!("method {number}")))
            }
        }
    }
}

/// Reads the members of the archive `source`, in the order of its directory.
///
/// Reads the directory and the local headers, no data. On success, names are unique, members precede the
/// directory without overlap, and both headers of each member agree.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for an archive that is truncated, contradictory, ambiguous or followed by
/// other bytes; [`weighbridge_core::Kind::Unsupported`] for encrypted members and archives in several volumes;
/// [`weighbridge_core::Kind::Limit`] for more members than `limits.tensors`.
pub fn read_directory(source: &SourceRef, limits: &Limits) -> Result<Vec<Member>> {
    match read_with_rest(source, limits)? {
        (members, None) => Ok(members),
        (_, Some(rest)) => Err(rest.to_error().in_file(source.label())),
    }
}

/// Same as [`read_directory`], but accepts bytes after the archive and a truncated comment, and returns them as
/// [`Rest`] for the caller to decide.
///
/// # Errors
/// As [`read_directory`], except for a returned rest.
pub fn read_with_rest(source: &SourceRef, limits: &Limits) -> Result<(Vec<Member>, Option<Rest>)> {
    let in_file = |e: Error| e.in_file(source.label());
    let (end, records) = read_central(source, limits).map_err(in_file)?;
    Ok((read_locals(source, &end, records).map_err(in_file)?, end.rest))
}

/// True where the directory of `source` has a member whose name `wanted` accepts. False also where the
/// directory cannot be read.
pub fn has_member(source: &SourceRef, limits: &Limits, wanted: impl Fn(&str) -> bool) -> bool {
    let records = read_central(source, limits).map(|(_, records)| records).unwrap_or_default();
    records.iter().any(|record| wanted(&record.name))
}

/// Returns the name and up to `most` first bytes of the member at offset 0 of `source`, by its local header
/// alone. For detecting the kind of archive.
pub fn first_member(source: &SourceRef, most: usize) -> Option<(String, Vec<u8>)> {
    let mut cursor = Cursor::new(source.clone(), 0);
    let local: [u8; 30] = cursor.array("a local header").ok()?;
    if local[..4] != LOCAL || le16(&local, 6) & FLAGS_REFUSED != 0 {
        return None;
    }
    let name = cursor.bytes(le16(&local, 26).into(), "a name").ok()?;
    let name = decode_name(name, le16(&local, 6)).ok()?;
    cursor.skip(le16(&local, 28).into(), "an extra field").ok()?;
    let bytes = match Method::new(le16(&local, 8)) {
        Method::Stored => cursor.bytes(cursor.remaining().min(most as u64), "data").ok()?,
        Method::Deflated => inflate_prefix(source, cursor.position(), most).ok()?,
        Method::Other(_) => return None,
    };
    Some((name, bytes))
}

/// Entry of the directory.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) raw_name: Option<Vec<u8>>,
    pub(super) name: String,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) crc32: u32,
    pub(super) compressed_len: u64,
    pub(super) len: u64,
    pub(super) header_offset: u64,
}

pub(super) fn read_central(source: &SourceRef, limits: &Limits) -> Result<(End, Vec<Record>)> {
    let end = find_end(&**source)?;
    if end.offset.checked_add(end.size) != Some(end.position) {
        return Err(corrupt("zip-misplaced-directory", "the directory does not end at the end record")
            .at(end.position)
            .expected(format_args!("{} bytes from {} on", end.size, end.offset))
            .hint("bytes were added to the archive or are missing; download it again or repack it"));
    }
    if end.count > end.size / CENTRAL_LEN {
        return Err(corrupt("zip-count", "the directory is too short for its number of members")
            .at(end.position)
            .expected(format_args!("at most {} members in {} bytes", end.size / CENTRAL_LEN, end.size))
            .found(end.count));
    }
    Limits::check_part("archive members", "tensors", end.count, limits.tensors, 1)?;
    let mut cursor = Cursor::new(source.clone(), end.offset);
    let mut records = Vec::new();
    for _ in 0..end.count {
        records.push(read_record(&mut cursor, limits)?);
    }
    if cursor.position() != end.position {
        return Err(corrupt("zip-count", "the directory entries do not fill the directory")
            .at(cursor.position())
            .expected(end.position));
    }
    let mut names = HashSet::with_capacity(records.len());
    for record in &records {
        if !names.insert(record.name.as_str()) {
            return Err(corrupt("duplicate-member", "duplicate member name")
                .at(record.header_offset)
                .found(escape_text(&record.name)));
        }
    }
    drop(names);
    Ok((end, records))
}

fn read_record(cursor: &mut Cursor, limits: &Limits) -> Result<Record> {
    let at = cursor.position();
    let fixed: [u8; 46] = cursor.array("a directory entry")?;
    if fixed[..4] != CENTRAL {
        return Err(corrupt("zip-bad-directory", "a directory entry has no signature").at(at));
    }
    let flags = le16(&fixed, 8);
    let name_len = le16(&fixed, 28).into();
    Limits::check("bytes in a name", "name_bytes", name_len, limits.name_bytes)?;
    let raw_name = cursor.bytes(name_len, "a name in the directory")?;
    let name = decode_name(raw_name.clone(), flags).map_err(|e| e.at(at))?;
    let fail = |e: Error| e.at(at).found(escape_text(&name));
    let extra = cursor.bytes(le16(&fixed, 30).into(), "an extra field in the directory")?;
    cursor.skip(le16(&fixed, 32).into(), "a comment in the directory")?;
    if is_renamed(&extra, &raw_name, flags) {
        return Err(fail(renamed()));
    }
    let mut wide = zip64_extra(&extra).map_err(fail)?;
    let mut number = |short: u32| match u64::from(short) {
        MAX32 => take_wide(&mut wide),
        short => Ok(short),
    };
    let len = number(le32(&fixed, 24)).map_err(fail)?;
    let compressed_len = number(le32(&fixed, 20)).map_err(fail)?;
    let header_offset = number(le32(&fixed, 42)).map_err(fail)?;
    if flags & FLAGS_REFUSED != 0 {
        return Err(fail(encrypted()));
    }
    if fixed[6] > NEWEST_VERSION {
        let error = unsupported("zip-version", "the member requires an unknown version of the zip format");
        return Err(fail(error)
            .expected(format_args!("at most {}", version(NEWEST_VERSION)))
            .found(version(fixed[6])));
    }
    if !matches!(u64::from(le16(&fixed, 34)), 0 | MAX16) {
        return Err(volumes(at));
    }
    // The raw name is kept only where it differs from the decoded name.
    let raw_name = (name.as_bytes() != raw_name).then_some(raw_name);
    let (method, crc32) = (le16(&fixed, 10), le32(&fixed, 16));
    Ok(Record { raw_name, name, flags, method, crc32, compressed_len, len, header_offset })
}

/// Reads the local headers in file order and compares them with the directory.
fn read_locals(source: &SourceRef, end: &End, records: Vec<Record>) -> Result<Vec<Member>> {
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|&i| records[i].header_offset);
    let mut cursor = Cursor::new(source.clone(), 0);
    let mut data_offsets = vec![0; records.len()];
    for i in order {
        let record = &records[i];
        let fail = |e: Error| e.at(record.header_offset).found(escape_text(&record.name));
        let Some(gap) = record.header_offset.checked_sub(cursor.position()) else {
            return Err(fail(corrupt("zip-overlap", "members of the archive overlap")));
        };
        if record.header_offset > end.offset {
            return Err(fail(outside()));
        }
        cursor.skip(gap, "the members of the archive")?;
        check_local(&mut cursor, record).map_err(fail)?;
        let data_offset = cursor.position();
        let data_end = data_offset.checked_add(record.compressed_len);
        if data_end.is_none_or(|data_end| data_end > end.offset) {
            return Err(fail(outside()));
        }
        cursor.skip(record.compressed_len, "the data of a member")?;
        data_offsets[i] = data_offset;
    }
    let member = |(record, data_offset): (Record, u64)| Member {
        name: record.name,
        method: Method::new(record.method),
        header_offset: record.header_offset,
        data_offset,
        compressed_len: record.compressed_len,
        len: record.len,
        crc32: record.crc32,
    };
    Ok(records.into_iter().zip(data_offsets).map(member).collect())
}

/// Reads the local header at the cursor, up to the data, and compares it with `record`.
fn check_local(cursor: &mut Cursor, record: &Record) -> Result<()> {
    let local: [u8; 30] = cursor.array("a local header")?;
    if local[..4] != LOCAL {
        return Err(corrupt(
            "zip-bad-local-header",
            "there is no local header at the offset in the directory",
        ));
    }
    let differs = |what: &str| {
        corrupt("zip-headers-differ", format!("the {what} in the directory and in the local header differ"))
    };
    let flags = le16(&local, 6);
    let name = cursor.bytes(le16(&local, 26).into(), "a name")?;
    let extra = cursor.bytes(le16(&local, 28).into(), "an extra field")?;
    if name != record.raw_name.as_deref().unwrap_or(record.name.as_bytes()) {
        return Err(differs("name"));
    }
    if is_renamed(&extra, &name, flags) {
        return Err(renamed());
    }
    if (flags ^ record.flags) & FLAG_UTF8 != 0 && !name.is_ascii() {
        return Err(differs("encoding of the name"));
    }
    if flags & FLAGS_REFUSED != 0 {
        return Err(encrypted());
    }
    if le16(&local, 8) != record.method {
        return Err(differs("method"));
    }
    if (flags | record.flags) & FLAG_DESCRIPTOR == 0 {
        if le32(&local, 14) != record.crc32 {
            return Err(differs("CRC-32"));
        }
        let mut wide = zip64_extra(&extra)?;
        let mut number = |short: u32| match u64::from(short) {
            MAX32 => take_wide(&mut wide),
            short => Ok(short),
        };
        let (len, compressed_len) = (number(le32(&local, 22))?, number(le32(&local, 18))?);
        if (len, compressed_len) != (record.len, record.compressed_len) {
            return Err(differs("length"));
        }
    }
    match Method::new(record.method) {
        Method::Stored if record.len != record.compressed_len => Err(corrupt(
            "zip-stored-length",
            "the member is stored, but its compressed and uncompressed lengths differ",
        )),
        Method::Deflated if record.len / DEFLATE_RATIO > record.compressed_len => Err(corrupt(
            "deflate-claim",
            "the claimed length of the member exceeds the maximum for its compressed data",
        )
        .expected(format_args!("at most {DEFLATE_RATIO} times {} bytes", record.compressed_len))),
        _ => Ok(()),
    }
}

/// True where an extra field (Unicode Path, 0x7075) renames the member: programs that support the field, such as Python from
/// 3.12 on, use its name instead of `raw_name`. It counts only with the CRC-32 of `raw_name`.
///
/// For a name in an unknown code page, the field supplies the Unicode name: the ASCII letters must agree.
pub(super) fn is_renamed(extra: &[u8], raw_name: &[u8], flags: u16) -> bool {
    let mut rest = extra;
    while let [a, b, c, d, behind @ ..] = rest {
        let (id, len) = (u16::from_le_bytes([*a, *b]), usize::from(u16::from_le_bytes([*c, *d])));
        let Some((body, next)) = behind.split_at_checked(len) else { return false };
        rest = next;
        let (EXTRA_UNICODE_PATH, [1, crc @ ..]) = (id, body) else { continue };
        let Some((crc, name)) = crc.split_first_chunk::<4>() else { continue };
        let differs = if raw_name.is_ascii() || flags & FLAG_UTF8 != 0 {
            name != raw_name
        } else {
            !is_spelling(name, raw_name)
        };
        if u32::from_le_bytes(*crc) == crc32fast::hash(raw_name) && differs {
            return true;
        }
    }
    false
}

/// True where the ASCII letters of `name` are those of `raw_name`, a name in some code page. There a letter after a
/// non-ASCII byte may be the second half of a character.
fn is_spelling(name: &[u8], raw_name: &[u8]) -> bool {
    let letters: Vec<u8> = name.iter().copied().filter(u8::is_ascii).collect();
    // For each byte of the raw name: the numbers of letters that may precede it.
    let mut counts = vec![false; letters.len() + 1];
    counts[0] = true;
    let mut behind = false;
    for &byte in raw_name {
        if byte.is_ascii() {
            // In no code page is a second half below the digits.
            let may_be_half = behind && byte >= b'0';
            for count in (0..counts.len()).rev() {
                let by_letter = count > 0 && counts[count - 1] && letters[count - 1] == byte;
                counts[count] = by_letter || counts[count] && may_be_half;
            }
        }
        behind = !byte.is_ascii();
    }
    counts.last() == Some(&true)
}

fn renamed() -> Error {
    corrupt("zip-headers-differ", "an extra field gives the member a different name, which some programs use")
        .hint("repack the archive, so that all programs read the same names")
}

/// Values of the zip64 extra field, in the order of the header's fields; empty without the field.
pub(super) fn zip64_extra(extra: &[u8]) -> Result<&[u8]> {
    let mut rest = extra;
    let mut wide: Option<&[u8]> = None;
    // Up to three bytes of padding at the end are common.
    while rest.len() >= 4 {
        let (id, len) = (le16(rest, 0), usize::from(le16(rest, 2)));
        let Some(body) = rest.get(4..4 + len) else {
            return Err(corrupt("zip-bad-extra", "an extra field exceeds the extra data of its header"));
        };
        if id == EXTRA_ZIP64 && wide.replace(body).is_some() {
            return Err(corrupt("zip-bad-extra", "duplicate zip64 extra field"));
        }
        rest = &rest[4 + len..];
    }
    Ok(wide.unwrap_or_default())
}

pub(super) fn take_wide(wide: &mut &[u8]) -> Result<u64> {
    let Some((number, rest)) = wide.split_first_chunk::<8>() else {
        return Err(corrupt(
            "zip-bad-extra",
            "a 64-bit length or offset is missing from the zip64 extra field",
        ));
    };
    *wide = rest;
    Ok(u64::from_le_bytes(*number))
}

/// Decodes a name. A NUL is refused: some programs end the name there.
pub(super) fn decode_name(raw: Vec<u8>, flags: u16) -> Result<String> {
    if raw.contains(&0) {
        return Err(corrupt("zip-bad-name", "a member name contains a NUL byte"));
    }
    if flags & FLAG_UTF8 != 0 || raw.is_ascii() {
        return String::from_utf8(raw)
            .map_err(|_| corrupt("zip-bad-name", "a member name is marked as UTF-8 but is not valid UTF-8"));
    }
    // Code page 437, upper half. The lower one is ASCII.
    let upper: Vec<char> = CP437.chars().collect();
    let decode = |&byte: &u8| match byte.checked_sub(128) {
        Some(high) => upper.get(usize::from(high)).copied().unwrap_or(char::REPLACEMENT_CHARACTER),
        None => char::from(byte),
    };
    Ok(raw.iter().map(decode).collect())
}

/// Decodes a name for display: invalid bytes are replaced.
pub(super) fn lossy_name(raw: &[u8], flags: u16) -> String {
    if raw.contains(&0) {
        return String::from_utf8_lossy(raw).into_owned();
    }
    decode_name(raw.to_vec(), flags).unwrap_or_else(|_| String::from_utf8_lossy(raw).into_owned())
}

const CP437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐\
    └┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

fn corrupt(code: &'static str, message: impl Into<String>) -> Error {
    Error::corrupt(code, message)
}

fn unsupported(code: &'static str, message: &str) -> Error {
    Error::unsupported(code, message)
}

fn encrypted() -> Error {
    unsupported("zip-encrypted", "the member is encrypted or patched")
        .hint("unpack the archive with its password, and pack it without one")
}

/// Display form of a zip version number.
fn version(number: u8) -> String {
    format!("version {}.{}", number / 10, number % 10)
}

fn volumes(at: u64) -> Error {
    unsupported("zip-volumes", "the archive is one of several volumes").at(at)
}

fn outside() -> Error {
    corrupt("zip-outside", "a member extends into the directory or beyond the end of the archive")
}

/// Little-endian number at an offset of a record. Callers check the length first.
pub(super) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from(le16(bytes, at)) | u32::from(le16(bytes, at + 2)) << 16
}

pub(super) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_fields_that_rename_a_member_are_detected() {
        let field = |version: u8, of: &[u8], name: &str| {
            let len = u16::try_from(5 + name.len()).unwrap().to_le_bytes();
            [
                &EXTRA_UNICODE_PATH.to_le_bytes()[..],
                &len,
                &[version],
                &crc32fast::hash(of).to_le_bytes(),
                name.as_bytes(),
            ]
            .concat()
        };
        assert!(is_renamed(&field(1, b"a.npy", "b.npy"), b"a.npy", 0));
        assert!(is_renamed(&[field(1, b"a", "a"), field(1, b"a", "b")].concat(), b"a", FLAG_UTF8));
        // For a different raw name, of an unknown version, or with the same name.
        assert!(!is_renamed(&field(1, b"x.npy", "b.npy"), b"a.npy", 0));
        assert!(!is_renamed(&field(2, b"a.npy", "b.npy"), b"a.npy", 0));
        assert!(!is_renamed(&field(1, b"a.npy", "a.npy"), b"a.npy", 0));
        assert!(!is_renamed(&[1, 0, 9, 0, 1], b"a.npy", 0));
        // In an old code page the field supplies the letters.
        let old = b"caf\x82/w.npy";
        assert!(!is_renamed(&field(1, old, "caf\u{e9}/w.npy"), old, 0));
        assert!(is_renamed(&field(1, old, "caf\u{e9}/v.npy"), old, 0));
        // Big5, where the second half of a character may be an ASCII letter.
        let big5 = b"\xa7A\xa6n.txt";
        assert!(!is_renamed(&field(1, big5, "\u{4f60}\u{597d}.txt"), big5, 0));
        for other in ["\u{4f60}\u{597d}.pkl", "n\u{597d}A.txt", "\u{4f60}\u{597d}.txt.pkl"] {
            assert!(is_renamed(&field(1, big5, other), big5, 0), "{other}");
        }
    }
}
