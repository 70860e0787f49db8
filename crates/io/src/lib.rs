//! Files and folders of this machine for Weighbridge: positional reads, guarded maps, and the engine that carries
//! out a [`WritePlan`](weighbridge_core::plan::WritePlan) in parallel, in bounded memory, and makes the result
//! visible all at once.
//!
//! # An example
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use weighbridge_core::plan::{FileBuilder, WritePlan};
//! use weighbridge_io::engine::{LocalSink, RunOptions, run};
//! use weighbridge_io::source::{FileSource, read_vec};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("greeting");
//! let mut file = FileBuilder::new("");
//! file.literal(b"hello");
//! let plan = WritePlan { format: "text", kind: "file", files: vec![file.finish()], losses: vec![] };
//! // All of it becomes visible at once, or nothing.
//! let sink = LocalSink::for_plan(&plan, &path, false)?;
//! run(&plan, &sink, &RunOptions::default())?;
//! assert_eq!(read_vec(&FileSource::open(&path)?, 0, 5)?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # State of the process
//!
//! This crate changes nothing of the process by itself. A program may ask for two things, once: [`guard_maps`] installs a
//! signal handler, with which files are mapped instead of read; [`quiet_panics`] sets a panic hook that is silent about panics
//! which become errors.
//!
//! See also: `weighbridge-core` holds the plan; `weighbridge` has whole jobs such as `convert`.

pub mod engine;
mod panics;
pub mod source;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use panics::{catch_panic, quiet_panics};
pub use source::guard_maps;
