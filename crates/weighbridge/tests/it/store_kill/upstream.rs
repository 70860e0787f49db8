//! PyTorch-BigGraph itself with the same files: its steps, and its restart.

use super::sim::SimDisk;
use super::{EVERY, FILES, ROUNDS, content, name};
use std::path::{Path, PathBuf};
use weighbridge::Result;
use weighbridge::engine::Disk;

/// What the next run of BigGraph would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// It goes on from the last version that was committed, or a later one, with the right data.
    GoesOn,
    /// It begins from nothing, without a word.
    StartsOver,
    /// It goes on from a version with missing files (random values) or damaged ones.
    Damaged,
}

fn at(name: &str) -> PathBuf {
    Path::new("/").join(name)
}

fn write_in_place(disk: &SimDisk, name: &str, bytes: &[u8]) -> Result<()> {
    disk.truncate(&at(name))?;
    disk.append(&at(name), bytes)
}

/// Trains [`ROUNDS`] iterations. `committed` receives each committed version.
pub(crate) fn run(disk: &SimDisk, mut committed: impl FnMut(u64)) -> Result<()> {
    write_in_place(disk, "config.json", super::CONFIG.as_bytes())?;
    for version in 1..=ROUNDS {
        for file in FILES {
            let name = name(file, version);
            write_in_place(disk, &name, &content(&name))?;
        }
        disk.append(&at("training_stats.json"), b"{}\n")?;
        write_in_place(disk, "checkpoint_version.txt", format!("{version}\n").as_bytes())?;
        disk.sync_file(&at("checkpoint_version.txt"))?;
        committed(version);
        if version % EVERY == 0 {
            let folder = format!("epoch_{}", version / EVERY);
            disk.make_folder(&at(&folder))?;
            for file in FILES {
                let name = name(file, version);
                disk.symlink(&at(&name), &at(&format!("{folder}/{name}")))?;
            }
            let marker = format!("{folder}/checkpoint_version.txt");
            write_in_place(disk, &marker, format!("{version}\n").as_bytes())?;
            disk.sync_file(&at(&marker))?;
        }
        let before = version - 1;
        if before > 0 && before % EVERY != 0 {
            for file in FILES {
                disk.remove(&at(&name(file, before)))?;
            }
        }
    }
    Ok(())
}

/// How BigGraph would start on `disk`, when `committed` was the last version that counted.
pub(crate) fn start(disk: &SimDisk, committed: u64) -> Start {
    let text = disk.read("/checkpoint_version.txt").unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    if text.trim().is_empty() {
        return Start::StartsOver;
    }
    // A file of zeros is no number: it stops with an error, and nothing is lost for good that was
    // not damaged anyway; what counts here is that it cannot go on.
    let Ok(version) = text.trim().parse::<u64>() else { return Start::Damaged };
    let right = FILES.iter().all(|file| {
        let name = name(file, version);
        disk.read(at(&name)).is_some_and(|bytes| bytes == content(&name))
    });
    if right && version >= committed { Start::GoesOn } else { Start::Damaged }
}
