//! File operations of in-place edits, one call each, so that tests can substitute a disk that fails or stops at any
//! of them.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use crate::engine::{Disk, LocalDisk, hidden_path};
use crate::source::{Source, read_vec};
use std::fmt::Debug;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::SystemTime;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// Metadata that identifies a version of a file without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// Length in bytes.
    pub len: u64,
    modified: Option<SystemTime>,
    /// Device, inode and change time, where the system has them.
    identity: Option<(u64, u64, i64, i64)>,
}

impl Fingerprint {
    /// Reads the fingerprint of the file `path`, and checks that it may be edited in place.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] where it does not exist; [`weighbridge_core::Kind::Usage`]: `not-a-file`; `link` for a
    /// symbolic link; `several-names` where the file has other hard links; `read-only`.
    pub fn of(path: &Path) -> Result<Self> {
        let look = || -> Result<Self> {
            let found = file_itself(path)?;
            if names(&found) > 1 {
                return Err(several_names(&found)
                    .hint(phrase![Opt::InPlace.with("rewrite"), " writes a new file under this name only"]));
            }
            if found.permissions().readonly() {
                return Err(read_only().hint("make the file writable, or write a new one"));
            }
            Ok(Self::from(&found))
        };
        look().map_err(|e| e.in_file(path.display()))
    }
}

/// Checks that an edit of the file `path` may be undone in place. `is_whole` is true where the edit is complete: then the
/// undo would also change other hard links made since. A partially written file is of no use under any name.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`] where it does not exist; [`weighbridge_core::Kind::Usage`]: `not-a-file`, `link`,
/// `read-only`, `several-names`.
pub(super) fn check_undo(path: &Path, is_whole: bool) -> Result<()> {
    let look = || -> Result<()> {
        let found = file_itself(path)?;
        if found.permissions().readonly() {
            return Err(read_only().hint("make the file writable first"));
        }
        if is_whole && names(&found) > 1 {
            return Err(several_names(&found).hint(
                "replace the file by a copy (cp FILE NEW, then mv NEW FILE), which separates it from the other links; then undo the edit",
            ));
        }
        Ok(())
    };
    look().map_err(|e| e.in_file(path.display()))
}

/// Metadata of an existing file that is not a link.
fn file_itself(path: &Path) -> Result<Metadata> {
    let found = fs::symlink_metadata(path).map_err(|e| Error::io("cannot access the file", e))?;
    if found.is_symlink() {
        return Err(Error::usage(
            "link",
            "the path is a symbolic link, and other names may point to the same file",
        )
        .hint("give the path of the file itself, or write a new one"));
    }
    if !found.is_file() {
        return Err(Error::usage("not-a-file", "the path is not a file; only files can be edited in place")
            .hint(phrase![Opt::InPlace.with("rewrite"), " replaces a folder as a whole"]));
    }
    Ok(found)
}

fn several_names(found: &Metadata) -> Error {
    Error::usage("several-names", "the file has other hard links, which would change too")
        .found(format_args!("{} names", names(found)))
}

fn read_only() -> Error {
    Error::usage("read-only", "the file is read-only")
}

impl From<&Metadata> for Fingerprint {
    fn from(metadata: &Metadata) -> Self {
        Self { len: metadata.len(), modified: metadata.modified().ok(), identity: identity(metadata) }
    }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> Option<(u64, u64, i64, i64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
}

#[cfg(unix)]
fn names(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(metadata)
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> Option<(u64, u64, i64, i64)> {
    None
}

#[cfg(not(unix))]
fn names(_: &Metadata) -> u64 {
    1
}

/// Storage of files that are edited in place. Each call is one atomic step.
///
/// Errors are [`weighbridge_core::Kind::Io`] and name the path, unless documented otherwise.
pub trait PatchDisk: Debug {
    /// Opens a file for reading and writing, and locks it until it is dropped.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Usage`], `locked`, where another run writes to it.
    fn open(&self, path: &Path) -> Result<Box<dyn PatchFile>>;

    /// True where `path` exists.
    fn exists(&self, path: &Path) -> bool;

    /// Reads a file of at most `most` bytes; `None` where it does not exist.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Limit`] for a longer one.
    fn read(&self, path: &Path, most: u64) -> Result<Option<Vec<u8>>>;

    /// Creates a file with these bytes atomically, with the permissions of the file `like`. It survives a power failure
    /// after the call.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn keep(&self, path: &Path, bytes: &[u8], like: &Path) -> Result<()>;

    /// Removes a file; the removal survives a power failure after the call.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn remove(&self, path: &Path) -> Result<()>;
}

/// File that is edited in place.
pub trait PatchFile: Debug {
    /// Returns the current fingerprint.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn fingerprint(&self) -> Result<Fingerprint>;

    /// Fills the buffer with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`], also where the file is too short.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Writes all bytes at `offset`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; some of the bytes may be written then.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Sets the length of the file in bytes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn set_len(&self, len: u64) -> Result<()>;

    /// Waits until the written bytes survive a power failure.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn sync(&self) -> Result<()>;
}

/// The file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalPatchDisk;

/// Parent folder of a path.
fn around(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl PatchDisk for LocalPatchDisk {
    fn open(&self, path: &Path) -> Result<Box<dyn PatchFile>> {
        let label = path.display().to_string();
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|e| Error::io("cannot open the file for writing", e).in_file(&label))?;
        // Lock support is optional: the bytes that were read are compared with the file again.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(Error::usage("locked", "another process or thread is writing to this file")
                .in_file(label)
                .hint("wait until it has finished; the lock is released when that process ends"));
        }
        Ok(Box::new(LocalPatchFile { file, label }))
    }

    fn exists(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok()
    }

    fn read(&self, path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
        let Some(source) = LocalDisk.open(path)? else { return Ok(None) };
        if source.len() > most {
            return Err(Error::limit("undo-too-long", "the undo record is too long")
                .in_file(source.label())
                .expected(format_args!("at most {most} bytes"))
                .found(source.len()));
        }
        read_vec(&*source, 0, Source::len(&*source)).map(Some)
    }

    fn keep(&self, path: &Path, bytes: &[u8], like: &Path) -> Result<()> {
        let folder = around(path);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let hidden = hidden_path(folder, &name);
        let made = LocalDisk.create(&hidden, bytes.len() as u64, like).and_then(|file| {
            file.write_at(0, bytes)?;
            drop(file);
            LocalDisk.sync_file(&hidden)?;
            LocalDisk.rename(&hidden, path)
        });
        if let Err(error) = made {
            let _ = LocalDisk.remove(&hidden);
            return Err(error);
        }
        LocalDisk.sync_folder(folder)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        LocalDisk.remove(path)?;
        LocalDisk.sync_folder(around(path))
    }
}

#[derive(Debug)]
struct LocalPatchFile {
    file: File,
    label: String,
}

impl LocalPatchFile {
    fn io(&self, what: &str, error: io::Error) -> Error {
        Error::io(what, error).in_file(&self.label)
    }
}

impl PatchFile for LocalPatchFile {
    fn fingerprint(&self) -> Result<Fingerprint> {
        let metadata = self.file.metadata().map_err(|e| self.io("cannot access the file", e))?;
        Ok(Fingerprint::from(&metadata))
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        crate::source::read_file_at(&self.file, offset, buffer)
            .map_err(|e| self.io("cannot read the file", e).at(offset))
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        crate::engine::local::write_all_at(&self.file, offset, bytes)
            .map_err(|e| self.io("cannot write to the file", e).at(offset))
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|e| self.io("cannot set the length of the file", e))
    }
    fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|e| self.io("cannot sync the file", e))
    }
}
