//! The engine: the one place that moves tensor bytes, for every format.
//!
//! Reading: [`TensorEntry::read_tensor`](weighbridge_core::TensorEntry::read_tensor) and `read_region` gather boxes of tensors from their pieces.
//! Writing: [`run`] carries out a [`weighbridge_core::plan::WritePlan`] into a [`Sink`], in parallel and in
//! bounded memory, and makes the result visible all at once.

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

/// The name, perhaps cut, of what is staged under the hidden name `hidden` by a [`StagingArea`] or by
/// [`replace_small`]; `None` where it is no such name.
pub fn staged_for(hidden: &std::ffi::OsStr) -> Option<&str> {
    staging::loosely_staged(hidden)
}

/// A new hidden path in `folder` for what is to be called `name` there.
pub fn hidden_path(folder: &std::path::Path, name: &str) -> std::path::PathBuf {
    staging::loose_name(folder, name)
}

/// The number of threads to use where the caller does not say: one for each processor, as many as there were when it was
/// asked first. To ask the system takes longer than to count a small tensor.
pub fn default_threads() -> usize {
    static THREADS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}
