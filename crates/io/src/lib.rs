//! Local file access for Weighbridge: positional reads, guarded memory maps, and the engine that runs a
//! [`WritePlan`](weighbridge_core::plan::WritePlan) in parallel, in bounded memory, and publishes the result
//! atomically.
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
//! // The output becomes visible as a whole, or not at all.
//! let sink = LocalSink::for_plan(&plan, &path, false)?;
//! run(&plan, &sink, &RunOptions::default())?;
//! assert_eq!(read_vec(&FileSource::open(&path)?, 0, 5)?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # State of the process
//!
//! This crate does not change process state by itself. A program may call two functions once: [`guard_maps`] installs a
//! signal handler, which allows mapping files instead of reading them; [`quiet_panics`] sets a panic hook that prints
//! nothing for panics that become errors.
//!
//! See also: `weighbridge-core` defines sources and plans; `weighbridge` has whole jobs such as `convert`.

pub mod engine;
mod panics;
pub mod source;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use panics::{catch_panic, quiet_panics};
pub use source::guard_maps;
