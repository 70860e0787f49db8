//! What the tests of all crates share.
//!
//! | item | contents |
//! | --- | --- |
//! | [`testdata`] | a path below the folder of test data |
//! | [`golden`] | the bytes of a file there |
//! | [`memory`] | a source of bytes in memory |
//! | [`dense`] | a tensor over a source that counts what is read |

#![allow(clippy::disallowed_methods, clippy::panic)] // Tests read their own files, and fail by a panic.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use weighbridge_core::checkpoint::{TensorEntry, TensorPath};
use weighbridge_core::source::{CountingSource, MemorySource, SourceRef};
use weighbridge_core::tensor::{DType, Encoding, Order, Shape, relayout};

/// The variable of the environment that names the folder of test data.
const VARIABLE: &str = "WEIGHBRIDGE_TESTDATA";

/// The path of `name` below the folder of test data: the folder that `WEIGHBRIDGE_TESTDATA` names, else `testdata` in the first
/// folder above the crate that has one.
///
/// Where there is no such folder, as in a package of a single crate, the process ends well, and says that its tests are skipped.
///
/// # Panics
/// Where `WEIGHBRIDGE_TESTDATA` names no folder.
#[must_use]
pub fn testdata(name: impl AsRef<Path>) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(folder).join(name)
}

/// The bytes of the file `name` below the folder of test data.
///
/// # Panics
/// Where the file cannot be read.
#[must_use]
#[track_caller]
pub fn golden(name: impl AsRef<Path>) -> Vec<u8> {
    let path = testdata(name);
    match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// A source of these bytes in memory.
#[must_use]
pub fn memory(bytes: impl AsRef<[u8]>) -> SourceRef {
    Arc::new(MemorySource::new("m", bytes.as_ref().to_vec()))
}

/// A tensor of the little-endian, row-major elements `bytes`, stored in that order, and the source that counts its reads.
///
/// # Panics
/// Where the bytes are fewer than the tensor has.
#[must_use]
pub fn dense(dtype: DType, dims: &[u64], bytes: &[u8], order: Order) -> (TensorEntry, Arc<CountingSource>) {
    let mut stored = bytes.to_vec();
    if let (Order::Column, Some(size)) = (order, dtype.size()) {
        let extents: Vec<usize> = dims.iter().map(|&d| usize::try_from(d).unwrap_or(usize::MAX)).collect();
        relayout(bytes, Order::Row, &mut stored, Order::Column, &extents, size);
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
        assert!(named.is_dir(), "{VARIABLE} names no folder: {}", named.display());
        return named;
    }
    // Cargo names the crate; a test that is started by hand stands somewhere in the tree, or not.
    let starts = [
        std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from),
        std::env::current_dir().ok(),
        Some(PathBuf::from(env!("CARGO_MANIFEST_DIR"))),
    ];
    let found = starts.iter().flatten().find_map(|start| above(start));
    found.unwrap_or_else(|| {
        // Not by a macro: the output of a test that ends well is not shown.
        let text = "SKIPPED: there is no folder `testdata` above this crate";
        let _ = writeln!(std::io::stderr(), "{text}; {VARIABLE} can name one");
        std::process::exit(0)
    })
}

/// The folder `testdata` in the first folder above `start` that has one.
fn above(start: &Path) -> Option<PathBuf> {
    start.ancestors().map(|folder| folder.join("testdata")).find(|folder| folder.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_repository_is_found() {
        assert!(testdata("primitiv/good").is_dir());
        assert!(!golden("npy/good/float64.npy").is_empty());
        assert_eq!(above(Path::new("/")), None);
    }
}
