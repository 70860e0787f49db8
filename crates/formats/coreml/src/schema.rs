//! Schema of the file: messages with their fields, and enumerations.

use std::collections::HashMap;

/// Messages and enumerations, a line each.
const TEXT: &str = include_str!("schema.txt");

/// Type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int,
    Uint,
    Float,
    Double,
    /// Number of a word of that enumeration.
    Enum(&'static str),
    Text,
    Bytes,
    /// Message of that name.
    Message(&'static str),
}

/// Field of a message.
#[derive(Debug)]
pub(crate) struct Field {
    /// Number in the file.
    pub(crate) number: u32,
    /// Name.
    pub(crate) name: &'static str,
    /// Type.
    pub(crate) kind: Kind,
    /// True for a field that may occur more than once.
    pub(crate) is_list: bool,
}

/// Schema.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    messages: HashMap<&'static str, Vec<Field>>,
    enums: HashMap<&'static str, Vec<(&'static str, u64)>>,
}

impl Schema {
    /// Parses the text of the schema. Enumerations precede the messages in it.
    pub(crate) fn new() -> Self {
        let mut schema = Self::default();
        for line in TEXT.lines() {
            let mut words = line.split(' ');
            match (words.next(), words.next()) {
                (Some("enum"), Some(name)) => {
                    let value = |word: &'static str| {
                        let (word, number) = word.split_once('=')?;
                        Some((word, number.parse().ok()?))
                    };
                    schema.enums.insert(name, words.filter_map(value).collect());
                }
                (Some("message"), Some(name)) => {
                    let fields = words.filter_map(|word| schema.field(word)).collect();
                    schema.messages.insert(name, fields);
                }
                _ => {}
            }
        }
        schema
    }

    fn field(&self, word: &'static str) -> Option<Field> {
        let mut parts = word.split(':');
        let (number, name, kind) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        let (kind, is_list) = kind.strip_suffix('*').map_or((kind, false), |kind| (kind, true));
        let kind = match kind {
            "b" => Kind::Bool,
            "i" => Kind::Int,
            "u" => Kind::Uint,
            "f" => Kind::Float,
            "d" => Kind::Double,
            "s" => Kind::Text,
            "x" => Kind::Bytes,
            name if self.enums.contains_key(name) => Kind::Enum(name),
            name => Kind::Message(name),
        };
        Some(Field { number, name, kind, is_list })
    }

    /// Returns the fields of a message.
    pub(crate) fn fields(&self, message: &str) -> &[Field] {
        self.messages.get(message).map_or(&[], Vec::as_slice)
    }

    /// Returns the word of a number.
    pub(crate) fn word(&self, name: &str, number: u64) -> Option<&'static str> {
        self.enums.get(name)?.iter().find(|(_, own)| *own == number).map(|(word, _)| *word)
    }
}
