//! The small files that are damaged.

use std::path::{Path, PathBuf};

/// Larger files are no seeds: what breaks a parser is small.
const SEED_BYTES: u64 = 8 << 10;

/// A good file.
#[derive(Debug)]
pub struct Seed {
    /// Where it stands.
    pub path: PathBuf,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// The files of `testdata` below these folders, those with one of these extensions if there are any, in an order that does
/// not depend on the file system.
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
        wanted && !is_beside(path, extension) && std::fs::metadata(path).unwrap().len() < SEED_BYTES
    });
    let read = |path: PathBuf| Seed { bytes: std::fs::read(&path).unwrap(), path };
    paths.into_iter().map(read).collect()
}

/// What stands beside the files to say what they hold.
fn is_beside(path: &Path, extension: &str) -> bool {
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
