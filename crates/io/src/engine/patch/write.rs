//! Writing a patch, taking it back, and forgetting how.

use super::disk::check_undo;
use super::outside::{Algorithm, Hasher, Outside};
use super::record::{self, decode, encode};
use super::{Fingerprint, Patch, PatchDisk, PatchFile, PatchRange};
use crate::source::to_usize;
use std::path::{Path, PathBuf};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Job, Opt};

/// Bytes that are read at once to be hashed.
const BLOCK: u64 = 1 << 20;

/// What the name of a file becomes for its undo record.
const SUFFIX: &str = ".weighbridge-undo";

impl Patch {
    /// Path of the undo record of the file `path`.
    pub fn record_path(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(SUFFIX);
        PathBuf::from(name)
    }

    /// Fails where the file `path` has an undo record already.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `undo-exists`.
    pub fn check_free(disk: &dyn PatchDisk, path: &Path) -> Result<()> {
        let record = Patch::record_path(path);
        if !disk.exists(&record) {
            return Ok(());
        }
        Err(Error::usage("undo-exists", "the undo record of an earlier edit is still there")
            .in_file(record.display())
            .hint(phrase![
                "take that edit back with ",
                Opt::Undo,
                ", or keep it for good with ",
                Opt::ForgetUndo
            ]))
    }

    /// Writes `patch` into the file `path`, which must still be as `seen` and hold the patch's old bytes. An undo
    /// record is made before; it stays.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`]: `undo-exists`, `locked`; [`weighbridge_core::Kind::Mismatch`], `changed-meanwhile`;
    /// [`weighbridge_core::Kind::Io`]. Where the writing itself fails the old bytes are put back at once; where not even that
    /// can be done, `half-written` says so, and the record stays.
    pub fn write(disk: &dyn PatchDisk, path: &Path, seen: &Fingerprint, patch: &Patch) -> Result<()> {
        if patch.is_empty() {
            return Ok(());
        }
        let file = disk.open(path)?;
        Patch::check_free(disk, path)?;
        let changed = || {
            Error::mismatch(
                "changed-meanwhile",
                "the file was changed since it was opened; nothing was written",
            )
            .in_file(path.display())
            .hint("try again")
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
            // It may be there all the same, where only the last step of making it failed.
            let _ = disk.remove(&record);
            return Err(error);
        }
        let Err(error) = put(&*file, patch.new_len, &patch.ranges, |range| &range.new) else { return Ok(()) };
        let back = put(&*file, patch.old_len, &patch.ranges, |range| &range.old);
        match back.and_then(|()| disk.remove(&record)) {
            Ok(()) => Err(error.within("the file is as it was")),
            Err(_) => Err(Error::new(
                Kind::Io,
                "half-written",
                format!("the file could not be written, nor put back as it was: {}", error.message()),
            )
            .in_file(path.display())
            .hint(phrase![
                Job::Edit.call().with(Opt::Undo),
                " puts the old bytes back from the undo record beside the file"
            ])),
        }
    }
}

/// Writes one side of the ranges, gives the file its length, and syncs.
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

/// The hash of what stands outside of the ranges, which no step of writing or taking back changes.
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

/// How far the edit of a record went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing of it is in the file.
    Before,
    /// Some of it is.
    Between,
    /// All of it is.
    After,
    /// The file holds other bytes, there or elsewhere.
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
        // What was cut short holds old bytes and new ones; behind the old end anything may stand.
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

/// What the undo record of the file says.
fn recorded(disk: &dyn PatchDisk, path: &Path) -> Result<(Patch, Outside)> {
    let record = Patch::record_path(path);
    let Some(bytes) = disk.read(&record, record::MOST_BYTES)? else {
        return Err(Error::mismatch("no-undo-record", "there is no undo record for this file")
            .in_file(path.display())
            .expected(record.display()));
    };
    decode(&bytes).map_err(|e| e.in_file(record.display()))
}

impl Patch {
    /// Puts the bytes back that stood in the file `path` before its last edit in place, and removes the record.
    /// An edit that was cut short at any point is taken back too. Returns how many bytes were put back.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `no-undo-record`; `changed-since` where the file holds bytes that are neither
    /// the old nor the new ones, or others outside of what was edited; [`weighbridge_core::Kind::Usage`]: `link` for a symbolic link,
    /// `not-a-file`, `read-only`, `locked`; `several-names` where the file was given another name since the edit, unless it is
    /// half written: nothing is written then; [`weighbridge_core::Kind::Corrupt`] for a damaged record; [`weighbridge_core::Kind::Io`]. The record is
    /// then still there.
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
                "the file was changed since the edit: what is in it is neither the old file nor the new one",
            )
            .in_file(path.display())
            .hint(phrase![Opt::ForgetUndo, " removes the record"]));
            }
            State::Before => {}
            State::Between | State::After => put(&*file, patch.old_len, &patch.ranges, |range| &range.old)?,
        }
        disk.remove(&Patch::record_path(path))?;
        Ok(patch.ranges.iter().map(|range| range.old.len() as u64).sum())
    }

    /// Removes the undo record of the file `path`: its last edit stays. The file itself need not be there any more.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `no-undo-record`; `half-written` where the edit was cut short, so that the
    /// record is the only way to a whole file; [`weighbridge_core::Kind::Corrupt`]; [`weighbridge_core::Kind::Io`].
    pub fn forget(disk: &dyn PatchDisk, path: &Path) -> Result<()> {
        let (patch, outside) = recorded(disk, path)?;
        if !disk.exists(path) {
            return disk.remove(&Patch::record_path(path));
        }
        let file = disk.open(path)?;
        if state(&*file, &patch, &outside)? == State::Between {
            return Err(Error::mismatch(
                "half-written",
                "the edit was cut short, and the file is neither old nor new",
            )
            .in_file(path.display())
            .hint(phrase![Opt::Undo, " puts the old bytes back"]));
        }
        disk.remove(&Patch::record_path(path))
    }
}
