//! Pickled states: `.pdparams`, `.pdopt`, and other files of `paddle.save`.
//!
//! ```text
//! pickle, protocol 2, 3 or 4 (see weighbridge_pickle); nothing in it is executed
//!   {key: array, …,                                 a state dict: tensors in order
//!    "LR_Scheduler": {…},                           values other than tensors
//!    "StructuredToParameterName@@": {key: name}}    variable names of the tensors
//!   {…: tuple((name, array)), …: […], …}            other structures: each tensor with its name
//!   {…, "KEY@@.0": array, …, "UnpackBigParamInfor@@": {…}}   protocols 2 and 3: large arrays in parts
//! ```
//!
//! The metadata store the properties of the pickle, so that it can be written again unchanged:
//!
//! | key | value |
//! | --- | --- |
//! | `paddle.protocol` | declared protocol |
//! | `paddle.numpy` | 1 or 2: numpy generation of its module names |
//! | `paddle.name_table` | true if it has a table of names |
//! | `paddle.python2` | true if Python 2 wrote it |
//! | `paddle.structure` | structure around the tensors, unless it is a plain state dict: see `structure.rs` |
//!
//! All other keys of the metadata are keys of the pickle.

mod arrays;
mod detect;
mod distributed;
mod extras;
mod flat;
mod info;
mod misread;
mod omitted;
mod read;
mod slots;
mod split;
mod structure;
mod walk;
mod write;
mod writer;

#[cfg(test)]
mod tests;

pub(super) use detect::looks_like_pickle;
pub(super) use distributed::read_distributed;
pub(super) use info::{Info, InfoRow, info_bytes, read_info};
pub(super) use read::read;
pub(super) use write::plan;

use structure::{Form, marked};
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Name, TensorEntry, Value};

/// Kind of a pickled state.
const KIND: &str = "state";
/// Prefix of metadata keys that describe the pickle.
pub(super) const RESERVED: &str = "paddle.";
/// Metadata key of the protocol.
const PROTOCOL: &str = "paddle.protocol";
/// Metadata key of the numpy generation whose module names are in the pickle.
const NUMPY: &str = "paddle.numpy";
/// Metadata key of the flag for a table of names.
const NAME_TABLE: &str = "paddle.name_table";
/// Metadata key of the flag for pickles of Python 2.
const PYTHON2: &str = "paddle.python2";
/// Metadata key of the structure around the tensors.
const STRUCTURE: &str = "paddle.structure";
/// Key of the table of names in a state dict.
const TABLE: &str = "StructuredToParameterName@@";

/// Metadata keys that describe a pickle.
pub(super) const FORM: [&str; 5] = [PROTOCOL, NUMPY, NAME_TABLE, PYTHON2, STRUCTURE];

/// True for metadata about pickled parameters; other metadata belong to the optimizer.
pub(super) fn is_of_parameters(key: &str) -> bool {
    [PROTOCOL, NUMPY, NAME_TABLE, PYTHON2].contains(&key)
}

/// Returns the key of a tensor in a state dict: its name. The key of optimizer state is the variable name of its
/// parameter followed by the slot.
pub(super) fn key_of(entry: &TensorEntry) -> String {
    let parameter = || {
        entry
            .text_attribute(Attributes::PARAMETER_VARIABLE)
            .map_or_else(|| entry.path.to_text(), str::to_owned)
    };
    match entry.role.slot() {
        Some(slot) if *slot == Name::from(slots::MASTER_WEIGHTS) => parameter(),
        Some(slot) => format!("{}_{}", parameter(), slot.to_text()),
        None => entry.path.to_text(),
    }
}

/// Returns the default variable name: the path of a tensor, or the key of optimizer state.
fn state_key(entry: &TensorEntry, key: Option<&str>) -> String {
    match (entry.role.slot(), key) {
        (Some(_), Some(key)) => key.to_owned(),
        (Some(_), None) => key_of(entry),
        (None, _) => entry.path.to_text(),
    }
}

/// Returns the structure around the tensors of a pickled state, or `None` if the checkpoint is not a state.
///
/// Markers replace the tensors and the values stored in the metadata. They are the markers of the metadata key
/// `paddle.structure`, maps with a special first key. `@array`, `@tensor`, `@pair` and `@lod` contain the displayed
/// name of a tensor, `@metadata` a metadata key, and `@names` the table of names.
pub fn state_structure(checkpoint: &Checkpoint) -> Option<Value> {
    if !is_state(checkpoint) {
        return None;
    }
    Some(checkpoint.metadata.get(STRUCTURE).cloned().unwrap_or_else(|| canonical(checkpoint)))
}

/// True if the checkpoint is, or was, a pickled state.
fn is_state(checkpoint: &Checkpoint) -> bool {
    checkpoint
        .origin
        .as_ref()
        .is_some_and(|origin| origin.format == "paddle" && [KIND, "training"].contains(&origin.kind.as_str()))
}

/// True if a table of names is to be written.
fn has_table(checkpoint: &Checkpoint) -> bool {
    match checkpoint.metadata.get(NAME_TABLE) {
        Some(Value::Bool(table)) => *table,
        _ => checkpoint.tensors.iter().any(|t| t.attributes.contains_key(Attributes::VARIABLE_NAME)),
    }
}

/// Returns the structure of a plain state dict: tensors, master weights, other values, the table of names.
fn canonical(checkpoint: &Checkpoint) -> Value {
    let master = Name::from(slots::MASTER_WEIGHTS);
    let is_master = |entry: &&TensorEntry| entry.role.slot() == Some(&master);
    // A nested dict with tensors makes Paddle write all tensors with names.
    let generic = checkpoint.tensors.iter().any(|entry| is_master(&entry));
    let form = if generic { Form::Tensor } else { Form::Array };
    let item =
        |entry: &TensorEntry| (Name::from(key_of(entry).as_str()), structure::tensor(form, entry.text()));
    let mut items: Vec<(Name, Value)> =
        checkpoint.tensors.iter().filter(|entry| !is_master(entry)).map(item).collect();
    if generic {
        let weights = checkpoint.tensors.iter().filter(is_master).map(item).collect();
        items.push((master, structure::named_dict(weights, false)));
    }
    for (key, _) in checkpoint.metadata.iter() {
        let own = if is_state(checkpoint) { !key.starts_with(RESERVED) } else { key == slots::LR_SCHEDULER };
        if own {
            items.push((Name::from(key), marked(structure::METADATA, Value::Text(key.to_owned()))));
        }
    }
    if !generic && has_table(checkpoint) {
        items.push((Name::from(TABLE), marked(structure::NAMES, Value::Null)));
    }
    structure::named_dict(items, false)
}
