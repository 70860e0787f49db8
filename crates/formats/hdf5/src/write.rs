//! Writer: checkpoint to plan.

use super::names::{dataset_paths, index_name, is_renamed};
use super::types::{self, StoredTypes};
use super::{ARCHIVE, KIND, NULL, archive, is_lossless, keras};
use serde_json::Value as Json;
use std::collections::HashSet;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Loss, Metadata, Role, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{PlannedFile, WritePlan};
use weighbridge_core::text::counted;
use weighbridge_format::PlanOptions;
use weighbridge_hdf5::StoredAs;
use weighbridge_hdf5::write::{Data, Hdf5Builder};

/// Maximum number of attributes of an object; HDF5 allows 65,535.
const MAX_ATTRIBUTES: usize = 60_000;

/// Plans the file or archive of `checkpoint`. Datasets have the order of the tensors.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] for what HDF5 cannot hold: `no-such-dtype`, `too-many-dimensions`,
/// `too-long`; `config-missing` for an archive without layers; [`weighbridge_core::Kind::Usage`] for an unknown kind.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    match options.kind.as_deref() {
        Some(ARCHIVE) => archive::plan(checkpoint, options),
        None | Some(KIND) => {
            let (file, losses) = file(checkpoint, options, None)?;
            Ok(WritePlan { format: "hdf5", kind: KIND, files: vec![file], losses })
        }
        Some(other) => Err(Error::usage("unknown-kind", "unknown kind of HDF5 file")
            .expected(format_args!("{KIND} or {ARCHIVE}"))
            .found(other)),
    }
}

/// Plans the HDF5 file of `checkpoint`, and returns its losses. `config` has the layers of the archive around it.
///
/// # Errors
/// As [`plan`].
pub(super) fn file(
    checkpoint: &Checkpoint,
    options: &PlanOptions,
    config: Option<&Json>,
) -> Result<(PlannedFile, Vec<Loss>)> {
    let paths = dataset_paths(&checkpoint.tensors);
    let mut file = Hdf5Builder::new("");
    let mut losses = Vec::new();
    let implied = keras::implied(&paths, &checkpoint.tensors, &checkpoint.metadata, config);
    // Names and roles that follow from the groups need no bridge metadata.
    let mut unimplied = checkpoint.clone();
    for (tensor, implied) in unimplied.tensors.iter_mut().zip(&implied) {
        if tensor.role == implied.role {
            tensor.role = Role::Parameter;
        }
        if implied.name.is_some()
            && tensor.text_attribute(Attributes::VARIABLE_NAME) == implied.name.as_deref()
        {
            tensor.attributes.remove(Attributes::VARIABLE_NAME);
        }
    }
    for (tensor, path) in unimplied.tensors.iter().zip(&paths) {
        if is_renamed(tensor, path) {
            let path = escape_text(&path.join("/"));
            let detail = format!("written as /{path}; Weighbridge restores the name, other programs do not");
            losses.push(Loss::new("renamed", tensor.name(), detail));
        }
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let is_null = tensor.shape.dims() == [0] && tensor.attributes.contains_key(NULL);
        let data = if is_null { Data::Null(tensor.clone()) } else { Data::Tensor(tensor.clone()) };
        file.dataset(&path, data).map_err(|e| e.on_tensor(tensor.name()))?;
        let own: Vec<(&str, &Value)> = tensor.attributes.iter().map(|(k, v)| (k.as_str(), v)).collect();
        let known = types::from_value(tensor.attributes.get(types::KEY));
        let (fit, rest) = partition(own, &known);
        losses.extend(type_loss(tensor.name(), &rest));
        for attribute in fit {
            attribute.put(&mut file, &path).map_err(|e| e.on_tensor(tensor.name()))?;
        }
    }
    let (mut held, mut empty) = (HashSet::<&str>::new(), Vec::new());
    let own =
        checkpoint.metadata.iter().filter(|(key, _)| *key != Metadata::INDEX_KEY && !key.starts_with('/'));
    let (fit, rest) = partition(own.collect(), &types::from_value(checkpoint.metadata.get(types::KEY)));
    losses.extend(type_loss("/", &rest));
    for attribute in fit {
        attribute.put(&mut file, &[])?;
        held.insert(attribute.name);
    }
    let has_optimizer = paths.iter().any(|path| keras::is_of_optimizer(path));
    for (key, value) in checkpoint.metadata.iter() {
        if key == keras::OPTIMIZER && !has_optimizer && keras::lists_optimizer(&checkpoint.metadata) {
            // Keras fails on listed variables that are missing.
            held.insert(key);
        } else if key == Metadata::INDEX_KEY {
            let detail = "metadata dropped: the key is reserved for bridge metadata";
            losses.push(Loss::new("reserved-key", escape_text(key), detail));
            held.insert(key);
        } else if types::is_types(key, value) {
            // The attributes themselves have these types where all of them are written.
            if rest.is_empty() {
                held.insert(key);
            }
        } else if let Some(Group { path, fit, rest, is_whole }) = of_group(key, value) {
            losses.extend(type_loss(escape_text(key), &rest));
            // Metadata of a group is stored in the group or in the bridge metadata, not in both.
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
    // A group with members but without attributes is not listed on reading.
    held.extend(empty.into_iter().filter(|(_, path)| !file.has_members(path)).map(|(key, _)| key));
    let names: Vec<String> = paths.iter().map(|path| index_name(path)).collect();
    let held = |key: &str, _: &Value| held.contains(key);
    let mut index = checkpoint.bridge_index_beside(&names, held);
    index = index.filter(|_| unimplied.bridge_index_beside(&names, held).is_some());
    if let Some(index) = options.own_entry(index, &checkpoint.label, &mut losses) {
        file.attribute(&[], Metadata::INDEX_KEY, &Value::Text(index))?;
    }
    losses.extend(checkpoint.left_behind());
    Ok((file.finish()?, losses))
}

/// An attribute to be written, with its stored type if any.
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

/// Returns the attributes that HDF5 stores without loss, and the names of those that cannot be written in their stored
/// type. Other attributes come from another format and are stored as bridge metadata.
fn partition<'a>(
    own: Vec<(&'a str, &'a Value)>,
    known: &StoredTypes<'_>,
) -> (Vec<Attribute<'a>>, Vec<&'a str>) {
    let (mut fit, mut rest) = (Vec::new(), Vec::new());
    for (name, value) in own.into_iter().filter(|(name, value)| !types::is_types(name, value)) {
        let stored_as = known.get(name).cloned();
        let fits = match &stored_as {
            Some(stored_as) => Hdf5Builder::is_attribute_as(name, value, stored_as),
            None => is_lossless(name, value) && name != NULL,
        };
        if fits && fit.len() < MAX_ATTRIBUTES {
            fit.push(Attribute { name, value, stored_as });
        } else if stored_as.is_some() {
            rest.push(name);
        }
    }
    (fit, rest)
}

/// Loss of attributes that other readers do not find in their stored type.
fn type_loss(subject: impl std::fmt::Display, rest: &[&str]) -> Option<Loss> {
    let first = rest.first()?;
    let detail = format!(
        "{} cannot be written in the stored type, kept as bridge metadata only: {}",
        counted(rest.len(), "attribute", "attributes"),
        escape_text(first)
    );
    Some(Loss::new("attribute-form", subject, detail))
}

/// A group named by a metadata key.
struct Group<'a> {
    path: Vec<&'a str>,
    fit: Vec<Attribute<'a>>,
    /// Attributes that cannot be written in their stored type.
    rest: Vec<&'a str>,
    /// True where all metadata of the group is stored without loss.
    is_whole: bool,
}

/// Returns the group named by a metadata key, with its attributes.
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
    let (fit, rest) = partition(named, &types::from_value(own_types));
    // Bridge metadata then holds all of them.
    let rest = if rest.is_empty() { rest } else { names };
    let is_whole = distinct && fit.len() == all;
    Some(Group { path, fit, rest, is_whole })
}
