//! Names of staged files and folders, and detection of our own leftovers.
//!
//! A staged file or folder is named `.NAME.weighbridge-NONCE-CHECK.part`, beside its target. CHECK is a hash of the
//! target's full name and NONCE, so no other program creates such a name by chance. A run locks everything that it
//! stages as long as it lives (a folder is locked like a file). A leftover is removed only if its check matches, it
//! is a regular file or a folder, and it is not locked.
//!
//! On systems that cannot exchange two folders, a set-aside folder has the same name with the ending `.old`. If its
//! run died before the new folder was renamed, the target does not exist, and the sweep restores the folder;
//! otherwise it is a leftover like others.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

const MARK: &str = ".weighbridge-";
const END: &str = ".part";
const OLD: &str = ".old";
/// Bytes of the target's name that a staged name repeats; file systems allow 255 in total.
const MAX_NAME_LEN: usize = 160;

fn staged_name(target: &OsStr, nonce: &str, end: &str) -> OsString {
    let text = target.to_string_lossy();
    let mut shown = text.len().min(MAX_NAME_LEN);
    while !text.is_char_boundary(shown) {
        shown -= 1;
    }
    OsString::from(format!(".{}{MARK}{nonce}-{}{end}", &text[..shown], check(target, nonce)))
}

fn check(target: &OsStr, nonce: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"weighbridge staged file\0");
    hash.update(target.as_encoded_bytes());
    hash.update([0]);
    hash.update(nonce);
    hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// True where `name` is a staged name for `target` (`end` is [`END`]) or a set-aside name ([`OLD`]).
fn is_staged_name(name: &OsStr, target: &OsStr, end: &str) -> bool {
    let nonce = || {
        let text = name.to_str()?;
        let rest = &text[text.rfind(MARK)? + MARK.len()..];
        Some(rest.split_once('-')?.0.to_owned())
    };
    nonce().is_some_and(|nonce| staged_name(target, &nonce, end) == name)
}

/// True where `name` has the form of a staged name for any target: no output may have such a name.
pub(super) fn is_reserved(name: &OsStr) -> bool {
    let text = name.to_string_lossy();
    text.starts_with('.') && text.contains(MARK) && (text.ends_with(END) || text.ends_with(OLD))
}

/// Yields new staged names for `target` in `folder`.
fn candidates(folder: &Path, target: &OsStr, end: &str) -> impl Iterator<Item = PathBuf> {
    let random = RandomState::new();
    (0..16u64).map(move |attempt| {
        let nonce = format!("{:016x}", random.hash_one((std::process::id(), attempt)));
        folder.join(staged_name(target, &nonce, end))
    })
}

fn no_name() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "no free name for a staged file")
}

/// Creates and locks a new staged file for `target` in `folder`.
pub(super) fn create(folder: &Path, target: &OsStr) -> io::Result<(File, PathBuf)> {
    for path in candidates(folder, target, END) {
        let file = match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(e),
        };
        // Without lock support no leftover can be proven dead, so leftovers stay. Between the two calls a
        // sweep may have locked or removed the file: try again.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            drop(file);
            let _ = fs::remove_file(&path);
            continue;
        }
        if fs::symlink_metadata(&path).is_ok() {
            return Ok((file, path));
        }
    }
    Err(no_name())
}

/// Creates a new staged folder for `target` in `folder`, and locks it where supported.
pub(super) fn create_folder(folder: &Path, target: &OsStr) -> io::Result<(PathBuf, Option<File>)> {
    for path in candidates(folder, target, END) {
        match fs::create_dir(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(e),
        }
        // As for files: without locks a leftover stays, and a sweep may have removed the folder.
        let Ok(handle) = File::open(&path) else {
            if fs::symlink_metadata(&path).is_ok() {
                return Ok((path, None));
            }
            continue;
        };
        if let Err(TryLockError::WouldBlock) = handle.try_lock() {
            drop(handle);
            let _ = fs::remove_dir(&path);
            continue;
        }
        if fs::symlink_metadata(&path).is_ok() {
            return Ok((path, Some(handle)));
        }
    }
    Err(no_name())
}

/// Returns a new hidden name in `folder` for the final name `name`. It has no check: its users lock the whole
/// folder, and no other run removes such files as leftovers.
pub(super) fn loose_name(folder: &Path, name: &str) -> PathBuf {
    let mut shown = name.len().min(MAX_NAME_LEN);
    while !name.is_char_boundary(shown) {
        shown -= 1;
    }
    let nonce = RandomState::new().hash_one((std::process::id(), name));
    folder.join(format!(".{}{MARK}{nonce:016x}{END}", &name[..shown]))
}

/// Returns the (possibly truncated) final name of a [`loose_name`].
pub(super) fn loosely_staged(hidden: &OsStr) -> Option<&str> {
    let (shown, rest) = hidden.to_str()?.strip_prefix('.')?.rsplit_once(MARK)?;
    let nonce = rest.strip_suffix(END)?;
    (nonce.len() == 16 && nonce.bytes().all(|b| b.is_ascii_hexdigit())).then_some(shown)
}

/// Returns a free set-aside name for `target`.
pub(super) fn aside(folder: &Path, target: &OsStr) -> io::Result<PathBuf> {
    candidates(folder, target, OLD).find(|path| fs::symlink_metadata(path).is_err()).ok_or_else(no_name)
}

/// Removes leftovers of crashed runs with the same target, and restores a folder that one of them had set aside.
/// Returns their number.
pub(super) fn sweep(folder: &Path, target: &OsStr) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let mut swept = 0;
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let set_aside = is_staged_name(&name, target, OLD);
        if !set_aside && !is_staged_name(&name, target, END) {
            continue;
        }
        let Ok(kind) = entry.file_type() else { continue };
        if !kind.is_file() && !kind.is_dir() {
            continue;
        }
        // The lock is held until the leftover is removed.
        let Ok(handle) = File::open(&path) else { continue };
        if handle.try_lock().is_err() {
            continue;
        }
        let home = folder.join(target);
        let done = if set_aside && fs::symlink_metadata(&home).is_err() {
            fs::rename(&path, &home)
        } else if kind.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        swept += usize::from(done.is_ok());
    }
    swept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_removes_only_our_unlocked_files() {
        let dir = tempfile::tempdir().unwrap();
        let target = OsStr::new("model.safetensors");
        let (alive, alive_path) = create(dir.path(), target).unwrap();
        let (dead, dead_path) = create(dir.path(), target).unwrap();
        drop(dead);
        // Names of a similar form that are not ours.
        let others = [
            ".model.safetensors.weighbridge-0000000000000000-0000000000000000.part",
            ".model.safetensors.weighbridge-.part",
            ".model.safetensors.weighbridge--.part",
            ".model.safetensors.part",
        ];
        for name in others {
            fs::write(dir.path().join(name), b"x").unwrap();
        }
        let (other, other_path) = create(dir.path(), OsStr::new("other")).unwrap();
        drop(other);
        assert_eq!(sweep(dir.path(), target), 1);
        assert!(alive_path.exists() && other_path.exists() && !dead_path.exists());
        assert!(others.iter().all(|name| dir.path().join(name).exists()));
        drop(alive);
        assert_eq!(sweep(dir.path(), target), 1);
    }

    #[test]
    fn sweep_removes_unlocked_folders_with_content() {
        let dir = tempfile::tempdir().unwrap();
        let target = OsStr::new("model");
        let (alive, lock) = create_folder(dir.path(), target).unwrap();
        let (dead, dead_lock) = create_folder(dir.path(), target).unwrap();
        fs::create_dir(dead.join("sub")).unwrap();
        fs::write(dead.join("sub/file"), b"x").unwrap();
        drop(dead_lock);
        assert_eq!(sweep(dir.path(), target), 1);
        assert!(alive.exists() && !dead.exists());
        drop(lock);
        assert_eq!(sweep(dir.path(), target), 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn sweep_restores_a_set_aside_folder_if_the_target_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let target = OsStr::new("model");
        let home = dir.path().join(target);
        for text in ["first", "second"] {
            let path = aside(dir.path(), target).unwrap();
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), text).unwrap();
            let held = File::open(&path).unwrap();
            held.try_lock().unwrap();
            assert_eq!(sweep(dir.path(), target), 0, "its run lives");
            drop(held);
            assert_eq!(sweep(dir.path(), target), 1);
            assert!(!path.exists());
            assert_eq!(fs::read(home.join("file")).unwrap(), b"first");
        }
    }

    #[test]
    fn loose_names_are_distinguished_from_checked_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = loose_name(dir.path(), "model.v3.h5");
        assert_eq!(loosely_staged(path.file_name().unwrap()), Some("model.v3.h5"));
        assert!(is_reserved(path.file_name().unwrap()));
        fs::write(&path, b"x").unwrap();
        assert_eq!(sweep(dir.path(), OsStr::new("model.v3.h5")), 0);
        assert!(path.exists());
        let (_file, checked) = create(dir.path(), OsStr::new("model.v3.h5")).unwrap();
        assert_eq!(loosely_staged(checked.file_name().unwrap()), None);
        assert_eq!(loosely_staged(OsStr::new(".model.v3.h5.weighbridge-0.part")), None);
    }

    #[test]
    fn long_names_fit() {
        let dir = tempfile::tempdir().unwrap();
        let name = "é".repeat(127);
        let (_file, path) = create(dir.path(), OsStr::new(&name)).unwrap();
        assert!(is_staged_name(path.file_name().unwrap(), OsStr::new(&name), END));
        assert!(is_reserved(path.file_name().unwrap()));
    }
}
