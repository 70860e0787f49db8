//! Equal tensors that do not share storage.

use super::super::finding;
use crate::checkpoint::TensorEntry;
use crate::error::Result;
use crate::finding::Finding;
use crate::ops::hash::{for_each_chunk, sha256_each};
use crate::ops::stats::{Number, Stats};
use crate::tensor::DType;
use crate::text::{counted, first_and_more};
use std::collections::{HashMap, HashSet};

/// Minimum number of elements: shorter tensors are often equal by chance or by initialization.
const MIN_ELEMENTS: u64 = 8;
/// Number of pairs named in the finding.
const NAMED_PAIRS: usize = 5;

/// Properties that equal tensors have in common in any order: few other tensors are hashed.
#[derive(PartialEq, Eq, Hash)]
struct Signature<'a> {
    dtype: DType,
    dims: &'a [u64],
    counts: [u64; 4],
    range: Option<[u64; 2]>,
}

impl<'a> Signature<'a> {
    fn of(tensor: &'a TensorEntry, stats: Option<&Stats>) -> Self {
        // Adding 0 unifies 0 and -0: either may be found first.
        let bits = |number: Number| (number.to_f64() + 0.0).to_bits();
        Self {
            dtype: tensor.dtype(),
            dims: tensor.shape.dims(),
            counts: stats.map_or([0; 4], |s| [s.finite, s.zeros, s.nan, s.subnormal]),
            range: stats.and_then(|s| Some([bits(s.min?), bits(s.max?)])),
        }
    }
}

/// Returns one remark, `equal-tensors`, on tensors of one type and shape with the same elements that are not all equal. Tensors
/// that share their bytes do not count. Only tensors with equal signatures are read.
pub(super) fn duplicates(
    tensors: &[(&TensorEntry, Option<Stats>)],
    threads: usize,
) -> Result<Option<Finding>> {
    let mut alike: HashMap<Signature, Vec<&TensorEntry>> = HashMap::new();
    for (tensor, stats) in tensors.iter().filter(|(tensor, _)| tensor.elements() >= MIN_ELEMENTS) {
        if !stats.as_ref().is_some_and(|stats| stats.all_equal) {
            alike.entry(Signature::of(tensor, stats.as_ref())).or_default().push(tensor);
        }
    }
    let mut groups: Vec<Vec<&TensorEntry>> = alike.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_by_key(|group| group.first().map(|tensor| tensor.name()));
    for group in &mut groups {
        // Tensors that share their bytes.
        let mut places = HashSet::new();
        group.retain(|tensor| places.insert(tensor.shared_places()));
    }
    groups.retain(|group| group.len() > 1);
    // Unreadable tensors were reported before, with the checksums or the values.
    let unread = |error| finding(error).map(drop);
    let mut hashes = sha256_each(&groups.concat(), threads, &unread)?.into_iter();
    let mut pairs = Vec::new();
    for group in groups {
        let mut seen: HashMap<String, &TensorEntry> = HashMap::new();
        for (tensor, hash) in group.into_iter().zip(hashes.by_ref()) {
            let Some(hash) = hash else { continue };
            match seen.get(&hash) {
                Some(first) if !repeats_a_byte(first)? => pairs.push((first.name(), tensor.name())),
                Some(_) => {}
                None => drop(seen.insert(hash, tensor)),
            }
        }
    }
    if pairs.is_empty() {
        return Ok(None);
    }
    let text = format!(
        "{} the same elements as another one: {}",
        counted(pairs.len(), "tensor has", "tensors have"),
        first_and_more(pairs.iter().map(|(a, b)| format!("{b} equals {a}")), NAMED_PAIRS)
    );
    Ok(Some(Finding::note("equal-tensors", text)))
}

/// True where all bytes of the elements are equal, as in packed elements of zeros.
fn repeats_a_byte(tensor: &TensorEntry) -> Result<bool> {
    let (mut first, mut all) = (None, true);
    for_each_chunk(tensor, &mut |bytes| {
        let wanted = *first.get_or_insert(bytes.first().copied());
        all = all && bytes.iter().all(|byte| Some(*byte) == wanted);
        Ok(())
    })?;
    Ok(all)
}
