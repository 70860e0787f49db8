//! From the index to a plan.

use super::names::{dataset_paths, index_name, is_renamed};
use super::types::{self, Known};
use super::{ARCHIVE, KIND, NULL, comes_back, keras};
use std::collections::HashSet;
use weighbridge_core::checkpoint::{Checkpoint, Loss, Metadata, Role, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::WritePlan;
use weighbridge_core::text::counted;
use weighbridge_format::PlanOptions;
use weighbridge_hdf5::StoredAs;
use weighbridge_hdf5::write::{Data, Hdf5Builder};

/// The most attributes of one object that are written; HDF5 ends at 65,535.
const MOST_ATTRIBUTES: usize = 60_000;

/// Lays out `checkpoint`. Datasets stand in its order, one behind the other.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] for what HDF5 cannot hold: `no-such-dtype`, `too-many-dimensions`,
/// `too-long`; [`weighbridge_core::Kind::Usage`] for another kind than `file`.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    if options.kind.as_deref() == Some(ARCHIVE) {
        return Err(Error::usage("archive-not-written", "archives of Keras are not written")
            .hint("write the weights: give a target that ends in .h5"));
    }
    if let Some(kind) = options.kind.as_deref().filter(|&kind| kind != KIND) {
        return Err(Error::usage("unknown-kind", "HDF5 has no such kind of file").expected(KIND).found(kind));
    }
    let paths = dataset_paths(&checkpoint.tensors);
    let mut file = Hdf5Builder::new("");
    let mut losses = Vec::new();
    for (tensor, path) in checkpoint.tensors.iter().zip(&paths) {
        if is_renamed(tensor, path) {
            let path = escape_text(&path.join("/"));
            let detail = format!("it is written as /{path}; this library knows it again, others do not");
            losses.push(Loss::new("renamed", tensor.name(), detail));
        }
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let is_null = tensor.shape.dims() == [0] && tensor.attributes.contains_key(NULL);
        let data = if is_null { Data::Null(tensor.clone()) } else { Data::Tensor(tensor.clone()) };
        file.dataset(&path, data).map_err(|e| e.on_tensor(tensor.name()))?;
        let own: Vec<(&str, &Value)> = tensor.attributes.iter().map(|(k, v)| (k.as_str(), v)).collect();
        let known = types::from_value(tensor.attributes.get(types::KEY));
        let (fit, rest) = sorted(own, &known);
        losses.extend(changed(tensor.name(), &rest));
        for attribute in fit {
            attribute.put(&mut file, &path).map_err(|e| e.on_tensor(tensor.name()))?;
        }
    }
    let (mut held, mut empty) = (HashSet::<&str>::new(), Vec::new());
    let own =
        checkpoint.metadata.iter().filter(|(key, _)| *key != Metadata::INDEX_KEY && !key.starts_with('/'));
    let (fit, rest) = sorted(own.collect(), &types::from_value(checkpoint.metadata.get(types::KEY)));
    losses.extend(changed("/", &rest));
    for attribute in fit {
        attribute.put(&mut file, &[])?;
        held.insert(attribute.name);
    }
    for (key, value) in checkpoint.metadata.iter() {
        if key == Metadata::INDEX_KEY {
            let detail = "this key is reserved for the carried index";
            losses.push(Loss::new("reserved-key", escape_text(key), detail));
            held.insert(key);
        } else if types::is_types(key, value) {
            // The file says them itself where all that they are of is there.
            if rest.is_empty() {
                held.insert(key);
            }
        } else if let Some(Group { path, fit, rest, is_whole }) = of_group(key, value) {
            losses.extend(changed(escape_text(key), &rest));
            // Its metadata comes back from the group or from the index, not from both.
            if is_whole && file.group(&path).is_ok() {
                if fit.is_empty() {
                    empty.push((key, path));
                    continue;
                }
                for attribute in fit {
                    attribute.put(&mut file, &path)?;
                }
                held.insert(key);
            }
        }
    }
    // One with members says nothing by itself, and is not told when it is read.
    held.extend(empty.into_iter().filter(|(_, path)| !file.has_members(path)).map(|(key, _)| key));
    let names: Vec<String> = paths.iter().map(|path| index_name(path)).collect();
    let held = |key: &str, _: &Value| held.contains(key);
    let mut index = checkpoint.bridge_index_beside(&names, held);
    // The groups of Keras say what is the state of an optimizer: that alone needs no index.
    let state = keras::optimizer_state(&paths);
    if index.is_some() && state.contains(&true) {
        let mut said = checkpoint.clone();
        for (tensor, _) in said.tensors.iter_mut().zip(&state).filter(|(_, is_state)| **is_state) {
            if tensor.role == (Role::OptimizerPart { of: None }) {
                tensor.role = Role::Parameter;
            }
        }
        index = index.filter(|_| said.bridge_index_beside(&names, held).is_some());
    }
    if let Some(index) = options.own_entry(index, &checkpoint.label, &mut losses) {
        file.attribute(&[], Metadata::INDEX_KEY, &Value::Text(index))?;
    }
    losses.extend(checkpoint.left_behind());
    Ok(WritePlan { format: "hdf5", kind: KIND, files: vec![file.finish()?], losses })
}

/// An attribute that is written, in a type of its own where it has one.
struct Attribute<'a> {
    name: &'a str,
    value: &'a Value,
    stored_as: Option<StoredAs>,
}

impl Attribute<'_> {
    fn put(&self, file: &mut Hdf5Builder, path: &[&str]) -> Result<()> {
        match &self.stored_as {
            Some(stored_as) => file.attribute_as(path, self.name, self.value, stored_as),
            None => file.attribute(path, self.name, self.value),
        }
    }
}

/// The attributes that come back as they are; then the names of those that had a type in a file of HDF5 and cannot be written
/// in it. What is neither is of another format, and is carried.
fn sorted<'a>(own: Vec<(&'a str, &'a Value)>, known: &Known<'_>) -> (Vec<Attribute<'a>>, Vec<&'a str>) {
    let (mut fit, mut rest) = (Vec::new(), Vec::new());
    for (name, value) in own.into_iter().filter(|(name, value)| !types::is_types(name, value)) {
        let stored_as = known.get(name).cloned();
        let fits = match &stored_as {
            Some(stored_as) => Hdf5Builder::is_attribute_as(name, value, stored_as),
            None => comes_back(name, value) && name != NULL,
        };
        if fits && fit.len() < MOST_ATTRIBUTES {
            fit.push(Attribute { name, value, stored_as });
        } else if stored_as.is_some() {
            rest.push(name);
        }
    }
    (fit, rest)
}

/// The loss of attributes that other readers will not find as they were.
fn changed(subject: impl std::fmt::Display, rest: &[&str]) -> Option<Loss> {
    let first = rest.first()?;
    let detail = format!(
        "{} cannot be written in the type that it had, and stands in the carried index alone: {}",
        counted(rest.len(), "attribute", "attributes"),
        escape_text(first)
    );
    Some(Loss::new("attribute-form", subject, detail))
}

/// A group that a key of the metadata names.
struct Group<'a> {
    path: Vec<&'a str>,
    fit: Vec<Attribute<'a>>,
    /// Attributes that cannot be written in the type that they had.
    rest: Vec<&'a str>,
    /// True where all that is said of the group comes back.
    is_whole: bool,
}

/// The group that a key of the metadata names, and its attributes.
fn of_group<'a>(key: &'a str, value: &'a Value) -> Option<Group<'a>> {
    let Value::Map(pairs) = value else { return None };
    let path: Vec<&str> = key.strip_prefix('/')?.split('/').collect();
    let mut seen = HashSet::new();
    let named: Vec<(&str, &Value)> =
        pairs.iter().filter_map(|(name, value)| Some((name.as_str()?, value))).collect();
    let distinct = named.len() == pairs.len() && named.iter().all(|(name, _)| seen.insert(*name));
    let own_types = named.iter().find(|(name, value)| types::is_types(name, value)).map(|(_, value)| *value);
    let all = named.len() - usize::from(own_types.is_some());
    let names: Vec<&str> = named.iter().map(|(name, _)| *name).filter(|name| *name != types::KEY).collect();
    let (fit, rest) = sorted(named, &types::from_value(own_types));
    // All stand in the index then.
    let rest = if rest.is_empty() { rest } else { names };
    let is_whole = distinct && fit.len() == all;
    Some(Group { path, fit, rest, is_whole })
}
