//! Tensors that are equal though they have bytes of their own.

use super::super::finding;
use crate::checkpoint::TensorEntry;
use crate::error::Result;
use crate::finding::Finding;
use crate::ops::hash::{for_each_chunk, sha256_each};
use crate::ops::stats::{Number, Stats};
use crate::tensor::DType;
use crate::text::{counted, first_and_more};
use std::collections::{HashMap, HashSet};

/// Shorter tensors are equal by chance, or because they begin so.
const LEAST: u64 = 8;
/// Pairs that are told.
const TOLD: usize = 5;

/// What equal tensors have in common, whatever their order: enough that few others are hashed.
#[derive(PartialEq, Eq, Hash)]
struct Looks<'a> {
    dtype: DType,
    dims: &'a [u64],
    counts: [u64; 4],
    range: Option<[u64; 2]>,
}

impl<'a> Looks<'a> {
    fn of(tensor: &'a TensorEntry, stats: Option<&Stats>) -> Self {
        // Adding 0 makes one of both zeros, of which either may be found first.
        let bits = |number: Number| (number.to_f64() + 0.0).to_bits();
        Self {
            dtype: tensor.dtype(),
            dims: tensor.shape.dims(),
            counts: stats.map_or([0; 4], |s| [s.finite, s.zeros, s.nan, s.subnormal]),
            range: stats.and_then(|s| Some([bits(s.min?), bits(s.max?)])),
        }
    }
}

/// One remark, `equal-tensors`, on tensors of one type and shape with the same elements, which are not
/// all the same; those that are two names for the same bytes are none. Only those are read that have the same numbers
/// in common, or none: those of packed types.
pub(super) fn duplicates(
    tensors: &[(&TensorEntry, Option<Stats>)],
    threads: usize,
) -> Result<Option<Finding>> {
    let mut alike: HashMap<Looks, Vec<&TensorEntry>> = HashMap::new();
    for (tensor, stats) in tensors.iter().filter(|(tensor, _)| tensor.elements() >= LEAST) {
        if !stats.as_ref().is_some_and(|stats| stats.all_equal) {
            alike.entry(Looks::of(tensor, stats.as_ref())).or_default().push(tensor);
        }
    }
    let mut groups: Vec<Vec<&TensorEntry>> = alike.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_by_key(|group| group.first().map(|tensor| tensor.name()));
    for group in &mut groups {
        // The same bytes under two names.
        let mut places = HashSet::new();
        group.retain(|tensor| places.insert(tensor.shared_places()));
    }
    groups.retain(|group| group.len() > 1);
    // What cannot be read was met before, with the checksums or the values.
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
        "{} the elements of another one: {}",
        counted(pairs.len(), "tensor has", "tensors have"),
        first_and_more(pairs.iter().map(|(a, b)| format!("{b} is {a}")), TOLD)
    );
    Ok(Some(Finding::note("equal-tensors", text)))
}

/// True where all bytes of the elements are the same, as in packed elements that begin with zeros.
fn repeats_a_byte(tensor: &TensorEntry) -> Result<bool> {
    let (mut first, mut all) = (None, true);
    for_each_chunk(tensor, &mut |bytes| {
        let wanted = *first.get_or_insert(bytes.first().copied());
        all = all && bytes.iter().all(|byte| Some(*byte) == wanted);
        Ok(())
    })?;
    Ok(all)
}
