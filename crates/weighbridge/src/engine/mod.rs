//! The engine: the one place that moves tensor bytes, for every format.
//!
//! Reading: [`read_tensor`] and [`read_region`] gather boxes of tensors from their pieces.
//! Writing: [`run`] carries out a [`crate::plan::WritePlan`] into a [`Sink`], in parallel and in
//! bounded memory, and makes the result visible all at once.

pub mod fault;
mod files;
mod folders;
mod latin1;
mod load;
mod local;
mod read;
mod run;
mod sink;
mod staging;
mod stream;
mod tasks;
mod verify;

pub use folders::make_folders;
pub use latin1::latin1_lengths;
pub use load::load;
pub use local::LocalSink;
pub(crate) use read::{Scratch, read_into};
pub use read::{read_region, read_tensor};
pub use run::{MIN_MEMORY, RunOptions, RunReport, Watch, run};
pub use sink::{Sink, StagedFile};
#[cfg(test)]
pub(crate) use stream::encoded;
pub use verify::verify_tensor;

/// The number of threads to use where the caller does not say: one for each processor.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
