//! Detection of pickles inside the strings of a pickle, by their first bytes.
//!
//! A string may hold a pickle in any encoding that picklers use for bytes: raw, as text of their code points (protocol 2), or
//! with the escapes of protocol 0.

use super::graph::{Span, Stored};
use super::lines::BLANKS;
use super::machine::HIGHEST_PROTOCOL;
use super::opcode as op;
use super::payload::decode;
use weighbridge_core::error::Result;
use weighbridge_io::source::{SourceRef, read_vec, to_usize};

/// Number of bytes of a string that detection reads.
pub(super) const PROBE_LEN: usize = 512;

/// Decodes the first bytes of a string from at most `most` stored bytes. The flag is true if these are all its bytes. Decoding
/// stops at text that does not encode bytes.
///
/// # Errors
/// Errors of the source.
pub fn string_bytes(source: &SourceRef, span: Span, most: u64) -> Result<(Vec<u8>, bool)> {
    let stored = read_vec(&**source, span.offset, span.len.min(most))?;
    let whole = span.len <= most;
    if span.stored == Stored::Raw {
        return Ok((stored, whole));
    }
    let mut bytes = Vec::with_capacity(to_usize(span.len.min(most))?);
    let decoded = decode(&stored, whole, span.stored, &mut bytes).is_ok();
    Ok((bytes, whole && decoded))
}

/// Returns true if the string that begins with `head` may be a pickle: one that declares its protocol, or one without a
/// declaration that reaches an import. False positives are possible; only the opcodes decide.
pub(super) fn may_begin(head: &[u8], span: Span) -> bool {
    let (Some(&first), all) = (head.first(), head.len() as u64 == span.len) else { return false };
    // Text that begins with a code point above U+007F begins with a byte that is not an opcode.
    let text = span.stored != Stored::Raw;
    if !(first == op::PROTO || takes_nothing(first) || (text && matches!(first, 0xc2 | b'\\'))) {
        return false;
    }
    if !text {
        return may_be_pickle(head, all);
    }
    let mut bytes = Vec::with_capacity(head.len());
    // If decoding fails, the bytes before that still count: the rest of the text may be unrelated.
    let decoded = decode(head, all, span.stored, &mut bytes).is_ok();
    may_be_pickle(&bytes, all && decoded)
}

/// Returns true if the decoded bytes may be a pickle.
fn may_be_pickle(head: &[u8], all: bool) -> bool {
    match head {
        [op::PROTO, protocol, ..] => u64::from(*protocol) <= HIGHEST_PROTOCOL,
        [first, ..] if takes_nothing(*first) => reaches_import(head, all),
        _ => false,
    }
}

/// Returns true if the bytes can begin a pickle: a protocol declaration, or an opcode that needs no operands.
pub fn begins([first, second]: [u8; 2]) -> bool {
    if first == op::PROTO { u64::from(second) <= HIGHEST_PROTOCOL } else { takes_nothing(first) }
}

/// Returns true for an opcode without operands.
fn takes_nothing(code: u8) -> bool {
    !matches!(argument(code), Argument::Unknown)
        && !matches!(
            code,
            op::STOP
                | op::POP
                | op::POP_MARK
                | op::DUP
                | op::BINPERSID
                | op::REDUCE
                | op::APPEND
                | op::BUILD
                | op::DICT
                | op::APPENDS
                | op::LIST
                | op::OBJ
                | op::SETITEM
                | op::TUPLE
                | op::SETITEMS
                | op::GET
                | op::BINGET
                | op::LONG_BINGET
                | op::PUT
                | op::BINPUT
                | op::LONG_BINPUT
                | op::INST
                | op::NEWOBJ
                | op::TUPLE1
                | op::TUPLE2
                | op::TUPLE3
                | op::ADDITEMS
                | op::FROZENSET
                | op::NEWOBJ_EX
                | op::STACK_GLOBAL
                | op::MEMOIZE
                | op::READONLY_BUFFER
        )
}

/// Layout of the argument after an opcode byte.
enum Argument {
    /// A fixed number of bytes.
    Fixed(usize),
    /// A length of that many bytes, then the counted bytes.
    Counted(usize),
    Line,
    /// Two lines: the module and the name of an import.
    Names,
    /// Not an opcode.
    Unknown,
}

fn argument(code: u8) -> Argument {
    match code {
        op::BININT1 | op::BINGET | op::BINPUT | op::PROTO | op::EXT1 => Argument::Fixed(1),
        op::BININT2 | op::EXT2 => Argument::Fixed(2),
        op::BININT | op::LONG_BINGET | op::LONG_BINPUT | op::EXT4 => Argument::Fixed(4),
        op::BINFLOAT | op::FRAME => Argument::Fixed(8),
        op::SHORT_BINBYTES | op::SHORT_BINSTRING | op::SHORT_BINUNICODE | op::LONG1 => Argument::Counted(1),
        op::BINBYTES | op::BINSTRING | op::BINUNICODE | op::LONG4 => Argument::Counted(4),
        op::BINBYTES8 | op::BINUNICODE8 | op::BYTEARRAY8 => Argument::Counted(8),
        op::FLOAT | op::INT | op::LONG | op::PERSID | op::STRING | op::UNICODE | op::GET | op::PUT => {
            Argument::Line
        }
        op::GLOBAL | op::INST => Argument::Names,
        code if op::opcode_name(code).is_some() => Argument::Fixed(0),
        _ => Argument::Unknown,
    }
}

/// Walks the opcodes without a machine. Returns true at an import with valid names, or if `head` is incomplete and still
/// undecided.
fn reaches_import(head: &[u8], all: bool) -> bool {
    let mut rest = head;
    let mut texts = false;
    while let Some((&code, behind)) = rest.split_first() {
        let next = match argument(code) {
            // An entry of the registry may be any class or function.
            _ if matches!(code, op::EXT1 | op::EXT2 | op::EXT4) => return true,
            Argument::Unknown => return false,
            Argument::Fixed(len) => behind.get(len..),
            Argument::Counted(len) => after_counted(behind, len),
            Argument::Line => match line(behind) {
                Some((line, next)) if may_be_line(code, line) => Some(next),
                // A line that continues beyond `head` is judged by its beginning.
                None if behind.is_empty() || may_be_line(code, behind) => None,
                _ => return false,
            },
            Argument::Names => {
                let mut lines = behind.splitn(3, |&byte| byte == b'\n');
                let names = [lines.next(), lines.next()];
                let ends = lines.next().is_some();
                let may = |name: &[u8]| is_name(name) || (!ends && name.is_empty());
                return (ends || !all) && names.into_iter().flatten().all(may);
            }
        };
        texts |= matches!(
            code,
            op::STRING
                | op::UNICODE
                | op::BINSTRING
                | op::SHORT_BINSTRING
                | op::BINUNICODE
                | op::SHORT_BINUNICODE
                | op::BINUNICODE8
        );
        if code == op::STACK_GLOBAL {
            return texts;
        }
        match next {
            Some(next) => rest = next,
            None => return !all,
        }
    }
    !all
}

/// Bytes after a counted string whose length takes the first `len` bytes.
fn after_counted(behind: &[u8], len: usize) -> Option<&[u8]> {
    let (digits, behind) = behind.split_at_checked(len)?;
    let len = digits.iter().rev().fold(0u64, |n, &byte| n << 8 | u64::from(byte));
    behind.get(usize::try_from(len).ok()?..)
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'\n', bytes)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// Returns true for a valid line, or beginning of a line, of that opcode. Most lines are numbers; C ends them at a zero byte and
/// skips white space.
fn may_be_line(code: u8, line: &[u8]) -> bool {
    match code {
        op::STRING => matches!(line.first(), Some(b'\'' | b'"')),
        op::UNICODE => true,
        op::PERSID => line.is_ascii(),
        // The beginning of a number.
        _ => match line.iter().position(|byte| !BLANKS.contains(byte)).map(|start| &line[start..]) {
            None | Some([0 | b'+' | b'-' | b'.' | b'0'..=b'9', ..]) => true,
            Some(word) if code == op::FLOAT => {
                let word = word.get(..3).unwrap_or_default().to_ascii_lowercase();
                matches!(&word[..], b"inf" | b"nan" | b"")
            }
            Some(_) => false,
        },
    }
}

/// Returns true for the name of a module, or of an object in a module.
fn is_name(line: &[u8]) -> bool {
    !line.is_empty()
        && line.iter().all(|&byte| matches!(byte, b'_' | b'.' | 0x80..) || byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(head: &[u8], stored: Stored) -> bool {
        may_begin(head, Span { offset: 0, len: head.len() as u64, stored })
    }

    #[test]
    fn pickles_are_detected_in_every_encoding() {
        for head in [
            &b"\x80\x02cos\nsystem\n."[..],
            b"cos\nsystem\n(S'id'\ntR.",
            b"(S'id'\nios\nsystem\n.",
            b"N.cos\nsystem\n",
            b"X\x02\0\0\0osX\x06\0\0\0system\x93",
        ] {
            assert!(may(head, Stored::Raw), "{head:?}");
        }
        assert!(may(b"\xc2\x80\x02cos\nsystem\n.", Stored::Utf8));
        assert!(may(b"\\x80\\x02cos\\nsystem\\n.", Stored::StringEscape));
        assert!(may(b"\\u0080\x02cos\\u000asystem\\u000a.", Stored::UnicodeEscape));
        assert!(may(b"\x80\x02cos\\u000asystem\\u000a.", Stored::UnicodeEscape));
        // The part beyond the probe may import.
        let long = [b"V".as_slice(), &[b'a'; 600], b"\ncos\nsystem\n."].concat();
        let span = Span { offset: 0, len: long.len() as u64, stored: Stored::Utf8 };
        assert!(may_begin(&long[..PROBE_LEN], span) && may(&long, Stored::Raw));
    }

    #[test]
    fn words_and_numbers_are_not_detected_as_pickles() {
        for head in [
            &b""[..],
            b"conv1.weight",
            b"import os\nprint(1)\n",
            b"class A:\n  pass\n",
            b"\x80\x07ab",
            b"\0\0\x80\x3f",
            b"]}N",
            b"Vocabulary\nof words\n",
            b"I am\na text\n",
            &[b"In one line".as_slice(), &[b'a'; 600]].concat(),
        ] {
            assert!(!may(head, Stored::Raw), "{head:?}");
            assert!(!may(head, Stored::Utf8), "{head:?}");
        }
    }
}
