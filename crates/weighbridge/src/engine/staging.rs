//! Names of staged files, and the proof that a leftover is ours.
//!
//! A staged file stands beside its target as `.NAME.weighbridge-NONCE-CHECK.part`. CHECK is a
//! hash of the target's full name and NONCE, so no other program makes such a name by chance; and
//! a run holds a lock on its staged file for as long as it lives. A leftover is swept only if its
//! check is right, it is a regular file, and nobody holds the lock.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

const MARK: &str = ".weighbridge-";
const END: &str = ".part";
/// Bytes of the target's name that a staged name repeats; file systems allow 255 in all.
const SHOWN: usize = 160;

fn staged_name(target: &OsStr, nonce: &str) -> OsString {
    let text = target.to_string_lossy();
    let mut end = text.len().min(SHOWN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    OsString::from(format!(".{}{MARK}{nonce}-{}{END}", &text[..end], check(target, nonce)))
}

fn check(target: &OsStr, nonce: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"weighbridge staged file\0");
    hash.update(target.as_encoded_bytes());
    hash.update([0]);
    hash.update(nonce);
    hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// True where `name` is one that [`create`] gives to a staged file of `target`.
fn is_staged_name(name: &OsStr, target: &OsStr) -> bool {
    let nonce = || {
        let text = name.to_str()?;
        let rest = &text[text.rfind(MARK)? + MARK.len()..];
        Some(rest.split_once('-')?.0.to_owned())
    };
    nonce().is_some_and(|nonce| staged_name(target, &nonce) == name)
}

/// Makes and locks a new staged file for `target` in `folder`.
pub(super) fn create(folder: &Path, target: &OsStr) -> io::Result<(File, PathBuf)> {
    let random = RandomState::new();
    for attempt in 0..16u64 {
        let nonce = format!("{:016x}", random.hash_one((std::process::id(), attempt)));
        let path = folder.join(staged_name(target, &nonce));
        let file = match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(e),
        };
        // A file system without locks is fine: then nobody can prove that a leftover is dead, and
        // it stays. Between the two calls a sweeper may hold the lock or have taken the file away:
        // then try again.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            drop(file);
            let _ = fs::remove_file(&path);
            continue;
        }
        if fs::symlink_metadata(&path).is_ok() {
            return Ok((file, path));
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "no free name for a staged file"))
}

/// Removes the leftovers of dead runs that had the same target. Returns how many.
pub(super) fn sweep(folder: &Path, target: &OsStr) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let candidates = entries.flatten().filter(|e| is_staged_name(&e.file_name(), target));
    let dead = candidates.filter(|entry| {
        let regular = entry.file_type().is_ok_and(|t| t.is_file());
        regular && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok())
    });
    dead.filter(|entry| fs::remove_file(entry.path()).is_ok()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dead_files_of_ours_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let target = OsStr::new("model.safetensors");
        let (alive, alive_path) = create(dir.path(), target).unwrap();
        let (dead, dead_path) = create(dir.path(), target).unwrap();
        drop(dead);
        // Names that look like ours and are not.
        let strangers = [
            ".model.safetensors.weighbridge-0000000000000000-0000000000000000.part",
            ".model.safetensors.weighbridge-.part",
            ".model.safetensors.weighbridge--.part",
            ".model.safetensors.part",
        ];
        for name in strangers {
            fs::write(dir.path().join(name), b"x").unwrap();
        }
        let (other, other_path) = create(dir.path(), OsStr::new("other")).unwrap();
        drop(other);
        assert_eq!(sweep(dir.path(), target), 1);
        assert!(alive_path.exists() && other_path.exists() && !dead_path.exists());
        assert!(strangers.iter().all(|name| dir.path().join(name).exists()));
        drop(alive);
        assert_eq!(sweep(dir.path(), target), 1);
    }

    #[test]
    fn long_names_fit() {
        let dir = tempfile::tempdir().unwrap();
        let name = "é".repeat(127);
        let (_file, path) = create(dir.path(), OsStr::new(&name)).unwrap();
        assert!(is_staged_name(path.file_name().unwrap(), OsStr::new(&name)));
    }
}
