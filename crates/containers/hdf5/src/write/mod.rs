//! Laying out an HDF5 file as h5py makes it by default: version 0 of the superblock, symbol-table
//! groups, version 1 of object headers, contiguous datasets.
//!
//! ```text
//!   0     superblock (section II.A of the HDF5 File Format Specification), 96 bytes
//!  96     global heaps: the texts of attributes
//!         object headers; for each group its names, symbol table nodes and B-tree
//!         the elements of the datasets, each at a multiple of 64 bytes
//! ```
//!
//! Nothing is held but the metadata: elements are segments of the plan. Times are left out, so that
//! the same content gives the same bytes.

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

/// The elements of a dataset that is written.
#[derive(Debug)]
pub enum Data {
    /// A tensor, little-endian and row-major, cast if the entry asks.
    Tensor(TensorEntry),
    /// No element, and no extents: a null dataspace, with the type of that tensor.
    Null(TensorEntry),
    /// A planned file as bytes without meaning: one dimension, opaque of one byte with an empty tag
    /// (numpy's `V1`).
    Opaque(PlannedFile),
}

/// Collects groups, datasets and attributes, and lays them out.
#[derive(Debug)]
pub struct Hdf5Builder {
    name: String,
    /// The root is the first; every other one stands behind the group that holds it.
    nodes: Vec<Node>,
}

/// A group or a dataset.
#[derive(Debug, Default)]
struct Node {
    /// The place of the group that holds it, and its name there. A path of its own would make deep
    /// trees take the square of their depth.
    parent: usize,
    name: String,
    /// In the order in which they were given.
    attributes: Vec<Named>,
    attribute_names: HashSet<String>,
    content: Content,
}

/// An attribute, and its type where the value does not tell it.
#[derive(Debug)]
struct Named {
    name: String,
    value: Value,
    stored_as: Option<StoredAs>,
}

#[derive(Debug)]
enum Content {
    /// Places in the list of nodes, by name; names are sorted by their bytes, as libhdf5 demands.
    Group(BTreeMap<String, usize>),
    Dataset(Box<Data>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Group(BTreeMap::new())
    }
}

impl Hdf5Builder {
    /// True where HDF5 has a type that says what elements of this type are.
    pub fn has_type(dtype: DType) -> bool {
        datatype::of(dtype).is_some()
    }

    /// True where `value` can be an attribute that means the same. Lists of numbers can still be too
    /// long for one: a header holds 64 KiB of each.
    pub fn is_attribute(name: &str, value: &Value) -> bool {
        check_attribute(name, value).is_ok()
    }

    /// True where `value` can be an attribute of that type, and is read from it again.
    pub fn is_attribute_as(name: &str, value: &Value, stored_as: &StoredAs) -> bool {
        has_name(name) && attribute::Attribute::typed(value, stored_as).is_ok()
    }
}

fn has_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('\0')
}

fn check_attribute(name: &str, value: &Value) -> std::result::Result<(), &'static str> {
    if !has_name(name) {
        return Err("its name is empty, or holds the character NUL");
    }
    attribute::Attribute::new(value).map(|_| ())
}

impl Hdf5Builder {
    /// A file with an empty root group, of that name relative to the target; empty for the target
    /// itself.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), nodes: vec![Node::default()] }
    }

    /// Gives the group or dataset at `path` an attribute; no parts are the root group. Attributes
    /// stand in the order of the calls. Integers and reals keep their type, text is UTF-8 of variable
    /// length, truth values are h5py's, bytes are opaque, and a list of one of these has one
    /// dimension.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `no-such-object`, where nothing is there yet; [`weighbridge_core::Kind::Mismatch`]:
    /// `attribute-twice`, and `no-such-attribute` for a value or name that HDF5 cannot have.
    pub fn attribute(&mut self, path: &[&str], name: &str, value: &Value) -> Result<()> {
        let subject =
            || format!("the attribute {} of /{}", weighbridge_core::text::escape(name), label(path));
        check_attribute(name, value).map_err(|why| {
            Error::mismatch("no-such-attribute", format!("{} cannot be in HDF5: {why}", subject()))
        })?;
        self.put(path, Named { name: name.to_owned(), value: value.clone(), stored_as: None })
    }

    /// As [`attribute`](Self::attribute), in the type that it had in another file: one of which [`Hdf5Builder::is_attribute_as`] is true.
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
        let place = self.find(path).ok_or_else(|| {
            Error::usage("no-such-object", format!("{} has nothing to stand at", subject()))
        })?;
        let node = &mut self.nodes[place];
        if !node.attribute_names.insert(named.name.clone()) {
            return Err(Error::mismatch("attribute-twice", format!("{} is given twice", subject())));
        }
        node.attributes.push(named);
        Ok(())
    }

    /// Makes the group at `path`, and those above it, where they are not there yet.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `bad-name`, and `name-collision` where a dataset is in the way.
    pub fn group(&mut self, path: &[&str]) -> Result<()> {
        self.make_group(path).map(|_| ())
    }

    /// Puts a dataset at `path`, and groups above it where they are not there yet.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `bad-name`, `name-collision` where something is there already,
    /// `no-such-dtype` and `too-many-dimensions` for a tensor that HDF5 cannot have.
    pub fn dataset(&mut self, path: &[&str], data: Data) -> Result<()> {
        let Some((name, above)) = path.split_last() else {
            return Err(Error::mismatch("name-collision", "the root of an HDF5 file is a group"));
        };
        if let Data::Tensor(entry) | Data::Null(entry) = &data {
            check_tensor(entry)?;
        }
        let group = self.make_group(above)?;
        self.insert(group, name, Content::Dataset(Box::new(data))).map(|_| ())
    }

    /// The finished file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `hdf5-attribute-too-long` for numbers above 64 KiB in one attribute,
    /// `hdf5-header` for more attributes than an object can have, `too-long` where the file would
    /// pass 2^63 bytes; else as [`FileBuilder::tensor`](weighbridge_core::plan::FileBuilder::tensor).
    pub fn finish(self) -> Result<PlannedFile> {
        layout::finish(self)
    }

    /// True where there is a group at `path` and something in it.
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

    /// Puts something new into a group.
    fn insert(&mut self, group: usize, name: &str, content: Content) -> Result<usize> {
        if name.is_empty() || name == "." || name.contains(['/', '\0']) {
            return Err(Error::mismatch("bad-name", "HDF5 cannot have an object of this name")
                .found(weighbridge_core::text::escape(name))
                .hint("a name is not empty, is not a dot alone, and holds neither / nor NUL"));
        }
        let place = self.nodes.len();
        match &mut self.nodes[group].content {
            Content::Group(members) if !members.contains_key(name) => {
                members.insert(name.to_owned(), place);
            }
            _ => {
                let above = shown(&self.nodes, group);
                let own = weighbridge_core::text::escape(name);
                return Err(collision(&if group == 0 { own } else { format!("{above}/{own}") }));
            }
        }
        self.nodes.push(Node { parent: group, name: name.to_owned(), content, ..Node::default() });
        Ok(place)
    }
}

/// Refuses a tensor that HDF5 cannot have.
fn check_tensor(entry: &TensorEntry) -> Result<()> {
    if !Hdf5Builder::has_type(entry.dtype()) {
        return Err(Error::mismatch("no-such-dtype", format!("HDF5 has no type for {}", entry.dtype()))
            .on_tensor(entry.name())
            .hint("cast the tensor, or write a format that has the type, such as safetensors"));
    }
    if entry.shape.rank() > header::MOST_DIMENSIONS {
        return Err(Error::mismatch("too-many-dimensions", "HDF5 has at most 32 dimensions")
            .on_tensor(entry.name())
            .found(entry.shape.rank()));
    }
    Ok(())
}

/// The path of a node, for people; empty for the root.
fn shown(nodes: &[Node], mut place: usize) -> String {
    let mut parts = Vec::new();
    // Each group stands before what it holds.
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
    Error::mismatch("name-collision", "two objects of an HDF5 file would have one name").found(label)
}
