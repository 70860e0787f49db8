//! Where planned files go. A sink stages, then publishes; until then nothing is visible.

use crate::source::FileRange;
use std::fmt::Debug;
use weighbridge_core::error::Result;
use weighbridge_core::plan::PlannedFile;

/// A target for the files of one plan.
///
/// The engine calls, in this order: [`begin`](Self::begin); [`stage`](Self::stage) for each file,
/// in any order and from many threads, and the methods of the staged files; when all are filled
/// and closed, [`sync`](Self::sync), then [`publish`](Self::publish), then
/// [`settle`](Self::settle), and [`discard`](Self::discard) at the end. When a call before or at
/// `publish` fails, it calls `discard` at once and the target is as before.
pub trait Sink: Debug + Send + Sync {
    /// Looks at all files that will be staged, before any work.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`] where the target cannot take these files, `folder-has-other-files`
    /// where others would be lost; [`weighbridge_core::Kind::Corrupt`], `unsafe-name`, and
    /// [`weighbridge_core::Kind::Mismatch`], `name-collision` or `reserved-name`, where the names of the files
    /// do not fit into one folder.
    fn begin(&self, files: &[PlannedFile]) -> Result<()> {
        let _ = files;
        Ok(())
    }

    /// Makes a staged file of the [length](PlannedFile::staged_len) that it has at first, not visible
    /// under its name. One that is written from front to back is empty then, and grows.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn stage(&self, file: &PlannedFile) -> Result<Box<dyn StagedFile>>;

    /// Waits until the content of all staged files would survive a loss of power. None of them is
    /// open any more.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn sync(&self) -> Result<()>;

    /// Makes everything staged visible at once. On failure nothing is.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Usage`] where the target came into being meanwhile.
    fn publish(&self) -> Result<()>;

    /// Waits until what was published would survive a loss of power.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`]; the new files are visible and whole all the same.
    fn settle(&self) -> Result<()>;

    /// Removes what is staged, and what was replaced, as well as that goes.
    fn discard(&self);
}

/// A file that is being filled. Many threads write at different places at once.
pub trait StagedFile: Debug + Send + Sync {
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Copies up to `len` bytes from `from`, which begins `skip` bytes further on, to `offset`,
    /// without moving them through this process. Returns how many were copied; fewer than `len`
    /// where the system cannot do it, and the caller then writes the rest.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`] when the device fails.
    fn copy_from(&self, from: FileRange<'_>, skip: u64, offset: u64, len: u64) -> Result<u64>;
}
