//! A file on a local (or mounted) file system, committed by renaming a staged file over it.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use super::staging;
use super::{Sink, StagedFile};
use crate::error::{Error, Result};
use crate::plan::PlannedFile;
use crate::source::FileRange;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// One target file. The new content is staged beside it, synced, and renamed over it; a run that
/// is interrupted at any point leaves the old file as it was.
#[derive(Debug)]
pub struct LocalSink {
    target: PathBuf,
    folder: PathBuf,
    name: OsString,
    replace: bool,
    staged: Mutex<Option<PathBuf>>,
    swept: usize,
}

impl LocalSink {
    /// A sink for the file `target`. A symbolic link is followed: the file that it names is
    /// replaced. Leftovers of dead runs with the same target are removed.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`]: `exists` where there is such a file and `replace` is false,
    /// `not-a-file` where a folder or a device stands there; [`crate::Kind::Io`] where the folder
    /// is not there.
    pub fn file(target: impl AsRef<Path>, replace: bool) -> Result<Self> {
        let shown = target.as_ref().display().to_string();
        Self::prepare(target.as_ref(), replace).map_err(|e| e.in_file(shown))
    }

    fn prepare(target: &Path, replace: bool) -> Result<Self> {
        let mut target = target.to_path_buf();
        match fs::symlink_metadata(&target) {
            Ok(link) if link.is_symlink() => {
                target = fs::canonicalize(&target)
                    .map_err(|e| Error::io("the target is a symbolic link that leads nowhere", e))?;
            }
            _ => {}
        }
        match fs::metadata(&target) {
            Ok(old) if !old.is_file() => {
                return Err(Error::usage("not-a-file", "the target is not a regular file")
                    .hint("give the name of the file to write"));
            }
            Ok(_) if !replace => return Err(exists()),
            _ => {}
        }
        let Some(name) = target.file_name().map(OsString::from) else {
            return Err(Error::usage("not-a-file", "the target has no file name"));
        };
        let folder = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let found = fs::metadata(&folder).map_err(|e| {
            Error::io("cannot use the target's folder", e).hint("the folder must be there: make it first")
        })?;
        if !found.is_dir() {
            return Err(Error::usage("not-a-folder", "the target's folder is a file"));
        }
        let swept = staging::sweep(&folder, &name);
        Ok(Self { target, folder, name, replace, staged: Mutex::new(None), swept })
    }

    /// How many leftovers of dead runs were removed.
    pub fn swept(&self) -> usize {
        self.swept
    }

    fn io(&self, what: &str, error: io::Error) -> Error {
        Error::io(what, error).in_file(self.target.display())
    }

    fn take_staged(&self) -> Option<PathBuf> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn exists() -> Error {
    Error::usage("exists", "the target exists already").hint("use --force to replace it")
}

impl Sink for LocalSink {
    fn stage(&self, file: &PlannedFile) -> Result<Box<dyn StagedFile>> {
        let mut staged = self.staged.lock().unwrap_or_else(PoisonError::into_inner);
        if staged.is_some() {
            return Err(Error::usage("one-file", "this target holds one file, and the plan has more"));
        }
        let (handle, path) = staging::create(&self.folder, &self.name)
            .map_err(|e| self.io("cannot make a file beside the target", e))?;
        *staged = Some(path);
        handle.set_len(file.len).map_err(|e| self.io("cannot give the file its length", e))?;
        if let Ok(old) = fs::metadata(&self.target) {
            // The new file is as open or closed as the old one. Where that is refused, it keeps
            // the default, which is never more open than the user's own mask.
            let _ = handle.set_permissions(old.permissions());
        }
        Ok(Box::new(LocalFile { handle: Arc::new(handle), label: self.target.display().to_string() }))
    }

    fn publish(&self) -> Result<()> {
        let mut staged = self.staged.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = staged.as_ref() else { return Ok(()) };
        let moved =
            if self.replace { fs::rename(path, &self.target) } else { rename_new(path, &self.target) };
        match moved {
            Ok(()) => {
                *staged = None;
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Err(exists().in_file(self.target.display()))
            }
            Err(e) => Err(self.io("cannot rename the finished file to its name", e)),
        }
    }

    fn settle(&self) -> Result<()> {
        sync_folder(&self.folder)
            .map_err(|e| self.io("the new file is in place, but its folder could not be synced", e))
    }

    fn discard(&self) {
        if let Some(path) = self.take_staged() {
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for LocalSink {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Renames unless the target exists.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {}
            other => return other.map_err(io::Error::from),
        }
    }
    // Where the file system has no such call, look first. Another program could still slip in
    // between; that is the best that can be done there.
    if fs::symlink_metadata(to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(from, to)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[derive(Debug)]
struct LocalFile {
    handle: Arc<File>,
    label: String,
}

impl LocalFile {
    fn io(&self, what: &str, offset: u64, error: io::Error) -> Error {
        Error::io(what, error).in_file(&self.label).at(offset)
    }
}

impl StagedFile for LocalFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        write_all_at(&self.handle, offset, bytes).map_err(|e| self.io("cannot write", offset, e))
    }

    fn copy_from(&self, from: FileRange<'_>, skip: u64, offset: u64, len: u64) -> Result<u64> {
        kernel_copy(from.file, from.offset + skip, &self.handle, offset, len)
            .map_err(|e| self.io("cannot copy into the file", offset, e))
    }

    fn sync(&self) -> Result<()> {
        self.handle.sync_all().map_err(|e| Error::io("cannot sync the new file", e).in_file(&self.label))
    }
}

#[cfg(unix)]
fn write_all_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_all_at(file: &File, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Copies within the kernel where the system can. Returns the bytes done.
#[cfg(target_os = "linux")]
fn kernel_copy(from: &File, mut at: u64, to: &File, mut offset: u64, len: u64) -> io::Result<u64> {
    use rustix::io::Errno;
    let mut done = 0;
    while done < len {
        let step = usize::try_from((len - done).min(1 << 30)).unwrap_or(1 << 30);
        match rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut offset), step) {
            Ok(0) => break,
            Ok(n) => done += n as u64,
            Err(Errno::INTR) => {}
            // Other file systems, older kernels, odd files: the caller copies by hand.
            Err(Errno::XDEV | Errno::NOSYS | Errno::INVAL | Errno::NOTSUP | Errno::PERM | Errno::BADF) => {
                break;
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(done)
}

#[cfg(not(target_os = "linux"))]
fn kernel_copy(_: &File, _: u64, _: &File, _: u64, _: u64) -> io::Result<u64> {
    Ok(0)
}
