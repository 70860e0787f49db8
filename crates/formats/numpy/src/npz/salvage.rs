//! Salvage of a damaged archive: arrays in members with a valid checksum.

use super::{SUFFIX, read};
use weighbridge_core::checkpoint::{Checkpoint, Damage};
use weighbridge_core::error::{Error, Result};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;
use weighbridge_zip as zip;

/// Reads the index of the intact arrays.
///
/// # Errors
/// As [`zip::salvage`].
pub(super) fn open(source: &SourceRef, error: &Error, options: &OpenOptions) -> Result<Checkpoint> {
    let found = zip::salvage(source, &options.limits)?;
    let mut lost = found.lost;
    let mut checkpoint = read::index(source, &found.members, options, |member, error| {
        if !Damage::is(&error) {
            return Err(error);
        }
        lost.push((member.name.clone(), error));
        Ok(())
    })?;
    let expected = (checkpoint.tensors.len() + lost.len()) as u64;
    checkpoint.damage_mut(error).expected = found.complete.then_some(expected);
    checkpoint.damage_mut(error).unnamed = found.unnamed;
    for (name, error) in lost {
        checkpoint.lose(name.strip_suffix(SUFFIX).unwrap_or(&name), &error);
    }
    Ok(checkpoint)
}
