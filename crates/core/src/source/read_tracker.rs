//! Tracking of opened and read files: the files that a checkpoint consists of.

use super::{FileRange, Folder, FolderItem, FolderRef, Mapped, SkippedItem, Source, SourceRef};
use crate::error::Result;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Source that records whether it was read.
#[derive(Debug)]
struct TrackedSource {
    inner: SourceRef,
    read: AtomicBool,
}

impl Source for TrackedSource {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read.store(true, Ordering::Relaxed);
        self.inner.read_at(offset, buffer)
    }
    fn label(&self) -> &str {
        self.inner.label()
    }
    fn as_slice(&self) -> Option<&[u8]> {
        self.read.store(true, Ordering::Relaxed);
        self.inner.as_slice()
    }
    fn file(&self) -> Option<FileRange<'_>> {
        self.inner.file()
    }
    fn map(&self, offset: u64, len: u64) -> Option<Arc<dyn Mapped>> {
        self.inner.map(offset, len)
    }
    fn is_sequential(&self) -> bool {
        self.inner.is_sequential()
    }
}

/// Opened files in order, with their indices by path.
#[derive(Debug, Default)]
struct Opened {
    files: Vec<(PathBuf, Arc<TrackedSource>)>,
    indices: HashMap<PathBuf, usize>,
}

/// Record of the files opened and read, across several folders. Opening a path twice returns the same source.
#[derive(Debug, Clone, Default)]
pub struct ReadTracker(Arc<Mutex<Opened>>);

impl ReadTracker {
    /// Tracks `source`, the file at `path`.
    pub fn watch(&self, path: PathBuf, source: SourceRef) -> SourceRef {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = opened.indices.get(&path).and_then(|&index| opened.files.get(index));
        if let Some((_, known)) = known {
            return known.clone();
        }
        let source = Arc::new(TrackedSource { inner: source, read: AtomicBool::new(false) });
        let index = opened.files.len();
        opened.indices.insert(path.clone(), index);
        opened.files.push((path, source.clone()));
        source
    }

    /// Tracks every file opened in `folder`.
    pub fn watch_folder(&self, folder: FolderRef) -> FolderRef {
        Arc::new(TrackedFolder { inner: folder, tracker: self.clone() })
    }

    /// Returns path and source of the files read so far, in the order of opening.
    pub fn read(&self) -> Vec<(PathBuf, SourceRef)> {
        self.all(|source| source.read.load(Ordering::Relaxed))
    }

    /// Returns path and source of all opened files, in the order of opening.
    pub fn opened(&self) -> Vec<(PathBuf, SourceRef)> {
        self.all(|_| true)
    }

    fn all(&self, wanted: impl Fn(&TrackedSource) -> bool) -> Vec<(PathBuf, SourceRef)> {
        let opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = opened.files.iter().filter(|(_, source)| wanted(source));
        wanted.map(|(path, source)| (path.clone(), source.clone() as SourceRef)).collect()
    }
}

#[derive(Debug)]
struct TrackedFolder {
    inner: FolderRef,
    tracker: ReadTracker,
}

impl Folder for TrackedFolder {
    fn label(&self) -> &str {
        self.inner.label()
    }
    fn list(&self, depth: usize) -> Result<Vec<FolderItem>> {
        self.inner.list(depth)
    }
    fn skipped(&self, depth: usize) -> Result<Vec<SkippedItem>> {
        self.inner.skipped(depth)
    }
    fn open(&self, name: &Path) -> Result<Option<SourceRef>> {
        let path = Path::new(self.inner.label()).join(name);
        let found = self.inner.open(name)?;
        Ok(found.map(|source| self.tracker.watch(path, source)))
    }
    fn beside(&self, path: &Path) -> Result<Option<FolderRef>> {
        Ok(self.inner.beside(path)?.map(|folder| self.tracker.watch_folder(folder)))
    }
    fn is_link(&self, name: &Path) -> bool {
        self.inner.is_link(name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryFolder;
    use super::*;

    #[test]
    fn tracks_opened_and_read_files() {
        let folder = MemoryFolder::new("m").with("a", vec![1; 9]).with("b", vec![2]).with("c", vec![3]);
        let tracker = ReadTracker::default();
        let watched = tracker.watch_folder(Arc::new(folder));
        let a = watched.open(Path::new("a")).unwrap().unwrap();
        let again = watched.open(Path::new("a")).unwrap().unwrap();
        assert!(Arc::ptr_eq(&a, &again));
        watched.open(Path::new("b")).unwrap().unwrap();
        assert!(watched.open(Path::new("d")).unwrap().is_none());
        a.read_at(3, &mut [0; 2]).unwrap();
        let names = |list: Vec<(PathBuf, SourceRef)>| list.into_iter().map(|(p, _)| p).collect::<Vec<_>>();
        assert_eq!(names(tracker.read()), [Path::new("m/a")]);
        assert_eq!(names(tracker.opened()), [Path::new("m/a"), Path::new("m/b")]);
        assert_eq!(watched.list(1).unwrap().len(), 3);
    }
}
