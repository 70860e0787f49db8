//! Weighbridge.
pub mod checkpoint;
pub mod containers;
pub mod engine;
pub mod error;
pub mod formats;
pub mod limits;
pub mod plan;
pub mod source;
pub mod tensor;
pub use checkpoint::{Checkpoint, TensorEntry};
pub use error::{Error, Kind, Result};
pub use formats::{OpenOptions, open, open_with};
pub use limits::Limits;
