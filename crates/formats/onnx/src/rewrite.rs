//! Writer of an opened model: the same file with changed tensors and names.
//!
//! The [skeleton](crate::skeleton) is written field by field. Fields without changes keep their bytes, and the lengths of messages keep
//! their form, so an unchanged model is the same file. Changed elements are written as `raw_data`.

use crate::encode::{ALIGNMENT, Message as Out};
use crate::external::Place as Outside;
use crate::graph::{self, Content, Described, FORM, Place, property_key};
use crate::properties::{Properties, put_field};
use crate::skeleton::{Message, is_data};
use crate::tensor_plan::{TensorPlan, is_same};
use crate::wire::{Field, Fields};
use crate::{dtype, read};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Loss, TensorEntry, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{FileBuilder, PlannedFile};
use weighbridge_core::tensor::{DType, Order};
use weighbridge_core::topology::Topology;
use weighbridge_io::source::SourceRef;

/// Place of large tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// As in the opened model.
    AsOpened,
    /// In the file of external data.
    External,
    /// In the model.
    Inside,
}

/// Written model.
pub(crate) struct Rewritten {
    /// Message of the model.
    pub(crate) message: Out,
    /// Files of external data.
    pub(crate) files: Vec<PlannedFile>,
    /// Losses.
    pub(crate) losses: Vec<Loss>,
}

/// Changes of a model, as far as names and types of values are concerned.
struct Changes<'a> {
    /// Tensors of the model, in order, each with its entry in the index.
    tensors: Vec<(&'a Described, Option<Cow<'a, TensorEntry>>)>,
    /// New names of values: by block and old name.
    names: HashMap<(usize, &'a str), String>,
    /// Values with another dtype or shape: by block and old name.
    types: HashMap<(usize, &'a str), (i64, Vec<u64>)>,
    /// Values that are stored with another dtype, and that operators read as before the cast: by block and old name.
    casts: HashMap<(usize, &'a str), Cast>,
    /// Removed values: block and name.
    removed: HashSet<(usize, &'a str)>,
    /// Removed tensors, by their index.
    removed_tensors: HashSet<usize>,
    /// Names of the values of each block, if any value has a new name or a cast.
    scopes: Vec<HashSet<&'a str>>,
}

/// Node that gives a value its former dtype.
#[derive(Debug, Clone)]
struct Cast {
    /// Number of the former dtype.
    to: i64,
    /// Name of the value with that dtype.
    name: String,
    /// True for the result of a node, behind which the cast is; other casts are before the first node.
    behind: bool,
}

/// Rewrites the model of a checkpoint that was opened from one.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] if tensors that the graph needs are missing, or names collide.
pub(crate) fn rewrite(
    checkpoint: &Checkpoint,
    topology: &Topology,
    storage: Storage,
    data_file: &str,
) -> Result<Rewritten> {
    debug_assert_eq!(topology.form, FORM);
    if let Some(damage) = checkpoint.damage.as_deref() {
        return Err(Error::mismatch("missing-tensors", "a damaged graph cannot be written as an ONNX model")
            .in_file(&checkpoint.label)
            .found(&damage.text)
            .hint("write the intact tensors to another format, such as .safetensors"));
    }
    let content = graph::parse_again(topology)?;
    let mut losses: Vec<Loss> = Vec::new();
    let changes = Changes::of(checkpoint, topology, &content, &mut losses)?;
    let properties = Properties::of(checkpoint, &content.metadata, &mut losses)?;
    let mut writer = Writer {
        changes,
        properties,
        storage,
        data: Data::new(data_file),
        tensor: 0,
        block: 0,
        scopes: vec![0],
    };
    writer.plan_external()?;
    let message = writer.message(Message::Model, &topology.bytes, 0)?;
    let files = writer.data.finish()?;
    Ok(Rewritten { message, files, losses })
}

impl<'a> Changes<'a> {
    fn of(
        checkpoint: &'a Checkpoint,
        topology: &'a Topology,
        content: &'a Content,
        losses: &mut Vec<Loss>,
    ) -> Result<Self> {
        let old = |entry: &TensorEntry| {
            let renamed = entry.text_attribute(Attributes::RENAMED_FROM).map(str::to_owned);
            renamed.unwrap_or_else(|| entry.path.to_text())
        };
        let mut by_name: HashMap<String, &TensorEntry> = HashMap::with_capacity(checkpoint.tensors.len());
        for entry in checkpoint.tensors.iter() {
            if entry.role.slot().is_some() || by_name.contains_key(&old(entry)) {
                losses.push(no_place(entry));
            } else {
                by_name.insert(old(entry), entry);
            }
        }
        let mut changes = Self {
            tensors: Vec::with_capacity(content.tensors.len()),
            names: HashMap::new(),
            types: HashMap::new(),
            casts: HashMap::new(),
            removed: HashSet::new(),
            removed_tensors: HashSet::new(),
            scopes: Vec::new(),
        };
        let mut missing = Vec::new();
        for (number, one) in content.tensors.iter().enumerate() {
            let entry = by_name.remove(&one.path.to_text());
            let written = match entry {
                Some(entry) => Some(changes.change(one, entry, content, losses)?),
                None => None,
            };
            changes.tensors.push((one, written));
            match entry {
                Some(_) => {}
                None if read::is_listed(one) => missing.push((number, one)),
                None if one.header.dtype != dtype::STRING => return Err(not_listed(one)),
                None => {}
            }
        }
        let mut extra: Vec<&TensorEntry> = by_name.into_values().collect();
        extra.sort_by_key(|entry| entry.path.to_text());
        losses.extend(extra.into_iter().map(no_place));
        if !missing.is_empty() {
            let used = used_names(topology, content);
            for (number, one) in missing {
                match one.place.value().filter(|_| matches!(one.place, Place::Initializer(_))) {
                    // The first of two tensors of one name keeps the value.
                    Some(_) if one.is_duplicate => _ = changes.removed_tensors.insert(number),
                    Some(name) if !used.contains(name) => {
                        changes.removed.insert((one.block, name));
                        changes.removed_tensors.insert(number);
                    }
                    _ => return Err(needed(one, checkpoint)),
                }
            }
        }
        if !changes.names.is_empty() || !changes.casts.is_empty() {
            changes.scopes = topology.blocks.iter().map(value_names).collect();
            if let Some(main) = changes.scopes.first_mut() {
                main.extend(topology.feeds.iter().map(|feed| feed.name.as_str()));
            }
            changes.check_names()?;
            changes.name_casts();
        }
        Ok(changes)
    }

    /// Records the new name, dtype and shape of a tensor, and returns the tensor to write.
    fn change(
        &mut self,
        one: &'a Described,
        entry: &'a TensorEntry,
        content: &Content,
        losses: &mut Vec<Loss>,
    ) -> Result<Cow<'a, TensorEntry>> {
        let (old, new) = (one.path.to_text(), entry.path.to_text());
        if old != new {
            let prefix = one.prefix.to_text();
            let own = match prefix.is_empty() {
                true => Some(new.as_str()),
                false => new.strip_prefix(&prefix).and_then(|rest| rest.strip_prefix('.')),
            };
            let value = one.place.value().filter(|_| !one.is_duplicate);
            let (Some(own), Some(value)) = (own.filter(|own| !own.is_empty()), value) else {
                let (text, hint) = match one.place.value() {
                    Some(_) => (
                        "the new name is outside the graph of the tensor",
                        format!("keep the beginning of the name: {}", escape_text(&prefix)),
                    ),
                    None => (
                        "the tensor belongs to an operator and has no name of its own in the model",
                        "rename other tensors by their whole names".to_owned(),
                    ),
                };
                return Err(Error::mismatch("belongs-to-a-program", text)
                    .on_tensor(escape_text(&old))
                    .found(escape_text(&new))
                    .hint(hint));
            };
            self.names.insert((one.block, value), own.to_owned());
        }
        let (stored, shape, packed) = read::layout(one.header.dtype, &one.header.dims)?;
        if entry.dtype() == stored && entry.shape == shape {
            return Ok(Cow::Borrowed(entry));
        }
        let number = dtype::number(entry.dtype()).filter(|_| packed.is_none());
        let Some(number) = number else {
            return Err(Error::unsupported(
                "onnx-dtype",
                "the tensor cannot have another dtype or shape in ONNX",
            )
            .on_tensor(entry.name())
            .expected(format_args!("{stored} {shape}"))
            .found(format_args!("{} {}", entry.dtype(), entry.shape)));
        };
        if entry.shape != shape {
            let detail = "the shape is changed, and the operators are not: check that they accept it";
            losses.push(Loss::new("shape", entry.name(), detail));
        }
        let is_cast = entry.dtype() != stored;
        let value = one.place.value();
        let is_output = |value: &str| content.outputs.iter().any(|output| output == value);
        if is_cast && value.is_none_or(is_output) {
            let detail = match value {
                Some(_) => "not cast: an output of the graph keeps its dtype",
                None => "not cast: the tensor is part of an operator",
            };
            losses.push(Loss::new("dtype-refused", entry.name(), detail));
            return Ok(Cow::Owned(TensorEntry { cast: None, ..entry.clone() }));
        }
        if let Some(value) = value {
            self.types.insert((one.block, value), (number, entry.shape.dims().to_vec()));
            if is_cast {
                check_cast(entry, content)?;
                let behind = matches!(one.place, Place::Constant(_));
                let cast = Cast { to: one.header.dtype, name: stored.to_string(), behind };
                self.casts.insert((one.block, value), cast);
            }
        }
        Ok(Cow::Borrowed(entry))
    }

    /// Names the results of casts after the values, such as `fc1.weight.f32`.
    fn name_casts(&mut self) {
        let mut taken: HashSet<String> = self.names.values().cloned().collect();
        let is_taken = |name: &str, taken: &HashSet<String>| {
            taken.contains(name) || self.scopes.iter().any(|scope| scope.contains(name))
        };
        let mut keys: Vec<(usize, &'a str)> = self.casts.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            let Some(cast) = self.casts.get_mut(&key) else { continue };
            let mut name = format!("{}.{}", self.names.get(&key).map_or(key.1, String::as_str), cast.name);
            while is_taken(&name, &taken) {
                name.push('_');
            }
            taken.insert(name.clone());
            cast.name = name;
        }
    }

    /// Rejects a new name that another value has.
    fn check_names(&self) -> Result<()> {
        let mut new = HashSet::new();
        for ((_, old), name) in &self.names {
            let taken = self.scopes.iter().enumerate().any(|(other, scope)| {
                scope.get(name.as_str()).is_some_and(|value| !self.names.contains_key(&(other, *value)))
            });
            if taken || !new.insert(name) {
                return Err(Error::mismatch("name-collision", "another value of the graph has the new name")
                    .on_tensor(escape_text(old))
                    .found(escape_text(name)));
            }
        }
        Ok(())
    }

    /// Returns the block and the old name of a value that operators in the innermost of `scopes` see.
    fn seen(&self, scopes: &[usize], name: &str) -> Option<(usize, &'a str)> {
        let own = |block: &usize| Some((*block, *self.scopes.get(*block)?.get(name)?));
        scopes.iter().rev().find_map(own)
    }

    /// Returns the new name of a value, if it changes.
    fn new_name(&self, scopes: &[usize], name: &str) -> Option<&str> {
        self.names.get(&self.seen(scopes, name)?).map(String::as_str)
    }

    /// Returns the name by which operators read a value, if it changes.
    fn read_name(&self, scopes: &[usize], name: &str) -> Option<&str> {
        let key = self.seen(scopes, name)?;
        self.casts
            .get(&key)
            .map(|cast| cast.name.as_str())
            .or_else(|| self.names.get(&key).map(String::as_str))
    }
}

/// Fails if the operators of the model cannot cast a tensor back.
fn check_cast(entry: &TensorEntry, content: &Content) -> Result<()> {
    let since = |dtype| match dtype {
        DType::BF16 => 13,
        DType::F8E4M3 | DType::F8E4M3Fnuz | DType::F8E5M2 | DType::F8E5M2Fnuz => 19,
        _ => 6,
    };
    let first = since(entry.dtype()).max(since(entry.stored));
    let opset = content.metadata.iter().find(|(key, _)| key == "opset");
    match opset {
        Some((_, Value::I64(opset))) if *opset < first => {
            let text = format!("operators cannot cast {} back to {}", entry.dtype(), entry.stored);
            Err(Error::unsupported("onnx-dtype", text)
                .on_tensor(entry.name())
                .expected(format_args!("opset {first} or later"))
                .found(format_args!("opset {opset}")))
        }
        _ => Ok(()),
    }
}

fn not_listed(one: &Described) -> Error {
    Error::unsupported("onnx-dtype", "the elements of the tensor cannot be copied: their dtype is unknown")
        .on_tensor(&one.path)
        .found(one.header.dtype)
}

fn no_place(entry: &TensorEntry) -> Loss {
    Loss::new("not-in-graph", entry.name(), "dropped: the graph of the model has no tensor of this name")
}

fn needed(one: &Described, checkpoint: &Checkpoint) -> Error {
    if let Some(lost) = checkpoint.damage.as_ref().and_then(|damage| damage.lost_of(&one.path.to_text())) {
        return Error::mismatch("missing-tensors", "the model is incomplete: the tensor is lost")
            .on_tensor(&one.path)
            .found(&lost.text)
            .hint("write the intact tensors to another format, such as .safetensors");
    }
    let text = match one.place {
        Place::Initializer(_) => "the graph uses the tensor, so it cannot be dropped",
        _ => "the tensor belongs to an operator of the graph, so it cannot be dropped",
    };
    Error::mismatch("missing-tensors", text)
        .on_tensor(&one.path)
        .hint("keep the tensor, or write the selected tensors to another format, such as .safetensors")
}

/// Returns the names that operators read, and outputs.
fn used_names<'a>(topology: &'a Topology, content: &'a Content) -> HashSet<&'a str> {
    let read = topology.operators().flat_map(|o| &o.inputs).flat_map(|slot| &slot.arguments);
    read.chain(&content.outputs).map(String::as_str).collect()
}

/// Returns the names of the values that a block defines. A declaration alone defines none: it may be of a value around the block.
fn value_names(block: &weighbridge_core::topology::Block) -> HashSet<&str> {
    let stored = block.variables.iter().filter(|variable| variable.persistable);
    let mut names: HashSet<&str> = stored.map(|variable| variable.name.as_str()).collect();
    names.extend(block.arguments.iter().map(String::as_str));
    let made = block.operators.iter().flat_map(|o| &o.outputs).flat_map(|slot| &slot.arguments);
    names.extend(made.map(String::as_str));
    names.remove("");
    names
}

/// Files of external data.
struct Data {
    /// Name of the file for tensors that were in the model.
    own: String,
    /// New files, by name.
    files: BTreeMap<String, FileBuilder>,
    /// Files that are copied, by name.
    copied: BTreeMap<String, SourceRef>,
    /// Places of written ranges: tied tensors share one.
    written: HashMap<(String, String, u64, u64), u64>,
}

impl Data {
    fn new(own: &str) -> Self {
        Self { own: own.to_owned(), files: BTreeMap::new(), copied: BTreeMap::new(), written: HashMap::new() }
    }

    /// Appends the elements of a tensor to a file, and returns their offset.
    fn add(&mut self, file: &str, entry: &TensorEntry) -> Result<u64> {
        let tied = entry.single_extent().filter(|_| entry.cast.is_none() && entry.bytes() > 0);
        let key = tied.map(|e| (file.to_owned(), e.source.label().to_owned(), e.offset, e.len));
        if let Some(&offset) = key.as_ref().and_then(|key| self.written.get(key)) {
            return Ok(offset);
        }
        let builder = self.files.entry(file.to_owned()).or_insert_with(|| FileBuilder::new(file));
        let gap = builder.position().next_multiple_of(ALIGNMENT) - builder.position();
        builder.padding(0, gap);
        let offset = builder.position();
        builder.tensor(entry, Order::Row)?;
        if let Some(key) = key {
            self.written.insert(key, offset);
        }
        Ok(offset)
    }

    fn finish(self) -> Result<Vec<PlannedFile>> {
        let copied = self.copied.iter().map(|(name, source)| FileBuilder::copy_of(name, source));
        Ok(copied.chain(self.files.into_values().map(FileBuilder::finish)).collect())
    }
}

struct Writer<'a> {
    changes: Changes<'a>,
    properties: Properties,
    storage: Storage,
    data: Data,
    /// Index of the next tensor.
    tensor: usize,
    /// Index of the last block.
    block: usize,
    /// Blocks around the position.
    scopes: Vec<usize>,
}

impl<'a> Writer<'a> {
    /// Finds the files of external data without changes: they are copied.
    fn plan_external(&mut self) -> Result<()> {
        if self.storage != Storage::AsOpened {
            return Ok(());
        }
        let mut changed: HashSet<String> = HashSet::new();
        for (one, entry) in &self.changes.tensors {
            let entry = entry.as_deref();
            if !one.header.is_external {
                continue;
            }
            let place = Outside::of(&one.header)?;
            let name = place.name().to_owned();
            let same = entry.filter(|entry| is_same(one, entry)).and_then(|entry| entry.single_extent());
            match same.filter(|extent| extent.offset == place.offset) {
                Some(extent) => _ = self.data.copied.entry(name).or_insert_with(|| extent.source.clone()),
                None => _ = changed.insert(name),
            }
        }
        self.data.copied.retain(|name, _| !changed.contains(name));
        Ok(())
    }

    /// Returns the name of a value as the innermost graph sees it, if it changes.
    fn new_name(&self, name: &[u8]) -> Option<&str> {
        if self.changes.names.is_empty() {
            return None;
        }
        self.changes.new_name(&self.scopes, &crate::wire::text(name))
    }

    /// Appends a field with the name of a value.
    fn put_name(&self, field: &Field<'_>, out: &mut Out) {
        match field.bytes().and_then(|name| self.new_name(name)) {
            Some(new) => out.text(field.number, new),
            None => out.raw(field.raw),
        }
    }

    /// Appends the name by which an operator reads a value.
    fn put_read(&self, field: &Field<'_>, out: &mut Out) {
        let scopes = &self.scopes;
        let read = |name: &[u8]| self.changes.read_name(scopes, &crate::wire::text(name));
        match field.bytes().filter(|_| !self.changes.scopes.is_empty()).and_then(read) {
            Some(new) => out.text(field.number, new),
            None => out.raw(field.raw),
        }
    }

    /// Appends the nodes that cast initializers of the block back to their former dtypes.
    fn put_casts(&self, number: u32, out: &mut Out) {
        let block = self.scopes.last().copied().unwrap_or(0);
        let is_own = |((own, _), cast): &(&(usize, &str), &Cast)| *own == block && !cast.behind;
        let mut casts: Vec<_> = self.changes.casts.iter().filter(is_own).collect();
        casts.sort_by_key(|((_, value), _)| *value);
        for ((_, value), cast) in casts {
            self.put_cast(number, value, cast, out);
        }
    }

    fn put_cast(&self, number: u32, value: &str, cast: &Cast, out: &mut Out) {
        let mut to = Out::default();
        to.text(1, "to");
        to.int(3, cast.to);
        to.int(20, 2);
        let mut node = Out::default();
        node.text(1, self.changes.new_name(&self.scopes, value).unwrap_or(value));
        node.text(2, &cast.name);
        node.text(4, "Cast");
        node.message(5, to);
        out.message(number, node);
    }

    fn message(&mut self, kind: Message, bytes: &[u8], depth: usize) -> Result<Out> {
        let mut out = Out::default();
        let mut is_first = true;
        for field in Fields::of(bytes) {
            let field = field?;
            match (kind.of_field(field.number), field.bytes()) {
                (Some(Message::Tensor), Some(inner)) => self.one_tensor(kind, &field, inner, &mut out)?,
                (Some(child), Some(inner)) => {
                    let has_casts = child == Message::Node && !self.changes.casts.is_empty();
                    if has_casts && std::mem::take(&mut is_first) {
                        self.put_casts(field.number, &mut out);
                    }
                    let message = self.child(kind, child, inner, depth)?;
                    out.begin(field.tag, message.len(), field.excess);
                    out.append(message);
                    if has_casts {
                        let block = self.scopes.last().copied().unwrap_or(0);
                        for result in results(inner)? {
                            match self.changes.casts.get(&(block, result.as_str())) {
                                Some(cast) if cast.behind => {
                                    self.put_cast(field.number, &result, cast, &mut out);
                                }
                                _ => {}
                            }
                        }
                    }
                }
                _ => self.leaf(kind, &field, &mut out)?,
            }
        }
        if kind == Message::Model {
            self.end_of_model(&mut out);
        }
        Ok(out)
    }

    /// Returns a nested message. A graph or a function begins a block.
    fn child(&mut self, kind: Message, child: Message, inner: &[u8], depth: usize) -> Result<Out> {
        let is_block = match child {
            Message::Function => true,
            Message::Graph => kind != Message::Model,
            _ => false,
        };
        if !is_block {
            return self.message(child, inner, depth + 1);
        }
        self.block += 1;
        let outer = self.scopes.clone();
        // Only bodies of control flow see the values around them.
        if kind != Message::Attribute {
            self.scopes.clear();
        }
        self.scopes.push(self.block);
        let message = self.message(child, inner, depth + 1);
        self.scopes = outer;
        message
    }

    /// Appends a field that contains no tensors.
    fn leaf(&mut self, kind: Message, field: &Field<'_>, out: &mut Out) -> Result<()> {
        match (kind, field.number) {
            (Message::Node, 1) => self.put_read(field, out),
            (Message::Node, 2) => self.put_name(field, out),
            (Message::Graph, 11..=13) | (Message::Function, 12) => self.value(field, out)?,
            (Message::Function, 4 | 5) => self.put_name(field, out),
            (Message::Graph, 14) if !self.changes.names.is_empty() => self.annotation(field, out)?,
            (Message::Training, 3 | 4) if !self.changes.names.is_empty() => {
                let scopes = std::mem::replace(&mut self.scopes, vec![0]);
                let done = self.names_of_pair(field, out, &[1, 2]);
                self.scopes = scopes;
                done?;
            }
            (Message::Model, 14) if !self.properties.changed.is_empty() => self.property(field, out)?,
            (Message::Model, 2..=6) => match self.properties.fields.remove(&field.number) {
                Some(value) => put_field(field.number, &value, out),
                None => out.raw(field.raw),
            },
            _ => out.raw(field.raw),
        }
        Ok(())
    }

    fn end_of_model(&mut self, out: &mut Out) {
        for (number, value) in std::mem::take(&mut self.properties.fields) {
            put_field(number, &value, out);
        }
        for (key, value) in std::mem::take(&mut self.properties.added) {
            let mut pair = Out::default();
            pair.text(1, &key);
            pair.text(2, &value);
            out.message(14, pair);
        }
    }

    fn property(&self, field: &Field<'_>, out: &mut Out) -> Result<()> {
        let (key, _) = graph::pair(field.bytes().unwrap_or_default())?;
        match self.properties.changed.get(&property_key(&key)) {
            None => out.raw(field.raw),
            Some(None) => {}
            Some(Some(value)) => {
                let mut pair = Out::default();
                pair.text(1, &key);
                pair.text(2, value);
                out.message(14, pair);
            }
        }
        Ok(())
    }

    /// Appends the declaration of a value.
    fn value(&self, field: &Field<'_>, out: &mut Out) -> Result<()> {
        let Some(bytes) = field.bytes() else {
            out.raw(field.raw);
            return Ok(());
        };
        let mut name = "".to_owned();
        for part in Fields::of(bytes) {
            let part = part?;
            if part.number == 1 {
                name = part.text().unwrap_or_default();
            }
        }
        let block = self.scopes.last().copied().unwrap_or(0);
        let key = (block, name.as_str());
        if self.changes.removed.contains(&key) {
            return Ok(());
        }
        let new_type = self.changes.types.get(&key);
        let new_name = self.new_name(name.as_bytes());
        if new_type.is_none() && new_name.is_none() {
            out.raw(field.raw);
            return Ok(());
        }
        let mut value = Out::default();
        for part in Fields::of(bytes) {
            let part = part?;
            match (part.number, new_type) {
                (1, _) => self.put_name(&part, &mut value),
                (2, Some((number, dims))) => {
                    let mut shape = Out::default();
                    for size in dims {
                        let mut dim = Out::default();
                        dim.int(1, i64::try_from(*size).unwrap_or(i64::MAX));
                        shape.message(1, dim);
                    }
                    let mut tensor = Out::default();
                    tensor.int(1, *number);
                    tensor.message(2, shape);
                    let mut kind = Out::default();
                    kind.message(1, tensor);
                    value.message(2, kind);
                }
                _ => value.raw(part.raw),
            }
        }
        out.begin(field.tag, value.len(), field.excess);
        out.append(value);
        Ok(())
    }

    /// Appends the quantization parameters of a value: its name, and the names of tensors by role.
    fn annotation(&self, field: &Field<'_>, out: &mut Out) -> Result<()> {
        let mut annotation = Out::default();
        for part in Fields::of(field.bytes().unwrap_or_default()) {
            let part = part?;
            match part.number {
                1 => self.put_name(&part, &mut annotation),
                2 if part.bytes().is_some() => self.names_of_pair(&part, &mut annotation, &[2])?,
                _ => annotation.raw(part.raw),
            }
        }
        out.begin(field.tag, annotation.len(), field.excess);
        out.append(annotation);
        Ok(())
    }

    /// Appends a pair of texts, in which the fields `names` are names of values.
    fn names_of_pair(&self, field: &Field<'_>, out: &mut Out, names: &[u32]) -> Result<()> {
        let mut pair = Out::default();
        for part in Fields::of(field.bytes().unwrap_or_default()) {
            let part = part?;
            match names.contains(&part.number) {
                true => self.put_name(&part, &mut pair),
                false => pair.raw(part.raw),
            }
        }
        out.begin(field.tag, pair.len(), field.excess);
        out.append(pair);
        Ok(())
    }

    /// Appends the next tensor, unless it was dropped.
    fn one_tensor(&mut self, kind: Message, field: &Field<'_>, inner: &[u8], out: &mut Out) -> Result<()> {
        let Some((one, entry)) = self.changes.tensors.get(self.tensor).cloned() else {
            return Err(Error::corrupt("bad-program", "the model has more tensors than when it was opened"));
        };
        let number = self.tensor;
        self.tensor += 1;
        if self.changes.removed_tensors.contains(&number) && kind == Message::Graph {
            return Ok(());
        }
        let message = match entry {
            Some(entry) => self.tensor(one, &entry, inner)?,
            None => {
                let mut same = Out::default();
                for part in Fields::of(inner) {
                    let part = part?;
                    if is_data(part.number) {
                        return Err(not_listed(one));
                    }
                    same.raw(part.raw);
                }
                same
            }
        };
        out.begin(field.tag, message.len(), field.excess);
        out.append(message);
        Ok(())
    }

    fn tensor(&mut self, one: &Described, entry: &TensorEntry, inner: &[u8]) -> Result<Out> {
        let mut plan = TensorPlan::of(one, entry, inner, self.storage)?;
        let name = match &one.place {
            Place::Initializer(name) => self.changes.names.get(&(one.block, name.as_str())).cloned(),
            _ => None,
        };
        let mut out = Out::default();
        if !plan.same_shape && one.header.dims.is_empty() {
            plan.put_dims(&mut out);
        }
        for field in Fields::of(inner) {
            let field = field?;
            match field.number {
                1 if !plan.same_shape => plan.put_dims(&mut out),
                2 if !plan.same_dtype => out.int(2, plan.number),
                8 => match &name {
                    Some(name) => out.text(8, name),
                    None => out.raw(field.raw),
                },
                number if is_data(number) => plan.put_data(&field, &mut out)?,
                13 if plan.was_external => match plan.external {
                    true => self.external(one, &mut plan, &field, &mut out)?,
                    false => plan.put_raw(&mut out),
                },
                14 if plan.was_external && !plan.external => {}
                _ => out.raw(field.raw),
            }
        }
        if plan.external && !plan.was_external {
            self.move_out(&mut plan, &mut out)?;
        } else if !plan.external {
            plan.put_raw(&mut out);
        }
        Ok(out)
    }

    /// Appends an entry about external elements.
    fn external(
        &mut self,
        one: &Described,
        plan: &mut TensorPlan<'_>,
        field: &Field<'_>,
        out: &mut Out,
    ) -> Result<()> {
        let place = Outside::of(&one.header)?;
        if self.data.copied.contains_key(place.name()) {
            out.raw(field.raw);
            return Ok(());
        }
        if self.storage == Storage::External {
            return self.move_out(plan, out);
        }
        if plan.is_put {
            return Ok(());
        }
        plan.is_put = true;
        let offset = self.data.add(place.name(), plan.entry)?;
        put_place(&place.location, offset, plan.entry.bytes(), out);
        Ok(())
    }

    /// Stores the elements in the file of external data.
    fn move_out(&mut self, plan: &mut TensorPlan<'_>, out: &mut Out) -> Result<()> {
        if plan.is_put {
            return Ok(());
        }
        plan.is_put = true;
        let own = self.data.own.clone();
        let offset = self.data.add(&own, plan.entry)?;
        put_place(&own, offset, plan.entry.bytes(), out);
        if !plan.was_external {
            out.int(14, 1);
        }
        Ok(())
    }
}

fn put_place(location: &str, offset: u64, length: u64, out: &mut Out) {
    for (key, value) in
        [("location", location.to_owned()), ("offset", offset.to_string()), ("length", length.to_string())]
    {
        let mut pair = Out::default();
        pair.text(1, key);
        pair.text(2, &value);
        out.message(13, pair);
    }
}

/// Returns the names of the results of a node.
fn results(node: &[u8]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for field in Fields::of(node) {
        let field = field?;
        if field.number == 2 {
            names.extend(field.text());
        }
    }
    Ok(names)
}
