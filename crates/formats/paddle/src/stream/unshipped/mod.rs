//! Two forms that were specified and never released.
//!
//! Design notes of Paddle from 2017 and 2018 specify how tensors are stored. The released form differs from
//! both: **no installable Paddle writes or reads these files.** They are supported for programs that followed
//! the notes, and are distinguished from the released form by their content.

pub mod design_note;
pub mod size_prefixed;
