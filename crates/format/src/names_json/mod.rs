//! Names as a JSON array of strings, as PyTorch-BigGraph writes them, of any length.

mod read;
mod write;

pub use read::{NameFiles, read_names};
pub use write::{NamesJson, names_json};
