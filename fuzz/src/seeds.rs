//! Seeds: small valid files to mutate.

use std::path::{Path, PathBuf};

/// Largest seed, in bytes: parser bugs need small files only.
const MAX_SEED_BYTES: u64 = 8 << 10;

/// A valid file.
#[derive(Debug)]
pub struct Seed {
    /// Path of the file.
    pub path: PathBuf,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// Reads the seeds in these folders of `testdata`, with one of these extensions unless that list is empty, in sorted order.
pub fn seeds(folders: &[&str], extensions: &[&str]) -> Vec<Seed> {
    let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "testdata"].iter().collect();
    let mut paths = Vec::new();
    for folder in folders {
        walk(&root.join(folder), &mut paths);
    }
    paths.sort();
    paths.retain(|path| {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        let wanted = extensions.is_empty() || extensions.contains(&extension);
        wanted && !is_description(path, extension) && std::fs::metadata(path).unwrap().len() < MAX_SEED_BYTES
    });
    let read = |path: PathBuf| Seed { bytes: std::fs::read(&path).unwrap(), path };
    paths.into_iter().map(read).collect()
}

/// Returns true for files that describe the test files, such as expected values.
fn is_description(path: &Path, extension: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let of_paddle = path.components().any(|part| part.as_os_str() == "paddle");
    name == "expected.json" || ["md", "py", "txt"].contains(&extension) || extension == "json" && !of_paddle
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, files);
        } else {
            files.push(path);
        }
    }
}
