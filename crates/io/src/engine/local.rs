//! Files and folders on a local (or mounted) file system.
//!
//! What is written is staged beside the target, synced, and renamed to its place; a run that is
//! interrupted at any point leaves the target as it was.

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

/// A target on a file system: one file, or a folder of files.
#[derive(Debug)]
pub struct LocalSink(Target);

#[derive(Debug)]
enum Target {
    File(FileTarget),
    Folder(FolderTarget),
}

impl LocalSink {
    /// A sink for the file `target`. A symbolic link is followed: the file that it names is
    /// replaced. Leftovers of dead runs with the same target are removed.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`]: `exists` where there is such a file and `replace` is false,
    /// `not-a-file` where a folder or a device stands there; [`weighbridge_core::Kind::Io`] where the folder
    /// is not there.
    pub fn file(target: impl AsRef<Path>, replace: bool) -> Result<Self> {
        Ok(Self(Target::File(FileTarget::new(target.as_ref(), replace)?)))
    }

    /// A sink for the folder `target`, which comes into being, or is replaced, as a whole. A
    /// symbolic link is followed. A folder without files counts as free. One with files is
    /// replaced only with `replace`, and only if it holds no file that the plan does not write:
    /// that is known when the run begins. Leftovers of dead runs are removed.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`]: `exists` where there is such a folder with files and `replace` is
    /// false, `not-a-folder` where a file stands there; [`weighbridge_core::Kind::Io`] where the folder
    /// around it is not there.
    pub fn folder(target: impl AsRef<Path>, replace: bool) -> Result<Self> {
        Ok(Self(Target::Folder(FolderTarget::new(target.as_ref(), replace)?)))
    }

    /// The files of these names, relative to the folder that is replaced, may go with it though none of them is
    /// written again: what they hold is in the plan. Nothing for one file.
    #[must_use]
    pub fn replacing(mut self, names: &[PathBuf]) -> Self {
        if let Target::Folder(folder) = &mut self.0 {
            folder.replaced = names.to_vec();
        }
        self
    }

    /// The sink that `plan` asks for: a file where it has one file without a name, else a folder.
    ///
    /// # Errors
    /// As [`file`](Self::file) and [`folder`](Self::folder).
    pub fn for_plan(plan: &WritePlan, target: impl AsRef<Path>, replace: bool) -> Result<Self> {
        if plan.is_one_file() { Self::file(target, replace) } else { Self::folder(target, replace) }
    }

    /// Fails where nothing could be written to `target`, whatever the plan. Nothing is changed.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `exists`, where there is something and `replace` is false;
    /// [`weighbridge_core::Kind::Io`] where the folder around it is not there or may not be written.
    pub fn check(target: impl AsRef<Path>, replace: bool) -> Result<()> {
        check_local(target.as_ref())?;
        Destination::find(target.as_ref())?.check(replace)
    }

    /// Fails where `plan` could not be written to `target`, as far as that is known without
    /// writing. Nothing is changed.
    ///
    /// # Errors
    /// As [`check`](Self::check) and [`for_plan`](Self::for_plan), and as [`Sink::begin`].
    pub fn check_plan(plan: &WritePlan, target: impl AsRef<Path>, replace: bool) -> Result<()> {
        Self::check_plan_replacing(plan, target, replace, &[])
    }

    /// As [`check_plan`](Self::check_plan), for a sink that is [`replacing`](Self::replacing) these.
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

    /// How many leftovers of dead runs were removed.
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
