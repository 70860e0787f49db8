//! Decoder of pickle opcodes, one by one, without executing them.

use super::graph::{Blob, Location, Span, Stored, Text};
use super::lines::{self, Number, NumberLine};
use super::nested;
use super::opcode::{self as op, opcode_name, opcode_subject};
use weighbridge_core::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Cursor, SourceRef};

/// Text up to this many bytes is read into memory; longer text stays in the source.
const SHORT_TEXT: u64 = 256;
/// Same as [`SHORT_TEXT`] for inspection, which compares some texts with those that libraries write.
const INSPECTED_TEXT: u64 = 1024;
/// Same as [`SHORT_TEXT`] for bytes: holds a scalar, but not an array.
const SHORT_BYTES: u64 = 16;
/// Bytes of opcodes charged at a time. A tiny pickle costs as much, since it needs a machine of its own.
const STEP: u64 = 1 << 8;
/// Work per byte of opcodes: executing takes longer than unpacking.
const WORK: u64 = 4;
/// Maximum length of an integer in bytes.
const MAX_NUMBER_BYTES: u64 = 1 << 20;

/// One opcode with its argument.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// Offset in the source.
    pub offset: u64,
    /// The opcode byte.
    pub code: u8,
    /// The argument after the opcode byte.
    pub arg: Arg,
}

impl Op {
    /// Name of the opcode in Python's `pickletools`.
    pub fn name(&self) -> &'static str {
        opcode_name(self.code).unwrap_or("?")
    }
}

/// Argument of an opcode.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg {
    /// No argument: the operands are on the stack.
    None,
    /// `True` or `False` in the encoding of protocols 0 and 1.
    Bool(bool),
    /// An integer to push.
    Int(i64),
    /// An integer beyond 64 bits, in little-endian two's complement.
    BigInt(Box<[u8]>),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(Text),
    /// A Python 2 string.
    ByteString(Text),
    /// Bytes.
    Bytes(Blob),
    /// Module and name of an import.
    Global(Box<str>, Box<str>),
    /// A memo index, a protocol, a frame length or an extension code.
    Number(u64),
}

/// Iterator over the opcodes of a source from an offset to `STOP`.
///
/// Bytes and long text are skipped: only their location is returned.
#[derive(Debug)]
pub struct Opcodes {
    cursor: Cursor,
    stopped: bool,
    /// Budget charged for the opcodes; `None` if they are not counted.
    budget: Option<Budget>,
    /// Bytes that are already paid for.
    paid: u64,
    start: u64,
    skipped: u64,
    /// Strings that may be pickles themselves. They are collected on the way: reading compressed bytes later would unpack them
    /// from their start again.
    nested: Option<Vec<Span>>,
    /// Maximum length of text that is read into memory.
    short: u64,
}

impl Opcodes {
    /// Creates a decoder of the opcodes of `source` from `offset`.
    pub fn new(source: &SourceRef, offset: u64) -> Self {
        let cursor = Cursor::new(source.clone(), offset);
        Self {
            cursor,
            stopped: false,
            budget: None,
            paid: 0,
            start: offset,
            skipped: 0,
            nested: None,
            short: SHORT_TEXT,
        }
    }

    /// The source.
    pub(super) fn source(&self) -> &SourceRef {
        self.cursor.source()
    }

    /// Charges all further reading as work to `budget`.
    pub(super) fn charge(&mut self, budget: &Budget) {
        (self.start, self.skipped, self.paid) = (self.cursor.position(), 0, 0);
        self.budget = Some(budget.clone());
    }

    /// Starts collecting the strings that begin like a pickle.
    pub(super) fn collect_nested(&mut self) {
        self.nested = Some(Vec::new());
        self.short = INSPECTED_TEXT;
    }

    /// Returns the strings that begin like a pickle since [`collect_nested`](Self::collect_nested), and stops collecting.
    pub(super) fn take_nested(&mut self) -> Vec<Span> {
        self.nested.take().unwrap_or_default()
    }

    /// Bytes that were read, without the skipped ones.
    fn bytes_read(&self) -> u64 {
        (self.cursor.position() - self.start).saturating_sub(self.skipped)
    }

    /// Returns true if a pickle that declares its protocol begins here. Does not advance, so sequential sources can go on.
    pub fn at_protocol(&mut self) -> bool {
        matches!(self.cursor.peek(), Ok(Some([op::PROTO, _])))
    }

    /// Offset after the last opcode.
    pub fn position(&self) -> u64 {
        self.cursor.position()
    }

    /// Bytes left in the source.
    pub(super) fn remaining(&self) -> u64 {
        self.cursor.remaining()
    }

    /// Reads the next opcode, also after `STOP`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for an unknown opcode, `truncated` at the end of the source,
    /// [`weighbridge_core::Kind::Limit`] for overlong numbers and names, and errors of the source.
    pub fn next_op(&mut self) -> Result<Op> {
        let offset = self.cursor.position();
        self.pay()?;
        let [code] = self.cursor.array::<1>("a pickle")?;
        let arg = self.arg(code).map_err(|e| e.at(offset))?;
        self.stopped = code == op::STOP;
        Ok(Op { offset, code, arg })
    }

    /// Pays for the next bytes; fails once the budget is spent.
    fn pay(&mut self) -> Result<()> {
        if let Some(budget) = self.budget.as_ref().filter(|_| self.bytes_read() >= self.paid) {
            let step = STEP.min(budget.work_left() / WORK).max(1);
            budget.take_work(step * WORK).map_err(|error| {
                // Spend the remainder that pays for nothing: a scan reports budgets that are spent to zero.
                budget.spend_work(WORK);
                error.at(self.cursor.position())
            })?;
            self.paid = self.bytes_read().saturating_add(step);
        }
        Ok(())
    }

    fn arg(&mut self, code: u8) -> Result<Arg> {
        let cursor = &mut self.cursor;
        let what = opcode_subject(code).ok_or_else(|| unknown_opcode(code))?;
        Ok(match code {
            op::PROTO | op::BINGET | op::BINPUT | op::EXT1 => Arg::Number(u64::from(self.u8(what)?)),
            op::EXT2 => Arg::Number(u64::from(u16::from_le_bytes(cursor.array(what)?))),
            op::EXT4 | op::LONG_BINGET | op::LONG_BINPUT => Arg::Number(self.u32(what)?),
            op::FRAME => Arg::Number(self.u64(what)?),
            op::GET | op::PUT => Arg::Number(NumberLine::read(cursor, what)?.index()?),
            op::BININT => Arg::Int(i64::from(i32::from_le_bytes(cursor.array(what)?))),
            op::BININT1 => Arg::Int(i64::from(self.u8(what)?)),
            op::BININT2 => Arg::Int(i64::from(u16::from_le_bytes(cursor.array(what)?))),
            op::INT => number(NumberLine::read(cursor, what)?.int()?),
            op::LONG => number(NumberLine::read(cursor, what)?.long()?),
            op::LONG1 => {
                let len = u64::from(self.u8(what)?);
                self.long(len, what)?
            }
            op::LONG4 => {
                let len = self.i32_len(what)?;
                self.long(len, what)?
            }
            op::FLOAT => Arg::Float(NumberLine::read(cursor, what)?.float()?),
            op::BINFLOAT => Arg::Float(f64::from_be_bytes(cursor.array(what)?)),
            op::SHORT_BINUNICODE => {
                let len = u64::from(self.u8(what)?);
                self.text(len, what)?
            }
            op::BINUNICODE => {
                let len = self.u32(what)?;
                self.text(len, what)?
            }
            op::BINUNICODE8 => {
                let len = self.u64(what)?;
                self.text(len, what)?
            }
            op::SHORT_BINSTRING => {
                let len = u64::from(self.u8(what)?);
                self.byte_string(len, what)?
            }
            op::BINSTRING => {
                let len = self.i32_len(what)?;
                self.byte_string(len, what)?
            }
            op::SHORT_BINBYTES => {
                let len = u64::from(self.u8(what)?);
                self.bytes(len, what)?
            }
            op::BINBYTES => {
                let len = self.u32(what)?;
                self.bytes(len, what)?
            }
            op::BINBYTES8 | op::BYTEARRAY8 => {
                let len = self.u64(what)?;
                self.bytes(len, what)?
            }
            op::STRING => self.quoted(what)?,
            op::UNICODE => self.unicode(what)?,
            op::GLOBAL | op::INST => Arg::Global(lines::line(cursor, what)?, lines::line(cursor, what)?),
            op::PERSID => {
                Arg::Text(Text { short: Some(lines::ascii(cursor, what)?), place: Location::Memory })
            }
            _ => Arg::None,
        })
    }

    fn u8(&mut self, what: &str) -> Result<u8> {
        let [byte] = self.cursor.array(what)?;
        Ok(byte)
    }

    fn u32(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from(u32::from_le_bytes(self.cursor.array(what)?)))
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.cursor.array(what)?))
    }

    /// A length in a signed integer.
    fn i32_len(&mut self, what: &str) -> Result<u64> {
        let len = i32::from_le_bytes(self.cursor.array(what)?);
        u64::try_from(len).map_err(|_| {
            Error::corrupt("pickle-length", format!("the length of {what} is negative")).found(len)
        })
    }

    fn long(&mut self, len: u64, what: &str) -> Result<Arg> {
        if len > MAX_NUMBER_BYTES && len <= self.cursor.remaining() {
            return Err(Error::limit("pickle-number", "the integer has too many bytes")
                .expected(format_args!("at most {MAX_NUMBER_BYTES}"))
                .found(len));
        }
        Ok(number(lines::two_complement(&self.cursor.bytes(len, what)?)))
    }

    fn text(&mut self, len: u64, what: &str) -> Result<Arg> {
        let span = Span { offset: self.cursor.position(), len, stored: Stored::Utf8 };
        self.record_nested(span)?;
        let place = Location::Source(span);
        let short = if len <= self.short {
            // Python also writes lone surrogates. Such text stays in the source, undecoded.
            String::from_utf8(self.cursor.bytes(len, what)?).ok().map(String::into_boxed_str)
        } else {
            self.skip(len, what)?;
            None
        };
        Ok(Arg::Text(Text { short, place }))
    }

    /// Skips bytes that are not opcodes.
    pub(super) fn skip_data(&mut self, len: u64, what: &str) -> Result<()> {
        self.skip(len, what)
    }

    /// Reads one byte that is not an opcode.
    pub(super) fn data_byte(&mut self, what: &str) -> Result<u8> {
        self.u8(what)
    }

    /// Skips a long string.
    fn skip(&mut self, len: u64, what: &str) -> Result<()> {
        // A sequential source unpacks the skipped bytes, which is work.
        if let Some(budget) = self.budget.as_ref().filter(|_| self.cursor.source().is_sequential()) {
            budget.take_work(len).map_err(|error| error.at(self.cursor.position()))?;
        }
        self.cursor.skip(len, what)?;
        self.skipped += len;
        Ok(())
    }

    /// Records the string at this position if it begins like a pickle and strings are collected.
    fn record_nested(&mut self, span: Span) -> Result<()> {
        if self.nested.is_none() || span.len > self.cursor.remaining() {
            return Ok(());
        }
        let most = nested::PROBE_LEN.min(usize::try_from(span.len).unwrap_or(usize::MAX));
        let head = self.cursor.peek_up_to(most)?;
        if nested::may_begin(head, span) { self.push_nested(span) } else { Ok(()) }
    }

    /// Same as [`record_nested`](Self::record_nested) for a line that was read; `head` is its beginning.
    fn record_nested_line(&mut self, head: &[u8], span: Span) -> Result<()> {
        if self.nested.is_some() && nested::may_begin(head, span) { self.push_nested(span) } else { Ok(()) }
    }

    fn push_nested(&mut self, span: Span) -> Result<()> {
        if let Some(budget) = &self.budget {
            budget.take_memory(2 * size_of::<Span>() as u64)?;
        }
        self.nested.get_or_insert_default().push(span);
        Ok(())
    }

    fn byte_string(&mut self, len: u64, what: &str) -> Result<Arg> {
        let span = Span { offset: self.cursor.position(), len, stored: Stored::Raw };
        self.record_nested(span)?;
        let short = if len <= SHORT_TEXT {
            let bytes = self.cursor.bytes(len, what)?;
            Some(bytes.into_iter().map(char::from).collect::<String>().into_boxed_str())
        } else {
            self.skip(len, what)?;
            None
        };
        Ok(Arg::ByteString(Text { short, place: Location::Source(span) }))
    }

    fn bytes(&mut self, len: u64, what: &str) -> Result<Arg> {
        let span = Span { offset: self.cursor.position(), len, stored: Stored::Raw };
        self.record_nested(span)?;
        let short = if len <= SHORT_BYTES {
            Some(self.cursor.bytes(len, what)?.into_boxed_slice())
        } else {
            self.skip(len, what)?;
            None
        };
        Ok(Arg::Bytes(Blob { short, place: Location::Source(span) }))
    }

    /// Reads past the end of a line. Returns its first bytes, its length and its last byte.
    fn long_line(&mut self, what: &str) -> Result<(Vec<u8>, u64, Option<u8>)> {
        let mut first = Vec::new();
        let (mut len, mut last) = (0u64, None);
        loop {
            self.pay()?;
            let [byte] = self.cursor.array::<1>(what)?;
            if byte == b'\n' {
                return Ok((first, len, last));
            }
            if len <= self.short {
                first.push(byte);
            }
            (len, last) = (len + 1, Some(byte));
        }
    }

    /// A quoted string with the escapes of Python 2.
    fn quoted(&mut self, what: &str) -> Result<Arg> {
        let offset = self.cursor.position();
        let (line, len, last) = self.long_line(what)?;
        // The quotes are the first and the last byte of the line; `line` may not hold the last one.
        let quote = line.first().copied().filter(|q| matches!(q, b'\'' | b'"'));
        let Some(quote) = quote.filter(|_| len >= 2) else {
            return Err(Error::corrupt("pickle-string", "the string is not quoted"));
        };
        if last != Some(quote) {
            return Err(Error::corrupt("pickle-string", "the string has no closing quote"));
        }
        let span = Span { offset: offset + 1, len: len - 2, stored: Stored::StringEscape };
        let inner = if len <= SHORT_TEXT { line.get(1..line.len() - 1) } else { None };
        self.record_nested_line(inner.or(line.get(1..)).unwrap_or_default(), span)?;
        let short = match inner {
            Some(inner) => Some(super::payload::unescape(inner, Stored::StringEscape)?),
            None => None,
        };
        let short = short.map(|bytes| bytes.into_iter().collect::<String>().into_boxed_str());
        Ok(Arg::ByteString(Text { short, place: Location::Source(span) }))
    }

    /// Text in Latin-1 with escapes for all other characters.
    fn unicode(&mut self, what: &str) -> Result<Arg> {
        let offset = self.cursor.position();
        let (line, len, _) = self.long_line(what)?;
        let span = Span { offset, len, stored: Stored::UnicodeEscape };
        self.record_nested_line(&line, span)?;
        let short = if len <= self.short {
            let text = super::payload::unescape(&line, Stored::UnicodeEscape);
            // Text that only inspection reads must not fail where a plain read would pass.
            let text = if len <= SHORT_TEXT { Some(text?) } else { text.ok() };
            text.map(|text| text.into_iter().collect::<String>().into_boxed_str())
        } else {
            None
        };
        Ok(Arg::Text(Text { short, place: Location::Source(span) }))
    }
}

impl Iterator for Opcodes {
    type Item = Result<Op>;

    /// Returns the next opcode; `None` after `STOP` or an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.stopped {
            return None;
        }
        let op = self.next_op();
        self.stopped |= op.is_err();
        Some(op)
    }
}

/// The error for a byte that is not an opcode.
pub(super) fn unknown_opcode(code: u8) -> Error {
    Error::corrupt("pickle-opcode", format!("not a plain pickle: byte {code:#04x} is not an opcode"))
        .found(format_args!("byte {code:#04x}"))
        .hint("if joblib wrote this file, load it with joblib and save the arrays as .npz")
}

fn number(number: Number) -> Arg {
    match number {
        Number::Bool(b) => Arg::Bool(b),
        Number::Int(n) => Arg::Int(n),
        Number::Big(bytes) => Arg::BigInt(bytes),
    }
}
