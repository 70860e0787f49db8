//! Targets of planned files. A sink stages, then publishes; until then nothing is visible.

use crate::source::FileRange;
use std::fmt::Debug;
use weighbridge_core::error::Result;
use weighbridge_core::plan::PlannedFile;

/// Target for the files of one plan.
///
/// The engine calls, in this order: [`begin`](Self::begin); [`stage`](Self::stage) for each file,
/// in any order and from many threads, and the methods of the staged files; when all are filled
/// and closed, [`sync`](Self::sync), then [`publish`](Self::publish), then
/// [`settle`](Self::settle), and [`discard`](Self::discard) at the end. When a call before or at
/// `publish` fails, it calls `discard` at once and the target is as before.
pub trait Sink: Debug + Send + Sync {
    /// Checks all files that will be staged, before any work.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`] where the target cannot accept these files, `folder-has-other-files`
    /// where other files would be lost; [`weighbridge_core::Kind::Corrupt`], `unsafe-name`, and
    /// [`weighbridge_core::Kind::Mismatch`], `name-collision` or `reserved-name`, for conflicting file names.
    fn begin(&self, files: &[PlannedFile]) -> Result<()> {
        let _ = files;
        Ok(())
    }

    /// Creates a staged file of the initial [length](PlannedFile::staged_len), not visible under its name. A
    /// streamed file is empty at first and grows.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn stage(&self, file: &PlannedFile) -> Result<Box<dyn StagedFile>>;

    /// Waits until the content of all staged files survives a power failure. The files are closed before.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn sync(&self) -> Result<()>;

    /// Publishes everything staged atomically. On failure nothing is visible.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Usage`] where the target was created in the meantime.
    fn publish(&self) -> Result<()>;

    /// Waits until the published files survive a power failure.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; the new files are visible and complete even then.
    fn settle(&self) -> Result<()>;

    /// Removes staged and replaced files, ignoring errors.
    fn discard(&self);
}

/// File that is being filled. Many threads write at different offsets at once.
pub trait StagedFile: Debug + Send + Sync {
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Copies up to `len` bytes of `from`, from its byte `skip` on, to `offset`, without moving them through this
    /// process. Returns the number of copied bytes; fewer than `len` where the system cannot copy, and the caller
    /// then writes the rest.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] where the device fails.
    fn copy_from(&self, from: FileRange<'_>, skip: u64, offset: u64, len: u64) -> Result<u64>;
}
