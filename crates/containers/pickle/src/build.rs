//! Builder of pickle graphs, with the object identities of Python and numpy.

use super::graph::{Blob, Graph, Location, Object, ObjectId, ReduceKind, Reduced, Text};
use std::collections::HashMap;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{DType, Endian, Shape};

/// Module path of numpy's functions, as written into the pickle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NumpyModules {
    /// `numpy.core` of numpy 1; numpy 2 reads it too.
    Core,
    /// `numpy._core` of numpy 2 and the last releases of numpy 1; older releases cannot read it.
    UnderscoreCore,
}

impl NumpyModules {
    fn multiarray(self) -> &'static str {
        match self {
            Self::Core => "numpy.core.multiarray",
            Self::UnderscoreCore => "numpy._core.multiarray",
        }
    }
}

/// An element type in numpy's notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Descr {
    code: &'static str,
    order: &'static str,
}

impl Descr {
    /// Returns the description of `dtype` in that byte order; `None` for types outside of numpy itself.
    pub fn of(dtype: DType, endian: Endian) -> Option<Self> {
        let code = match dtype {
            DType::Bool => "b1",
            DType::U8 => "u1",
            DType::I8 => "i1",
            DType::U16 => "u2",
            DType::I16 => "i2",
            DType::U32 => "u4",
            DType::I32 => "i4",
            DType::U64 => "u8",
            DType::I64 => "i8",
            DType::F16 => "f2",
            DType::F32 => "f4",
            DType::F64 => "f8",
            DType::C64 => "c8",
            DType::C128 => "c16",
            _ => return None,
        };
        let order = match (dtype.swap_unit(), endian) {
            (1, _) => "|",
            (_, Endian::Little) => "<",
            (_, Endian::Big) => ">",
        };
        Some(Self { code, order })
    }
}

/// Bytes of an array or scalar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// Bytes that the caller fills in by `key`; at least two. Shorter arrays must be [`Content::Bytes`]: Python shares one
    /// object for each of their values, so the values decide the pickle.
    Payload {
        /// Number that the caller chose.
        key: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// Builder of a [`Graph`] for [`write`](super::write()).
///
/// Each call makes a new object, except where Python or numpy share one: constants, bytes of length
/// 0 and 1, [`interned`](Self::interned) text, imports and numpy dtypes. To place one object in two
/// positions, use its id twice.
#[derive(Debug, Default)]
pub struct Builder {
    graph: Graph,
    interned: HashMap<String, ObjectId>,
    globals: HashMap<(String, String), ObjectId>,
    dtypes: HashMap<Descr, ObjectId>,
    small_bytes: HashMap<Vec<u8>, ObjectId>,
}

impl Builder {
    /// Creates a builder that holds the constants only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the finished graph.
    pub fn finish(self) -> Graph {
        self.graph
    }

    fn push(&mut self, object: Object) -> Result<ObjectId> {
        let id = u32::try_from(self.graph.objects.len())
            .ok()
            .filter(|&n| n != u32::MAX)
            .map(ObjectId)
            .ok_or_else(|| Error::limit("pickle-objects", "the pickle has 2^32 objects or more"))?;
        self.graph.objects.push(object);
        Ok(id)
    }

    /// `None`.
    pub fn none(&self) -> ObjectId {
        ObjectId::NONE
    }

    /// `True` or `False`.
    pub fn bool(&self, value: bool) -> ObjectId {
        if value { ObjectId::TRUE } else { ObjectId::FALSE }
    }

    /// An integer.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] at 2^32 objects; the same holds for every method that makes an object.
    pub fn int(&mut self, value: i64) -> Result<ObjectId> {
        self.push(Object::Int(value))
    }

    /// An integer of any length, in little-endian two's complement.
    ///
    /// # Errors
    /// Same as [`int`](Self::int).
    pub fn big_int(&mut self, bytes: &[u8]) -> Result<ObjectId> {
        self.push(Object::BigInt(bytes.into()))
    }

    /// A floating-point number.
    ///
    /// # Errors
    /// Same as [`int`](Self::int).
    pub fn float(&mut self, value: f64) -> Result<ObjectId> {
        self.push(Object::Float(value))
    }

    /// Text as a new object, even if equal text exists.
    ///
    /// # Errors
    /// Same as [`int`](Self::int).
    pub fn text(&mut self, text: &str) -> Result<ObjectId> {
        self.push(Object::Text(Box::new(Text { short: Some(text.into()), place: Location::Memory })))
    }

    /// Text that is one object for all equal text. Python interns the names of modules and attributes, and most literals of a
    /// program.
    ///
    /// # Errors
    /// Same as [`int`](Self::int).
    pub fn interned(&mut self, text: &str) -> Result<ObjectId> {
        if let Some(&id) = self.interned.get(text) {
            return Ok(id);
        }
        let id = self.text(text)?;
        self.interned.insert(text.to_owned(), id);
        if let &[byte] = text.as_bytes() {
            self.graph.chars.insert(byte, id);
        }
        Ok(id)
    }

    /// Bytes.
    ///
    /// # Errors
    /// Same as [`int`](Self::int).
    pub fn bytes(&mut self, bytes: Vec<u8>) -> Result<ObjectId> {
        if let Some(&id) = self.small_bytes.get(&bytes) {
            return Ok(id);
        }
        let small = (bytes.len() < 2).then(|| bytes.clone());
        let blob = Blob { short: Some(bytes.into()), place: Location::Memory };
        let id = self.push(Object::Bytes(Box::new(blob)))?;
        if let Some(small) = small {
            self.small_bytes.insert(small, id);
        }
        Ok(id)
    }

    /// A list.
    ///
    /// # Errors
    /// Same as [`int`](Self::int).
    pub fn list(&mut self, items: Vec<ObjectId>) -> Result<ObjectId> {
        self.push(Object::List(items))
    }

    /// A tuple.
    ///
    /// # Errors
    /// Same as [`int`](Self::int).
    pub fn tuple(&mut self, items: &[ObjectId]) -> Result<ObjectId> {
        if items.is_empty() {
            return Ok(ObjectId::EMPTY_TUPLE);
        }
        self.push(Object::Tuple(items.into()))
    }

    /// A dict with pairs in order.
    ///
    /// # Errors
    /// Same as [`int`](Self::int).
    pub fn dict(&mut self, pairs: Vec<(ObjectId, ObjectId)>) -> Result<ObjectId> {
        self.push(Object::Dict(pairs))
    }

    /// An import by its Python 3 names; one object for equal names.
    ///
    /// # Errors
    /// Same as [`int`](Self::int).
    pub fn global(&mut self, module: &str, name: &str) -> Result<ObjectId> {
        let key = (module.to_owned(), name.to_owned());
        if let Some(&id) = self.globals.get(&key) {
            return Ok(id);
        }
        // Module names are interned; the name of a function or class is an object of its own.
        let (module, name) = (self.interned(module)?, self.text(name)?);
        let id = self.push(Object::Global { module, name })?;
        self.globals.insert(key, id);
        Ok(id)
    }

    /// The result of calling `callable` with the tuple `args`.
    ///
    /// # Errors
    /// Same as [`int`](Self::int).
    pub fn reduce(&mut self, callable: ObjectId, args: ObjectId) -> Result<ObjectId> {
        self.push(Object::Reduced(Box::new(Reduced::new(ReduceKind::Reduce, callable, args, 0))))
    }

    /// An object of `class`, made from the tuple `args` without its constructor.
    ///
    /// # Errors
    /// Same as [`int`](Self::int).
    pub fn new_object(&mut self, class: ObjectId, args: ObjectId) -> Result<ObjectId> {
        self.push(Object::Reduced(Box::new(Reduced::new(ReduceKind::NewObj, class, args, 0))))
    }

    /// Adds a state to `object`, the result of a call.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`] if `object` is not the result of a call.
    pub fn build(&mut self, object: ObjectId, state: ObjectId) -> Result<()> {
        self.made(object)?.states.push(state);
        Ok(())
    }

    /// Sets `pairs` in `object`, the result of a call: the items of an ordered dict.
    ///
    /// # Errors
    /// Same as [`build`](Self::build).
    pub fn set_items(&mut self, object: ObjectId, pairs: &[(ObjectId, ObjectId)]) -> Result<()> {
        self.made(object)?.pairs.extend_from_slice(pairs);
        Ok(())
    }

    fn made(&mut self, id: ObjectId) -> Result<&mut Reduced> {
        match self.graph.objects.get_mut(id.index()) {
            Some(Object::Reduced(made)) => Ok(made),
            _ => Err(Error::usage("pickle-build", "only the result of a call can have a state or items")),
        }
    }

    /// A persistent id: a reference to an object outside of the pickle.
    ///
    /// # Errors
    /// Same as [`int`](Self::int).
    pub fn persistent(&mut self, id: ObjectId) -> Result<ObjectId> {
        self.push(Object::PersistentId(id))
    }

    /// A `collections.OrderedDict`.
    ///
    /// # Errors
    /// Same as [`int`](Self::int).
    pub fn ordered_dict(&mut self, pairs: &[(ObjectId, ObjectId)]) -> Result<ObjectId> {
        let class = self.global("collections", "OrderedDict")?;
        let id = self.reduce(class, ObjectId::EMPTY_TUPLE)?;
        self.set_items(id, pairs)?;
        Ok(id)
    }

    fn content(&mut self, content: Content, needed: Option<u64>) -> Result<ObjectId> {
        let len = match &content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Payload { len, .. } => *len,
        };
        if needed != Some(len) {
            return Err(Error::usage("pickle-content", "the content length does not match the shape")
                .expected(needed.map_or("a length below 2^64".to_owned(), |n| format!("{n} bytes")))
                .found(format_args!("{len} bytes")));
        }
        match content {
            Content::Bytes(bytes) => self.bytes(bytes),
            Content::Payload { len: 0 | 1, .. } => {
                Err(Error::usage("pickle-content", "arrays of fewer than two bytes must be `Content::Bytes`"))
            }
            Content::Payload { key, len } => {
                let blob = Blob { short: None, place: Location::Payload { key, len } };
                self.push(Object::Bytes(Box::new(blob)))
            }
        }
    }

    /// A dtype object. numpy shares one object per type in native byte order, and makes a new one for other byte orders.
    fn dtype(&mut self, descr: Descr) -> Result<ObjectId> {
        if let Some(&id) = self.dtypes.get(&descr) {
            return Ok(id);
        }
        let class = self.global("numpy", "dtype")?;
        let code = self.text(descr.code)?;
        let args = self.tuple(&[code, ObjectId::FALSE, ObjectId::TRUE])?;
        let id = self.reduce(class, args)?;
        let none = ObjectId::NONE;
        let (version, order) = (self.int(3)?, self.interned(descr.order)?);
        let (minus, zero) = (self.int(-1)?, self.int(0)?);
        let state = self.tuple(&[version, order, none, none, none, minus, minus, zero])?;
        self.build(id, state)?;
        if descr.order != ">" {
            self.dtypes.insert(descr, id);
        }
        Ok(id)
    }

    /// A numpy array. With `fortran_order` the first index varies fastest in `content`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], code `pickle-content`, if the length of `content` does not match the shape, or a
    /// payload has fewer than two bytes.
    pub fn ndarray(
        &mut self,
        (dtype, endian): (DType, Endian),
        shape: &Shape,
        fortran_order: bool,
        content: Content,
        modules: NumpyModules,
    ) -> Result<ObjectId> {
        let descr = describe(dtype, endian)?;
        let content = self.content(content, shape.bytes(dtype))?;
        let function = self.global(modules.multiarray(), "_reconstruct")?;
        let class = self.global("numpy", "ndarray")?;
        let zero = self.int(0)?;
        let (empty, letter) = (self.tuple(&[zero])?, self.bytes(b"b".to_vec())?);
        let args = self.tuple(&[class, empty, letter])?;
        let array = self.reduce(function, args)?;
        let mut dims = Vec::with_capacity(shape.rank());
        for &dim in shape.dims() {
            let dim = i64::try_from(dim)
                .map_err(|_| Error::usage("pickle-content", "a dimension exceeds 2^63 - 1").found(dim))?;
            dims.push(self.int(dim)?);
        }
        let (version, dims, dtype) = (self.int(1)?, self.tuple(&dims)?, self.dtype(descr)?);
        let state = self.tuple(&[version, dims, dtype, self.bool(fortran_order), content])?;
        self.build(array, state)?;
        Ok(array)
    }

    /// A numpy scalar: `numpy.float32(1.5)` is not a `float`.
    ///
    /// # Errors
    /// Same as [`ndarray`](Self::ndarray).
    pub fn scalar(&mut self, dtype: DType, bytes: Vec<u8>, modules: NumpyModules) -> Result<ObjectId> {
        let descr = describe(dtype, Endian::Little)?;
        let content = self.content(Content::Bytes(bytes), Shape::default().bytes(dtype))?;
        let function = self.global(modules.multiarray(), "scalar")?;
        let dtype = self.dtype(descr)?;
        let args = self.tuple(&[dtype, content])?;
        self.reduce(function, args)
    }
}

fn describe(dtype: DType, endian: Endian) -> Result<Descr> {
    Descr::of(dtype, endian)
        .ok_or_else(|| Error::usage("pickle-dtype", "numpy does not support this dtype").found(dtype))
}
