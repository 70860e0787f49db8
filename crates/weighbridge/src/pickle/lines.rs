//! The arguments of protocol 0, which are lines of text.

use crate::error::{Error, Result};
use crate::source::Cursor;

/// The longest line that is kept in memory: a number, a module and name, an id.
const LONGEST: usize = 4096;
/// The most digits of a whole number that is written out.
const DIGITS: usize = 1024;

/// Reads a line without its end.
pub(super) fn line(cursor: &mut Cursor, what: &str) -> Result<Box<str>> {
    line_of(cursor, what, false)
}

/// Reads the line of a persistent id, which Python takes as ASCII: what has other bytes stops it there. Files that begin
/// with a P, as zips and Parquet do, have such.
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
        if bytes.len() == LONGEST {
            return Err(Error::limit("pickle-line", format!("the line of {what} is too long"))
                .at(start)
                .expected(format_args!("at most {LONGEST} bytes")));
        }
        bytes.push(byte);
    }
    String::from_utf8(bytes)
        .map(String::into_boxed_str)
        .map_err(|_| Error::corrupt("pickle-line", format!("{what} is not UTF-8")).at(start))
}

/// A number of a line.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Number {
    Bool(bool),
    Int(i64),
    /// Little-endian two's complement.
    Big(Box<[u8]>),
}

/// The argument of `INT`, where 00 and 01 are bools.
pub(super) fn int(text: &str) -> Result<Number> {
    match text.trim() {
        "00" => Ok(Number::Bool(false)),
        "01" => Ok(Number::Bool(true)),
        digits => whole(digits),
    }
}

/// The argument of `LONG`: digits, and an L perhaps.
pub(super) fn long(text: &str) -> Result<Number> {
    let text = text.trim();
    whole(text.strip_suffix('L').unwrap_or(text))
}

fn whole(text: &str) -> Result<Number> {
    if let Ok(n) = text.parse::<i64>() {
        return Ok(Number::Int(n));
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Error::corrupt("pickle-number", "this is no whole number"));
    }
    if digits.len() > DIGITS {
        return Err(Error::limit("pickle-number", "the number has too many digits")
            .expected(format_args!("at most {DIGITS}"))
            .found(digits.len()));
    }
    let mut magnitude: Vec<u8> = Vec::new();
    for digit in digits.bytes() {
        let mut carry = u16::from(digit - b'0');
        for byte in &mut magnitude {
            let [low, high] = (u16::from(*byte) * 10 + carry).to_le_bytes();
            *byte = low;
            carry = u16::from(high);
        }
        if let [low, _] = carry.to_le_bytes()
            && low != 0
        {
            magnitude.push(low);
        }
    }
    magnitude.push(0);
    if negative {
        let mut carry = true;
        for byte in &mut magnitude {
            let (sum, over) = (!*byte).overflowing_add(u8::from(carry));
            (*byte, carry) = (sum, over);
        }
    }
    Ok(two_complement(&magnitude))
}

/// The number of little-endian two's complement bytes; none are zero.
pub(super) fn two_complement(bytes: &[u8]) -> Number {
    let mut bytes = bytes;
    // A byte that only repeats the sign of the one before it says nothing.
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

/// The argument of `FLOAT`.
pub(super) fn float(text: &str) -> Result<f64> {
    text.trim().parse().map_err(|_| Error::corrupt("pickle-number", "this is no number"))
}

/// The argument of `GET` and `PUT`.
pub(super) fn index(text: &str) -> Result<u64> {
    text.trim().parse().map_err(|_| Error::corrupt("pickle-number", "this is no place in the memo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_sizes() {
        assert_eq!(int("01").unwrap(), Number::Bool(true));
        assert_eq!(int("00").unwrap(), Number::Bool(false));
        assert_eq!(int("1").unwrap(), Number::Int(1));
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
        for bad in ["", "L", "--1", "0x10", "1.5", "1 2"] {
            assert_eq!(long(bad).unwrap_err().code(), "pickle-number", "{bad:?}");
        }
        assert_eq!(long(&"9".repeat(DIGITS + 1)).unwrap_err().kind(), crate::Kind::Limit);
    }
}
