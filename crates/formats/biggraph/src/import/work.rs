//! Work folder of an import, beside the target: each file in it is a finished step.
//!
//! A file gets its name when it is complete, and ends with a checksum: an import that was killed at any moment, or lost power,
//! continues with the files that are intact. `job` holds everything that the steps depend on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use twox_hash::XxHash3_64;
use weighbridge_core::ErrorCode;
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_io::engine::{Disk, DiskLock, ItemKind, LOCK_NAME};
use weighbridge_io::source::{Mapped, RangeSource, Source, SourceRef, check_range, read_vec};

/// Name of the description of the import.
const JOB: &str = "job";
/// Ending of a file that is not complete.
const UNFINISHED: &str = ".new";
/// Bytes after the content of a file: its checksum and its length.
const FOOTER: u64 = 16;
/// Bytes of a read while checking a file.
const BLOCK: u64 = 1 << 20;

/// Work folder of an import.
#[derive(Debug)]
pub(super) struct WorkFolder {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    lock: DiskLock,
}

impl WorkFolder {
    /// Opens the work folder for `target`, or makes it. `job` is compared with the one of the folder by `same`: the
    /// files of another job are removed. Returns the job of the folder, and true if it has finished steps of this job.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`, while another process has the folder; [`weighbridge_core::Kind::Io`].
    pub(super) fn open(
        disk: &Arc<dyn Disk>,
        target: &Path,
        job: &[u8],
        same: &dyn Fn(&[u8]) -> bool,
    ) -> Result<(Self, Vec<u8>, bool)> {
        let path = Self::path_for(target)?;
        if !is_there(&**disk, &path)? {
            disk.make_folder(&path)?;
        }
        let work = Self::locked(disk, path)?;
        let own = work.get(JOB)?.filter(|source| intact(source).unwrap_or(false));
        let own = own.map(|source| content(&source)).transpose()?;
        let own = own.map(|source| read_vec(&*source, 0, source.len())).transpose()?;
        match own {
            Some(own) if same(&own) => {
                let resumed = work.check()?;
                Ok((work, own, resumed))
            }
            _ => match work.empty().and_then(|()| work.put(JOB, &[job])) {
                Ok(()) => Ok((work, job.to_vec(), false)),
                Err(error) => Err(work.leave(error)),
            },
        }
    }

    /// Takes a folder that is empty or a work folder.
    fn locked(disk: &Arc<dyn Disk>, path: PathBuf) -> Result<Self> {
        let items = disk.list(&path)?;
        if !items.is_empty() && !items.iter().any(|item| item.name == LOCK_NAME) {
            return Err(Error::usage(
                "exists",
                "the folder for unfinished steps has files of another program",
            )
            .in_file(path.display())
            .hint("move them, or choose another target"));
        }
        let lock = disk.lock(&path.join(LOCK_NAME))?;
        Ok(Self { disk: disk.clone(), path, lock })
    }

    /// Removes the work folder for `target`, if there is one.
    pub(super) fn close_left(disk: &Arc<dyn Disk>, target: &Path) -> Result<()> {
        let path = Self::path_for(target)?;
        if is_there(&**disk, &path)? && !disk.list(&path)?.is_empty() {
            Self::locked(disk, path)?.close()?;
        }
        Ok(())
    }

    /// Returns the path of the work folder for a target.
    fn path_for(target: &Path) -> Result<PathBuf> {
        let name = target.file_name().ok_or_else(|| {
            Error::usage("bad-name", "the target has no name of its own")
                .in_file(target.display())
                .expected("the path of a new folder")
        })?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(".import");
        Ok(target.with_file_name(hidden))
    }

    /// Removes what no step finished. Returns true if a finished step is left.
    fn check(&self) -> Result<bool> {
        let mut any = false;
        for item in self.disk.list(&self.path)? {
            let path = self.path.join(&item.name);
            if !matches!(item.kind, ItemKind::File(_)) || item.name == LOCK_NAME || item.name == JOB {
                continue;
            }
            let is_intact = match self.disk.open(&path)? {
                Some(source) => !item.name.to_string_lossy().ends_with(UNFINISHED) && intact(&source)?,
                None => false,
            };
            if is_intact {
                any = true;
            } else {
                self.disk.remove(&path)?;
            }
        }
        Ok(any)
    }

    /// Removes all files.
    fn empty(&self) -> Result<()> {
        for item in self.disk.list(&self.path)? {
            if item.name != LOCK_NAME && matches!(item.kind, ItemKind::File(_)) {
                self.disk.remove(&self.path.join(&item.name))?;
            }
        }
        Ok(())
    }

    /// Writes a file: these parts, one after the other.
    pub(super) fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        let unfinished = self.path.join(format!("{name}{UNFINISHED}"));
        if self.disk.open(&unfinished)?.is_some() {
            self.disk.remove(&unfinished)?;
        }
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let file = self.disk.create(&unfinished, len + FOOTER, &unfinished)?;
        let mut hash = XxHash3_64::new();
        let mut offset = 0;
        for part in parts {
            std::hash::Hasher::write(&mut hash, part);
            file.write_at(offset, part)?;
            offset += part.len() as u64;
        }
        file.write_at(offset, &footer(std::hash::Hasher::finish(&hash), len))?;
        drop(file);
        self.disk.rename(&unfinished, &self.path.join(name))
    }

    /// Returns the whole file of this name, with its footer.
    fn get(&self, name: &str) -> Result<Option<SourceRef>> {
        self.disk.open(&self.path.join(name))
    }

    /// Returns true if there is a file of this name.
    pub(super) fn has(&self, name: &str) -> Result<bool> {
        Ok(self.get(name)?.is_some())
    }

    /// Returns the content of a file that a step has finished. The file is opened for each read, as there may be thousands.
    pub(super) fn open_file(&self, name: &str) -> Result<SourceRef> {
        let path = self.path.join(name);
        let label = path.display().to_string();
        let len = opened(&*self.disk, &path)?.len().saturating_sub(FOOTER);
        Ok(Arc::new(WorkFile { disk: self.disk.clone(), path, label, len }))
    }

    /// Returns the names of the files that begin with `start`.
    pub(super) fn names(&self, start: &str) -> Result<Vec<String>> {
        let items = self.disk.list(&self.path)?;
        let names = items.iter().map(|item| item.name.to_string_lossy().into_owned());
        Ok(names.filter(|name| name.starts_with(start) && !name.ends_with(UNFINISHED)).collect())
    }

    /// Returns the bytes that an import can use, if known: the free ones of the disk, and those of its finished steps.
    pub(super) fn space(&self) -> Result<Option<u64>> {
        let Some(free) = self.disk.free_space(&self.path) else { return Ok(None) };
        let used = self.disk.list(&self.path)?.iter().filter_map(|item| item.kind.len()).sum();
        Ok(Some(free.saturating_add(used)))
    }

    /// Leaves the folder after an error: with its finished steps where the same import may succeed later. Returns the error with a
    /// hint about them.
    pub(super) fn leave(self, error: Error) -> Error {
        let is_kept = match error.code() {
            ErrorCode::BadLine => true,
            ErrorCode::ChangedWhileRead => false,
            _ => !matches!(error.kind(), Kind::Corrupt | Kind::Unsupported),
        };
        let has_steps =
            self.names("edges-").is_ok_and(|names| !names.is_empty()) || self.has("parsed").unwrap_or(false);
        if is_kept && has_steps {
            return error.hint_too(format!(
                "the finished steps are kept in {}: the same import continues with them",
                self.path.display()
            ));
        }
        // The error that is returned matters more than one while cleaning up.
        let _ = self.close();
        error
    }

    /// Removes a file, if there is one.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        if self.has(name)? { self.disk.remove(&self.path.join(name)) } else { Ok(()) }
    }

    /// Removes the folder with everything in it.
    pub(super) fn close(self) -> Result<()> {
        self.empty()?;
        self.disk.remove(&self.path.join(LOCK_NAME))?;
        drop(self.lock);
        self.disk.remove_folder(&self.path)
    }
}

/// True where the parent of `path` has an entry of its name.
fn is_there(disk: &dyn Disk, path: &Path) -> Result<bool> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default();
    Ok(disk.list(parent)?.iter().any(|item| item.name == name))
}

/// Finished file.
#[derive(Debug)]
struct WorkFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    label: String,
    len: u64,
}

fn opened(disk: &dyn Disk, path: &Path) -> Result<SourceRef> {
    disk.open(path)?.ok_or_else(|| {
        let cause = std::io::Error::from(std::io::ErrorKind::NotFound);
        Error::io("a file of the unfinished import is missing", cause).in_file(path.display())
    })
}

impl Source for WorkFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        opened(&*self.disk, &self.path)?.read_at(offset, buffer)
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn map(&self, offset: u64, len: u64) -> Option<Arc<dyn Mapped>> {
        opened(&*self.disk, &self.path).ok()?.map(offset, len)
    }
}

fn footer(checksum: u64, len: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&checksum.to_le_bytes());
    bytes[8..].copy_from_slice(&len.to_le_bytes());
    bytes
}

/// Returns a file without its footer.
fn content(source: &SourceRef) -> Result<SourceRef> {
    let len = source.len().saturating_sub(FOOTER);
    Ok(Arc::new(RangeSource::new(source.clone(), 0, len)?))
}

/// Returns true if a file has the length and the checksum of its footer.
fn intact(source: &SourceRef) -> Result<bool> {
    let Some(len) = source.len().checked_sub(FOOTER) else { return Ok(false) };
    let mut hash = XxHash3_64::new();
    let mut offset = 0;
    while offset < len {
        let bytes = read_vec(&**source, offset, BLOCK.min(len - offset))?;
        std::hash::Hasher::write(&mut hash, &bytes);
        offset += bytes.len() as u64;
    }
    let found = read_vec(&**source, len, FOOTER)?;
    Ok(found == footer(std::hash::Hasher::finish(&hash), len))
}
