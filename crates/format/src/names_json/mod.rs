//! JSON arrays of names, of any length, as PyTorch-BigGraph writes them.

mod read;
mod write;

pub use read::{NameFiles, read_names};
pub use write::{NamesJson, names_json};
