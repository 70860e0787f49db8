//! Schema of the file: tables with their fields, enumerations and unions.

use std::collections::HashMap;

/// Tables, enumerations and unions, a line each.
const TEXT: &str = include_str!("schema.txt");

/// Type of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Bool,
    I8,
    U8,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
}

impl Scalar {
    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "bool" => Self::Bool,
            "byte" => Self::I8,
            "ubyte" => Self::U8,
            "ushort" => Self::U16,
            "int" => Self::I32,
            "uint" => Self::U32,
            "long" => Self::I64,
            "ulong" => Self::U64,
            "float" => Self::F32,
            _ => return None,
        })
    }

    /// Returns the bytes of a number.
    pub(crate) fn width(self) -> u64 {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 => 8,
        }
    }
}

/// Type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Number.
    Scalar(Scalar),
    /// Number of a word.
    Enum(&'static str, Scalar),
    /// Text.
    Text,
    /// Table.
    Table(&'static str),
    /// Table of one of several types. Its field before this one has the number of the type.
    Union(&'static str),
    /// Sequence.
    List(Box<Kind>),
}

/// Field of a table.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    /// Name.
    pub(crate) name: &'static str,
    /// Type.
    pub(crate) kind: Kind,
    /// Place in the table.
    pub(crate) slot: u16,
    /// Value of a number that is not stored.
    pub(crate) default: i64,
}

/// Schema.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    tables: HashMap<&'static str, Vec<Field>>,
    enums: HashMap<&'static str, (Scalar, Vec<&'static str>)>,
    unions: HashMap<&'static str, Vec<&'static str>>,
}

impl Schema {
    /// Parses the text of the schema.
    pub(crate) fn new() -> Self {
        let mut schema = Self::default();
        // Enumerations and unions precede the tables that use them, whatever the order of lines.
        for tables in [false, true] {
            for line in TEXT.lines() {
                let mut words = line.split(' ');
                let (Some(what), Some(name)) = (words.next(), words.next()) else { continue };
                match what {
                    "table" if tables => schema.table(name, words),
                    "union" if !tables => _ = schema.unions.insert(name, words.collect()),
                    "enum" if !tables => {
                        if let Some((name, scalar)) = name.split_once(':')
                            && let Some(scalar) = Scalar::of(scalar)
                        {
                            schema.enums.insert(name, (scalar, words.collect()));
                        }
                    }
                    _ => {}
                }
            }
        }
        schema
    }

    fn table(&mut self, name: &'static str, words: impl Iterator<Item = &'static str>) {
        let (mut fields, mut slot) = (Vec::new(), 0);
        for word in words {
            let Some((name, kind)) = word.split_once(':') else { continue };
            let (kind, default) = kind.split_once('=').unwrap_or((kind, "0"));
            let kind = self.kind(kind);
            // The number of a type precedes its table.
            slot += u16::from(matches!(kind, Kind::Union(_)));
            let default = match (&kind, default) {
                (_, "true") => 1,
                (Kind::Enum(words, _), word) => self.number(words, word).unwrap_or(0),
                (_, number) => number.parse().unwrap_or(0),
            };
            fields.push(Field { name, kind, slot, default });
            slot += 1;
        }
        self.tables.insert(name, fields);
    }

    fn kind(&self, word: &'static str) -> Kind {
        if let Some(item) = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
            return Kind::List(Box::new(self.kind(item)));
        }
        match (Scalar::of(word), self.enums.get(word)) {
            _ if word == "string" => Kind::Text,
            (Some(scalar), _) => Kind::Scalar(scalar),
            (_, Some(&(scalar, _))) => Kind::Enum(word, scalar),
            _ if self.unions.contains_key(word) => Kind::Union(word),
            _ => Kind::Table(word),
        }
    }

    fn number(&self, name: &str, word: &str) -> Option<i64> {
        let (_, words) = self.enums.get(name)?;
        words.iter().position(|own| *own == word).and_then(|place| i64::try_from(place).ok())
    }

    /// Returns the fields of a table.
    pub(crate) fn fields(&self, table: &str) -> &[Field] {
        self.tables.get(table).map_or(&[], Vec::as_slice)
    }

    /// Returns the word of a number.
    pub(crate) fn word(&self, name: &str, number: i64) -> Option<&'static str> {
        let (_, words) = self.enums.get(name)?;
        usize::try_from(number).ok().and_then(|number| words.get(number)).copied()
    }

    /// Returns the table of a type in a union. The first type has the number 1.
    pub(crate) fn member(&self, union: &str, number: u8) -> Option<&'static str> {
        self.unions.get(union)?.get(usize::from(number).checked_sub(1)?).copied()
    }
}
