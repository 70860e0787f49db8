//! Values of a key-value store: ranges of files, or bytes inside a node of the tree.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{FolderRef, Source, SourceRef, check_range, read_vec, to_usize};

/// Value of a key.
#[derive(Debug, Clone)]
pub(super) enum Stored {
    /// Bytes inside a node of the tree in that file.
    Inline { bytes: Arc<[u8]>, file: SourceRef },
    /// Range of a file.
    Range { source: SourceRef, offset: u64, len: u64 },
}

impl Stored {
    pub(super) fn whole(source: SourceRef) -> Self {
        let len = source.len();
        Self::Range { source, offset: 0, len }
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Inline { bytes, .. } => bytes.len() as u64,
            Self::Range { len, .. } => *len,
        }
    }

    /// Returns the file, for errors.
    pub(super) fn file(&self) -> &SourceRef {
        match self {
            Self::Inline { file, .. } => file,
            Self::Range { source, .. } => source,
        }
    }

    /// Returns the offset of the value in its file, for errors.
    pub(super) fn offset(&self) -> u64 {
        match self {
            Self::Inline { .. } => 0,
            Self::Range { offset, .. } => *offset,
        }
    }

    /// Returns `len` bytes of the value from `from` on, as a value.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], code `past-the-end`.
    pub(super) fn part(&self, from: u64, len: u64) -> Result<Self> {
        let end = from.checked_add(len).filter(|&end| end <= self.len());
        let Some(end) = end else {
            return Err(Error::corrupt("past-the-end", "a chunk exceeds its shard")
                .in_file(self.file().label())
                .at(self.offset())
                .expected(format_args!("at most {} bytes", self.len()))
                .found(format_args!("{len} bytes from offset {from} on")));
        };
        Ok(match self {
            Self::Inline { bytes, file } => {
                let bytes = bytes.get(to_usize(from)?..to_usize(end)?).unwrap_or_default();
                Self::Inline { bytes: bytes.into(), file: file.clone() }
            }
            Self::Range { source, offset, .. } => {
                Self::Range { source: source.clone(), offset: offset + from, len }
            }
        })
    }

    /// Reads the value. The caller has compared its length with a limit.
    pub(super) fn read(&self) -> Result<Vec<u8>> {
        match self {
            Self::Inline { bytes, .. } => Ok(bytes.to_vec()),
            Self::Range { source, offset, len } => read_vec(&**source, *offset, *len),
        }
    }
}

/// File of a folder, opened for each read: a checkpoint may have more files than a process may open at once.
pub(super) struct FolderFile {
    folder: FolderRef,
    name: PathBuf,
    label: String,
    len: u64,
}

impl fmt::Debug for FolderFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FolderFile").field(&self.label).finish()
    }
}

impl FolderFile {
    /// Creates the source; `None` if there is no such file.
    pub(super) fn open(folder: &FolderRef, name: PathBuf) -> Result<Option<SourceRef>> {
        let Some(source) = folder.open(&name)? else { return Ok(None) };
        let (label, len) = (source.label().to_owned(), source.len());
        Ok(Some(Arc::new(Self { folder: folder.clone(), name, label, len })))
    }
}

impl Source for FolderFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        match self.folder.open(&self.name)? {
            Some(source) if source.len() == self.len => source.read_at(offset, buffer),
            _ => Err(Error::corrupt("changed-meanwhile", "the file has changed since it was opened")
                .in_file(&self.label)),
        }
    }

    fn label(&self) -> &str {
        &self.label
    }
}
