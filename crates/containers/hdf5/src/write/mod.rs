//! Plans of HDF5 files with the layout that h5py uses by default: version 0 of the superblock, symbol-table
//! groups, version 1 of object headers, contiguous datasets.
//!
//! ```text
//!   0     superblock (section II.A of the HDF5 File Format Specification), 96 bytes
//!  96     global heaps: texts of attributes
//!         object headers; for each group its names, symbol table nodes and B-tree
//!         elements of the datasets, each at a multiple of 64 bytes
//! ```
//!
//! Only metadata is held in memory: elements are segments of the plan. No timestamps are written, so that
//! equal content has equal bytes.

mod attribute;
mod datatype;
mod group;
mod header;
mod heap;
mod layout;
#[cfg(test)]
mod tests;

use crate::StoredAs;
use std::collections::{BTreeMap, HashSet};
use weighbridge_core::checkpoint::{TensorEntry, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::PlannedFile;
use weighbridge_core::tensor::DType;

/// Content of a dataset to be written.
#[derive(Debug)]
pub enum Data {
    /// A tensor, little-endian and row-major, cast if the entry asks.
    Tensor(TensorEntry),
    /// A null dataspace, with the type of that tensor: neither elements nor dimensions.
    Null(TensorEntry),
    /// A planned file as uninterpreted bytes: one dimension, opaque of one byte with an empty tag
    /// (numpy's `V1`).
    Opaque(PlannedFile),
}

/// Builder of a planned HDF5 file from groups, datasets and attributes.
#[derive(Debug)]
pub struct Hdf5Builder {
    name: String,
    /// The root is the first; every other node follows its parent group.
    nodes: Vec<Node>,
}

/// A group or a dataset.
#[derive(Debug, Default)]
struct Node {
    /// Index of the parent group. Names instead of full paths keep deep trees linear in memory.
    parent: usize,
    name: String,
    /// In the order of the calls.
    attributes: Vec<Named>,
    attribute_names: HashSet<String>,
    content: Content,
}

/// An attribute, and its stored type where the value does not determine it.
#[derive(Debug)]
struct Named {
    name: String,
    value: Value,
    stored_as: Option<StoredAs>,
}

#[derive(Debug)]
enum Content {
    /// Indices of nodes by name, sorted by the bytes of the names, as libhdf5 requires.
    Group(BTreeMap<String, usize>),
    Dataset(Box<Data>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Group(BTreeMap::new())
    }
}

impl Hdf5Builder {
    /// True where HDF5 has an exact equivalent of `dtype`.
    pub fn has_type(dtype: DType) -> bool {
        datatype::of(dtype).is_some()
    }

    /// True where `value` can be an attribute without loss. Lists of numbers can still be too
    /// long: an attribute holds at most 64 KiB.
    pub fn is_attribute(name: &str, value: &Value) -> bool {
        check_attribute(name, value).is_ok()
    }

    /// True where `value` can be an attribute of that type, and reads back unchanged.
    pub fn is_attribute_as(name: &str, value: &Value, stored_as: &StoredAs) -> bool {
        has_name(name) && attribute::Attribute::typed(value, stored_as).is_ok()
    }
}

fn has_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('\0')
}

fn check_attribute(name: &str, value: &Value) -> std::result::Result<(), &'static str> {
    if !has_name(name) {
        return Err("the name is empty or contains a NUL character");
    }
    attribute::Attribute::new(value).map(|_| ())
}

impl Hdf5Builder {
    /// Creates a file with an empty root group. `name` is relative to the target; empty for the target
    /// itself.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), nodes: vec![Node::default()] }
    }

    /// Adds an attribute to the group or dataset at `path`; an empty path is the root group. Attributes
    /// are stored in the order of the calls. Integers and reals keep their type, text is UTF-8 of variable
    /// length, booleans are those of h5py, bytes are opaque, and a list of one of these has one
    /// dimension.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `no-such-object`, where no object is at `path`; [`weighbridge_core::Kind::Mismatch`]:
    /// `attribute-twice`, and `no-such-attribute` for a value or name that HDF5 cannot hold.
    pub fn attribute(&mut self, path: &[&str], name: &str, value: &Value) -> Result<()> {
        let subject =
            || format!("the attribute {} of /{}", weighbridge_core::text::escape(name), label(path));
        check_attribute(name, value).map_err(|why| {
            Error::mismatch("no-such-attribute", format!("HDF5 cannot hold {}: {why}", subject()))
        })?;
        self.put(path, Named { name: name.to_owned(), value: value.clone(), stored_as: None })
    }

    /// As [`attribute`](Self::attribute), in the type `stored_as`, for which [`Hdf5Builder::is_attribute_as`] must be true.
    ///
    /// # Errors
    /// As [`attribute`](Self::attribute).
    pub fn attribute_as(
        &mut self,
        path: &[&str],
        name: &str,
        value: &Value,
        stored_as: &StoredAs,
    ) -> Result<()> {
        let stored_as = Some(stored_as.clone());
        self.put(path, Named { name: name.to_owned(), value: value.clone(), stored_as })
    }

    fn put(&mut self, path: &[&str], named: Named) -> Result<()> {
        let subject =
            || format!("the attribute {} of /{}", weighbridge_core::text::escape(&named.name), label(path));
        let place = self
            .find(path)
            .ok_or_else(|| Error::usage("no-such-object", format!("{} belongs to no object", subject())))?;
        let node = &mut self.nodes[place];
        if !node.attribute_names.insert(named.name.clone()) {
            return Err(Error::mismatch("attribute-twice", format!("duplicate: {}", subject())));
        }
        node.attributes.push(named);
        Ok(())
    }

    /// Adds the group at `path`, and the missing groups above it.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `bad-name`, and `name-collision` where a dataset has that path.
    pub fn group(&mut self, path: &[&str]) -> Result<()> {
        self.make_group(path).map(|_| ())
    }

    /// Adds a dataset at `path`, and the missing groups above it.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `bad-name`, `name-collision` where an object exists at `path`,
    /// `no-such-dtype` and `too-many-dimensions` for a tensor that HDF5 cannot hold.
    pub fn dataset(&mut self, path: &[&str], data: Data) -> Result<()> {
        let Some((name, above)) = path.split_last() else {
            return Err(Error::mismatch("name-collision", "the root of an HDF5 file must be a group"));
        };
        if let Data::Tensor(entry) | Data::Null(entry) = &data {
            check_tensor(entry)?;
        }
        let group = self.make_group(above)?;
        self.insert(group, name, Content::Dataset(Box::new(data))).map(|_| ())
    }

    /// Returns the planned file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `hdf5-attribute-too-long` for more than 64 KiB of numbers in one attribute,
    /// `hdf5-header` for too many attributes of one object, `too-long` where the file would
    /// exceed 2^63 bytes; else as [`FileBuilder::tensor`](weighbridge_core::plan::FileBuilder::tensor).
    pub fn finish(self) -> Result<PlannedFile> {
        layout::finish(self)
    }

    /// True where a non-empty group is at `path`.
    pub fn has_members(&self, path: &[&str]) -> bool {
        let at = self.find(path).and_then(|place| self.nodes.get(place));
        at.is_some_and(|node| matches!(&node.content, Content::Group(members) if !members.is_empty()))
    }

    fn find(&self, path: &[&str]) -> Option<usize> {
        path.iter().try_fold(0, |place, &part| match &self.nodes[place].content {
            Content::Group(members) => members.get(part).copied(),
            Content::Dataset(_) => None,
        })
    }

    fn make_group(&mut self, path: &[&str]) -> Result<usize> {
        let mut place = 0;
        for &part in path {
            place = match &self.nodes[place].content {
                Content::Group(members) => match members.get(part) {
                    Some(&member) => member,
                    None => self.insert(place, part, Content::default())?,
                },
                Content::Dataset(_) => return Err(collision(&label(path))),
            };
        }
        match &self.nodes[place].content {
            Content::Group(_) => Ok(place),
            Content::Dataset(_) => Err(collision(&label(path))),
        }
    }

    /// Adds a new node to a group.
    fn insert(&mut self, group: usize, name: &str, content: Content) -> Result<usize> {
        if name.is_empty() || name == "." || name.contains(['/', '\0']) {
            return Err(Error::mismatch("bad-name", "the name is not valid in HDF5")
                .found(weighbridge_core::text::escape(name))
                .hint("use a name that is not empty or `.`, and contains neither `/` nor NUL"));
        }
        let place = self.nodes.len();
        match &mut self.nodes[group].content {
            Content::Group(members) if !members.contains_key(name) => {
                members.insert(name.to_owned(), place);
            }
            _ => {
                let above = display_path(&self.nodes, group);
                let own = weighbridge_core::text::escape(name);
                return Err(collision(&if group == 0 { own } else { format!("{above}/{own}") }));
            }
        }
        self.nodes.push(Node { parent: group, name: name.to_owned(), content, ..Node::default() });
        Ok(place)
    }
}

/// Fails for a tensor that HDF5 cannot hold.
fn check_tensor(entry: &TensorEntry) -> Result<()> {
    if !Hdf5Builder::has_type(entry.dtype()) {
        return Err(Error::mismatch(
            "no-such-dtype",
            format!("HDF5 has no type for the dtype {}", entry.dtype()),
        )
        .on_tensor(entry.name())
        .hint("cast the tensor, or write a format that supports the dtype, such as safetensors"));
    }
    if entry.shape.rank() > header::MAX_DIMENSIONS {
        return Err(Error::mismatch(
            "too-many-dimensions",
            "the tensor has more than 32 dimensions, the maximum in HDF5",
        )
        .on_tensor(entry.name())
        .found(entry.shape.rank()));
    }
    Ok(())
}

/// Display path of a node; empty for the root.
fn display_path(nodes: &[Node], mut place: usize) -> String {
    let mut parts = Vec::new();
    // Every group precedes its members.
    while let Some(node) = nodes.get(place).filter(|_| place > 0) {
        parts.push(node.name.as_str());
        place = node.parent;
    }
    parts.reverse();
    label(&parts)
}

fn label(path: &[&str]) -> String {
    weighbridge_core::text::escape(&path.join("/"))
}

fn collision(label: &str) -> Error {
    Error::mismatch("name-collision", "two objects of the HDF5 file have the same name").found(label)
}
