//! Hashes of the files and tensors of a subject: in the single pass where possible, otherwise through the engine.

use super::block::Stretch;
use super::digest::{Algorithms, Digests, Hashers, of_nothing};
use super::pass::{self, Job};
use super::row_names;
use super::subject::Subject;
use crate::checkpoint::TensorEntry;
use crate::checksum::{Check, ChecksumKind};
use crate::engine::Progress;
use crate::error::{Error, Kind, Result};
use crate::ops::{hash, parallel};
use crate::tensor::{Endian, Order};
use std::collections::HashMap;
use std::sync::Arc;

/// Requested hashes.
pub(super) struct Wanted<'a> {
    /// For each file, the hashes of the whole file.
    pub(super) files: Vec<Algorithms>,
    /// The tensors, by index.
    pub(super) tensors: Vec<usize>,
    /// The hashes of the tensors.
    pub(super) algorithms: Algorithms,
    pub(super) threads: usize,
    pub(super) progress: &'a dyn Progress,
}

/// Results.
#[derive(Debug, Default)]
pub(super) struct Hashed {
    /// For each file its length, if it was read, and its hashes.
    pub(super) files: Vec<(Option<u64>, Digests)>,
    /// The hashes of the requested tensors, by index.
    pub(super) tensors: Vec<Option<Digests>>,
    /// Tensors without a hash, with the reason.
    pub(super) failed: Vec<(usize, Error)>,
    /// The hashes of row names, by index of the tensor.
    pub(super) names: HashMap<usize, Digests>,
    /// Tensors whose row names have no hash, with the reason.
    pub(super) nameless: Vec<(usize, Error)>,
    /// Number of tensors that were read through the engine, in addition to the pass over the files.
    pub(super) read_again: usize,
}

impl Hashed {
    /// Returns the hashes of the tensor at `place`, if it has any.
    pub(super) fn of(&self, place: usize) -> Option<&Digests> {
        self.tensors.get(place)?.as_ref()
    }

    fn keep(&mut self, place: usize, digests: Digests) {
        if let Some(slot) = self.tensors.get_mut(place) {
            *slot = Some(digests);
        }
    }
}

/// Location of the bytes of a tensor.
enum Target {
    /// One stretch of a file, in the hashed form.
    Direct { file: usize, start: u64, end: u64, checks: Vec<(usize, u64, Arc<Check>)> },
    /// No bytes.
    Nothing,
    /// Another order, type or encoding, or several stretches.
    Elsewhere,
}

fn target(subject: &Subject, entry: &TensorEntry) -> Target {
    if entry.cast.is_some() {
        return Target::Elsewhere;
    }
    match entry.shape.bytes(entry.stored) {
        Some(0) => Target::Nothing,
        Some(len) => direct(subject, entry, len).unwrap_or(Target::Elsewhere),
        None => Target::Elsewhere,
    }
}

/// Returns the single stretch of `len` bytes with the elements in row-major order, little-endian.
fn direct(subject: &Subject, entry: &TensorEntry, len: u64) -> Option<Target> {
    let mut extents: Vec<_> = entry.extents.iter().collect();
    extents.sort_by_key(|extent| extent.first_row());
    let (mut found, mut row, mut checks) = (None::<(usize, u64, u64)>, 0, Vec::new());
    for extent in extents {
        let region = extent.region(&entry.shape);
        let shape = region.shape();
        let plain = extent.encoding.endian == Endian::Little || entry.stored.swap_unit() == 1;
        let in_order = extent.encoding.order == Order::Row || shape.is_order_free();
        let whole_rows = region.shape.get(1..).unwrap_or_default()
            == entry.shape.dims().get(1..).unwrap_or_default()
            && region.start.iter().skip(1).all(|&start| start == 0);
        let follows = region.start.first().is_none_or(|&start| start == row);
        if !plain || !in_order || !whole_rows || !follows || shape.bytes(entry.stored) != Some(extent.len) {
            return None;
        }
        row += region.shape.first().copied().unwrap_or(0);
        let (file, start) = subject.place(&extent.source, extent.offset)?;
        found = match found {
            None => Some((file, start, start.checked_add(extent.len)?)),
            Some((same, first, end)) if same == file && end == start => {
                Some((file, first, end.checked_add(extent.len)?))
            }
            Some(_) => return None,
        };
        if let Some(check) = extent.check.clone() {
            let (file, start) = subject.place(check.source(), check.offset())?;
            checks.push((file, start, check));
        }
    }
    let (file, start, end) = found.filter(|(_, start, end)| end - start == len)?;
    Some(Target::Direct { file, start, end, checks })
}

/// Stretches to read from the files.
#[derive(Default)]
struct Plan {
    /// The stretches of each file, and the index of each by its range.
    stretches: Vec<Vec<Stretch>>,
    known: HashMap<(usize, u64, u64), usize>,
}

impl Plan {
    /// Returns the index of a stretch among those of its file; equal ones are merged.
    fn stretch(
        &mut self,
        file: usize,
        start: u64,
        end: u64,
        hashes: Algorithms,
        crc: Option<ChecksumKind>,
    ) -> usize {
        let Some(list) = self.stretches.get_mut(file) else { return 0 };
        let place = *self.known.entry((file, start, end)).or_insert(list.len());
        if place == list.len() {
            list.push(Stretch { start, end, hashes: Algorithms::NONE, crc: None });
        }
        if let Some(stretch) = list.get_mut(place) {
            stretch.crc = stretch.crc.or(crc);
            stretch.hashes.sha256 |= hashes.sha256;
            stretch.hashes.blake3 |= hashes.blake3;
        }
        place
    }
}

/// Checksum of a file, with its stretch.
struct Sum {
    file: usize,
    stretch: usize,
    check: Arc<Check>,
    tensor: usize,
}

/// Computes the requested hashes of `subject`.
///
/// # Errors
/// [`crate::Kind::Corrupt`] where bytes do not match the checksums of the file; errors of the sources;
/// [`crate::Kind::Cancelled`].
pub(super) fn hash(subject: &Subject, wanted: &Wanted) -> Result<Hashed> {
    let no_tensors = Vec::new();
    let tensors = subject.checkpoint.as_ref().map_or(&no_tensors, |checkpoint| &checkpoint.tensors);
    let mut hashed = Hashed {
        files: vec![(None, Digests::default()); subject.files.len()],
        tensors: vec![None; tensors.len()],
        ..Hashed::default()
    };
    let nothing = of_nothing(wanted.algorithms);
    let mut plan = Plan { stretches: vec![Vec::new(); subject.files.len()], ..Plan::default() };
    let (mut direct, mut sums, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new());
    for &number in &wanted.tensors {
        let Some(entry) = tensors.get(number) else { continue };
        match target(subject, entry) {
            Target::Direct { file, start, end, checks } => {
                direct.push((number, file, plan.stretch(file, start, end, wanted.algorithms, None)));
                for (file, start, check) in checks.into_iter().filter(|(.., check)| !check.is_empty()) {
                    let end = start.saturating_add(check.len());
                    let stretch = plan.stretch(file, start, end, Algorithms::NONE, Some(check.kind()));
                    sums.push(Sum { file, stretch, check, tensor: number });
                }
            }
            Target::Nothing => {
                hashed.keep(number, nothing);
            }
            Target::Elsewhere => elsewhere.push((number, entry)),
        }
    }
    // The pass needs stretches in the order of their starts: record their new indices.
    let mut moved: Vec<Vec<usize>> = Vec::with_capacity(plan.stretches.len());
    let (mut jobs, mut of_job) = (Vec::new(), vec![None; subject.files.len()]);
    for ((number, file), stretches) in subject.files.iter().enumerate().zip(&mut plan.stretches) {
        let mut order: Vec<usize> = (0..stretches.len()).collect();
        order.sort_by_key(|&place| stretches.get(place).map(|s| (s.start, s.end)));
        let mut places = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            if let Some(place) = places.get_mut(old) {
                *place = new;
            }
        }
        moved.push(places);
        stretches.sort_by_key(|s| (s.start, s.end));
        let whole = wanted.files.get(number).copied().unwrap_or(Algorithms::NONE);
        if whole.is_empty() && stretches.is_empty() {
            continue;
        }
        if let Some(slot) = of_job.get_mut(number) {
            *slot = Some(jobs.len());
        }
        let stretches = std::mem::take(stretches);
        jobs.push(Job { from: file.from.clone(), len: file.stamp.len, whole, stretches });
    }
    let bytes = jobs.iter().map(Job::bytes).chain(elsewhere.iter().map(|(_, entry)| entry.bytes()));
    wanted.progress.begin(bytes.fold(0, u64::saturating_add));
    let files = pass::run(&jobs, wanted.threads, wanted.progress)?;
    let of_file = |file: usize| files.get((*of_job.get(file)?)?);
    let of_stretch = |file: usize, stretch: usize| {
        let place = *moved.get(file)?.get(stretch)?;
        of_file(file)?.stretches.get(place)
    };
    for sum in &sums {
        let found = of_stretch(sum.file, sum.stretch).and_then(|found| found.crc).unwrap_or_default();
        if found != sum.check.value() {
            let (file, entry) = (subject.files.get(sum.file), tensors.get(sum.tensor));
            let label = file.map_or_else(String::new, |file| file.path.display().to_string());
            let tensor = entry.map_or_else(String::new, TensorEntry::name);
            return Err(sum.check.mismatch(&label, found).on_tensor(tensor));
        }
    }
    for (number, slot) in hashed.files.iter_mut().enumerate() {
        if let Some(file) = of_file(number) {
            *slot = (Some(file.len), file.whole);
        }
    }
    for (number, file, stretch) in direct {
        let found = of_stretch(file, stretch).map_or_else(Digests::default, |found| found.digests);
        hashed.keep(number, found.only(wanted.algorithms));
    }
    hashed.read_again = elsewhere.len();
    through_engine(&elsewhere, wanted, &mut hashed)?;
    row_names::hash(tensors, wanted, &mut hashed)?;
    Ok(hashed)
}

/// Hashes tensors whose bytes in the file differ from the hashed form.
fn through_engine(tensors: &[(usize, &TensorEntry)], wanted: &Wanted, hashed: &mut Hashed) -> Result<()> {
    type Found = Vec<(usize, Result<Digests>)>;
    let jobs = hash::jobs(tensors.iter().map(|(_, entry)| *entry));
    let workers = parallel::workers(wanted.threads, jobs.len() as u64);
    let found = parallel::each(jobs.into_iter(), workers, |found: &mut Found, _, job| {
        for (number, entry) in job.into_iter().filter_map(|place| tensors.get(place)) {
            let mut hashers = Hashers::new(wanted.algorithms);
            let fed = hash::for_each_chunk(entry, &mut |bytes| {
                if wanted.progress.stopped() {
                    return Err(Error::cancelled());
                }
                hashers.update(bytes);
                wanted.progress.advance(bytes.len() as u64);
                Ok(())
            });
            match fed {
                Ok(()) => found.push((*number, Ok(hashers.finish()))),
                Err(error) if error.kind() == Kind::Unsupported => found.push((*number, Err(error))),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })?;
    for (number, result) in found.into_iter().flatten() {
        match result {
            Ok(digests) => {
                hashed.keep(number, digests);
            }
            Err(error) => hashed.failed.push((number, error)),
        }
    }
    hashed.failed.sort_by_key(|(number, _)| *number);
    Ok(())
}
