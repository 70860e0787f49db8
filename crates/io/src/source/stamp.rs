//! File system metadata of a file: length, times, path.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use weighbridge_core::error::{Error, Result};

/// Length and change times of a file, from the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Its length in bytes.
    pub len: u64,
    /// Modification time of its bytes: nanoseconds since 1970. Any program can set it.
    pub modified: Option<i128>,
    /// Change time of its bytes, name or permissions: nanoseconds since 1970. No program can set it; not every
    /// system has it.
    pub changed: Option<i128>,
}

impl Stamp {
    /// Reads the metadata of the file at `path`, through symbolic links.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] where it does not exist or is not accessible.
    pub fn of_path(path: &Path) -> Result<Stamp> {
        let found = std::fs::metadata(path)
            .map_err(|e| Error::io("cannot access the file", e).in_file(path.display()))?;
        Ok(Stamp {
            len: found.len(),
            modified: found.modified().ok().map(nanoseconds),
            changed: changed(&found),
        })
    }
}

fn nanoseconds(time: SystemTime) -> i128 {
    let number = |d: std::time::Duration| i128::try_from(d.as_nanos()).unwrap_or(i128::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => number(after),
        Err(before) => -number(before.duration()),
    }
}

#[cfg(unix)]
fn changed(found: &std::fs::Metadata) -> Option<i128> {
    use std::os::unix::fs::MetadataExt;
    Some(i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec()))
}

#[cfg(not(unix))]
fn changed(_: &std::fs::Metadata) -> Option<i128> {
    None
}

/// Returns the name of the file at `path` relative to `folder`; the file need not exist. Links to folders on the way
/// are followed, a link at the end is not. `None` where the file is not inside `folder`.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`] where one of the folders is not accessible.
pub fn name_below(folder: &Path, path: &Path) -> Result<Option<PathBuf>> {
    let real = |path: &Path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        std::fs::canonicalize(path)
            .map_err(|e| Error::io("cannot access the folder", e).in_file(path.display()))
    };
    let folder = real(folder)?;
    let Some(name) = path.file_name() else { return Ok(None) };
    let path = real(path.parent().unwrap_or(Path::new("")))?.join(name);
    Ok(path.strip_prefix(&folder).ok().map(Path::to_owned))
}

/// Resolves all links of `path`; `None` where it does not exist.
pub fn real_path(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}

/// Returns the last part of `path`; if it ends in `.` or `..`, the name of the folder it resolves to.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`] where it cannot be resolved; [`weighbridge_core::Kind::Usage`], `no-name`, for the root
/// of the file system.
pub fn own_name(path: &Path) -> Result<PathBuf> {
    if let Some(name) = path.file_name() {
        return Ok(PathBuf::from(name));
    }
    let real = std::fs::canonicalize(path)
        .map_err(|e| Error::io("cannot access the folder", e).in_file(path.display()))?;
    real.file_name().map(PathBuf::from).ok_or_else(|| {
        Error::usage("no-name", "the root of the file system has no name").in_file(path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_has_length_and_times() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"12345").unwrap();
        let stamp = Stamp::of_path(&path).unwrap();
        assert_eq!(stamp.len, 5);
        let year = 365 * 86400 * 1_000_000_000i128;
        assert!(stamp.modified.unwrap() > 50 * year && stamp.changed.is_none_or(|t| t > 50 * year));
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(UNIX_EPOCH - std::time::Duration::from_nanos(7)).unwrap();
        assert_eq!(Stamp::of_path(&path).unwrap().modified, Some(-7));
        assert_eq!(Stamp::of_path(&dir.path().join("g")).unwrap_err().code().as_str(), "not-found");
    }

    #[test]
    fn names_are_relative_to_the_resolved_folder() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let name = |path: &str| name_below(&dir.path().join("a"), &dir.path().join(path)).unwrap();
        assert_eq!(name("a/new").unwrap(), Path::new("new"));
        assert_eq!(name("a/b/../b/new").unwrap(), Path::new("b/new"));
        assert_eq!(name("new"), None);
        assert_eq!(own_name(&dir.path().join("a/b/..")).unwrap(), Path::new("a"));
        assert_eq!(own_name(Path::new("/")).unwrap_err().code().as_str(), "no-name");
        assert_eq!(real_path(&dir.path().join("a")), real_path(&dir.path().join("a/b/..")));
        assert_eq!(real_path(&dir.path().join("none")), None);
    }
}
