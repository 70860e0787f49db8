//! JSON with positions: a flat tree of tokens that refer to the text.
//!
//! Programs are changed by editing their text, and errors report byte offsets, so every value stores its position.
//! Numbers keep their text, so there is no rounding. The grammar is exactly that of RFC 8259.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;
use weighbridge_core::Budget;
use weighbridge_core::error::{Error, Result};

/// Maximum number of characters of the file shown in an error.
const MAX_SHOWN: usize = 40;

/// Kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    True,
    False,
    Number,
    /// String without escapes: its bytes are its text.
    Plain,
    /// String with escapes.
    Escaped,
    Array,
    /// Object whose children alternate between keys and values.
    Object,
}

/// Value in the tree. Positions have 32 bits, so a value takes 16 bytes.
#[derive(Debug, Clone, Copy)]
struct Node {
    start: u32,
    end: u32,
    /// Index of the node after this one and its children.
    next: u32,
    kind: Kind,
}

/// JSON text with all its values.
#[derive(Debug)]
pub(super) struct Document<'a> {
    text: &'a str,
    nodes: Vec<Node>,
}

/// Value in a [`Document`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'d> {
    document: &'d Document<'d>,
    at: usize,
}

impl<'a> Document<'a> {
    /// Parses all of `bytes`. Memory: 16 bytes for each value.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `not-utf8`, `bad-json`; [`weighbridge_core::Kind::Limit`]: `nesting`;
    /// [`weighbridge_core::Kind::Unsupported`]: `too-long` for 4 GiB and more.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(Error::unsupported("too-long", "JSON texts of 4 GiB and more are not supported"));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|e| Error::corrupt("not-utf8", "the program is not UTF-8").at(e.valid_up_to() as u64))?;
        let mut scanner = Scanner { bytes, text, at: 0, nodes: Vec::new(), open: Vec::new() };
        // A byte order mark is accepted, as in Paddle's own parser.
        if text.starts_with('\u{feff}') {
            scanner.at = '\u{feff}'.len_utf8();
        }
        scanner.document()?;
        Ok(Self { text, nodes: scanner.nodes })
    }

    /// Returns the outermost value.
    pub(super) fn root(&'a self) -> Item<'a> {
        Item { document: self, at: 0 }
    }
}

impl<'d> Item<'d> {
    fn node(self) -> Node {
        self.document.nodes[self.at]
    }

    pub(super) fn kind(self) -> Kind {
        self.node().kind
    }

    /// Returns the byte range of the value in the text.
    pub(super) fn span(self) -> Range<usize> {
        let node = self.node();
        node.start as usize..node.end as usize
    }

    /// Returns the offset of the first byte, for errors.
    pub(super) fn offset(self) -> u64 {
        u64::from(self.node().start)
    }

    /// Returns the original text of the value.
    pub(super) fn raw(self) -> &'d str {
        &self.document.text[self.span()]
    }

    /// Iterates over the elements of an array; empty for other kinds.
    pub(super) fn elements(self) -> Children<'d> {
        self.children(self.kind() == Kind::Array)
    }

    /// Iterates over alternating keys and values of an object; empty for other kinds.
    fn members(self) -> Children<'d> {
        self.children(self.kind() == Kind::Object)
    }

    fn children(self, any: bool) -> Children<'d> {
        let end = if any { self.node().next as usize } else { 0 };
        Children { document: Some(self.document), at: self.at + 1, end }
    }

    /// Returns the values of the given keys of an object.
    ///
    /// # Errors
    /// `bad-program` if the value is not an object, `duplicate-key` for a duplicate among the given keys.
    pub(super) fn fields<const N: usize>(self, what: &str, keys: [&str; N]) -> Result<[Option<Self>; N]> {
        if self.kind() != Kind::Object {
            return Err(self.wrong(what, "an object"));
        }
        let mut found = [None; N];
        let mut members = self.members();
        while let (Some(key), Some(value)) = (members.next(), members.next()) {
            let name = key.string();
            let Some(slot) = keys.iter().position(|k| *k == name) else { continue };
            if found[slot].replace(value).is_some() {
                return Err(Error::corrupt("duplicate-key", format!("{what} has a duplicate key"))
                    .at(key.offset())
                    .found(key.shown())
                    .hint("remove one of the two; parsers differ in which one they use"));
            }
        }
        Ok(found)
    }

    /// Returns the text of a string; empty for other kinds.
    fn string(self) -> Cow<'d, str> {
        let raw = self.raw();
        match self.kind() {
            Kind::Plain => Cow::Borrowed(raw.get(1..raw.len().saturating_sub(1)).unwrap_or("")),
            // The scanner has checked the escapes, so this cannot fail.
            Kind::Escaped => Cow::Owned(serde_json::from_str(raw).unwrap_or_default()),
            _ => Cow::Borrowed(""),
        }
    }

    /// Returns the text of a string; empty for other kinds.
    pub(super) fn string_text(self) -> String {
        self.string().into_owned()
    }

    /// Returns the text of a string.
    ///
    /// # Errors
    /// `bad-program` for other kinds.
    pub(super) fn text(self, what: &str) -> Result<Cow<'d, str>> {
        match self.kind() {
            Kind::Plain | Kind::Escaped => Ok(self.string()),
            _ => Err(self.wrong(what, "a string")),
        }
    }

    /// Returns the number if it is a signed 64-bit integer. `1.0` is an integer, as in Paddle.
    pub(super) fn integer(self) -> Option<i64> {
        if self.kind() != Kind::Number {
            return None;
        }
        let raw = self.raw();
        if let Ok(number) = raw.parse() {
            return Some(number);
        }
        let whole = raw.split_once('.').filter(|(_, zeros)| zeros.bytes().all(|b| b == b'0'))?;
        whole.0.parse().ok()
    }

    /// Returns the number, rounded once to 64 bits; `None` if it exceeds their range.
    pub(super) fn float(self) -> Option<f64> {
        if self.kind() != Kind::Number {
            return None;
        }
        self.raw().parse().ok().filter(|x: &f64| x.is_finite())
    }

    /// Returns the boolean value, also if it is written as a number.
    pub(super) fn truth(self) -> Option<bool> {
        match self.kind() {
            Kind::True => Some(true),
            Kind::False => Some(false),
            _ => self.integer().map(|n| n != 0),
        }
    }

    /// Returns the error for a value of the wrong kind.
    pub(super) fn wrong(self, what: &str, expected: &str) -> Error {
        Error::corrupt("bad-program", format!("{what} has the wrong type for a PIR program"))
            .at(self.offset())
            .expected(expected)
            .found(self.shown())
    }

    /// Returns the error for a missing key.
    pub(super) fn missing(self, what: &str, key: &str) -> Error {
        Error::corrupt("missing-field", format!("{what} lacks a required key"))
            .at(self.offset())
            .expected(key)
    }

    /// Returns the beginning of the text of the value.
    pub(super) fn shown(self) -> String {
        shown(self.raw())
    }
}

fn shown(raw: &str) -> String {
    let mut text: String = raw.chars().take(MAX_SHOWN).collect();
    if text.len() < raw.len() {
        text.push('…');
    }
    text
}

/// Iterator over sibling values.
#[derive(Debug, Clone)]
pub(super) struct Children<'d> {
    document: Option<&'d Document<'d>>,
    at: usize,
    end: usize,
}

impl Children<'_> {
    /// Returns an empty iterator.
    pub(super) fn none() -> Self {
        Self { document: None, at: 0, end: 0 }
    }
}

impl<'d> Iterator for Children<'d> {
    type Item = Item<'d>;

    fn next(&mut self) -> Option<Item<'d>> {
        if self.at >= self.end {
            return None;
        }
        let item = Item { document: self.document?, at: self.at };
        self.at = item.node().next as usize;
        Some(item)
    }
}

/// Scanner that reads the text once, without recursion.
struct Scanner<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    nodes: Vec<Node>,
    /// Indices of open arrays and objects.
    open: Vec<usize>,
}

impl Scanner<'_> {
    fn document(&mut self) -> Result<()> {
        self.space();
        // Each iteration reads one value or opens one container, then the punctuation after it.
        loop {
            let opened = self.value()?;
            self.space();
            if opened {
                if self.peek() == Some(self.closing()) {
                    self.close();
                } else {
                    self.key_if_object()?;
                    continue;
                }
            }
            while !self.open.is_empty() {
                self.space();
                match self.peek() {
                    Some(b',') => break,
                    Some(byte) if byte == self.closing() => self.close(),
                    _ => return Err(self.error("missing comma or end of the list")),
                }
            }
            self.space();
            if self.open.is_empty() {
                break;
            }
            self.at += 1;
            self.space();
            self.key_if_object()?;
        }
        if self.at < self.bytes.len() {
            return Err(self.error("trailing content after the program"));
        }
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn innermost(&self) -> Option<Kind> {
        self.open.last().map(|&place| self.nodes[place].kind)
    }

    fn closing(&self) -> u8 {
        if self.innermost() == Some(Kind::Object) { b'}' } else { b']' }
    }

    fn close(&mut self) {
        self.at += 1;
        if let Some(place) = self.open.pop() {
            self.nodes[place].end = narrow(self.at);
            self.nodes[place].next = narrow(self.nodes.len());
        }
    }

    /// Reads a key and its colon, if the innermost container is an object.
    fn key_if_object(&mut self) -> Result<()> {
        if self.innermost() != Some(Kind::Object) {
            return Ok(());
        }
        if self.peek() != Some(b'"') {
            return Err(self.error("missing quoted key"));
        }
        self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.error("missing colon"));
        }
        self.at += 1;
        self.space();
        Ok(())
    }

    /// Reads one value; true if it opened an array or object.
    fn value(&mut self) -> Result<bool> {
        match self.peek() {
            Some(b'{') => return self.container(Kind::Object),
            Some(b'[') => return self.container(Kind::Array),
            Some(b'"') => self.string()?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Kind::True)?,
            Some(b'f') => self.word("false", Kind::False)?,
            Some(b'n') => self.word("null", Kind::Null)?,
            Some(_) => return Err(self.error("missing value")),
            None => return Err(self.error("unexpected end of the text")),
        }
        Ok(false)
    }

    fn container(&mut self, kind: Kind) -> Result<bool> {
        if self.open.len() >= Budget::DEPTH {
            return Err(Error::limit("nesting", "arrays and objects are nested too deeply")
                .at(self.at as u64)
                .expected(format_args!("at most {} levels", Budget::DEPTH)));
        }
        self.open.push(self.nodes.len());
        self.push(kind, self.at);
        self.at += 1;
        Ok(true)
    }

    /// Adds a value that ends at the current position.
    fn push(&mut self, kind: Kind, start: usize) {
        let next = narrow(self.nodes.len() + 1);
        self.nodes.push(Node { start: narrow(start), end: narrow(self.at), next, kind });
    }

    fn word(&mut self, word: &str, kind: Kind) -> Result<()> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.error("missing value"));
        }
        let start = self.at;
        self.at += word.len();
        self.push(kind, start);
        Ok(())
    }

    fn string(&mut self) -> Result<()> {
        let start = self.at;
        let mut kind = Kind::Plain;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    kind = Kind::Escaped;
                    self.at += 2;
                }
                Some(0..0x20) => return Err(self.error("control character in a string")),
                Some(_) => self.at += 1,
                None => {
                    self.at = self.bytes.len();
                    return Err(self.error("unterminated string"));
                }
            }
        }
        self.at += 1;
        if kind == Kind::Escaped && serde_json::from_str::<String>(&self.text[start..self.at]).is_err() {
            self.at = start;
            return Err(self.error("invalid escape in a string"));
        }
        self.push(kind, start);
        Ok(())
    }

    fn number(&mut self) -> Result<()> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        // Leading zeros are not allowed.
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        self.push(Kind::Number, start);
        Ok(())
    }

    fn digits(&mut self) -> Result<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.error("missing digit"));
        }
        Ok(())
    }

    fn error(&self, message: &str) -> Error {
        let at = self.at.min(self.bytes.len());
        let error = Error::corrupt("bad-json", format!("the program is not JSON: {message}")).at(at as u64);
        match self.text.get(at..) {
            Some("") => error.found("the end of the file"),
            Some(rest) => error.found(shown(rest)),
            None => error,
        }
    }
}

/// Converts a position in a text that is known to be shorter than 4 GiB.
fn narrow(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
