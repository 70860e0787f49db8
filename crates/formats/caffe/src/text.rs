//! Protobuf text format, as in `.prototxt` files.

use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};

/// Memory of a field.
const FIELD: u64 = 100;

/// Value of a field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Quoted text.
    Text(String),
    /// Number or word, as written.
    Word(String),
    /// Message.
    Message(Vec<(String, Value)>),
}

/// Parses a message.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `bad-text`, with the offset; [`weighbridge_core::Kind::Limit`].
pub(crate) fn parse(text: &str, budget: &Budget) -> Result<Vec<(String, Value)>> {
    let mut parser = Parser { text, at: 0, budget };
    let fields = parser.message(None, 0)?;
    Ok(fields)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    budget: &'a Budget,
}

impl Parser<'_> {
    /// Reads fields up to `close`, or up to the end of the text.
    fn message(&mut self, close: Option<char>, depth: usize) -> Result<Vec<(String, Value)>> {
        Budget::check_depth(depth).map_err(|e| e.at(self.at as u64))?;
        let mut fields = Vec::new();
        loop {
            match self.peek() {
                None if close.is_none() => return Ok(fields),
                None => return Err(self.wrong("the end of a message: `}`")),
                Some(found) if Some(found) == close => {
                    self.at += 1;
                    return Ok(fields);
                }
                Some(',' | ';') => self.at += 1,
                Some(_) => self.field(depth, &mut fields)?,
            }
        }
    }

    fn field(&mut self, depth: usize, fields: &mut Vec<(String, Value)>) -> Result<()> {
        let name = self.word();
        if name.is_empty() {
            return Err(self.wrong("the name of a field"));
        }
        let has_colon = self.peek() == Some(':');
        if has_colon {
            self.at += 1;
        }
        if self.peek() == Some('[') && has_colon {
            self.at += 1;
            loop {
                match self.peek() {
                    Some(']') => {
                        self.at += 1;
                        return Ok(());
                    }
                    Some(',') => self.at += 1,
                    _ => {
                        let value = self.value(depth, true)?;
                        self.push(fields, &name, value)?;
                    }
                }
            }
        }
        let value = self.value(depth, has_colon)?;
        self.push(fields, &name, value)
    }

    fn push(&self, fields: &mut Vec<(String, Value)>, name: &str, value: Value) -> Result<()> {
        self.budget.take_memory(FIELD + name.len() as u64)?;
        fields.push((name.to_owned(), value));
        Ok(())
    }

    fn value(&mut self, depth: usize, has_colon: bool) -> Result<Value> {
        match self.peek() {
            Some('{') => {
                self.at += 1;
                self.message(Some('}'), depth + 1).map(Value::Message)
            }
            Some('<') => {
                self.at += 1;
                self.message(Some('>'), depth + 1).map(Value::Message)
            }
            Some('"' | '\'') if has_colon => self.strings().map(Value::Text),
            _ if has_colon => {
                let word = self.word();
                if word.is_empty() { Err(self.wrong("a value")) } else { Ok(Value::Word(word)) }
            }
            _ => Err(self.wrong("`:` or `{`")),
        }
    }

    /// Reads a name, a number or a word.
    fn word(&mut self) -> String {
        _ = self.peek();
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+' | '-');
        let len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += len;
        rest.get(..len).unwrap_or_default().to_owned()
    }

    /// Reads one quoted text, or several that follow each other.
    fn strings(&mut self) -> Result<String> {
        let mut out = Vec::new();
        while let Some(quote @ ('"' | '\'')) = self.peek() {
            self.at += 1;
            self.string(quote, &mut out)?;
        }
        self.budget.take_memory(out.len() as u64)?;
        Ok(weighbridge_core::checkpoint::Name::new(out).to_text())
    }

    fn string(&mut self, quote: char, out: &mut Vec<u8>) -> Result<()> {
        let bytes = self.text.as_bytes();
        loop {
            let Some(&byte) = bytes.get(self.at).filter(|&&byte| byte != b'\n') else {
                return Err(self.wrong("the end of a text: a quote"));
            };
            self.at += 1;
            if char::from(byte) == quote {
                return Ok(());
            }
            if byte != b'\\' {
                out.push(byte);
                continue;
            }
            let Some(&escaped) = bytes.get(self.at) else { return Err(self.wrong("an escaped character")) };
            self.at += 1;
            match escaped {
                b'n' => out.push(b'\n'),
                b't' => out.push(b'\t'),
                b'r' => out.push(b'\r'),
                b'0'..=b'7' => {
                    let mut value = u32::from(escaped - b'0');
                    for _ in 0..2 {
                        let Some(digit @ b'0'..=b'7') = bytes.get(self.at) else { break };
                        value = value * 8 + u32::from(digit - b'0');
                        self.at += 1;
                    }
                    out.push((value & 0xff) as u8);
                }
                b'x' => {
                    let digits = bytes.get(self.at..).unwrap_or_default().iter().take(2);
                    let len = digits.take_while(|byte| byte.is_ascii_hexdigit()).count();
                    let hex = self.text.get(self.at..self.at + len).unwrap_or_default();
                    let Ok(value) = u8::from_str_radix(hex, 16) else {
                        return Err(self.wrong("hexadecimal digits"));
                    };
                    self.at += len;
                    out.push(value);
                }
                other => out.push(other),
            }
        }
    }

    /// Skips blanks and comments; returns the next character.
    fn peek(&mut self) -> Option<char> {
        loop {
            let rest = self.text.get(self.at..)?;
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return trimmed.chars().next();
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn wrong(&self, expected: &str) -> Error {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let found: String = rest.chars().take(20).collect();
        let found = if found.is_empty() { "the end of the file".to_owned() } else { format!("`{found}`") };
        Error::corrupt("bad-text", "the network is not protobuf text")
            .at(self.at as u64)
            .expected(expected)
            .found(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::limits::Limits;

    fn parsed(text: &str) -> Result<Vec<(String, Value)>> {
        parse(text, &Budget::new(text.len() as u64, &Limits::default()))
    }

    #[test]
    fn values_of_every_form_are_read() {
        let word = |text: &str| Value::Word(text.to_owned());
        let text = "a: 1 # comment\nb: -2.5e3, c: [1, 2]; d { e: TRUE_WORD } f: < g: \"x\" 'y' >\nh: \"\\x41\\102\\n\\\"\"";
        let found = parsed(text).unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "c", "d", "f", "h"]);
        assert_eq!(found[1].1, word("-2.5e3"));
        assert_eq!(found[3].1, word("2"));
        assert_eq!(found[4].1, Value::Message(vec![("e".to_owned(), word("TRUE_WORD"))]));
        assert_eq!(found[5].1, Value::Message(vec![("g".to_owned(), Value::Text("xy".to_owned()))]));
        assert_eq!(found[6].1, Value::Text("AB\n\"".to_owned()));
    }

    #[test]
    fn malformed_text_is_an_error_with_its_offset() {
        for (text, at) in [
            ("a", 1),
            ("a 1", 2),
            ("a: {", 4),
            ("a: \"x", 5),
            ("a: \"x\ny\"", 5),
            ("}", 0),
            ("a: [1", 5),
            ("a: \"\\xz\"", 6),
        ] {
            let error = parsed(text).unwrap_err();
            assert_eq!((error.code().as_str(), error.offset()), ("bad-text", Some(at)), "{text}");
        }
        let error = parsed(&"a {".repeat(1000)).unwrap_err();
        assert_eq!(error.code(), "limit");
    }
}
