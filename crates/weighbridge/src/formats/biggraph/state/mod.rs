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

pub(super) use read::{State, bytes_of, read};
pub(super) use write::{Slots, Step, blob, empty, model_groups, table_groups};
