//! Extents of tensors by file, resolved through nested sources.

use crate::checkpoint::TensorEntry;
use crate::source::{SourceRef, Within};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum nesting of sources that is followed.
const MAX_LEVELS: usize = 16;

/// Extents of all tensors in one file.
#[derive(Debug)]
pub struct FileExtents<'a> {
    /// File, or another outermost source.
    pub source: SourceRef,
    pub(super) extents: Vec<FileExtent<'a>>,
}

impl FileExtents<'_> {
    /// Returns true if any tensor has bytes in the file.
    pub fn has_tensors(&self) -> bool {
        !self.extents.is_empty()
    }

    /// Returns true if unencoded elements fill the whole file, so that it has no other content.
    pub fn is_filled(&self) -> bool {
        let plain = self.extents.iter().filter(|extent| !extent.encoded);
        let end = plain.fold(0, |at, extent| if extent.start <= at { extent.end.max(at) } else { at });
        self.has_tensors() && end == self.source.len()
    }
}

/// Bytes of an extent in the outermost source.
#[derive(Debug)]
pub(super) struct FileExtent<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    /// True for an encoded range: the positions of single elements are unknown.
    pub(super) encoded: bool,
    /// True for row names that are stored as a tensor.
    pub(super) names: bool,
    /// Tensor.
    pub(super) entry: &'a TensorEntry,
}

/// Owner of bytes: a tensor, or row names stored as one.
#[derive(Debug, Clone, Copy)]
struct Owner<'a> {
    names: bool,
    entry: &'a TensorEntry,
}

/// Identity of a source: its address, or path and length for a file, which may be open more than once.
type Key = (usize, Option<(String, u64)>);

fn key_of(source: &SourceRef) -> Key {
    match source.file() {
        Some(_) => (0, Some((source.label().to_owned(), source.len()))),
        None => (Arc::as_ptr(source).cast::<()>().addr(), None),
    }
}

/// Files with their extents, in order of first appearance.
#[derive(Debug, Default)]
struct Files<'a> {
    numbers: HashMap<Key, usize>,
    list: Vec<FileExtents<'a>>,
}

impl<'a> Files<'a> {
    fn of(&mut self, source: &SourceRef) -> Option<&mut FileExtents<'a>> {
        let next = self.list.len();
        let number = *self.numbers.entry(key_of(source)).or_insert(next);
        if number == next {
            self.list.push(FileExtents { source: source.clone(), extents: Vec::new() });
        }
        self.list.get_mut(number)
    }

    fn add(&mut self, source: &SourceRef, range: (u64, u64), encoded: bool, owner: Owner<'a>) {
        let Some(file) = self.of(source) else { return };
        let end = range.0.saturating_add(range.1).min(source.len());
        let Owner { names, entry } = owner;
        file.extents.push(FileExtent { start: range.0.min(end), end, encoded, names, entry });
    }

    /// Adds the range of a source, resolved to the outermost sources.
    fn follow(&mut self, source: &SourceRef, range: (u64, u64), encoded: bool, owner: Owner<'a>) {
        let mut open = vec![(source.clone(), range, encoded, 0)];
        while let Some((source, range, encoded, level)) = open.pop() {
            match source.made_of().filter(|_| level < MAX_LEVELS) {
                None => self.add(&source, range, encoded, owner),
                Some(parts) => {
                    for Within { source: outer, offset, len, encoded: packed } in parts {
                        let inner =
                            if packed { (offset, len) } else { (offset.saturating_add(range.0), range.1) };
                        open.push((outer.clone(), inner, encoded || packed, level + 1));
                    }
                }
            }
        }
    }
}

/// Returns the extents of all tensors and of their row names, by file, in order of first appearance, followed by the files of
/// `others` that are not among them.
pub fn held<'a>(tensors: &'a [TensorEntry], others: &[SourceRef]) -> Vec<FileExtents<'a>> {
    let mut files = Files::default();
    let names = || tensors.iter().filter_map(|t| t.row_names.as_ref()).flat_map(|names| names.tensors());
    let owners = tensors.iter().map(|entry| Owner { names: false, entry });
    for owner in owners.chain(names().map(|entry| Owner { names: true, entry })) {
        for extent in &owner.entry.extents {
            files.follow(&extent.source, (extent.offset, extent.len), false, owner);
        }
    }
    for source in others {
        files.of(source);
    }
    sorted(files)
}

fn sorted(mut files: Files<'_>) -> Vec<FileExtents<'_>> {
    for file in &mut files.list {
        // Stable: equal ranges keep the order of the tensors.
        file.extents.sort_by_key(|p| (p.start, p.end));
    }
    files.list
}

impl TensorEntry {
    /// Returns address of the source, offset and length of each extent: equal for two names of the same bytes.
    pub fn shared_places(&self) -> Vec<(usize, u64, u64)> {
        let one = |extent: &crate::checkpoint::Extent| {
            (Arc::as_ptr(&extent.source).cast::<()>().addr(), extent.offset, extent.len)
        };
        self.extents.iter().map(one).collect()
    }
}

/// Returns the extents by file, as [`held`], but does not resolve encoded sources.
pub(super) fn plain(tensors: &[TensorEntry]) -> Vec<FileExtents<'_>> {
    let mut files = Files::default();
    for entry in tensors {
        for extent in &entry.extents {
            let (mut source, mut start) = (&extent.source, extent.offset);
            for _ in 0..MAX_LEVELS {
                match source.within() {
                    Some(within) if !within.encoded => {
                        (source, start) = (within.source, within.offset.saturating_add(start));
                    }
                    _ => break,
                }
            }
            // Generated bytes are never shared.
            if source.made_of().is_none_or(|parts| !parts.is_empty()) {
                files.add(source, (start, extent.len), false, Owner { names: false, entry });
            }
        }
    }
    sorted(files)
}
