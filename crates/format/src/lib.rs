//! [`Format`] trait, its options, and the [`Registry`] that detects the format of a file.
//!
//! A format is a reader from bytes to an index and a writer from an index to a plan. It never opens, writes, syncs or renames a
//! file, and is independent of threads, progress bars and other formats.
//!
//! ```
//! use weighbridge_format::{Format, OpenOptions, Registry};
//!
//! /// Opens a file of any of these formats and prints its tensors.
//! fn list(path: &str, formats: Vec<&'static dyn Format>) -> weighbridge_core::Result<()> {
//!     let registry = Registry::new(formats);
//!     let checkpoint = registry.open_with(path, &OpenOptions::default())?;
//!     for tensor in &checkpoint.tensors {
//!         println!("{} {} {}", tensor.name(), tensor.dtype(), tensor.shape);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`file_name`] | file names derived from tensor names |
//! | [`json`] | JSON as Python reads and writes it |
//! | [`names_json`] | JSON arrays of names, of any length |
//! | [`outline`] | outline of text files |
//! | [`overlap`] | limit on tensors that share bytes |
//! | [`registry`] | registered formats, detection, opening of files and folders |
//! | [`row_names`] | row names stored as tensors |
//! | [`shards`] | indexes of shards, and the joined checkpoint |
//! | [`unknown`] | diagnosis of unrecognized files |
//!
//! See also: the crates in `crates/formats` implement the trait; `weighbridge` registers all of them.

pub mod file_name;
mod format;
pub mod json;
pub mod names_json;
mod open;
pub mod outline;
pub mod overlap;
pub mod registry;
pub mod row_names;
pub mod shards;
pub mod unknown;

#[cfg(feature = "scan")]
pub use format::ScanCode;
pub use format::{
    Companion, Coverage, DeepCheck, Detect, Format, FormatInfo, FormatOptionSet, FormatOptions, HEAD, Input,
    Names, OpenOptions, PlanOptions, ReadFormat, Salvage, Setting, WrapFiles, WriteFormat,
};
pub use registry::Registry;
pub use row_names::RowNameSupport;
#[cfg(feature = "scan")]
#[doc(no_inline)]
pub use weighbridge_scan::Scan;
