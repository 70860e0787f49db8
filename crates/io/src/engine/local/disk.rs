//! The few things that a checkpoint store does with files, one call each, so that a test can put
//! another disk underneath: one that fails, that stops, or that forgets what was not synced.
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

/// The file that is locked while a folder is written to. Hidden, empty, and left where it is.
pub const LOCK_NAME: &str = ".weighbridge.lock";

/// Entries that a listing may have before it is refused.
const MOST_ITEMS: usize = 1_000_000;

/// Where files are kept. Each call is one step that happens or does not; what it changed survives a
/// loss of power only after the sync that belongs to it.
///
/// Errors are [`weighbridge_core::Kind::Io`] and name the path, except where it is said.
pub trait Disk: fmt::Debug + Send + Sync {
    /// What stands in `folder`, in the order of the names' bytes; not what stands below it.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Limit`] for more entries than anybody looks through.
    fn list(&self, folder: &Path) -> Result<Vec<DiskItem>>;

    /// Opens a regular file, also behind a link; `None` where there is none.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn open(&self, path: &Path) -> Result<Option<SourceRef>>;

    /// Makes a new file of that length in bytes, with the rights of the file `like` where there is
    /// one.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`], also where there is such a file.
    fn create(&self, path: &Path, len: u64, like: &Path) -> Result<Box<dyn StagedFile>>;

    /// Makes a file empty, or makes an empty one.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn truncate(&self, path: &Path) -> Result<()>;

    /// Writes `bytes` at the end of a file, or into a new one.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn append(&self, path: &Path, bytes: &[u8]) -> Result<()>;

    /// Waits until the content of a file would survive a loss of power.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn sync_file(&self, path: &Path) -> Result<()>;

    /// Waits until the names in a folder would survive a loss of power.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn sync_folder(&self, path: &Path) -> Result<()>;

    /// Gives a file or folder another name, in one step. A file that has the name is replaced.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Takes away a file or a link.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn remove(&self, path: &Path) -> Result<()>;

    /// Gives a file a second name.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`], also where there is such a name.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;

    /// Makes a symbolic link at `path` that says `target`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`], also where there is such a name.
    fn symlink(&self, target: &Path, path: &Path) -> Result<()>;

    /// Makes a folder.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`], also where there is such a name.
    fn make_folder(&self, path: &Path) -> Result<()>;

    /// Takes away an empty folder.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn remove_folder(&self, path: &Path) -> Result<()>;

    /// Takes the lock that the file `path` stands for, which is made where it is not there. It is
    /// held until the result is dropped or the process dies. Nobody is made to wait.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`, where somebody else holds it; [`weighbridge_core::Kind::Io`] where the
    /// file system has no locks.
    fn lock(&self, path: &Path) -> Result<DiskLock>;
}

/// A lock that is held.
pub struct DiskLock(#[expect(dead_code, reason = "held, not used")] Box<dyn Any + Send + Sync>);

impl DiskLock {
    /// A lock that is held until `held` is dropped.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Box::new(held))
    }

    /// The error of a lock that somebody else holds.
    pub fn taken(path: &Path) -> Error {
        Error::usage("locked", "another process or thread is writing to this folder")
            .in_file(path.display())
            .hint("wait until it is done; the lock ends with the process that holds it")
    }
}

impl fmt::Debug for DiskLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskLock")
    }
}

/// Something in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskItem {
    /// Its name in the folder.
    pub name: OsString,
    /// What it is.
    pub kind: ItemKind,
}

/// What something in a folder is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemKind {
    /// A regular file of that length in bytes.
    File(u64),
    /// A symbolic link.
    Link {
        /// What it says.
        target: PathBuf,
        /// The length in bytes of the regular file that it leads to, if it does.
        len: Option<u64>,
    },
    /// A folder.
    Folder,
    /// A pipe, a socket, a device.
    Other,
}

impl ItemKind {
    /// The length in bytes of what is read under the name, where that is a regular file.
    pub fn len(&self) -> Option<u64> {
        match self {
            Self::File(len) => Some(*len),
            Self::Link { len, .. } => *len,
            Self::Folder | Self::Other => None,
        }
    }

    /// True for a file without a byte.
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
                // It went away since the folder was read.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(fail("cannot look at the file", &entry.path())(e)),
            }
            if items.len() > MOST_ITEMS {
                return Err(Error::limit("too-many-files", "the folder holds more files than a model would")
                    .in_file(folder.display())
                    .expected(format_args!("at most {MOST_ITEMS}")));
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
            Err(e) => Err(fail("cannot look at the file", path)(e)),
        }
    }

    fn create(&self, path: &Path, len: u64, like: &Path) -> Result<Box<dyn StagedFile>> {
        let handle = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let handle = Arc::new(handle.map_err(fail("cannot make a file", path))?);
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
        // Opened for writing, as some systems want it.
        let file = OpenOptions::new().write(true).open(path);
        file.and_then(|file| file.sync_all()).map_err(fail("cannot sync the file", path))
    }

    fn sync_folder(&self, path: &Path) -> Result<()> {
        sync_folder(path).map_err(fail("cannot sync the folder", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(fail("cannot rename to this name", to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(fail("cannot remove the file", path))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        fs::hard_link(from, to).map_err(fail("cannot link the file", from))
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        symlink(target, path).map_err(fail("cannot make a symbolic link", path))
    }

    fn make_folder(&self, path: &Path) -> Result<()> {
        fs::create_dir(path).map_err(fail("cannot make the folder", path))
    }

    fn remove_folder(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(fail("cannot remove the folder", path))
    }

    fn lock(&self, path: &Path) -> Result<DiskLock> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(fail("cannot make the file that is locked", path))?;
        match file.try_lock() {
            Ok(()) => Ok(DiskLock::new(Locked { file, process: std::process::id() })),
            Err(TryLockError::WouldBlock) => Err(DiskLock::taken(path)),
            Err(TryLockError::Error(e)) => Err(fail("cannot lock", path)(e)),
        }
    }
}

/// A file that is locked by this process.
struct Locked {
    file: File,
    process: u32,
}

impl Drop for Locked {
    fn drop(&mut self) {
        // A process that was forked meanwhile has the file open, too: to close it here would not free the lock, and what the
        // other drops is not its own.
        if self.process == std::process::id() {
            // Closing frees it as well.
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
