//! Streaming reader of lists of names: one JSON array of strings.

use std::sync::{Arc, Mutex};
use weighbridge_core::checkpoint::{RowNameList, RowNames, RowNamesRef, each_part};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, to_usize};

/// Bytes per read.
const WINDOW: usize = 1 << 20;

/// Row names of a partitioned table, with one file per partition. They are read on demand and cached.
#[derive(Debug)]
pub struct NameFiles {
    label: String,
    parts: Vec<(SourceRef, u64)>,
    limits: Limits,
    read: Mutex<Option<Arc<RowNameList>>>,
}

impl NameFiles {
    /// Creates shared row names of files in the order of the partitions, each with the number of rows of its partition. `label` is
    /// their display name.
    pub fn shared(label: impl Into<String>, parts: Vec<(SourceRef, u64)>, limits: Limits) -> RowNamesRef {
        Arc::new(Self { label: label.into(), parts, limits, read: Mutex::new(None) })
    }
}

impl RowNames for NameFiles {
    fn label(&self) -> &str {
        &self.label
    }

    fn read(&self) -> Result<Arc<RowNameList>> {
        // A failed thread leaves `None`, so a poisoned lock is still consistent.
        let mut kept = self.read.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(list) = &*kept {
            return Ok(list.clone());
        }
        let mut list = RowNameList::new();
        self.read_parts(&mut list, &mut |_| Ok(()))?;
        let list = Arc::new(list);
        *kept = Some(list.clone());
        Ok(list)
    }

    fn each(&self, take: &mut dyn FnMut(&RowNameList) -> Result<()>) -> Result<()> {
        each_part(take, |list, look| self.read_parts(list, look))
    }

    fn sources(&self) -> Vec<SourceRef> {
        self.parts.iter().map(|(source, _)| source.clone()).collect()
    }
}

impl NameFiles {
    /// Appends all names to `list`, and calls `look` after each one.
    fn read_parts(
        &self,
        list: &mut RowNameList,
        look: &mut dyn FnMut(&mut RowNameList) -> Result<()>,
    ) -> Result<()> {
        for (source, rows) in &self.parts {
            let names = looked_at(source, &self.limits, Some(*rows), list, look)?;
            if names != *rows {
                // Too many names are rejected while reading.
                return Err(Error::mismatch("names-differ", "fewer names than rows")
                    .in_file(source.label())
                    .expected(format_args!("{rows} names"))
                    .found(names));
            }
        }
        Ok(())
    }
}

/// Appends the names of a file to `list`, and returns their number. With `most`, reading fails at the first name beyond that many.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `not-a-list-of-names`, unless it is a JSON array of strings that Python accepts;
/// [`weighbridge_core::Kind::Unsupported`], `lone-surrogate`, for a surrogate without its pair (`\ud800`), which Python accepts but
/// UTF-8 cannot represent; [`weighbridge_core::Kind::Limit`] for a name longer than [`Limits::name_bytes`];
/// [`weighbridge_core::Kind::Mismatch`], `names-differ`, beyond `most`.
pub fn read_names(
    source: &SourceRef,
    limits: &Limits,
    most: Option<u64>,
    list: &mut RowNameList,
) -> Result<u64> {
    looked_at(source, limits, most, list, &mut |_| Ok(()))
}

/// Reads names, as [`read_names`], and calls `look` after each one.
fn looked_at(
    source: &SourceRef,
    limits: &Limits,
    most: Option<u64>,
    list: &mut RowNameList,
    look: &mut dyn FnMut(&mut RowNameList) -> Result<()>,
) -> Result<u64> {
    let mut reader = Reader { source, limits, at: 0, window: Vec::new(), place: 0, name: String::new() };
    reader.names(most, list, look).map_err(|e| e.in_file(source.label()))
}

struct Reader<'a> {
    source: &'a SourceRef,
    limits: &'a Limits,
    /// Offset of the first byte of the window.
    at: u64,
    window: Vec<u8>,
    /// Index of the next byte in the window.
    place: usize,
    /// Buffer for names with escapes.
    name: String,
}

impl Reader<'_> {
    fn names(
        &mut self,
        most: Option<u64>,
        list: &mut RowNameList,
        look: &mut dyn FnMut(&mut RowNameList) -> Result<()>,
    ) -> Result<u64> {
        self.expect(b'[')?;
        let mut count = 0;
        if self.after_blanks()? == Some(b']') {
            self.place += 1;
        } else {
            loop {
                self.expect(b'"')?;
                if most == Some(count) {
                    return Err(Error::mismatch("names-differ", "more names than rows")
                        .at(self.offset())
                        .expected(format_args!("{count} names")));
                }
                self.string(list)?;
                look(list)?;
                count += 1;
                match self.after_blanks()? {
                    Some(b',') => self.place += 1,
                    Some(b']') => break self.place += 1,
                    _ => return Err(self.wrong("a comma or the end of the list")),
                }
            }
        }
        match self.after_blanks()? {
            None => Ok(count),
            Some(_) => Err(self.wrong("the end of the file")),
        }
    }

    fn offset(&self) -> u64 {
        self.at + self.place as u64
    }

    fn wrong(&self, expected: &str) -> Error {
        let rest = self.window.get(self.place..).unwrap_or_default();
        let found = String::from_utf8_lossy(&rest[..rest.len().min(20)]).into_owned();
        Error::corrupt("not-a-list-of-names", "the file is not a JSON list of names")
            .at(self.offset())
            .expected(expected)
            .found(if rest.is_empty() { "the end of the file".to_owned() } else { format!("{found:?}") })
    }

    /// Reads more bytes after the unconsumed ones; false at the end of the file.
    fn more(&mut self) -> Result<bool> {
        let end = self.at + self.window.len() as u64;
        let rest = self.source.len().saturating_sub(end);
        if rest == 0 {
            return Ok(false);
        }
        self.at += self.place as u64;
        self.window.drain(..self.place);
        self.place = 0;
        let old = self.window.len();
        self.window.resize(old + to_usize(rest.min(WINDOW as u64))?, 0);
        self.source.read_at(end, &mut self.window[old..])?;
        Ok(true)
    }

    /// Returns the next non-blank byte without consuming it.
    fn after_blanks(&mut self) -> Result<Option<u8>> {
        loop {
            match self.window.get(self.place).copied() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.place += 1,
                Some(byte) => return Ok(Some(byte)),
                None if self.more()? => {}
                None => return Ok(None),
            }
        }
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.after_blanks()? == Some(byte) {
            self.place += 1;
            return Ok(());
        }
        Err(self.wrong(if byte == b'"' { "a name in quotes" } else { "[" }))
    }

    /// Reads a string after its opening quote.
    fn string(&mut self, list: &mut RowNameList) -> Result<()> {
        let mut seen = 0;
        let end = loop {
            let rest = self.window.get(self.place + seen..).unwrap_or_default();
            let stop = rest.iter().position(|&b| b == b'"' || b == b'\\' || b < 0x20);
            seen += stop.unwrap_or(rest.len());
            Limits::check("bytes in a name", "name_bytes", seen as u64, self.limits.name_bytes)?;
            match stop {
                Some(_) => break self.window[self.place + seen],
                None if self.more()? => {}
                None => {
                    self.place = self.window.len();
                    return Err(self.wrong("the end of a name"));
                }
            }
        };
        let bytes = self.window.get(self.place..self.place + seen).unwrap_or_default();
        let text = std::str::from_utf8(bytes).map_err(|_| self.wrong("text in UTF-8"))?;
        if end == b'"' {
            list.push(text);
            self.place += seen + 1;
            return Ok(());
        }
        self.name.clear();
        self.name.push_str(text);
        self.place += seen;
        self.rest_of_string(list)
    }

    /// Reads the rest of a string from its first escape.
    fn rest_of_string(&mut self, list: &mut RowNameList) -> Result<()> {
        let mut raw = Vec::new();
        loop {
            let Some(byte) = self.byte()? else { return Err(self.wrong("the end of a name")) };
            if (byte == b'"' || byte == b'\\') && !raw.is_empty() {
                let text = std::str::from_utf8(&raw).map_err(|_| self.wrong("text in UTF-8"))?;
                self.name.push_str(text);
                raw.clear();
            }
            match byte {
                b'"' => break,
                b'\\' => {
                    let c = self.escaped()?;
                    self.name.push(c);
                }
                0..0x20 => {
                    self.place -= 1;
                    return Err(self.wrong("no control characters in a name"));
                }
                byte => raw.push(byte),
            }
            let len = self.name.len() + raw.len();
            Limits::check("bytes in a name", "name_bytes", len as u64, self.limits.name_bytes)?;
        }
        list.push(&self.name);
        Ok(())
    }

    fn byte(&mut self) -> Result<Option<u8>> {
        if self.place == self.window.len() && !self.more()? {
            return Ok(None);
        }
        let byte = self.window.get(self.place).copied();
        self.place += 1;
        Ok(byte)
    }

    /// Reads an escape after its backslash.
    fn escaped(&mut self) -> Result<char> {
        Ok(match self.byte()? {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.wrong("an escape of JSON before this")),
        })
    }

    fn unicode(&mut self) -> Result<char> {
        let at = self.offset();
        let first = self.hex()?;
        let code = match first {
            0xd800..0xdc00 if self.byte()? == Some(b'\\') && self.byte()? == Some(b'u') => {
                let second = self.hex()?;
                // Without a low surrogate, the code point is invalid.
                if (0xdc00..0xe000).contains(&second) {
                    0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                } else {
                    first
                }
            }
            code => code,
        };
        char::from_u32(code).ok_or_else(|| {
            Error::unsupported("lone-surrogate", "a name contains a lone surrogate")
                .at(at)
                .found(format_args!("\\u{first:04x}"))
        })
    }

    fn hex(&mut self) -> Result<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.byte()?.and_then(|b| char::from(b).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.wrong("four hexadecimal digits before this"))?;
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_io::source::{CountingSource, MemorySource};

    fn source(text: impl Into<Vec<u8>>) -> SourceRef {
        Arc::new(MemorySource::new("names.json", text.into()))
    }

    fn read(text: impl Into<Vec<u8>>) -> Result<Vec<String>> {
        let mut list = RowNameList::new();
        let count = read_names(&source(text), &Limits::default(), None, &mut list)?;
        assert_eq!(count, list.len() as u64);
        Ok(list.iter().map(str::to_owned).collect())
    }

    #[test]
    fn reads_lists_as_python_does() {
        assert_eq!(read("[]").unwrap(), [""; 0]);
        assert_eq!(read(" \t\r\n[ \n ] \n").unwrap(), [""; 0]);
        assert_eq!(read("[\n    \"a\",\n    \"b\"\n]").unwrap(), ["a", "b"]);
        assert_eq!(
            read(r#"["","\"\\\/\b\f\n\r\t","S\u00fc\u00DF","\ud83d\ude00x","süß"]"#).unwrap(),
            ["", "\"\\/\u{8}\u{c}\n\r\t", "Süß", "😀x", "süß"]
        );
    }

    #[test]
    fn rejects_other_content_with_its_offset() {
        let long = format!("{}[\"{}", " ".repeat(WINDOW - 10), "x".repeat(100));
        for (text, offset) in [
            ("", 0),
            ("{}", 0),
            ("[", 1),
            ("[1]", 1),
            ("[null]", 1),
            ("[\"a\",]", 5),
            ("[\"a\" \"b\"]", 5),
            ("[\"a\"", 4),
            ("[\"a", 3),
            ("[\"a\"] x", 6),
            ("[\"a\nb\"]", 3),
            ("[\"\\n\nb\"]", 4),
            ("\u{feff}[]", 0),
            ("['a']", 1),
            (&long, WINDOW as u64 + 92),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(
                (error.code().as_str(), error.offset()),
                ("not-a-list-of-names", Some(offset)),
                "{text:.20}"
            );
        }
        for text in [r#"["\x41"]"#, r#"["\u12"]"#, r#"["\u12g4"]"#, r#"["\"#, r#"["\u+123"]"#] {
            assert_eq!(read(text).unwrap_err().code().as_str(), "not-a-list-of-names", "{text}");
        }
        for text in
            [r#"["\ud800"]"#, r#"["\udc00x"]"#, r#"["\ud800\u0041"]"#, r#"["\ud800\n"]"#, r#"["\ud800x"]"#]
        {
            assert_eq!(read(text).unwrap_err().code().as_str(), "lone-surrogate", "{text}");
        }
        assert_eq!(read(&b"[\"\xff\"]"[..]).unwrap_err().code().as_str(), "not-a-list-of-names");
        assert_eq!(read(&b"[\"\\n\xff\"]"[..]).unwrap_err().code().as_str(), "not-a-list-of-names");
    }

    #[test]
    fn reads_names_across_window_boundaries() {
        // For every shift, a name, blank, escape or character crosses the boundary.
        for shift in 0..40 {
            let names: Vec<String> = (0..20).map(|i| format!("n\u{e4}me \"{i}\" \u{1f600}")).collect();
            let mut text = vec![b' '; WINDOW - 60 - shift];
            text.extend_from_slice(serde_json::to_string_pretty(&names).unwrap().as_bytes());
            assert_eq!(read(text).unwrap(), names);
            let mut text = vec![b' '; WINDOW - 60 - shift];
            text.extend_from_slice(
                br#"["\u00fc\ud83d\ude00\n", "plain and long enough", "\u00fc\ud83d\ude00\n"]"#,
            );
            assert_eq!(read(text).unwrap(), ["ü😀\n", "plain and long enough", "ü😀\n"]);
        }
    }

    #[test]
    fn rejects_names_above_the_length_limit() {
        let limits = Limits { name_bytes: 1000, ..Limits::default() };
        for start in ["[\"", "[\"\\n"] {
            let text = format!("{start}{}\"]", "x".repeat(3 * WINDOW));
            let error = read_names(&source(text), &limits, None, &mut RowNameList::new()).unwrap_err();
            assert_eq!(error.code().as_str(), "limit");
        }
    }

    #[test]
    fn partitions_are_read_once_and_in_order() {
        let first = Arc::new(CountingSource::new(source(r#"["a","b"]"#)));
        let names = NameFiles::shared(
            "names of t",
            vec![(first.clone(), 2), (source("[]"), 0), (source(r#"["c"]"#), 1)],
            Limits::default(),
        );
        assert_eq!(first.bytes_read(), 0);
        assert_eq!(names.read().unwrap().iter().collect::<Vec<_>>(), ["a", "b", "c"]);
        names.read().unwrap();
        assert_eq!((first.bytes_read(), names.sources().len()), (9, 3));
        for rows in [0, 1, 3] {
            let names = NameFiles::shared("t", vec![(source(r#"["a","b"]"#), rows)], Limits::default());
            let error = names.read().unwrap_err();
            assert_eq!((error.code().as_str(), error.file()), ("names-differ", Some("names.json")));
        }
    }
}
