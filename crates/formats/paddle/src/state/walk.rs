//! Traversal of pickle objects, bounded by budgets for everything that a file can enlarge.

use super::arrays::{Array, Found, find};
use super::omitted::Omitted;
use super::structure::{self, Form, marked};
use super::{KIND, state_key};
use std::collections::{HashMap, HashSet};
use weighbridge_core::Budget;
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Damage, Distinct, Name, Note, Role, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Endian};
use weighbridge_core::text::counted;
use weighbridge_format::OpenOptions;
use weighbridge_format::overlap::OverlapBudget;
use weighbridge_io::source::{SourceRef, read_vec};
use weighbridge_pickle::{
    Cost, Graph, Location, Object, ObjectId, Options, PayloadSource, Pickle, Stored, bytes_of, scalar,
};

/// State and results of the traversal.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    pickle: &'a Pickle,
    source: &'a SourceRef,
    options: &'a OpenOptions,
    bounds: &'a Options,
    pub(super) checkpoint: Checkpoint,
    /// Components of the current name.
    pub(super) path: Vec<Name>,
    /// Budget of the file. Shared objects are charged at each visit.
    pub(super) budget: &'a Budget,
    /// Element payloads of the arrays so far.
    payloads_seen: HashSet<ObjectId>,
    /// Displayed name of the first tensor made from an object.
    first_names: HashMap<ObjectId, String>,
    names: Distinct,
    /// Byte ranges of distinct arrays.
    spans: OverlapBudget,
    omitted: Omitted,
    /// Number of objects and of references between them.
    size: u64,
    /// Number of duplicate keys in dicts.
    duplicate_keys: u64,
    bf16: bool,
    /// True during the traversal of a key.
    in_key: bool,
}

/// Pair of a dict.
#[derive(Debug)]
pub(super) struct Member {
    /// The key.
    pub(super) key: Value,
    /// Value in the pickle, if any.
    pub(super) value: Option<ObjectId>,
    /// Tensor made from the value. Boxed: most values of a long dict are not tensors, and a tensor is large.
    pub(super) found: Option<Box<Found>>,
}

impl Member {
    /// Returns a member for a tensor made from several objects.
    pub(super) fn new(key: String, found: Found) -> Self {
        Self { key: Value::Text(key), value: None, found: Some(Box::new(found)) }
    }

    /// Returns the key if it is text.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.key {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Returns a key as a name component.
pub(super) fn key_text(key: &Value) -> String {
    match key {
        Value::Text(text) => text.clone(),
        Value::I64(n) => n.to_string(),
        other => other.to_json().to_string(),
    }
}

/// Properties of a tensor besides its elements.
#[derive(Debug, Default)]
pub(super) struct TensorProps<'a> {
    /// Key in the dict.
    pub(super) key: &'a str,
    /// Variable name.
    pub(super) name: Option<String>,
    /// Slot, for optimizer state.
    pub(super) slot: Option<Name>,
    /// Variable name of the slot's parameter, if the parameter has another key.
    pub(super) parameter: Option<&'a str>,
    /// Role, unless the tensor is a slot.
    pub(super) role: Option<Role>,
    /// Object in the pickle.
    pub(super) id: Option<ObjectId>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        pickle: &'a Pickle,
        source: &'a SourceRef,
        options: &'a OpenOptions,
        bounds: &'a Options,
    ) -> Self {
        let edges = |object: &Object| match object {
            Object::List(items) | Object::Set(items) => items.len(),
            Object::Tuple(items) | Object::FrozenSet(items) => items.len(),
            Object::Dict(pairs) => 2 * pairs.len(),
            Object::Reduced(made) => 2 * made.pairs.len() + made.items.len(),
            _ => 0,
        };
        let size: u64 = pickle.graph.iter().map(|(_, object)| 1 + edges(object) as u64).sum();
        Self {
            pickle,
            source,
            options,
            bounds,
            checkpoint: Checkpoint::new("paddle", KIND, source.label()),
            path: Vec::new(),
            budget: pickle.budget(),
            payloads_seen: HashSet::new(),
            first_names: HashMap::new(),
            names: Distinct::default(),
            spans: OverlapBudget::default(),
            omitted: Omitted::default(),
            size,
            duplicate_keys: 0,
            bf16: false,
            in_key: false,
        }
    }

    pub(super) fn graph(&self) -> &'a Graph {
        &self.pickle.graph
    }

    pub(super) fn bounds(&self) -> (&'a SourceRef, &'a Options) {
        (self.source, self.bounds)
    }

    /// Returns the checkpoint, with notes on omitted objects.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`], `paddle-repeated`, if arrays share their elements beyond the limit.
    pub(super) fn finish(mut self) -> Result<Checkpoint> {
        let shared = self.spans.check("paddle-repeated", &self.options.limits);
        shared.map_err(|error| error.in_file(self.source.label()))?;
        if self.duplicate_keys > 0 {
            let keys = counted(self.duplicate_keys, "duplicate key", "duplicate keys");
            let text = format!("{keys} in dicts; the last value is used");
            self.checkpoint.notes.push(Note::new("duplicate-key", text));
        }
        self.checkpoint.notes.extend(self.omitted.notes());
        Ok(self.checkpoint)
    }

    /// Counts a visit. Shared objects are visited repeatedly: nested lists of shared lists grow exponentially.
    fn visit(&mut self) -> Result<()> {
        self.budget.take_work(Cost::VISIT)
    }

    /// Fails if the structure is nested too deeply.
    pub(super) fn deeper(&self, depth: usize) -> Result<()> {
        Limits::check("levels of structure", "path_parts", depth as u64, self.options.limits.path_parts)
    }

    /// Appends the components of a key to the current name.
    pub(super) fn push(&mut self, key: &str) {
        self.path.extend(key.split('.').map(Name::from));
    }

    /// Returns the marker of an array whose type tensors do not support.
    pub(super) fn inert(&mut self, what: &str) -> Result<Value> {
        self.no_value(what, true)
    }

    /// Returns the marker of an unsupported object; `array` is true if it may be or contain an array.
    fn no_value(&mut self, what: &str, array: bool) -> Result<Value> {
        match array {
            true => self.skip(what)?,
            false => self.omitted.count(what, self.budget)?,
        }
        Ok(marked(structure::OBJECT, Value::Text(what.to_owned())))
    }

    /// Adds a note: the array at the current path, or the object that contains arrays, is skipped as a tensor.
    fn skip(&mut self, what: &str) -> Result<()> {
        let path = match self.path.is_empty() {
            true => TensorPath::value(),
            false => TensorPath::new(self.path.clone()),
        };
        self.budget.take_memory(Cost::entry(false) + Cost::dimensions(0))?;
        self.budget.take_memory(Cost::text(what.len() as u64))?;
        let name = path.to_text();
        self.budget.take_memory(Cost::name(path.parts().len(), name.len() as u64))?;
        self.checkpoint.notes.push(Note::skipped_tensor(name, what));
        Ok(())
    }

    /// Same as [`no_value`](Self::no_value), for an object and everything reachable from it.
    fn object(&mut self, what: &str, id: ObjectId) -> Result<Value> {
        let graph = (&self.pickle.graph, self.bounds);
        if self.omitted.leads_to_array(id, graph, self.size, self.budget) {
            self.skip(&format!("arrays in {what} are skipped"))?;
            return Ok(marked(structure::OBJECT, Value::Text(what.to_owned())));
        }
        self.no_value(what, false)
    }

    /// Returns the tensor that an object would become, `None` if it is not a tensor. Its memory is charged.
    fn found(&mut self, id: ObjectId) -> Result<Option<Found>> {
        let found = find(self.graph(), id, self.source, self.bounds)?;
        if let Some(Found::Tensor(_, _, array)) = &found {
            let again = array.made_of.is_some_and(|made_of| !self.payloads_seen.insert(made_of));
            self.budget.take_memory(Cost::entry(again) + Cost::dimensions(array.shape.rank()))?;
        }
        Ok(found)
    }

    /// Returns the pairs of a dict, except those whose key is to `hide`. For duplicate keys the last value
    /// is used, at the position of the first, as in Python.
    pub(super) fn members(
        &mut self,
        pairs: &[(ObjectId, ObjectId)],
        hide: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<Member>> {
        let graph = self.graph();
        self.budget.take_memory(Cost::ITEM.saturating_mul(pairs.len() as u64))?;
        let mut places: HashMap<String, usize> = HashMap::with_capacity(pairs.len());
        let mut members: Vec<Member> = Vec::with_capacity(pairs.len());
        for &(key, value) in pairs {
            self.visit()?;
            if graph.text(key).is_some_and(hide) {
                continue;
            }
            let key = self.key(key)?;
            let found = match self.found(value) {
                Err(error) if self.options.salvage && Damage::is(&error) => {
                    self.checkpoint.lose(key_text(&key), &error);
                    continue;
                }
                found => found?,
            };
            let member = Member { key, value: Some(value), found: found.map(Box::new) };
            let text = match &member.key {
                Value::Text(text) => text.clone(),
                other => format!("\0{}", other.to_json()),
            };
            match places.get(&text) {
                Some(&place) => {
                    self.duplicate_keys += 1;
                    if let Some(old) = members.get_mut(place) {
                        *old = member;
                    }
                }
                None => {
                    places.insert(text, members.len());
                    members.push(member);
                }
            }
        }
        Ok(members)
    }

    /// Converts a key of a dict. Keys cannot contain dicts in Python, so nested keys are not followed:
    /// they could form a cycle.
    fn key(&mut self, id: ObjectId) -> Result<Value> {
        if self.in_key {
            return self.no_value("a dict in a key of a dict", false);
        }
        self.in_key = true;
        let key = self.node(id, Budget::DEPTH - 4);
        self.in_key = false;
        key
    }

    /// True for a non-empty dict with tensors only.
    pub(super) fn is_dict_of_tensors(&mut self, id: ObjectId) -> Result<bool> {
        let graph = self.graph();
        let pairs = graph.pairs(id).unwrap_or_default();
        for &(key, value) in pairs {
            self.visit()?;
            let found = find(graph, value, self.source, self.bounds)?;
            if graph.text(key).is_none() || !matches!(found, Some(Found::Tensor(..))) {
                return Ok(false);
            }
        }
        Ok(!pairs.is_empty())
    }

    /// True for an ordered dict.
    pub(super) fn is_ordered(&self, id: ObjectId) -> bool {
        matches!(self.graph().object(id), Object::Reduced(_))
    }

    /// Converts a root that is not a dict: a tensor keeps its own name.
    pub(super) fn lone(&mut self, id: ObjectId) -> Result<Value> {
        match self.found(id)? {
            Some(Found::Tensor(form, name, array)) => {
                let path = match name.as_deref() {
                    None | Some("") => TensorPath::value(),
                    Some(name) => TensorPath::from_dotted(name),
                };
                self.path = path.parts().to_vec();
                self.tensor(form, array, TensorProps { name, id: Some(id), ..TensorProps::default() })
            }
            Some(Found::Inert(what)) => self.inert(&what),
            None => self.node(id, 0),
        }
    }

    /// Charges the approximate memory of a value. Shared values are charged each time.
    fn charge(&mut self, object: &Object) -> Result<()> {
        let cost = match object {
            // Maps with a marker, each with a list in it.
            Object::Tuple(_) | Object::Set(_) | Object::FrozenSet(_) | Object::Reduced(_) => Cost::CONTAINER,
            Object::BigInt(_) | Object::Bytes(_) | Object::ByteArray(_) | Object::Global { .. } => {
                Cost::CONTAINER
            }
            Object::List(_) | Object::Dict(_) => Cost::ITEM,
            _ => Cost::VALUE,
        };
        self.budget.take_memory(cost)
    }

    /// Converts an object to a value. Tensors in it become entries.
    pub(super) fn node(&mut self, id: ObjectId, depth: usize) -> Result<Value> {
        self.visit()?;
        if depth > Budget::DEPTH {
            self.budget.take_memory(Cost::CONTAINER)?;
            return self.object("a structure that is nested too deeply", id);
        }
        let graph = self.graph();
        self.charge(graph.object(id))?;
        Ok(match graph.object(id) {
            Object::None => Value::Null,
            Object::Bool(value) => Value::Bool(*value),
            Object::Int(n) => Value::I64(*n),
            Object::BigInt(bytes) => {
                self.budget.take_memory(Cost::text(bytes.len() as u64))?;
                marked(structure::INTEGER, Value::Bytes(bytes.to_vec()))
            }
            Object::Float(x) => Value::F64(x.to_bits()),
            Object::Text(text) | Object::ByteString(text) => match (&text.short, text.place) {
                (Some(text), _) => {
                    self.budget.take_memory(Cost::text(text.len() as u64))?;
                    Value::Text(text.to_string())
                }
                (None, Location::Source(span)) if matches!(span.stored, Stored::Raw | Stored::Utf8) => {
                    self.budget.take_memory(Cost::text(span.len))?;
                    let bytes = read_vec(&**self.source, span.offset, span.len)?;
                    match String::from_utf8(bytes) {
                        Ok(text) => Value::Text(text),
                        Err(error) => Value::Bytes(error.into_bytes()),
                    }
                }
                _ => self.no_value("a text that is not well-formed", false)?,
            },
            Object::Bytes(_) | Object::ByteArray(_) => self.bytes(id)?,
            Object::List(items) => Value::List(self.items(items, depth)?),
            Object::Tuple(items) => marked(structure::TUPLE, Value::List(self.items(items, depth)?)),
            Object::Set(items) => marked(structure::SET, Value::List(self.items(items, depth)?)),
            Object::FrozenSet(items) => marked(structure::FROZEN_SET, Value::List(self.items(items, depth)?)),
            Object::Dict(pairs) => self.pairs(pairs, false, depth)?,
            Object::Global { .. } => match graph.global(id) {
                Some((module, name)) => {
                    self.budget.take_memory(Cost::text(module.len() as u64))?;
                    self.budget.take_memory(Cost::text(name.len() as u64))?;
                    marked(structure::GLOBAL, Value::Text(format!("{module} {name}")))
                }
                None => self.no_value("a class without a name", false)?,
            },
            Object::Reduced(_) => self.made(id, depth)?,
            _ => self.no_value("an object stored outside the pickle", true)?,
        })
    }

    fn items(&mut self, items: &[ObjectId], depth: usize) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        for (place, &item) in items.iter().enumerate() {
            let height = self.path.len();
            let key = place.to_string();
            self.push(&key);
            let found = self.found(item)?;
            if let Some(Found::Tensor(..)) = found {
                self.budget.take_memory(Cost::CONTAINER)?;
            }
            let value = match found {
                Some(Found::Tensor(form, name, array)) => {
                    self.visit()?;
                    self.tensor(
                        form,
                        array,
                        TensorProps { key: &key, name, id: Some(item), ..TensorProps::default() },
                    )?
                }
                Some(Found::Inert(what)) => self.inert(&what)?,
                None => self.node(item, depth + 1)?,
            };
            self.path.truncate(height);
            values.push(value);
        }
        Ok(values)
    }

    fn pairs(&mut self, pairs: &[(ObjectId, ObjectId)], ordered: bool, depth: usize) -> Result<Value> {
        let members = self.members(pairs, &|_| false)?;
        let held = Cost::ITEM.saturating_mul(pairs.len() as u64);
        let tensors =
            members.iter().filter(|m| matches!(m.found.as_deref(), Some(Found::Tensor(..)))).count() as u64;
        self.budget.take_memory(Cost::CONTAINER.saturating_mul(tensors))?;
        let items = self.dict(members, &HashMap::new(), depth + 1)?;
        self.budget.give_memory(held);
        Ok(structure::dict(items, ordered))
    }

    /// Converts bytes that do not belong to an array.
    fn bytes(&mut self, id: ObjectId) -> Result<Value> {
        let Some(payload) = bytes_of(self.graph(), id, None)? else {
            return self.no_value("bytes of unknown length", false);
        };
        self.budget.take_memory(Cost::text(payload.len))?;
        match (payload.short, payload.place) {
            (Some(bytes), _) => Ok(Value::Bytes(bytes.into_vec())),
            (None, Location::Source(span)) => {
                let decoded = PayloadSource::new(self.source.clone(), span, payload.len)?;
                Ok(Value::Bytes(read_vec(&decoded, 0, payload.len)?))
            }
            _ => self.no_value("bytes outside the pickle", false),
        }
    }

    /// Converts the result of a call. The call is not executed.
    fn made(&mut self, id: ObjectId, depth: usize) -> Result<Value> {
        let graph = self.graph();
        if let Some(pairs) = graph.pairs(id) {
            return self.pairs(pairs, true, depth);
        }
        if let Some(found) = scalar(graph, id)?
            && let Some(value) = self.scalar(&found)?
        {
            return Ok(value);
        }
        match graph.call(id) {
            Some((("_codecs", "encode") | ("builtins" | "__builtin__", "bytes" | "bytearray"), _)) => {
                return self.bytes(id);
            }
            Some((("builtins" | "__builtin__", "tuple"), &[items])) => {
                if let Some(items) = graph.sequence(items) {
                    return Ok(marked(structure::TUPLE, Value::List(self.items(items, depth)?)));
                }
            }
            _ => {}
        }
        let name = graph.made(id).and_then(|made| graph.global(made.callable));
        let name = name.map_or_else(|| "a class without a name".to_owned(), |(m, n)| format!("{m}.{n}"));
        self.object(&name, id)
    }

    fn scalar(&mut self, found: &weighbridge_pickle::NdArray) -> Result<Option<Value>> {
        let (Some(dtype), Some(payload), Endian::Little) = (found.dtype, &found.payload, found.endian) else {
            return Ok(None);
        };
        let Some(bytes) = &payload.short else { return Ok(None) };
        Ok(Some(Value::Map(vec![
            (Name::from(structure::SCALAR), Value::Text(dtype.name().to_owned())),
            (Name::from(structure::SCALAR_BYTES), Value::Bytes(bytes.to_vec())),
        ])))
    }

    /// Adds a tensor with the current name, and returns its marker.
    pub(super) fn tensor(&mut self, form: Form, array: Array, spot: TensorProps<'_>) -> Result<Value> {
        let limits = &self.options.limits;
        Limits::check("tensors", "tensors", self.checkpoint.tensors.len() as u64 + 1, limits.tensors)?;
        Limits::check("parts in a name", "path_parts", self.path.len() as u64, limits.path_parts)?;
        let path = TensorPath::new(self.path.clone());
        Limits::check("bytes in a name", "name_bytes", path.byte_len() as u64, limits.name_bytes)?;
        let dtype = match array.dtype {
            DType::U16 => {
                if !self.bf16 {
                    let text = "uint16 arrays are read as bfloat16, as in Paddle (numpy has no bfloat16)";
                    self.checkpoint.notes.push(Note::new("uint16-is-bf16", text));
                }
                self.bf16 = true;
                DType::BF16
            }
            dtype => dtype,
        };
        let mut entry =
            TensorEntry::dense(path, dtype, array.shape, &array.source, array.offset, array.encoding)?;
        entry.role = match spot.slot {
            Some(slot) => Role::OptimizerState { slot },
            None => spot.role.unwrap_or(Role::Parameter),
        };
        self.distinguish(&mut entry)?;
        let default = state_key(&entry, Some(spot.key));
        if let Some(name) = spot.name.filter(|name| *name != default) {
            self.budget.take_memory(Cost::attributes(name.len() as u64))?;
            entry.attributes.insert(Attributes::VARIABLE_NAME.to_owned(), Value::Text(name));
        }
        if let Some(parameter) = spot.parameter {
            self.budget.take_memory(Cost::attributes(parameter.len() as u64))?;
            entry
                .attributes
                .insert(Attributes::PARAMETER_VARIABLE.to_owned(), Value::Text(parameter.to_owned()));
        }
        let text = entry.text();
        // An object is counted once. Identical ranges that are stored unencoded in the file are not counted.
        if spot.id.is_none_or(|id| !self.first_names.contains_key(&id))
            && let Some(extent) = entry.single_extent().filter(|extent| extent.len > 0)
            && let Some(within) = extent.source.within().filter(|within| within.encoded)
        {
            self.spans.add(0, (within.offset, within.offset.saturating_add(within.len)), within.len);
        }
        if let Some(id) = spot.id {
            match self.first_names.get(&id) {
                Some(first) => {
                    self.budget.take_memory(Cost::attributes(first.len() as u64))?;
                    entry.attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(first.clone()));
                }
                None => {
                    self.first_names.insert(id, text.clone());
                }
            }
        }
        self.checkpoint.tensors.push(entry);
        Ok(structure::tensor(form, text))
    }

    /// Makes the name unique: keys with dots can coincide with nested keys.
    fn distinguish(&mut self, entry: &mut TensorEntry) -> Result<()> {
        let name = entry.text();
        self.budget.take_memory(Cost::name(entry.path.parts().len(), name.len() as u64))?;
        if self.names.is_taken(&name) {
            // The note, and the name as a duplicate.
            self.budget.take_memory(Cost::name(entry.path.parts().len(), name.len() as u64))?;
        }
        self.checkpoint.notes.extend(self.names.add(entry));
        Ok(())
    }
}
