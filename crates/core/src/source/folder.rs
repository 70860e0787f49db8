//! A folder of sources: what a checkpoint of several files stands in.

use super::{MemorySource, SourceRef};
use crate::error::{Error, Result};
use crate::text::escape;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A shared folder. Cheap to clone.
pub type FolderRef = Arc<dyn Folder>;

impl FolderItem {
    /// Names that model signing always ignores.
    pub const IGNORED_NAMES: [&str; 4] = [".git", ".gitattributes", ".github", ".gitignore"];

    /// Folders of models are looked through so many levels deep.
    pub const DEPTH: usize = 16;
}

/// Files under relative names. Names come from files too: one that leads out of the folder is
/// refused by every implementation.
pub trait Folder: Debug + Send + Sync {
    /// What people call it: its path.
    fn label(&self) -> &str;

    /// What stands in it, `depth` levels deep (1: the folder itself), in the order of the names'
    /// bytes. Folders are entered, not listed; links to folders are not followed.
    ///
    /// # Errors
    /// [`crate::Kind::Io`]; [`crate::Kind::Limit`] where there is more than anybody looks through.
    fn list(&self, depth: usize) -> Result<Vec<FolderItem>>;

    /// What [`list`](Self::list) passes over at that depth, in the order of the names' bytes. Whoever
    /// vouches for the whole folder must say that these were not looked at.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn skipped(&self, depth: usize) -> Result<Vec<SkippedItem>>;

    /// Opens the regular file of that name; `None` where there is none.
    ///
    /// # Errors
    /// [`crate::Kind::Io`] where it cannot be read; [`crate::Kind::Corrupt`], `unsafe-name`, for a
    /// name that leads out of the folder.
    fn open(&self, name: &Path) -> Result<Option<SourceRef>>;

    /// The folder that `path` means from here: relative, where `..` is the folder around this one.
    /// `None` where there is none, or where this kind of folder stands alone.
    ///
    /// Only for paths that lead to a folder whose files are known by their names anyway; nothing
    /// else of it is opened.
    ///
    /// # Errors
    /// [`crate::Kind::Io`] where it cannot be looked at.
    fn beside(&self, path: &Path) -> Result<Option<FolderRef>> {
        let _ = path;
        Ok(None)
    }

    /// True where `name` is a symbolic link.
    fn is_link(&self, name: &Path) -> bool {
        let _ = name;
        false
    }

    /// True where `name` is a link, or stands behind one, that leads out of the folder. So what a listing
    /// gives may stand elsewhere.
    fn leads_out(&self, name: &Path) -> bool {
        let _ = name;
        false
    }
}

/// A file in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderItem {
    /// Its name, relative to the folder.
    pub name: PathBuf,
    /// Its length in bytes.
    pub len: u64,
}

/// Something in a folder that a listing passes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedItem {
    /// Its name, relative to the folder.
    pub name: PathBuf,
    /// Why it is not listed.
    pub reason: SkipReason,
}

/// Why something in a folder is not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipReason {
    /// A folder below the depth that was asked for.
    TooDeep,
    /// A link to a folder, which could lead anywhere, also in a ring.
    LinkToFolder,
    /// A link to nothing, or to what cannot be looked at.
    DeadLink,
    /// A pipe, a socket, a device.
    NotAFile,
}

impl SkipReason {
    /// What it is, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooDeep => "a folder that lies too deep",
            Self::LinkToFolder => "a link to a folder",
            Self::DeadLink => "a link that leads to nothing that can be read",
            Self::NotAFile => "a pipe, a socket or a device",
        }
    }
}

/// Fails unless `name` stays within the folder that it is relative to.
///
/// # Errors
/// [`crate::Kind::Corrupt`], code `unsafe-name`.
pub fn check_relative(name: &Path) -> Result<()> {
    let mut parts = name.components().peekable();
    let stays = parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)));
    if stays && !name.as_os_str().as_encoded_bytes().contains(&0) {
        return Ok(());
    }
    Err(Error::corrupt("unsafe-name", "this name cannot be the name of a file in a folder")
        .found(name.display())
        .hint("names with .., a leading / or a NUL could lead anywhere; rename it first"))
}

/// Fails unless `name`, which a file gives, stays in the folder and is written in the one way in which it can be:
/// `a//b` and `a/./b` are one file, which would be opened for each spelling.
///
/// # Errors
/// [`crate::Kind::Corrupt`], code `unsafe-name`.
pub fn check_plain(name: &str) -> Result<()> {
    check_relative(Path::new(name))?;
    let parts = Path::new(name).components().map(|part| part.as_os_str().as_encoded_bytes());
    if parts.eq(name.as_bytes().split(|&byte| byte == b'/')) {
        return Ok(());
    }
    Err(Error::corrupt("unsafe-name", "the name of a file is not written plainly")
        .found(name)
        .hint("parts are parted by one slash, and none of them is a dot"))
}

/// Fails unless `file`, which an index of shards names, is below `around` in `folder`. The file itself may be a link, as in the
/// cache of a hub; a linked folder on the way could lead anywhere.
///
/// # Errors
/// [`crate::Kind::Corrupt`], code `unsafe-name`.
pub fn check_shard(folder: &FolderRef, around: &Path, file: &str) -> Result<()> {
    check_plain(file)?;
    let mut above = Path::new(file).ancestors().skip(1).filter(|part| *part != Path::new(""));
    if above.any(|part| folder.is_link(&around.join(part))) {
        return Err(Error::corrupt(
            "unsafe-name",
            "the path of a shard leads through a symbolic link to a folder",
        )
        .found(escape(file))
        .hint("put the folder itself in the place of the link"));
    }
    Ok(())
}

/// Files in memory.
#[derive(Debug, Default)]
pub struct MemoryFolder {
    label: String,
    files: BTreeMap<PathBuf, SourceRef>,
}

impl MemoryFolder {
    /// An empty folder; errors will speak of `label`.
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), files: BTreeMap::new() }
    }

    /// Puts a file into it, in place of one of the same name.
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
        // The names are in the order of their parts, so those below one folder stand together.
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
    fn names_that_lead_out_are_refused() {
        for bad in ["", "..", "../x", "a/../../x", "/etc/passwd", "a\0b"] {
            assert_eq!(check_relative(Path::new(bad)).unwrap_err().code().as_str(), "unsafe-name", "{bad}");
        }
        for good in ["a", "a/b", "权重", "..a", ".a"] {
            check_relative(Path::new(good)).unwrap();
        }
    }

    #[test]
    fn names_have_one_spelling() {
        for bad in ["a//b", "a/./b", "a/", "a/b/.", "./a", "../a", "/a", ""] {
            assert_eq!(check_plain(bad).unwrap_err().code().as_str(), "unsafe-name", "{bad}");
        }
        for good in ["a", "a/b/c", "权重/..a", ".a"] {
            check_plain(good).unwrap();
        }
    }
}
