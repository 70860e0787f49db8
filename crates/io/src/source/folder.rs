//! A folder of the file system.
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

/// Entries that a listing may have before it is refused.
const MOST_ITEMS: usize = 1_000_000;

/// Fails where a part of `name`, below `folder`, is a symbolic link: it could lead out of the folder.
/// Parts that do not exist are no links. The folder itself may be one.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], code `unsafe-name`; [`weighbridge_core::Kind::Io`] where a part cannot be looked at.
pub fn check_no_links(folder: &Path, name: &Path) -> Result<()> {
    let mut path = folder.to_owned();
    for part in name.components() {
        path.push(part);
        match std::fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.file_type().is_symlink() => {
                return Err(Error::corrupt("unsafe-name", "the path leads through a symbolic link")
                    .expected(format_args!("a file below {}", folder.display()))
                    .found(path.display())
                    .hint("links are not followed here: put the file or folder itself in their place"));
            }
            Ok(_) => {}
            // What comes after this does not exist either.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => break,
            Err(error) => return Err(Error::io("cannot look at the file", error).in_file(path.display())),
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
    /// The folder at `path`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] where there is nothing, [`weighbridge_core::Kind::Usage`] where it is no folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let label = path_text(path);
        if PathKind::of(path)? != PathKind::Folder {
            return Err(Error::usage("not-a-folder", "this is not a folder").in_file(label));
        }
        Ok(Self { path: path.to_owned(), label })
    }

    /// The folder in which the file at `path` stands, and the file's name in it.
    pub fn around(path: &Path) -> Option<(Self, PathBuf)> {
        let name = PathBuf::from(path.file_name()?);
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Some((Self { path: folder.to_owned(), label: path_text(folder) }, name))
    }

    /// All that stands in it, `depth` levels deep, as far as it can be looked at: for those who say what they did
    /// not see. What [`list`](Folder::list) and [`skipped`](Folder::skipped) give, and the folders below it that
    /// cannot be listed, for which those fail.
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
            // What a link leads to counts, if it is a file; what has vanished meanwhile does not.
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

    /// As [`survey`](Self::survey), where every folder must be listed.
    fn walked(&self, depth: usize) -> Result<Survey> {
        let mut found = self.survey(depth)?;
        match found.unreadable.pop() {
            Some((_, error)) => Err(error),
            None => Ok(found),
        }
    }
}

/// All that stands in a folder, as far as it can be looked at; each in the order of the names' bytes.
#[derive(Debug, Default)]
pub struct Survey {
    /// The files.
    pub items: Vec<FolderItem>,
    /// What is passed over.
    pub skipped: Vec<SkippedItem>,
    /// Folders that could not be listed, or not to their end, by their names, and why. Files that were met until then
    /// stand in `items`.
    pub unreadable: Vec<(PathBuf, Error)>,
}

impl Survey {
    fn check(&self, label: &str) -> Result<()> {
        if self.items.len().max(self.skipped.len()).max(self.unreadable.len()) <= MOST_ITEMS {
            return Ok(());
        }
        Err(Error::limit("too-many-files", "the folder holds more files than a model would")
            .in_file(label)
            .expected(format_args!("at most {MOST_ITEMS}")))
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
            // Where it leads cannot be told.
            _ => self.is_link(name),
        }
    }

    fn open(&self, name: &Path) -> Result<Option<SourceRef>> {
        check_relative(name).map_err(|e| e.in_file(&self.label))?;
        // "." is where a lone file stands; its label shall be what the caller typed.
        let path = if self.path == Path::new(".") { name.to_owned() } else { self.path.join(name) };
        match PathKind::of(&path) {
            Ok(PathKind::File) => Ok(Some(Arc::new(FileSource::open(path)?))),
            Ok(_) => Ok(None),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// True where there is nothing at a path. What is there and cannot be read is another matter.
fn is_absent(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|e| e.downcast_ref::<std::io::Error>());
    // A name that is longer than the file system allows names nothing either.
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
    fn what_a_listing_passes_over_is_told() {
        use std::os::unix::{fs::symlink, net::UnixListener};
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/deep")).unwrap();
        std::fs::write(dir.path().join("w"), "1").unwrap();
        symlink("w", dir.path().join("link")).unwrap();
        symlink("nowhere", dir.path().join("a/dead")).unwrap();
        symlink(outside.path(), dir.path().join("a/out")).unwrap();
        symlink(dir.path(), dir.path().join("a/ring")).unwrap();
        let _socket = UnixListener::bind(dir.path().join("socket")).unwrap();
        let folder = LocalFolder::open(dir.path()).unwrap();
        let skipped = |depth| -> Vec<(String, SkipReason)> {
            let items = folder.skipped(depth).unwrap().into_iter();
            items.map(|item| (item.name.display().to_string(), item.reason)).collect()
        };
        let told = |name: &str, reason| (name.to_owned(), reason);
        let socket = told("socket", SkipReason::NotAFile);
        assert_eq!(skipped(1), [told("a", SkipReason::TooDeep), socket.clone()]);
        let links = [
            told("a/dead", SkipReason::DeadLink),
            told("a/out", SkipReason::LinkToFolder),
            told("a/ring", SkipReason::LinkToFolder),
            socket,
        ];
        assert_eq!(skipped(3), links);
        assert_eq!(
            skipped(2),
            [&[links[0].clone(), told("a/deep", SkipReason::TooDeep)], &links[1..]].concat()
        );
        let names: Vec<_> = folder.list(9).unwrap().into_iter().map(|i| i.name).collect();
        assert_eq!(names, ["link", "w"].map(PathBuf::from));
    }

    /// A path may have so many bytes and no more, so the system cannot list what lies deeper. The name of each folder
    /// is short enough.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_survey_goes_on_where_a_folder_cannot_be_listed() {
        use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
        let dir = tempfile::tempdir().unwrap();
        let long = "d".repeat(250);
        std::fs::write(dir.path().join("z"), "1").unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        // Step by step from within, as the whole path would be too long.
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
        // Whoever must see everything is told that it cannot be.
        assert_eq!(folder.list(40).unwrap_err().kind(), Kind::Io);
        assert_eq!(folder.skipped(40).unwrap_err().kind(), Kind::Io);
    }

    #[test]
    fn the_folder_around_a_file() {
        let (folder, name) = LocalFolder::around(Path::new("some/where/x.bin")).unwrap();
        assert_eq!((folder.label(), name.as_path()), ("some/where", Path::new("x.bin")));
        let (folder, _) = LocalFolder::around(Path::new("x.bin")).unwrap();
        assert_eq!(folder.label(), ".");
        assert!(LocalFolder::around(Path::new("/")).is_none());
    }
}
