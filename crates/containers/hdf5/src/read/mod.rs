//! Reading: a flat list of the objects of a file, with the byte ranges of their elements.
//!
//! The list is made from the messages of object headers, one by one: a damaged object is a [`Problem`] at
//! its path, and the other objects are listed. All reads and allocations are taken from the budget of
//! the file ([`file`]); uncompressed elements are byte ranges of the file.
//!
//! | link | listed as |
//! | --- | --- |
//! | hard, to a dataset | an item, one for each name of the dataset |
//! | hard, to a group | an item the first time; then a [`Link`](super::Link), which prevents cycles |
//! | soft | a [`Link`](super::Link); also an item where the target is a dataset of this file |
//! | external | a [`Problem`]: other files are never opened |
//!
//! A hard link to a committed datatype is a [`NamedType`](super::NamedType).

mod attributes;
mod axes;
mod broken;
mod bytes;
mod chunked;
mod chunks;
mod elements;
mod entry;
mod file;
mod fill;
mod filters;
mod fractal;
mod free_space;
mod grid;
mod header;
mod heap;
mod image;
mod index;
mod layout;
mod links;
mod mapped;
mod open;
mod outline;
mod record;
mod sibling_files;
mod siblings;
mod sources;
mod space;
mod stored;
mod sums;
mod superblock;
#[cfg(test)]
mod tests;
mod texts;
mod tree;
mod types;
mod values;
mod walk;

pub use elements::ElementReader;
pub use filters::FILTER_LZF;
pub use outline::{is_hdf5, outline};
pub use sibling_files::SiblingFiles;
pub(super) use stored::Stored;
pub use texts::RawText;
pub(super) use types::{Class, Padding, Type};
pub(super) use values::number;
pub use walk::{read, read_with_siblings};
