//! Tensors that are equal though they have bytes of their own.

use super::super::finding;
use crate::check::shared_places;
use crate::checkpoint::TensorEntry;
use crate::error::Result;
use crate::finding::Finding;
use crate::ops::hash::sha256;
use std::collections::{HashMap, HashSet};

/// Shorter tensors are equal by chance, or because they begin so.
const LEAST: u64 = 8;
/// Pairs that are told.
const TOLD: usize = 5;

/// One remark, `equal-tensors`, on tensors of one type and shape with the same elements, which are not
/// all the same; those that are two names for the same bytes are none.
pub(super) fn twins(tensors: &[&TensorEntry]) -> Result<Option<Finding>> {
    let mut alike: HashMap<(&str, &[u64]), Vec<&TensorEntry>> = HashMap::new();
    for tensor in tensors.iter().filter(|tensor| tensor.elements() >= LEAST) {
        alike.entry((tensor.dtype().name(), tensor.shape.dims())).or_default().push(tensor);
    }
    let mut groups: Vec<Vec<&TensorEntry>> = alike.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_by_key(|group| group.first().map(|tensor| tensor.name()));
    let mut pairs = Vec::new();
    for group in groups {
        let mut seen: HashMap<String, &TensorEntry> = HashMap::new();
        let mut places = HashSet::new();
        for tensor in group {
            // The same bytes under two names.
            if !places.insert(shared_places(tensor)) {
                continue;
            }
            let hash = match sha256(tensor) {
                Ok(hash) => hash,
                // Met before, with the checksums or the values.
                Err(error) => {
                    finding(error)?;
                    continue;
                }
            };
            match seen.get(&hash) {
                Some(first) if !is_constant(first)? => pairs.push((first.name(), tensor.name())),
                Some(_) => {}
                None => drop(seen.insert(hash, tensor)),
            }
        }
    }
    if pairs.is_empty() {
        return Ok(None);
    }
    let shown: Vec<String> = pairs.iter().take(TOLD).map(|(a, b)| format!("{b} is {a}")).collect();
    let more = pairs.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let text =
        format!("{} tensors have the elements of another one: {}{more}", pairs.len(), shown.join(", "));
    Ok(Some(Finding::note("equal-tensors", text)))
}

/// True where all elements are the same, as in a bias that begins with zeros.
fn is_constant(tensor: &TensorEntry) -> Result<bool> {
    let options = crate::ops::stats::StatsOptions { bins: 0, threads: 1 };
    Ok(crate::ops::stats::stats(tensor, &options)?.all_equal)
}
