//! Messages of a file as a tree. Elements stay in the file.

use crate::schema::{Field, Kind, Schema};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{SourceRef, read_vec};
use weighbridge_protobuf::{MAX_VARINT, Reader, Value as Wire, text, varint};

/// Memory of a field.
const FIELD: u64 = 48;
/// Memory of a message, besides its fields.
const MESSAGE: u64 = 96;
/// Messages that are kept as ranges: trees and lists of pairs, one message for each number.
const OPAQUE: [&str; 8] = [
    "BayesianProbitRegressor.FeatureWeight",
    "ItemSimilarityRecommender.SimilarItems",
    "Int64ToDoubleMap.MapEntry",
    "Int64ToStringMap.MapEntry",
    "SparseVector",
    "StringToDoubleMap.MapEntry",
    "StringToInt64Map.MapEntry",
    "TreeEnsembleParameters.TreeNode",
];

/// Range of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// Offset of the first byte.
    pub(crate) at: u64,
    /// Number of bytes.
    pub(crate) len: u64,
}

/// Value of a field.
#[derive(Debug)]
enum Value {
    /// Integer, or the bits of a float.
    Number(u64),
    Text(Box<str>),
    /// Bytes, packed numbers, or a message that is not read.
    Range(Range),
    Message(Box<Node>),
}

#[derive(Debug)]
struct Node {
    name: &'static str,
    range: Range,
    /// True if the message of a damaged file is incomplete.
    is_cut: bool,
    /// Place of each field in the schema, with its value.
    fields: Vec<(u16, Value)>,
}

/// Parsed file.
#[derive(Debug)]
pub(crate) struct File {
    /// Source.
    pub(crate) source: SourceRef,
    /// Schema.
    pub(crate) schema: Arc<Schema>,
    /// Remaining memory and work.
    pub(crate) budget: Budget,
    root: Node,
    /// Error that ended parsing, if the file is salvaged.
    pub(crate) fault: Option<Error>,
}

impl File {
    /// Parses a file. With `salvage`, parsing ends at the first malformed field, and all before it is kept.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for malformed messages; [`weighbridge_core::Kind::Limit`].
    pub(crate) fn parse(source: &SourceRef, budget: &Budget, salvage: bool) -> Result<Self> {
        let schema = Arc::new(Schema::new());
        let mut root = Node {
            name: "Model",
            range: Range { at: 0, len: source.len() },
            is_cut: false,
            fields: Vec::new(),
        };
        let mut parser = Parser {
            schema: &schema,
            source,
            reader: Reader::new(source),
            budget,
            salvage,
            fault: None,
            is_truncated: false,
            is_cut: false,
        };
        parser.message(&mut root, source.len(), 1)?;
        let fault = parser.fault;
        Ok(Self { source: source.clone(), schema, budget: budget.clone(), root, fault })
    }

    /// Returns the model.
    pub(crate) fn root(&self) -> Message<'_> {
        Message { file: self, node: &self.root }
    }
}

struct Parser<'a> {
    schema: &'a Schema,
    source: &'a SourceRef,
    reader: Reader,
    budget: &'a Budget,
    salvage: bool,
    fault: Option<Error>,
    /// True if the fault is that of the outermost message.
    is_truncated: bool,
    /// True if the value of the field exceeds the file.
    is_cut: bool,
}

impl Parser<'_> {
    /// Adds the fields up to `end` to a message. A message that occurs twice is one with the fields of both, as in all readers of
    /// protobuf.
    fn message(&mut self, node: &mut Node, end: u64, depth: usize) -> Result<()> {
        Budget::check_depth(depth).map_err(|error| error.at(self.reader.position()))?;
        let had_fault = self.fault.is_some();
        while let Some((number, wire)) = self.next(end, depth)? {
            let fields = self.schema.fields(node.name);
            let place = fields.binary_search_by_key(&number, |field| field.number).ok();
            let found = place.and_then(|place| Some((u16::try_from(place).ok()?, fields.get(place)?)));
            let Some((place, field)) = found else {
                if let Wire::Bytes(end) = wire {
                    self.reader.skip_to(end)?;
                }
                continue;
            };
            if self.salvage && !field.is_list && self.is_repeated(node, place)? {
                // A damaged length can make a message contain the next one.
                let error = Error::corrupt("bad-field-number", "a message has a field twice");
                self.fault.get_or_insert(error.at(self.reader.value_at()));
                self.reader.skip_to(self.source.len())?;
                break;
            }
            self.budget.take_memory(FIELD)?;
            match wire {
                Wire::Varint(number) => node.fields.push((place, Value::Number(number))),
                Wire::Fixed64(number) => node.fields.push((place, Value::Number(number))),
                Wire::Fixed32(number) => node.fields.push((place, Value::Number(u64::from(number)))),
                Wire::Bytes(end) => self.bytes(node, place, field, end, depth)?,
            }
        }
        node.fields.shrink_to_fit();
        // In a truncated file, messages before its end are complete.
        node.is_cut |= self.fault.is_some() && (!had_fault || end == self.source.len());
        Ok(())
    }

    fn is_repeated(&self, node: &Node, place: u16) -> Result<bool> {
        self.budget.take_work(node.fields.len() as u64)?;
        Ok(node.fields.iter().any(|(own, _)| *own == place))
    }

    /// Reads the next field. In a damaged file, a message that exceeds the file ends with it, and a malformed field ends parsing.
    fn next(&mut self, end: u64, depth: usize) -> Result<Option<(u32, Wire<u64>)>> {
        if self.fault.is_some() && self.reader.position() >= self.source.len() {
            return Ok(None);
        }
        let at = self.reader.position();
        match self.reader.next(end) {
            Err(error) if self.salvage && error.kind() == weighbridge_core::Kind::Corrupt => {
                self.is_truncated |= depth == 1 && self.fault.is_none();
                self.fault.get_or_insert(error);
                self.exceeding(at)
            }
            next => next,
        }
    }

    /// Returns the field at an offset that exceeds the file. The reader moves to its value, or to the end of the file.
    fn exceeding(&mut self, at: u64) -> Result<Option<(u32, Wire<u64>)>> {
        let len = self.source.len();
        let bytes = read_vec(&**self.source, at, len.saturating_sub(at).min(2 * MAX_VARINT as u64))?;
        // In a truncated file, all messages around the end exceed it.
        let field = varint(&bytes).filter(|_| self.is_truncated).and_then(|(tag, rest)| {
            let (_, after) = varint(rest).filter(|_| tag & 7 == 2)?;
            Some((u32::try_from(tag >> 3).ok()?, at + (bytes.len() - after.len()) as u64))
        });
        self.reader = Reader::new(self.source);
        self.reader.skip_to(field.map_or(len, |(_, start)| start))?;
        self.is_cut = true;
        Ok(field.map(|(number, _)| (number, Wire::Bytes(len))))
    }

    fn bytes(&mut self, node: &mut Node, place: u16, field: &Field, end: u64, depth: usize) -> Result<()> {
        let is_cut = std::mem::take(&mut self.is_cut);
        let range = Range { at: self.reader.position(), len: end - self.reader.position() };
        match field.kind {
            // The value is incomplete.
            _ if is_cut && !matches!(field.kind, Kind::Message(_)) => {
                self.reader.skip_to(end)?;
            }
            Kind::Text => {
                self.budget.take_memory(range.len)?;
                let bytes = self.reader.bytes_to(end)?;
                node.fields.push((place, Value::Text(text(&bytes).into())));
            }
            Kind::Message(name) if !OPAQUE.contains(&name) => {
                let known = if field.is_list {
                    None
                } else {
                    self.budget.take_work(node.fields.len() as u64)?;
                    node.fields.iter().rposition(|(own, _)| *own == place)
                };
                let known = match known {
                    Some(known) => known,
                    None => {
                        self.budget.take_memory(MESSAGE)?;
                        let inner = Node { name, range, is_cut: false, fields: Vec::new() };
                        node.fields.push((place, Value::Message(Box::new(inner))));
                        node.fields.len() - 1
                    }
                };
                if let Some((_, Value::Message(inner))) = node.fields.get_mut(known) {
                    self.message(inner, end, depth + 1)?;
                }
            }
            _ => {
                self.reader.skip_to(end)?;
                node.fields.push((place, Value::Range(range)));
            }
        }
        Ok(())
    }
}

/// Message of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    /// File.
    pub(crate) file: &'a File,
    node: &'a Node,
}

/// Value of a plain field, for attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Plain<'a> {
    /// Integer, or the bits of a float.
    Number(u64),
    /// Text.
    Text(&'a str),
    /// Packed numbers, or bytes.
    Range(Range),
    /// Message.
    Message(Message<'a>),
}

impl<'a> Message<'a> {
    /// Returns the name of its type.
    pub(crate) fn name(&self) -> &'static str {
        self.node.name
    }

    /// Returns true for an incomplete message of a damaged file.
    pub(crate) fn is_cut(&self) -> bool {
        self.node.is_cut
    }

    /// Returns the offset of its content.
    pub(crate) fn at(&self) -> u64 {
        self.node.range.at
    }

    /// Returns the range of its content.
    pub(crate) fn range(&self) -> Range {
        self.node.range
    }

    fn place(&self, name: &str) -> Option<u16> {
        let fields = self.file.schema.fields(self.node.name);
        fields.iter().position(|field| field.name == name).and_then(|place| u16::try_from(place).ok())
    }

    fn all(&self, name: &str) -> impl DoubleEndedIterator<Item = &'a Value> + use<'a> {
        let place = self.place(name);
        let node = self.node;
        node.fields.iter().filter(move |(own, _)| Some(*own) == place).map(|(_, value)| value)
    }

    /// Returns the stored fields in the order of the file.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'a Field, Plain<'a>)> + use<'a> {
        let file = self.file;
        let fields = file.schema.fields(self.node.name);
        self.node.fields.iter().filter_map(move |(place, value)| {
            let plain = match value {
                Value::Number(number) => Plain::Number(*number),
                Value::Text(text) => Plain::Text(text),
                Value::Range(range) => Plain::Range(*range),
                Value::Message(node) => Plain::Message(Message { file, node }),
            };
            Some((fields.get(usize::from(*place))?, plain))
        })
    }

    /// Returns a number: an integer, or the bits of a float.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let number = self.all(name).rev().find_map(|value| match value {
            Value::Number(number) => Some(*number),
            _ => None,
        });
        number.unwrap_or(0)
    }

    /// Returns a text; an empty one if it is not stored.
    pub(crate) fn text(&self, name: &str) -> &'a str {
        let text = self.all(name).rev().find_map(|value| match value {
            Value::Text(text) => Some(&**text),
            _ => None,
        });
        text.unwrap_or_default()
    }

    /// Returns texts.
    pub(crate) fn texts(&self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.all(name).filter_map(|value| match value {
            Value::Text(text) => Some(&**text),
            _ => None,
        })
    }

    /// Returns a message.
    pub(crate) fn message(&self, name: &str) -> Option<Self> {
        self.messages(name).last()
    }

    /// Returns messages.
    pub(crate) fn messages(&self, name: &str) -> impl Iterator<Item = Self> + use<'a> {
        let file = self.file;
        self.all(name).filter_map(move |value| match value {
            Value::Message(node) => Some(Self { file, node }),
            _ => None,
        })
    }

    /// Returns the ranges of bytes, packed numbers or opaque messages.
    pub(crate) fn ranges(&self, name: &str) -> impl Iterator<Item = Range> + use<'a> {
        self.all(name).filter_map(|value| match value {
            Value::Range(range) => Some(*range),
            _ => None,
        })
    }

    /// Returns true for numbers outside of a packed list.
    pub(crate) fn has_loose_numbers(&self, name: &str) -> bool {
        self.all(name).any(|value| matches!(value, Value::Number(_)))
    }

    /// Returns the integers of a list, packed or not.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `bad-varint`; [`weighbridge_core::Kind::Limit`].
    pub(crate) fn numbers(&self, name: &str) -> Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for value in self.all(name) {
            match value {
                Value::Number(number) => {
                    self.file.budget.take_memory(8)?;
                    numbers.push(*number);
                }
                Value::Range(range) => numbers.extend(varints(self.file, *range)?),
                _ => {}
            }
        }
        Ok(numbers)
    }
}

/// Returns packed integers.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `bad-varint`; [`weighbridge_core::Kind::Limit`].
pub(crate) fn varints(file: &File, range: Range) -> Result<Vec<u64>> {
    file.budget.take_work(range.len)?;
    file.budget.take_memory(range.len.saturating_mul(9))?;
    let bytes = read_vec(&*file.source, range.at, range.len)?;
    let mut rest = bytes.as_slice();
    let mut numbers = Vec::new();
    while !rest.is_empty() {
        let (number, after) = varint(rest)
            .ok_or_else(|| Error::corrupt("bad-varint", "a number in a list is malformed").at(range.at))?;
        numbers.push(number);
        rest = after;
    }
    Ok(numbers)
}
