//! Weighbridge.
pub mod checkpoint;
pub mod error;
pub mod limits;
pub mod plan;
pub mod source;
pub mod tensor;
pub use error::{Error, Kind, Result};
pub use limits::Limits;
