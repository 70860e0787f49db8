//! HDF5: groups, datasets and attributes in one file.
//!
//! Reading gives a flat list of what is in a file ([`Contents`]), with the places of the bytes;
//! writing lays a file out as a plan.
//!
//! See also: `weighbridge-hdf5-model` and `weighbridge-biggraph` read models from HDF5 files.

mod read;
pub mod write;

pub use read::{Beside, ElementReader, FILTER_LZF, RawText, read_beside};
pub use read::{is_hdf5, outline, read};

use weighbridge_core::checkpoint::Value;
use weighbridge_core::error::Error;
use weighbridge_core::tensor::{DType, Endian, Shape};

/// Attributes in the order of the file. Integers are [`Value::I64`] or [`Value::U64`], reals
/// [`Value::F64`], text of either kind [`Value::Text`], opaque bytes [`Value::Bytes`], arrays
/// [`Value::List`]; what has no such value is left out and is a problem of the file.
pub type Attributes = Vec<(String, Value)>;

/// How attributes stand in a file, by their names: those whose value alone would be written in another type or form.
pub type Types = Vec<(String, StoredAs)>;

/// The type of an attribute as the file describes it, and its extents where the value does not tell them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAs {
    /// The bytes of its datatype message.
    pub datatype: Vec<u8>,
    /// The extents of an attribute without elements.
    pub dims: Option<Vec<u64>>,
}

/// What a file holds.
#[derive(Debug, Default)]
pub struct Contents {
    /// The attributes of the root group.
    pub attributes: Attributes,
    /// How they stand there.
    pub types: Types,
    /// Groups and datasets, each group before what is in it.
    pub items: Vec<Item>,
    /// Names that lead to something that stands elsewhere in the list.
    pub links: Vec<Link>,
    /// Types that have names of their own. Datasets and attributes that use one are listed as if it were theirs.
    pub named_types: Vec<NamedType>,
    /// What could not be read, with the path it stands at; the rest is whole.
    pub problems: Vec<Problem>,
    /// The version of the superblock: 0 as most writers make it, up to 3.
    pub superblock: u8,
    /// Bytes of others in front of the file.
    pub user_block: u64,
    /// Where the file ends as it says itself, in bytes from its start.
    pub end: u64,
    /// True where the program that wrote the file has not closed it: it was killed, or still writes.
    pub is_open: bool,
}

/// A name that leads to something that stands elsewhere in the list, or nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Where it stands, from the root.
    pub path: Vec<String>,
    /// Where it leads, in words: mostly a path, from the root where it begins with `/`.
    pub target: String,
    /// What kind of object it leads to.
    pub leads: Leads,
}

/// What a link leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leads {
    /// A dataset, which is an item under the name of the link as well.
    Dataset,
    /// A group, whose members are listed under the name of the group.
    Group,
    /// Nothing in the file.
    Nowhere,
}

/// A datatype that stands in a group, as datasets do: a committed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedType {
    /// Where it stands, from the root.
    pub path: Vec<String>,
    /// How many attributes it has.
    pub attributes: usize,
}

/// A part of a file that could not be read.
#[derive(Debug)]
pub struct Problem {
    /// Where it stands, from the root.
    pub path: Vec<String>,
    /// Why it could not be read.
    pub error: Error,
    /// True where it is a part of the group at `path`: members of the group are lost, and nothing says which.
    pub members: bool,
}

/// A dataset, or a group that has attributes, has no members, or stands in the root.
#[derive(Debug)]
pub struct Item {
    /// Where it stands, from the root.
    pub path: Vec<String>,
    /// Its attributes.
    pub attributes: Attributes,
    /// How they stand there.
    pub types: Types,
    /// The dataset; `None` for a group.
    pub dataset: Option<Dataset>,
    /// True for a group without members.
    pub is_empty: bool,
}

/// The elements of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Numbers that are tensors here.
    Numbers(DType, Endian),
    /// Bytes without meaning, `size` for each element, with a tag.
    Opaque {
        /// Bytes of an element.
        size: u64,
        /// What the writer says about them; mostly empty.
        tag: String,
    },
    /// Text, of fixed or variable length.
    Text,
    /// Anything else, in words.
    Other(String),
}

/// A dataset: its type, its shape and where its bytes are.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The type of its elements.
    pub kind: Kind,
    /// Its extents; none for a scalar.
    pub shape: Shape,
    /// True where it has neither an element nor extents: its dataspace is null. Its shape is `[0]` here.
    pub is_null: bool,
    stored: read::Stored,
}
