//! Folder of sources, for checkpoints of several files.

use super::{MemorySource, SourceRef};
use crate::error::{Error, Result};
use crate::text::escape;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Shared folder. Cheap to clone.
pub type FolderRef = Arc<dyn Folder>;

impl FolderItem {
    /// File names that model signing always ignores.
    pub const IGNORED_NAMES: [&str; 4] = [".git", ".gitattributes", ".github", ".gitignore"];

    /// Maximum depth, in levels, to which folders of models are searched.
    pub const DEPTH: usize = 16;
}

/// Files under relative names. Names may come from untrusted files: every implementation rejects a name that leaves the
/// folder.
pub trait Folder: Debug + Send + Sync {
    /// Returns the display name: the path.
    fn label(&self) -> &str;

    /// Lists the files down to `depth` levels (1: the folder itself), sorted by the bytes of their names. Folders are entered,
    /// not listed; links to folders are not followed.
    ///
    /// # Errors
    /// [`crate::Kind::Io`]; [`crate::Kind::Limit`] for too many entries.
    fn list(&self, depth: usize) -> Result<Vec<FolderItem>>;

    /// Lists the entries that [`list`](Self::list) skips at that depth, sorted by the bytes of their names. A check of the
    /// whole folder must report them as unchecked.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn skipped(&self, depth: usize) -> Result<Vec<SkippedItem>>;

    /// Opens the regular file of that name; `None` if it does not exist.
    ///
    /// # Errors
    /// [`crate::Kind::Io`] if it cannot be read; [`crate::Kind::Corrupt`], `unsafe-name`, for a name that leaves the folder.
    fn open(&self, name: &Path) -> Result<Option<SourceRef>>;

    /// Opens the folder at `path` relative to this one, where `..` is the parent. `None` if it does not exist, or if this
    /// kind of folder has no parent.
    ///
    /// Callers open only files with names fixed by the format in it.
    ///
    /// # Errors
    /// [`crate::Kind::Io`] if it cannot be read.
    fn beside(&self, path: &Path) -> Result<Option<FolderRef>> {
        let _ = path;
        Ok(None)
    }

    /// Returns true if `name` is a symbolic link.
    fn is_link(&self, name: &Path) -> bool {
        let _ = name;
        false
    }

    /// Returns true if `name`, or a folder on its path, is a symbolic link with a target outside the folder. A listed file may
    /// therefore be stored elsewhere.
    fn leads_out(&self, name: &Path) -> bool {
        let _ = name;
        false
    }
}

/// File in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderItem {
    /// Name relative to the folder.
    pub name: PathBuf,
    /// Length in bytes.
    pub len: u64,
}

/// Entry of a folder that a listing skips.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedItem {
    /// Name relative to the folder.
    pub name: PathBuf,
    /// Reason.
    pub reason: SkipReason,
}

/// Reason why a listing skips an entry of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipReason {
    /// Folder below the requested depth.
    TooDeep,
    /// Symbolic link to a folder. Its target may be anywhere, or form a cycle.
    LinkToFolder,
    /// Symbolic link with a missing or unreadable target.
    DeadLink,
    /// Pipe, socket or device.
    NotAFile,
}

impl SkipReason {
    /// Returns the description for users.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooDeep => "a folder below the depth limit",
            Self::LinkToFolder => "a link to a folder",
            Self::DeadLink => "a link with an unreadable target",
            Self::NotAFile => "a pipe, a socket or a device",
        }
    }
}

/// Rejects a `name` that leaves the folder it is relative to.
///
/// # Errors
/// [`crate::Kind::Corrupt`], code `unsafe-name`.
pub fn check_relative(name: &Path) -> Result<()> {
    let mut parts = name.components().peekable();
    let stays = parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)));
    if stays && !name.as_os_str().as_encoded_bytes().contains(&0) {
        return Ok(());
    }
    Err(Error::corrupt("unsafe-name", "the file name is not a path within the folder")
        .found(name.display())
        .hint(
            "names with .., a leading / or a NUL may leave the folder; correct the name where it is listed",
        ))
}

/// Rejects a `name` from a file if it leaves the folder or is not in normal form. `a//b` and `a/./b` are one file, so it would
/// be opened once per spelling.
///
/// # Errors
/// [`crate::Kind::Corrupt`], code `unsafe-name`.
pub fn check_plain(name: &str) -> Result<()> {
    check_relative(Path::new(name))?;
    let parts = Path::new(name).components().map(|part| part.as_os_str().as_encoded_bytes());
    if parts.eq(name.as_bytes().split(|&byte| byte == b'/')) {
        return Ok(());
    }
    Err(Error::corrupt("unsafe-name", "the file name is not in normal form")
        .found(name)
        .hint("separate parts with one slash, and use no `.` parts"))
}

/// Rejects a shard `file` of an index that is not below `around` in `folder`. The file itself may be a link, as in the cache
/// of a hub; a linked folder on its path may lead anywhere.
///
/// # Errors
/// [`crate::Kind::Corrupt`], code `unsafe-name`.
pub fn check_shard(folder: &FolderRef, around: &Path, file: &str) -> Result<()> {
    check_plain(file)?;
    let mut above = Path::new(file).ancestors().skip(1).filter(|part| *part != Path::new(""));
    if above.any(|part| folder.is_link(&around.join(part))) {
        return Err(Error::corrupt(
            "unsafe-name",
            "the path of a shard contains a symbolic link to a folder",
        )
        .found(escape(file))
        .hint("replace the link with the folder itself"));
    }
    Ok(())
}

/// Folder of files in memory.
#[derive(Debug, Default)]
pub struct MemoryFolder {
    label: String,
    files: BTreeMap<PathBuf, SourceRef>,
}

impl MemoryFolder {
    /// Creates an empty folder named `label` in errors.
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), files: BTreeMap::new() }
    }

    /// Adds a file, or replaces the one of the same name.
    #[must_use]
    pub fn with(mut self, name: impl Into<PathBuf>, bytes: Vec<u8>) -> Self {
        let name = name.into();
        let label = Path::new(&self.label).join(&name).display().to_string();
        self.files.insert(name, Arc::new(MemorySource::new(label, bytes)));
        self
    }
}

impl Folder for MemoryFolder {
    fn label(&self) -> &str {
        &self.label
    }

    fn list(&self, depth: usize) -> Result<Vec<FolderItem>> {
        let near = |name: &Path| name.components().count() <= depth;
        let item =
            |(name, source): (&PathBuf, &SourceRef)| FolderItem { name: name.clone(), len: source.len() };
        let mut items: Vec<_> = self.files.iter().filter(|(name, _)| near(name)).map(item).collect();
        sort_by_name(&mut items, |item| &item.name);
        Ok(items)
    }

    fn skipped(&self, depth: usize) -> Result<Vec<SkippedItem>> {
        // Names are sorted by their parts, so those below one folder are adjacent.
        let deep = self.files.keys().filter(|name| name.components().count() > depth);
        let mut folders: Vec<PathBuf> = deep.map(|name| name.components().take(depth).collect()).collect();
        folders.dedup();
        let item = |name| SkippedItem { name, reason: SkipReason::TooDeep };
        let mut skipped: Vec<_> = folders.into_iter().map(item).collect();
        sort_by_name(&mut skipped, |item| &item.name);
        Ok(skipped)
    }

    fn open(&self, name: &Path) -> Result<Option<SourceRef>> {
        check_relative(name).map_err(|e| e.in_file(&self.label))?;
        Ok(self.files.get(name).cloned())
    }
}

/// Sorts by the bytes of names.
pub fn sort_by_name<T>(items: &mut [T], name: impl Fn(&T) -> &Path) {
    items.sort_by(|a, b| {
        let (a, b) = (name(a).as_os_str(), name(b).as_os_str());
        a.as_encoded_bytes().cmp(b.as_encoded_bytes())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_names_that_leave_the_folder() {
        for bad in ["", "..", "../x", "a/../../x", "/etc/passwd", "a\0b"] {
            assert_eq!(check_relative(Path::new(bad)).unwrap_err().code().as_str(), "unsafe-name", "{bad}");
        }
        for good in ["a", "a/b", "权重", "..a", ".a"] {
            check_relative(Path::new(good)).unwrap();
        }
    }

    #[test]
    fn rejects_names_that_are_not_in_normal_form() {
        for bad in ["a//b", "a/./b", "a/", "a/b/.", "./a", "../a", "/a", ""] {
            assert_eq!(check_plain(bad).unwrap_err().code().as_str(), "unsafe-name", "{bad}");
        }
        for good in ["a", "a/b/c", "权重/..a", ".a"] {
            check_plain(good).unwrap();
        }
    }
}
