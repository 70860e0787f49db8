//! What all formats share: the [`Format`] trait, its options, and the few things that several formats read or write
//! alike.
//!
//! A format is a reader from bytes to an index and a layouter from an index to a plan. It never opens, writes, syncs or
//! renames a file; it knows nothing of threads or progress bars, nor of other formats.
//!
//! | module | contents |
//! | --- | --- |
//! | [`file_name`] | names of tensors as names of files |
//! | [`json`] | JSON as Python reads and writes it |
//! | [`names_json`] | arrays of names as JSON, of any length |
//! | [`outline`] | outlines that several formats give alike |
//! | [`overlap`] | how often tensors may read the same bytes |
//! | [`registry`] | the formats that a program knows, and opening a file as the one that recognises it |
//! | [`row_names`] | the names of rows as tensors, where a format has no place for them |
//! | [`shards`] | indexes of shards, and the joint checkpoint |
//! | [`unknown`] | a file that no format recognises |
//!
//! See also: the crates in `crates/formats` implement the trait; `weighbridge` has all of them in one registry.

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
    Companion, DeepCheck, Detect, Format, FormatInfo, FormatOptionSet, FormatOptions, HEAD, Input, Names,
    OpenOptions, PlanOptions, ReadFormat, Salvage, Setting, WrapFiles, WriteFormat,
};
pub use registry::Registry;
pub use row_names::RowNameSupport;
#[cfg(feature = "scan")]
#[doc(no_inline)]
pub use weighbridge_scan::Scan;
