//! N-Triples: one statement a line. Terms become their canonical text: `<iri>`, `_:label`, `"text"`, `"text"@en` or
//! `"text"^^<iri>`, with `\"`, `\\`, `\n` and `\r` as the only escapes, languages in lower case, and without the datatype
//! `xsd:string`. So equal terms have equal texts.
//!
//! After the W3C recommendation "RDF 1.1 N-Triples". Only the grammar is checked: an IRI needs a scheme and may not have the characters
//! that the grammar excludes; the parts of an IRI or of a language tag are not checked further.

use std::ops::Range;

/// Datatype of literals without a datatype.
const STRING: &[u8] = b"<http://www.w3.org/2001/XMLSchema#string>";

/// One for each byte that an IRI cannot have.
const EXCLUDED: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte <= b' ' as usize {
        table[byte] = 1;
        byte += 1;
    }
    let others = b"<>\"{}|^`\\";
    byte = 0;
    while byte < others.len() {
        table[others[byte] as usize] = 1;
        byte += 1;
    }
    table
};

/// Terms of the statement in the line `range`: subject, predicate, object. `None` for a blank line and a comment. A term with
/// escapes is replaced in place.
pub(super) fn terms(text: &mut [u8], range: Range<usize>) -> Result<Option<[Range<usize>; 3]>, &'static str> {
    let mut line = Line { text, at: range.start, end: range.end };
    line.blanks();
    if line.is_done() {
        return Ok(None);
    }
    let subject = match line.peek() {
        Some(b'<') => line.iri()?,
        Some(b'_') => line.blank_node()?,
        _ => return Err("an IRI in <> or a blank node as the subject"),
    };
    line.blanks();
    let predicate = match line.peek() {
        Some(b'<') => line.iri()?,
        _ => return Err("an IRI in <> as the predicate"),
    };
    line.blanks();
    let object = match line.peek() {
        Some(b'<') => line.iri()?,
        Some(b'_') => line.blank_node()?,
        Some(b'"') => line.literal()?,
        _ => return Err("an IRI in <>, a blank node or a literal as the object"),
    };
    line.blanks();
    if line.peek() != Some(b'.') {
        return Err("a full stop after the object");
    }
    line.at += 1;
    line.blanks();
    if !line.is_done() {
        return Err("nothing but a comment after the full stop");
    }
    Ok(Some([subject, predicate, object]))
}

struct Line<'t> {
    text: &'t mut [u8],
    at: usize,
    end: usize,
}

impl Line<'_> {
    fn peek(&self) -> Option<u8> {
        self.text[..self.end].get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    /// True at the end of the line, and at a comment.
    fn is_done(&self) -> bool {
        matches!(self.peek(), None | Some(b'#'))
    }

    /// Reads `<iri>`: absolute, without characters that IRIs do not have.
    fn iri(&mut self) -> Result<Range<usize>, &'static str> {
        const WHAT: &str = "an absolute IRI in <>";
        let start = self.at;
        let inside = &self.text[start..self.end];
        let close = memchr::memchr(b'>', inside).ok_or(WHAT)?;
        let end = start + close + 1;
        let len = if memchr::memchr(b'\\', &inside[..close]).is_some() {
            1 + self.unescaped(start + 1, end - 1, Escapes::Iri)? + 1
        } else {
            close + 1
        };
        self.text[start + len - 1] = b'>';
        let iri = &self.text[start + 1..start + len - 1];
        // Without a branch for each byte.
        let excluded = iri.iter().fold(0, |found, b| found | EXCLUDED[usize::from(*b)]);
        if excluded != 0 || !has_scheme(iri) || std::str::from_utf8(iri).is_err() {
            return Err(WHAT);
        }
        self.at = end;
        Ok(start..start + len)
    }

    /// Reads `_:label`.
    fn blank_node(&mut self) -> Result<Range<usize>, &'static str> {
        const WHAT: &str = "a blank node: _: and a label";
        let start = self.at;
        let rest = &self.text[start..self.end];
        let label = rest.strip_prefix(b"_:").ok_or(WHAT)?;
        let stop = label.iter().position(|b| b.is_ascii() && !is_label(*b)).unwrap_or(label.len());
        let label = std::str::from_utf8(&label[..stop]).map_err(|_| WHAT)?;
        // A full stop at the end ends the statement.
        let label = label.trim_end_matches('.');
        let begins = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':' || is_name_start(c);
        let goes_on = |c: char| begins(c) || matches!(c, '-' | '.' | '\u{b7}') || is_name_mark(c);
        if !label.starts_with(begins) || !label.chars().all(goes_on) {
            return Err(WHAT);
        }
        self.at = start + 2 + label.len();
        Ok(start..self.at)
    }

    /// Reads `"text"` with its language or datatype.
    fn literal(&mut self) -> Result<Range<usize>, &'static str> {
        const WHAT: &str = "a literal in quotes";
        let start = self.at;
        let mut close = start + 1;
        let mut has_escapes = false;
        loop {
            let rest = &self.text[close..self.end];
            close += memchr::memchr2(b'"', b'\\', rest).ok_or(WHAT)?;
            if self.text[close] == b'"' {
                break;
            }
            has_escapes = true;
            close += 2;
            if close >= self.end {
                return Err(WHAT);
            }
        }
        let len =
            if has_escapes { self.unescaped(start + 1, close, Escapes::Literal)? } else { close - start - 1 };
        let inside = &self.text[start + 1..start + 1 + len];
        if inside.contains(&b'\r') || std::str::from_utf8(inside).is_err() {
            return Err(WHAT);
        }
        let mut end = start + 1 + len;
        self.text[end] = b'"';
        end += 1;
        self.at = close + 1;
        self.blanks();
        let suffix = match self.peek() {
            Some(b'@') => {
                let rest = &self.text[self.at + 1..self.end];
                let stop =
                    rest.iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'-').unwrap_or(rest.len());
                let (tag, from) = (&rest[..stop], self.at);
                let mut parts = tag.split(|b| *b == b'-');
                let is_first =
                    parts.next().is_some_and(|p| !p.is_empty() && p.iter().all(u8::is_ascii_alphabetic));
                if !is_first || parts.any(<[u8]>::is_empty) {
                    return Err("a language tag after @");
                }
                self.at += 1 + stop;
                self.text[from..self.at].make_ascii_lowercase();
                from..self.at
            }
            Some(b'^') => {
                const WHAT: &str = "^^ and an IRI in <> as the datatype";
                if self.text[self.at..self.end].get(1) != Some(&b'^') {
                    return Err(WHAT);
                }
                self.at += 2;
                self.blanks();
                if self.peek() != Some(b'<') {
                    return Err(WHAT);
                }
                let iri = self.iri()?;
                if &self.text[iri.clone()] == STRING {
                    return Ok(start..end);
                }
                self.text[end..end + 2].copy_from_slice(b"^^");
                end += 2;
                iri
            }
            _ => return Ok(start..end),
        };
        self.text.copy_within(suffix.clone(), end);
        Ok(start..end + suffix.len())
    }

    /// Replaces the escapes in the bytes `from..to`; returns the new length.
    fn unescaped(&mut self, from: usize, to: usize, escapes: Escapes) -> Result<usize, &'static str> {
        const WHAT: &str = "a valid escape";
        let (mut read, mut write) = (from, from);
        while read < to {
            let byte = self.text[read];
            if byte != b'\\' {
                self.text[write] = byte;
                (read, write) = (read + 1, write + 1);
                continue;
            }
            let kind = *self.text[..to].get(read + 1).ok_or(WHAT)?;
            let digits = match kind {
                b'u' => 4,
                b'U' => 8,
                _ => 0,
            };
            let c = if digits > 0 {
                let hex = self.text[..to].get(read + 2..read + 2 + digits).ok_or(WHAT)?;
                let number = hex.iter().try_fold(0, |n: u32, b| {
                    let digit = char::from(*b).to_digit(16)?;
                    n.checked_mul(16)?.checked_add(digit)
                });
                number.and_then(char::from_u32).ok_or(WHAT)?
            } else {
                match (escapes, kind) {
                    (Escapes::Literal, b't') => '\t',
                    (Escapes::Literal, b'b') => '\u{8}',
                    (Escapes::Literal, b'n') => '\n',
                    (Escapes::Literal, b'r') => '\r',
                    (Escapes::Literal, b'f') => '\u{c}',
                    (Escapes::Literal, b'"') => '"',
                    (Escapes::Literal, b'\'') => '\'',
                    (Escapes::Literal, b'\\') => '\\',
                    _ => return Err(WHAT),
                }
            };
            read += 2 + digits;
            let mut buffer = [0; 4];
            let canonical: &[u8] = match (escapes, c) {
                (Escapes::Literal, '"') => b"\\\"",
                (Escapes::Literal, '\\') => b"\\\\",
                (Escapes::Literal, '\n') => b"\\n",
                (Escapes::Literal, '\r') => b"\\r",
                _ => c.encode_utf8(&mut buffer).as_bytes(),
            };
            self.text[write..write + canonical.len()].copy_from_slice(canonical);
            write += canonical.len();
        }
        Ok(write - from)
    }
}

/// Escapes that a term may have.
#[derive(Clone, Copy)]
enum Escapes {
    Iri,
    Literal,
}

/// True for an ASCII character of a label.
fn is_label(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"_:-.".contains(&b)
}

/// True for `PN_CHARS_BASE` beyond ASCII.
fn is_name_start(c: char) -> bool {
    matches!(c, '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}'
        | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}'
        | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

/// True for what `PN_CHARS` has besides.
fn is_name_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

/// True where an IRI begins with a scheme.
fn has_scheme(iri: &[u8]) -> bool {
    let Some(colon) = memchr::memchr(b':', iri) else { return false };
    let scheme = &iri[..colon];
    scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<[String; 3]>, &'static str> {
        let mut text = line.as_bytes().to_vec();
        let end = text.len();
        let terms = terms(&mut text, 0..end)?;
        Ok(terms.map(|terms| terms.map(|range| String::from_utf8(text[range].to_vec()).unwrap())))
    }

    #[test]
    fn terms_become_canonical() {
        let one = |line: &str| read(line).unwrap().unwrap();
        assert_eq!(one("<http://a/b> <p:x> _:b1 ."), ["<http://a/b>", "<p:x>", "_:b1"]);
        assert_eq!(one("_:a.b <p:x>\t_:c. # c"), ["_:a.b", "<p:x>", "_:c"]);
        assert_eq!(
            one(r#"<a:\u00e9\U0001F600> <p:x> "a\tb\u0022\n\\"@en-GB ."#),
            ["<a:é😀>", "<p:x>", "\"a\tb\\\"\\n\\\\\"@en-gb"]
        );
        assert_eq!(one(r#"<a:b><p:x>"x"^^<http://www.w3.org/2001/XMLSchema#str\u0069ng>."#)[2], "\"x\"");
        assert_eq!(one(r#"<a:b><p:x>"\u0041"^^<t:\u0042>."#), ["<a:b>", "<p:x>", "\"A\"^^<t:B>"]);
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("  # no statement").unwrap(), None);
    }

    #[test]
    fn other_lines_are_refused() {
        assert_eq!(read("<a:b> <p:x> \"x\" @EN .").unwrap().unwrap()[2], "\"x\"@en");
        assert_eq!(read("<a:b> <p:x> \"x\"\t^^ <c:d> .").unwrap().unwrap()[2], "\"x\"^^<c:d>");
        for bad in [
            "x",
            "<a:b> <p:x> .",
            "<a:b> <p:x> <c:d>",
            "<a:b> _:p <c:d> .",
            "\"s\" <p:x> <c:d> .",
            "<a b:c> <p:x> <c:d> .",
            "<relative> <p:x> <c:d> .",
            "<a:b> <p:x> \"open .",
            "<a:b> <p:x> \"\\q\" .",
            "<a:b> <p:x> \"\\u12\" .",
            "<a:\\ud800> <p:x> <c:d> .",
            "<a:\\u0020> <p:x> <c:d> .",
            "<a:b> <p:x> \"x\"@ .",
            "<a:b> <p:x> \"x\"^<c:d> .",
            "<a:b> <p:x> <c:d> . <e:f>",
            "_: <p:x> <c:d> .",
            "_:-a <p:x> <c:d> .",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
