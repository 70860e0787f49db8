//! The footer, looked through before its reader is: that one recurses, and takes memory by what the footer claims.

use super::thrift::{Bytes, Met, Stop, Structure, low};
use crate::table::flat::{self, substitute};
use crate::table::pipe::RawPair;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use std::collections::BTreeMap;
use std::ops::Range;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};

/// About what a structure takes when it is read, in bytes.
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
/// What a part of a path takes beside its letters.
const PART: u64 = 40;

/// Looks through a footer for what its reader would never come to the end of, or not survive.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], code `footer`; [`weighbridge_core::Kind::Limit`]; [`weighbridge_core::Kind::Unsupported`], `encrypted`.
pub(super) fn check(footer: &[u8], budget: &Budget) -> Result<()> {
    let mut schema = Schema::default();
    let mut taken = 0u64;
    let mut encrypted = false;
    let read = Bytes::new(footer).structure(Structure::Footer, &mut |structure, met| {
        encrypted |=
            matches!((structure, met), (Structure::Crypto, Met::End) | (Structure::Chunk, Met::Text(9, ..)));
        if let Met::End = met {
            taken = taken.saturating_add(weight(structure));
        }
        if structure == Structure::Schema {
            schema.meets(met);
        }
    });
    if encrypted {
        return Err(Error::unsupported("encrypted", "columns of this file are encrypted")
            .hint("write the table again without encryption, with the library that has the keys"));
    }
    let what = match read {
        Err(Stop::Missing) => "a structure of the footer lacks a field that it must have",
        Err(Stop::Deep) => "the footer has too many levels",
        Err(Stop::Endless) => "the footer has a list without an end",
        Err(Stop::Mistyped) => "a field of the footer has another type than its place asks for",
        Err(Stop::Wrong | Stop::Twofold) => "the footer is not what a footer can be",
        // Its reader says better what is missing.
        Ok(()) | Err(Stop::End) => match schema.wrong() {
            Some(what) => what,
            None => return budget.take_memory(taken.saturating_add(schema.paths)),
        },
    };
    Err(Error::corrupt("footer", what))
}

/// The physical types of the columns of all row groups, in order, by their numbers. Its reader goes by those of the schema.
pub(super) fn types(footer: &[u8]) -> Vec<i32> {
    let mut types = Vec::new();
    // It was looked through before.
    let _ = Bytes::new(footer).structure(Structure::Footer, &mut |structure, met| {
        if let (Structure::Column, Met::Number(1, number)) = (structure, met) {
            types.push(low(number));
        }
    });
    types
}

/// The distance from the last field of a column that may be another one to an id that no reader knows.
const UNKNOWN: u8 = 6;

/// A footer that its reader takes, and what was taken out of it.
#[derive(Debug, Default)]
pub(super) struct Readable {
    /// True where it is another than in the file.
    pub(super) changed: bool,
    /// The pairs of the metadata that are not UTF-8, by their numbers.
    pub(super) odd: BTreeMap<usize, RawPair>,
}

/// Texts of a footer are bytes to Arrow's own libraries, and UTF-8 to the reader that comes after this one: puts others of
/// the same length in the place of those that are not, where they name no column.
pub(super) fn make_readable(footer: &mut [u8]) -> Readable {
    let mut texts = Vec::new();
    let (mut number, mut key, mut value, mut met_schema) = (0usize, 0..0, 0..0, false);
    let mut foreign = Vec::new();
    let bytes: &[u8] = footer;
    let is_odd = |text: &Range<usize>| {
        let text = bytes.get(text.clone()).unwrap_or_default();
        std::str::from_utf8(text).is_err()
    };
    // What is wrong with it was told before.
    let _ = Bytes::new(bytes).structure(Structure::Footer, &mut |structure, met| match (structure, met) {
        (Structure::KeyValue, Met::Text(1, end, len)) => key = text_at(end, len),
        (Structure::KeyValue, Met::Text(2, end, len)) => value = text_at(end, len),
        (Structure::KeyValue, Met::End) => {
            let pair = (std::mem::take(&mut key), std::mem::take(&mut value));
            // A file has one of them; the first counts.
            let is_schema =
                !met_schema && bytes.get(pair.0.clone()) == Some(ARROW_SCHEMA_META_KEY.as_bytes());
            met_schema |= is_schema;
            if is_schema || is_odd(&pair.0) || is_odd(&pair.1) {
                texts.push((Some(number), pair.0, pair.1));
            }
            number += 1;
        }
        (_, Met::Foreign(at)) => foreign.push(at),
        (Structure::Footer, Met::Text(6, end, len)) if is_odd(&text_at(end, len)) => {
            texts.push((None, text_at(end, len), 0..0));
        }
        _ => {}
    });
    let mut read = Readable { changed: !foreign.is_empty(), ..Readable::default() };
    for at in foreign {
        // Readers pass over a field of an unknown id.
        footer[at] += UNKNOWN << 4;
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

/// The schema of Arrow, which has the metadata once more; `None` where all of it is text.
fn readable_schema(base64: &[u8]) -> Option<String> {
    let mut message = STANDARD.decode(base64).ok()?;
    let skip = flat::start_of(&message);
    let odd = flat::readable_message(message.get_mut(skip..)?);
    (!odd.is_empty()).then(|| STANDARD.encode(message))
}

/// The tree of columns, which the footer has as a list: a group, its children, and theirs.
#[derive(Debug, Default)]
struct Schema {
    /// Of the element that is being read: its children, and the bytes of its name.
    children: i32,
    name: u64,
    /// The groups that are open: children that are missing, and what a path to them takes.
    open: Vec<(u64, u64)>,
    elements: u64,
    /// Children of all groups.
    claimed: u64,
    /// What the paths of all columns take.
    paths: u64,
    deep: bool,
}

impl Schema {
    fn meets(&mut self, met: Met) {
        match met {
            Met::Number(5, children) => self.children = low(children),
            Met::Text(4, _, len) => self.name = len,
            Met::End => self.element(),
            _ => {}
        }
    }

    /// An element was read.
    fn element(&mut self) {
        let children = u64::try_from(std::mem::take(&mut self.children)).unwrap_or(0);
        let name = std::mem::take(&mut self.name);
        self.elements += 1;
        self.claimed = self.claimed.saturating_add(children);
        while self.open.pop_if(|(missing, _)| *missing == 0).is_some() {}
        let path = match self.open.last_mut() {
            Some((missing, path)) => {
                *missing -= 1;
                path.saturating_add(name).saturating_add(PART)
            }
            // The name of the root is part of no path.
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

    /// What is wrong with it, where its reader would not survive it.
    fn wrong(&self) -> Option<&'static str> {
        if self.deep {
            return Some("the groups of columns have too many levels");
        }
        // Room for the children of a group is taken before they are read.
        (self.claimed >= self.elements.max(1)).then_some("a group claims more columns than there are")
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
    fn footers_with_fields_of_other_types_are_refused() {
        // A list of 2^31 truths behind a structure that nobody knows, whose ids would pass 16 bits if they were added up.
        let hidden = [&[0x9c][..], &[0xf1; 2200], &[0, 0x99, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x07, 0]].concat();
        assert!(check(&hidden).unwrap_err().message().contains("without an end"));
        // Version, and the schema as a text; a list of row groups whose columns are a text.
        for footer in [&[0x15, 2, 0x18, 2, 0, 0, 0][..], &[0x15, 2, 0x39, 0x1c, 0x18, 1, 0, 0, 0]] {
            let error = check(footer).unwrap_err();
            assert_eq!(error.code().as_str(), "footer");
            assert!(error.message().contains("another type"), "{error}");
        }
    }
}
