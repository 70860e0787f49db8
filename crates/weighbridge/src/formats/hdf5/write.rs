//! From the index to a plan.

use super::names::{dataset_paths, index_name};
use super::{KIND, comes_back};
use crate::checkpoint::{Checkpoint, INDEX_KEY, Loss, Value, bridge_index_beside, escape_text, left_behind};
use crate::containers::hdf5::write::{Data, Hdf5Builder};
use crate::error::{Error, Result};
use crate::formats::PlanOptions;
use crate::plan::WritePlan;
use std::collections::HashSet;

/// The most attributes of one object that are written; HDF5 ends at 65,535.
const MOST_ATTRIBUTES: usize = 60_000;

/// Lays out `checkpoint`. Datasets stand in its order, one behind the other.
///
/// # Errors
/// [`crate::Kind::Mismatch`] for what HDF5 cannot hold: `no-such-dtype`, `too-many-dimensions`,
/// `too-long`; [`crate::Kind::Usage`] for another kind than `file`.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    if let Some(kind) = options.kind.as_deref().filter(|&kind| kind != KIND) {
        return Err(Error::usage("unknown-kind", "HDF5 has no such kind of file").expected(KIND).found(kind));
    }
    let paths = dataset_paths(&checkpoint.tensors);
    let mut file = Hdf5Builder::new("");
    for (tensor, path) in checkpoint.tensors.iter().zip(&paths) {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        file.dataset(&path, Data::Tensor(tensor.clone())).map_err(|e| e.on_tensor(tensor.name()))?;
        let own = tensor.attributes.iter().filter(|(name, value)| comes_back(name, value));
        for (name, value) in own.take(MOST_ATTRIBUTES) {
            file.attribute(&path, name, value).map_err(|e| e.on_tensor(tensor.name()))?;
        }
    }
    let mut losses = Vec::new();
    let mut held: HashSet<&str> = HashSet::new();
    for (key, value) in checkpoint.metadata.iter() {
        if key == INDEX_KEY {
            let detail = "this key is reserved for the carried index";
            losses.push(Loss::new("reserved-key", escape_text(key), detail));
            held.insert(key);
        } else if comes_back(key, value) && !key.starts_with('/') && held.len() < MOST_ATTRIBUTES {
            file.attribute(&[], key, value)?;
            held.insert(key);
        } else if let Some((path, attributes)) = of_group(key, value)
            && file.group(&path).is_ok()
        {
            for (name, value) in attributes {
                file.attribute(&path, name, value)?;
            }
            held.insert(key);
        }
    }
    let names: Vec<String> = paths.iter().map(|path| index_name(path)).collect();
    if let Some(index) = bridge_index_beside(checkpoint, &names, |key, _| held.contains(key)) {
        file.attribute(&[], INDEX_KEY, &Value::Text(index))?;
    }
    losses.extend(left_behind(checkpoint));
    Ok(WritePlan { format: "hdf5", kind: KIND, files: vec![file.finish()?], losses })
}

/// The path of a group, and its attributes.
type Group<'a> = (Vec<&'a str>, Vec<(&'a str, &'a Value)>);

/// The group that a key of the metadata names, and its attributes, where all of them come back.
fn of_group<'a>(key: &'a str, value: &'a Value) -> Option<Group<'a>> {
    let Value::Map(pairs) = value else { return None };
    let path: Vec<&str> = key.strip_prefix('/')?.split('/').collect();
    let mut seen = HashSet::new();
    let attributes: Option<Vec<_>> = pairs
        .iter()
        .map(|(name, value)| Some((name.as_str()?, value)))
        .map(|pair| pair.filter(|(name, value)| comes_back(name, value) && seen.insert(*name)))
        .collect();
    let attributes = attributes.filter(|list| !list.is_empty() && list.len() <= MOST_ATTRIBUTES)?;
    Some((path, attributes))
}
