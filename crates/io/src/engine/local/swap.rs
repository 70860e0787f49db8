//! Replacement of one folder by another.
//!
//! Linux exchanges two names atomically. Elsewhere the old folder is first renamed to a hidden set-aside name, then
//! the new one is renamed to the target. A process killed between the two steps leaves no folder at the target; the
//! next run with the same target restores the set-aside folder before it checks the target (see `staging`).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Replaces the folder `target` by the folder `new`. Returns the path of the old one: the former path of `new`, or the
/// path that `aside` returns. On failure both keep their names.
pub(super) fn replace(
    new: &Path,
    target: &Path,
    aside: impl FnOnce() -> io::Result<PathBuf>,
) -> io::Result<PathBuf> {
    if exchange(new, target)? {
        return Ok(new.to_path_buf());
    }
    in_two_steps(new, target, aside()?)
}

/// Exchanges two names atomically; false where the system cannot.
#[cfg(target_os = "linux")]
fn exchange(a: &Path, b: &Path) -> io::Result<bool> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> io::Result<bool> {
    Ok(false)
}

fn in_two_steps(new: &Path, target: &Path, aside: PathBuf) -> io::Result<PathBuf> {
    fs::rename(target, &aside)?;
    match fs::rename(new, target) {
        Ok(()) => Ok(aside),
        Err(error) => {
            fs::rename(&aside, target)?;
            Err(error)
        }
    }
}

/// Locks a folder before it is replaced, so that no other run sweeps it as a leftover. `None` where another run has
/// the lock or the file system does not support locks.
pub(super) fn lock(folder: &Path) -> Option<File> {
    let handle = File::open(folder).ok()?;
    handle.try_lock().ok().map(|()| handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (new, target) = (dir.path().join("new"), dir.path().join("target"));
        for (folder, text) in [(&new, "new"), (&target, "old")] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("file"), text).unwrap();
        }
        (dir, new, target)
    }

    fn text(folder: &Path) -> String {
        fs::read_to_string(folder.join("file")).unwrap()
    }

    #[test]
    fn the_new_folder_replaces_the_old_one() {
        let (_dir, new, target) = folders();
        let old = replace(&new, &target, || Ok(new.with_extension("old"))).unwrap();
        assert_eq!((text(&target), text(&old)), ("new".into(), "old".into()));
    }

    #[test]
    fn two_step_replacement_rolls_back_on_failure() {
        let (dir, new, target) = folders();
        let aside = dir.path().join("aside");
        assert_eq!(in_two_steps(&new, &target, aside.clone()).unwrap(), aside);
        assert_eq!((text(&target), text(&aside)), ("new".into(), "old".into()));
        let missing = dir.path().join("missing");
        assert!(in_two_steps(&missing, &target, dir.path().join("again")).is_err());
        assert_eq!(text(&target), "new");
    }
}
