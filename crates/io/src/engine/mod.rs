//! Engine that moves tensor bytes for every format.
//!
//! Reading: [`TensorEntry::read_tensor`](weighbridge_core::TensorEntry::read_tensor) and `read_region` assemble boxes of tensors from their extents.
//! Writing: [`run`] writes a [`weighbridge_core::plan::WritePlan`] into a [`Sink`], in parallel and in bounded
//! memory, and publishes the result atomically.

pub mod fault;
mod files;
mod folders;
mod latin1;
mod load;
mod local;
pub mod patch;
mod run;
mod sink;
mod staging;
mod stream;
mod tasks;
mod view;

pub use folders::make_folders;
pub use latin1::latin1_lengths;
pub use load::load;
pub use local::{
    Disk, DiskItem, DiskLock, ItemKind, LOCK_NAME, LocalDisk, LocalSink, StagingArea, replace_small,
};
pub use run::NoProgress;
pub use run::check_memory;
pub use run::{MIN_MEMORY, Progress, RunOptions, RunReport, run};
pub use sink::{Sink, StagedFile};
#[cfg(any(test, feature = "testing"))]
pub use stream::encoded;
pub use view::{Maps, Private, View};
#[doc(no_inline)]
pub use weighbridge_core::read::{Scratch, for_each_chunk, read_or_map};
#[doc(no_inline)]
pub use weighbridge_core::verify::{is_encoded, read_through};

/// Returns the (possibly truncated) final name of a file staged as `hidden` by a [`StagingArea`] or
/// [`replace_small`]; `None` for another name.
pub fn staged_for(hidden: &std::ffi::OsStr) -> Option<&str> {
    staging::loosely_staged(hidden)
}

/// Returns a new hidden path in `folder` for a file that will be named `name` there.
pub fn hidden_path(folder: &std::path::Path, name: &str) -> std::path::PathBuf {
    staging::loose_name(folder, name)
}

/// Returns the default number of threads: one for each processor. The number is cached, as asking the system takes longer
/// than processing a small tensor.
pub fn default_threads() -> usize {
    static THREADS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}
