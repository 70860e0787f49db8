//! Tokens of a template, as Jinja cuts them: plain text, comments and `{% raw %}` are passed over.

use std::borrow::Cow;

/// What stands within `{{ }}` and `{% %}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// `{{`
    BeginOutput,
    /// `{%`
    BeginTag,
    /// `}}` or `%}`
    Close,
    Name(&'a str),
    /// Text in quotes, without its escapes.
    Text(Cow<'a, str>),
    Number,
    Operator(&'static str),
    /// The end of the template.
    End,
}

/// A template that Jinja refuses too: nothing of it runs.
#[derive(Debug)]
pub(super) struct Broken;

/// Longer ones first.
const OPERATORS: &[&str] = &[
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<",
    "=", ".", ":", "|", ",", ";",
];

/// Reads one token after the other.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    /// Where the next token begins, or blanks before it.
    pub(super) at: usize,
    /// What closes the tag that is open.
    close: Option<&'static str>,
    /// What closes the brackets that are open within it.
    brackets: Vec<&'static str>,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, close: None, brackets: Vec::new() }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, Broken> {
        let Some(close) = self.close else { return self.outside() };
        self.at += blanks(self.rest());
        let rest = self.rest();
        if self.brackets.is_empty() {
            let signs: &[&str] = if close == "%}" { &["", "-", "+"] } else { &["", "-"] };
            let end = signs
                .iter()
                .find(|sign| rest.strip_prefix(**sign).is_some_and(|rest| rest.starts_with(close)));
            if let Some(sign) = end {
                self.at += sign.len() + close.len();
                self.close = None;
                return Ok(Token::Close);
            }
        }
        let first = rest.chars().next().ok_or(Broken)?;
        if matches!(first, '\'' | '"') {
            return self.quoted(first);
        }
        if first.is_ascii_digit() {
            self.at += self.number();
            return Ok(Token::Number);
        }
        if is_of_name(first) {
            let len = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
            self.at += len;
            return Ok(Token::Name(&rest[..len]));
        }
        let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator)).ok_or(Broken)?;
        match *operator {
            "(" => self.brackets.push(")"),
            "[" => self.brackets.push("]"),
            "{" => self.brackets.push("}"),
            ")" | "]" | "}" if self.brackets.pop() != Some(operator) => return Err(Broken),
            _ => {}
        }
        self.at += operator.len();
        Ok(Token::Operator(operator))
    }

    /// Goes on to the next tag.
    fn outside(&mut self) -> Result<Token<'a>, Broken> {
        loop {
            let Some(brace) = memchr::memchr(b'{', self.rest().as_bytes()) else {
                self.at = self.text.len();
                return Ok(Token::End);
            };
            self.at += brace;
            let inside = self.rest().get(1..).unwrap_or_default();
            let token = match inside.as_bytes().first() {
                Some(b'{') => {
                    self.close = Some("}}");
                    Token::BeginOutput
                }
                Some(b'%') => {
                    if let Some(len) = raw(&inside[1..]) {
                        self.at += 2 + len;
                        self.at += end_of_raw(self.rest()).ok_or(Broken)?;
                        continue;
                    }
                    self.close = Some("%}");
                    Token::BeginTag
                }
                Some(b'#') => {
                    self.at += 2;
                    self.at += self.rest().find("#}").ok_or(Broken)? + 2;
                    continue;
                }
                _ => {
                    self.at += 1;
                    continue;
                }
            };
            self.at += 2;
            self.at += usize::from(self.rest().starts_with(['-', '+']));
            return Ok(token);
        }
    }

    /// The length of a number: `1_000`, `0xff`, `1.5e-3`.
    fn number(&self) -> usize {
        let rest = self.rest();
        let whole = digits(rest);
        // Behind a dot a number is an index.
        if !self.text[..self.at].ends_with('.') {
            let mut len = whole;
            if rest[len..].starts_with('.') {
                let fraction = digits(&rest[len + 1..]);
                len += if fraction > 0 { fraction + 1 } else { 0 };
            }
            if rest[len..].starts_with(['e', 'E']) {
                let sign = usize::from(rest[len + 1..].starts_with(['+', '-']));
                let exponent = digits(&rest[len + 1 + sign..]);
                len += if exponent > 0 { 1 + sign + exponent } else { 0 };
            }
            if len > whole {
                return len;
            }
        }
        if rest.starts_with('0') {
            let bits =
                rest.as_bytes().get(1).is_some_and(|b| matches!(b, b'b' | b'B' | b'o' | b'O' | b'x' | b'X'));
            let behind = if bits { &rest[2..] } else { "" };
            let len = behind.find(|c: char| c != '_' && !c.is_ascii_hexdigit()).unwrap_or(behind.len());
            return if len > 0 { 2 + len } else { 1 };
        }
        whole
    }

    fn quoted(&mut self, quote: char) -> Result<Token<'a>, Broken> {
        let inside = &self.rest()[1..];
        let (mut end, mut escapes) = (None, false);
        let mut chars = inside.char_indices();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                end = Some(at);
                break;
            }
            if c == '\\' {
                escapes = true;
                chars.next();
            }
        }
        let end = end.ok_or(Broken)?;
        self.at += end + 2;
        let text = &inside[..end];
        Ok(Token::Text(if escapes { Cow::Owned(unescape(text)?) } else { Cow::Borrowed(text) }))
    }
}

/// Letters of names, also such as Jinja takes from other scripts.
fn is_of_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Bytes of blanks at the front, as Python sees them.
fn blanks(text: &str) -> usize {
    let is_blank = |c: char| c.is_whitespace() || matches!(c, '\x1c'..='\x1f');
    text.find(|c| !is_blank(c)).unwrap_or(text.len())
}

/// Bytes of digits at the front, with one underscore between.
fn digits(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut len = 0;
    while is_digit(len) || (len > 0 && bytes.get(len) == Some(&b'_') && is_digit(len + 1)) {
        len += 1;
    }
    len
}

/// The length of what stands behind `{%`, where that begins plain text: `raw %}`.
fn raw(behind: &str) -> Option<usize> {
    let rest = behind.strip_prefix(['-', '+']).unwrap_or(behind);
    let rest = rest[blanks(rest)..].strip_prefix("raw")?;
    let rest = &rest[blanks(rest)..];
    let rest = rest.strip_prefix('-').unwrap_or(rest).strip_prefix("%}")?;
    Some(behind.len() - rest.len())
}

/// The length of plain text with the tag that ends it.
fn end_of_raw(text: &str) -> Option<usize> {
    for (at, _) in text.match_indices("{%") {
        let rest = &text[at + 2..];
        let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
        let Some(rest) = rest[blanks(rest)..].strip_prefix("endraw") else { continue };
        let rest = &rest[blanks(rest)..];
        if let Some(rest) = rest.strip_prefix(['-', '+']).unwrap_or(rest).strip_prefix("%}") {
            return Some(text.len() - rest.len());
        }
    }
    None
}

/// What a text with escapes says. A character by its name may be any, and is taken for an underscore.
fn unescape(text: &str) -> Result<String, Broken> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\\') {
        out.push_str(before);
        let mut chars = behind.chars();
        let c = chars.next().ok_or(Broken)?;
        rest = chars.as_str();
        let by_number = match c {
            'x' => Some(2),
            'u' => Some(4),
            'U' => Some(8),
            _ => None,
        };
        if let Some(len) = by_number {
            let digits = rest.get(..len).ok_or(Broken)?;
            let code = u32::from_str_radix(digits, 16).map_err(|_| Broken)?;
            out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            rest = &rest[len..];
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
                rest = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).ok_or(Broken)?.1;
                out.push('_');
            }
            '0'..='7' => {
                let len = behind.find(|c| !matches!(c, '0'..='7')).unwrap_or(behind.len()).min(3);
                let code = u32::from_str_radix(&behind[..len], 8).map_err(|_| Broken)?;
                out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                rest = &behind[len..];
            }
            c => out.extend(['\\', c]),
        }
    }
    out.push_str(rest);
    Ok(out)
}
