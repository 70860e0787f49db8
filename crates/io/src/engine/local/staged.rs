//! Staged file that is being filled.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use super::super::StagedFile;
use crate::source::FileRange;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};

#[derive(Debug)]
pub(super) struct LocalFile {
    handle: Arc<File>,
    label: String,
}

impl LocalFile {
    /// Sets the length of a new file, and copies the permissions of the replaced file `old`, if it exists.
    pub(super) fn new(handle: Arc<File>, len: u64, old: &Path, label: String) -> Result<Self> {
        let file = Self { handle, label };
        file.handle
            .set_len(len)
            .map_err(|e| Error::io("cannot set the length of the file", e).in_file(&file.label))?;
        if let Ok(old) = fs::symlink_metadata(old)
            && old.is_file()
        {
            // If the system refuses this, the default remains, which never exceeds the user's mask.
            let _ = file.handle.set_permissions(old.permissions());
        }
        Ok(file)
    }

    fn io(&self, what: &str, offset: u64, error: io::Error) -> Error {
        Error::io(what, error).in_file(&self.label).at(offset)
    }
}

impl StagedFile for LocalFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        write_all_at(&self.handle, offset, bytes).map_err(|e| self.io("cannot write to the file", offset, e))
    }

    fn copy_from(&self, from: FileRange<'_>, skip: u64, offset: u64, len: u64) -> Result<u64> {
        kernel_copy(from.file, from.offset + skip, &self.handle, offset, len)
            .map_err(|e| self.io("cannot copy into the file", offset, e))
    }
}

#[cfg(unix)]
pub(in crate::engine) fn write_all_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
pub(in crate::engine) fn write_all_at(file: &File, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
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

/// Bytes of a block of a file system.
#[cfg(target_os = "linux")]
const BLOCK: u64 = 4096;

/// Copies within the kernel where supported. Returns the number of copied bytes.
///
/// Only whole blocks, which some file systems share between both files. Anything else takes longer in the kernel than reading and
/// writing: one page at a time, in two parts, while other threads wait for the file.
#[cfg(target_os = "linux")]
fn kernel_copy(from: &File, mut at: u64, to: &File, mut offset: u64, len: u64) -> io::Result<u64> {
    use rustix::io::Errno;
    if !at.is_multiple_of(BLOCK) || !offset.is_multiple_of(BLOCK) {
        return Ok(0);
    }
    let mut done = 0;
    while done < len {
        let step = usize::try_from((len - done).min(1 << 30)).unwrap_or(1 << 30);
        match rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut offset), step) {
            Ok(0) => break,
            Ok(n) => done += n as u64,
            Err(Errno::INTR) => {}
            // Other file systems, older kernels, special files: the caller copies the rest.
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
