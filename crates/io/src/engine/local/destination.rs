//! Resolution and checks of a target path.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// Resolved target path. A symbolic link is refused: other names may point to the same file.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    /// Path of the target.
    pub target: PathBuf,
    /// Its parent folder.
    pub folder: PathBuf,
    /// Its name in that folder.
    pub name: OsString,
    /// Path as the caller passed it.
    label: String,
}

/// Current content of a target path.
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
                "the target is a symbolic link, and other names may point to the same file",
            );
            return Err(match fs::canonicalize(&target) {
                Ok(real) => error.hint(format_args!("write to {}, or remove the link first", real.display())),
                Err(_) => error.hint("the target of the link does not exist; remove the link first"),
            });
        }
        let Some(name) = target.file_name().map(OsString::from) else {
            let error = match target.as_os_str().as_encoded_bytes() {
                b"." | b"./" => Error::usage("not-a-file", "the current folder cannot be the target"),
                _ => Error::usage("not-a-file", "the target has no file name"),
            };
            return Err(error.hint("use the name of a new file or folder"));
        };
        let folder = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let found = fs::metadata(&folder).map_err(|e| {
            Error::io("cannot access the folder of the target", e).hint("create the folder first")
        })?;
        if !found.is_dir() {
            return Err(Error::usage("not-a-folder", "the parent of the target is not a folder"));
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

    /// Fails where the target must not be replaced, or where nothing can be created beside it.
    pub(super) fn check(&self, replace: bool) -> Result<()> {
        if !replace && !matches!(self.found()?, Found::Nothing | Found::EmptyFolder) {
            return Err(self.exists());
        }
        may_write(&self.folder).map_err(|e| {
            self.io("cannot create files beside the target", e)
                .hint("make the folder of the target writable; the output is staged there")
        })
    }

    /// True for a path that ends with a separator.
    fn is_folder_name(&self) -> bool {
        self.label.ends_with(std::path::is_separator)
    }

    /// Fails where the target cannot become a file.
    pub(super) fn check_file(&self, replace: bool) -> Result<()> {
        match self.found()? {
            Found::File if replace => Ok(()),
            Found::File => Err(self.exists()),
            Found::Nothing if self.is_folder_name() => {
                Err(Error::usage("not-a-file", "the target ends with a slash, but the output is one file")
                    .in_file(&self.label)
                    .hint("remove the slash, or name a file in the folder"))
            }
            Found::Nothing => Ok(()),
            _ => Err(Error::usage("not-a-file", "the target is not a regular file")
                .in_file(&self.label)
                .hint("give the path of the file to write")),
        }
    }

    /// Fails where the target cannot become a folder.
    pub(super) fn check_folder(&self, replace: bool) -> Result<()> {
        match self.found()? {
            Found::Nothing | Found::EmptyFolder => Ok(()),
            Found::Folder if replace => Ok(()),
            Found::Folder => Err(self.exists()),
            _ => Err(Error::usage(
                "not-a-folder",
                "the target is not a folder, but the output is several files",
            )
            .in_file(&self.label)
            .hint("give the path of a new folder")),
        }
    }

    /// True where the target is a folder.
    pub(super) fn is_folder(&self) -> bool {
        fs::metadata(&self.target).is_ok_and(|m| m.is_dir())
    }

    pub(super) fn exists(&self) -> Error {
        Error::usage("exists", "the target already exists").in_file(&self.label).hint(phrase![
            "use ",
            Opt::Force,
            " to replace it"
        ])
    }

    pub(super) fn io(&self, what: &str, error: io::Error) -> Error {
        Error::io(what, error).in_file(&self.label)
    }

    /// Waits until changes in the parent folder survive a power failure.
    pub(super) fn sync_around(&self) -> Result<()> {
        sync_folder(&self.folder)
            .map_err(|e| self.io("the output is written, but its folder could not be synced", e))
    }
}

/// Waits until the names in `folder` survive a power failure.
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
