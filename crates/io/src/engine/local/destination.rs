//! Where a target stands, and what stands there now.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// The place of a target. A symbolic link is refused: other names may lead to the same file.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    /// The target itself.
    pub target: PathBuf,
    /// The folder around it.
    pub folder: PathBuf,
    /// Its name there.
    pub name: OsString,
    /// What the caller called it.
    label: String,
}

/// What stands at a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    File,
    EmptyFolder,
    Folder,
    Other,
}

impl Destination {
    pub(super) fn find(target: &Path) -> Result<Self> {
        let label = target.display().to_string();
        Self::resolve(target).map_err(|e| e.in_file(label))
    }

    fn resolve(given: &Path) -> Result<Self> {
        let label = given.display().to_string();
        let target = given.to_path_buf();
        if fs::symlink_metadata(&target).is_ok_and(|found| found.is_symlink()) {
            let error = Error::usage(
                "link",
                "the target is a symbolic link, and other names may lead to the same file",
            );
            return Err(match fs::canonicalize(&target) {
                Ok(real) => error.hint(format_args!("write to {}, or remove the link first", real.display())),
                Err(_) => error.hint("the link leads nowhere; remove it first"),
            });
        }
        let Some(name) = target.file_name().map(OsString::from) else {
            return Err(Error::usage("not-a-file", "the target has no file name"));
        };
        let folder = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let found = fs::metadata(&folder).map_err(|e| {
            Error::io("cannot use the target's folder", e).hint("the folder must be there: make it first")
        })?;
        if !found.is_dir() {
            return Err(Error::usage("not-a-folder", "the target's folder is a file"));
        }
        Ok(Self { target, folder, name, label })
    }

    fn found(&self) -> Result<Found> {
        let Ok(metadata) = fs::metadata(&self.target) else { return Ok(Found::Nothing) };
        Ok(match metadata.file_type() {
            kind if kind.is_file() => Found::File,
            kind if kind.is_dir() => {
                let mut entries =
                    fs::read_dir(&self.target).map_err(|e| self.io("cannot list the target", e))?;
                if entries.next().is_none() { Found::EmptyFolder } else { Found::Folder }
            }
            _ => Found::Other,
        })
    }

    /// Fails where something is in the way that may not be replaced, or where nothing can be made
    /// beside it.
    pub(super) fn check(&self, replace: bool) -> Result<()> {
        if !replace && !matches!(self.found()?, Found::Nothing | Found::EmptyFolder) {
            return Err(self.exists());
        }
        may_write(&self.folder).map_err(|e| {
            self.io("cannot make anything beside the target", e)
                .hint("the output is staged in the folder around the target, which must be writable")
        })
    }

    /// True for a name that ends as that of a folder does.
    fn is_folder_name(&self) -> bool {
        self.label.ends_with(std::path::is_separator)
    }

    /// Fails where a file cannot take the place.
    pub(super) fn check_file(&self, replace: bool) -> Result<()> {
        match self.found()? {
            Found::File if replace => Ok(()),
            Found::File => Err(self.exists()),
            Found::Nothing if self.is_folder_name() => {
                Err(Error::usage("not-a-file", "the target is the name of a folder, and one file is written")
                    .in_file(&self.label)
                    .hint("leave out the slash, or name a file in the folder"))
            }
            Found::Nothing => Ok(()),
            _ => Err(Error::usage("not-a-file", "the target is not a regular file")
                .in_file(&self.label)
                .hint("give the name of the file to write")),
        }
    }

    /// Fails where a folder cannot take the place.
    pub(super) fn check_folder(&self, replace: bool) -> Result<()> {
        match self.found()? {
            Found::Nothing | Found::EmptyFolder => Ok(()),
            Found::Folder if replace => Ok(()),
            Found::Folder => Err(self.exists()),
            _ => Err(Error::usage("not-a-folder", "several files are written, and the target is no folder")
                .in_file(&self.label)
                .hint("give the name of a new folder")),
        }
    }

    /// True where a folder stands there.
    pub(super) fn is_folder(&self) -> bool {
        fs::metadata(&self.target).is_ok_and(|m| m.is_dir())
    }

    pub(super) fn exists(&self) -> Error {
        Error::usage("exists", "the target exists already").in_file(&self.label).hint(phrase![
            "use ",
            Opt::Force,
            " to replace it"
        ])
    }

    pub(super) fn io(&self, what: &str, error: io::Error) -> Error {
        Error::io(what, error).in_file(&self.label)
    }

    /// Waits until what changed in the folder around the target would survive a loss of power.
    pub(super) fn sync_around(&self) -> Result<()> {
        sync_folder(&self.folder)
            .map_err(|e| self.io("the new output is in place, but its folder could not be synced", e))
    }
}

/// Waits until the names in `folder` would survive a loss of power.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(unix)]
fn may_write(folder: &Path) -> io::Result<()> {
    use rustix::fs::{Access, access};
    access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from)
}

#[cfg(not(unix))]
fn may_write(_: &Path) -> io::Result<()> {
    Ok(())
}
