//! JSON as the `json` module of Python reads and writes it: with bare `NaN` and `Infinity`, integers of any length, and a distinction
//! of floats and integers.

use std::fmt::Write as _;
use weighbridge_core::Budget;
use weighbridge_core::error::{Error, Result};

/// Minimum average bytes of text per value; the shortest valid configurations have twelve.
const BYTES_PER_VALUE: usize = 8;
/// Number of values allowed in any text.
const BASE_VALUES: usize = 1 << 16;

/// JSON value. Integers keep their digits: they may be of any length.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Digits of an integer, with `-` if negative.
    Int(String),
    /// Number with a fraction or an exponent.
    Float(f64),
    /// String.
    Text(String),
    /// Array.
    List(Vec<Json>),
    /// Object. A repeated key keeps its first position and its last value, as in a Python dict.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Minimum average bytes of text per value.
    pub const BYTES_PER_VALUE: usize = BYTES_PER_VALUE;
    /// Number of values allowed in any text.
    pub const BASE_VALUES: usize = BASE_VALUES;

    /// Returns the value of a key of an object.
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Self::Object(pairs) => pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }
}

/// Parses one value, surrounded by blanks only.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `not-json`, with the offset; [`weighbridge_core::Kind::Unsupported`], `lone-surrogate`, for
/// `\ud800`, which UTF-8 cannot represent; [`weighbridge_core::Kind::Limit`] for deep nesting, and for too many values: in memory a
/// value takes many times the two bytes that it can have in the text.
pub fn parse(text: &str) -> Result<Json> {
    let mut parser = Parser { text, at: 0, left: text.len() / BYTES_PER_VALUE + BASE_VALUES };
    let value = parser.value(0)?;
    parser.blanks();
    if parser.at < text.len() {
        return Err(parser.wrong("the end of the text"));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// Remaining number of values.
    left: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong(&self, expected: &str) -> Error {
        let rest: String = self.rest().chars().take(20).collect();
        Error::corrupt("not-json", "the text is not JSON")
            .at(self.at as u64)
            .expected(expected)
            .found(if rest.is_empty() { "the end of the text".to_owned() } else { format!("{rest:?}") })
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Consumes `byte` if it is next after blanks.
    fn skip(&mut self, byte: u8) -> bool {
        self.blanks();
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn value(&mut self, depth: usize) -> Result<Json> {
        if depth > Budget::DEPTH {
            return Err(Error::limit("too-deep", "the JSON is nested too deeply").at(self.at as u64));
        }
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            Error::limit("limit", "the JSON has too many values for its length")
                .at(self.at as u64)
                .expected(format_args!("at most one value per {BYTES_PER_VALUE} bytes, plus {BASE_VALUES}"))
        })?;
        self.blanks();
        for (word, value) in [
            ("null", Json::Null),
            ("true", Json::Bool(true)),
            ("false", Json::Bool(false)),
            ("NaN", Json::Float(f64::NAN)),
            ("Infinity", Json::Float(f64::INFINITY)),
            ("-Infinity", Json::Float(f64::NEG_INFINITY)),
        ] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        match self.peek() {
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b'[') => self.list(depth),
            Some(b'{') => self.object(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.wrong("a value")),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        let mut items = Vec::new();
        if self.skip(b']') {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.skip(b']') {
                return Ok(Json::List(items));
            }
            if !self.skip(b',') {
                return Err(self.wrong("a comma or the end of the list"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json> {
        self.at += 1;
        let mut pairs: Vec<(String, Json)> = Vec::new();
        // Index of each key: an untrusted file may have very many.
        let mut places = std::collections::HashMap::new();
        if self.skip(b'}') {
            return Ok(Json::Object(pairs));
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a key in quotes"));
            }
            let key = self.string()?;
            if !self.skip(b':') {
                return Err(self.wrong("a colon"));
            }
            let value = self.value(depth + 1)?;
            match places.get(&key).and_then(|&place: &usize| pairs.get_mut(place)) {
                Some(pair) => pair.1 = value,
                None => {
                    places.insert(key.clone(), pairs.len());
                    pairs.push((key, value));
                }
            }
            if self.skip(b'}') {
                return Ok(Json::Object(pairs));
            }
            if !self.skip(b',') {
                return Err(self.wrong("a comma or the end of the object"));
            }
        }
    }

    /// Returns the number of digits from `from` on.
    fn digits(&self, from: usize) -> usize {
        self.text.as_bytes().iter().skip(from).take_while(|b| b.is_ascii_digit()).count()
    }

    fn number(&mut self) -> Result<Json> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut end = start + usize::from(self.peek() == Some(b'-'));
        let digits = self.digits(end);
        if digits == 0 {
            return Err(self.wrong("a value"));
        }
        // A leading zero is the whole integer part.
        end += if bytes.get(end) == Some(&b'0') { 1 } else { digits };
        let whole = end;
        if bytes.get(end) == Some(&b'.') && self.digits(end + 1) > 0 {
            end += 1 + self.digits(end + 1);
        }
        if let Some(b'e' | b'E') = bytes.get(end) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let power = self.digits(end + 1 + sign);
            end += if power > 0 { 1 + sign + power } else { 0 };
        }
        let text = self.text.get(start..end).unwrap_or("");
        let value = if end == whole {
            Json::Int(text.to_owned())
        } else {
            Json::Float(text.parse().map_err(|_| self.wrong("a number"))?)
        };
        self.at = end;
        Ok(value)
    }

    /// Parses a string, from its opening quote.
    fn string(&mut self) -> Result<String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = self.rest();
            let stop = rest.bytes().position(|b| b == b'"' || b == b'\\' || b < 0x20);
            let Some(stop) = stop else {
                self.at = self.text.len();
                return Err(self.wrong("the end of a string"));
            };
            out.push_str(rest.get(..stop).unwrap_or(""));
            self.at += stop;
            match self.peek() {
                Some(b'"') => break self.at += 1,
                Some(b'\\') => {
                    let c = self.escaped()?;
                    out.push(c);
                }
                _ => return Err(self.wrong("no control characters in a string")),
            }
        }
        Ok(out)
    }

    /// Parses an escape, from its backslash.
    fn escaped(&mut self) -> Result<char> {
        let start = self.at;
        let c = match self.text.as_bytes().get(start + 1) {
            Some(&c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.hex(start + 2).ok_or_else(|| self.wrong("an escape of JSON"))?;
                self.at += 6;
                let half = (0xd800..0xdc00).contains(&first) && self.rest().starts_with("\\u");
                let second = if half { self.hex(start + 8) } else { None };
                let code = match second {
                    Some(second) if (0xdc00..0xe000).contains(&second) => {
                        self.at += 6;
                        0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                    }
                    _ => first,
                };
                return char::from_u32(code).ok_or_else(|| {
                    Error::unsupported("lone-surrogate", "the text contains a lone surrogate")
                        .at(start as u64)
                        .found(format_args!("\\u{first:04x}"))
                });
            }
            _ => return Err(self.wrong("an escape of JSON")),
        };
        self.at += 2;
        Ok(c)
    }

    fn hex(&self, from: usize) -> Option<u32> {
        let digits = self.text.get(from..from + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u32::from_str_radix(digits, 16).ok()
    }
}

/// Appends `text` as a JSON string with non-ASCII characters as `\uXXXX`, as `json.dumps` writes it.
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(stop) = rest.bytes().position(|b| !(0x20..0x7f).contains(&b) || b == b'"' || b == b'\\') {
        let (plain, other) = rest.split_at(stop);
        out.push_str(plain);
        let mut chars = other.chars();
        match chars.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some('\u{8}') => out.push_str("\\b"),
            Some('\u{c}') => out.push_str("\\f"),
            Some(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string does not fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            None => {}
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

/// Returns the text of `json.dumps(value, indent=4)`.
pub fn write(value: &Json) -> String {
    let mut out = String::new();
    write_value(&mut out, value, 0);
    out
}

fn write_value(out: &mut String, value: &Json, depth: usize) {
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.push_str(&"    ".repeat(depth));
    };
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Int(digits) => out.push_str(digits),
        Json::Float(x) => out.push_str(&float_text(*x)),
        Json::Text(text) => write_string(out, text),
        Json::List(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                out.push_str(if place > 0 { "," } else { "" });
                line(out, depth + 1);
                write_value(out, item, depth + 1);
            }
            if !items.is_empty() {
                line(out, depth);
            }
            out.push(']');
        }
        Json::Object(pairs) => {
            out.push('{');
            for (place, (key, item)) in pairs.iter().enumerate() {
                out.push_str(if place > 0 { "," } else { "" });
                line(out, depth + 1);
                write_string(out, key);
                out.push_str(": ");
                write_value(out, item, depth + 1);
            }
            if !pairs.is_empty() {
                line(out, depth);
            }
            out.push('}');
        }
    }
}

/// Returns a float as `repr` and `json.dumps` of Python write it: the shortest decimal, `1e-05`, `0.0001`, `1e+16`, `NaN`,
/// `Infinity`.
pub fn float_text(x: f64) -> String {
    if x.is_nan() {
        return "NaN".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let short = format!("{x:e}");
    let (digits, power) = short.split_once('e').unwrap_or((&short, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    if (-4..16).contains(&power) {
        // `Display` never uses an exponent; whole numbers get `.0` to mark a float.
        let text = x.to_string();
        return if text.contains('.') { text } else { format!("{text}.0") };
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred thousand of the shortest relations are accepted; as many bare numbers are not.
    #[test]
    fn the_number_of_values_is_limited_by_the_text() {
        let relation = r#"{"name":"r","lhs":"a","rhs":"a"}"#;
        assert!(parse(&format!("[{}]", vec![relation; 100_000].join(","))).is_ok());
        assert!(parse(&format!("[{}]", vec!["0"; BASE_VALUES].join(","))).is_ok());
        let error = parse(&format!("[{}]", vec!["0"; 400_000].join(","))).unwrap_err();
        assert_eq!((error.kind(), error.code().as_str()), (weighbridge_core::Kind::Limit, "limit"));
    }

    #[test]
    fn parses_values_as_python_does() {
        let int = |s: &str| Json::Int(s.into());
        assert_eq!(
            parse(" {\"a\": [1, -0, 2.5e1, 1E2, true, false, null], \"b\": {}, \"a\": [] }\n").unwrap(),
            Json::Object(vec![("a".into(), Json::List(vec![])), ("b".into(), Json::Object(vec![]))])
        );
        assert_eq!(
            parse("[1, -0, 2.5e1, 1E2, -Infinity, 123456789012345678901234567890]").unwrap(),
            Json::List(vec![
                int("1"),
                int("-0"),
                Json::Float(25.0),
                Json::Float(100.0),
                Json::Float(f64::NEG_INFINITY),
                int("123456789012345678901234567890")
            ])
        );
        assert!(matches!(parse("NaN").unwrap(), Json::Float(x) if x.is_nan()));
        assert_eq!(parse("1e999").unwrap(), Json::Float(f64::INFINITY));
        assert_eq!(parse(r#""\ud83d\ude00\u00e9\n\/""#).unwrap(), Json::Text("😀é\n/".into()));
    }

    #[test]
    fn writes_values_as_python_does() {
        let text = "{\n    \"a\": [\n        1,\n        -0.5,\n        {}\n    ],\n    \"b\": [],\n    \"\\u00e9\": null\n}";
        assert_eq!(write(&parse(text).unwrap()), text);
    }

    #[test]
    fn rejects_invalid_json_as_python_does() {
        for bad in [
            "",
            "[1,]",
            "{\"a\" 1}",
            "{a: 1}",
            "{\"a\": 1,}",
            "01",
            "1.",
            ".5",
            "+1",
            "-",
            "1e",
            "nan",
            "'a'",
            "\"a",
            "\"\\x\"",
            "\"a\nb\"",
            "[1] 2",
            "\u{feff}1",
            "\"\\u12\"",
            "\"\\u+123\"",
        ] {
            assert_eq!(parse(bad).unwrap_err().code().as_str(), "not-json", "{bad}");
        }
        for bad in [r#""\ud800""#, r#""\udc00""#, r#""\ud800\u0041""#, r#""\ud800\n""#] {
            assert_eq!(parse(bad).unwrap_err().code().as_str(), "lone-surrogate", "{bad}");
        }
        assert_eq!(parse(&"[".repeat(100_000)).unwrap_err().code().as_str(), "too-deep");
        assert_eq!(parse(&"{\"a\":".repeat(100_000)).unwrap_err().code().as_str(), "too-deep");
    }

    #[test]
    fn writes_floats_as_python_does() {
        for (x, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (0.001, "0.001"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e-10, "1e-10"),
            (1.5e-7, "1.5e-07"),
            (5e-324, "5e-324"),
            (123456.0, "123456.0"),
            (1e15, "1000000000000000.0"),
            (9007199254740993.0, "9007199254740992.0"),
            (1e16, "1e+16"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (-1.25e22, "-1.25e+22"),
            (1.0 / 3.0, "0.3333333333333333"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(float_text(x), text);
        }
        assert_eq!(float_text(f64::NAN), "NaN");
    }

    #[test]
    fn writes_strings_as_python_does() {
        let mut out = String::new();
        write_string(&mut out, "a\"\\/\n\r\t\u{8}\u{c}\u{1}\u{7f}é\u{ffff}😀z");
        assert_eq!(out, "\"a\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\u007f\\u00e9\\uffff\\ud83d\\ude00z\"");
        assert_eq!(parse(&out).unwrap(), Json::Text("a\"\\/\n\r\t\u{8}\u{c}\u{1}\u{7f}é\u{ffff}😀z".into()));
    }
}
