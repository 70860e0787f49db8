//! The optimizer's blobs: what `torch.save(optimizer.state_dict())` left in a dataset.
//!
//! ```text
//! {"state": {0: {"sum": tensor}}, "param_groups": [{"lr": 0.1, ..., "params": [0]}]}
//! ```
//!
//! Parameters are numbers there; which parameter a number means, the configuration tells.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub(super) use read::{State, read};
pub(super) use write::{Slots, Step, blob, empty, model_groups, table_groups};

use weighbridge_core::checkpoint::{Name, Value};

/// What the metadata say of a blob that has options and remembers nothing. State that was left out on
/// the way looks alike otherwise.
const EMPTY: &str = "empty";

/// The mark of such a blob.
pub(super) fn empty_mark() -> (Name, Value) {
    (Name::from(EMPTY), Value::Bool(true))
}

/// True where the metadata of a blob have that mark.
pub(super) fn says_empty(optimizer: &Value) -> bool {
    matches!(optimizer, Value::Map(pairs) if pairs.contains(&empty_mark()))
}
