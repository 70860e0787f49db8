//! What can be done with checkpoints: one file each, checkpoints in and reports out.
//!
//! - [`convert`] and [`plan`]: to another form;
//! - [`mod@slice`]: what is written after a name, such as `fc1.w[0:3, :]`;
//!
//! Each reads through the engine, in bounded memory whatever the size of the tensor.

mod convert;
pub mod slice;

pub use convert::{Changes, ConvertOptions, convert, plan, plan_checkpoint, save};
