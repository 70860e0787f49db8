//! Comparison of the tensors of a manifest with those of an opened checkpoint, in any format.

use super::digest::{Algorithm, Algorithms, Digest, Digests};
use super::hashing::Hashed;
use super::manifest::{Own, TensorRecord};
use super::row_names;
use crate::checkpoint::{Name, TensorEntry, TensorPath};
use crate::finding::{Finding, Severity};
use crate::text::escape;
use serde_json::{Value as Json, json};
use std::collections::{HashMap, VecDeque};

/// Number of tensors by result of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TensorCounts {
    /// Equal, with the same name.
    pub equal: usize,
    /// Different values, type or shape.
    pub changed: usize,
    /// Equal, with another name.
    pub renamed: usize,
    /// Only in the manifest.
    pub missing: usize,
    /// Only in the file.
    pub extra: usize,
    /// Without a hash to compare.
    pub unchecked: usize,
}

impl TensorCounts {
    /// Returns the fields by name.
    pub fn to_json(self) -> Json {
        json!({
            "equal": self.equal, "changed": self.changed, "renamed": self.renamed,
            "missing": self.missing, "extra": self.extra, "unchecked": self.unchecked,
        })
    }
}

/// Returns the algorithms for comparing the tensors of a manifest; `main` where they have it.
pub(super) fn algorithms(own: &Own, main: Algorithm) -> Algorithms {
    let mut wanted = Algorithms::default();
    for record in &own.tensors {
        match record.digests.common(&record.digests, &preferred(main)) {
            Some(Algorithm::Sha256) => wanted.sha256 = true,
            Some(Algorithm::Blake3) => wanted.blake3 = true,
            None => {}
        }
    }
    wanted
}

fn preferred(main: Algorithm) -> [Algorithm; 3] {
    [main, Algorithm::Sha256, Algorithm::Blake3]
}

/// Compares `tensors`, which have the hashes `found`, with the manifest.
pub(super) fn compare(
    own: &Own,
    main: Algorithm,
    tensors: &[TensorEntry],
    found: &Hashed,
) -> (Vec<Finding>, TensorCounts) {
    let mut pairs: Vec<Option<usize>> = vec![None; own.tensors.len()];
    let mut taken = vec![false; tensors.len()];
    // Some formats have no paths, so equal displayed names match, too.
    type Key = (TensorPath, Option<Name>);
    let of_record = |record: &TensorRecord| -> Key { (record.path.clone(), record.slot.clone()) };
    let of_entry = |entry: &TensorEntry| -> Key { (entry.path.clone(), entry.role.slot().cloned()) };
    by(own, tensors, &mut pairs, &mut taken, |_, r| Some(of_record(r)), |_, e| Some(of_entry(e)));
    by(own, tensors, &mut pairs, &mut taken, |_, r| Some(r.text()), |_, e| Some(e.text()));
    let named: Vec<bool> = pairs.iter().map(Option::is_some).collect();
    let algorithm = |digests: &Digests| digests.common(digests, &preferred(main));
    let content = |digests: &Digests, dtype: &str, shape: &[u64]| {
        let algorithm = algorithm(digests)?;
        Some((algorithm, digests.get(algorithm).copied()?, dtype.to_owned(), shape.to_vec()))
    };
    by(
        own,
        tensors,
        &mut pairs,
        &mut taken,
        |_, r| content(&r.digests, &r.dtype, r.shape.dims()),
        |place, e| content(found.of(place)?, e.dtype().name(), e.shape.dims()),
    );
    let (mut findings, mut counts) = (Vec::new(), TensorCounts::default());
    for ((record, pair), named) in own.tensors.iter().zip(&pairs).zip(named) {
        let name = escape(&record.text());
        let entry = pair.and_then(|place| Some((place, tensors.get(place)?)));
        let Some((place, entry)) = entry else {
            counts.missing += 1;
            findings.push(Finding::error("tensor-missing", "the tensor is missing").on_tensor(name));
            continue;
        };
        if !named {
            counts.renamed += 1;
            let text = format!("the tensor was renamed to {}", entry.name());
            findings.push(Finding::error("tensor-renamed", text).on_tensor(name));
            continue;
        }
        let equal = counts.equal;
        let finding = one(record, entry, found.of(place), main, &mut counts);
        findings.extend(finding.map(|finding| finding.on_tensor(&name)));
        let pair = |sealed, found| both(sealed, found, main);
        if let Some(finding) = row_names::compare(record, entry, found.names.get(&place), pair) {
            // A table consists of elements and row names.
            if counts.equal > equal {
                counts.equal -= 1;
                match finding.severity {
                    Severity::Error => counts.changed += 1,
                    _ => counts.unchecked += 1,
                }
            }
            findings.push(finding.on_tensor(&name));
        }
        if record.role != entry.role.as_str() {
            let text =
                format!("the role was {} when sealed, and is {}", escape(&record.role), entry.role.as_str());
            findings.push(Finding::note("tensor-role", text).on_tensor(&name));
        }
    }
    for entry in tensors.iter().zip(&taken).filter(|(_, taken)| !**taken).map(|(entry, _)| entry) {
        counts.extra += 1;
        let finding = Finding::error("tensor-extra", "the tensor is not in the manifest");
        findings.push(finding.on_tensor(entry.name()));
    }
    (findings, counts)
}

/// Returns the two hashes of an algorithm that both have.
fn both<'a>(a: &'a Digests, b: &'a Digests, main: Algorithm) -> Option<(&'a Digest, &'a Digest)> {
    let algorithm = a.common(b, &preferred(main))?;
    a.get(algorithm).zip(b.get(algorithm))
}

/// Compares a tensor with the record of its name.
fn one(
    record: &TensorRecord,
    entry: &TensorEntry,
    hashed: Option<&Digests>,
    main: Algorithm,
    counts: &mut TensorCounts,
) -> Option<Finding> {
    if record.dtype != entry.dtype().name() {
        counts.changed += 1;
        let text = format!("the dtype was {} when sealed, and is {}", escape(&record.dtype), entry.dtype());
        return Some(Finding::error("tensor-dtype", text));
    }
    if record.shape != entry.shape {
        counts.changed += 1;
        let text = format!("the shape was {} when sealed, and is {}", record.shape, entry.shape);
        return Some(Finding::error("tensor-shape", text));
    }
    let common = hashed.and_then(|hashed| both(&record.digests, hashed, main));
    match common.map(|(sealed, found)| sealed == found) {
        Some(true) => {
            counts.equal += 1;
            None
        }
        Some(false) => {
            counts.changed += 1;
            Some(Finding::error("tensor-changed", "the elements differ from the sealed ones"))
        }
        None => {
            counts.unchecked += 1;
            Some(Finding::unchecked("tensor-not-hashed", "there is no hash of the tensor to compare"))
        }
    }
}

/// Pairs the remaining tensors by a key; several with the same key in order.
fn by<K: std::hash::Hash + Eq>(
    own: &Own,
    tensors: &[TensorEntry],
    pairs: &mut [Option<usize>],
    taken: &mut [bool],
    of_record: impl Fn(usize, &TensorRecord) -> Option<K>,
    of_entry: impl Fn(usize, &TensorEntry) -> Option<K>,
) {
    if pairs.iter().all(Option::is_some) {
        return;
    }
    let mut free: HashMap<K, VecDeque<usize>> = HashMap::new();
    for ((place, entry), _) in tensors.iter().enumerate().zip(taken.iter()).filter(|(_, taken)| !**taken) {
        if let Some(key) = of_entry(place, entry) {
            free.entry(key).or_default().push_back(place);
        }
    }
    for ((number, record), pair) in
        own.tensors.iter().enumerate().zip(pairs).filter(|(_, pair)| pair.is_none())
    {
        let Some(key) = of_record(number, record) else { continue };
        let Some(place) = free.get_mut(&key).and_then(VecDeque::pop_front) else { continue };
        *pair = Some(place);
        if let Some(taken) = taken.get_mut(place) {
            *taken = true;
        }
    }
}
