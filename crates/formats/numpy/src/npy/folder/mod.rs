//! Folders of arrays.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub(super) use read::{is_array, open, recognises};
pub(super) use write::plan;

/// Suffix of the file name of an array.
const SUFFIX: &str = ".npy";
/// Suffix of the file with the row names of an array.
const NAMES_SUFFIX: &str = ".names.json";
/// File of the bridge metadata.
const INDEX: &str = "weighbridge.index.json";
