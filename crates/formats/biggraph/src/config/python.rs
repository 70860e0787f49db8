//! Configurations in Python files: their literal dictionary, read without running code.
//!
//! ```text
//! entity_base = "data"                     names of literals
//!
//! def get_torchbiggraph_config():
//!     config = dict(                       or {...}
//!         entity_path=entity_base,
//!         entities={"user": {"num_partitions": 4}},
//!         ...
//!     )
//!     return config
//! ```
//!
//! Literals are strings, numbers, `True`, `False`, `None`, lists, tuples, dictionaries and `dict(key=value)`.
//! A name is replaced by the literal assigned to it before. Everything else is an error: its
//! value is known only by running it.

use crate::text::json::Json;
use std::collections::HashMap;
use weighbridge_core::Budget;
use weighbridge_core::error::{Error, Result};

const BYTES_PER_VALUE: usize = Json::BYTES_PER_VALUE;
const BASE_VALUES: usize = Json::BASE_VALUES;

/// Function called by upstream.
pub(super) const FUNCTION: &str = "get_torchbiggraph_config";

/// Hint for converting a configuration with code to JSON.
const BY_PYTHON: &str = "weighbridge does not run code; if you trust the file, run: python -c 'import sys, json, runpy; \
     print(json.dumps(runpy.run_path(sys.argv[1])[\"get_torchbiggraph_config\"](), indent=4))' FILE > config.json";

/// True for text that is a Python configuration, valid or not.
pub(super) fn is_python(text: &str) -> bool {
    text.contains(FUNCTION) || text.lines().any(|line| line.starts_with("def "))
}

/// Returns the literal dictionary that the configuration function of a Python file returns.
///
/// # Errors
/// [`weighbridge_core::Kind::Unsupported`], `python-config`, with the line, if the file contains more than literals;
/// [`weighbridge_core::Kind::Limit`] for deep nesting, and for too many values.
pub(super) fn parse(text: &str) -> Result<Json> {
    let mut reader =
        Reader { text, at: 0, left: text.len() / BYTES_PER_VALUE + BASE_VALUES, names: HashMap::new() };
    reader.file()
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Remaining budget of values. A name counts as all the values of its literal.
    left: usize,
    /// Named literals.
    names: HashMap<&'a str, Json>,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Error at the current line.
    fn wrong(&self, expected: &str) -> Error {
        let before = self.text.get(..self.at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let rest: String = self.rest().lines().next().unwrap_or_default().chars().take(40).collect();
        let found = if rest.trim().is_empty() { "the end of the line".to_owned() } else { rest };
        let what = format!("line {line} of the Python configuration is not a literal");
        Error::unsupported("python-config", what).expected(expected).found(found).hint(BY_PYTHON)
    }

    /// Skips blanks and comments; inside brackets also line ends.
    fn blanks(&mut self, in_brackets: bool) {
        loop {
            let rest = self.rest();
            let skipped = match rest.chars().next() {
                Some(' ' | '\t' | '\u{c}' | '\u{feff}') => rest.chars().next().map_or(0, char::len_utf8),
                Some('\n' | '\r') if in_brackets => 1,
                Some('\r') if rest.starts_with("\r\n") => return self.at += 1,
                Some('#') => rest.find('\n').unwrap_or(rest.len()),
                Some('\\') if rest.starts_with("\\\n") => 2,
                Some('\\') if rest.starts_with("\\\r\n") => 3,
                _ => return,
            };
            self.at += skipped;
        }
    }

    /// Skips `token` if it follows, behind blanks if inside brackets.
    fn skip(&mut self, token: char) -> bool {
        self.blanks(true);
        let there = self.peek() == Some(token);
        self.at += if there { token.len_utf8() } else { 0 };
        there
    }

    /// Next identifier; empty if there is none.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let starts = rest.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let word = if starts { rest.get(..end).unwrap_or_default() } else { "" };
        self.at += word.len();
        word
    }

    /// Expects the end of a statement.
    fn end_of_line(&mut self) -> Result<()> {
        self.blanks(false);
        match self.peek() {
            None => Ok(()),
            Some('\n') => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(self.wrong("the end of the statement")),
        }
    }

    /// Parses all statements up to the one that returns the dictionary.
    fn file(&mut self) -> Result<Json> {
        let mut inside = false;
        let found = loop {
            self.blanks(true);
            let start = self.at;
            if matches!(self.peek(), Some('"' | '\'')) {
                self.value(0)?;
                self.end_of_line()?;
                continue;
            }
            match self.word() {
                "" if self.rest().is_empty() => {
                    return Err(self.wrong(&format!("a function {FUNCTION} that returns a dictionary")));
                }
                "import" | "from" => self.past_import(),
                "def" => {
                    self.blanks(false);
                    if self.word() != FUNCTION || inside {
                        self.at = start;
                        return Err(self.wrong(&format!("one function, {FUNCTION}")));
                    }
                    inside = true;
                    let closed = self.skip('(') && self.skip(')');
                    let end = self.rest().find([':', '\n']).unwrap_or(0);
                    self.at += end;
                    if !closed || !self.skip(':') {
                        return Err(self.wrong("a function without arguments"));
                    }
                }
                "return" if inside => {
                    self.blanks(false);
                    let value = self.value(0)?;
                    self.end_of_line()?;
                    break value;
                }
                name if !name.is_empty() && !RESERVED.contains(&name) => self.assignment(name, start)?,
                _ => {
                    self.at = start;
                    return Err(self.wrong("an assignment of a literal"));
                }
            }
        };
        self.blanks(true);
        if !self.rest().is_empty() {
            return Err(self.wrong("nothing after the function"));
        }
        match found {
            Json::Object(_) => Ok(found),
            _ => Err(self.wrong("a function that returns a dictionary")),
        }
    }

    /// Skips an import. Imported names are not literals; using one is an error.
    fn past_import(&mut self) {
        let mut depth = 0usize;
        let rest = self.rest();
        let end = rest.find(|c| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == '\n' && depth == 0
        });
        let imported = &rest[..end.unwrap_or(rest.len())];
        // An import replaces a literal of the same name.
        if imported.contains('*') {
            self.names.clear();
        }
        for word in imported.split(|c: char| !c.is_alphanumeric() && c != '_') {
            self.names.remove(word);
        }
        self.at += imported.len();
    }

    /// Parses `NAME = LITERAL`, with or without a type.
    fn assignment(&mut self, name: &'a str, start: usize) -> Result<()> {
        self.blanks(false);
        if self.peek() == Some(':') {
            let rest = self.rest();
            let end = rest.find(['=', '\n']).unwrap_or(rest.len());
            self.at += end;
        }
        if !self.rest().starts_with('=') || self.rest().starts_with("==") {
            self.at = start;
            return Err(self.wrong("an assignment of a literal"));
        }
        self.at += 1;
        self.blanks(false);
        let value = self.value(0)?;
        self.end_of_line()?;
        self.names.insert(name, value);
        Ok(())
    }

    fn spend(&mut self, count: usize) -> Result<()> {
        self.left = self.left.checked_sub(count).ok_or_else(|| {
            Error::limit("limit", "the configuration has too many values").at(self.at as u64).expected(
                format_args!("at most one value for each {BYTES_PER_VALUE} bytes, plus {BASE_VALUES}"),
            )
        })?;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Json> {
        if depth > Budget::DEPTH {
            return Err(Error::limit("too-deep", "the configuration is nested too deeply").at(self.at as u64));
        }
        self.spend(1)?;
        let start = self.at;
        let value = match self.peek() {
            Some('"' | '\'') => self.strings(depth)?,
            Some('[') => {
                self.at += 1;
                Json::List(self.items(']', depth)?.0)
            }
            Some('(') => {
                self.at += 1;
                let (mut items, comma) = self.items(')', depth)?;
                match (items.len(), comma) {
                    (1, false) => items.remove(0),
                    _ => Json::List(items),
                }
            }
            Some('{') => {
                self.at += 1;
                self.pairs(depth)?
            }
            Some('0'..='9' | '.' | '-' | '+') => self.number()?,
            _ => match self.word() {
                "True" => Json::Bool(true),
                "False" => Json::Bool(false),
                "None" => Json::Null,
                "dict" if self.rest().starts_with('(') => {
                    self.at += 1;
                    self.keywords(depth)?
                }
                "r" | "R" | "u" | "U" if matches!(self.peek(), Some('"' | '\'')) => {
                    self.at = start;
                    self.strings(depth)?
                }
                name => match self.names.get(name) {
                    Some(value) if !matches!(self.peek(), Some('(' | '.' | '[' | '"' | '\'')) => {
                        let value = value.clone();
                        self.spend(values_of(&value))?;
                        value
                    }
                    _ => {
                        self.at = start;
                        return Err(self.wrong("a literal, or the name of one"));
                    }
                },
            },
        };
        Ok(value)
    }

    /// Items up to a bracket, and whether a comma follows the last one.
    fn items(&mut self, end: char, depth: usize) -> Result<(Vec<Json>, bool)> {
        let (mut items, mut comma) = (Vec::new(), true);
        loop {
            if self.skip(end) {
                return Ok((items, comma));
            }
            if !comma {
                return Err(self.wrong("a comma, or the end of the list"));
            }
            items.push(self.value(depth + 1)?);
            comma = self.skip(',');
        }
    }

    /// Pairs of `{...}`.
    fn pairs(&mut self, depth: usize) -> Result<Json> {
        let mut dictionary = Dictionary::default();
        loop {
            if self.skip('}') {
                return Ok(Json::Object(dictionary.pairs));
            }
            let Json::Text(key) = self.value(depth + 1)? else {
                return Err(self.wrong("strings as keys of a dictionary"));
            };
            if !self.skip(':') {
                return Err(self.wrong("a colon after the key"));
            }
            self.blanks(true);
            let value = self.value(depth + 1)?;
            dictionary.put(key, value);
            if !self.skip(',') && !self.rest().starts_with('}') {
                return Err(self.wrong("a comma, or the end of the dictionary"));
            }
        }
    }

    /// Pairs of `dict(...)`.
    fn keywords(&mut self, depth: usize) -> Result<Json> {
        let mut dictionary = Dictionary::default();
        loop {
            if self.skip(')') {
                return Ok(Json::Object(dictionary.pairs));
            }
            let key = self.word();
            if key.is_empty() || !self.skip('=') {
                return Err(self.wrong("KEY=VALUE"));
            }
            self.blanks(true);
            let value = self.value(depth + 1)?;
            dictionary.put(key.to_owned(), value);
            if !self.skip(',') && !self.rest().starts_with(')') {
                return Err(self.wrong("a comma, or the end of dict(...)"));
            }
        }
    }

    /// Integer or float, with a sign.
    fn number(&mut self) -> Result<Json> {
        let start = self.at;
        let rest = self.rest();
        let (sign, digits) = match rest.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => ("", rest.strip_prefix('+').unwrap_or(rest)),
        };
        self.at += rest.len() - digits.len();
        // Inside a number, a sign follows the exponent letter.
        let mut before = ' ';
        let end = digits.find(|c: char| {
            let of_number = c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
            let goes_on = of_number || matches!(c, '+' | '-') && matches!(before, 'e' | 'E');
            before = c;
            !goes_on
        });
        let text = digits.get(..end.unwrap_or(digits.len())).unwrap_or_default();
        let plain = text.replace('_', "");
        let decimal = !plain.is_empty() && plain.bytes().all(|b| b.is_ascii_digit());
        let hexadecimal = plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X"));
        let value = if decimal && (plain.len() == 1 || !plain.starts_with('0')) {
            Some(Json::Int(format!("{sign}{plain}")))
        } else if let Some(digits) = hexadecimal {
            i128::from_str_radix(digits, 16).ok().map(|n| Json::Int(format!("{sign}{n}")))
        } else {
            let float = plain.starts_with(|c: char| c.is_ascii_digit() || c == '.') && !decimal;
            let value = float.then(|| format!("{sign}{plain}").parse().ok()).flatten();
            value.map(Json::Float)
        };
        let Some(value) = value.filter(|_| !text.starts_with('_') && !text.ends_with('_')) else {
            self.at = start;
            return Err(self.wrong("a number"));
        };
        self.at += text.len();
        Ok(value)
    }

    /// Adjacent string literals, joined.
    fn strings(&mut self, depth: usize) -> Result<Json> {
        let mut all = String::new();
        loop {
            self.string(&mut all)?;
            let after = self.at;
            // Outside brackets the next line is another statement.
            self.blanks(depth > 0);
            let rest = self.rest();
            let prefixed = rest.starts_with(['r', 'R', 'u', 'U'])
                && rest.get(1..2).is_some_and(|quote| matches!(quote, "\"" | "'"));
            if !prefixed && !rest.starts_with(['"', '\'']) {
                self.at = after;
                return Ok(Json::Text(all));
            }
        }
    }

    fn string(&mut self, out: &mut String) -> Result<()> {
        let start = self.at;
        let prefix = self.word();
        let raw = matches!(prefix, "r" | "R");
        let quote = match self.rest() {
            rest if rest.starts_with("\"\"\"") => "\"\"\"",
            rest if rest.starts_with("'''") => "'''",
            rest if rest.starts_with('"') => "\"",
            _ => "'",
        };
        self.at += quote.len();
        loop {
            let rest = self.rest();
            if rest.starts_with(quote) {
                self.at += quote.len();
                return Ok(());
            }
            match rest.chars().next() {
                Some('\\') if raw => {
                    // A quote after a backslash does not end a raw string; both are part of it.
                    let next = rest.chars().nth(1).unwrap_or('\\');
                    out.push('\\');
                    out.push(next);
                    self.at += 1 + next.len_utf8();
                }
                Some('\\') => self.escaped(out)?,
                Some('\n') if quote.len() == 1 => break,
                Some(c) => {
                    out.push(c);
                    self.at += c.len_utf8();
                }
                None => break,
            }
        }
        self.at = start;
        Err(self.wrong("the end of the string"))
    }

    /// Parses the escape sequence at a backslash.
    fn escaped(&mut self, out: &mut String) -> Result<()> {
        let rest = self.rest();
        let code = |digits: usize| {
            let text = rest.get(2..2 + digits).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
            u32::from_str_radix(text, 16).ok().and_then(char::from_u32)
        };
        let plain = |c: char| Some((Some(c), 2));
        let found = match rest.as_bytes().get(1) {
            Some(b'\n') => Some((None, 2)),
            Some(b'\\') => plain('\\'),
            Some(b'\'') => plain('\''),
            Some(b'"') => plain('"'),
            Some(b'a') => plain('\u{7}'),
            Some(b'b') => plain('\u{8}'),
            Some(b'f') => plain('\u{c}'),
            Some(b'n') => plain('\n'),
            Some(b'r') => plain('\r'),
            Some(b't') => plain('\t'),
            Some(b'v') => plain('\u{b}'),
            Some(b'x') => code(2).map(|c| (Some(c), 4)),
            Some(b'u') => code(4).map(|c| (Some(c), 6)),
            Some(b'U') => code(8).map(|c| (Some(c), 10)),
            Some(b'0'..=b'7') => {
                let digits = rest[1..].bytes().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
                let value = rest.get(1..=digits).and_then(|text| u32::from_str_radix(text, 8).ok());
                value.and_then(char::from_u32).map(|c| (Some(c), 1 + digits))
            }
            // Python keeps the backslash of an unknown escape.
            Some(other) if *other != b'N' => plain('\\').map(|(c, _)| (c, 1)),
            _ => None,
        };
        let Some((c, len)) = found else { return Err(self.wrong("a character of a string")) };
        out.extend(c);
        self.at += len;
        Ok(())
    }
}

/// Keywords that cannot be variable names.
const RESERVED: [&str; 16] = [
    "assert", "async", "class", "del", "elif", "else", "except", "finally", "for", "global", "if", "raise",
    "return", "try", "while", "with",
];

/// Dictionary under construction: a duplicate key keeps its first position and its last value.
#[derive(Default)]
struct Dictionary {
    pairs: Vec<(String, Json)>,
    places: HashMap<String, usize>,
}

impl Dictionary {
    fn put(&mut self, key: String, value: Json) {
        match self.places.get(&key).and_then(|&place| self.pairs.get_mut(place)) {
            Some(pair) => pair.1 = value,
            None => {
                self.places.insert(key.clone(), self.pairs.len());
                self.pairs.push((key, value));
            }
        }
    }
}

/// Number of values in a value, including itself. Text counts by its length: a copy needs as much memory.
fn values_of(value: &Json) -> usize {
    let text = |text: &str| text.len() / BYTES_PER_VALUE;
    match value {
        Json::List(items) => 1 + items.iter().map(values_of).sum::<usize>(),
        Json::Object(pairs) => {
            1 + pairs.iter().map(|(key, value)| text(key) + values_of(value)).sum::<usize>()
        }
        Json::Text(own) => 1 + text(own),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::json;

    fn function(body: &str) -> String {
        format!("def {FUNCTION}():\n{body}\n")
    }

    #[test]
    fn parses_literals_like_python() {
        let text = concat!(
            "#!/usr/bin/env python3\n\"\"\"A\nconfiguration.\"\"\"\nimport os\nfrom typing import (Dict,\n  List)\n",
            "base: str = 'data' '/x'  # joined\nnames = [\"a\", 'b',]\n\n\n",
            "def get_torchbiggraph_config() -> dict:\n    'doc'\n",
            "    config = dict(  # noqa\n        path=base, names=names, t=(1,), e=(), p=(2),\n",
            "        n=[-1, +2, 0x10, 1_000, .5, 1., 1e-3, True, False, None],\n",
            "        s=[r'\\n', 'a\\tb\\x41\\u00e9\\101\\q', \"\"\"x\ny\"\"\", u'z'\n 'y'],\n",
            "        d={'k': {}, \"k\": 2},\n    )\n\n    return config\n# the end\n"
        );
        let expected = concat!(
            r#"{"path": "data/x", "names": ["a", "b"], "t": [1], "e": [], "p": 2, "#,
            r#""n": [-1, 2, 16, 1000, 0.5, 1.0, 0.001, true, false, null], "#,
            r#""s": ["\\n", "a\tbA\u00e9A\\q", "x\ny", "zy"], "d": {"k": 2}}"#
        );
        assert_eq!(parse(text).unwrap(), json::parse(expected).unwrap());
        assert_eq!(parse(&text.replace('\n', "\r\n")).unwrap().get("d"), parse(text).unwrap().get("d"));
        let returned = parse(&function("    return {'a': 1}")).unwrap();
        assert_eq!(returned, json::parse(r#"{"a": 1}"#).unwrap());
    }

    #[test]
    fn rejects_imported_names_as_literals() {
        for import in ["from settings import base", "from settings import *", "import base"] {
            let text = format!("base = 'a'\n{import}\n{}", function("    return dict(a=base)"));
            assert_eq!(parse(&text).unwrap_err().code().as_str(), "python-config", "{import}");
        }
    }

    #[test]
    fn limits_copies_of_long_text() {
        let text = format!("x = '{}'\n", "a".repeat(700_000));
        let body = format!("    return dict(a=[{}])", "x,".repeat(60_000));
        assert_eq!(parse(&(text + &function(&body))).unwrap_err().code().as_str(), "limit");
    }

    #[test]
    fn rejects_code_other_than_literals() {
        for (body, line) in [
            ("    return dict(a=os.getenv('A'))", "line 2"),
            ("    x = 1\n    return dict(a=x + 1)", "line 3"),
            ("    return dict(a=f'{1}')", "line 2"),
            ("    return dict(a=b'x')", "line 2"),
            ("    return dict(**base)", "line 2"),
            ("    return [x for x in (1, 2)]", "line 2"),
            ("    return {'a', 'b'}", "line 2"),
            ("    return {1: 2}", "line 2"),
            ("    return dict(a=1 << 20)", "line 2"),
            ("    return dict(a=1j)", "line 2"),
            ("    return dict(a=01)", "line 2"),
            ("    return dict(a='x", "line 2"),
            ("    config = dict(a=1)\n    config['a'] = 2\n    return config", "line 3"),
            ("    if True:\n        return {}", "line 2"),
            ("    return 1", "line"),
            ("    pass", "line 2"),
            ("    return {}\nprint(1)", "line 3"),
        ] {
            let error = parse(&function(body)).unwrap_err();
            assert_eq!(error.code().as_str(), "python-config", "{body}");
            assert!(error.message().contains(line), "{body}: {error}");
        }
        for text in
            ["def other():\n    return {}\n", "x = 1\n", "", "def get_torchbiggraph_config(a):\n  return {}"]
        {
            assert_eq!(parse(text).unwrap_err().code().as_str(), "python-config", "{text}");
        }
    }

    #[test]
    fn limits_names_and_nesting() {
        let mut text = "a0 = [1, 1]\n".to_owned();
        for n in 1..60 {
            text.push_str(&format!("a{n} = [a{}, a{}]\n", n - 1, n - 1));
        }
        assert_eq!(parse(&text).unwrap_err().kind(), weighbridge_core::Kind::Limit);
        let deep = function(&format!("    return {}", "[".repeat(100_000)));
        assert_eq!(parse(&deep).unwrap_err().code().as_str(), "too-deep");
    }
}
