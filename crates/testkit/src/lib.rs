//! Shared helpers for the tests of all crates.
//!
//! | item | contents |
//! | --- | --- |
//! | [`testdata`] | path of a file in the test data folder |
//! | [`golden`] | bytes of a file in that folder |
//! | [`memory`] | in-memory source |
//! | [`dense`] | tensor over a source that counts its reads |

#![allow(clippy::disallowed_methods, clippy::panic)] // Tests read files directly, and fail by a panic.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use weighbridge_core::checkpoint::{TensorEntry, TensorPath};
use weighbridge_core::source::{CountingSource, MemorySource, SourceRef};
use weighbridge_core::tensor::{DType, Encoding, Order, Shape, relayout};

/// Environment variable for the path of the test data folder.
const VARIABLE: &str = "WEIGHBRIDGE_TESTDATA";

/// Returns the path of `name` in the test data folder: `WEIGHBRIDGE_TESTDATA`, or `testdata` in the nearest parent folder of
/// the crate that contains one.
///
/// If there is no such folder, as in the package of a single crate, prints that tests are skipped and exits with code 0.
///
/// # Panics
/// If `WEIGHBRIDGE_TESTDATA` is set but is not a folder.
#[must_use]
pub fn testdata(name: impl AsRef<Path>) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(folder).join(name)
}

/// Reads the file `name` in the test data folder.
///
/// # Panics
/// If the file cannot be read.
#[must_use]
#[track_caller]
pub fn golden(name: impl AsRef<Path>) -> Vec<u8> {
    let path = testdata(name);
    match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// Makes an in-memory source of these bytes.
#[must_use]
pub fn memory(bytes: impl AsRef<[u8]>) -> SourceRef {
    Arc::new(MemorySource::new("m", bytes.as_ref().to_vec()))
}

/// Makes a tensor of the little-endian, row-major elements `bytes`, stored in `order`, and the source that counts its reads.
///
/// # Panics
/// If there are fewer bytes than the tensor needs.
#[must_use]
pub fn dense(dtype: DType, dims: &[u64], bytes: &[u8], order: Order) -> (TensorEntry, Arc<CountingSource>) {
    let mut stored = bytes.to_vec();
    if let (Order::Column, Some(size)) = (order, dtype.size()) {
        let sizes: Vec<usize> = dims.iter().map(|&d| usize::try_from(d).unwrap_or(usize::MAX)).collect();
        relayout(bytes, Order::Row, &mut stored, Order::Column, &sizes, size);
    }
    let counted = Arc::new(CountingSource::new(memory(stored)));
    let source: SourceRef = counted.clone();
    let encoding = if order == Order::Row { Encoding::ROW } else { Encoding::COLUMN };
    match TensorEntry::dense(TensorPath::value(), dtype, Shape::new(dims), &source, 0, encoding) {
        Ok(entry) => (entry, counted),
        Err(error) => panic!("{error}"),
    }
}

fn folder() -> PathBuf {
    if let Some(named) = std::env::var_os(VARIABLE) {
        let named = PathBuf::from(named);
        assert!(named.is_dir(), "{VARIABLE} is not a folder: {}", named.display());
        return named;
    }
    // Cargo sets the crate folder; a test binary started by hand may run anywhere.
    let starts = [
        std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from),
        std::env::current_dir().ok(),
        Some(PathBuf::from(env!("CARGO_MANIFEST_DIR"))),
    ];
    let found = starts.iter().flatten().find_map(|start| above(start));
    found.unwrap_or_else(|| {
        // Not by a print macro: the test harness hides the output of passing tests.
        let text = "SKIPPED: no folder `testdata` in the parent folders of this crate";
        let _ = writeln!(std::io::stderr(), "{text}; set {VARIABLE} to its path");
        std::process::exit(0)
    })
}

/// Returns the folder `testdata` in `start` or its nearest parent that contains one.
fn above(start: &Path) -> Option<PathBuf> {
    start.ancestors().map(|folder| folder.join("testdata")).find(|folder| folder.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_test_data_of_the_repository() {
        assert!(testdata("primitiv/good").is_dir());
        assert!(!golden("npy/good/float64.npy").is_empty());
        assert_eq!(above(Path::new("/")), None);
    }
}

/// The examples of the book's Rust page, run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/tasks/rust.md")]
mod rust_page {}
