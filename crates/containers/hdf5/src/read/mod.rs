//! Reading: a flat list of what is in a file, with the places of the bytes.
//!
//! The list is made from the messages of object headers, one by one: what is bad is a [`Problem`] at
//! its path, and the rest is listed. All that is read and made on the way is taken from the budget of
//! the file ([`file`]); data is read from byte ranges where it lies as it is.
//!
//! | link | what becomes of it |
//! | --- | --- |
//! | hard, to a dataset | an item, also where the dataset has more names: each is one |
//! | hard, to a group | an item the first time; then a [`Link`](super::Link), so that there is no circle |
//! | soft | a [`Link`](super::Link); an item as well where it leads to a dataset of this file |
//! | external | a [`Problem`]: other files are never opened |
//!
//! A hard link may lead to a named type as well, which is a [`NamedType`](super::NamedType).

mod attributes;
mod axes;
mod beside;
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
mod free;
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

pub use beside::Beside;
pub use elements::ElementReader;
pub use filters::FILTER_LZF;
pub use outline::{is_hdf5, outline};
pub(super) use stored::Stored;
pub use texts::RawText;
pub(super) use types::{Class, Padding, Type};
pub(super) use values::number;
pub use walk::{read, read_beside};
