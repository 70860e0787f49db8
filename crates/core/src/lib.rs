//! Index of named tensors over byte ranges, changes to it, and plans to write it.
//!
//! A format reads a [`Source`](source::Source) into a [`Checkpoint`], and lays out a checkpoint as a
//! [`WritePlan`](plan::WritePlan). Both steps are pure: this crate opens and writes no file and starts no thread.
//!
//! | to do | start with |
//! | --- | --- |
//! | list and read tensors | [`Checkpoint`], [`TensorEntry`] |
//! | rename, select, cast, transpose | [`checkpoint`] |
//! | convert elements of one dtype to another | [`tensor`] |
//! | read bytes from a new kind of storage | [`source::Source`] |
//! | describe the files to write | [`plan`] |
//! | handle a failure | [`Error`], [`Kind`], [`ErrorCode`] |
//! | bound the cost of untrusted files | [`Limits`], [`Budget`] |
//! | check a file | [`check`], [`finding`] |
//!
//! # Example
//!
//! ```
//! # fn main() -> weighbridge_core::Result<()> {
//! use std::sync::Arc;
//! use weighbridge_core::checkpoint::{Checkpoint, TensorEntry, TensorPath};
//! use weighbridge_core::source::{MemorySource, SourceRef};
//! use weighbridge_core::tensor::{DType, Encoding, Order, Shape};
//!
//! // A 2 x 3 matrix of little-endian u16, stored column by column.
//! let bytes: Vec<u8> = [1u16, 4, 2, 5, 3, 6].iter().flat_map(|n| n.to_le_bytes()).collect();
//! let source: SourceRef = Arc::new(MemorySource::new("memory", bytes));
//! let path = TensorPath::from_dotted("fc.w");
//! let entry = TensorEntry::dense(path, DType::U16, Shape::from([2, 3]), &source, 0, Encoding::COLUMN)?;
//! let mut checkpoint = Checkpoint::new("example", "tensors", "memory");
//! checkpoint.tensors.push(entry);
//! // Element (i, j) is the same in both orders.
//! let rows = checkpoint.tensor("fc.w")?.read_tensor(Order::Row)?;
//! assert_eq!(rows, [1u16, 2, 3, 4, 5, 6].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>());
//! # Ok(())
//! # }
//! ```
//!
//! See also: `weighbridge-io` reads files and runs plans, `weighbridge-format` has the trait of a format, and `weighbridge`
//! opens files of all formats.

pub mod budget;
pub mod check;
pub mod checkpoint;
pub mod checksum;
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
