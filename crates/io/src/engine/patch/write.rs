//! Writing of a patch, undo, and removal of the undo record.

use super::disk::check_undo;
use super::outside::{Algorithm, Hasher, Outside};
use super::record::{self, decode, encode};
use super::{Fingerprint, Patch, PatchDisk, PatchFile, PatchRange};
use crate::source::to_usize;
use std::path::{Path, PathBuf};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Job, Opt};

/// Bytes hashed at once.
const BLOCK: u64 = 1 << 20;

/// Suffix of the name of an undo record.
const SUFFIX: &str = ".weighbridge-undo";

impl Patch {
    /// Returns the path of the undo record of the file `path`.
    pub fn record_path(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(SUFFIX);
        PathBuf::from(name)
    }

    /// Fails where the file `path` already has an undo record.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `undo-exists`.
    pub fn check_free(disk: &dyn PatchDisk, path: &Path) -> Result<()> {
        let record = Patch::record_path(path);
        if !disk.exists(&record) {
            return Ok(());
        }
        Err(Error::usage("undo-exists", "the undo record of an earlier edit exists")
            .in_file(record.display())
            .hint(phrase![
                "undo that edit with ",
                Opt::Undo,
                ", or keep its result with ",
                Opt::ForgetUndo,
                ", which removes the record"
            ]))
    }

    /// Writes `patch` to the file `path`, which must still match `seen` and have the patch's old bytes. An undo record
    /// is written before, and remains.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`]: `undo-exists`, `locked`; [`weighbridge_core::Kind::Mismatch`], `changed-meanwhile`;
    /// [`weighbridge_core::Kind::Io`]. If writing fails, the old bytes are restored at once; if that fails too, the error is
    /// `half-written`, and the record remains.
    pub fn write(disk: &dyn PatchDisk, path: &Path, seen: &Fingerprint, patch: &Patch) -> Result<()> {
        if patch.is_empty() {
            return Ok(());
        }
        let file = disk.open(path)?;
        Patch::check_free(disk, path)?;
        let changed = || {
            Error::mismatch(
                "changed-meanwhile",
                "the file was modified after it was opened; nothing was written",
            )
            .in_file(path.display())
            .hint("run the command again")
        };
        if file.fingerprint()? != *seen || seen.len != patch.old_len {
            return Err(changed());
        }
        for range in &patch.ranges {
            if read(&*file, range.offset, range.old.len())? != range.old {
                return Err(changed());
            }
        }
        let outside = outside(&*file, patch, Algorithm::OWN)?;
        let record = Patch::record_path(path);
        if let Err(error) = disk.keep(&record, &encode(patch, &outside), path) {
            // The record exists if only the last step of creating it failed.
            let _ = disk.remove(&record);
            return Err(error);
        }
        let Err(error) = put(&*file, patch.new_len, &patch.ranges, |range| &range.new) else { return Ok(()) };
        let back = put(&*file, patch.old_len, &patch.ranges, |range| &range.old);
        match back.and_then(|()| disk.remove(&record)) {
            Ok(()) => Err(error.within("the file is unchanged")),
            Err(_) => Err(Error::new(
                Kind::Io,
                "half-written",
                format!("the file is partially written and could not be restored: {}", error.message()),
            )
            .in_file(path.display())
            .hint(phrase![
                Job::Edit.call().with(Opt::Undo),
                " restores the old bytes from the undo record beside the file"
            ])),
        }
    }
}

/// Writes one side of the ranges, sets the length of the file, and syncs.
fn put<'a>(
    file: &dyn PatchFile,
    len: u64,
    ranges: &'a [PatchRange],
    side: impl Fn(&'a PatchRange) -> &'a Vec<u8>,
) -> Result<()> {
    for range in ranges {
        let bytes = side(range);
        if !bytes.is_empty() {
            file.write_at(range.offset, bytes)?;
        }
    }
    if file.fingerprint()?.len != len {
        file.set_len(len)?;
    }
    file.sync()
}

fn read(file: &dyn PatchFile, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    file.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// Hash of the bytes outside the ranges, which neither writing nor undoing changes.
fn outside(file: &dyn PatchFile, patch: &Patch, algorithm: Algorithm) -> Result<Outside> {
    let mut hasher = Hasher::new(algorithm);
    let mut hash = |mut at: u64, end: u64| -> Result<()> {
        while at < end {
            let len = (end - at).min(BLOCK);
            hasher.update(&read(file, at, to_usize(len)?)?);
            at += len;
        }
        Ok(())
    };
    let mut at = 0;
    for range in &patch.ranges {
        hash(at, range.offset)?;
        at = range.offset.saturating_add(range.old.len().max(range.new.len()) as u64);
    }
    // A range that changes the length reaches the end.
    hash(at, patch.old_len.min(patch.new_len))?;
    Ok(Outside { algorithm, hash: hasher.finish() })
}

/// State of the edit of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing of the edit is in the file.
    Before,
    /// A part of the edit is in the file.
    Between,
    /// The whole edit is in the file.
    After,
    /// The file has other bytes, inside or outside the ranges.
    Other,
}

fn state(file: &dyn PatchFile, patch: &Patch, known: &Outside) -> Result<State> {
    let len = file.fingerprint()?.len;
    if len < patch.old_len.min(patch.new_len) || len > patch.old_len.max(patch.new_len) {
        return Ok(State::Other);
    }
    let (mut before, mut after) = (len == patch.old_len, len == patch.new_len);
    for range in &patch.ranges {
        let there = (range.old.len().max(range.new.len()) as u64).min(len.saturating_sub(range.offset));
        let found = read(file, range.offset, to_usize(there)?)?;
        before &= found == range.old;
        after &= found == range.new;
        // An interrupted edit has old and new bytes; beyond the old end any bytes are possible.
        let ours = found.iter().enumerate().all(|(place, byte)| {
            let old = range.old.get(place);
            old.is_none() || old == Some(byte) || range.new.get(place) == Some(byte)
        });
        if !ours {
            return Ok(State::Other);
        }
    }
    if outside(file, patch, known.algorithm)? != *known {
        return Ok(State::Other);
    }
    Ok(match (before, after) {
        (true, _) => State::Before,
        (_, true) => State::After,
        _ => State::Between,
    })
}

/// Reads the undo record of the file.
fn recorded(disk: &dyn PatchDisk, path: &Path) -> Result<(Patch, Outside)> {
    let record = Patch::record_path(path);
    let Some(bytes) = disk.read(&record, record::MAX_RECORD_LEN)? else {
        return Err(Error::mismatch("no-undo-record", "the file has no undo record")
            .in_file(path.display())
            .expected(record.display())
            .hint(phrase![
                "an edit in place leaves a record until it is undone; ",
                Opt::InPlace.with("rewrite"),
                " leaves none"
            ]));
    };
    decode(&bytes).map_err(|e| e.in_file(record.display()))
}

impl Patch {
    /// Restores the bytes of the file `path` from before its last in-place edit, and removes the record. An interrupted
    /// edit is undone too. Returns the number of restored bytes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `no-undo-record`; `changed-since` where the file has bytes that are neither
    /// the old nor the new ones, or others outside the edited ranges; [`weighbridge_core::Kind::Usage`]: `link` for a
    /// symbolic link, `not-a-file`, `read-only`, `locked`; `several-names` where the file got another hard link since the
    /// edit, unless it is half written; [`weighbridge_core::Kind::Corrupt`] for a damaged record; in all these cases nothing
    /// is written. [`weighbridge_core::Kind::Io`]. The record remains on every error.
    pub fn undo(disk: &dyn PatchDisk, path: &Path) -> Result<u64> {
        let (patch, outside) = recorded(disk, path)?;
        check_undo(path, false)?;
        let file = disk.open(path)?;
        let found = state(&*file, &patch, &outside)?;
        check_undo(path, found == State::After)?;
        match found {
            State::Other => {
                return Err(Error::mismatch(
                    "changed-since",
                    "the file was modified after the edit: it matches neither the old nor the new version",
                )
                .in_file(path.display())
                .hint(phrase![Opt::ForgetUndo, " removes the undo record"]));
            }
            State::Before => {}
            State::Between | State::After => put(&*file, patch.old_len, &patch.ranges, |range| &range.old)?,
        }
        disk.remove(&Patch::record_path(path))?;
        Ok(patch.ranges.iter().map(|range| range.old.len() as u64).sum())
    }

    /// Removes the undo record of the file `path`: its last edit stays. The file itself need not exist.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `no-undo-record`; `half-written` where the edit was interrupted, so that the
    /// record is required to restore the file; [`weighbridge_core::Kind::Corrupt`]; [`weighbridge_core::Kind::Io`].
    pub fn forget(disk: &dyn PatchDisk, path: &Path) -> Result<()> {
        let (patch, outside) = recorded(disk, path)?;
        if !disk.exists(path) {
            return disk.remove(&Patch::record_path(path));
        }
        let file = disk.open(path)?;
        if state(&*file, &patch, &outside)? == State::Between {
            return Err(Error::mismatch(
                "half-written",
                "the edit was interrupted: the file has parts of the old and the new version",
            )
            .in_file(path.display())
            .hint(phrase![Opt::Undo, " restores the old bytes"]));
        }
        disk.remove(&Patch::record_path(path))
    }
}
