//! Split parameters, which Paddle joins from parts when it loads a dict.

use super::graph::{Graph, Object, ObjectId};
use super::numpy::NdArray;
use super::opened::Options;
use std::collections::{HashMap, HashSet};

/// Key of the dict that describes the split parameters.
pub const SPLIT: &str = "UnpackBigParamInfor@@";
/// Key of the list of parts in that dict.
pub const SLICES: &str = "slices";

/// Returns true if joined parts take far more memory than the file: a part is named twice or under two names, shares its bytes
/// with another part, or is a joined parameter itself. Also true for a malformed description, or one that two parameters
/// share.
pub(super) fn multiply(graph: &Graph, len: u64, options: &Options) -> bool {
    let is_key = |id: ObjectId| graph.text(id) == Some(SPLIT);
    if !graph.iter().any(|(id, _)| is_key(id)) {
        return false;
    }
    let mut dicts = 0;
    for (_, object) in graph.iter() {
        let pairs = match object {
            Object::Dict(pairs) => pairs,
            Object::Reduced(made) => &made.pairs,
            Object::List(items) | Object::Set(items) if items.iter().any(|&id| is_key(id)) => return true,
            Object::Tuple(items) | Object::FrozenSet(items) if items.iter().any(|&id| is_key(id)) => {
                return true;
            }
            _ => continue,
        };
        for &(_, value) in pairs.iter().filter(|(key, _)| is_key(*key)) {
            dicts += 1;
            // Paddle reads the description of the outermost dict only.
            if dicts > 1 || !are_disjoint(graph, value, pairs, len, options) {
                return true;
            }
        }
    }
    false
}

/// Returns true if each part that `described` names is an array of its own, and all of them together are no longer than the
/// file. Visits each description and each part once, so the check takes no longer than reading the pickle.
fn are_disjoint(
    graph: &Graph,
    described: ObjectId,
    pairs: &[(ObjectId, ObjectId)],
    len: u64,
    options: &Options,
) -> bool {
    let Object::Dict(described) = graph.object(described) else { return false };
    let values: HashMap<&str, ObjectId> =
        pairs.iter().filter_map(|&(key, value)| Some((graph.text(key)?, value))).collect();
    let mut whole = HashSet::new();
    let (mut met, mut taken, mut left) = (HashSet::new(), HashSet::new(), Some(len));
    for &(key, fields) in described {
        // Paddle writes one for each parameter.
        if !met.insert(fields) {
            return false;
        }
        let (Some(key), Object::Dict(fields)) = (graph.text(key), graph.object(fields)) else { return false };
        whole.insert(key);
        for &(name, parts) in fields {
            match (graph.text(name), graph.sequence(parts)) {
                (Some(SLICES), Some(parts)) => {
                    for &part in parts {
                        let Some((name, &id)) =
                            graph.text(part).and_then(|name| Some((name, values.get(name)?)))
                        else {
                            return false;
                        };
                        let array = NdArray::of(graph, id, options).ok().flatten();
                        let bytes = array.and_then(|array| array.payload).map(|payload| payload.len);
                        left = left.zip(bytes).and_then(|(left, bytes)| left.checked_sub(bytes));
                        if left.is_none() || !taken.insert(id) || whole.contains(name) {
                            return false;
                        }
                    }
                }
                (Some(SLICES), None) | (None, _) => return false,
                _ => {}
            }
        }
    }
    true
}
