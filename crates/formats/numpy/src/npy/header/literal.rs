//! Parser of the subset of Python literals that headers use.

use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;

/// Maximum nesting depth. A structured type with nested fields has a few levels.
const MAX_DEPTH: usize = 32;

/// Maximum number of keys of a dict. The header has three.
const MAX_KEYS: usize = 8;

/// A value. Content that numeric headers do not have is reduced to [`Literal::Other`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Literal {
    Text(String),
    Bool(bool),
    Int(u64),
    /// An integer below zero.
    Negative,
    /// An integer above 2^64 - 1.
    Huge,
    Tuple(Vec<Literal>),
    /// A list, a dict within the dict, or None.
    Other,
}

/// Key, value, and the source text of the value.
type Pair<'a> = (Literal, (Literal, &'a str));

/// Parser with the rules of `ast.literal_eval`: any blanks, either quote, optional trailing comma.
pub(super) struct Parser<'a> {
    text: &'a str,
    at: usize,
    longs: bool,
    dimensions: u64,
}

impl<'a> Parser<'a> {
    /// Creates a parser of `text`. `longs`: integers may end in L; `dimensions`: maximum number of items of a
    /// tuple.
    pub(super) fn new(text: &'a str, longs: bool, dimensions: u64) -> Self {
        Self { text, at: 0, longs, dimensions }
    }

    /// Parses the whole text as one dict.
    pub(super) fn whole_dict(mut self) -> Result<Vec<Pair<'a>>> {
        self.blanks();
        self.expect('{')?;
        let pairs = self.pairs(0)?;
        self.blanks();
        match self.peek() {
            None => Ok(pairs),
            Some(_) => Err(self.fail("text follows the dict")),
        }
    }

    fn fail(&self, message: &str) -> Error {
        let rest: String = self.rest().chars().take(20).collect();
        Error::corrupt("npy-header", format!("the npy header is not a Python dict literal: {message}"))
            .found(weighbridge_core::checkpoint::escape_text(&rest))
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r' | '\x0c')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, wanted: char) -> Result<()> {
        self.blanks();
        if self.peek() == Some(wanted) {
            self.at += 1;
            return Ok(());
        }
        Err(self.fail(&format!("missing `{wanted}`")))
    }

    /// Skips `wanted` if it is next.
    fn skip(&mut self, wanted: char) -> bool {
        self.blanks();
        let there = self.peek() == Some(wanted);
        self.at += usize::from(there);
        there
    }

    /// Parses the pairs of a dict behind its opening brace, and the closing brace.
    fn pairs(&mut self, depth: usize) -> Result<Vec<Pair<'a>>> {
        let mut pairs = Vec::new();
        while !self.skip('}') {
            if pairs.len() == MAX_KEYS {
                return Err(self.fail("too many keys"));
            }
            let key = self.value(depth + 1)?;
            self.expect(':')?;
            self.blanks();
            let from = self.at;
            let value = self.value(depth + 1)?;
            pairs.push((key, (value, self.text.get(from..self.at).unwrap_or(""))));
            if !self.skip(',') {
                self.expect('}')?;
                break;
            }
        }
        Ok(pairs)
    }

    /// Parses the items up to `close`; the flag is true for a trailing comma. Items of a list are dropped.
    fn items(&mut self, close: char, depth: usize) -> Result<(Vec<Literal>, bool)> {
        let (mut items, mut comma) = (Vec::new(), false);
        while !self.skip(close) {
            let item = self.value(depth + 1)?;
            if close == ')' {
                items.push(item);
                // The longest tuple is the shape; a field of a structured type has three items.
                let most = self.dimensions.max(3);
                Limits::check("dimensions", "dimensions", items.len() as u64, most)?;
            }
            comma = self.skip(',');
            if !comma {
                self.expect(close)?;
                break;
            }
        }
        Ok((items, comma))
    }

    fn value(&mut self, depth: usize) -> Result<Literal> {
        if depth > MAX_DEPTH {
            return Err(self.fail("nested too deep"));
        }
        self.blanks();
        match self.peek() {
            Some('{') => {
                self.at += 1;
                self.pairs(depth)?;
                Ok(Literal::Other)
            }
            Some('[') => {
                self.at += 1;
                self.items(']', depth)?;
                Ok(Literal::Other)
            }
            Some('(') => {
                self.at += 1;
                let (mut items, comma) = self.items(')', depth)?;
                // A single value in parentheses is that value; a comma makes it a tuple.
                match items.pop() {
                    Some(one) if items.is_empty() && !comma => Ok(one),
                    last => {
                        items.extend(last);
                        Ok(Literal::Tuple(items))
                    }
                }
            }
            Some('\'' | '"') => self.text(),
            Some('-' | '+' | '0'..='9') => self.integer(),
            Some('u' | 'U') if matches!(self.rest().as_bytes().get(1), Some(b'\'' | b'"')) => {
                self.at += 1;
                self.text()
            }
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<Literal> {
        let len = self.rest().bytes().take_while(u8::is_ascii_alphabetic).count();
        let value = match self.rest().get(..len) {
            Some("True") => Literal::Bool(true),
            Some("False") => Literal::Bool(false),
            Some("None") => Literal::Other,
            _ => return Err(self.fail("missing value")),
        };
        self.at += len;
        Ok(value)
    }

    fn integer(&mut self) -> Result<Literal> {
        let negative = self.peek() == Some('-');
        self.at += usize::from(matches!(self.peek(), Some('-' | '+')));
        self.blanks();
        let len = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let digits = self.rest().get(..len).unwrap_or("");
        if digits.is_empty() || (digits.starts_with('0') && digits.bytes().any(|b| b != b'0')) {
            return Err(self.fail("not a decimal integer"));
        }
        self.at += len;
        if self.longs && self.peek() == Some('L') {
            self.at += 1;
        }
        if self.peek().is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_')) {
            return Err(self.fail("not a decimal integer"));
        }
        Ok(match digits.parse::<u64>() {
            Ok(0) => Literal::Int(0),
            _ if negative => Literal::Negative,
            Ok(n) => Literal::Int(n),
            Err(_) => Literal::Huge,
        })
    }

    /// Parses a quoted string, with the escape sequences that names can contain.
    fn text(&mut self) -> Result<Literal> {
        let quote = self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n' | '\r') => return Err(self.fail("unterminated string")),
                c if c == quote => return Ok(Literal::Text(text)),
                Some('\\') => text.push(self.escape()?),
                Some(c) => text.push(c),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let digits = match self.next() {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(c @ ('\\' | '\'' | '"')) => return Ok(c),
            _ => return Err(self.fail("unknown escape sequence")),
        };
        let code = self.rest().get(..digits).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let c = code.and_then(|code| char::from_u32(u32::from_str_radix(code, 16).ok()?));
        self.at += digits;
        c.ok_or_else(|| self.fail("invalid escape sequence"))
    }
}
