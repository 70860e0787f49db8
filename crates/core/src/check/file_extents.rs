//! Which bytes of which file tensors have, whatever their sources are made of.

use crate::checkpoint::TensorEntry;
use crate::source::{SourceRef, Within};
use std::collections::HashMap;
use std::sync::Arc;

/// Sources within sources are followed so far.
const MOST_LEVELS: usize = 16;

/// The tensors that have bytes in one file.
#[derive(Debug)]
pub struct FileExtents<'a> {
    /// The file, or what else the bytes stand in.
    pub source: SourceRef,
    pub(super) places: Vec<FileExtent<'a>>,
}

impl FileExtents<'_> {
    /// True where some tensor has bytes in it.
    pub fn has_tensors(&self) -> bool {
        !self.places.is_empty()
    }

    /// True where every byte is that of some tensor, as it is: nothing else can stand in it.
    pub fn is_filled(&self) -> bool {
        let plain = self.places.iter().filter(|place| !place.encoded);
        let end = plain.fold(0, |at, place| if place.start <= at { place.end.max(at) } else { at });
        self.has_tensors() && end == self.source.len()
    }
}

/// The bytes of a piece in the outermost source that holds them.
#[derive(Debug)]
pub(super) struct FileExtent<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    /// True where only the range as a whole is known.
    pub(super) encoded: bool,
    /// True for the names of rows of a tensor, which are kept as one and are none.
    pub(super) names: bool,
    /// The tensor.
    pub(super) entry: &'a TensorEntry,
}

/// Whose bytes they are.
#[derive(Debug, Clone, Copy)]
struct Owner<'a> {
    names: bool,
    entry: &'a TensorEntry,
}

/// What makes a source that file and no other: its address, or the path of a file that is open more
/// than once.
type Key = (usize, Option<(String, u64)>);

fn key_of(source: &SourceRef) -> Key {
    match source.file() {
        Some(_) => (0, Some((source.label().to_owned(), source.len()))),
        None => (Arc::as_ptr(source).cast::<()>().addr(), None),
    }
}

/// Files, each with the tensors that have bytes in it, in the order of first appearance.
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
            self.list.push(FileExtents { source: source.clone(), places: Vec::new() });
        }
        self.list.get_mut(number)
    }

    fn add(&mut self, source: &SourceRef, range: (u64, u64), encoded: bool, owner: Owner<'a>) {
        let Some(held) = self.of(source) else { return };
        let end = range.0.saturating_add(range.1).min(source.len());
        let Owner { names, entry } = owner;
        held.places.push(FileExtent { start: range.0.min(end), end, encoded, names, entry });
    }

    /// Takes in the range of a source, or those that it is made of.
    fn follow(&mut self, source: &SourceRef, range: (u64, u64), encoded: bool, owner: Owner<'a>) {
        let mut open = vec![(source.clone(), range, encoded, 0)];
        while let Some((source, range, encoded, level)) = open.pop() {
            match source.made_of().filter(|_| level < MOST_LEVELS) {
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

/// Where the bytes of all tensors, and of the names of their rows, are, by file, in the order of first appearance; then
/// `others`, as far as none of them stands among these.
pub fn held<'a>(tensors: &'a [TensorEntry], others: &[SourceRef]) -> Vec<FileExtents<'a>> {
    let mut files = Files::default();
    let names = || tensors.iter().filter_map(|t| t.row_names.as_ref()).flat_map(|labels| labels.tensors());
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
    for held in &mut files.list {
        // Stable: of equal ranges the first tensor stays first.
        held.places.sort_by_key(|p| (p.start, p.end));
    }
    files.list
}

impl TensorEntry {
    /// Source, offset and length of each piece: equal for two names of the same bytes.
    pub fn shared_places(&self) -> Vec<(usize, u64, u64)> {
        let one = |extent: &crate::checkpoint::Extent| {
            (Arc::as_ptr(&extent.source).cast::<()>().addr(), extent.offset, extent.len)
        };
        self.extents.iter().map(one).collect()
    }
}

/// As [`held`], but behind no encoding: there only the range as a whole is known.
pub(super) fn plain(tensors: &[TensorEntry]) -> Vec<FileExtents<'_>> {
    let mut files = Files::default();
    for entry in tensors {
        for extent in &entry.extents {
            let (mut source, mut start) = (&extent.source, extent.offset);
            for _ in 0..MOST_LEVELS {
                match source.within() {
                    Some(within) if !within.encoded => {
                        (source, start) = (within.source, within.offset.saturating_add(start));
                    }
                    _ => break,
                }
            }
            // What stands nowhere is shared with nothing.
            if source.made_of().is_none_or(|parts| !parts.is_empty()) {
                files.add(source, (start, extent.len), false, Owner { names: false, entry });
            }
        }
    }
    sorted(files)
}
