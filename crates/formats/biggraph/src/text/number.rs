//! Counts and versions: Python's `int(text.strip())`.

use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{SourceRef, read_vec};

/// Maximum length in bytes of a file with one number. Blanks around the number are allowed, but
/// limited.
const MAX_BYTES: u64 = 64 << 10;
/// Maximum number of digits that Python converts.
const MAX_DIGITS: usize = 4300;

/// Zero digits of Unicode (version 14, as in CPython 3.11); the other nine follow each.
const ZEROS: [u32; 66] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50,
    0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40,
    0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x11066,
    0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950,
    0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6,
    0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
];

/// Number in a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    /// Value. Upstream accepts negative ones too.
    pub value: i64,
    /// True for upstream's form: digits without a leading zero, and `\n`.
    pub plain: bool,
}

/// Parses a number like Python's `int(text.strip())`; `None` for blank
/// text.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `not-a-number`, if Python rejects it;
/// [`weighbridge_core::Kind::Unsupported`], `huge-number`, if it does not fit in 64 bits.
pub(crate) fn parse_number(bytes: &[u8]) -> Result<Option<Number>> {
    let shown = || String::from_utf8_lossy(bytes).chars().take(40).collect::<String>();
    let wrong = || {
        Error::corrupt("not-a-number", "the file does not contain a single integer")
            .expected("decimal digits")
            .found(format_args!("{:?}", shown()))
    };
    let text = std::str::from_utf8(bytes).map_err(|_| wrong())?.trim_matches(is_blank);
    if text.is_empty() {
        return Ok(None);
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut value = Some(0i64);
    let mut count = 0usize;
    let mut after_digit = false;
    for c in digits.chars() {
        if c == '_' && after_digit {
            after_digit = false;
            continue;
        }
        let digit = digit(c).ok_or_else(wrong)?;
        let digit = if negative { -digit } else { digit };
        value = value.and_then(|v| v.checked_mul(10)?.checked_add(digit));
        count += 1;
        after_digit = true;
    }
    // Ends in an underscore, has no digit, or has more digits than Python converts.
    if !after_digit || count > MAX_DIGITS {
        return Err(wrong());
    }
    let huge = || Error::unsupported("huge-number", "the number does not fit in 64 bits").found(shown());
    let value = value.ok_or_else(huge)?;
    Ok(Some(Number { value, plain: bytes == format!("{value}\n").as_bytes() }))
}

/// Reads a count file.
///
/// # Errors
/// Like [`parse_number`]; `not-a-number` also for a blank file; [`weighbridge_core::Kind::Corrupt`],
/// `negative-number`, for a negative number, which upstream accepts and then fails on.
pub(crate) fn read_count(source: &SourceRef) -> Result<u64> {
    let named = |e: Error| e.in_file(source.label());
    let blank = || {
        Error::corrupt("not-a-number", "the file is blank")
            .expected("decimal digits")
            .hint("restore the number; the name file, if any, has as many names")
    };
    natural(read_number(source)?.ok_or_else(blank).map_err(named)?).map_err(named)
}

/// Reads a version file; `None` if it is blank. Upstream treats a blank or missing version file
/// as version 0 and starts from scratch; a crash during the write leaves it blank.
///
/// # Errors
/// Like [`parse_number`]; [`weighbridge_core::Kind::Corrupt`], `negative-number`, for a negative number.
pub(crate) fn read_version(source: &SourceRef) -> Result<Option<u64>> {
    let number = read_number(source)?;
    number.map(natural).transpose().map_err(|e| e.in_file(source.label()))
}

/// Text of a count or version file in upstream's form.
pub(crate) fn number_text(value: u64) -> String {
    format!("{value}\n")
}

fn read_number(source: &SourceRef) -> Result<Option<Number>> {
    if source.len() > MAX_BYTES {
        return Err(Error::limit("limit", "the file of a single number is too large")
            .in_file(source.label())
            .expected(format_args!("at most {MAX_BYTES} bytes"))
            .found(source.len()));
    }
    parse_number(&read_vec(&**source, 0, source.len())?).map_err(|e| e.in_file(source.label()))
}

fn natural(number: Number) -> Result<u64> {
    u64::try_from(number.value).map_err(|_| {
        Error::corrupt("negative-number", "the number is negative").expected("0 or more").found(number.value)
    })
}

/// True for characters that Python's `str.strip` removes: Unicode white space and four control characters.
pub(super) fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn digit(c: char) -> Option<i64> {
    let c = u32::from(c);
    let zero = ZEROS.get(ZEROS.partition_point(|&zero| zero <= c).checked_sub(1)?)?;
    Some(i64::from(c - zero)).filter(|&digit| digit < 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_io::source::MemorySource;

    fn source(bytes: &[u8]) -> SourceRef {
        Arc::new(MemorySource::new("count.txt", bytes.to_vec()))
    }

    /// Results of upstream's own parser.
    #[test]
    fn reads_numbers_like_upstream() {
        let accepted: [&[u8]; 8] = [
            b"12\n",
            b"12",
            b" 12 \n\n",
            b"+12\n",
            b"1_2\n",
            b"0012\n",
            b"12\r\n",
            "\u{ff11}\u{ff12}\n".as_bytes(),
        ];
        for (i, text) in accepted.iter().enumerate() {
            let number = parse_number(text).unwrap().unwrap();
            assert_eq!((number.value, number.plain), (12, i == 0), "{text:?}");
            assert_eq!(read_count(&source(text)).unwrap(), 12);
            assert_eq!(read_version(&source(text)).unwrap(), Some(12));
        }
        for text in [&b"12 13\n"[..], b"1.0\n", b"0x10\n"] {
            assert_eq!(read_count(&source(text)).unwrap_err().code().as_str(), "not-a-number");
            assert_eq!(read_version(&source(text)).unwrap_err().code().as_str(), "not-a-number");
        }
        for text in [&b""[..], b"\n"] {
            assert_eq!(read_count(&source(text)).unwrap_err().code().as_str(), "not-a-number");
            assert_eq!(read_version(&source(text)).unwrap(), None);
        }
        assert_eq!(parse_number(b"-3\n").unwrap().unwrap().value, -3);
        assert_eq!(read_count(&source(b"-3\n")).unwrap_err().code().as_str(), "negative-number");
        assert_eq!(read_version(&source(b"-3\n")).unwrap_err().code().as_str(), "negative-number");
    }

    #[test]
    fn accepts_and_rejects_edge_cases_like_python() {
        let value = |text: &str| parse_number(text.as_bytes()).unwrap().unwrap().value;
        assert_eq!(value("\u{1c}\u{3000}0_0\u{85}"), 0);
        assert_eq!(value("-0"), 0);
        assert_eq!(value("\u{1fbf9}\u{660}"), 90);
        assert_eq!(value("9223372036854775807"), i64::MAX);
        assert_eq!(value("-9223372036854775808"), i64::MIN);
        assert_eq!(value(&format!("{}7", "0".repeat(4299))), 7);
        for bad in ["_1", "1_", "1__2", "+-1", "+ 1", "+_1", "-", "\u{feff}1", "1\u{200b}", "²", "1e3", "1l"]
        {
            assert_eq!(parse_number(bad.as_bytes()).unwrap_err().code().as_str(), "not-a-number", "{bad}");
        }
        assert_eq!(parse_number(&[b'0'; 4301]).unwrap_err().code().as_str(), "not-a-number");
        assert_eq!(parse_number(b"\xff1").unwrap_err().code().as_str(), "not-a-number");
        assert_eq!(parse_number(b"9223372036854775808").unwrap_err().code().as_str(), "huge-number");
        assert_eq!(read_count(&source(&vec![b' '; 65537])).unwrap_err().code().as_str(), "limit");
    }

    #[test]
    fn written_numbers_are_plain() {
        for n in [0, 6, u64::from(u32::MAX)] {
            let number = parse_number(number_text(n).as_bytes()).unwrap().unwrap();
            assert_eq!((number.value, number.plain), (i64::try_from(n).unwrap(), true));
        }
    }
}
