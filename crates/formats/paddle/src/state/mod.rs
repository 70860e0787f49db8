//! Pickled states: `.pdparams`, `.pdopt`, and whatever else `paddle.save` was given.
//!
//! ```text
//! pickle, protocol 2, 3 or 4 (see weighbridge_pickle); nothing in it is executed
//!   {key: array, …,                                 a state dict: tensors in order
//!    "LR_Scheduler": {…},                           what is no tensor
//!    "StructuredToParameterName@@": {key: name}}    the names of the tensors as variables
//!   {…: tuple((name, array)), …: […], …}            anything else: each tensor with its name
//!   {…, "KEY@@.0": array, …, "UnpackBigParamInfor@@": {…}}   protocols 2 and 3: large arrays in parts
//! ```
//!
//! FormatInfo of the pickle stand in the metadata, so that it can be written again as it was:
//!
//! | key | value |
//! | --- | --- |
//! | `paddle.protocol` | the protocol that it declares |
//! | `paddle.numpy` | 1 or 2: whose module names it holds |
//! | `paddle.name_table` | true where it has a table of names |
//! | `paddle.python2` | true where Python 2 wrote it |
//! | `paddle.structure` | what stands around the tensors, where it is no plain state dict: see `structure.rs` |
//!
//! All other keys of the metadata are keys of the pickle.

mod arrays;
mod detect;
mod distributed;
mod extras;
mod flat;
mod info;
mod left_out;
mod mistaken;
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

/// The kind of such a file.
const KIND: &str = "state";
/// Keys of the metadata that begin so say how the pickle was written.
const RESERVED: &str = "paddle.";
/// The protocol.
const PROTOCOL: &str = "paddle.protocol";
/// The numpy whose names are in the pickle.
const NUMPY: &str = "paddle.numpy";
/// Whether there is a table of names.
const NAME_TABLE: &str = "paddle.name_table";
/// Whether Python 2 wrote it.
const PYTHON2: &str = "paddle.python2";
/// What stands around the tensors.
const STRUCTURE: &str = "paddle.structure";
/// The key of the table of names.
const TABLE: &str = "StructuredToParameterName@@";

/// Keys of the metadata that say how a pickle was written.
pub(super) const FORM: [&str; 5] = [PROTOCOL, NUMPY, NAME_TABLE, PYTHON2, STRUCTURE];

/// True for metadata that says how parameters are pickled; all else is the optimizer's.
pub(super) fn is_of_parameters(key: &str) -> bool {
    [PROTOCOL, NUMPY, NAME_TABLE, PYTHON2].contains(&key)
}

/// The key of a tensor in a state dict: its name; for an optimizer's tensor that of its parameter as
/// a variable, and the slot behind it.
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

/// The name as a variable that goes without saying: its path, or for an optimizer's tensor its key.
fn state_key(entry: &TensorEntry, key: Option<&str>) -> String {
    match (entry.role.slot(), key) {
        (Some(_), Some(key)) => key.to_owned(),
        (Some(_), None) => key_of(entry),
        (None, _) => entry.path.to_text(),
    }
}

/// What stood around the tensors of a pickled state, with a marker in the place of each tensor and of each value that
/// stands in the metadata; `None` where the checkpoint is no such state. The markers are those of the metadata key
/// `paddle.structure`: a map whose first key is `@array`, `@tensor`, `@pair` or `@lod` is the tensor of that displayed
/// name, `@metadata` the value of that key of the metadata, and `@names` the table of names.
pub fn state_structure(checkpoint: &Checkpoint) -> Option<Value> {
    if !is_state(checkpoint) {
        return None;
    }
    Some(checkpoint.metadata.get(STRUCTURE).cloned().unwrap_or_else(|| canonical(checkpoint)))
}

/// True where the checkpoint is, or was, a pickled state.
fn is_state(checkpoint: &Checkpoint) -> bool {
    checkpoint
        .origin
        .as_ref()
        .is_some_and(|origin| origin.format == "paddle" && [KIND, "training"].contains(&origin.kind.as_str()))
}

/// True where a table of names is to be written.
fn has_table(checkpoint: &Checkpoint) -> bool {
    match checkpoint.metadata.get(NAME_TABLE) {
        Some(Value::Bool(table)) => *table,
        _ => checkpoint.tensors.iter().any(|t| t.attributes.contains_key(Attributes::VARIABLE_NAME)),
    }
}

/// The structure of a plain state dict: tensors, master weights, all else, the table of names.
fn canonical(checkpoint: &Checkpoint) -> Value {
    let master = Name::from(slots::MASTER_WEIGHTS);
    let is_master = |entry: &&TensorEntry| entry.role.slot() == Some(&master);
    // A dict within the dict that holds tensors is what makes Paddle write all of them with names.
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
