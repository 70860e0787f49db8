//! Conversion of a structure to pickle objects, with the object identities of Paddle.

use super::split::{INFO, SHAPE, SLICES, part_name};
use super::structure::{Form, Pairs, View, view};
use super::{flat, state_key};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Loss, Name, TensorEntry, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::{DType, Encoding, Endian, Order, Shape};
use weighbridge_core::{Budget, phrase};
use weighbridge_io::source::SourceRef;
use weighbridge_pickle::{Builder, Content, Graph, NumpyModules, ObjectId};

/// Content of an array of the pickle.
pub(super) type Payload = (TensorEntry, Order);

/// Builder of the pickle objects.
pub(super) struct Writer<'a> {
    checkpoint: &'a Checkpoint,
    protocol: u8,
    modules: NumpyModules,
    /// Maximum length in bytes of an array in one piece, with protocols 2 and 3.
    most: u64,
    builder: Builder,
    by_text: HashMap<String, usize>,
    built: HashMap<usize, (Form, ObjectId)>,
    /// Keys and texts of a single letter.
    letters: HashMap<u8, ObjectId>,
    payloads: Vec<Payload>,
    losses: Vec<Loss>,
    /// Keys that lead to the current object.
    path: Vec<String>,
}

/// Pairs of the root so far, for the table of names and for split arrays.
#[derive(Default)]
struct Root {
    pairs: Vec<(ObjectId, ObjectId)>,
    /// All keys, including those of split arrays.
    keys: HashSet<String>,
    /// Key, its object, and the index of the tensor.
    tensors: Vec<(String, ObjectId, usize)>,
    split: Vec<(String, ObjectId, usize)>,
}

impl Root {
    /// Reserves a key for a part of the split tensor `entry`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `name-collision`, if the key is in use: a dict would keep one item only.
    fn take(&mut self, key: &str, entry: &TensorEntry) -> Result<()> {
        if self.keys.insert(key.to_owned()) {
            return Ok(());
        }
        let text = "the key of a part of the split tensor is already in use";
        Err(Error::mismatch("name-collision", text).on_tensor(entry.name()).found(escape_text(key)).hint(
            phrase![
                "protocols 2 and 3 split large tensors; use ",
                Opt::Set.pair("protocol", "4"),
                " to store it in one piece, or rename the other item"
            ],
        ))
    }
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        checkpoint: &'a Checkpoint,
        protocol: u8,
        modules: NumpyModules,
        most: u64,
        losses: Vec<Loss>,
    ) -> Self {
        let mut by_text = HashMap::with_capacity(checkpoint.tensors.len());
        for (at, entry) in checkpoint.tensors.iter().enumerate() {
            by_text.entry(entry.text()).or_insert(at);
        }
        let builder = Builder::new();
        let (built, letters, payloads, path) = (HashMap::new(), HashMap::new(), Vec::new(), Vec::new());
        Self { checkpoint, protocol, modules, most, builder, by_text, built, letters, payloads, losses, path }
    }

    /// Returns the contents of the arrays, by payload keys, and the losses.
    pub(super) fn finish(self) -> (Vec<Payload>, Vec<Loss>) {
        (self.payloads, self.losses)
    }

    /// Builds the graph of a structure, and returns it with its root.
    pub(super) fn run(&mut self, structure: &Value) -> Result<(Graph, ObjectId)> {
        let root = match view(structure) {
            View::Dict { pairs, ordered: false } => self.root(pairs)?,
            _ => self.value(structure, 0, None)?.unwrap_or(ObjectId::NONE),
        };
        Ok((std::mem::take(&mut self.builder).finish(), root))
    }

    /// Builds the root dict. Tables of names and split arrays occur only here.
    fn root(&mut self, pairs: Pairs<'_>) -> Result<ObjectId> {
        let mut root = Root::default();
        match pairs {
            Pairs::Named(named) => {
                for (key, value) in named {
                    self.root_item(&mut root, key, value)?;
                }
            }
            Pairs::Listed(_) => root.pairs = self.pairs(pairs, 0)?,
        }
        self.split(&mut root)?;
        self.builder.dict(root.pairs)
    }

    fn root_item(&mut self, root: &mut Root, key: &Name, value: &Value) -> Result<()> {
        let key = key.to_text();
        root.keys.insert(key.clone());
        match view(value) {
            View::Names(names) => {
                let id = self.text(&key)?;
                let table = self.table(root, names)?;
                root.pairs.push((id, table));
            }
            View::Tensor(form, text) => {
                let Some(&at) = self.by_text.get(text) else { return Ok(()) };
                let id = self.text(&key)?;
                root.tensors.push((key.clone(), id, at));
                if form == Form::Array && self.is_too_long(at) {
                    root.split.push((key, id, at));
                } else {
                    let value = self.tensor(form, at, &key)?;
                    root.pairs.push((id, value));
                }
            }
            _ => {
                let id = self.text(&key)?;
                if let Some(value) = self.below(value, 1, &key)? {
                    root.pairs.push((id, value));
                }
            }
        }
        Ok(())
    }

    /// Builds the table of names. Its keys are the same objects as those of the tensors.
    fn table(&mut self, root: &Root, names: Option<&[Value]>) -> Result<ObjectId> {
        let mut pairs = Vec::new();
        let name = |writer: &Self, at: usize, key: &str| match writer.checkpoint.tensors.get(at) {
            Some(entry) => name_of(entry, key),
            None => key.to_owned(),
        };
        match names {
            None => {
                for (key, id, at) in &root.tensors {
                    let name = name(self, *at, key);
                    pairs.push((*id, self.fresh(&name)?));
                }
            }
            Some(names) => {
                let known: HashMap<&str, (ObjectId, usize)> =
                    root.tensors.iter().map(|(key, id, at)| (key.as_str(), (*id, *at))).collect();
                for row in names {
                    match row {
                        Value::Text(key) => {
                            let Some(&(id, at)) = known.get(key.as_str()) else { continue };
                            let name = name(self, at, key);
                            pairs.push((id, self.fresh(&name)?));
                        }
                        Value::List(row) => {
                            if let [Value::Text(key), Value::Text(name)] = row.as_slice() {
                                pairs.push((self.text(key)?, self.fresh(name)?));
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
        self.builder.dict(pairs)
    }

    /// True if Paddle splits the array because its length exceeds the maximum.
    fn is_too_long(&self, at: usize) -> bool {
        let Some(entry) = self.checkpoint.tensors.get(at) else { return false };
        let size = entry.dtype().size().unwrap_or(1) as u64;
        self.protocol < 4 && entry.elements() > self.most / size.max(1)
    }

    /// Appends the parts of split arrays after all other items, with their description.
    fn split(&mut self, root: &mut Root) -> Result<()> {
        if root.split.is_empty() {
            return Ok(());
        }
        let mut infos = Vec::new();
        let split = std::mem::take(&mut root.split);
        for &(ref key, id, at) in &split {
            let Some(entry) = self.checkpoint.tensors.get(at) else { continue };
            let size = entry.dtype().size().unwrap_or(1) as u64;
            let step = (self.most / size).max(1);
            let whole = flattened(entry)?;
            let (mut names, mut begin, mut number) = (Vec::new(), 0, 0);
            while begin < entry.elements() {
                let count = step.min(entry.elements() - begin);
                let name = part_name(key, number);
                root.take(&name, entry)?;
                let name = self.text(&name)?;
                let source: &SourceRef = &whole.0;
                let part = TensorEntry::dense(
                    entry.path.clone(),
                    entry.dtype(),
                    Shape::from([count]),
                    source,
                    whole.1 + begin * size,
                    Encoding::ROW,
                )?;
                let array = self.array(&part)?;
                root.pairs.push((name, array));
                names.push(name);
                begin += count;
                number += 1;
            }
            let mut dims = Vec::with_capacity(entry.shape.rank());
            for &dim in entry.shape.dims() {
                dims.push(self.count(dim)?);
            }
            let shape = (self.builder.interned(SHAPE)?, self.builder.tuple(&dims)?);
            let slices = (self.builder.interned(SLICES)?, self.builder.list(names)?);
            infos.push((id, self.builder.dict(vec![shape, slices])?));
        }
        if let Some(entry) = split.first().and_then(|(_, _, at)| self.checkpoint.tensors.get(*at)) {
            root.take(INFO, entry)?;
        }
        let info = (self.builder.text(INFO)?, self.builder.dict(infos)?);
        root.pairs.push(info);
        Ok(())
    }

    /// Builds the object of a value; `None` if it is omitted. `key` is the key of the value.
    fn value(&mut self, value: &Value, depth: usize, key: Option<&str>) -> Result<Option<ObjectId>> {
        if depth > Budget::DEPTH {
            return Err(Error::unsupported("too-deep", "the structure is nested too deeply"));
        }
        Ok(Some(match view(value) {
            View::Plain(plain) => return self.plain(plain),
            View::List(items) => {
                let items = self.items(items, depth)?;
                self.builder.list(items)?
            }
            View::Tuple(items) => {
                let items = self.items(items, depth)?;
                self.builder.tuple(&items)?
            }
            View::Dict { pairs, ordered } => {
                let pairs = self.pairs(pairs, depth)?;
                if ordered { self.builder.ordered_dict(&pairs)? } else { self.builder.dict(pairs)? }
            }
            View::Tensor(form, text) => match self.by_text.get(text) {
                Some(&at) => self.tensor(form, at, key.unwrap_or_default())?,
                None => return Ok(None),
            },
            View::Metadata(name) => match self.checkpoint.metadata.get(name) {
                // Metadata do not refer to metadata: one level, no cycle.
                Some(inner) if !matches!(view(inner), View::Metadata(_)) => {
                    return self.value(inner, depth + 1, Some(name));
                }
                _ => return Ok(None),
            },
            View::Scalar(dtype, bytes) => match DType::from_name(dtype) {
                Some(dtype) => self.builder.scalar(dtype, bytes.to_vec(), self.modules)?,
                None => return Ok(self.lose(key, "a numpy scalar of an unknown type")),
            },
            View::Integer(bytes) => self.builder.big_int(bytes)?,
            View::Global(name) => match name.split_once(' ') {
                Some((module, name)) => self.builder.global(module, name)?,
                None => return Ok(self.lose(key, "a class without a name")),
            },
            View::Names(_) => return Ok(self.lose(key, "a table of names outside the root")),
            View::Other(what) => return Ok(self.lose(key, what)),
        }))
    }

    /// Same as [`value`](Self::value), for the item `key` of the current object.
    fn below(&mut self, value: &Value, depth: usize, key: &str) -> Result<Option<ObjectId>> {
        self.path.push(key.to_owned());
        let id = self.value(value, depth, Some(key));
        self.path.pop();
        id
    }

    /// Reports that a list or tuple is written without one of its elements.
    fn hole(&mut self, place: usize) {
        let list = if self.path.is_empty() { "the outermost list".to_owned() } else { self.path.join(".") };
        let detail = format!("element {place} dropped; later elements move up");
        self.losses.push(Loss::new("list-hole", escape_text(&list), detail));
    }

    fn lose(&mut self, key: Option<&str>, what: &str) -> Option<ObjectId> {
        let detail = format!("{} cannot be written", escape_text(what));
        self.losses.push(Loss::new("value-dropped", escape_text(key.unwrap_or("a value")), detail));
        None
    }

    fn plain(&mut self, value: &Value) -> Result<Option<ObjectId>> {
        Ok(Some(match value {
            Value::Null => self.builder.none(),
            Value::Bool(b) => self.builder.bool(*b),
            Value::I64(n) => self.builder.int(*n)?,
            Value::U32(n) => self.builder.int(i64::from(*n))?,
            Value::U64(n) => match i64::try_from(*n) {
                Ok(n) => self.builder.int(n)?,
                // A zero byte on top, because the highest bit is not a sign.
                Err(_) => self.builder.big_int(&[&n.to_le_bytes()[..], &[0]].concat())?,
            },
            Value::F32(bits) => self.builder.float(f32::from_bits(*bits).into())?,
            Value::F64(bits) => self.builder.float(f64::from_bits(*bits))?,
            Value::Text(text) => self.text(text)?,
            Value::Bytes(bytes) => self.builder.bytes(bytes.clone())?,
            Value::List(_) | Value::Map(_) => return Ok(None),
        }))
    }

    fn items(&mut self, items: &[Value], depth: usize) -> Result<Vec<ObjectId>> {
        let mut ids = Vec::with_capacity(items.len());
        for (place, item) in items.iter().enumerate() {
            match self.below(item, depth + 1, &place.to_string())? {
                Some(id) => ids.push(id),
                None => self.hole(place),
            }
        }
        Ok(ids)
    }

    fn pairs(&mut self, pairs: Pairs<'_>, depth: usize) -> Result<Vec<(ObjectId, ObjectId)>> {
        let mut all = Vec::new();
        match pairs {
            Pairs::Named(pairs) => {
                for (key, value) in pairs {
                    let key = key.to_text();
                    // Objects are created in the order in which they are written.
                    let id = self.text(&key)?;
                    if let Some(value) = self.below(value, depth + 1, &key)? {
                        all.push((id, value));
                    }
                }
            }
            Pairs::Listed(pairs) => {
                for pair in pairs {
                    let Value::List(pair) = pair else { continue };
                    let [key, value] = pair.as_slice() else { continue };
                    let text = super::walk::key_text(key);
                    let key = self.value(key, depth + 1, None)?;
                    let value = self.below(value, depth + 1, &text)?;
                    all.extend(key.zip(value));
                }
            }
        }
        Ok(all)
    }

    /// Builds text. Python shares one object for texts that look like identifiers in its source code. A text
    /// assembled at run time, such as `fc1.weight`, is a new object each time.
    fn text(&mut self, text: &str) -> Result<ObjectId> {
        // In Python 3.11 a letter in source code and the same letter as decoded text are different objects.
        // This affects protocol 2, where arrays are decoded text.
        if let &[letter @ (b'_' | b'A'..=b'Z' | b'a'..=b'z')] = text.as_bytes() {
            if let Some(&id) = self.letters.get(&letter) {
                return Ok(id);
            }
            let id = self.builder.text(text)?;
            self.letters.insert(letter, id);
            return Ok(id);
        }
        let name_like = text.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric());
        if name_like { self.builder.interned(text) } else { self.fresh(text) }
    }

    /// Builds the name of a tensor: a new object, unless it is a single character.
    fn fresh(&mut self, text: &str) -> Result<ObjectId> {
        if text.len() < 2 { self.builder.interned(text) } else { self.builder.text(text) }
    }

    fn count(&mut self, n: u64) -> Result<ObjectId> {
        let n =
            i64::try_from(n).map_err(|_| Error::mismatch("shape-overflow", "a dimension exceeds 2^63"))?;
        self.builder.int(n)
    }

    fn tensor(&mut self, form: Form, at: usize, key: &str) -> Result<ObjectId> {
        let checkpoint = self.checkpoint;
        let Some(entry) = checkpoint.tensors.get(at) else { return Ok(ObjectId::NONE) };
        if let Some((_, id)) = self.alias(entry).filter(|(same, _)| *same == form) {
            return Ok(id);
        }
        let name = name_of(entry, key);
        let id = match form {
            Form::Array => self.array(entry)?,
            Form::Lod => {
                let array = self.array(entry)?;
                let data = self.builder.interned("data")?;
                let names = self.builder.dict(vec![(data, array)])?;
                let args = self.builder.tuple(&[data, names])?;
                let eval = self.builder.global("builtins", "eval")?;
                self.builder.reduce(eval, args)?
            }
            Form::Pair => {
                let pair = [self.fresh(&name)?, self.array(entry)?];
                self.builder.tuple(&pair)?
            }
            Form::Tensor => {
                let class = self.builder.global("builtins", "tuple")?;
                let pair = [self.fresh(&name)?, self.array(entry)?];
                let pair = self.builder.tuple(&pair)?;
                let args = self.builder.tuple(&[pair])?;
                self.builder.reduce(class, args)?
            }
        };
        self.built.insert(at, (form, id));
        Ok(id)
    }

    /// Returns the object built for the tensor that this one is an alias of, if both are still equal.
    fn alias(&self, entry: &TensorEntry) -> Option<(Form, ObjectId)> {
        let at = *self.by_text.get(entry.text_attribute(Attributes::ALIAS_OF)?)?;
        let other = self.checkpoint.tensors.get(at)?;
        let (a, b) = (entry.single_extent()?, other.single_extent()?);
        let same = (a.offset, a.len, a.encoding) == (b.offset, b.len, b.encoding)
            && (&entry.shape, entry.stored, entry.cast) == (&other.shape, other.stored, other.cast)
            && a.source.label() == b.source.label()
            && a.source.len() == b.source.len();
        if same { self.built.get(&at).copied() } else { None }
    }

    /// Builds the array of a tensor, in its stored element order.
    fn array(&mut self, entry: &TensorEntry) -> Result<ObjectId> {
        let dtype = match entry.dtype() {
            DType::BF16 => DType::U16,
            DType::F8E4M3 | DType::F8E5M2 => DType::I8,
            dtype => dtype,
        };
        if weighbridge_pickle::Descr::of(dtype, Endian::Little).is_none() {
            let message = format!("a pickled state cannot store {dtype}: numpy has no such type");
            return Err(Error::mismatch("no-such-dtype", message)
                .on_tensor(entry.name())
                .hint("drop the tensor, or cast it to another dtype"));
        }
        let len = entry.shape.bytes(dtype).ok_or_else(|| {
            Error::mismatch("shape-overflow", "the tensor length exceeds 2^64 bytes").on_tensor(entry.name())
        })?;
        let fortran = entry.order() == Order::Column && !entry.shape.is_order_free();
        let order = if fortran { Order::Column } else { Order::Row };
        let content = if len < 2 {
            Content::Bytes(entry.read_tensor(order)?)
        } else {
            self.payloads.push((entry.clone(), order));
            Content::Payload { key: self.payloads.len() as u64 - 1, len }
        };
        self.builder.ndarray((dtype, Endian::Little), &entry.shape, fortran, content, self.modules)
    }
}

/// Returns the variable name of a tensor.
pub(super) fn name_of(entry: &TensorEntry, key: &str) -> String {
    match entry.text_attribute(Attributes::VARIABLE_NAME) {
        Some(name) => name.to_owned(),
        None => state_key(entry, Some(key)),
    }
}

/// Returns a source of the elements in the order of numpy's `flatten`, and the offset of their first byte.
fn flattened(entry: &TensorEntry) -> Result<(SourceRef, u64)> {
    if let Some(extent) = entry.single_extent() {
        let flat = extent.encoding.order == Order::Row || entry.shape.is_order_free();
        let little = extent.encoding.endian == Endian::Little || entry.stored.swap_unit() == 1;
        if flat && little && entry.cast.is_none() {
            return Ok((extent.source.clone(), extent.offset));
        }
    }
    Ok((Arc::new(flat::FlatSource::new(entry.clone())?), 0))
}
