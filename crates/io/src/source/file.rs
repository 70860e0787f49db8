//! Files read with positional reads, the default: this works on network disks, uses no address space, and a
//! file that shrinks causes an error instead of a signal.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use super::{FileRange, Map, Mapped, Source, check_range};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::path_text;

/// Open regular file.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    len: u64,
    label: String,
}

impl FileSource {
    /// Opens `path` for reading, without locks.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] where it cannot be opened; [`weighbridge_core::Kind::Usage`] for a folder, a pipe
    /// or a device, which have no length or offsets.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let label = path_text(path);
        let open = || -> Result<(File, u64)> {
            // Check before opening: opening a pipe would wait for a writer.
            let kind = PathKind::of(path)?;
            if kind != PathKind::File {
                let what = if kind == PathKind::Folder { "a folder" } else { "not a regular file" };
                return Err(Error::usage("not-a-file", format!("the path is {what}"))
                    .hint("give the path of one model file"));
            }
            let file = File::open(path).map_err(|e| Error::io("cannot open the file", e))?;
            let metadata = file.metadata().map_err(|e| Error::io("cannot read the length of the file", e))?;
            Ok((file, metadata.len()))
        };
        match open() {
            Ok((file, len)) => Ok(Self { file, len, label }),
            Err(error) => Err(error.in_file(label)),
        }
    }
}

/// Kind of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A regular file, also through a symbolic link.
    File,
    /// A folder.
    Folder,
    /// A pipe, a socket, a device.
    Other,
}

impl PathKind {
    /// Returns the kind of `path`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] where it does not exist or is not accessible; [`weighbridge_core::Kind::Usage`],
    /// `remote-file`, for a URL.
    pub fn of(path: &Path) -> Result<PathKind> {
        let metadata = std::fs::metadata(path).map_err(|e| {
            let remote = check_local(path).err();
            let error = remote.unwrap_or_else(|| {
                // A link whose target is missing exists itself.
                match std::fs::read_link(path) {
                    Ok(target) if e.kind() == ErrorKind::NotFound => {
                        Error::io("the target of the symbolic link does not exist", e)
                            .found(path_text(&target))
                            .hint("correct the link, or restore its target")
                    }
                    _ => Error::io("cannot open the file", e),
                }
            });
            error.in_file(path.display())
        })?;
        Ok(match () {
            () if metadata.is_file() => PathKind::File,
            () if metadata.is_dir() => PathKind::Folder,
            () => PathKind::Other,
        })
    }
}

/// Fails for a URL such as `https://...` or `s3://...`.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `remote-file`.
pub fn check_local(path: &Path) -> Result<()> {
    let scheme = path.to_str().and_then(|text| text.split_once("://")).map(|(scheme, _)| scheme);
    let is_url = scheme.is_some_and(|scheme| {
        let mut bytes = scheme.bytes();
        scheme.len() > 1
            && bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'.' | b'-'))
    });
    if is_url {
        return Err(Error::usage("remote-file", "the path is a URL; remote files are not supported")
            .in_file(path.display())
            .hint("download the file and give its path"));
    }
    Ok(())
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        read_exact_at(&self.file, offset, buffer).map_err(|e| {
            let error = if e.kind() == std::io::ErrorKind::UnexpectedEof {
                Error::new(
                    weighbridge_core::Kind::Io,
                    "file-shrank",
                    "the file was truncated while it was read",
                )
            } else {
                Error::io("cannot read the file", e)
            };
            error.in_file(&self.label).at(offset)
        })
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn file(&self) -> Option<FileRange<'_>> {
        Some(FileRange { file: &self.file, offset: 0 })
    }

    fn map(&self, offset: u64, len: u64) -> Option<Arc<dyn Mapped>> {
        Map::of(&self.file, offset, len).map(|map| Arc::new(map) as Arc<dyn Mapped>)
    }
}

#[cfg(unix)]
/// Fills `buffer` with the bytes of `file` from `offset` on.
pub(crate) fn read_exact_at(file: &File, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
pub fn read_exact_at(file: &File, mut offset: u64, mut buffer: &mut [u8]) -> std::io::Result<()> {
    while !buffer.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buffer, offset) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                buffer = &mut buffer[n..];
                offset += n as u64;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
