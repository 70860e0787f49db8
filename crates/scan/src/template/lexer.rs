//! Lexer of Jinja templates: splits code into tokens and skips plain text, comments and `{% raw %}`.

use std::borrow::Cow;

/// Greatest nesting of brackets.
const MAX_DEPTH: usize = 60;

/// Token of `{{ }}` or `{% %}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name, a keyword or a number.
    Name(&'a str),
    /// A string with its escapes resolved. Constant concatenations, `'a' 'b' ~ 'c' + 'd'`, are one string.
    Text(Cow<'a, str>),
    /// An operator or bracket; `?` for a comparison.
    Sign(char),
}

/// Code section: the content of `{{ }}` or `{% %}`.
#[derive(Debug, Default)]
pub(super) struct Code<'a> {
    /// Byte offset in the template.
    pub(super) start: usize,
    /// True for `{% %}`.
    pub(super) is_tag: bool,
    pub(super) tokens: Vec<Token<'a>>,
    /// For each bracket token, the index of the matching bracket.
    pub(super) pairs: Vec<usize>,
}

/// Reads all code of a template up to the first section that Jinja would refuse; true if there is no refused section.
pub(super) fn read(template: &str) -> (Vec<Code<'_>>, bool) {
    let (mut all, mut at) = (Vec::new(), 0);
    while let Some(brace) = memchr::memchr(b'{', &template.as_bytes()[at..]) {
        at += brace + 1;
        let rest = &template[at..];
        let length = match rest.as_bytes().first() {
            Some(b'#') => rest[1..].find("#}").map(|end| end + 3),
            Some(b'%') if tag_of_raw(&rest[1..], "raw").is_some() => {
                let ends = rest.match_indices("{%").map(|(end, _)| end + 2);
                ends.filter_map(|end| Some(end + tag_of_raw(&rest[end..], "endraw")?)).next()
            }
            Some(kind @ (b'{' | b'%')) => {
                let close = if *kind == b'%' { "%}" } else { "}}" };
                let mut code = Code { start: at, is_tag: *kind == b'%', ..Code::default() };
                let length = code.read(&rest[1..], close);
                all.push(code);
                length.map(|length| length + 1)
            }
            _ => Some(0),
        };
        let Some(length) = length else { return (all, false) };
        at += length;
    }
    (all, true)
}

impl<'a> Code<'a> {
    /// Reads up to `close`; returns the length.
    fn read(&mut self, text: &'a str, close: &str) -> Option<usize> {
        let mut open = Vec::new();
        let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        loop {
            rest = rest.trim_start_matches(is_blank);
            let first = rest.chars().next()?;
            let end = rest.strip_prefix(['-', '+']).unwrap_or(rest).strip_prefix(close);
            if let (true, Some(behind)) = (open.is_empty(), end) {
                return Some(text.len() - behind.len());
            }
            if matches!(first, '\'' | '"') {
                let escaped = rest.as_bytes().iter().scan(false, |escape, &byte| {
                    let is_escaped = *escape;
                    *escape = byte == b'\\' && !is_escaped;
                    Some(is_escaped)
                });
                let mut ends = rest.bytes().zip(escaped).enumerate().skip(1);
                let end = ends.find(|&(_, (byte, escaped))| char::from(byte) == first && !escaped)?.0;
                self.text(unescape(&rest[1..end])?);
                rest = &rest[end + 1..];
                continue;
            }
            let is_of_name = |c: char| c == '_' || c.is_alphanumeric();
            if is_of_name(first) {
                let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
                self.push(Token::Name(&rest[..end]));
                rest = &rest[end..];
                continue;
            }
            if let Some(behind) = ["==", "!=", "<=", ">="].iter().find_map(|sign| rest.strip_prefix(sign)) {
                self.push(Token::Sign('?'));
                rest = behind;
                continue;
            }
            let place = self.tokens.len();
            let opening = match first {
                '(' | '[' | '{' if open.len() < MAX_DEPTH => {
                    open.push(place);
                    None
                }
                ')' => Some('('),
                ']' => Some('['),
                '}' => Some('{'),
                '<' | '>' | '=' | '+' | '-' | '/' | '*' | '%' | '~' | '.' | ':' | '|' | ',' | ';' => None,
                _ => return None,
            };
            self.push(Token::Sign(if matches!(first, '<' | '>') { '?' } else { first }));
            if let Some(opening) = opening {
                let other = open.pop().filter(|&other| self.tokens[other] == Token::Sign(opening))?;
                (self.pairs[other], self.pairs[place]) = (place, other);
            }
            rest = &rest[first.len_utf8()..];
        }
    }

    fn push(&mut self, token: Token<'a>) {
        self.pairs.push(self.tokens.len());
        self.tokens.push(token);
    }

    /// Adds a string; joins it with the previous one where both are concatenated.
    fn text(&mut self, text: Cow<'a, str>) {
        let is_joined = matches!(self.tokens.last(), Some(Token::Sign('~' | '+')));
        let before = self.tokens.len().wrapping_sub(1 + usize::from(is_joined));
        match self.tokens.get_mut(before) {
            Some(Token::Text(known)) => {
                known.to_mut().push_str(&text);
                self.tokens.truncate(before + 1);
                self.pairs.truncate(before + 1);
            }
            _ => self.push(Token::Text(text)),
        }
    }
}

/// True for whitespace by Python's definition.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1c'..='\x1f')
}

/// Length of the tag after `{%`, if it consists of this one word.
fn tag_of_raw(behind: &str, word: &str) -> Option<usize> {
    let rest = behind.strip_prefix(['-', '+']).unwrap_or(behind).trim_start_matches(is_blank);
    let rest = rest.strip_prefix(word)?.trim_start_matches(is_blank);
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest).strip_prefix("%}")?;
    Some(behind.len() - rest.len())
}

/// Resolves the escapes of a string. A character escaped by name counts as an underscore, as it may be any.
fn unescape(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('\\') {
        return Some(Cow::Borrowed(text));
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, behind)) = rest.split_once('\\') {
        out.push_str(before);
        let c = behind.chars().next()?;
        rest = &behind[c.len_utf8()..];
        let octal = behind.find(|c| !matches!(c, '0'..='7')).unwrap_or(behind.len()).min(3);
        let (digits, radix) = match c {
            'x' => (rest.get(..2)?, 16),
            'u' => (rest.get(..4)?, 16),
            'U' => (rest.get(..8)?, 16),
            '0'..='7' => (&behind[..octal], 8),
            _ => ("", 0),
        };
        if radix > 0 {
            let code = u32::from_str_radix(digits, radix).ok()?;
            out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            rest = if radix == 8 { &behind[octal..] } else { &rest[digits.len()..] };
            continue;
        }
        match c {
            '\n' => {}
            '\\' | '\'' | '"' => out.push(c),
            'a' => out.push('\x07'),
            'b' => out.push('\x08'),
            'f' => out.push('\x0c'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'v' => out.push('\x0b'),
            'N' => {
                rest = rest.strip_prefix('{')?.split_once('}')?.1;
                out.push('_');
            }
            c => out.extend(['\\', c]),
        }
    }
    out.push_str(rest);
    Some(Cow::Owned(out))
}
