//! The few things that writing in place does with files, one call each, so that a test can put a disk
//! underneath that fails or stops at any of them.
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

/// What is known of a file without reading it: whether it is still the one that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// The length in bytes.
    pub len: u64,
    modified: Option<SystemTime>,
    /// Device, number and time of the last change of anything, where the system has them.
    identity: Option<(u64, u64, i64, i64)>,
}

impl Fingerprint {
    /// Looks at the file `path`, and whether it may be changed in place.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] where it is not there; [`weighbridge_core::Kind::Usage`]: `not-a-file`; `link` for a symbolic
    /// link; `several-names` where the file has another name besides; `read-only`.
    pub fn of(path: &Path) -> Result<Self> {
        let look = || -> Result<Self> {
            let found = file_itself(path)?;
            if names(&found) > 1 {
                return Err(several_names(&found)
                    .hint(phrase![Opt::InPlace.with("rewrite"), " makes a new file under this name alone"]));
            }
            if found.permissions().readonly() {
                return Err(read_only().hint("allow writing to it first, or write a new one"));
            }
            Ok(Self::from(&found))
        };
        look().map_err(|e| e.in_file(path.display()))
    }
}

/// Looks whether an edit of the file `path` may be taken back in it: `is_whole` where all of the edit is in it. A file that
/// was given another name since then would change under that, too; of one that is half written no name is of any use.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`] where it is not there; [`weighbridge_core::Kind::Usage`]: `not-a-file`, `link`, `read-only`, `several-names`.
pub(super) fn check_undo(path: &Path, is_whole: bool) -> Result<()> {
    let look = || -> Result<()> {
        let found = file_itself(path)?;
        if found.permissions().readonly() {
            return Err(read_only().hint("allow writing to it first"));
        }
        if is_whole && names(&found) > 1 {
            return Err(several_names(&found).hint(
                "put a copy of it in its place (cp FILE NEW, then mv NEW FILE), which the other names do not share, and undo the edit there",
            ));
        }
        Ok(())
    };
    look().map_err(|e| e.in_file(path.display()))
}

/// What is known of a file that is there under its own name.
fn file_itself(path: &Path) -> Result<Metadata> {
    let found = fs::symlink_metadata(path).map_err(|e| Error::io("cannot look at the file", e))?;
    if found.is_symlink() {
        return Err(Error::usage("link", "this is a symbolic link: what it leads to may be used elsewhere")
            .hint("name the file itself, or write a new one"));
    }
    if !found.is_file() {
        return Err(Error::usage("not-a-file", "only a file can be changed in place, and this is none")
            .hint(phrase![Opt::InPlace.with("rewrite"), " replaces a folder as a whole"]));
    }
    Ok(found)
}

fn several_names(found: &Metadata) -> Error {
    Error::usage("several-names", "the file has other names (hard links), which would change too")
        .found(format_args!("{} names", names(found)))
}

fn read_only() -> Error {
    Error::usage("read-only", "the file is marked as read-only")
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

/// Where files are that are written into. Each call is one step that happens or does not.
///
/// Errors are [`weighbridge_core::Kind::Io`] and name the path, except where it is said.
pub trait PatchDisk: Debug {
    /// Opens a file for reading and writing, and locks it until it is dropped.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Usage`], `locked`, where another run writes into it.
    fn open(&self, path: &Path) -> Result<Box<dyn PatchFile>>;

    /// True where there is something at `path`.
    fn exists(&self, path: &Path) -> bool;

    /// Reads a file of at most `most` bytes; `None` where there is none.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Limit`] for a longer one.
    fn read(&self, path: &Path, most: u64) -> Result<Option<Vec<u8>>>;

    /// Makes a file of these bytes that survives a loss of power, with the rights of the file `like`. It
    /// comes into being as a whole, or not at all.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn keep(&self, path: &Path, bytes: &[u8], like: &Path) -> Result<()>;

    /// Takes a file away, so that it stays away.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn remove(&self, path: &Path) -> Result<()>;
}

/// A file that is written into.
pub trait PatchFile: Debug {
    /// What is known of it now.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn fingerprint(&self) -> Result<Fingerprint>;

    /// Fills the buffer with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`], also where there are not as many.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Writes all bytes at `offset`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; some of them may be written then.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Gives the file its length in bytes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn set_len(&self, len: u64) -> Result<()>;

    /// Waits until what was written would survive a loss of power.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn sync(&self) -> Result<()>;
}

/// The file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalPatchDisk;

/// The folder around a path.
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
        // A file system without locks is fine: what was read is held against the file once more.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(Error::usage("locked", "another process or thread is writing into this file")
                .in_file(label)
                .hint("wait until it is done; the lock ends with the process that holds it"));
        }
        Ok(Box::new(LocalPatchFile { file, label }))
    }

    fn exists(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok()
    }

    fn read(&self, path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
        let Some(source) = LocalDisk.open(path)? else { return Ok(None) };
        if source.len() > most {
            return Err(Error::limit("undo-too-long", "the undo record is longer than any that is written")
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
        let metadata = self.file.metadata().map_err(|e| self.io("cannot look at the file", e))?;
        Ok(Fingerprint::from(&metadata))
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        crate::source::read_file_at(&self.file, offset, buffer)
            .map_err(|e| self.io("cannot read the file", e).at(offset))
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        crate::engine::local::write_all_at(&self.file, offset, bytes)
            .map_err(|e| self.io("cannot write into the file", e).at(offset))
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|e| self.io("cannot change the length of the file", e))
    }
    fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|e| self.io("cannot sync the file", e))
    }
}
