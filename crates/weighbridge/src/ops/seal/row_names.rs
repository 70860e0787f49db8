//! Hashes of row names, in any storage form.

use super::digest::{Algorithms, Digest, Digests, Hashers};
use super::hashing::{Hashed, Wanted};
use super::manifest::TensorRecord;
use crate::checkpoint::{RowNames, TensorEntry};
use crate::engine::Progress;
use crate::error::{Error, Kind, Result};
use crate::finding::Finding;
use crate::ops::parallel;
use std::collections::HashMap;
use std::sync::Arc;

/// Hashes the row names of the requested tensors, each list once.
///
/// # Errors
/// [`Kind::Corrupt`] where they are damaged; errors of the sources; [`Kind::Cancelled`].
pub(super) fn hash(tensors: &[TensorEntry], wanted: &Wanted, hashed: &mut Hashed) -> Result<()> {
    type Found = Vec<(Vec<usize>, Result<Digests>)>;
    let mut places: HashMap<*const (), usize> = HashMap::new();
    let mut jobs = Vec::new();
    for &number in &wanted.tensors {
        let Some(names) = tensors.get(number).and_then(|entry| entry.row_names.as_ref()) else { continue };
        let place = *places.entry(Arc::as_ptr(names).cast()).or_insert(jobs.len());
        if place == jobs.len() {
            jobs.push((names, Vec::new()));
        }
        if let Some((_, numbers)) = jobs.get_mut(place) {
            numbers.push(number);
        }
    }
    let workers = parallel::workers(wanted.threads, jobs.len() as u64);
    let found = parallel::each(jobs.into_iter(), workers, |found: &mut Found, _, (names, numbers)| {
        let first = numbers.first().and_then(|&number| tensors.get(number));
        let named = |error: Error| error.on_tensor(first.map(TensorEntry::name).unwrap_or_default());
        match of(&**names, wanted.algorithms, wanted.progress) {
            Ok(digests) => found.push((numbers, Ok(digests))),
            // The names are intact, but not text, or their number differs from the rows.
            Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::Mismatch) => {
                found.push((numbers, Err(named(error))));
            }
            Err(error) => return Err(named(error)),
        }
        Ok(())
    })?;
    for (numbers, result) in found.into_iter().flatten() {
        match result {
            Ok(digests) => hashed.names.extend(numbers.into_iter().map(|number| (number, digests))),
            Err(error) => hashed.nameless.extend(numbers.first().map(|&number| (number, error))),
        }
    }
    hashed.nameless.sort_by_key(|(number, _)| *number);
    Ok(())
}

/// Returns the hashes of these names: for each in order its length in bytes, as eight bytes little-endian, and the name.
fn of(names: &dyn RowNames, algorithms: Algorithms, progress: &dyn Progress) -> Result<Digests> {
    let mut hashers = Hashers::new(algorithms);
    let mut bytes = Vec::new();
    names.each(&mut |part| {
        if progress.stopped() {
            return Err(Error::cancelled());
        }
        for name in part.iter() {
            bytes.extend_from_slice(&(name.len() as u64).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
            if bytes.len() >= HASH_BLOCK {
                hashers.update(&bytes);
                bytes.clear();
            }
        }
        Ok(())
    })?;
    hashers.update(&bytes);
    Ok(hashers.finish())
}

/// Number of bytes hashed at once.
const HASH_BLOCK: usize = 64 << 10;

/// Compares the row names of a table with the sealed ones; `pair` selects the hashes of a common algorithm.
pub(super) fn compare<'a>(
    record: &'a TensorRecord,
    entry: &TensorEntry,
    hashed: Option<&'a Digests>,
    pair: impl Fn(&'a Digests, &'a Digests) -> Option<(&'a Digest, &'a Digest)>,
) -> Option<Finding> {
    let Some(sealed) = &record.row_names else {
        let text = "the row names are not sealed and cannot be compared";
        let hint = "seal the model again where it is known to be intact";
        return entry.row_names.as_ref().map(|_| Finding::unchecked("names-not-sealed", text).hint(hint));
    };
    if entry.row_names.is_none() {
        return Some(Finding::error("names-missing", "the sealed row names are missing"));
    }
    match hashed.and_then(|hashed| pair(sealed, hashed)) {
        Some((sealed, found)) if sealed == found => None,
        Some(_) => Some(Finding::error("names-changed", "the row names differ from the sealed ones")),
        None => {
            let text = "there is no hash of the row names to compare";
            Some(Finding::unchecked("names-not-hashed", text))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)]

    use super::super::tests::{codes, tensors_only, testdata};
    use super::super::{SealOptions, check, digest, seal};
    use crate::ops::{ConvertOptions, convert};
    use sha2::{Digest as _, Sha256};
    use std::fs;

    #[test]
    fn names_at_other_rows_are_told_in_any_form() {
        let dir = tempfile::tempdir().unwrap();
        let model = testdata("tables/export_std.tsv");
        let sealed = seal(&model, &SealOptions::default()).unwrap();
        // Made in the plainest way.
        let mut hasher = Sha256::new();
        for name in crate::formats::open(&model).unwrap().tensors[0]
            .row_names
            .as_ref()
            .unwrap()
            .read()
            .unwrap()
            .iter()
        {
            hasher.update((name.len() as u64).to_le_bytes());
            hasher.update(name);
        }
        let record = &sealed.manifest.own.as_ref().unwrap().tensors[0];
        let plain: digest::Digest = hasher.finalize().into();
        assert_eq!(record.row_names.as_ref().unwrap().sha256.unwrap(), plain);
        let manifest = dir.path().join("m.json");
        sealed.save(&manifest, true).unwrap();
        // The names of the first two rows in each other's place.
        let text = fs::read_to_string(&model).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let split = |line: &str| line.split_once('\t').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        let ((a, one), (b, two)) = (split(&lines[0]), split(&lines[1]));
        (lines[0], lines[1]) = (format!("{b}\t{one}"), format!("{a}\t{two}"));
        let swapped = dir.path().join("swapped.tsv");
        fs::write(&swapped, lines.join("\n") + "\n").unwrap();
        let options = ConvertOptions { force: true, ..ConvertOptions::default() };
        let older = dir.path().join("older.json");
        let (before, after) =
            (sealed.manifest.to_bytes().windows(14).position(|w| w == b",\"row_names\":{").unwrap(), 2);
        let end = before + sealed.manifest.to_bytes()[before..].iter().position(|&b| b == b'}').unwrap();
        let bytes =
            [&sealed.manifest.to_bytes()[..before], &sealed.manifest.to_bytes()[end + after - 1..]].concat();
        fs::write(&older, bytes).unwrap();
        for target in ["a.tsv", "a.safetensors", "a.npz", "a.pt", "a.h5", "a.arrow", "a.parquet", "a.vec"] {
            let target = dir.path().join(target);
            convert(&model, &target, &options).unwrap();
            let reported = |manifest| check(&target, manifest, &tensors_only()).unwrap();
            assert_eq!(codes(&reported(&manifest)), [""; 0], "{}", target.display());
            // A manifest that knows nothing of names.
            assert_eq!(codes(&reported(&older)), ["names-not-sealed"], "{}", target.display());
            convert(&swapped, &target, &options).unwrap();
            let checked = reported(&manifest);
            assert_eq!(codes(&checked), ["names-changed"], "{}", target.display());
            assert_eq!((checked.tensors.unwrap().equal, checked.tensors.unwrap().changed), (0, 1));
        }
        let bare = dir.path().join("a.npy");
        convert(&model, &bare, &options).unwrap();
        assert_eq!(codes(&check(&bare, &manifest, &tensors_only()).unwrap()), ["names-missing"]);
    }
}
