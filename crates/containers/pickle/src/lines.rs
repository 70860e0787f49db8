//! Text-line arguments of protocol 0. Numbers follow the rules of C: Python passes the lines to `strtol` and similar functions,
//! which skip white space, accept prefixes, and stop at a zero byte.

use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::Cursor;

/// Maximum length of a line kept in memory: a number, a module, a name, an id.
const MAX_LINE_LEN: usize = 4096;
/// White space in C; Rust's definition lacks the vertical tab.
pub(super) const BLANKS: &[u8] = b"\t\n\x0b\x0c\r ";

/// Reads a line without its newline.
pub(super) fn line(cursor: &mut Cursor, what: &str) -> Result<Box<str>> {
    line_of(cursor, what, false)
}

/// Reads the line of a persistent id. Python accepts ASCII only and stops at other bytes. Files that begin with a P, such as
/// zip and Parquet files, contain such bytes.
pub(super) fn ascii(cursor: &mut Cursor, what: &str) -> Result<Box<str>> {
    line_of(cursor, what, true)
}

fn line_of(cursor: &mut Cursor, what: &str, ascii: bool) -> Result<Box<str>> {
    let start = cursor.position();
    let mut bytes = Vec::new();
    loop {
        let [byte] = cursor.array::<1>(what)?;
        if byte == b'\n' {
            break;
        }
        if ascii && !byte.is_ascii() {
            return Err(Error::corrupt("pickle-line", format!("{what} is not ASCII")).at(start));
        }
        keep(&mut bytes, byte, what, start)?;
    }
    String::from_utf8(bytes)
        .map(String::into_boxed_str)
        .map_err(|_| Error::corrupt("pickle-line", format!("{what} is not UTF-8")).at(start))
}

fn keep(bytes: &mut Vec<u8>, byte: u8, what: &str, start: u64) -> Result<()> {
    if bytes.len() == MAX_LINE_LEN {
        return Err(Error::limit("pickle-line", format!("the line of {what} is too long"))
            .at(start)
            .expected(format_args!("at most {MAX_LINE_LEN} bytes")));
    }
    bytes.push(byte);
    Ok(())
}

/// A line that holds a number.
#[derive(Debug)]
pub(super) struct NumberLine {
    /// The part that C reads: the line up to a zero byte.
    text: Vec<u8>,
    /// Length of the whole line without its newline.
    len: u64,
}

impl NumberLine {
    /// Reads a line with a number. A byte that cannot be part of one fails at once: arbitrary data may begin like a pickle.
    pub(super) fn read(cursor: &mut Cursor, what: &str) -> Result<Self> {
        let start = cursor.position();
        let mut line = Self { text: Vec::new(), len: 0 };
        let mut seen_whole = false;
        loop {
            let [byte] = cursor.array::<1>(what)?;
            if byte == b'\n' {
                return if line.len == 0 { Err(not_a_number()) } else { Ok(line) };
            }
            line.len += 1;
            seen_whole |= byte == 0;
            if seen_whole {
                continue;
            }
            let fits = byte.is_ascii_alphanumeric() || b"+-._".contains(&byte) || BLANKS.contains(&byte);
            if !fits {
                return Err(not_a_number());
            }
            keep(&mut line.text, byte, what, start)?;
        }
    }

    #[cfg(test)]
    fn of(line: &[u8]) -> Result<Self> {
        let mut line = line.to_vec();
        line.push(b'\n');
        let source = weighbridge_io::source::MemorySource::new("line", line);
        Self::read(&mut Cursor::new(std::sync::Arc::new(source), 0), "a line")
    }

    /// The argument of `INT`: two characters with the value 0 or 1 are a bool.
    pub(super) fn int(&self) -> Result<Number> {
        // For C, a missing number is zero.
        let number = if self.text.is_empty() { Number::Int(0) } else { whole(&self.text, None)? };
        Ok(match number {
            Number::Int(n @ 0..=1) if self.len == 2 => Number::Bool(n == 1),
            number => number,
        })
    }

    /// The argument of `LONG`: digits with an optional L.
    pub(super) fn long(&self) -> Result<Number> {
        whole(self.text.strip_suffix(b"L").unwrap_or(&self.text), None)
    }

    /// The argument of `FLOAT`.
    pub(super) fn float(&self) -> Result<f64> {
        let text = std::str::from_utf8(&self.text).ok();
        text.and_then(|text| text.trim().parse().ok()).ok_or_else(not_a_number)
    }

    /// The argument of `GET` and `PUT`.
    pub(super) fn index(&self) -> Result<u64> {
        match whole(&self.text, Some(10))? {
            Number::Int(n) => u64::try_from(n).ok(),
            _ => None,
        }
        .ok_or_else(|| Error::corrupt("pickle-number", "the memo index is not a non-negative integer"))
    }
}

/// A number of a line.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Number {
    Bool(bool),
    Int(i64),
    /// Little-endian two's complement.
    Big(Box<[u8]>),
}

fn not_a_number() -> Error {
    Error::corrupt("pickle-number", "the line is not a number")
}

/// Parses an integer in that base, or with the prefixes of Python source. A leading zero means octal, as in C and Python 2.
/// Single underscores between digits are allowed.
fn whole(text: &[u8], base: Option<u32>) -> Result<Number> {
    let blank = |byte: &u8| BLANKS.contains(byte);
    let start = text.iter().position(|byte| !blank(byte)).ok_or_else(not_a_number)?;
    let end = text.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    let text = &text[start..end];
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let (base, text) = match (base, text) {
        (Some(base), _) => (base, text),
        (None, [b'0', b'x' | b'X', rest @ ..]) => (16, rest.strip_prefix(b"_").unwrap_or(rest)),
        (None, [b'0', b'o' | b'O', rest @ ..]) => (8, rest.strip_prefix(b"_").unwrap_or(rest)),
        (None, [b'0', b'b' | b'B', rest @ ..]) => (2, rest.strip_prefix(b"_").unwrap_or(rest)),
        (None, [b'0', ..]) => (8, text),
        (None, _) => (10, text),
    };
    let mut digits = Vec::with_capacity(text.len());
    let mut before = b'_';
    for &byte in text {
        match char::from(byte).to_digit(base) {
            Some(digit) => digits.push(digit),
            None if byte == b'_' && before != b'_' => {}
            None => return Err(not_a_number()),
        }
        before = byte;
    }
    if before == b'_' {
        return Err(not_a_number());
    }
    Ok(two_complement(&bytes_of(&digits, base, negative)))
}

/// Converts digits, most significant first, to little-endian two's complement.
fn bytes_of(digits: &[u32], base: u32, negative: bool) -> Vec<u8> {
    let mut limbs: Vec<u32> = Vec::new();
    // As many digits at once as always fit into a limb.
    let at_once = if base == 10 { 9 } else { 7 };
    for digits in digits.chunks(at_once) {
        let (factor, chunk) =
            digits.iter().fold((1, 0), |(factor, chunk), digit| (factor * base, chunk * base + digit));
        let mut carry = chunk;
        for limb in &mut limbs {
            let product = u64::from(*limb) * u64::from(factor) + u64::from(carry);
            let [a, b, c, d, e, f, g, h] = product.to_le_bytes();
            (*limb, carry) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        }
        if carry != 0 {
            limbs.push(carry);
        }
    }
    let mut bytes: Vec<u8> = limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect();
    bytes.push(0);
    if negative {
        let mut carry = true;
        for byte in &mut bytes {
            (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
        }
    }
    bytes
}

/// Value of little-endian two's complement bytes; no bytes are zero.
pub(super) fn two_complement(bytes: &[u8]) -> Number {
    let mut bytes = bytes;
    // Drop top bytes that only repeat the sign.
    while let [rest @ .., before, last] = bytes
        && ((*last == 0 && *before < 0x80) || (*last == 0xff && *before >= 0x80))
    {
        let _ = rest;
        bytes = &bytes[..bytes.len() - 1];
    }
    let sign = if bytes.last().is_some_and(|&b| b >= 0x80) { 0xff } else { 0 };
    let mut word = [sign; 8];
    match word.get_mut(..bytes.len()) {
        Some(low) => {
            low.copy_from_slice(bytes);
            Number::Int(i64::from_le_bytes(word))
        }
        None => Number::Big(bytes.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(text: &str) -> Result<Number> {
        NumberLine::of(text.as_bytes())?.int()
    }

    fn long(text: &str) -> Result<Number> {
        NumberLine::of(text.as_bytes())?.long()
    }

    /// Same results as CPython 3.11 for these lines.
    #[test]
    fn numbers_parse_as_in_cpython() {
        for (text, value) in [
            ("0x1F", 31),
            ("+0x10", 16),
            ("0o17", 15),
            ("0b101", 5),
            ("010", 8),
            ("-010", -8),
            ("000", 0),
            ("0x_1", 1),
            ("1_0", 10),
            ("\u{b}5", 5),
            (" 5 ", 5),
            ("7\0abc", 7),
            ("\0{\u{1}", 0),
            ("01\0", 1),
        ] {
            assert_eq!(int(text).unwrap(), Number::Int(value), "{text:?}");
        }
        for (text, value) in [("00", false), ("01", true), ("+1", true), (" 1", true), ("-0", false)] {
            assert_eq!(int(text).unwrap(), Number::Bool(value), "{text:?}");
        }
        for bad in ["", " ", "08", "_1", "1_", "1__0", "0x", "--1", "- 1", "1.5", "1 2", "1L", "ab"] {
            assert_eq!(int(bad).unwrap_err().code().as_str(), "pickle-number", "{bad:?}");
        }
        for (text, value) in [("0x1L", 1), ("00L", 0), ("1 L", 1), ("5\0L", 5), ("-3", -3)] {
            assert_eq!(long(text).unwrap(), Number::Int(value), "{text:?}");
        }
        for bad in ["", "L", "1L ", "\0"] {
            assert_eq!(long(bad).unwrap_err().code().as_str(), "pickle-number", "{bad:?}");
        }
        let float = |text: &str| NumberLine::of(text.as_bytes()).unwrap().float();
        for (text, value) in
            [("1.", 1.0), (".5", 0.5), ("-1e3", -1000.0), ("1\0z", 1.0), ("inf", f64::INFINITY)]
        {
            assert_eq!(float(text).unwrap(), value, "{text:?}");
        }
        assert!(float("-nAn").unwrap().is_nan() && float("\0").is_err() && float("1e").is_err());
        let index = |text: &str| NumberLine::of(text.as_bytes()).unwrap().index();
        for (text, value) in [("1_0", 10), ("010", 10), (" 1 ", 1), ("+1", 1), ("1\0z", 1)] {
            assert_eq!(index(text).unwrap(), value, "{text:?}");
        }
        for bad in ["-1", "0x1", "\0", "99999999999999999999"] {
            assert_eq!(index(bad).unwrap_err().code().as_str(), "pickle-number", "{bad:?}");
        }
    }

    #[test]
    fn lines_that_are_not_numbers_fail_at_the_first_byte() {
        let source = |bytes: Vec<u8>| {
            Cursor::new(std::sync::Arc::new(weighbridge_io::source::MemorySource::new("m", bytes)), 0)
        };
        let mut pixels = source(vec![0xc3; 10_000]);
        assert_eq!(NumberLine::read(&mut pixels, "a line").unwrap_err().code().as_str(), "pickle-number");
        assert_eq!(pixels.position(), 1);
        let mut long = source([vec![b'1'; MAX_LINE_LEN + 1], b"\n".to_vec()].concat());
        assert_eq!(NumberLine::read(&mut long, "a line").unwrap_err().kind(), weighbridge_core::Kind::Limit);
        // Nothing is kept after a zero byte.
        let mut zeros = source([b"1".to_vec(), vec![0; 3 * MAX_LINE_LEN], b"\n".to_vec()].concat());
        assert_eq!(NumberLine::read(&mut zeros, "a line").unwrap().int().unwrap(), Number::Int(1));
    }

    #[test]
    fn integers_beyond_64_bits_keep_their_bytes() {
        assert_eq!(long("-9223372036854775808L").unwrap(), Number::Int(i64::MIN));
        assert_eq!(long("9223372036854775808L").unwrap(), Number::Big([0, 0, 0, 0, 0, 0, 0, 0x80, 0].into()));
        assert_eq!(
            long("-9223372036854775809").unwrap(),
            Number::Big([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff].into())
        );
        assert_eq!(long("18446744073709551616").unwrap(), Number::Big([0, 0, 0, 0, 0, 0, 0, 0, 1].into()));
        assert_eq!(two_complement(&[]), Number::Int(0));
        assert_eq!(two_complement(&[0xff, 0xff]), Number::Int(-1));
        assert_eq!(two_complement(&[0xff, 0]), Number::Int(255));
        assert_eq!(
            long(&format!("0x1{}", "0".repeat(16))).unwrap(),
            Number::Big([0, 0, 0, 0, 0, 0, 0, 0, 1].into())
        );
        let Number::Big(ten_to_1000) = long(&format!("1{}", "0".repeat(1000))).unwrap() else { panic!() };
        // 2 to the 1000th divides it, and no higher power does.
        assert_eq!(ten_to_1000.len(), 416);
        assert!(ten_to_1000[..125].iter().all(|&byte| byte == 0) && ten_to_1000[125] & 1 == 1);
    }
}
