//! tar archives: their members, and faults of their names and layout.
//!
//! ```text
//! header   name mode uid gid size mtime checksum type link-name "ustar" ... prefix    512 bytes, numbers octal
//! data     padded to a multiple of 512 bytes
//! ... repeated for each member, then two blocks of zeros
//! ```

use super::{AssumedType, Scan, judge_member};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::escape;
use weighbridge_io::source::{Cursor, RangeSource, SourceRef};

const BLOCK: u64 = 512;
const HEADER: usize = 512;
/// Bytes after the end that are checked; common writers pad with up to 10 KiB of zeros.
const MAX_END_PADDING: u64 = 1 << 20;

/// True where `head` begins a tar archive: with the `ustar` signature, or with a header checksum that Python accepts, which
/// requires no signature.
pub fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar") || head.get(..HEADER).is_some_and(has_checksum)
}

/// Adds every member of a tar archive for scanning, and reports links, devices and unsafe names.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`] where it cannot be read. Damage is a finding.
pub fn tar(source: &SourceRef, limits: &Limits, scan: &mut Scan) -> Result<()> {
    match walk(source, limits, scan) {
        Ok(()) => Ok(()),
        Err(error) => scan.push_error(error),
    }
}

fn walk(source: &SourceRef, limits: &Limits, scan: &mut Scan) -> Result<()> {
    let mut cursor = Cursor::new(source.clone(), 0);
    let mut overrides = Overrides::default();
    let mut members = 0u64;
    while cursor.remaining() > 0 {
        let at = cursor.position();
        let block: [u8; HEADER] = cursor.array("a tar header")?;
        if block == [0; HEADER] {
            return check_end(&mut cursor, scan);
        }
        members += 1;
        Limits::check("archive members", "tensors", members, limits.tensors)?;
        let header = Header::read(at, block, scan)?;
        if header.is_override() {
            overrides.read(&header, &mut cursor, limits, scan)?;
        } else {
            member(&header, std::mem::take(&mut overrides), source, &mut cursor, scan)?;
        }
    }
    Ok(())
}

/// Header of a member.
struct Header {
    /// Offset of the header.
    at: u64,
    block: [u8; HEADER],
    /// Length of the data by the header, in bytes.
    len: u64,
}

impl Header {
    /// Verifies the checksum of a header, and reports numbers that programs read differently.
    fn read(at: u64, block: [u8; HEADER], scan: &mut Scan) -> Result<Self> {
        if !has_checksum(&block) {
            return Err(
                Error::corrupt("tar-checksum", "the checksum of the tar header does not match").at(at)
            );
        }
        let field = &block[124..136];
        if !is_plain(field) || !is_plain(&block[148..156]) {
            layout(
                at,
                "a number in the tar header is written in a form that programs read differently",
                scan,
            );
        }
        let len = number(field).and_then(|len| u64::try_from(len).ok()).ok_or_else(|| {
            Error::corrupt("tar-length", "the member length in the tar header is not a valid number").at(at)
        })?;
        Ok(Self { at, block, len })
    }

    fn kind(&self) -> u8 {
        self.block[156]
    }

    /// True for a member that describes the next one, or all: a long name or link target (GNU), or records (POSIX).
    fn is_override(&self) -> bool {
        matches!(self.kind(), b'L' | b'K' | b'x' | b'g')
    }

    /// True for a member that has no data for Python, whatever its length field. Before POSIX a folder was a file whose name
    /// ends with a slash.
    fn is_without_data(&self) -> bool {
        let is_old_folder = self.kind() == 0 && until_zero(&self.block[..100]).ends_with('/');
        is_old_folder || matches!(self.kind(), b'1'..=b'6')
    }

    fn name(&self) -> String {
        let (name, prefix) = (until_zero(&self.block[..100]), until_zero(&self.block[345..500]));
        // Python uses the prefix without checking that this kind of header has one.
        if prefix.is_empty() || matches!(self.kind(), b'L' | b'K' | b'S') {
            name
        } else {
            format!("{prefix}/{name}")
        }
    }

    /// Target of a link.
    fn target(&self) -> String {
        until_zero(&self.block[157..257])
    }
}

/// Properties of the next member that earlier members override.
#[derive(Default)]
struct Overrides {
    name: Option<String>,
    target: Option<String>,
    size: Option<u64>,
}

impl Overrides {
    /// Reads the data of an overriding member, and the padding of its last block.
    fn read(&mut self, header: &Header, cursor: &mut Cursor, limits: &Limits, scan: &mut Scan) -> Result<()> {
        let Header { at, len, .. } = *header;
        let data = cursor.position();
        Limits::check("bytes in a name", "name_bytes", len, limits.name_bytes)?;
        let bytes = cursor.bytes(len, "a long name")?;
        match header.kind() {
            b'L' => self.name = Some(until_zero(&bytes)),
            b'K' => self.target = Some(until_zero(&bytes)),
            kind => {
                let records = Records::read(&bytes).ok_or_else(|| {
                    Error::corrupt("tar-records", "a pax record does not have the form LENGTH KEY=VALUE")
                        .at(at)
                })?;
                self.take(records, kind == b'g', at, scan);
            }
        }
        // Python reads names and records to the end of the block.
        let padding = cursor.bytes(padding(len).min(cursor.remaining()), "padding")?;
        if padding.iter().any(|&byte| byte != 0) {
            layout(
                data,
                "bytes follow the pax records of a member; some programs read them as records",
                scan,
            );
        }
        Ok(())
    }

    /// Applies records to the next member, or to `all`.
    fn take(&mut self, records: Records, all: bool, at: u64, scan: &mut Scan) {
        if records.sparse || (all && (records.size.is_some() || records.path.is_some())) {
            layout(at, "a pax record sets the position, the length or the name of members", scan);
        }
        if !all {
            self.name = records.path.or(self.name.take());
            self.target = records.target.or(self.target.take());
            self.size = records.size.or(self.size);
        }
    }
}

/// Judges a member with its overrides, and adds it for scanning.
fn member(
    header: &Header,
    overrides: Overrides,
    source: &SourceRef,
    cursor: &mut Cursor,
    scan: &mut Scan,
) -> Result<()> {
    let Header { at, mut len, .. } = *header;
    let name = overrides.name.unwrap_or_else(|| header.name());
    judge_member(&name, at, scan);
    let name = escape(&name);
    if let Some(other) = overrides.size.filter(|&other| other != len) {
        layout(at, &format!("`{name}` has {len} bytes by its header, {other} by a pax record"), scan);
        // POSIX defines this, and Python does it.
        len = other;
    }
    if len > 0 && header.is_without_data() {
        layout(at, &format!("`{name}` is not a file, but has a length of {len} bytes"), scan);
        return Ok(());
    }
    match header.kind() {
        b'0' | 0 | b'7' => {
            let range = RangeSource::new(source.clone(), cursor.position(), len)?;
            scan.look_into(name, Arc::new(range), AssumedType::File);
        }
        b'1' | b'2' => {
            let target = escape(&overrides.target.unwrap_or_else(|| header.target()));
            scan.push_at("member-link", at, format!("`{name}` is a link to `{target}`"));
        }
        b'3' | b'4' | b'6' => {
            scan.push_at("member-link", at, format!("`{name}` is a device or a pipe"));
        }
        b'5' => {}
        kind => {
            let text = format!("tar-type: `{name}` has the unknown member type {kind:#04x}");
            scan.push_at("unreadable", at, text);
        }
    }
    cursor.skip(len, "the data of a member")?;
    cursor.skip(padding(len).min(cursor.remaining()), "padding")
}

/// Padding after data of this length, up to the next block.
fn padding(len: u64) -> u64 {
    len.next_multiple_of(BLOCK) - len
}

/// Reports bytes after the end of the archive other than zeros.
fn check_end(cursor: &mut Cursor, scan: &mut Scan) -> Result<()> {
    let at = cursor.position();
    let len = cursor.remaining().min(MAX_END_PADDING);
    let more = cursor.remaining() > len;
    if more || cursor.bytes(len, "padding")?.iter().any(|&byte| byte != 0) {
        scan.push_at("trailing-bytes", at, "bytes after the end of the archive were not scanned");
    }
    Ok(())
}

/// Parses a number as Python's `tarfile` does: big-endian if the first byte is 0x80 or 0xff (negative), else octal text up
/// to the first NUL, as `int` accepts it. `None` where that fails.
fn number(field: &[u8]) -> Option<i128> {
    if let Some((&first @ (0x80 | 0xff), rest)) = field.split_first() {
        let value =
            rest.iter().try_fold(0i128, |n, &byte| n.checked_mul(256).map(|n| n + i128::from(byte)))?;
        let bits = u32::try_from(rest.len()).ok()?.checked_mul(8)?;
        return if first == 0xff { value.checked_sub(1i128.checked_shl(bits)?) } else { Some(value) };
    }
    let text =
        std::str::from_utf8(field.split(|&byte| byte == 0).next()?).ok().filter(|text| text.is_ascii())?;
    let text = text.trim_matches(|c: char| matches!(c, ' ' | '\t'..='\r' | '\x1c'..='\x1f'));
    if text.is_empty() {
        return Some(0);
    }
    let (sign, digits) = match text.as_bytes() {
        [b'-', ..] => (-1, &text[1..]),
        [b'+', ..] => (1, &text[1..]),
        _ => (1, text),
    };
    let prefixed = digits.strip_prefix("0o").or_else(|| digits.strip_prefix("0O"));
    // One underscore is allowed after the prefix and between two digits.
    let digits = prefixed.map_or(digits, |rest| rest.strip_prefix('_').unwrap_or(rest));
    let odd = |part: &str| part.is_empty() || !part.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    if digits.split('_').any(odd) {
        return None;
    }
    i128::from_str_radix(&digits.replace('_', ""), 8).ok().map(|value| sign * value)
}

/// True for a number that all programs read alike: octal digits with blanks before and blanks or NULs after, or only these;
/// big-endian where octal digits do not suffice.
fn is_plain(field: &[u8]) -> bool {
    if field.first() == Some(&0x80) {
        let digits = u32::try_from(field.len()).unwrap_or(u32::MAX).saturating_sub(1);
        return 8i128
            .checked_pow(digits)
            .is_some_and(|most| number(field).is_some_and(|value| value >= most));
    }
    let blanks = field.iter().take_while(|&&byte| byte == b' ').count();
    let digits = field[blanks..].iter().take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    field[blanks + digits..].iter().all(|byte| matches!(byte, b' ' | 0))
}

/// True where the checksum is the sum of the header's bytes, with the checksum field counted as blanks: of unsigned bytes, or
/// of signed ones, as some old programs write it.
fn has_checksum(block: &[u8]) -> bool {
    let Some(recorded) = block.get(148..156).and_then(number) else { return false };
    let sum = |value: fn(u8) -> i128| -> i128 {
        let others = block[..148].iter().chain(&block[156..]);
        others.map(|&byte| value(byte)).sum::<i128>() + 8 * 32
    };
    recorded == sum(i128::from) || recorded == sum(|byte| i128::from(byte.cast_signed()))
}

fn until_zero(bytes: &[u8]) -> String {
    let len = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

/// Reports that programs differ in the members they read.
fn layout(at: u64, text: &str, scan: &mut Scan) {
    scan.push_at("tar-layout", at, text);
}

/// Values of pax records (`LENGTH KEY=VALUE\n`) that affect the name, target or length of a member.
#[derive(Default)]
struct Records {
    path: Option<String>,
    /// Target of a link.
    target: Option<String>,
    size: Option<u64>,
    /// True where a record describes a sparse file.
    sparse: bool,
}

impl Records {
    /// Parses records; `None` where they are malformed.
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut records = Self::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let blank = memchr::memchr(b' ', rest)?;
            let len: usize = std::str::from_utf8(&rest[..blank]).ok()?.parse().ok()?;
            let record = rest.get(blank + 1..len)?.strip_suffix(b"\n")?;
            let equals = memchr::memchr(b'=', record)?;
            let value = &record[equals + 1..];
            match &record[..equals] {
                b"path" => records.path = Some(String::from_utf8_lossy(value).into_owned()),
                b"linkpath" => records.target = Some(String::from_utf8_lossy(value).into_owned()),
                b"size" => records.size = Some(std::str::from_utf8(value).ok()?.parse().ok()?),
                key => records.sparse |= key.starts_with(b"GNU.sparse"),
            }
            rest = rest.get(len..)?;
        }
        Some(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_io::source::MemorySource;

    /// A member with this name and kind, with a valid checksum.
    fn member(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
        let mut block = vec![0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
        block[156] = kind;
        block[257..262].copy_from_slice(b"ustar");
        seal(&mut block);
        block.extend(data);
        block.resize(block.len().next_multiple_of(512), 0);
        block
    }

    fn seal(block: &mut [u8]) {
        block[148..156].copy_from_slice(b"        ");
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }

    fn scan(bytes: Vec<u8>) -> Scan {
        let mut scan = Scan::default();
        let source: SourceRef = Arc::new(MemorySource::new("t.tar", bytes));
        tar(&source, &Limits::default(), &mut scan).unwrap();
        scan
    }

    #[test]
    fn members_links_and_unsafe_names_are_reported() {
        let long = [member("././@LongLink", b'L', b"../long\0"), member("x", b'0', b"1")].concat();
        let pax = [member("pax", b'x', b"14 path=/x/yz\n"), member("x", b'0', b"")].concat();
        let all = [member("a/b", b'0', b"abc"), member("l", b'2', b""), long, pax, vec![0; 1024]].concat();
        let found = scan(all);
        let names: Vec<_> =
            found.inner.iter().map(|inner| (inner.name.as_str(), inner.source.len())).collect();
        assert_eq!(names, [("a/b", 3), ("../long", 1), ("/x/yz", 0)]);
        let codes: Vec<_> = found.findings.iter().map(|finding| finding.code.as_str()).collect();
        assert_eq!(codes, ["member-link", "unsafe-member-name", "unsafe-member-name"]);
    }

    /// GNU and POSIX write the long target of a link in a member before it.
    #[test]
    fn long_targets_of_links_are_read() {
        let gnu = [member("././@LongLink", b'K', b"../long/target\0"), member("l", b'1', b"")].concat();
        let pax = [member("pax", b'x', b"20 linkpath=../long\n"), member("m", b'2', b"")].concat();
        let both = [
            member("././@LongLink", b'K', b"to\0"),
            member("././@LongLink", b'L', b"from\0"),
            member("n", b'2', b""),
        ];
        let found = scan([gnu, pax, both.concat(), member("o", b'0', b"1"), vec![0; 1024]].concat());
        let reported: Vec<_> = found.findings.iter().map(|f| (f.code.as_str(), f.text.as_str())).collect();
        let texts =
            ["`l` is a link to `../long/target`", "`m` is a link to `../long`", "`from` is a link to `to`"];
        assert_eq!(reported, texts.map(|text| ("member-link", text)));
        assert_eq!(found.inner.len(), 1);
    }

    #[test]
    fn ambiguous_lengths_are_reported() {
        let inner = member("hidden", b'0', b"abc");
        for kind in [b'1', b'2', b'3', b'4', b'5', b'6'] {
            let found = scan([member("d", kind, &inner), vec![0; 1024]].concat());
            assert!(found.findings.iter().any(|finding| finding.code == "tar-layout"), "{kind}");
            assert_eq!((found.inner.len(), found.inner[0].name.as_str()), (1, "hidden"));
        }
        // By its record the first member is empty, so that its apparent data are members.
        let pax = [member("p", b'x', b"9 size=0\n"), member("a", b'0', &inner), vec![0; 1024]].concat();
        let found = scan(pax);
        let names: Vec<_> = found.inner.iter().map(|inner| inner.name.as_str()).collect();
        assert_eq!((found.findings[0].code.as_str(), names), ("tar-layout", vec!["a", "hidden"]));
        for records in [&b"9 size=0\n"[..], b"22 GNU.sparse.major=1\n", b"9 path=x\n"] {
            let found = scan([member("p", b'g', records), vec![0; 1024]].concat());
            assert_eq!(found.findings[0].code.as_str(), "tar-layout");
        }
        // A record with the same length and a global comment are accepted.
        let valid = [member("p", b'g', b"13 comment=x\n"), member("p", b'x', b"9 size=3\n")].concat();
        let found = scan([valid, member("a", b'0', b"abc"), vec![0; 1024]].concat());
        assert!(found.findings.is_empty() && found.inner.len() == 1, "{found:?}");
        let broken = scan([member("p", b'x', b"7 size\n"), member("a", b'0', b"abc")].concat());
        assert_eq!(broken.findings[0].code.as_str(), "unreadable");
    }

    /// Python's `tarfile.nti` gives these values.
    #[test]
    fn numbers_are_parsed_like_python() {
        for (field, value, plain) in [
            (&b"00000000017\0"[..], Some(15), true),
            (b"         17 ", Some(15), true),
            (b"\0\0\0\0\0\0\0\0\0\0\0\0", Some(0), true),
            (b"\x80\0\0\0\0\0\x02\0\0\0\0\0", Some(1 << 41), true),
            (b"\x80\0\0\0\0\0\0\0\0\0\0\x0f", Some(15), false),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe\0", Some(-512), false),
            (b"\x0000000000017\0", Some(0), false),
            (b"17\0garbage..", Some(15), false),
            (b"0o17        ", Some(15), false),
            (b"0o_1_7      ", Some(15), false),
            (b"\t+17\n       ", Some(15), false),
            (b"-17         ", Some(-15), false),
            (b"1__7        ", None, false),
            (b"18          ", None, false),
            (b"\x8117       ", None, false),
        ] {
            assert_eq!((number(field), is_plain(field)), (value, plain), "{field:?}");
        }
    }

    /// Every file that Python's `tarfile` opens is an archive; ambiguous ones are reported.
    #[test]
    fn odd_headers_that_python_accepts_are_archives() {
        let whole = member("x", b'0', b"abc");
        let unsigned: u32 =
            256 + whole[..148].iter().chain(&whole[156..512]).map(|&b| u32::from(b)).sum::<u32>();
        let mut sums = vec![format!("0o{unsigned:o}").into_bytes(), format!("{unsigned:o}\0xx").into_bytes()];
        sums.push([&b"\x80\0\0\0"[..], &unsigned.to_be_bytes()].concat());
        for sum in sums {
            let mut odd = whole.clone();
            odd[148..156].fill(b' ');
            odd[148..148 + sum.len()].copy_from_slice(&sum);
            assert!(is_tar(&[&odd[..257], &[0; 255]].concat()) || is_tar(&odd), "{sum:?}");
            let found = scan([odd, vec![0; 1024]].concat());
            assert_eq!((found.findings[0].code.as_str(), found.inner.len()), ("tar-layout", 1), "{sum:?}");
        }
        // Signed bytes, no signature, and a name that begins with NUL.
        let mut old = vec![0; 512];
        (old[1], old[124]) = (0x80, b'0');
        let sum = 256 - 128 + u32::from(b'0');
        old[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        assert!(is_tar(&old));
        old[2] = 1;
        assert!(!is_tar(&old) && !is_tar(&[0; 512]));
        // For Python the member is empty, so that its apparent data are members.
        let mut first = member("a", b'0', &member("hidden", b'0', b"abc"));
        first[124..136].copy_from_slice(b"\x00\x0000000002000"[..12].try_into().unwrap());
        seal(&mut first[..512]);
        let found = scan([first, vec![0; 1024]].concat());
        let names: Vec<_> = found.inner.iter().map(|inner| inner.name.as_str()).collect();
        assert_eq!((found.findings[0].code.as_str(), names), ("tar-layout", vec!["a", "hidden"]));
    }

    #[test]
    fn damage_is_reported() {
        let whole = [member("a", b'0', &[1; 600]), vec![0; 1024]].concat();
        for cut in [1, 511, 512, 600, 1535] {
            let codes: Vec<_> =
                scan(whole[..cut].to_vec()).findings.iter().map(|f| f.code.as_str()).collect();
            assert!(codes == ["unreadable"] || (cut == 1535 && codes.is_empty()), "{cut} {codes:?}");
        }
        let mut wrong = whole.clone();
        wrong[0] = b'b';
        assert_eq!(scan(wrong).findings[0].code.as_str(), "unreadable");
        let more = [whole, vec![1]].concat();
        assert_eq!(scan(more).findings[0].code.as_str(), "trailing-bytes");
    }
}
