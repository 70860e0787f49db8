//! What can be done with checkpoints: one file each, checkpoints in and reports out.

mod convert;

pub use convert::{Changes, ConvertOptions, convert, plan, plan_checkpoint, save};
