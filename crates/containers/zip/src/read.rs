//! Reading the directory of an archive, and holding it against the local headers.

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

/// Flags that mean that the data is no plain stream: encrypted, patch, strongly encrypted, masked.
pub(super) const FLAGS_REFUSED: u16 = 1 | 1 << 5 | 1 << 6 | 1 << 13;
/// The local header has no CRC and sizes; they follow the data.
pub(super) const FLAG_DESCRIPTOR: u16 = 1 << 3;

/// The newest version of zip, ten times. Python refuses members that need a newer one.
const NEWEST: u8 = 63;

/// How a member's bytes lie in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// As they are.
    Stored,
    /// As a raw deflate stream.
    Deflated,
    /// In a way of that number that is not read here.
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

/// One member of an archive. Its place was held against the archive; its bytes were not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The name as text: UTF-8, or read from code page 437, as Python does.
    pub name: String,
    /// How the bytes are stored.
    pub method: Method,
    /// Offset of the local header in the archive.
    pub header_offset: u64,
    /// Offset of the first byte of the data in the archive.
    pub data_offset: u64,
    /// Bytes of the data in the archive.
    pub compressed_len: u64,
    /// Bytes of the data when it is read: a claim, unless the member is stored.
    pub len: u64,
    /// The CRC-32 that the data shall have: a claim.
    pub crc32: u32,
}

impl Member {
    /// The data as a source: a range of `archive`, or an [`InflateSource`] over one. Costs nothing,
    /// whatever the length; the CRC of a stored member is not checked.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`], code `zip-method`, for other methods.
    pub fn open(&self, archive: &SourceRef) -> Result<SourceRef> {
        match self.method {
            Method::Stored => Ok(Arc::new(RangeSource::new(archive.clone(), self.data_offset, self.len)?)),
            Method::Deflated => Ok(Arc::new(InflateSource::new(archive.clone(), self)?)),
            Method::Other(number) => {
                Err(unsupported("zip-method", "the member is compressed in a way that is not read here")
                    .at(self.header_offset)
                    .expected("stored (0) or deflated (8)")
                    .found(format_args!("method {number}")))
            }
        }
    }
}

/// The members of the archive `source`, in the order of its directory.
///
/// Reads the directory and the local headers, no data. After this, names are unique, members lie
/// before the directory without overlap, and both headers of each say the same.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for an archive that is cut short, contradicts itself or can be read in
/// two ways, or that the file goes on behind; [`weighbridge_core::Kind::Unsupported`] for encrypted members and
/// archives in several volumes; [`weighbridge_core::Kind::Limit`] for more members than `limits.tensors`.
pub fn read_directory(source: &SourceRef, limits: &Limits) -> Result<Vec<Member>> {
    match read_with_rest(source, limits)? {
        (members, None) => Ok(members),
        (_, Some(rest)) => Err(rest.to_error().in_file(source.label())),
    }
}

/// As [`read_directory`], also of an archive behind which the file goes on, or in whose comment it breaks off:
/// the caller decides what becomes of that.
///
/// # Errors
/// As [`read_directory`], but for what is given back.
pub fn read_with_rest(source: &SourceRef, limits: &Limits) -> Result<(Vec<Member>, Option<Rest>)> {
    let in_file = |e: Error| e.in_file(source.label());
    let (end, records) = read_central(source, limits).map_err(in_file)?;
    Ok((read_locals(source, &end, records).map_err(in_file)?, end.rest))
}

/// True where the directory of `source` has a member of a name that `wanted` says yes to. False
/// also where it cannot be read.
pub fn has_member(source: &SourceRef, limits: &Limits, wanted: impl Fn(&str) -> bool) -> bool {
    let records = read_central(source, limits).map(|(_, records)| records).unwrap_or_default();
    records.iter().any(|record| wanted(&record.name))
}

/// Name and first bytes (`most`, or as many as there are) of the member at the very beginning of
/// `source`, by its local header alone: for telling what kind of archive this is.
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

/// An entry of the directory.
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
        return Err(corrupt(
            "zip-misplaced-directory",
            "the directory does not end where the end record begins",
        )
        .at(end.position)
        .expected(format_args!("{} bytes from {} on", end.size, end.offset))
        .hint("bytes were added before or into the archive, or lost from it"));
    }
    if end.count > end.size / CENTRAL_LEN {
        return Err(corrupt(
            "zip-count",
            "the directory is too short for the number of members that it claims",
        )
        .at(end.position)
        .expected(format_args!("at most {} members in {} bytes", end.size / CENTRAL_LEN, end.size))
        .found(end.count));
    }
    Limits::check("archive members", "tensors", end.count, limits.tensors)?;
    let mut cursor = Cursor::new(source.clone(), end.offset);
    let mut records = Vec::new();
    for _ in 0..end.count {
        records.push(read_record(&mut cursor, limits)?);
    }
    if cursor.position() != end.position {
        return Err(corrupt("zip-count", "the directory has another length than its members take")
            .at(cursor.position())
            .expected(end.position));
    }
    let mut names = HashSet::with_capacity(records.len());
    for record in &records {
        if !names.insert(record.name.as_str()) {
            return Err(corrupt("duplicate-member", "the archive has two members of the same name")
                .at(record.header_offset)
                .found(escape_text(&record.name)));
        }
    }
    drop(names);
    Ok((end, records))
}

fn read_record(cursor: &mut Cursor, limits: &Limits) -> Result<Record> {
    let at = cursor.position();
    let fixed: [u8; 46] = cursor.array("the directory of the archive")?;
    if fixed[..4] != CENTRAL {
        return Err(
            corrupt("zip-bad-directory", "an entry of the directory does not begin with its mark").at(at)
        );
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
    if fixed[6] > NEWEST {
        let error = unsupported("zip-version", "the member needs a newer version of zip than there is");
        return Err(fail(error)
            .expected(format_args!("at most {}", version(NEWEST)))
            .found(version(fixed[6])));
    }
    if !matches!(u64::from(le16(&fixed, 34)), 0 | MAX16) {
        return Err(volumes(at));
    }
    // The raw name is kept only where it is not the bytes of the name.
    let raw_name = (name.as_bytes() != raw_name).then_some(raw_name);
    let (method, crc32) = (le16(&fixed, 10), le32(&fixed, 16));
    Ok(Record { raw_name, name, flags, method, crc32, compressed_len, len, header_offset })
}

/// Reads the local headers in the order of the file and compares.
fn read_locals(source: &SourceRef, end: &End, records: Vec<Record>) -> Result<Vec<Member>> {
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|&i| records[i].header_offset);
    let mut cursor = Cursor::new(source.clone(), 0);
    let mut data_offsets = vec![0; records.len()];
    for i in order {
        let record = &records[i];
        let fail = |e: Error| e.at(record.header_offset).found(escape_text(&record.name));
        let Some(hop) = record.header_offset.checked_sub(cursor.position()) else {
            return Err(fail(corrupt("zip-overlap", "two members of the archive overlap")));
        };
        if record.header_offset > end.offset {
            return Err(fail(outside()));
        }
        cursor.skip(hop, "the members of the archive")?;
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

/// Reads the local header under the cursor, up to the data, and compares it with `record`.
fn check_local(cursor: &mut Cursor, record: &Record) -> Result<()> {
    let local: [u8; 30] = cursor.array("a local header")?;
    if local[..4] != LOCAL {
        return Err(corrupt(
            "zip-bad-local-header",
            "there is no member where the directory says there is one",
        ));
    }
    let differs = |what: &str| {
        corrupt("zip-headers-differ", format!("the directory and the member itself name a different {what}"))
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
        Method::Stored if record.len != record.compressed_len => {
            Err(corrupt("zip-stored-length", "the member is stored as it is, but has two lengths"))
        }
        Method::Deflated if record.len / DEFLATE_RATIO > record.compressed_len => {
            Err(corrupt("deflate-claim", "the member claims more bytes than its compressed data can hold")
                .expected(format_args!("at most {DEFLATE_RATIO} times {} bytes", record.compressed_len)))
        }
        _ => Ok(()),
    }
}

/// True where an extra field (Unicode Path, 0x7075) gives the member another name than `raw_name`: programs that know the
/// field, as Python from 3.12 on, take its name. It counts only with the CRC-32 of the name that it is for.
///
/// For a name in no known code page the field is there to say what it is: the ASCII letters must agree.
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

/// True where the ASCII letters of `name` are those of `raw_name`, a name in some code page. There a letter behind a byte
/// beyond ASCII may be the second half of a character.
fn is_spelling(name: &[u8], raw_name: &[u8]) -> bool {
    let letters: Vec<u8> = name.iter().copied().filter(u8::is_ascii).collect();
    // After each byte of the raw name: how many letters may be those before it.
    let mut counts = vec![false; letters.len() + 1];
    counts[0] = true;
    let mut behind = false;
    for &byte in raw_name {
        if byte.is_ascii() {
            // No code page has second halves below the digits.
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
    corrupt("zip-headers-differ", "an extra field gives the member another name, which some programs take")
        .hint("pack the archive again, so that all programs see the same names")
}

/// The numbers of the zip64 extra field, which stand in the order of the header's own; empty where
/// there is none.
pub(super) fn zip64_extra(extra: &[u8]) -> Result<&[u8]> {
    let mut rest = extra;
    let mut wide: Option<&[u8]> = None;
    // Up to three bytes of filling at the end are common.
    while rest.len() >= 4 {
        let (id, len) = (le16(rest, 0), usize::from(le16(rest, 2)));
        let Some(body) = rest.get(4..4 + len) else {
            return Err(corrupt("zip-bad-extra", "an extra field is longer than the room that it has"));
        };
        if id == EXTRA_ZIP64 && wide.replace(body).is_some() {
            return Err(corrupt("zip-bad-extra", "there are two extra fields for 64-bit lengths"));
        }
        rest = &rest[4 + len..];
    }
    Ok(wide.unwrap_or_default())
}

pub(super) fn take_wide(wide: &mut &[u8]) -> Result<u64> {
    let Some((number, rest)) = wide.split_first_chunk::<8>() else {
        return Err(corrupt("zip-bad-extra", "a 64-bit length or offset is announced but not there"));
    };
    *wide = rest;
    Ok(u64::from_le_bytes(*number))
}

/// The name as text. A NUL is refused: some programs end the name there.
pub(super) fn decode_name(raw: Vec<u8>, flags: u16) -> Result<String> {
    if raw.contains(&0) {
        return Err(corrupt("zip-bad-name", "the name of a member has a NUL byte"));
    }
    if flags & FLAG_UTF8 != 0 || raw.is_ascii() {
        return String::from_utf8(raw)
            .map_err(|_| corrupt("zip-bad-name", "the name of a member is said to be UTF-8, but is not"));
    }
    // Code page 437, upper half. The lower one is ASCII.
    let upper: Vec<char> = CP437.chars().collect();
    let decode = |&byte: &u8| match byte.checked_sub(128) {
        Some(high) => upper.get(usize::from(high)).copied().unwrap_or(char::REPLACEMENT_CHARACTER),
        None => char::from(byte),
    };
    Ok(raw.iter().map(decode).collect())
}

/// The name as text whatever its bytes are, for those who only look: what is bad is replaced.
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
        .hint("unpack the archive with its password first")
}

/// The version of zip of that number.
fn version(number: u8) -> String {
    format!("version {}.{}", number / 10, number % 10)
}

fn volumes(at: u64) -> Error {
    unsupported("zip-volumes", "the archive is one of several volumes").at(at)
}

fn outside() -> Error {
    corrupt("zip-outside", "a member of the archive reaches into its directory or past its end")
}

/// Little-endian numbers at a place of a record. Callers hold the record's length first.
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
    fn a_name_of_an_extra_field_counts_where_it_is_another() {
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
        // For another name, of another version, or with the same name.
        assert!(!is_renamed(&field(1, b"x.npy", "b.npy"), b"a.npy", 0));
        assert!(!is_renamed(&field(2, b"a.npy", "b.npy"), b"a.npy", 0));
        assert!(!is_renamed(&field(1, b"a.npy", "a.npy"), b"a.npy", 0));
        assert!(!is_renamed(&[1, 0, 9, 0, 1], b"a.npy", 0));
        // Of an old code page: the field says what the letters are.
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
