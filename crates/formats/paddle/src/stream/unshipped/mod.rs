//! Two forms that were described and never shipped.
//!
//! Paddle published design notes in 2017 and 2018 that say how tensors are stored. What was
//! released differs from both: **no Paddle that can be installed writes or reads these files.**
//! They are read here for those who followed the notes, and told apart from the real form by
//! their content.

pub mod design_note;
pub mod size_prefixed;
