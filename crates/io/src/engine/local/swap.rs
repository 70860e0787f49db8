//! Putting one folder in the place of another.
//!
//! Linux exchanges two names in one step. Elsewhere the old folder is first set aside under a
//! hidden name of its own kind, then the new one takes the place. Whoever is killed between the two
//! steps leaves no folder at the target; the next run with the same target finds the one that was
//! set aside and puts it back, before it looks at the target at all (see `staging`).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Puts the folder `new` in the place of the folder `target`. Returns where the old one is now:
/// where `new` was, or at the name that `aside` gives. On failure both are where they were.
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

/// Exchanges two names in one step; false where the system cannot.
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

/// Locks a folder that is about to be replaced, so that nobody takes it for a leftover while this
/// run lives. Where that is refused, another run that replaced it holds it, or there are no locks.
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
    fn the_new_folder_takes_the_place() {
        let (_dir, new, target) = folders();
        let old = replace(&new, &target, || Ok(new.with_extension("old"))).unwrap();
        assert_eq!((text(&target), text(&old)), ("new".into(), "old".into()));
    }

    #[test]
    fn two_steps_do_the_same_and_go_back_on_failure() {
        let (dir, new, target) = folders();
        let aside = dir.path().join("aside");
        assert_eq!(in_two_steps(&new, &target, aside.clone()).unwrap(), aside);
        assert_eq!((text(&target), text(&aside)), ("new".into(), "old".into()));
        let missing = dir.path().join("missing");
        assert!(in_two_steps(&missing, &target, dir.path().join("again")).is_err());
        assert_eq!(text(&target), "new");
    }
}
