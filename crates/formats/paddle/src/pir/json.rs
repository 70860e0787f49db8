//! JSON with places: a flat tree of tokens that points into the text.
//!
//! A program is changed by cutting and pasting its text, and an error names the byte where it
//! lies; so every value must know where it stands. Numbers stay as they are written, so nothing
//! is rounded on the way. The grammar is that of RFC 8259, to the letter.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;
use weighbridge_core::Budget;
use weighbridge_core::error::{Error, Result};

/// Characters of the file that are shown in an error.
const SHOWN: usize = 40;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    True,
    False,
    Number,
    /// A string without escapes: its bytes are its text.
    Plain,
    /// A string with escapes.
    Escaped,
    Array,
    /// Its children are keys and values by turns.
    Object,
}

/// One value. Places are 32 bits: a tree costs 16 bytes a value.
#[derive(Debug, Clone, Copy)]
struct Node {
    start: u32,
    end: u32,
    /// The node after this one and all that it holds.
    next: u32,
    kind: Kind,
}

/// A text that is JSON, with all its values.
#[derive(Debug)]
pub(super) struct Document<'a> {
    text: &'a str,
    nodes: Vec<Node>,
}

/// A value in a [`Document`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'d> {
    document: &'d Document<'d>,
    at: usize,
}

impl<'a> Document<'a> {
    /// Reads all of `bytes`; takes 16 bytes of memory a value.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `not-utf8`, `bad-json`; [`weighbridge_core::Kind::Limit`]: `nesting`;
    /// [`weighbridge_core::Kind::Unsupported`]: `too-long` from 4 GiB on.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(Error::unsupported("too-long", "a JSON text of 4 GiB or more is not read"));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|e| Error::corrupt("not-utf8", "the program is not UTF-8").at(e.valid_up_to() as u64))?;
        let mut scanner = Scanner { bytes, text, at: 0, nodes: Vec::new(), open: Vec::new() };
        // A byte order mark is let pass, as Paddle's own parser does.
        if text.starts_with('\u{feff}') {
            scanner.at = '\u{feff}'.len_utf8();
        }
        scanner.document()?;
        Ok(Self { text, nodes: scanner.nodes })
    }

    /// The outermost value.
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

    /// The bytes of the text that it takes.
    pub(super) fn span(self) -> Range<usize> {
        let node = self.node();
        node.start as usize..node.end as usize
    }

    /// Its first byte, for errors.
    pub(super) fn offset(self) -> u64 {
        u64::from(self.node().start)
    }

    /// The text as it stands in the file.
    pub(super) fn raw(self) -> &'d str {
        &self.document.text[self.span()]
    }

    /// The elements of an array; nothing for any other kind.
    pub(super) fn elements(self) -> Children<'d> {
        self.children(self.kind() == Kind::Array)
    }

    /// Keys and values of an object, by turns; nothing for any other kind.
    fn members(self) -> Children<'d> {
        self.children(self.kind() == Kind::Object)
    }

    fn children(self, any: bool) -> Children<'d> {
        let end = if any { self.node().next as usize } else { 0 };
        Children { document: Some(self.document), at: self.at + 1, end }
    }

    /// The values of these keys of an object.
    ///
    /// # Errors
    /// `bad-program` where it is no object, `duplicate-key` where one of the keys stands twice.
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
                return Err(Error::corrupt("duplicate-key", format!("{what} has a key twice"))
                    .at(key.offset())
                    .found(key.shown())
                    .hint("readers differ in which of the two they take, so neither is believed"));
            }
        }
        Ok(found)
    }

    /// The text of a string; empty for any other kind.
    fn string(self) -> Cow<'d, str> {
        let raw = self.raw();
        match self.kind() {
            Kind::Plain => Cow::Borrowed(raw.get(1..raw.len().saturating_sub(1)).unwrap_or("")),
            // The scanner has read it once already, so this cannot fail.
            Kind::Escaped => Cow::Owned(serde_json::from_str(raw).unwrap_or_default()),
            _ => Cow::Borrowed(""),
        }
    }

    /// The text of a string; empty for any other kind.
    pub(super) fn string_text(self) -> String {
        self.string().into_owned()
    }

    /// The text of a string.
    ///
    /// # Errors
    /// `bad-program` for any other kind.
    pub(super) fn text(self, what: &str) -> Result<Cow<'d, str>> {
        match self.kind() {
            Kind::Plain | Kind::Escaped => Ok(self.string()),
            _ => Err(self.wrong(what, "a string")),
        }
    }

    /// The number, where it is a whole one of 64 bits with sign. `1.0` is whole, as for Paddle.
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

    /// The number, rounded once to 64 bits; none where it is too large for them.
    pub(super) fn float(self) -> Option<f64> {
        if self.kind() != Kind::Number {
            return None;
        }
        self.raw().parse().ok().filter(|x: &f64| x.is_finite())
    }

    /// The truth value, also where it is written as a number.
    pub(super) fn truth(self) -> Option<bool> {
        match self.kind() {
            Kind::True => Some(true),
            Kind::False => Some(false),
            _ => self.integer().map(|n| n != 0),
        }
    }

    /// The error of a value of the wrong kind.
    pub(super) fn wrong(self, what: &str, expected: &str) -> Error {
        Error::corrupt("bad-program", format!("{what} is not what a PIR program holds there"))
            .at(self.offset())
            .expected(expected)
            .found(self.shown())
    }

    /// The error of a key that is not there.
    pub(super) fn missing(self, what: &str, key: &str) -> Error {
        Error::corrupt("missing-field", format!("{what} lacks a key")).at(self.offset()).expected(key)
    }

    /// The beginning of its text.
    pub(super) fn shown(self) -> String {
        shown(self.raw())
    }
}

fn shown(raw: &str) -> String {
    let mut text: String = raw.chars().take(SHOWN).collect();
    if text.len() < raw.len() {
        text.push('…');
    }
    text
}

/// Values one after the other.
#[derive(Debug, Clone)]
pub(super) struct Children<'d> {
    document: Option<&'d Document<'d>>,
    at: usize,
    end: usize,
}

impl Children<'_> {
    /// No values at all.
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

/// Walks over the text once, without recursion.
struct Scanner<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    nodes: Vec<Node>,
    /// Arrays and objects that are not closed yet.
    open: Vec<usize>,
}

impl Scanner<'_> {
    fn document(&mut self) -> Result<()> {
        self.space();
        // Each turn reads one value or opens one container, then all that may follow it.
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
                    _ => return Err(self.error("a comma or the end of the list is missing")),
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
            return Err(self.error("there is more after the end of the program"));
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

    /// In an object, reads a key and its colon.
    fn key_if_object(&mut self) -> Result<()> {
        if self.innermost() != Some(Kind::Object) {
            return Ok(());
        }
        if self.peek() != Some(b'"') {
            return Err(self.error("a key in quotes is missing"));
        }
        self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.error("a colon is missing"));
        }
        self.at += 1;
        self.space();
        Ok(())
    }

    /// Reads one value; true where it opened an array or object.
    fn value(&mut self) -> Result<bool> {
        match self.peek() {
            Some(b'{') => return self.container(Kind::Object),
            Some(b'[') => return self.container(Kind::Array),
            Some(b'"') => self.string()?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Kind::True)?,
            Some(b'f') => self.word("false", Kind::False)?,
            Some(b'n') => self.word("null", Kind::Null)?,
            Some(_) => return Err(self.error("a value is missing")),
            None => return Err(self.error("the text ends in the middle")),
        }
        Ok(false)
    }

    fn container(&mut self, kind: Kind) -> Result<bool> {
        if self.open.len() >= Budget::DEPTH {
            return Err(Error::limit("nesting", "arrays and objects are nested too deep")
                .at(self.at as u64)
                .expected(format_args!("at most {} levels", Budget::DEPTH)));
        }
        self.open.push(self.nodes.len());
        self.push(kind, self.at);
        self.at += 1;
        Ok(true)
    }

    /// Notes a value that ends here.
    fn push(&mut self, kind: Kind, start: usize) {
        let next = narrow(self.nodes.len() + 1);
        self.nodes.push(Node { start: narrow(start), end: narrow(self.at), next, kind });
    }

    fn word(&mut self, word: &str, kind: Kind) -> Result<()> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.error("a value is missing"));
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
                Some(0..0x20) => return Err(self.error("a control character stands in a string")),
                Some(_) => self.at += 1,
                None => {
                    self.at = self.bytes.len();
                    return Err(self.error("a string does not end"));
                }
            }
        }
        self.at += 1;
        if kind == Kind::Escaped && serde_json::from_str::<String>(&self.text[start..self.at]).is_err() {
            self.at = start;
            return Err(self.error("a string has an escape that is none"));
        }
        self.push(kind, start);
        Ok(())
    }

    fn number(&mut self) -> Result<()> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        // No leading zeros.
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
            return Err(self.error("a digit is missing"));
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

/// A place in a text that was found to be shorter than 4 GiB.
fn narrow(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
