//! Folders of the file system.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use super::{
    FileSource, Folder, FolderItem, FolderRef, PathKind, SkipReason, SkippedItem, SourceRef, check_relative,
    sort_by_name,
};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::text::path_text;

/// Most entries of a listing.
const MAX_ITEMS: usize = 1_000_000;

/// Fails where a part of `name`, relative to `folder`, is a symbolic link: it could point outside the folder.
/// Parts that do not exist pass. The folder itself may be a link.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], code `unsafe-name`; [`weighbridge_core::Kind::Io`] where a part is not
/// accessible.
pub fn check_no_links(folder: &Path, name: &Path) -> Result<()> {
    let mut path = folder.to_owned();
    for part in name.components() {
        path.push(part);
        match std::fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.file_type().is_symlink() => {
                return Err(Error::corrupt("unsafe-name", "the path contains a symbolic link")
                    .expected(format_args!("a file below {}", folder.display()))
                    .found(path.display())
                    .hint("links are not followed here; replace the link with the file or folder itself"));
            }
            Ok(_) => {}
            // Later parts do not exist either.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => break,
            Err(error) => return Err(Error::io("cannot access the file", error).in_file(path.display())),
        }
    }
    Ok(())
}

/// A folder of the file system.
#[derive(Debug)]
pub struct LocalFolder {
    path: PathBuf,
    label: String,
}

impl LocalFolder {
    /// Opens the folder at `path`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] where it does not exist, [`weighbridge_core::Kind::Usage`] where it is not a folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let label = path_text(path);
        let message = match PathKind::of(path)? {
            PathKind::Folder => return Ok(Self { path: path.to_owned(), label }),
            PathKind::File => "the path is a file; a folder is expected",
            PathKind::Other => "the path is not a folder",
        };
        Err(Error::usage("not-a-folder", message).in_file(label))
    }

    /// Returns the folder that contains the file at `path`, and the file's name in it.
    pub fn around(path: &Path) -> Option<(Self, PathBuf)> {
        let name = PathBuf::from(path.file_name()?);
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Some((Self { path: folder.to_owned(), label: path_text(folder) }, name))
    }

    /// Lists everything in the folder, `depth` levels deep: the results of [`list`](Folder::list) and
    /// [`skipped`](Folder::skipped), and the subfolders that cannot be listed, for which those two fail. For reports
    /// that must name all unread parts.
    ///
    /// # Errors
    /// As [`list`](Folder::list), but [`weighbridge_core::Kind::Io`] only for this folder itself.
    pub fn survey(&self, depth: usize) -> Result<Survey> {
        let mut found = Survey::default();
        self.walk(Path::new(""), depth, &mut found)?;
        sort_by_name(&mut found.items, |item| &item.name);
        sort_by_name(&mut found.skipped, |item| &item.name);
        sort_by_name(&mut found.unreadable, |(name, _)| name);
        Ok(found)
    }

    fn walk(&self, below: &Path, depth: usize, found: &mut Survey) -> Result<()> {
        let fail = |e| Error::io("cannot list the folder", e).in_file(path_text(&self.path.join(below)));
        for entry in std::fs::read_dir(self.path.join(below)).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = below.join(entry.file_name());
            let kind = entry.file_type().map_err(fail)?;
            if kind.is_dir() && depth > 1 {
                match self.walk(&name, depth - 1, found) {
                    Err(error) if error.kind() == Kind::Io => {
                        found.unreadable.push((name, error));
                        found.check(&self.label)?;
                    }
                    walked => walked?,
                }
                continue;
            }
            // The target of a link counts if it is a file; entries deleted in the meantime do not count.
            let reason = match std::fs::metadata(entry.path()) {
                _ if kind.is_dir() => SkipReason::TooDeep,
                Ok(metadata) if metadata.is_file() => {
                    found.items.push(FolderItem { name, len: metadata.len() });
                    found.check(&self.label)?;
                    continue;
                }
                Ok(metadata) if metadata.is_dir() => SkipReason::LinkToFolder,
                Ok(_) => SkipReason::NotAFile,
                Err(_) if kind.is_symlink() => SkipReason::DeadLink,
                Err(_) => continue,
            };
            found.skipped.push(SkippedItem { name, reason });
            found.check(&self.label)?;
        }
        Ok(())
    }

    /// Same as [`survey`](Self::survey), but fails where a folder cannot be listed.
    fn walked(&self, depth: usize) -> Result<Survey> {
        let mut found = self.survey(depth)?;
        match found.unreadable.pop() {
            Some((_, error)) => Err(error),
            None => Ok(found),
        }
    }
}

/// Content of a folder, each list in the byte order of the names.
#[derive(Debug, Default)]
pub struct Survey {
    /// The files.
    pub items: Vec<FolderItem>,
    /// Skipped entries.
    pub skipped: Vec<SkippedItem>,
    /// Names of folders that could not be listed completely, with the error. Files listed before the error are in
    /// `items`.
    pub unreadable: Vec<(PathBuf, Error)>,
}

impl Survey {
    fn check(&self, label: &str) -> Result<()> {
        if self.items.len().max(self.skipped.len()).max(self.unreadable.len()) <= MAX_ITEMS {
            return Ok(());
        }
        Err(Error::limit("too-many-files", "the folder has too many files for a model")
            .in_file(label)
            .expected(format_args!("at most {MAX_ITEMS}")))
    }
}

impl Folder for LocalFolder {
    fn label(&self) -> &str {
        &self.label
    }

    fn list(&self, depth: usize) -> Result<Vec<FolderItem>> {
        Ok(self.walked(depth)?.items)
    }

    fn skipped(&self, depth: usize) -> Result<Vec<SkippedItem>> {
        Ok(self.walked(depth)?.skipped)
    }

    fn beside(&self, path: &Path) -> Result<Option<FolderRef>> {
        let path = self.path.join(path);
        match PathKind::of(&path) {
            Ok(PathKind::Folder) => Ok(Some(Arc::new(Self::open(path)?))),
            Ok(_) => Ok(None),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_link(&self, name: &Path) -> bool {
        std::fs::symlink_metadata(self.path.join(name)).is_ok_and(|m| m.file_type().is_symlink())
    }

    fn leads_out(&self, name: &Path) -> bool {
        let place = |path: &Path| std::fs::canonicalize(path);
        match (place(&self.path), place(&self.path.join(name))) {
            (Ok(folder), Ok(file)) => !file.starts_with(folder),
            // The target is unknown.
            _ => self.is_link(name),
        }
    }

    fn open(&self, name: &Path) -> Result<Option<SourceRef>> {
        check_relative(name).map_err(|e| e.in_file(&self.label))?;
        // For a single file in "." the label must be the name that the caller typed.
        let path = if self.path == Path::new(".") { name.to_owned() } else { self.path.join(name) };
        match PathKind::of(&path) {
            Ok(PathKind::File) => Ok(Some(Arc::new(FileSource::open(path)?))),
            Ok(_) => Ok(None),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// True where the path does not exist. False where it exists but cannot be read.
fn is_absent(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|e| e.downcast_ref::<std::io::Error>());
    // A name longer than the file system allows does not exist either.
    cause.is_some_and(|e| {
        use std::io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
        matches!(e.kind(), NotFound | NotADirectory | InvalidFilename)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::MemoryFolder;

    #[test]
    fn both_folders_list_and_open_alike() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/deep")).unwrap();
        let mut memory = MemoryFolder::new("memory");
        for (name, bytes) in [("b", "22"), ("a/b", "333"), ("a/deep/c", "4444"), ("Z", "")] {
            std::fs::write(dir.path().join(name), bytes).unwrap();
            memory = memory.with(name, bytes.into());
        }
        let local = LocalFolder::open(dir.path()).unwrap();
        for depth in 1..4 {
            assert_eq!(local.list(depth).unwrap(), memory.list(depth).unwrap());
            assert_eq!(local.skipped(depth).unwrap(), memory.skipped(depth).unwrap());
        }
        let names: Vec<_> = local.list(9).unwrap().into_iter().map(|i| i.name).collect();
        assert_eq!(names, ["Z", "a/b", "a/deep/c", "b"].map(PathBuf::from));
        for folder in [&local as &dyn Folder, &memory] {
            assert_eq!(folder.open(Path::new("a/b")).unwrap().unwrap().len(), 3);
            assert!(folder.open(Path::new("a")).unwrap().is_none());
            assert!(folder.open(Path::new("nope")).unwrap().is_none());
            assert_eq!(folder.open(Path::new("../x")).unwrap_err().code().as_str(), "unsafe-name");
        }
    }

    #[cfg(unix)]
    #[test]
    fn skipped_entries_are_reported_with_reasons() {
        use std::os::unix::{fs::symlink, net::UnixListener};
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/deep")).unwrap();
        std::fs::write(dir.path().join("w"), "1").unwrap();
        symlink("w", dir.path().join("link")).unwrap();
        symlink("missing", dir.path().join("a/dead")).unwrap();
        symlink(outside.path(), dir.path().join("a/out")).unwrap();
        symlink(dir.path(), dir.path().join("a/ring")).unwrap();
        let _socket = UnixListener::bind(dir.path().join("socket")).unwrap();
        let folder = LocalFolder::open(dir.path()).unwrap();
        let skipped = |depth| -> Vec<(String, SkipReason)> {
            let items = folder.skipped(depth).unwrap().into_iter();
            items.map(|item| (item.name.display().to_string(), item.reason)).collect()
        };
        let item = |name: &str, reason| (name.to_owned(), reason);
        let socket = item("socket", SkipReason::NotAFile);
        assert_eq!(skipped(1), [item("a", SkipReason::TooDeep), socket.clone()]);
        let links = [
            item("a/dead", SkipReason::DeadLink),
            item("a/out", SkipReason::LinkToFolder),
            item("a/ring", SkipReason::LinkToFolder),
            socket,
        ];
        assert_eq!(skipped(3), links);
        assert_eq!(
            skipped(2),
            [&[links[0].clone(), item("a/deep", SkipReason::TooDeep)], &links[1..]].concat()
        );
        let names: Vec<_> = folder.list(9).unwrap().into_iter().map(|i| i.name).collect();
        assert_eq!(names, ["link", "w"].map(PathBuf::from));
    }

    /// The length of a path is limited, so the system cannot list folders below a certain depth. The name of each
    /// folder is short enough.
    #[cfg(target_os = "linux")]
    #[test]
    fn survey_continues_after_an_unlistable_folder() {
        use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
        let dir = tempfile::tempdir().unwrap();
        let long = "d".repeat(250);
        std::fs::write(dir.path().join("z"), "1").unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        // One level at a time, as the whole path would be too long.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut deepest = open(dir.path().join("a"), flags, Mode::empty()).unwrap();
        for _ in 0..18 {
            mkdirat(&deepest, &long, Mode::RWXU).unwrap();
            deepest = openat(&deepest, &long, flags, Mode::empty()).unwrap();
        }
        let folder = LocalFolder::open(dir.path()).unwrap();
        let found = folder.survey(40).unwrap();
        assert_eq!(found.items, [FolderItem { name: "z".into(), len: 1 }]);
        let [(name, error)] = found.unreadable.as_slice() else { panic!("{:?}", found.unreadable) };
        assert!(name.starts_with("a") && name.components().count() > 10, "{}", name.display());
        assert_eq!(error.kind(), Kind::Io);
        // The complete listings fail.
        assert_eq!(folder.list(40).unwrap_err().kind(), Kind::Io);
        assert_eq!(folder.skipped(40).unwrap_err().kind(), Kind::Io);
    }

    #[test]
    fn folder_around_a_file_is_found() {
        let (folder, name) = LocalFolder::around(Path::new("some/where/x.bin")).unwrap();
        assert_eq!((folder.label(), name.as_path()), ("some/where", Path::new("x.bin")));
        let (folder, _) = LocalFolder::around(Path::new("x.bin")).unwrap();
        assert_eq!(folder.label(), ".");
        assert!(LocalFolder::around(Path::new("/")).is_none());
    }
}
