//! The optimizer's blobs.
mod write;
pub(super) use write::{Slots, Step, blob, empty, model_groups, table_groups};
