//! Identity of a file, independent of its path: links and mounts give a file several paths.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use super::Source;
use std::path::Path;

/// Identity of a file of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileIdentity(Inner);

/// Device and inode.
#[cfg(unix)]
type Inner = (u64, u64);
/// The path, with all links followed.
#[cfg(not(unix))]
type Inner = std::path::PathBuf;

impl FileIdentity {
    /// Identity of the file or folder at `path`, through links; `None` where it does not exist.
    pub fn of_path(path: &Path) -> Option<Self> {
        of_path(path).map(Self)
    }

    /// Identity of the file that `source` reads or was read from; `None` for other sources.
    pub fn of_source(source: &dyn Source) -> Option<Self> {
        of_handle(source).map(Self).or_else(|| Self::of_path(Path::new(source.label())))
    }
}

#[cfg(unix)]
fn of_path(path: &Path) -> Option<Inner> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn of_path(path: &Path) -> Option<Inner> {
    std::fs::canonicalize(path).ok()
}

#[cfg(unix)]
fn of_handle(source: &dyn Source) -> Option<Inner> {
    use std::os::unix::fs::MetadataExt;
    source.file()?.file.metadata().ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn of_handle(_: &dyn Source) -> Option<Inner> {
    None
}

#[cfg(test)]
mod tests {
    use super::super::{FileSource, MemorySource};
    use super::*;

    #[test]
    fn identity_is_equal_for_all_links() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        std::fs::write(&one, "1").unwrap();
        std::fs::write(&other, "1").unwrap();
        let known = FileIdentity::of_path(&one).unwrap();
        assert_eq!(FileIdentity::of_source(&FileSource::open(&one).unwrap()), Some(known.clone()));
        let memory = MemorySource::new(one.display().to_string(), vec![1]);
        assert_eq!(FileIdentity::of_source(&memory), Some(known.clone()));
        assert_ne!(FileIdentity::of_path(&other), Some(known.clone()));
        assert_eq!(FileIdentity::of_path(&dir.path().join("none")), None);
        #[cfg(unix)]
        {
            let (soft, hard) = (dir.path().join("soft"), dir.path().join("hard"));
            std::os::unix::fs::symlink(&one, &soft).unwrap();
            std::fs::hard_link(&one, &hard).unwrap();
            for link in [soft, hard] {
                assert_eq!(FileIdentity::of_path(&link), Some(known.clone()), "{}", link.display());
            }
        }
    }
}
