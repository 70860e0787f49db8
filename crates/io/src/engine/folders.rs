//! Creation of parent folders.
#![allow(clippy::disallowed_methods)]

use std::path::Path;
use weighbridge_core::error::{Error, Result};

/// Creates the folder `path` and its missing parents, with the permissions of the system's mask.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`] where one cannot be created; [`weighbridge_core::Kind::Usage`], `not-a-folder`, where
/// a file is in the way.
pub fn make_folders(path: &Path) -> Result<()> {
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    if std::fs::metadata(path).is_ok_and(|found| !found.is_dir()) {
        return Err(Error::usage("not-a-folder", "cannot create the folder: the path is a file")
            .in_file(path.display()));
    }
    std::fs::create_dir_all(path)
        .map_err(|e| Error::io("cannot create the folder", e).in_file(path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_created_once() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        make_folders(&deep).unwrap();
        make_folders(&deep).unwrap();
        make_folders(Path::new("")).unwrap();
        assert!(deep.is_dir());
        std::fs::write(deep.join("file"), b"x").unwrap();
        assert_eq!(make_folders(&deep.join("file")).unwrap_err().code().as_str(), "not-a-folder");
        assert_eq!(make_folders(&deep.join("file/more")).unwrap_err().kind(), weighbridge_core::Kind::Io);
    }
}
