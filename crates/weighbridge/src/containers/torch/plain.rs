//! Plain objects as values, and back.

use super::saved::Saved;
use crate::checkpoint::{Name, Value};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::pickle::{Object, ObjectId, Place, Remaining, Stored, Text};
use crate::source::read_vec;

/// What may still be copied out of a file.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    /// Objects, those that are shared counted each time.
    pub(crate) objects: u64,
    /// Bytes of text.
    pub(crate) text: u64,
    /// Memory that values and entries of tensors take together.
    pub(crate) room: Remaining,
}

/// The deepest structure that becomes a value.
const DEEPEST: usize = 64;
/// The most objects of one value, those that are shared counted each time.
const MOST_OBJECTS: u64 = 1 << 20;
/// Bytes of memory that a plain value takes, at least.
const VALUE: u64 = 64;

impl Saved {
    /// The object as a value, where it is plain: `None`, bool, number, text, bytes, and dicts,
    /// lists, tuples and sets of these. Numbers as keys become text. `None` for what is not plain, or too
    /// deep, or where a number passes 64 bits.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] for more text or objects than is sensible; what the source says.
    pub fn value(&self, id: ObjectId) -> Result<Option<Value>> {
        self.plain(
            id,
            &mut Budget { objects: MOST_OBJECTS, text: self.limits.header_bytes, room: self.remaining() },
        )
    }

    /// [`value`](Self::value), for many objects together.
    pub(crate) fn plain(&self, id: ObjectId, budget: &mut Budget) -> Result<Option<Value>> {
        let before = budget.room.clone();
        let value = Plain { saved: self, budget }.value(id, 0)?;
        if value.is_none() {
            // What was made up to there is gone.
            budget.room = before;
        }
        Ok(value)
    }

    /// The whole of a text, also a long one; `None` for what is none, or not UTF-8.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] for one that is longer than a header may be; what the source says.
    pub fn text(&self, id: ObjectId) -> Result<Option<String>> {
        let (Object::Text(text) | Object::ByteString(text)) = self.graph().object(id) else {
            return Ok(None);
        };
        match (&text.short, text.place) {
            (Some(text), _) => Ok(Some(text.to_string())),
            (None, Place::Source(span)) if matches!(span.stored, Stored::Raw | Stored::Utf8) => {
                Limits::check("bytes of text", "header_bytes", span.len, self.limits.header_bytes)?;
                Ok(String::from_utf8(read_vec(&*self.source, span.offset, span.len)?).ok())
            }
            _ => Ok(None),
        }
    }
}

struct Plain<'a> {
    saved: &'a Saved,
    budget: &'a mut Budget,
}

impl Plain<'_> {
    fn value(&mut self, id: ObjectId, depth: usize) -> Result<Option<Value>> {
        self.budget.objects = self.budget.objects.checked_sub(1).ok_or_else(|| {
            Error::limit(
                "torch-objects",
                "the plain values have many times as many objects as the file has bytes",
            )
            .in_file(self.saved.source.label())
        })?;
        self.budget.room.take(VALUE)?;
        if depth > DEEPEST {
            return Ok(None);
        }
        let saved = self.saved;
        let graph = saved.graph();
        if let Some(pairs) = graph.pairs(id) {
            // What an ordered dict has besides its pairs is not plain.
            return self.map(pairs, depth);
        }
        Ok(match graph.object(id) {
            Object::None => Some(Value::Null),
            Object::Bool(b) => Some(Value::Bool(*b)),
            Object::Int(n) => Some(Value::I64(*n)),
            Object::Float(x) => Some(Value::F64(x.to_bits())),
            Object::Text(_) | Object::ByteString(_) => self.text(id)?.map(Value::Text),
            Object::Bytes(blob) | Object::ByteArray(blob) => {
                blob.short.as_ref().map(|bytes| Value::Bytes(bytes.to_vec()))
            }
            Object::List(items) | Object::Set(items) => self.list(items, depth)?,
            Object::Tuple(items) | Object::FrozenSet(items) => self.list(items, depth)?,
            Object::Global { .. } => match graph.global(id) {
                // Types of elements and the like: torch.float32.
                Some(("torch", name)) => {
                    self.take_text(name.len() as u64)?;
                    Some(Value::Text(format!("torch.{name}")))
                }
                _ => None,
            },
            Object::Made(_) => match graph.call(id) {
                Some((
                    ("torch", "Size") | ("builtins" | "__builtin__", "set" | "list" | "tuple"),
                    &[items],
                )) => match graph.sequence(items) {
                    Some(items) => self.list(items, depth)?,
                    None => None,
                },
                Some((("torch", "device"), &[kind])) => self.text(kind)?.map(Value::Text),
                Some((("torch", "device"), &[kind, index])) => match (self.text(kind)?, graph.int(index)) {
                    (Some(kind), Some(index)) => Some(Value::Text(format!("{kind}:{index}"))),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        })
    }

    fn spend(&mut self, text: &Text) -> Result<()> {
        let len = match (&text.short, text.place) {
            (Some(text), _) => text.len() as u64,
            (None, Place::Source(span)) => span.len,
            _ => 0,
        };
        self.take_text(len)
    }

    /// Counts text before it is copied.
    fn take_text(&mut self, len: u64) -> Result<()> {
        Limits::check("bytes of text", "header_bytes", len, self.budget.text)?;
        self.budget.text -= len;
        Ok(())
    }

    /// The whole of a text, counted; `None` as [`Saved::text`].
    fn text(&mut self, id: ObjectId) -> Result<Option<String>> {
        if let Object::Text(text) | Object::ByteString(text) = self.saved.graph().object(id) {
            self.spend(text)?;
        }
        self.saved.text(id)
    }

    fn list(&mut self, items: &[ObjectId], depth: usize) -> Result<Option<Value>> {
        let mut values = Vec::new();
        for &item in items {
            let Some(value) = self.value(item, depth + 1)? else { return Ok(None) };
            values.push(value);
        }
        Ok(Some(Value::List(values)))
    }

    fn map(&mut self, pairs: &[(ObjectId, ObjectId)], depth: usize) -> Result<Option<Value>> {
        let mut values: Vec<(Name, Value)> = Vec::new();
        for &(key, value) in pairs {
            let key = match self.saved.graph().object(key) {
                Object::Int(n) => n.to_string(),
                _ => match self.text(key)? {
                    Some(text) => text,
                    None => return Ok(None),
                },
            };
            let Some(value) = self.value(value, depth + 1)? else { return Ok(None) };
            values.push((Name::from(key.as_str()), value));
        }
        Ok(Some(Value::Map(values)))
    }
}
