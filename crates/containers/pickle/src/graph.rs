//! Object graph that a pickle describes.

use super::objects::Objects;
use super::write::ModuleNames;
use std::collections::{BTreeMap, HashMap};

/// Identifier of an object in a [`Graph`]. Objects keep their identity: the memo returns the same
/// object, so a graph never has more objects than its pickle has opcodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub(super) u32);

impl ObjectId {
    /// Python's `None`, in every graph.
    pub const NONE: Self = Self(0);
    /// Python's `True`, in every graph.
    pub const TRUE: Self = Self(1);
    /// Python's `False`, in every graph.
    pub const FALSE: Self = Self(2);
    /// Python's `()`, in every graph.
    pub const EMPTY_TUPLE: Self = Self(3);

    /// Index among the objects of the graph.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Encoding of bytes or text in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stored {
    /// Unencoded bytes.
    Raw,
    /// UTF-8. Protocol 2 pickles bytes as text; there the code points U+0000 to U+00FF are the bytes.
    Utf8,
    /// Backslash escapes of a Python 2 string literal (protocol 0, opcode `STRING`).
    StringEscape,
    /// Latin-1 with `\uXXXX` for other characters (protocol 0, opcode `UNICODE`).
    UnicodeEscape,
}

/// A range of the source that holds the bytes of one string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Offset of the first byte in the source.
    pub offset: u64,
    /// Bytes in the source, before any decoding.
    pub len: u64,
    /// Encoding.
    pub stored: Stored,
}

/// Location of the content of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Location {
    /// In memory only, next to this value.
    Memory,
    /// In the source that was read.
    Source(Span),
    /// With the caller, who fills in `len` bytes under `key` when writing.
    Payload {
        /// Number that the caller chose.
        key: u64,
        /// Length in bytes, before any encoding.
        len: u64,
    },
}

/// Text. Short text is in memory, longer text stays in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The text, if short and well-formed.
    pub short: Option<Box<str>>,
    /// Location of the text.
    pub place: Location,
}

/// Bytes. Short ones are in memory, longer ones stay in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// The bytes, if short.
    pub short: Option<Box<[u8]>>,
    /// Location of the bytes.
    pub place: Location,
}

impl Blob {
    /// Number of bytes; `None` for escaped bytes, whose number is not known before decoding.
    pub fn len(&self) -> Option<u64> {
        match (&self.short, self.place) {
            (Some(bytes), _) => Some(bytes.len() as u64),
            (None, Location::Source(Span { len, stored: Stored::Raw, .. })) => Some(len),
            (None, Location::Payload { len, .. }) => Some(len),
            _ => None,
        }
    }

    /// Returns true if the number of bytes is known to be zero.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

/// An object of a pickle.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Object {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer of up to 64 bits.
    Int(i64),
    /// A larger integer in little-endian two's complement, as short as possible.
    BigInt(Box<[u8]>),
    /// A floating-point number.
    Float(f64),
    /// A Python 3 `str` or Python 2 `unicode`.
    Text(Box<Text>),
    /// A Python 2 `str`: bytes used as text. Its short form is their Latin-1 text.
    ByteString(Box<Text>),
    /// `bytes`.
    Bytes(Box<Blob>),
    /// `bytearray`.
    ByteArray(Box<Blob>),
    /// A list.
    List(Vec<ObjectId>),
    /// A tuple.
    Tuple(Box<[ObjectId]>),
    /// A dict with its pairs as written. Of duplicate keys the last one counts.
    Dict(Vec<(ObjectId, ObjectId)>),
    /// A set, in written order.
    Set(Vec<ObjectId>),
    /// A frozen set, in written order.
    FrozenSet(Box<[ObjectId]>),
    /// An import, which is not done here. Both parts are text objects.
    Global {
        /// The module.
        module: ObjectId,
        /// The name in the module; may have dots.
        name: ObjectId,
    },
    /// The result of a call, which is not made here.
    Reduced(Box<Reduced>),
    /// A reference to an object outside of the pickle, such as a PyTorch storage.
    PersistentId(ObjectId),
    /// An entry of Python's extension registry: any class or function.
    Extension(i64),
    /// An out-of-band buffer, passed separately from the pickle.
    Buffer,
}

/// Kind of call that makes an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceKind {
    /// `callable(*args)`: opcode `REDUCE`.
    Reduce,
    /// `class.__new__(class, *args)`: `NEWOBJ`.
    NewObj,
    /// `class.__new__(class, *args, **kwargs)`: `NEWOBJ_EX`.
    NewObjEx,
    /// `class(*args)`: `INST` and `OBJ`.
    Instance,
}

/// A call that the pickle describes, and the changes to its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Reduced {
    /// The kind of call.
    pub how: ReduceKind,
    /// The function or class to call.
    pub callable: ObjectId,
    /// The positional arguments: a tuple in every well-formed pickle.
    pub args: ObjectId,
    /// The keyword arguments of [`ReduceKind::NewObjEx`].
    pub kwargs: Option<ObjectId>,
    /// Items appended to the result.
    pub items: Vec<ObjectId>,
    /// Pairs set in the result: `result[key] = value`.
    pub pairs: Vec<(ObjectId, ObjectId)>,
    /// States set on the result (`BUILD`); picklers write at most one.
    pub states: Vec<ObjectId>,
    /// Offset of the opcode in the source.
    pub offset: u64,
    /// Offset of the last `BUILD`; 0 without one.
    pub built: u64,
}

impl Reduced {
    pub(super) fn new(how: ReduceKind, callable: ObjectId, args: ObjectId, offset: u64) -> Self {
        Self {
            how,
            callable,
            args,
            kwargs: None,
            items: vec![],
            pairs: vec![],
            states: vec![],
            offset,
            built: 0,
        }
    }

    /// The state, if there is exactly one.
    pub fn state(&self) -> Option<ObjectId> {
        match self.states.as_slice() {
            [state] => Some(*state),
            _ => None,
        }
    }
}

/// Objects by their ids. The storage is flat, though the objects may form cycles.
#[derive(Debug, Clone)]
pub struct Graph {
    pub(super) objects: Objects,
    pub(super) names: ModuleNames,
    /// Texts of one Latin-1 character; Python has one shared object for each.
    pub(super) chars: BTreeMap<u8, ObjectId>,
    /// Offset of the last change, for objects that changed while another object may have referred to them.
    pub(super) changes: HashMap<ObjectId, u64>,
}

impl Default for Graph {
    fn default() -> Self {
        Self::new(ModuleNames::Python3)
    }
}

impl Graph {
    /// Creates a graph that holds the constants only.
    pub(super) fn new(names: ModuleNames) -> Self {
        let objects = [Object::None, Object::Bool(true), Object::Bool(false), Object::Tuple(Box::default())];
        Self {
            objects: objects.into_iter().collect(),
            names,
            chars: BTreeMap::new(),
            changes: HashMap::new(),
        }
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Always false: a graph holds the constants.
    pub fn is_empty(&self) -> bool {
        self.objects.len() == 0
    }

    /// Returns the object with that id. An id of another graph yields an unrelated object, or `None`.
    pub fn object(&self, id: ObjectId) -> &Object {
        self.objects.get(id.index()).unwrap_or(&Object::None)
    }

    /// Iterates over all objects with their ids in order of creation, including unreferenced ones.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        (0u32..).map(ObjectId).zip(self.objects.iter())
    }

    /// Offset of the last opcode that changed the object while another object may have referred to it.
    pub(super) fn changed(&self, id: ObjectId) -> Option<u64> {
        if self.changes.is_empty() { None } else { self.changes.get(&id).copied() }
    }

    /// Returns the text of a Python 2 or 3 `str`, if short.
    pub fn text(&self, id: ObjectId) -> Option<&str> {
        match self.object(id) {
            Object::Text(text) | Object::ByteString(text) => text.short.as_deref(),
            _ => None,
        }
    }

    /// Returns the value of an integer; `None` for a bool.
    pub fn int(&self, id: ObjectId) -> Option<i64> {
        match self.object(id) {
            Object::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// Returns the value of a bool, or of an integer as old numpy writes flags.
    pub fn truth(&self, id: ObjectId) -> Option<bool> {
        match self.object(id) {
            Object::Bool(b) => Some(*b),
            Object::Int(n) => Some(*n != 0),
            _ => None,
        }
    }

    /// Returns the items of a tuple.
    pub fn tuple(&self, id: ObjectId) -> Option<&[ObjectId]> {
        match self.object(id) {
            Object::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the items of a list or tuple.
    pub fn sequence(&self, id: ObjectId) -> Option<&[ObjectId]> {
        match self.object(id) {
            Object::Tuple(items) => Some(items),
            Object::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the pairs of a dict or `collections.OrderedDict`.
    pub fn pairs(&self, id: ObjectId) -> Option<&[(ObjectId, ObjectId)]> {
        match self.object(id) {
            Object::Dict(pairs) => Some(pairs),
            Object::Reduced(made)
                if self.global(made.callable) == Some(("collections", "OrderedDict"))
                    && self.tuple(made.args).is_some_and(<[_]>::is_empty) =>
            {
                Some(&made.pairs)
            }
            _ => None,
        }
    }

    /// Returns module and name of an import, if both are short text.
    pub fn global(&self, id: ObjectId) -> Option<(&str, &str)> {
        match self.object(id) {
            Object::Global { module, name } => Some((self.text(*module)?, self.text(*name)?)),
            _ => None,
        }
    }

    /// Returns the class behind a persistent id of PyTorch's legacy form; otherwise the id itself.
    pub(super) fn class_of(&self, id: ObjectId) -> ObjectId {
        let Object::PersistentId(key) = self.object(id) else { return id };
        match self.tuple(*key) {
            Some(&[kind, class, ..]) if self.text(kind) == Some("module") && self.global(class).is_some() => {
                class
            }
            _ => id,
        }
    }

    /// Returns the call that makes the object.
    pub fn made(&self, id: ObjectId) -> Option<&Reduced> {
        match self.object(id) {
            Object::Reduced(made) => Some(made),
            _ => None,
        }
    }

    /// Returns callable (module, name) and arguments of a `REDUCE` call of an import.
    pub fn call(&self, id: ObjectId) -> Option<((&str, &str), &[ObjectId])> {
        let made = self.made(id)?;
        if made.how != ReduceKind::Reduce {
            return None;
        }
        Some((self.global(made.callable)?, self.tuple(made.args)?))
    }
}
