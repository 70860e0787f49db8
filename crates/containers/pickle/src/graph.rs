//! What a pickle describes: objects that point at each other.

use super::objects::Objects;
use super::write::ModuleNames;
use std::collections::{BTreeMap, HashMap};

/// One object of a [`Graph`]. Objects keep their identity: what a pickle fetches from its memo is
/// the same object, so a graph is never larger than its pickle.
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

    /// Its place among the objects of its graph.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a run of bytes or text stands in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stored {
    /// As it is.
    Raw,
    /// As UTF-8. Bytes that were pickled as text by protocol 2 are its code points U+0000 to U+00FF.
    Utf8,
    /// With the backslashes of a Python 2 string literal (protocol 0, instruction `STRING`).
    StringEscape,
    /// As Latin-1 with `\uXXXX` for the rest (protocol 0, instruction `UNICODE`).
    UnicodeEscape,
}

/// A range of the source that holds the bytes of one string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Offset of the first byte in the source.
    pub offset: u64,
    /// Bytes in the source, before any decoding.
    pub len: u64,
    /// How they are stored.
    pub stored: Stored,
}

/// Where the content of a string is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Location {
    /// In memory only: beside this place.
    Memory,
    /// In the source that was read.
    Source(Span),
    /// With the caller, who knows it by `key` and will fill in `len` bytes when writing.
    Payload {
        /// The caller's number.
        key: u64,
        /// Bytes, before any encoding.
        len: u64,
    },
}

/// Text. Short text is in memory, longer text stays in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The text, where it is short and well-formed.
    pub short: Option<Box<str>>,
    /// Where it is.
    pub place: Location,
}

/// Bytes. A few are in memory, more stay in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// The bytes, where they are few.
    pub short: Option<Box<[u8]>>,
    /// Where they are.
    pub place: Location,
}

impl Blob {
    /// The number of bytes; `None` where they are stored escaped, and so not counted yet.
    pub fn len(&self) -> Option<u64> {
        match (&self.short, self.place) {
            (Some(bytes), _) => Some(bytes.len() as u64),
            (None, Location::Source(Span { len, stored: Stored::Raw, .. })) => Some(len),
            (None, Location::Payload { len, .. }) => Some(len),
            _ => None,
        }
    }

    /// True where there are certainly no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

/// What an object is.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Object {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer that fits.
    Int(i64),
    /// A larger integer: two's complement, little-endian, as short as can be.
    BigInt(Box<[u8]>),
    /// A real number.
    Float(f64),
    /// A `str` of Python 3, a `unicode` of Python 2.
    Text(Box<Text>),
    /// A `str` of Python 2: bytes, used as text. Its short form shows them as Latin-1.
    ByteString(Box<Text>),
    /// `bytes`.
    Bytes(Box<Blob>),
    /// `bytearray`.
    ByteArray(Box<Blob>),
    /// A list.
    List(Vec<ObjectId>),
    /// A tuple.
    Tuple(Box<[ObjectId]>),
    /// A dict: its pairs as they were written. Where a key comes twice, the last one counts.
    Dict(Vec<(ObjectId, ObjectId)>),
    /// A set, in the order written.
    Set(Vec<ObjectId>),
    /// A frozen set, in the order written.
    FrozenSet(Box<[ObjectId]>),
    /// Something that would be imported. Both parts are text objects.
    Global {
        /// The module.
        module: ObjectId,
        /// The name in the module, perhaps with dots.
        name: ObjectId,
    },
    /// Something that would be made by a call. Here it is not called.
    Reduced(Box<Reduced>),
    /// A reference to something outside of the pickle, as PyTorch has for its storages.
    PersistentId(ObjectId),
    /// An entry of Python's registry of extensions: could be any class or function.
    Extension(i64),
    /// A buffer that was handed over beside the pickle.
    Buffer,
}

/// How an object would be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceKind {
    /// `callable(*args)`: instruction `REDUCE`.
    Reduce,
    /// `class.__new__(class, *args)`: `NEWOBJ`.
    NewObj,
    /// `class.__new__(class, *args, **kwargs)`: `NEWOBJ_EX`.
    NewObjEx,
    /// `class(*args)`: `INST` and `OBJ`.
    Instance,
}

/// A call that was described, and what would be done to its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Reduced {
    /// The kind of call.
    pub how: ReduceKind,
    /// What would be called, or the class.
    pub callable: ObjectId,
    /// The positional arguments: a tuple in every honest pickle.
    pub args: ObjectId,
    /// The named arguments of [`ReduceKind::NewObjEx`].
    pub kwargs: Option<ObjectId>,
    /// What would be appended to the result.
    pub items: Vec<ObjectId>,
    /// What would be set in the result, `result[key] = value`.
    pub pairs: Vec<(ObjectId, ObjectId)>,
    /// The states that the result would be given (`BUILD`); honest pickles give one at most.
    pub states: Vec<ObjectId>,
    /// Offset of the instruction in the source.
    pub offset: u64,
    /// Offset of the instruction that gives the last state; 0 where there is none.
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

    /// The state, where exactly one was given.
    pub fn state(&self) -> Option<ObjectId> {
        match self.states.as_slice() {
            [state] => Some(*state),
            _ => None,
        }
    }
}

/// Objects by their ids. Flat: nothing in it is recursive, though what it describes may be.
#[derive(Debug, Clone)]
pub struct Graph {
    pub(super) objects: Objects,
    pub(super) names: ModuleNames,
    /// The texts of one Latin-1 character of which Python has only one each.
    pub(super) chars: BTreeMap<u8, ObjectId>,
    /// Of objects that changed when something else may have had them: the offset of the last change.
    pub(super) changes: HashMap<ObjectId, u64>,
}

impl Default for Graph {
    fn default() -> Self {
        Self::new(ModuleNames::Python3)
    }
}

impl Graph {
    /// A graph with the constants only.
    pub(super) fn new(names: ModuleNames) -> Self {
        let objects = [Object::None, Object::Bool(true), Object::Bool(false), Object::Tuple(Box::default())];
        Self {
            objects: objects.into_iter().collect(),
            names,
            chars: BTreeMap::new(),
            changes: HashMap::new(),
        }
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Never: the constants are always there.
    pub fn is_empty(&self) -> bool {
        self.objects.len() == 0
    }

    /// The object of that id. An id of another graph gives another object, or `None`'s.
    pub fn object(&self, id: ObjectId) -> &Object {
        self.objects.get(id.index()).unwrap_or(&Object::None)
    }

    /// All objects with their ids, in the order in which they were made; also those that nothing
    /// points at any more.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        (0u32..).map(ObjectId).zip(self.objects.iter())
    }

    /// Offset of the last instruction that changed the object when something else may have had it.
    pub(super) fn changed(&self, id: ObjectId) -> Option<u64> {
        if self.changes.is_empty() { None } else { self.changes.get(&id).copied() }
    }

    /// The text of a `str` of either Python, where it is short.
    pub fn text(&self, id: ObjectId) -> Option<&str> {
        match self.object(id) {
            Object::Text(text) | Object::ByteString(text) => text.short.as_deref(),
            _ => None,
        }
    }

    /// The integer that the object is. A bool is none.
    pub fn int(&self, id: ObjectId) -> Option<i64> {
        match self.object(id) {
            Object::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// The truth of a bool, or of an integer as old numpy has it.
    pub fn truth(&self, id: ObjectId) -> Option<bool> {
        match self.object(id) {
            Object::Bool(b) => Some(*b),
            Object::Int(n) => Some(*n != 0),
            _ => None,
        }
    }

    /// The items of a tuple.
    pub fn tuple(&self, id: ObjectId) -> Option<&[ObjectId]> {
        match self.object(id) {
            Object::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// The items of a list or tuple.
    pub fn sequence(&self, id: ObjectId) -> Option<&[ObjectId]> {
        match self.object(id) {
            Object::Tuple(items) => Some(items),
            Object::List(items) => Some(items),
            _ => None,
        }
    }

    /// The pairs of a dict, or of what would be made a dict: a `collections.OrderedDict`.
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

    /// Module and name of something that would be imported, where both are short text.
    pub fn global(&self, id: ObjectId) -> Option<(&str, &str)> {
        match self.object(id) {
            Object::Global { module, name } => Some((self.text(*module)?, self.text(*name)?)),
            _ => None,
        }
    }

    /// What a class is that PyTorch's old form refers to as something beside the pickle; else the object itself.
    pub(super) fn class_of(&self, id: ObjectId) -> ObjectId {
        let Object::PersistentId(key) = self.object(id) else { return id };
        match self.tuple(*key) {
            Some(&[kind, class, ..]) if self.text(kind) == Some("module") && self.global(class).is_some() => {
                class
            }
            _ => id,
        }
    }

    /// The description of something that would be made by a call.
    pub fn made(&self, id: ObjectId) -> Option<&Reduced> {
        match self.object(id) {
            Object::Reduced(made) => Some(made),
            _ => None,
        }
    }

    /// Callable (module, name) and arguments of a plain call of something imported.
    pub fn call(&self, id: ObjectId) -> Option<((&str, &str), &[ObjectId])> {
        let made = self.made(id)?;
        if made.how != ReduceKind::Reduce {
            return None;
        }
        Some((self.global(made.callable)?, self.tuple(made.args)?))
    }
}
