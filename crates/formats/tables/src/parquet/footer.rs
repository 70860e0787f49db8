//! Check of the footer before the library parses it: the library recurses, and allocates what the footer claims.

use super::thrift::{Bytes, Event, Stop, Structure, low};
use crate::table::flat::{self, substitute};
use crate::table::pipe::RawPair;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use std::collections::BTreeMap;
use std::ops::Range;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};

/// Approximate memory of a parsed structure, in bytes.
fn weight(structure: Structure) -> u64 {
    match structure {
        Structure::Schema => 350,
        Structure::Group => 150,
        Structure::Chunk => 450,
        Structure::KeyValue => 100,
        Structure::Encodings | Structure::Sorting => 16,
        _ => 0,
    }
}
/// Memory of a path component besides its letters, in bytes.
const PATH_COMPONENT_BYTES: u64 = 40;

/// Checks a footer for content that would make the library loop, overflow its stack or exhaust memory.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], code `footer`; [`weighbridge_core::Kind::Limit`]; [`weighbridge_core::Kind::Unsupported`], `encrypted`.
pub(super) fn check(footer: &[u8], budget: &Budget) -> Result<()> {
    let mut schema = Schema::default();
    let mut taken = 0u64;
    let mut encrypted = false;
    let read = Bytes::new(footer).structure(Structure::Footer, &mut |structure, event| {
        encrypted |= matches!(
            (structure, event),
            (Structure::Crypto, Event::End) | (Structure::Chunk, Event::Text(9, ..))
        );
        if let Event::End = event {
            taken = taken.saturating_add(weight(structure));
        }
        if structure == Structure::Schema {
            schema.on_event(event);
        }
    });
    if encrypted {
        return Err(Error::unsupported("encrypted", "the file has encrypted columns")
            .hint("write the table again without encryption, with a program that has the keys"));
    }
    let what = match read {
        Err(Stop::Missing) => "a structure of the footer lacks a required field",
        Err(Stop::TooDeep) => "the footer is nested too deeply",
        Err(Stop::Unbounded) => "the footer has an unbounded list",
        Err(Stop::Mistyped) => "a field of the footer has the wrong type",
        Err(Stop::Malformed | Stop::WrongPageType) => "the footer is malformed",
        // The library describes missing fields better.
        Ok(()) | Err(Stop::Truncated) => match schema.wrong() {
            Some(what) => what,
            None => return budget.take_memory(taken.saturating_add(schema.paths)),
        },
    };
    Err(Error::corrupt("footer", what).hint("the file is damaged; use another copy"))
}

/// Physical type numbers of the columns of all row groups, in order. The library uses those of the schema instead.
pub(super) fn types(footer: &[u8]) -> Vec<i32> {
    let mut types = Vec::new();
    // Checked before.
    let _ = Bytes::new(footer).structure(Structure::Footer, &mut |structure, event| {
        if let (Structure::Column, Event::Number(1, number)) = (structure, event) {
            types.push(low(number));
        }
    });
    types
}

/// Added to a field id to make an id that no reader recognizes.
const UNKNOWN_ID_OFFSET: u8 = 6;

/// Footer accepted by the library, and the texts replaced in it.
#[derive(Debug, Default)]
pub(super) struct Readable {
    /// True where the footer differs from the file.
    pub(super) changed: bool,
    /// Metadata pairs that are not UTF-8, with their indexes.
    pub(super) odd: BTreeMap<usize, RawPair>,
}

/// Replaces texts that are not UTF-8 by texts of the same length, where they do not name a column. Arrow's own libraries
/// treat the texts of a footer as bytes; the library used here requires UTF-8.
pub(super) fn make_readable(footer: &mut [u8]) -> Readable {
    let mut texts = Vec::new();
    let (mut number, mut key, mut value, mut met_schema) = (0usize, 0..0, 0..0, false);
    let mut foreign = Vec::new();
    let bytes: &[u8] = footer;
    let is_odd = |text: &Range<usize>| {
        let text = bytes.get(text.clone()).unwrap_or_default();
        std::str::from_utf8(text).is_err()
    };
    // Errors were reported by `check`.
    let _ =
        Bytes::new(bytes).structure(Structure::Footer, &mut |structure, event| match (structure, event) {
            (Structure::KeyValue, Event::Text(1, end, len)) => key = text_at(end, len),
            (Structure::KeyValue, Event::Text(2, end, len)) => value = text_at(end, len),
            (Structure::KeyValue, Event::End) => {
                let pair = (std::mem::take(&mut key), std::mem::take(&mut value));
                // A file has one list of pairs; the first counts.
                let is_schema =
                    !met_schema && bytes.get(pair.0.clone()) == Some(ARROW_SCHEMA_META_KEY.as_bytes());
                met_schema |= is_schema;
                if is_schema || is_odd(&pair.0) || is_odd(&pair.1) {
                    texts.push((Some(number), pair.0, pair.1));
                }
                number += 1;
            }
            (_, Event::Foreign(at)) => foreign.push(at),
            (Structure::Footer, Event::Text(6, end, len)) if is_odd(&text_at(end, len)) => {
                texts.push((None, text_at(end, len), 0..0));
            }
            _ => {}
        });
    let mut read = Readable { changed: !foreign.is_empty(), ..Readable::default() };
    for at in foreign {
        // Readers skip a field of an unknown id.
        footer[at] += UNKNOWN_ID_OFFSET << 4;
    }
    for (number, key, value) in texts {
        let of = |text: &Range<usize>| footer.get(text.clone()).unwrap_or_default().to_vec();
        let (own_key, own_value) = (of(&key), of(&value));
        if own_key == ARROW_SCHEMA_META_KEY.as_bytes() && std::str::from_utf8(&own_value).is_ok() {
            if let Some(schema) = readable_schema(&own_value)
                && let Some(text) = footer.get_mut(value).filter(|text| text.len() == schema.len())
            {
                text.copy_from_slice(schema.as_bytes());
                read.changed = true;
            }
            continue;
        }
        for text in [key, value] {
            if let Some(text) = footer.get_mut(text) {
                substitute(text);
            }
        }
        read.changed = true;
        read.odd.extend(number.map(|number| (number, (own_key, own_value))));
    }
    read
}

fn text_at(end: usize, len: u64) -> Range<usize> {
    usize::try_from(len).map_or(end, |len| end.saturating_sub(len))..end
}

/// The Arrow schema, which repeats the metadata, with text made readable; `None` where all of it is UTF-8.
fn readable_schema(base64: &[u8]) -> Option<String> {
    let mut message = STANDARD.decode(base64).ok()?;
    let skip = flat::start_of(&message);
    let odd = flat::readable_message(message.get_mut(skip..)?);
    (!odd.is_empty()).then(|| STANDARD.encode(message))
}

/// Tree of columns, stored as a list in the footer: a group, its children, and theirs.
#[derive(Debug, Default)]
struct Schema {
    /// Number of children and name length of the current element.
    children: i32,
    name: u64,
    /// Open groups: missing children, and memory of a path to them.
    open: Vec<(u64, u64)>,
    elements: u64,
    /// Number of children of all groups.
    claimed: u64,
    /// Memory of the paths of all columns.
    paths: u64,
    deep: bool,
}

impl Schema {
    fn on_event(&mut self, event: Event) {
        match event {
            Event::Number(5, children) => self.children = low(children),
            Event::Text(4, _, len) => self.name = len,
            Event::End => self.element(),
            _ => {}
        }
    }

    /// Ends an element.
    fn element(&mut self) {
        let children = u64::try_from(std::mem::take(&mut self.children)).unwrap_or(0);
        let name = std::mem::take(&mut self.name);
        self.elements += 1;
        self.claimed = self.claimed.saturating_add(children);
        while self.open.pop_if(|(missing, _)| *missing == 0).is_some() {}
        let path = match self.open.last_mut() {
            Some((missing, path)) => {
                *missing -= 1;
                path.saturating_add(name).saturating_add(PATH_COMPONENT_BYTES)
            }
            // The name of the root is not part of any path.
            None => 0,
        };
        if children == 0 {
            self.paths = self.paths.saturating_add(path);
        } else if self.open.len() < Budget::DEPTH {
            self.open.push((children, path));
        } else {
            self.deep = true;
        }
    }

    /// The fault in the tree that the library would not survive.
    fn wrong(&self) -> Option<&'static str> {
        if self.deep {
            return Some("the column groups are nested too deeply");
        }
        // The library allocates the children of a group before it reads them.
        (self.claimed >= self.elements.max(1))
            .then_some("a column group claims more columns than the schema has")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::limits::Limits;

    fn check(footer: &[u8]) -> Result<()> {
        super::check(footer, &Budget::new(footer.len() as u64, &Limits::default()))
    }

    #[test]
    fn rejects_footer_fields_of_wrong_type() {
        // A list of 2^31 booleans behind an unknown structure, whose ids would overflow 16 bits if added up.
        let hidden = [&[0x9c][..], &[0xf1; 2200], &[0, 0x99, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x07, 0]].concat();
        assert!(check(&hidden).unwrap_err().message().contains("unbounded list"));
        // Version, and the schema as a text; a list of row groups whose columns are a text.
        for footer in [&[0x15, 2, 0x18, 2, 0, 0, 0][..], &[0x15, 2, 0x39, 0x1c, 0x18, 1, 0, 0, 0]] {
            let error = check(footer).unwrap_err();
            assert_eq!(error.code().as_str(), "footer");
            assert!(error.message().contains("wrong type"), "{error}");
        }
    }
}
