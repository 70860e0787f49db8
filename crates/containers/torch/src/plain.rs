//! Plain objects as values, and back.

use super::object;
use super::saved::Saved;
use weighbridge_core::checkpoint::{Container, Containers, Name, Value};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::{Budget, HeldMemory};
use weighbridge_io::source::read_vec;
use weighbridge_pickle::{Cost, Location, Object, ObjectId, Reduced, Stored, Text, bytes_of};

impl Saved {
    /// The object as a value, where it is plain: `None`, bool, number, text, bytes, and dicts,
    /// lists, tuples and sets of these. Numbers as keys become text. A scalar of numpy is the number that it is. An object
    /// of a class, which is nothing but what it is made of, is a map with its class under `@class`, and what it would be
    /// given, and has, under `args`, `items`, `pairs` and `state`; a type that is one of its arguments stands under `@global`.
    /// `None` for what is not plain, or too deep, or where a number passes 64 bits.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] for more text or objects than the budget has; what the source says.
    pub fn plain(&self, id: ObjectId) -> Result<Option<Value>> {
        self.plain_in(id, &mut Containers::default())
    }

    /// As [`plain`](Self::plain), telling what it stands in.
    pub fn plain_in(&self, id: ObjectId, containers: &mut Containers) -> Result<Option<Value>> {
        let first = containers.next_value();
        let held = HeldMemory::of(self.budget());
        let mut plain = Plain { saved: self, held, containers: &mut *containers, way: Vec::new() };
        let value = plain.value(id, 0);
        if matches!(value, Ok(Some(_))) {
            plain.held.keep();
        } else {
            // What was made up to there is gone.
            containers.forget_values(first);
        }
        value
    }

    /// The kind of a dict of these pairs; `None` where its keys are no numbers.
    pub fn kind_of(&self, pairs: &[(ObjectId, ObjectId)]) -> Option<Container> {
        let numbers =
            pairs.iter().filter(|(key, _)| matches!(self.graph().object(*key), Object::Int(_))).count();
        match numbers {
            0 => None,
            all if all == pairs.len() => Some(Container::Numbers),
            _ => Some(Container::Mixed),
        }
    }

    /// The whole of a text, also a long one; `None` for what is none, or not UTF-8.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] for one that is longer than a header may be; what the source says.
    pub fn text(&self, id: ObjectId) -> Result<Option<String>> {
        let (Object::Text(text) | Object::ByteString(text)) = self.graph().object(id) else {
            return Ok(None);
        };
        match (&text.short, text.place) {
            (Some(text), _) => Ok(Some(text.to_string())),
            (None, Location::Source(span)) if matches!(span.stored, Stored::Raw | Stored::Utf8) => {
                Limits::check("bytes of text", "header_bytes", span.len, self.limits.header_bytes)?;
                Ok(String::from_utf8(read_vec(&*self.source, span.offset, span.len)?).ok())
            }
            _ => Ok(None),
        }
    }
}

struct Plain<'a> {
    saved: &'a Saved,
    /// The memory of what was made so far.
    held: HeldMemory,
    containers: &'a mut Containers,
    /// What leads from the value to where it is read.
    way: Vec<Step>,
}

/// From a container to what is in it.
#[derive(Debug, Clone, Copy)]
enum Step {
    Location(usize),
    Key(ObjectId),
    Word(&'static str),
}

impl Plain<'_> {
    fn value(&mut self, id: ObjectId, depth: usize) -> Result<Option<Value>> {
        self.held.budget().take_work(Cost::VISIT)?;
        self.held.take(Cost::VALUE)?;
        if depth > Budget::DEPTH {
            return Ok(None);
        }
        let saved = self.saved;
        let graph = saved.graph();
        if let Some(pairs) = graph.pairs(id) {
            // What an ordered dict has besides its pairs is not plain.
            if let Some(kind) = saved.kind_of(pairs) {
                self.stands_in(kind);
            }
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
            Object::List(items) => self.list(items, Container::List, depth)?,
            Object::Tuple(items) => self.list(items, Container::Tuple, depth)?,
            Object::Set(items) => self.list(items, Container::Set, depth)?,
            Object::FrozenSet(items) => self.list(items, Container::Set, depth)?,
            Object::Global { .. } => match graph.global(id) {
                // Types of elements and the like: torch.float32.
                Some(("torch", name)) => {
                    self.take_text(name.len() as u64)?;
                    self.stands_in(Container::Import);
                    Some(Value::Text(format!("torch.{name}")))
                }
                _ => None,
            },
            Object::Reduced(made) => match graph.call(id) {
                Some((
                    (
                        "torch" | "builtins" | "__builtin__",
                        kind @ ("Size" | "set" | "frozenset" | "list" | "tuple"),
                    ),
                    &[items],
                )) => {
                    let kind = match kind {
                        "Size" | "tuple" => Container::Tuple,
                        "list" => Container::List,
                        _ => Container::Set,
                    };
                    match graph.sequence(items) {
                        Some(items) => self.list(items, kind, depth)?,
                        None => None,
                    }
                }
                Some((("torch", "device"), &[kind])) => {
                    self.stands_in(Container::Device);
                    self.text(kind)?.map(Value::Text)
                }
                Some((("torch", "device"), &[kind, index])) => match (self.text(kind)?, graph.int(index)) {
                    (Some(kind), Some(index)) => {
                        self.stands_in(Container::Device);
                        Some(Value::Text(format!("{kind}:{index}")))
                    }
                    _ => None,
                },
                // Bytes, as protocol 2 spells them.
                Some((("_codecs", "encode"), _)) => {
                    let bytes = bytes_of(graph, id, None).ok().flatten().and_then(|bytes| bytes.short);
                    bytes.map(|bytes| Value::Bytes(bytes.into_vec()))
                }
                _ => match object::number(graph, id) {
                    Some(number) => Some(number),
                    None => self.object(made, depth)?,
                },
            },
            _ => None,
        })
    }

    /// An object of a class, as what it is made of. Nothing is called.
    fn object(&mut self, made: &Reduced, depth: usize) -> Result<Option<Value>> {
        let graph = self.saved.graph();
        let Some(class) = self.saved.class(made.callable).filter(|&class| object::is_plain(made.how, class))
        else {
            return Ok(None);
        };
        let (Some(args), None, [] | [_]) = (graph.tuple(made.args), made.kwargs, made.states.as_slice())
        else {
            return Ok(None);
        };
        self.held.take(Cost::CONTAINER)?;
        let class = format!("{}.{}", class.0, class.1);
        // Its name stands in the value, and perhaps among the containers.
        self.take_text(2 * class.len() as u64)?;
        self.stands_in(Container::Class(class.as_str().into()));
        let mut parts = vec![(Name::from(object::CLASS), Value::Text(class))];
        for (word, items) in [("args", args), ("items", &made.items)] {
            if items.is_empty() {
                continue;
            }
            self.way.push(Step::Word(word));
            let mut values = Vec::new();
            for (place, &item) in items.iter().enumerate() {
                self.way.push(Step::Location(place));
                let value = match graph.global(item).filter(|&(module, name)| object::is_type(module, name)) {
                    Some((module, name)) => {
                        self.held.take(Cost::CONTAINER)?;
                        self.take_text((module.len() + name.len()) as u64)?;
                        let name = Value::Text(format!("{module}.{name}"));
                        Some(Value::Map(vec![(Name::from(object::GLOBAL), name)]))
                    }
                    None => self.value(item, depth + 1)?,
                };
                let Some(value) = value else { return Ok(None) };
                values.push(value);
                self.way.pop();
            }
            parts.push((Name::from(word), Value::List(values)));
            self.way.pop();
        }
        if !made.pairs.is_empty() {
            self.way.push(Step::Word("pairs"));
            if let Some(kind) = self.saved.kind_of(&made.pairs) {
                self.stands_in(kind);
            }
            let Some(pairs) = self.map(&made.pairs, depth + 1)? else { return Ok(None) };
            parts.push((Name::from("pairs"), pairs));
            self.way.pop();
        }
        if let Some(state) = made.state() {
            self.way.push(Step::Word("state"));
            let Some(state) = self.value(state, depth + 1)? else { return Ok(None) };
            parts.push((Name::from("state"), state));
            self.way.pop();
        }
        Ok(Some(Value::Map(parts)))
    }

    /// Tells the kind of the container that is read.
    fn stands_in(&mut self, kind: Container) {
        let (saved, way) = (self.saved, &self.way);
        let text = || {
            let step = |step: &Step| match *step {
                Step::Location(place) => place.to_string(),
                Step::Word(word) => word.to_owned(),
                Step::Key(key) => match (saved.graph().text(key), saved.graph().int(key)) {
                    (Some(text), _) => text.to_owned(),
                    (None, Some(number)) => number.to_string(),
                    // Long texts stay where they are.
                    (None, None) => "...".to_owned(),
                },
            };
            way.iter().map(step).collect::<Vec<_>>().join("/")
        };
        self.containers.add_value(text, kind);
    }

    fn spend(&mut self, text: &Text) -> Result<()> {
        let len = match (&text.short, text.place) {
            (Some(text), _) => text.len() as u64,
            (None, Location::Source(span)) => span.len,
            _ => 0,
        };
        self.take_text(len)
    }

    /// Counts text before it is copied.
    fn take_text(&mut self, len: u64) -> Result<()> {
        self.held.take(Cost::text(len))
    }

    /// The whole of a text, counted; `None` as [`Saved::text`].
    fn text(&mut self, id: ObjectId) -> Result<Option<String>> {
        if let Object::Text(text) | Object::ByteString(text) = self.saved.graph().object(id) {
            self.spend(text)?;
        }
        self.saved.text(id)
    }

    fn list(&mut self, items: &[ObjectId], kind: Container, depth: usize) -> Result<Option<Value>> {
        self.stands_in(kind);
        let mut values = Vec::new();
        for (place, &item) in items.iter().enumerate() {
            self.way.push(Step::Location(place));
            let Some(value) = self.value(item, depth + 1)? else { return Ok(None) };
            self.way.pop();
            values.push(value);
        }
        Ok(Some(Value::List(values)))
    }

    fn map(&mut self, pairs: &[(ObjectId, ObjectId)], depth: usize) -> Result<Option<Value>> {
        let mut values: Vec<(Name, Value)> = Vec::new();
        for &(key, value) in pairs {
            let name = match self.saved.graph().object(key) {
                Object::Int(n) => n.to_string(),
                _ => match self.text(key)? {
                    Some(text) => text,
                    None => return Ok(None),
                },
            };
            self.way.push(Step::Key(key));
            let Some(value) = self.value(value, depth + 1)? else { return Ok(None) };
            self.way.pop();
            values.push((Name::from(name.as_str()), value));
        }
        Ok(Some(Value::Map(values)))
    }
}
