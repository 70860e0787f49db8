//! The core of Weighbridge: an index of named tensors over byte ranges, and plans to write one.
//!
//! A format reads a [`Source`](source::Source) into a [`Checkpoint`], and lays a checkpoint out as a
//! [`WritePlan`](plan::WritePlan). Both are pure: no file is opened or written here, and there are no threads.
//! `weighbridge-io` brings files and runs plans; `weighbridge` joins all formats.
//!
//! # An example
//!
//! ```
//! # fn main() -> weighbridge_core::Result<()> {
//! use std::sync::Arc;
//! use weighbridge_core::checkpoint::{Checkpoint, TensorEntry, TensorPath};
//! use weighbridge_core::source::{MemorySource, SourceRef};
//! use weighbridge_core::tensor::{DType, Encoding, Order, Shape};
//!
//! // Six little-endian numbers, stored column by column.
//! let bytes: Vec<u8> = [1u16, 4, 2, 5, 3, 6].iter().flat_map(|n| n.to_le_bytes()).collect();
//! let source: SourceRef = Arc::new(MemorySource::new("memory", bytes));
//! let path = TensorPath::from_dotted("fc.w");
//! let entry = TensorEntry::dense(path, DType::U16, Shape::from([2, 3]), &source, 0, Encoding::COLUMN)?;
//! let mut checkpoint = Checkpoint::new("example", "tensors", "memory");
//! checkpoint.tensors.push(entry);
//! // Element (i, j) is the same in every order.
//! let rows = checkpoint.tensor("fc.w")?.read_tensor(Order::Row)?;
//! assert_eq!(rows, [1u16, 2, 3, 4, 5, 6].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>());
//! # Ok(())
//! # }
//! ```
//!
//! See also: `weighbridge-io` reads files and runs plans; `weighbridge-format` holds the trait of a format; `weighbridge` joins all formats.

pub mod budget;
pub mod check;
pub mod checkpoint;
mod codes;
pub mod error;
pub mod finding;
pub mod json;
pub mod limits;
pub mod phrase;
pub mod plan;
pub mod read;
pub mod source;
pub mod tensor;
pub mod text;
pub mod topology;
pub mod verify;

pub use budget::{Budget, HeldMemory};
pub use checkpoint::{Checkpoint, TensorEntry};
pub use codes::{ErrorCode, FindingCode, LossCode, NoteCode};
pub use error::{Error, Kind, Result};
pub use limits::Limits;
