//! Comparison of a planned file with the old one.
//!
//! The plan runs as usual, in parallel and in bounded memory, into a sink that writes nothing: it compares every byte
//! with the existing file.

use super::{Patch, PatchRange};
use crate::engine::{RunOptions, Sink, StagedFile, run};
use crate::source::{FileRange, SourceRef, read_vec, to_usize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{Content, PlannedFile, Segment, WritePlan};

/// Most bytes that may differ or be cut off: they are kept in memory and in the undo record.
const MAX_PATCH_BYTES: u64 = 64 << 20;

impl Patch {
    /// Compares the file of `plan` with `old`. Tensor elements must not differ and must keep their offsets.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `data-would-move`, where elements would move or change;
    /// [`weighbridge_core::Kind::Limit`], `patch-too-large`; [`weighbridge_core::Kind::Usage`], `one-file`, for a plan of several files;
    /// and errors of the sources.
    pub fn find(plan: &WritePlan, old: &SourceRef, options: &RunOptions) -> Result<Patch> {
        let [file] = plan.files.as_slice() else {
            return Err(Error::usage("one-file", "only a model in one file can be edited in place")
                .found(format_args!("{} files", plan.files.len())));
        };
        if file.is_estimated() {
            return Err(Error::mismatch(
                "data-would-move",
                "files of this format can only be rewritten as a whole",
            ));
        }
        // Decided without reading: a copy from another offset of this file.
        for segment in &file.segments {
            if let Content::Copy { source, offset, tensor, .. } = &segment.content
                && let (Some(from), Some(own)) = (source.file(), old.file())
                && same_file(from, own)
                && from.offset + offset != segment.offset
            {
                return Err(moved(tensor, segment.offset, Some(from.offset + offset)));
            }
        }
        let found = Arc::new(Found {
            old: old.clone(),
            segments: file.segments.clone(),
            state: Mutex::new(State::default()),
        });
        let sink = Comparing(found.clone());
        run(plan, &sink, &RunOptions { sync: false, ..options.clone() })?;
        finish(&found, file.len)
    }
}

fn moved(tensor: &str, to: u64, from: Option<u64>) -> Error {
    let message = match from {
        Some(_) => "cannot edit in place: the data of this tensor and of later ones would move",
        None => "cannot edit in place: the data of the tensor would move or change",
    };
    let error = Error::mismatch("data-would-move", message).on_tensor(tensor);
    match from {
        Some(from) => error.at(from).found(format_args!("offset {to} in the rewritten file")),
        None => error.at(to),
    }
}

#[derive(Debug)]
struct Found {
    old: SourceRef,
    segments: Vec<Segment>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Differing bytes by their offset.
    ranges: BTreeMap<u64, Vec<u8>>,
    bytes: u64,
    /// Final checksums by their offset; zeros until they are known.
    sums: BTreeMap<u64, Vec<u8>>,
}

impl Found {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of the old file from `offset` on, up to its end.
    fn before(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len).min(self.old.len());
        read_vec(&*self.old, offset.min(end), end.saturating_sub(offset))
    }

    /// Compares a part of a segment.
    fn compare(&self, segment: &Segment, offset: u64, bytes: &[u8]) -> Result<()> {
        if matches!(segment.content, Content::Crc32(_)) {
            let start = to_usize(offset - segment.offset)?;
            let mut state = self.state();
            let sum = state.sums.entry(segment.offset).or_insert_with(|| vec![0; 4]);
            if let Some(slot) = sum.get_mut(start..start + bytes.len()) {
                slot.copy_from_slice(bytes);
            }
            return Ok(());
        }
        let before = self.before(offset, bytes.len() as u64)?;
        if before == bytes {
            return Ok(());
        }
        let tensor = match &segment.content {
            Content::Copy { tensor, .. } => Some(tensor.clone()),
            Content::Tensor { entry, .. } | Content::Latin1 { entry, .. } => Some(entry.name()),
            _ => None,
        };
        match tensor {
            Some(tensor) => Err(moved(&tensor, segment.offset, None)),
            None => self.add(offset, &before, bytes),
        }
    }

    /// Stores the differing bytes, without common bytes at the beginning and the end.
    fn add(&self, offset: u64, before: &[u8], bytes: &[u8]) -> Result<()> {
        let same = before.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        let mut end = bytes.len();
        while before.len() >= end && end > same && before.get(end - 1) == bytes.get(end - 1) {
            end -= 1;
        }
        let mut state = self.state();
        state.bytes += (end - same) as u64;
        too_much(state.bytes)?;
        state.ranges.insert(offset + same as u64, bytes[same..end].to_vec());
        Ok(())
    }
}

fn too_much(bytes: u64) -> Result<()> {
    if bytes <= MAX_PATCH_BYTES {
        return Ok(());
    }
    Err(Error::limit("patch-too-large", "the edit changes more bytes than an undo record can store")
        .expected(format_args!("at most {MAX_PATCH_BYTES} bytes"))
        .found(format_args!("{bytes} bytes")))
}

/// Builds the patch after every byte was compared.
fn finish(found: &Found, new_len: u64) -> Result<Patch> {
    let mut state = found.state();
    let sums = std::mem::take(&mut state.sums);
    for (offset, sum) in sums {
        if found.before(offset, sum.len() as u64)? != sum {
            state.ranges.insert(offset, sum);
        }
    }
    let mut patch = Patch { old_len: found.old.len(), new_len, ranges: Vec::new() };
    for (offset, new) in std::mem::take(&mut state.ranges) {
        let old = found.before(offset, new.len() as u64)?;
        match patch.ranges.last_mut() {
            Some(last) if last.offset + last.new.len() as u64 == offset => {
                last.old.extend(old);
                last.new.extend(new);
            }
            _ => patch.ranges.push(PatchRange { offset, old, new }),
        }
    }
    if new_len < patch.old_len {
        let cut = patch.old_len - new_len;
        too_much(cut)?;
        let old = read_vec(&*found.old, new_len, cut)?;
        match patch.ranges.last_mut() {
            Some(last) if last.offset + last.new.len() as u64 == new_len => last.old.extend(old),
            _ => patch.ranges.push(PatchRange { offset: new_len, old, new: Vec::new() }),
        }
    }
    Ok(patch)
}

/// Sink that compares everything and stores the differences.
#[derive(Debug)]
struct Comparing(Arc<Found>);

impl Sink for Comparing {
    fn stage(&self, _: &PlannedFile) -> Result<Box<dyn StagedFile>> {
        Ok(Box::new(Compared(self.0.clone())))
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn publish(&self) -> Result<()> {
        Ok(())
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self) {}
}

#[derive(Debug)]
struct Compared(Arc<Found>);

impl StagedFile for Compared {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, bytes);
        let first = self.0.segments.partition_point(|segment| segment.offset + segment.len <= offset);
        for segment in self.0.segments.get(first..).unwrap_or_default() {
            if rest.is_empty() {
                break;
            }
            let take = to_usize((segment.offset + segment.len - at).min(rest.len() as u64))?;
            let (now, later) = rest.split_at(take);
            self.0.compare(segment, at, now)?;
            at += take as u64;
            rest = later;
        }
        Ok(())
    }

    /// Skips the comparison of bytes that are copied from the same offset of the same file.
    fn copy_from(&self, from: FileRange<'_>, skip: u64, offset: u64, len: u64) -> Result<u64> {
        let own = self.0.old.file();
        Ok(match own {
            Some(own) if same_file(from, own) && from.offset + skip == own.offset + offset => len,
            _ => 0,
        })
    }
}

/// True where both handles are of one file; false also where this is unknown.
#[cfg(unix)]
fn same_file(a: FileRange<'_>, b: FileRange<'_>) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (a.file.metadata(), b.file.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn same_file(a: FileRange<'_>, b: FileRange<'_>) -> bool {
    std::ptr::eq(a.file, b.file)
}
