//! Optimizer state blobs: the output of `torch.save(optimizer.state_dict())` in a dataset.
//!
//! ```text
//! {"state": {0: {"sum": tensor}}, "param_groups": [{"lr": 0.1, ..., "params": [0]}]}
//! ```
//!
//! Parameters are numbers in the blob; the configuration maps them to parameters.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub(super) use read::{State, read};
pub(super) use write::{Slots, Step, blob, empty, model_groups, table_groups};

use weighbridge_core::checkpoint::{Name, Value};

/// Metadata key of a blob with options and no state. It distinguishes such a blob from one with state
/// that was dropped.
const EMPTY: &str = "empty";

/// Marker of a blob with options and no state.
pub(super) fn empty_mark() -> (Name, Value) {
    (Name::from(EMPTY), Value::Bool(true))
}

/// True where the metadata of a blob have that marker.
pub(super) fn is_marked_empty(optimizer: &Value) -> bool {
    matches!(optimizer, Value::Map(pairs) if pairs.contains(&empty_mark()))
}
