//! Helpers shared by the integration tests.

pub(crate) mod biggraph;
pub(crate) mod inference;
pub(crate) mod paddle;

use std::fs;
use std::path::{Path, PathBuf};

/// The path of a golden file or folder, such as `npz/good`.
pub(crate) use weighbridge_testkit::testdata;

/// Appends every file below a folder, in order.
pub(crate) fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut items: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|item| item.unwrap().path()).collect();
    items.sort();
    for path in items {
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
