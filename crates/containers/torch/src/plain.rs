//! Conversion of plain objects to values.

use super::object;
use super::saved::Saved;
use weighbridge_core::checkpoint::{Container, Containers, Name, Value};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::{Budget, HeldMemory};
use weighbridge_io::source::read_vec;
use weighbridge_pickle::{Cost, Location, Object, ObjectId, Reduced, Stored, Text, bytes_of};

impl Saved {
    /// Converts a plain object to a value: `None`, bool, number, text, bytes, and dicts, lists, tuples and
    /// sets of these. Number keys become text. A numpy scalar becomes a number. An object of a plain class
    /// becomes a map with its class under `@class`, and its content under `args`, `items`, `pairs` and
    /// `state`; a type passed as an argument becomes a map with the key `@global`. Returns `None` for other
    /// objects, for values nested too deeply, and for integers beyond 64 bits.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] if text or objects exceed the budget; errors of the source.
    pub fn plain(&self, id: ObjectId) -> Result<Option<Value>> {
        self.plain_in(id, &mut Containers::default())
    }

    /// Same as [`plain`](Self::plain); also records the containers in `containers`.
    pub fn plain_in(&self, id: ObjectId, containers: &mut Containers) -> Result<Option<Value>> {
        let first = containers.next_value();
        let held = HeldMemory::of(self.budget());
        let mut plain = Plain { saved: self, held, containers: &mut *containers, path: Vec::new() };
        let value = plain.value(id, 0);
        if matches!(value, Ok(Some(_))) {
            plain.held.keep();
        } else {
            // Drop the containers of the discarded value.
            containers.forget_values(first);
        }
        value
    }

    /// Returns the container kind of a dict with number keys; `None` without number keys.
    pub fn kind_of(&self, pairs: &[(ObjectId, ObjectId)]) -> Option<Container> {
        let numbers =
            pairs.iter().filter(|(key, _)| matches!(self.graph().object(*key), Object::Int(_))).count();
        match numbers {
            0 => None,
            all if all == pairs.len() => Some(Container::Numbers),
            _ => Some(Container::Mixed),
        }
    }

    /// Reads a whole text, also a long one; `None` for other objects and for text that is not UTF-8.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] for text longer than the limit `header_bytes`; errors of the source.
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
    /// Memory of the values made so far.
    held: HeldMemory,
    containers: &'a mut Containers,
    /// Path from the outermost value to the current one.
    path: Vec<Step>,
}

/// Step from a container to one of its values.
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
            // Attributes of an ordered dict are not part of its value.
            if let Some(kind) = saved.kind_of(pairs) {
                self.record_container(kind);
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
                // Dtypes and similar names: torch.float32.
                Some(("torch", name)) => {
                    self.take_text(name.len() as u64)?;
                    self.record_container(Container::Import);
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
                    self.record_container(Container::Device);
                    self.text(kind)?.map(Value::Text)
                }
                Some((("torch", "device"), &[kind, index])) => match (self.text(kind)?, graph.int(index)) {
                    (Some(kind), Some(index)) => {
                        self.record_container(Container::Device);
                        Some(Value::Text(format!("{kind}:{index}")))
                    }
                    _ => None,
                },
                // Bytes in the encoding of protocol 2, which has another one for no bytes.
                Some((("__builtin__", "bytes"), &[])) => Some(Value::Bytes(Vec::new())),
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

    /// Converts an object of a plain class to a map of its content. Nothing is called.
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
        // The name is in the value, and perhaps among the containers.
        self.take_text(2 * class.len() as u64)?;
        self.record_container(Container::Class(class.as_str().into()));
        let mut parts = vec![(Name::from(object::CLASS), Value::Text(class))];
        for (word, items) in [("args", args), ("items", &made.items)] {
            if items.is_empty() {
                continue;
            }
            self.path.push(Step::Word(word));
            let mut values = Vec::new();
            for (place, &item) in items.iter().enumerate() {
                self.path.push(Step::Location(place));
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
                self.path.pop();
            }
            parts.push((Name::from(word), Value::List(values)));
            self.path.pop();
        }
        if !made.pairs.is_empty() {
            self.path.push(Step::Word("pairs"));
            if let Some(kind) = self.saved.kind_of(&made.pairs) {
                self.record_container(kind);
            }
            let Some(pairs) = self.map(&made.pairs, depth + 1)? else { return Ok(None) };
            parts.push((Name::from("pairs"), pairs));
            self.path.pop();
        }
        if let Some(state) = made.state() {
            self.path.push(Step::Word("state"));
            let Some(state) = self.value(state, depth + 1)? else { return Ok(None) };
            parts.push((Name::from("state"), state));
            self.path.pop();
        }
        Ok(Some(Value::Map(parts)))
    }

    /// Records the kind of the current container.
    fn record_container(&mut self, kind: Container) {
        let (saved, path) = (self.saved, &self.path);
        let text = || {
            let step = |step: &Step| match *step {
                Step::Location(place) => place.to_string(),
                Step::Word(word) => word.to_owned(),
                Step::Key(key) => match (saved.graph().text(key), saved.graph().int(key)) {
                    (Some(text), _) => text.to_owned(),
                    (None, Some(number)) => number.to_string(),
                    // Long texts stay in the source.
                    (None, None) => "...".to_owned(),
                },
            };
            path.iter().map(step).collect::<Vec<_>>().join("/")
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

    /// Charges text before it is copied.
    fn take_text(&mut self, len: u64) -> Result<()> {
        self.held.take(Cost::text(len))
    }

    /// Same as [`Saved::text`]; charges the text.
    fn text(&mut self, id: ObjectId) -> Result<Option<String>> {
        if let Object::Text(text) | Object::ByteString(text) = self.saved.graph().object(id) {
            self.spend(text)?;
        }
        self.saved.text(id)
    }

    fn list(&mut self, items: &[ObjectId], kind: Container, depth: usize) -> Result<Option<Value>> {
        self.record_container(kind);
        let mut values = Vec::new();
        for (place, &item) in items.iter().enumerate() {
            self.path.push(Step::Location(place));
            let Some(value) = self.value(item, depth + 1)? else { return Ok(None) };
            self.path.pop();
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
            self.path.push(Step::Key(key));
            let Some(value) = self.value(value, depth + 1)? else { return Ok(None) };
            self.path.pop();
            values.push((Name::from(name.as_str()), value));
        }
        Ok(Some(Value::Map(values)))
    }
}
