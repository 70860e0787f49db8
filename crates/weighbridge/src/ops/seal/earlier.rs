//! Taking over what an earlier manifest says of files that have not changed since.
//!
//! A file counts as unchanged where it has the same length, and both its time of modification and its
//! time of change are older than the manifest's time of modification: by more than [`MARGIN`], as clocks
//! of file systems are coarse (two seconds on FAT), and a file may have been written in the same tick of the
//! clock after it was hashed. The time of modification can be set by anybody, the time of change cannot.
//! Who copies a manifest makes it younger, and what was changed before the copy would count as unchanged:
//! the times of a manifest are believed, so it must be the file that was written when the model was sealed.

use super::digest::Digests;
use super::manifest::{FileRecord, Manifest, Own, TensorRecord};
use super::subject::{SealedFile, Subject};
use super::{SealOptions, parse, subject};
use crate::checkpoint::{Name, TensorPath};
use crate::error::Result;
use crate::limits::Limits;
use crate::source::{FileSource, Stamp, stamp_of_path};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// By how much a file must be older than the manifest, in nanoseconds.
const MARGIN: i128 = 2_000_000_000;

/// An earlier manifest, and when it was written.
#[derive(Debug, Clone)]
pub struct Earlier {
    manifest: Manifest,
    stamp: Stamp,
}

impl Earlier {
    /// Reads the manifest at `path`.
    ///
    /// # Errors
    /// As [`parse::read`](super::read).
    pub fn read(path: &Path, limits: &Limits) -> Result<Self> {
        // First, so that a manifest which is replaced meanwhile is not taken for a younger one.
        let stamp = stamp_of_path(path)?;
        let manifest = parse::read(&FileSource::open(path)?, limits)?.manifest;
        Ok(Self { manifest, stamp })
    }

    fn is_unchanged(&self, file: &SealedFile, record: &FileRecord) -> bool {
        let Some(sealed) = self.stamp.modified else { return false };
        let older = |time: Option<i128>| time.is_some_and(|time| time.saturating_add(MARGIN) < sealed);
        file.stamp.len == record.bytes && older(file.stamp.modified) && older(file.stamp.changed)
    }
}

/// What is known already.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// For each file of the subject, its hashes where they are taken over.
    pub(super) files: Vec<Option<Digests>>,
    /// The hashes of tensors, by place.
    pub(super) tensors: HashMap<usize, Digests>,
}

/// What can be taken over from the earlier manifest, if there is one.
pub(super) fn take_over(subject: &Subject, options: &SealOptions) -> Taken {
    let mut taken = Taken { files: vec![None; subject.files.len()], tensors: HashMap::new() };
    let Some(earlier) = &options.earlier else { return taken };
    let Some(own) = earlier.manifest.own.as_ref().filter(|own| own.scope == subject.scope) else {
        return taken;
    };
    let records: HashMap<&str, &FileRecord> =
        own.files.iter().map(|file| (file.name.as_str(), file)).collect();
    // A file that stayed, though its hashes are not all there.
    let mut unchanged = vec![false; subject.files.len()];
    for (number, file) in subject.files.iter().enumerate() {
        let Some(record) = records.get(file.name.as_str()) else { continue };
        if !earlier.is_unchanged(file, record) {
            continue;
        }
        unchanged[number] = true;
        if record.digests.cover(options.algorithms) {
            taken.files[number] = Some(record.digests.only(options.algorithms));
        }
    }
    tensors(subject, own, &unchanged, options, &mut taken);
    taken
}

/// A tensor is taken over where the files that hold it are unchanged, and so is every file without
/// tensors that was read to find it: a program or a list says which bytes a name means. Where it is not
/// known which files hold it, all of them must be.
fn tensors(subject: &Subject, own: &Own, unchanged: &[bool], options: &SealOptions, taken: &mut Taken) {
    let Some(checkpoint) = &subject.checkpoint else { return };
    let same_view = own.options == subject.options
        && own.format.as_deref() == Some(checkpoint.format)
        && own.kind.as_deref() == Some(checkpoint.kind);
    let is_unchanged = |file: &usize| unchanged.get(*file).copied().unwrap_or(false);
    let holders: HashSet<usize> =
        checkpoint.tensors.iter().filter_map(|entry| subject.files_of(entry)).flatten().collect();
    let headers_stayed = subject.opened.iter().filter(|file| !holders.contains(file)).all(is_unchanged);
    // Of files outside of the folder nothing is known.
    let all_inside = subject.notes.iter().all(|note| note.code != subject::OUTSIDE);
    if !same_view || !headers_stayed || !all_inside {
        return;
    }
    type Key<'a> = (&'a TensorPath, &'a Option<Name>);
    let mut records: HashMap<Key, Vec<&TensorRecord>> = HashMap::new();
    for record in &own.tensors {
        records.entry((&record.path, &record.slot)).or_default().push(record);
    }
    let names = |files: &[usize]| -> Vec<&str> {
        files.iter().filter_map(|&file| subject.files.get(file)).map(|f| f.name.as_str()).collect()
    };
    let all_stayed = unchanged.iter().all(|&stayed| stayed) && own.files.len() == unchanged.len();
    for (number, entry) in checkpoint.tensors.iter().enumerate() {
        let slot = entry.role.slot().cloned();
        // Of two tensors of one name nobody knows which is which.
        let Some([record]) = records.get(&(&entry.path, &slot)).map(Vec::as_slice) else { continue };
        let stayed = match subject.files_of(entry) {
            Some(files) => files.iter().all(is_unchanged) && names(&files) == record.files,
            None => all_stayed,
        };
        let alike = TensorRecord { digests: record.digests, ..TensorRecord::of(entry, record.files.clone()) };
        if stayed && alike == **record && record.digests.cover(options.algorithms) {
            taken.tensors.insert(number, record.digests.only(options.algorithms));
        }
    }
}
