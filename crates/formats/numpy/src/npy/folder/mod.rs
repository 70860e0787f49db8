//! A folder of arrays.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub(super) use read::{is_array, open, recognises};
pub(super) use write::plan;

/// What follows the name of an array.
const SUFFIX: &str = ".npy";
/// What follows the name of the array whose rows are named.
const NAMES_SUFFIX: &str = ".names.json";
/// The file of the carried index.
const INDEX: &str = "weighbridge.index.json";
