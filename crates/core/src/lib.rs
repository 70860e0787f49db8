//! The core of Weighbridge: an index of named tensors over byte ranges, and plans to write one.
//!
//! A format reads a [`Source`](source::Source) into a [`Checkpoint`], and lays a checkpoint out as a
//! [`WritePlan`](plan::WritePlan). Both are pure: no file is opened or written here, and there are no threads.
//! `weighbridge-io` brings files and runs plans; `weighbridge` joins all formats.

pub mod check;
pub mod checkpoint;
pub mod error;
pub mod finding;
pub mod json;
pub mod limits;
pub mod plan;
pub mod read;
pub mod source;
pub mod tensor;
pub mod text;
pub mod topology;
pub mod verify;

pub use checkpoint::{Checkpoint, TensorEntry};
pub use error::{Error, Kind, Result};
pub use limits::Limits;
