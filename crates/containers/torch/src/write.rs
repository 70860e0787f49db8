//! Writer of the zip form.

use super::REQUIRES_GRAD;
use super::composite::{self, Quantizer, Sparse};
use super::storage::{Class, torch_name};
use std::collections::HashMap;
use weighbridge_core::Budget;
use weighbridge_core::checkpoint::{TensorEntry, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{FileBuilder, PlannedFile};
use weighbridge_core::tensor::{DType, Order, Shape};
use weighbridge_pickle::{Builder, Location, ObjectId, Part, write};
use weighbridge_zip::ZipBuilder;

/// Folder name of the archive; torch uses this name when it writes into memory.
const FOLDER: &str = "archive";
/// Maximum number of bytes of a tensor, with dimensions of size 0 counted as 1.
const MAX_TENSOR_BYTES: u64 = i64::MAX.unsigned_abs();

/// Builder of `torch.save` files in the zip form of torch 2.1 and later: plain objects through a
/// [`Builder`], tensors from entries. Torch loads the result with `weights_only=True`.
#[derive(Debug, Default)]
pub struct SavedBuilder {
    builder: Builder,
    storages: Vec<TensorEntry>,
    /// Index in `storages` of each tensor.
    tensors: HashMap<ObjectId, usize>,
    members: Vec<(String, Vec<u8>)>,
}

impl SavedBuilder {
    /// Creates an empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the builder of the pickle's objects.
    pub fn builder_mut(&mut self) -> &mut Builder {
        &mut self.builder
    }

    /// Adds a row-major tensor with a storage of its own. It requires a gradient if the entry has the
    /// attribute `requires_grad`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `no-such-dtype` for a dtype that torch lacks,
    /// `shape-overflow` for a shape that it cannot hold; [`weighbridge_core::Kind::Limit`] for too many objects.
    pub fn tensor(&mut self, entry: &TensorEntry) -> Result<ObjectId> {
        let key = self.key(entry, None)?;
        self.view(entry, key, requires_grad(entry))
    }

    /// Adds a tensor that shares the storage of `of`, a tensor of this builder with the same dtype and
    /// shape.
    ///
    /// # Errors
    /// Same as [`tensor`](Self::tensor); [`weighbridge_core::Kind::Usage`], `torch-alias`, if `of` is not such
    /// a tensor.
    pub fn alias(&mut self, entry: &TensorEntry, of: ObjectId) -> Result<ObjectId> {
        let key = self.key(entry, Some(of))?;
        self.view(entry, key, requires_grad(entry))
    }

    /// Adds a part of a composite tensor. It never requires a gradient, even with the attribute. It shares the storage of `of`,
    /// if given.
    ///
    /// # Errors
    /// Same as [`alias`](Self::alias).
    pub fn part(&mut self, entry: &TensorEntry, of: Option<ObjectId>) -> Result<ObjectId> {
        let key = self.key(entry, of)?;
        self.view(entry, key, false)
    }

    /// Adds a quantized tensor with the integers `entry` of dtype `i8`, `u8` or `i32`. They get a storage of their own, or share
    /// that of `of`. The tensors of `quantizer` must belong to this builder.
    ///
    /// # Errors
    /// Same as [`alias`](Self::alias).
    pub fn quantized(
        &mut self,
        entry: &TensorEntry,
        of: Option<ObjectId>,
        scheme: &str,
        quantizer: &Quantizer,
    ) -> Result<ObjectId> {
        let key = self.key(entry, of)?;
        let class = composite::storage_of(entry.dtype()).ok_or_else(|| {
            Error::mismatch("no-such-dtype", format!("torch cannot quantize to {}", entry.dtype()))
                .on_tensor(entry.name())
        })?;
        let storage = self.storage(key, ("torch", class), entry.elements())?;
        let b = &mut self.builder;
        let function = b.global("torch._utils", "_rebuild_qtensor")?;
        let scheme = b.global("torch", scheme)?;
        let parameters = match *quantizer {
            Quantizer::Tensor { scale, zero_point } => [scheme, b.float(scale)?, b.int(zero_point)?].to_vec(),
            Quantizer::Channel { scales, zero_points, axis } => {
                [scheme, scales, zero_points, b.int(axis)?].to_vec()
            }
        };
        let parameters = b.tuple(&parameters)?;
        let (offset, size) = (b.int(0)?, ints(b, entry.shape.dims())?);
        let stride = ints(b, &strides(&entry.shape))?;
        let (grad, hooks) = (b.bool(false), b.ordered_dict(&[])?);
        let args = b.tuple(&[storage, offset, size, stride, parameters, grad, hooks])?;
        let id = b.reduce(function, args)?;
        self.tensors.insert(id, key);
        Ok(id)
    }

    /// Adds a sparse tensor; its parts must belong to this builder.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] for too many objects.
    pub fn sparse(&mut self, sparse: &Sparse) -> Result<ObjectId> {
        let b = &mut self.builder;
        let get_layout = b.global("torch.serialization", "_get_layout")?;
        let layout = b.interned(&format!("torch.sparse_{}", sparse.layout))?;
        let args = b.tuple(&[layout])?;
        let layout = b.reduce(get_layout, args)?;
        let size = sparse.size.iter().map(|&dim| b.int(dim)).collect::<Result<Vec<_>>>()?;
        let (class, size) = (b.global("torch", "Size")?, b.tuple(&size)?);
        let args = b.tuple(&[size])?;
        let size = b.reduce(class, args)?;
        let mut parts: Vec<ObjectId> = sparse.indices.iter().map(|&(_, id)| id).collect();
        parts.extend([sparse.values, size]);
        if sparse.coalesced == Some(true) {
            // torch before version 2.1 does not accept this argument.
            parts.push(b.bool(true));
        }
        let parts = b.tuple(&parts)?;
        let function = b.global("torch._utils", "_rebuild_sparse_tensor")?;
        let args = b.tuple(&[layout, parts])?;
        let id = b.reduce(function, args)?;
        if sparse.requires_grad { self.parameter(id) } else { Ok(id) }
    }

    /// Returns the index of the storage for `entry`: a new one, or that of the tensor `of`.
    fn key(&mut self, entry: &TensorEntry, of: Option<ObjectId>) -> Result<usize> {
        check(entry)?;
        let Some(of) = of else {
            self.storages.push(entry.clone());
            return Ok(self.storages.len() - 1);
        };
        let same = |first: &TensorEntry| (first.dtype(), &first.shape) == (entry.dtype(), &entry.shape);
        match self.tensors.get(&of).copied() {
            Some(key) if self.storages.get(key).is_some_and(same) => Ok(key),
            _ => Err(Error::usage(
                "torch-alias",
                "the tensor to share the storage of does not exist or differs",
            )
            .on_tensor(entry.name())),
        }
    }

    /// Adds the objects of a plain value: maps become dicts with text keys.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`], `torch-value`, for keys that are not UTF-8 and values nested too
    /// deeply; [`weighbridge_core::Kind::Limit`].
    pub fn value(&mut self, value: &Value) -> Result<ObjectId> {
        self.plain(value, 0)
    }

    /// Adds an extra member to the archive, which torch ignores.
    pub fn member(&mut self, name: impl Into<String>, bytes: Vec<u8>) {
        self.members.push((name.into(), bytes));
    }

    /// Plans the archive with the object `root` as the file `name`; empty for the target itself.
    ///
    /// # Errors
    /// Objects that the pickle cannot hold; [`weighbridge_core::Kind::Mismatch`] for duplicate member names.
    pub fn finish(self, root: ObjectId, name: impl Into<String>) -> Result<PlannedFile> {
        let Self { builder, storages, members, .. } = self;
        let lost = || Error::usage("pickle-payload", "the pickle refers to bytes outside of it");
        let parts = write(&builder.finish(), root, 2, &mut |_: &Location| Err(lost()))?;
        let mut pickle = Vec::new();
        for part in parts {
            let Part::Literal(bytes) = part else { return Err(lost()) };
            pickle.extend(bytes);
        }
        let mut zip = ZipBuilder::new(FileBuilder::new(name));
        let literal = |zip: &mut ZipBuilder, name: &str, bytes: Vec<u8>| {
            let len = bytes.len() as u64;
            zip.member(&format!("{FOLDER}/{name}"), len, |file| {
                file.literal(bytes);
                Ok(())
            })
        };
        literal(&mut zip, "data.pkl", pickle)?;
        literal(&mut zip, "byteorder", b"little".to_vec())?;
        for (key, entry) in storages.iter().enumerate() {
            let fill = |file: &mut FileBuilder| file.tensor(entry, Order::Row);
            zip.member(&format!("{FOLDER}/data/{key}"), entry.bytes(), fill)
                .map_err(|e| e.on_tensor(entry.name()))?;
        }
        literal(&mut zip, "version", b"3\n".to_vec())?;
        for (name, bytes) in members {
            literal(&mut zip, &name, bytes)?;
        }
        Ok(zip.finish())
    }

    /// Adds a tensor over a storage.
    fn view(&mut self, entry: &TensorEntry, key: usize, wants_grad: bool) -> Result<ObjectId> {
        let dtype = entry.dtype();
        let typed = Class::name_for(dtype);
        let storage = match typed {
            Some(name) => self.storage(key, ("torch", name), entry.elements())?,
            None => self.storage(key, ("torch.storage", "UntypedStorage"), entry.bytes())?,
        };
        let b = &mut self.builder;
        let function = b.global(
            "torch._utils",
            if typed.is_some() { "_rebuild_tensor_v2" } else { "_rebuild_tensor_v3" },
        )?;
        let offset = b.int(0)?;
        let size = ints(b, entry.shape.dims())?;
        let stride = ints(b, &strides(&entry.shape))?;
        let (grad, hooks) = (b.bool(wants_grad && typed.is_some()), b.ordered_dict(&[])?);
        let mut args = vec![storage, offset, size, stride, grad, hooks];
        if typed.is_none() {
            args.push(b.global("torch", torch_name(dtype).unwrap_or_default())?);
        }
        let args = b.tuple(&args)?;
        let mut id = b.reduce(function, args)?;
        if wants_grad && typed.is_none() {
            // `_rebuild_tensor_v3` fills a tensor that already requires a gradient, which torch rejects. torch itself
            // writes a parameter around a tensor that does not.
            id = self.parameter(id)?;
        }
        self.tensors.insert(id, key);
        Ok(id)
    }

    /// Adds a parameter that requires a gradient, around a tensor that does not.
    fn parameter(&mut self, tensor: ObjectId) -> Result<ObjectId> {
        let b = &mut self.builder;
        let function = b.global("torch._utils", "_rebuild_parameter")?;
        let (grad, hooks) = (b.bool(true), b.ordered_dict(&[])?);
        let args = b.tuple(&[tensor, grad, hooks])?;
        b.reduce(function, args)
    }

    /// Adds a reference to a storage of that class and number of elements.
    fn storage(&mut self, key: usize, (module, class): (&str, &str), count: u64) -> Result<ObjectId> {
        let b = &mut self.builder;
        let (tag, class) = (b.interned("storage")?, b.global(module, class)?);
        let key_text = b.text(&key.to_string())?;
        let (location, count) = (b.interned("cpu")?, int(b, count)?);
        let reference = b.tuple(&[tag, class, key_text, location, count])?;
        b.persistent(reference)
    }

    fn plain(&mut self, value: &Value, depth: usize) -> Result<ObjectId> {
        let refused = |what: &str| Error::unsupported("torch-value", what);
        if depth > Budget::DEPTH {
            return Err(refused("the value is nested too deeply"));
        }
        let b = &mut self.builder;
        match value {
            Value::Null => Ok(b.none()),
            Value::Bool(value) => Ok(b.bool(*value)),
            Value::I64(n) => b.int(*n),
            Value::U32(n) => b.int((*n).into()),
            Value::U64(n) => int(b, *n),
            Value::F32(bits) => b.float(f32::from_bits(*bits).into()),
            Value::F64(bits) => b.float(f64::from_bits(*bits)),
            Value::Text(text) => b.interned(text),
            Value::Bytes(bytes) => b.bytes(bytes.clone()),
            Value::List(values) => {
                let items = values.iter().map(|v| self.plain(v, depth + 1)).collect::<Result<Vec<_>>>()?;
                self.builder.list(items)
            }
            Value::Map(pairs) => {
                let mut items = Vec::with_capacity(pairs.len());
                for (key, value) in pairs {
                    let key = key.as_str().ok_or_else(|| refused("a key of the value is not UTF-8"))?;
                    items.push((self.builder.interned(key)?, self.plain(value, depth + 1)?));
                }
                self.builder.dict(items)
            }
        }
    }
}

fn int(b: &mut Builder, n: u64) -> Result<ObjectId> {
    let n = i64::try_from(n)
        .map_err(|_| Error::unsupported("torch-value", "the integer exceeds 2^63 - 1").found(n))?;
    b.int(n)
}

fn ints(b: &mut Builder, numbers: &[u64]) -> Result<ObjectId> {
    let numbers = numbers.iter().map(|&n| int(b, n)).collect::<Result<Vec<_>>>()?;
    b.tuple(&numbers)
}

/// Strides of a dense tensor in torch, where a dimension of size 0 counts as 1.
fn strides(shape: &Shape) -> Vec<u64> {
    let full: Vec<u64> = shape.dims().iter().map(|&d| d.max(1)).collect();
    Shape::new(full).strides(Order::Row)
}

/// Rejects dtypes and shapes that torch cannot hold.
fn check(entry: &TensorEntry) -> Result<()> {
    let dtype = entry.dtype();
    if torch_name(dtype).is_none() {
        return Err(Error::mismatch("no-such-dtype", format!("torch does not support dtype {dtype}"))
            .on_tensor(entry.name())
            .hint(
                "drop the tensor, cast it, or write a format that supports the dtype, such as safetensors",
            ));
    }
    let size = dtype.size().unwrap_or(1) as u64;
    let mut all = Some(size);
    for &dim in entry.shape.dims() {
        all = all.and_then(|n| n.checked_mul(dim.max(1))).filter(|&n| n <= MAX_TENSOR_BYTES);
    }
    if all.is_some() {
        return Ok(());
    }
    Err(Error::mismatch("shape-overflow", "the tensor is too large for torch (2^63 bytes or more)")
        .on_tensor(entry.name())
        .found(format_args!("{dtype} {}", entry.shape)))
}

/// Returns true for a tensor that requires a gradient.
fn requires_grad(entry: &TensorEntry) -> bool {
    matches!(entry.attributes.get(REQUIRES_GRAD), Some(Value::Bool(true))) && takes_gradient(entry.dtype())
}

/// Returns true for dtypes with gradients; torch fails to load any other tensor that requires one.
fn takes_gradient(dtype: DType) -> bool {
    dtype.is_float() || matches!(dtype, DType::C64 | DType::C128)
}

/// Returns true for dtypes that torch supports since version 2.3 only.
pub fn is_recent(dtype: DType) -> bool {
    matches!(dtype, DType::U16 | DType::U32 | DType::U64 | DType::F8E8M0)
}
