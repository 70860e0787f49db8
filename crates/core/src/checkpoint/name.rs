//! Names and paths of tensors. A name is bytes, mostly UTF-8; a path is a list of names.

use crate::text::escape as escape_text;
use serde_json::Value as Json;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Maximum length of a name stored inline, without an allocation: most are shorter.
const INLINE: usize = 22;

/// Part of a path, a slot, or a key: bytes that are usually UTF-8.
#[derive(Clone)]
pub struct Name(Repr);

/// 24 bytes, to keep paths of a million parts small.
#[derive(Clone)]
enum Repr {
    Short { len: u8, bytes: [u8; INLINE] },
    Long(Box<[u8]>),
}

// Names compare as their bytes do.
impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Default for Name {
    fn default() -> Self {
        Self(Repr::Short { len: 0, bytes: [0; INLINE] })
    }
}

impl Name {
    /// Creates a name of these bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        let mut name = [0; INLINE];
        match (name.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(bytes);
                Self(Repr::Short { len, bytes: name })
            }
            _ => Self(Repr::Long(bytes.into())),
        }
    }
    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Short { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Repr::Long(bytes) => bytes,
        }
    }
    /// Returns the text, if the bytes are UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()).ok()
    }
    /// Returns a JSON string, or `{"hex": "…"}` if the bytes are not UTF-8.
    pub fn to_json(&self) -> Json {
        match self.as_str() {
            Some(text) => Json::from(text),
            None => serde_json::json!({ "hex": Name::hex(self.as_bytes()) }),
        }
    }
    /// The inverse of [`to_json`](Self::to_json).
    pub fn from_json(json: &Json) -> Option<Self> {
        match json {
            Json::String(text) => Some(Self::from(text.as_str())),
            Json::Object(map) if map.len() == 1 => Name::unhex(map.get("hex")?.as_str()?).map(Self::new),
            _ => None,
        }
    }
    /// Returns the text, with `\xNN` for each byte that is not UTF-8.
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(self.as_bytes().len());
        self.push_text(&mut text);
        text
    }

    /// Appends [`to_text`](Self::to_text) to `text`.
    fn push_text(&self, text: &mut String) {
        for chunk in self.as_bytes().utf8_chunks() {
            text.push_str(chunk.valid());
            for byte in chunk.invalid() {
                text.push_str(&format!("\\x{byte:02x}"));
            }
        }
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for Name {
    /// Writes the text, escaped for terminals: see [`crate::text::escape`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&escape_text(&self.to_text()))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Path of a tensor: its parts, from the root down. Clones share the parts. A path of one short part needs no allocation: a file
/// may have millions of them.
#[derive(Clone)]
pub struct TensorPath(Parts);

#[derive(Clone)]
enum Parts {
    One(Name),
    Several(Arc<[Name]>),
}

// Paths compare as their parts do.
impl PartialEq for TensorPath {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for TensorPath {}

impl Ord for TensorPath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(other.parts())
    }
}

impl PartialOrd for TensorPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for TensorPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl Default for TensorPath {
    fn default() -> Self {
        Self::from_iter([])
    }
}

impl FromIterator<Name> for TensorPath {
    fn from_iter<I: IntoIterator<Item = Name>>(parts: I) -> Self {
        let mut parts = parts.into_iter();
        let (first, second) = (parts.next(), parts.next());
        match (first, second) {
            (Some(one), None) => Self(Parts::One(one)),
            (first, second) => Self(Parts::Several(first.into_iter().chain(second).chain(parts).collect())),
        }
    }
}

impl TensorPath {
    /// Creates a path of these parts.
    pub fn new(parts: impl Into<Vec<Name>>) -> Self {
        parts.into().into_iter().collect()
    }
    /// Creates the path of a dotted name: one part between dots.
    pub fn from_dotted(name: &str) -> Self {
        name.split('.').map(Name::from).collect()
    }
    /// Parses a path written by a user: a JSON array of parts, or a dotted name.
    pub fn parse(text: &str) -> Self {
        if text.starts_with('[')
            && let Ok(json) = serde_json::from_str::<Json>(text)
            && let Some(path) = Self::from_json(&json)
        {
            return path;
        }
        Self::from_dotted(text)
    }
    /// Returns the path `["value"]` of a tensor without a name.
    pub fn value() -> Self {
        Self(Parts::One(Name::from("value")))
    }
    /// Returns the parts.
    pub fn parts(&self) -> &[Name] {
        match &self.0 {
            Parts::One(name) => std::slice::from_ref(name),
            Parts::Several(names) => names,
        }
    }
    /// Returns true if this path begins with the parts of `prefix`.
    pub fn starts_with(&self, prefix: &Self) -> bool {
        self.parts().starts_with(prefix.parts())
    }
    /// Returns the parts joined by dots, not escaped. Two paths may have the same text.
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(self.byte_len() + self.parts().len());
        for (place, part) in self.parts().iter().enumerate() {
            if place > 0 {
                text.push('.');
            }
            part.push_text(&mut text);
        }
        text
    }
    /// Returns a JSON array of the parts.
    pub fn to_json(&self) -> Json {
        self.parts().iter().map(Name::to_json).collect()
    }
    /// Returns [`to_json`](Self::to_json) as text.
    pub fn to_json_text(&self) -> String {
        self.to_json().to_string()
    }
    /// The inverse of [`to_json`](Self::to_json).
    pub fn from_json(json: &Json) -> Option<Self> {
        json.as_array()?.iter().map(Name::from_json).collect()
    }
    /// Returns the total bytes of all parts.
    pub fn byte_len(&self) -> usize {
        self.parts().iter().map(|part| part.as_bytes().len()).sum()
    }
}

impl fmt::Display for TensorPath {
    /// Writes the parts joined by dots, escaped for terminals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&escape_text(&self.to_text()))
    }
}

impl fmt::Debug for TensorPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().fmt(f)
    }
}

impl Name {
    /// Returns lower-case hexadecimal digits, two per byte.
    pub fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Inverse of [`Name::hex`].
    pub fn unhex(text: &str) -> Option<Vec<u8>> {
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_every_byte() {
        for bytes in [&b"fc1.w"[..], b"", b"\xff\x00a", "é\u{301}".as_bytes()] {
            let name = Name::new(bytes);
            assert_eq!(Name::from_json(&name.to_json()), Some(name));
        }
        assert_eq!(Name::from_json(&serde_json::json!({"hex": "+f"})), None);
        assert_eq!(Name::from_json(&serde_json::json!({"hex": "é"})), None);
    }

    #[test]
    fn names_compare_as_bytes_do() {
        let all = [&b""[..], b"\0", b"a", b"a\0", b"ab", b"b", b"\xff", b""];
        for a in all {
            for b in all {
                let (left, right) = (Name::new(a), Name::new(b));
                assert_eq!(left == right, a == b);
                assert_eq!(left.cmp(&right), a.cmp(b));
            }
        }
    }

    #[test]
    fn escapes_control_characters() {
        assert_eq!(Name::new(*b"a\x1b[2J\xff\n").to_string(), "a\\u{1b}[2J\\xff\\n");
        assert_eq!(escape_text("ab\u{202e}c"), "ab\\u{202e}c");
        assert_eq!(escape_text("größe 重み"), "größe 重み");
    }

    #[test]
    fn parses_dotted_names_and_json_arrays() {
        assert_eq!(TensorPath::parse("a.b").parts().len(), 2);
        assert_eq!(TensorPath::parse("[\"a.b\"]").parts().len(), 1);
        assert_eq!(TensorPath::parse("[0:2]").to_text(), "[0:2]");
        assert_eq!(TensorPath::parse("").parts(), [Name::from("")]);
    }
}
