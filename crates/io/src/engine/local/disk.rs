//! File operations of a checkpoint store, one call each, so that tests can substitute a disk that fails, stops, or
//! loses unsynced data.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use super::super::StagedFile;
use super::destination::sync_folder;
use super::staged::LocalFile;
use crate::source::{FileSource, SourceRef};
use std::any::Any;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};

/// Name of the lock file of a folder that is written to: hidden, empty, and kept.
pub const LOCK_NAME: &str = ".weighbridge.lock";

/// Most entries of a listing.
const MAX_ITEMS: usize = 1_000_000;

/// Storage of files. Each call is one atomic step; its changes survive a power failure only after the matching sync.
///
/// Errors are [`weighbridge_core::Kind::Io`] and name the path, unless documented otherwise.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Lists the direct entries of `folder`, in the byte order of their names.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Limit`] for more than a million entries.
    fn list(&self, folder: &Path) -> Result<Vec<DiskItem>>;

    /// Opens a regular file, also through a link; `None` where it does not exist or is not a regular file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn open(&self, path: &Path) -> Result<Option<SourceRef>>;

    /// Creates a file of this length in bytes, with the permissions of the file `like` if it exists.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`], also where the file exists.
    fn create(&self, path: &Path, len: u64, like: &Path) -> Result<Box<dyn StagedFile>>;

    /// Empties a file, or creates an empty one.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn truncate(&self, path: &Path) -> Result<()>;

    /// Appends `bytes` to a file, or to a new one.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn append(&self, path: &Path, bytes: &[u8]) -> Result<()>;

    /// Waits until the content of a file survives a power failure.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn sync_file(&self, path: &Path) -> Result<()>;

    /// Waits until the names in a folder survive a power failure.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn sync_folder(&self, path: &Path) -> Result<()>;

    /// Renames a file or folder atomically. An existing file with the new name is replaced.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file or a link.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn remove(&self, path: &Path) -> Result<()>;

    /// Creates a hard link.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`], also where the name exists.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;

    /// Creates a symbolic link at `path` to `target`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`], also where the name exists.
    fn symlink(&self, target: &Path, path: &Path) -> Result<()>;

    /// Creates a folder.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`], also where the name exists.
    fn make_folder(&self, path: &Path) -> Result<()>;

    /// Removes an empty folder.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn remove_folder(&self, path: &Path) -> Result<()>;

    /// Returns the number of bytes that can still be written below `folder`; `None` if the system does not tell.
    fn free_space(&self, folder: &Path) -> Option<u64> {
        let _ = folder;
        None
    }

    /// Acquires the lock of the file `path`, which is created if missing. The lock is held until the result is
    /// dropped or the process ends. Does not wait.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`, where another holder has it; [`weighbridge_core::Kind::Io`] where
    /// the file system does not support locks.
    fn lock(&self, path: &Path) -> Result<DiskLock>;
}

/// Lock that is held.
pub struct DiskLock(#[expect(dead_code, reason = "held, not used")] Box<dyn Any + Send + Sync>);

impl DiskLock {
    /// Creates a lock that is held until `held` is dropped.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Box::new(held))
    }

    /// Error for a lock that another holder has.
    pub fn taken(path: &Path) -> Error {
        Error::usage("locked", "another process or thread is writing to this folder")
            .in_file(path.display())
            .hint("wait until it has finished; the lock is released when that process ends")
    }
}

impl fmt::Debug for DiskLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskLock")
    }
}

/// Entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskItem {
    /// Name in the folder.
    pub name: OsString,
    /// Kind of the entry.
    pub kind: ItemKind,
}

/// Kind of a folder entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemKind {
    /// A regular file, with its length in bytes.
    File(u64),
    /// A symbolic link.
    Link {
        /// Stored target path.
        target: PathBuf,
        /// Length in bytes of the target, if it is a regular file.
        len: Option<u64>,
    },
    /// A folder.
    Folder,
    /// A pipe, a socket, a device.
    Other,
}

impl ItemKind {
    /// Length in bytes of the file that is read under the name, if it is a regular file.
    pub fn len(&self) -> Option<u64> {
        match self {
            Self::File(len) => Some(*len),
            Self::Link { len, .. } => *len,
            Self::Folder | Self::Other => None,
        }
    }

    /// True for an empty file.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

/// The file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalDisk;

fn fail(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |e| Error::io(what, e).in_file(path.display())
}

fn kind_of(entry: &fs::DirEntry) -> io::Result<ItemKind> {
    let kind = entry.file_type()?;
    if kind.is_dir() {
        return Ok(ItemKind::Folder);
    }
    if kind.is_symlink() {
        let len = fs::metadata(entry.path()).ok().filter(fs::Metadata::is_file).map(|m| m.len());
        return Ok(ItemKind::Link { target: fs::read_link(entry.path())?, len });
    }
    Ok(if kind.is_file() { ItemKind::File(entry.metadata()?.len()) } else { ItemKind::Other })
}

impl Disk for LocalDisk {
    fn list(&self, folder: &Path) -> Result<Vec<DiskItem>> {
        let mut items = Vec::new();
        for entry in fs::read_dir(folder).map_err(fail("cannot list the folder", folder))? {
            let entry = entry.map_err(fail("cannot list the folder", folder))?;
            match kind_of(&entry) {
                Ok(kind) => items.push(DiskItem { name: entry.file_name(), kind }),
                // Deleted since the folder was read.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(fail("cannot access the file", &entry.path())(e)),
            }
            if items.len() > MAX_ITEMS {
                return Err(Error::limit("too-many-files", "the folder has too many files for a model")
                    .in_file(folder.display())
                    .expected(format_args!("at most {MAX_ITEMS}")));
            }
        }
        items.sort_by(|a, b| a.name.as_encoded_bytes().cmp(b.name.as_encoded_bytes()));
        Ok(items)
    }

    fn open(&self, path: &Path) -> Result<Option<SourceRef>> {
        match fs::metadata(path) {
            Ok(found) if found.is_file() => Ok(Some(Arc::new(FileSource::open(path)?))),
            Ok(_) => Ok(None),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(e) => Err(fail("cannot access the file", path)(e)),
        }
    }

    fn create(&self, path: &Path, len: u64, like: &Path) -> Result<Box<dyn StagedFile>> {
        let handle = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let handle = Arc::new(handle.map_err(fail("cannot create the file", path))?);
        Ok(Box::new(LocalFile::new(handle, len, like, like.display().to_string())?))
    }

    fn truncate(&self, path: &Path) -> Result<()> {
        File::create(path).map(|_| ()).map_err(fail("cannot empty the file", path))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(bytes)).map_err(fail("cannot write to the file", path))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        // Opened for writing, as some systems require it.
        let file = OpenOptions::new().write(true).open(path);
        file.and_then(|file| file.sync_all()).map_err(fail("cannot sync the file", path))
    }

    fn sync_folder(&self, path: &Path) -> Result<()> {
        sync_folder(path).map_err(fail("cannot sync the folder", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(fail("cannot rename a file to this name", to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(fail("cannot remove the file", path))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        fs::hard_link(from, to).map_err(fail("cannot link the file", from))
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        symlink(target, path).map_err(fail("cannot create the symbolic link", path))
    }

    fn make_folder(&self, path: &Path) -> Result<()> {
        fs::create_dir(path).map_err(fail("cannot create the folder", path))
    }

    fn remove_folder(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(fail("cannot remove the folder", path))
    }

    #[cfg(unix)]
    fn free_space(&self, folder: &Path) -> Option<u64> {
        let found = rustix::fs::statvfs(folder).ok()?;
        found.f_bavail.checked_mul(found.f_frsize)
    }

    fn lock(&self, path: &Path) -> Result<DiskLock> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(fail("cannot create the lock file", path))?;
        match file.try_lock() {
            Ok(()) => Ok(DiskLock::new(Locked { file, process: std::process::id() })),
            Err(TryLockError::WouldBlock) => Err(DiskLock::taken(path)),
            Err(TryLockError::Error(e)) => Err(fail("cannot lock the file", path)(e)),
        }
    }
}

/// File locked by this process.
struct Locked {
    file: File,
    process: u32,
}

impl Drop for Locked {
    fn drop(&mut self) {
        // A process forked in the meantime has the file open, too: closing it here would not release the lock, and the fork
        // must not release a lock that it does not own.
        if self.process == std::process::id() {
            // Closing would release it, too.
            let _ = self.file.unlock();
        }
    }
}

#[cfg(unix)]
fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(windows)]
fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, path)
}
