//! HDF5: groups, datasets and attributes in one file.
//!
//! [`read()`] lists the groups, datasets, attributes and links of a file ([`Contents`]), with the byte ranges of the elements.
//! [`write`](mod@write) plans a file as h5py lays it out.
//!
//! See also: `weighbridge-hdf5-model` and `weighbridge-biggraph` read models from HDF5 files.

mod read;
pub mod write;

pub use read::{ElementReader, FILTER_LZF, RawText, SiblingFiles, read_with_siblings};
pub use read::{is_hdf5, outline, read};

use weighbridge_core::checkpoint::Value;
use weighbridge_core::error::Error;
use weighbridge_core::tensor::{DType, Endian, Shape};

/// Attributes in the order of the file. Integers are [`Value::I64`] or [`Value::U64`], reals
/// [`Value::F64`], text of either kind [`Value::Text`], opaque bytes [`Value::Bytes`], arrays
/// [`Value::List`]. An attribute without such a value is omitted, and is a [`Problem`].
pub type Attributes = Vec<(String, Value)>;

/// Stored types of attributes, by name: only those whose value alone would be written in another type or form.
pub type Types = Vec<(String, StoredAs)>;

/// Stored type of an attribute, with its dimensions where the value does not determine them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAs {
    /// Bytes of the datatype message.
    pub datatype: Vec<u8>,
    /// Dimensions of an attribute without elements.
    pub dims: Option<Vec<u64>>,
}

/// Contents of a file.
#[derive(Debug, Default)]
pub struct Contents {
    /// Attributes of the root group.
    pub attributes: Attributes,
    /// Stored types of these attributes.
    pub types: Types,
    /// Groups and datasets, each group before its members.
    pub items: Vec<Item>,
    /// Soft links, and further hard links to a group that is listed already.
    pub links: Vec<Link>,
    /// Committed datatypes. Datasets and attributes that use one are listed as if they had a type of their own.
    pub named_types: Vec<NamedType>,
    /// Objects that could not be read, by path; the other objects are complete.
    pub problems: Vec<Problem>,
    /// Version of the superblock: 0 (most writers) to 3.
    pub superblock: u8,
    /// Length of the user block in front of the superblock, in bytes.
    pub user_block: u64,
    /// End of the file as the superblock states it, in bytes from the start of the source.
    pub end: u64,
    /// True where the file is marked as open for writing: its writer was killed, or still writes.
    pub is_open: bool,
}

/// A link to an object that is listed under another path, or to a missing object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Path of the link, from the root.
    pub path: Vec<String>,
    /// Display text of the target: mostly a path, absolute if it begins with `/`.
    pub target: String,
    /// Kind of the target.
    pub leads: LinkTarget,
}

/// Kind of the target of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkTarget {
    /// A dataset; it is also an item under the name of the link.
    Dataset,
    /// A group; its members are listed under the name of the group.
    Group,
    /// A missing object.
    Missing,
}

/// A committed datatype: a member of a group, with a name of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedType {
    /// Path of the datatype, from the root.
    pub path: Vec<String>,
    /// Number of its attributes.
    pub attributes: usize,
}

/// An object, or a part of one, that could not be read.
#[derive(Debug)]
pub struct Problem {
    /// Path of the object, from the root.
    pub path: Vec<String>,
    /// Reason.
    pub error: Error,
    /// True where a part of the group at `path` is unreadable: members are missing, and their names are not known.
    pub members: bool,
}

/// A dataset, or a group that has attributes, has no members, or is a member of the root group.
#[derive(Debug)]
pub struct Item {
    /// Path, from the root.
    pub path: Vec<String>,
    /// Attributes of the object.
    pub attributes: Attributes,
    /// Stored types of these attributes.
    pub types: Types,
    /// The dataset; `None` for a group.
    pub dataset: Option<Dataset>,
    /// True for a group without members.
    pub is_empty: bool,
}

/// Kind of the elements of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Numbers with a [`DType`]: the dataset is a tensor.
    Numbers(DType, Endian),
    /// Uninterpreted bytes, `size` for each element, with a tag.
    Opaque {
        /// Bytes of an element.
        size: u64,
        /// Description by the writer; mostly empty.
        tag: String,
    },
    /// Text, of fixed or variable length.
    Text,
    /// Any other type, as display text.
    Other(String),
}

/// A dataset: element type, shape, and storage of the bytes.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// Type of the elements.
    pub kind: Kind,
    /// Dimensions; none for a scalar.
    pub shape: Shape,
    /// True for a null dataspace, which has neither elements nor dimensions. Its `shape` is `[0]`.
    pub is_null: bool,
    stored: read::Stored,
}
