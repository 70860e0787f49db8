//! Lists of the room that is free in a heap or in the file. They lead to nothing, but they have checksums.

use super::file::File;
use super::sums;
use weighbridge_core::error::Result;

/// What its bytes are called.
const WHAT: &str = "hdf5 list of free room";

/// Checks the list of free room at `address`, if there is one, and claims its bytes.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `past-the-end` where it leaves the file, `hdf5-checksum`.
pub(super) fn check(file: &File, address: u64) -> Result<()> {
    if address == u64::MAX {
        return Ok(());
    }
    let (offset, length) = file.widths();
    let head = file.bytes_as(WHAT, address, 18 + 7 * length + offset)?;
    sums::checked(&head, b"FSHD", "a list of free room", address)?;
    let mut reader = file.reader(&head);
    // Mark, version, client; four sums; four small numbers; the longest section.
    reader.skip(6)?;
    for _ in 0..4 {
        reader.length()?;
    }
    reader.skip(8)?;
    reader.length()?;
    let (sections, used, room) = (reader.offset()?, reader.length()?, reader.length()?);
    if sections == u64::MAX {
        return Ok(());
    }
    let bytes = file.bytes_as(WHAT, sections, used)?;
    sums::checked(&bytes, b"FSSE", "a list of free room", sections)?;
    file.place.offset(sections, room)?;
    if let Some(record) = file.record() {
        record.claim(sections, room, WHAT);
    }
    Ok(())
}
