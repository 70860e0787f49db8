//! The instructions of a pickle, one by one, without a machine that follows them.

use super::graph::{Blob, Location, Span, Stored, Text};
use super::lines::{self, Number, NumberLine};
use super::nested;
use super::opcode::{self as op, opcode_name};
use weighbridge_core::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Cursor, SourceRef};

/// Text up to this many bytes is read into memory; longer text stays where it is.
const SHORT_TEXT: u64 = 256;
/// As [`SHORT_TEXT`], of a pickle that is judged: some texts of libraries are held against what they write.
const JUDGED_TEXT: u64 = 1024;
/// As [`SHORT_TEXT`], for bytes: a scalar's, but not an array's.
const SHORT_BYTES: u64 = 16;
/// Bytes of instructions that are paid for at a time. A pickle of a few bytes costs as much: it has a machine of its own.
const STEP: u64 = 1 << 8;
/// Work of a byte of instructions: following it takes longer than unpacking it.
const WORK: u64 = 4;
/// The most bytes of a whole number.
const LONGEST_NUMBER: u64 = 1 << 20;

/// One instruction.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// Offset in the source.
    pub offset: u64,
    /// The byte that stands for it.
    pub code: u8,
    /// What follows that byte.
    pub arg: Arg,
}

impl Op {
    /// The name that Python's `pickletools` has for it.
    pub fn name(&self) -> &'static str {
        opcode_name(self.code).unwrap_or("?")
    }
}

/// The argument of an instruction.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg {
    /// None: the machine takes what it needs from its stack.
    None,
    /// `True` or `False`, as protocols 0 and 1 wrote them.
    Bool(bool),
    /// A number to push.
    Int(i64),
    /// A larger number: little-endian two's complement.
    BigInt(Box<[u8]>),
    /// A real number.
    Float(f64),
    /// Text.
    Text(Text),
    /// A string of Python 2.
    ByteString(Text),
    /// Bytes.
    Bytes(Blob),
    /// A line: the module and the name of something to import.
    Global(Box<str>, Box<str>),
    /// A place in the memo, a protocol, the length of a frame, the code of an extension.
    Number(u64),
}

/// Decodes the instructions from a place in a source on. Ends behind `STOP`.
///
/// Bytes and long text are hopped over: only their place is given.
#[derive(Debug)]
pub struct Opcodes {
    cursor: Cursor,
    stopped: bool,
    /// Budget that pays for the instructions; `None` where they are not counted.
    budget: Option<Budget>,
    /// Bytes that may be read without taking more.
    paid: u64,
    start: u64,
    hopped: u64,
    /// Strings that may be pickles themselves. They are told as they are met: packed bytes would be unpacked from their start
    /// to look at them afterwards.
    within: Option<Vec<Span>>,
    /// Text up to this many bytes is read into memory.
    short: u64,
}

impl Opcodes {
    /// The instructions of `source` from `offset` on.
    pub fn new(source: &SourceRef, offset: u64) -> Self {
        let cursor = Cursor::new(source.clone(), offset);
        Self {
            cursor,
            stopped: false,
            budget: None,
            paid: 0,
            start: offset,
            hopped: 0,
            within: None,
            short: SHORT_TEXT,
        }
    }

    /// The source that is read.
    pub(super) fn source(&self) -> &SourceRef {
        self.cursor.source()
    }

    /// From here on, takes what is read as work of `budget`.
    pub(super) fn charge(&mut self, budget: &Budget) {
        (self.start, self.hopped, self.paid) = (self.cursor.position(), 0, 0);
        self.budget = Some(budget.clone());
    }

    /// From here on, takes down which strings begin as a pickle does.
    pub(super) fn look_within(&mut self) {
        self.within = Some(Vec::new());
        self.short = JUDGED_TEXT;
    }

    /// Strings that begin as a pickle does, since [`look_within`](Self::look_within); ends the search.
    pub(super) fn begun(&mut self) -> Vec<Span> {
        self.within.take().unwrap_or_default()
    }

    /// Bytes that were read, without those that were hopped over.
    fn bytes_read(&self) -> u64 {
        (self.cursor.position() - self.start).saturating_sub(self.hopped)
    }

    /// True where a pickle that declares its protocol begins here. Nothing is gone past: what is packed goes on.
    pub fn at_protocol(&mut self) -> bool {
        matches!(self.cursor.peek(), Ok(Some([op::PROTO, _])))
    }

    /// Offset just behind the last instruction.
    pub fn position(&self) -> u64 {
        self.cursor.position()
    }

    /// The bytes left in the source.
    pub(super) fn remaining(&self) -> u64 {
        self.cursor.remaining()
    }

    /// Reads the next instruction, whatever came before.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for what is no instruction, `truncated` at the end of the source,
    /// [`weighbridge_core::Kind::Limit`] for numbers and names of absurd length, and what the source says.
    pub fn next_op(&mut self) -> Result<Op> {
        let offset = self.cursor.position();
        self.may_go_on()?;
        let [code] = self.cursor.array::<1>("a pickle")?;
        let arg = self.arg(code).map_err(|e| e.at(offset))?;
        self.stopped = code == op::STOP;
        Ok(Op { offset, code, arg })
    }

    /// Fails where no more may be read.
    fn may_go_on(&mut self) -> Result<()> {
        if let Some(budget) = self.budget.as_ref().filter(|_| self.bytes_read() >= self.paid) {
            let step = STEP.min(budget.work_left() / WORK).max(1);
            budget.take_work(step * WORK).map_err(|error| {
                // A rest that pays for nothing is used up: a scan reports budgets of which nothing is left.
                budget.spend_work(WORK);
                error.at(self.cursor.position())
            })?;
            self.paid = self.bytes_read().saturating_add(step);
        }
        Ok(())
    }

    fn arg(&mut self, code: u8) -> Result<Arg> {
        let cursor = &mut self.cursor;
        let what = opcode_name(code).ok_or_else(|| {
            Error::corrupt("pickle-opcode", "this is no instruction of a pickle")
                .found(format_args!("byte {code:#04x}"))
        })?;
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

    /// A length that is signed, though it counts.
    fn i32_len(&mut self, what: &str) -> Result<u64> {
        let len = i32::from_le_bytes(self.cursor.array(what)?);
        u64::try_from(len).map_err(|_| {
            Error::corrupt("pickle-length", format!("the length of {what} is negative")).found(len)
        })
    }

    fn long(&mut self, len: u64, what: &str) -> Result<Arg> {
        if len > LONGEST_NUMBER && len <= self.cursor.remaining() {
            return Err(Error::limit("pickle-number", "the number has too many bytes")
                .expected(format_args!("at most {LONGEST_NUMBER}"))
                .found(len));
        }
        Ok(number(lines::two_complement(&self.cursor.bytes(len, what)?)))
    }

    fn text(&mut self, len: u64, what: &str) -> Result<Arg> {
        let span = Span { offset: self.cursor.position(), len, stored: Stored::Utf8 };
        self.look(span)?;
        let place = Location::Source(span);
        let short = if len <= self.short {
            // Python also writes halves of surrogate pairs. Such text is kept as it is, unread.
            String::from_utf8(self.cursor.bytes(len, what)?).ok().map(String::into_boxed_str)
        } else {
            self.hop(len, what)?;
            None
        };
        Ok(Arg::Text(Text { short, place }))
    }

    /// Hops over bytes that are no instructions.
    pub(super) fn hop_over(&mut self, len: u64, what: &str) -> Result<()> {
        self.hop(len, what)
    }

    /// One byte that is no instruction.
    pub(super) fn one(&mut self, what: &str) -> Result<u8> {
        self.u8(what)
    }

    /// Hops over a long string.
    fn hop(&mut self, len: u64, what: &str) -> Result<()> {
        // What is unpacked on the way is work, though nothing of it is looked at.
        if let Some(budget) = self.budget.as_ref().filter(|_| self.cursor.source().is_sequential()) {
            budget.take_work(len).map_err(|error| error.at(self.cursor.position()))?;
        }
        self.cursor.skip(len, what)?;
        self.hopped += len;
        Ok(())
    }

    /// Takes down that the string which stands here begins as a pickle does, where it does and somebody wants to know.
    fn look(&mut self, span: Span) -> Result<()> {
        if self.within.is_none() || span.len > self.cursor.remaining() {
            return Ok(());
        }
        let most = nested::LOOKED_AT.min(usize::try_from(span.len).unwrap_or(usize::MAX));
        let head = self.cursor.peek_up_to(most)?;
        if nested::may_begin(head, span) { self.begins(span) } else { Ok(()) }
    }

    /// As [`look`](Self::look), for a line that was read: `head` is its beginning.
    fn look_back(&mut self, head: &[u8], span: Span) -> Result<()> {
        if self.within.is_some() && nested::may_begin(head, span) { self.begins(span) } else { Ok(()) }
    }

    fn begins(&mut self, span: Span) -> Result<()> {
        if let Some(budget) = &self.budget {
            budget.take_memory(2 * size_of::<Span>() as u64)?;
        }
        self.within.get_or_insert_default().push(span);
        Ok(())
    }

    fn byte_string(&mut self, len: u64, what: &str) -> Result<Arg> {
        let span = Span { offset: self.cursor.position(), len, stored: Stored::Raw };
        self.look(span)?;
        let short = if len <= SHORT_TEXT {
            let bytes = self.cursor.bytes(len, what)?;
            Some(bytes.into_iter().map(char::from).collect::<String>().into_boxed_str())
        } else {
            self.hop(len, what)?;
            None
        };
        Ok(Arg::ByteString(Text { short, place: Location::Source(span) }))
    }

    fn bytes(&mut self, len: u64, what: &str) -> Result<Arg> {
        let span = Span { offset: self.cursor.position(), len, stored: Stored::Raw };
        self.look(span)?;
        let short = if len <= SHORT_BYTES {
            Some(self.cursor.bytes(len, what)?.into_boxed_slice())
        } else {
            self.hop(len, what)?;
            None
        };
        Ok(Arg::Bytes(Blob { short, place: Location::Source(span) }))
    }

    /// Goes behind the end of a line. Gives the first bytes of it, its length and its last byte.
    fn long_line(&mut self, what: &str) -> Result<(Vec<u8>, u64, Option<u8>)> {
        let mut first = Vec::new();
        let (mut len, mut last) = (0u64, None);
        loop {
            self.may_go_on()?;
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

    /// A string in quotes, as Python 2 shows it.
    fn quoted(&mut self, what: &str) -> Result<Arg> {
        let offset = self.cursor.position();
        let (line, len, last) = self.long_line(what)?;
        // The quotes are the first and the last byte of the line; the last one may not be in `line`.
        let quote = line.first().copied().filter(|q| matches!(q, b'\'' | b'"'));
        let Some(quote) = quote.filter(|_| len >= 2) else {
            return Err(Error::corrupt("pickle-string", "the string has no quotes"));
        };
        if last != Some(quote) {
            return Err(Error::corrupt("pickle-string", "the string has no quote at its end"));
        }
        let span = Span { offset: offset + 1, len: len - 2, stored: Stored::StringEscape };
        let inner = if len <= SHORT_TEXT { line.get(1..line.len() - 1) } else { None };
        self.look_back(inner.or(line.get(1..)).unwrap_or_default(), span)?;
        let short = match inner {
            Some(inner) => Some(super::payload::unescape(inner, Stored::StringEscape)?),
            None => None,
        };
        let short = short.map(|bytes| bytes.into_iter().collect::<String>().into_boxed_str());
        Ok(Arg::ByteString(Text { short, place: Location::Source(span) }))
    }

    /// Text with escapes for what is not Latin-1.
    fn unicode(&mut self, what: &str) -> Result<Arg> {
        let offset = self.cursor.position();
        let (line, len, _) = self.long_line(what)?;
        let span = Span { offset, len, stored: Stored::UnicodeEscape };
        self.look_back(&line, span)?;
        let short = if len <= self.short {
            let text = super::payload::unescape(&line, Stored::UnicodeEscape);
            // What is read for the judge alone is not held against more than the reader holds it.
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

    /// The next instruction; `None` behind `STOP` and behind an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.stopped {
            return None;
        }
        let op = self.next_op();
        self.stopped |= op.is_err();
        Some(op)
    }
}

fn number(number: Number) -> Arg {
    match number {
        Number::Bool(b) => Arg::Bool(b),
        Number::Int(n) => Arg::Int(n),
        Number::Big(bytes) => Arg::BigInt(bytes),
    }
}
