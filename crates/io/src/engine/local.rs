//! Files and folders on a local (or mounted) file system.
//!
//! Output is staged beside the target, synced, and renamed to its final name. A run that is interrupted at any
//! point leaves the target unchanged.

mod destination;
mod disk;
mod file;
mod folder;
mod names;
mod staged;
mod staging_area;
mod swap;

use super::{Sink, StagedFile};
use crate::source::check_local;
use destination::Destination;
pub use disk::{Disk, DiskItem, DiskLock, ItemKind, LOCK_NAME, LocalDisk};
use file::FileTarget;
use folder::FolderTarget;
pub(super) use staged::write_all_at;
pub use staging_area::{StagingArea, replace_small};
use std::path::{Path, PathBuf};
use weighbridge_core::error::Result;
use weighbridge_core::plan::{PlannedFile, WritePlan};

/// Target on a file system: one file, or a folder of files.
#[derive(Debug)]
pub struct LocalSink(Target);

#[derive(Debug)]
enum Target {
    File(FileTarget),
    Folder(FolderTarget),
}

impl LocalSink {
    /// Creates a sink for the file `target`. Leftovers of crashed runs with the same target are removed.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`]: `exists` where the file exists and `replace` is false, `not-a-file` where
    /// the target is a folder or a device, `link` where it is a symbolic link; [`weighbridge_core::Kind::Io`] where
    /// the parent folder does not exist.
    pub fn file(target: impl AsRef<Path>, replace: bool) -> Result<Self> {
        Ok(Self(Target::File(FileTarget::new(target.as_ref(), replace)?)))
    }

    /// Creates a sink for the folder `target`, which is created or replaced as a whole. A folder without files counts as
    /// absent. A folder with files is replaced only with `replace`, and only if the plan writes all of its files; this
    /// is checked when the run begins. Leftovers of crashed runs are removed.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`]: `exists` where the folder has files and `replace` is false, `not-a-folder`
    /// where the target is a file, `link` where it is a symbolic link; [`weighbridge_core::Kind::Io`] where the parent
    /// folder does not exist.
    pub fn folder(target: impl AsRef<Path>, replace: bool) -> Result<Self> {
        Ok(Self(Target::Folder(FolderTarget::new(target.as_ref(), replace)?)))
    }

    /// Allows files with these names, relative to the replaced folder, to be removed without being written again: their
    /// content is in the plan. No effect for a single file.
    #[must_use]
    pub fn replacing(mut self, names: &[PathBuf]) -> Self {
        if let Target::Folder(folder) = &mut self.0 {
            folder.replaced = names.to_vec();
        }
        self
    }

    /// Creates the sink for `plan`: a file if the plan has one unnamed file, else a folder.
    ///
    /// # Errors
    /// As [`file`](Self::file) and [`folder`](Self::folder).
    pub fn for_plan(plan: &WritePlan, target: impl AsRef<Path>, replace: bool) -> Result<Self> {
        if plan.is_one_file() { Self::file(target, replace) } else { Self::folder(target, replace) }
    }

    /// Fails where no plan could be written to `target`. Changes nothing.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `exists`, where the target exists and `replace` is false;
    /// [`weighbridge_core::Kind::Io`] where the parent folder does not exist or is not writable.
    pub fn check(target: impl AsRef<Path>, replace: bool) -> Result<()> {
        check_local(target.as_ref())?;
        Destination::find(target.as_ref())?.check(replace)
    }

    /// Fails where `plan` could not be written to `target`, as far as this is known without writing. Changes nothing.
    ///
    /// # Errors
    /// As [`check`](Self::check) and [`for_plan`](Self::for_plan), and as [`Sink::begin`].
    pub fn check_plan(plan: &WritePlan, target: impl AsRef<Path>, replace: bool) -> Result<()> {
        Self::check_plan_replacing(plan, target, replace, &[])
    }

    /// Same as [`check_plan`](Self::check_plan), for a sink that is [`replacing`](Self::replacing) these names.
    ///
    /// # Errors
    /// As [`check_plan`](Self::check_plan).
    pub fn check_plan_replacing(
        plan: &WritePlan,
        target: impl AsRef<Path>,
        replace: bool,
        names: &[PathBuf],
    ) -> Result<()> {
        let destination = Destination::find(target.as_ref())?;
        destination.check(replace)?;
        if plan.is_one_file() {
            return destination.check_file(replace);
        }
        destination.check_folder(replace)?;
        folder::check_files(&destination, &plan.files, names).map(|_| ())
    }

    /// Number of removed leftovers of crashed runs.
    pub fn swept(&self) -> usize {
        match &self.0 {
            Target::File(file) => file.swept,
            Target::Folder(folder) => folder.swept,
        }
    }

    fn sink(&self) -> &dyn Sink {
        match &self.0 {
            Target::File(file) => file,
            Target::Folder(folder) => folder,
        }
    }
}

impl Sink for LocalSink {
    fn begin(&self, files: &[PlannedFile]) -> Result<()> {
        self.sink().begin(files)
    }
    fn stage(&self, file: &PlannedFile) -> Result<Box<dyn StagedFile>> {
        self.sink().stage(file)
    }
    fn sync(&self) -> Result<()> {
        self.sink().sync()
    }
    fn publish(&self) -> Result<()> {
        self.sink().publish()
    }
    fn settle(&self) -> Result<()> {
        self.sink().settle()
    }
    fn discard(&self) {
        self.sink().discard();
    }
}

impl Drop for LocalSink {
    fn drop(&mut self) {
        self.discard();
    }
}
