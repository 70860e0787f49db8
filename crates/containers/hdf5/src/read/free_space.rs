//! Free-space lists of a heap or of the file. They refer to no objects, but have checksums.

use super::file::File;
use super::sums;
use weighbridge_core::error::Result;

/// Name of these bytes in outlines.
const STRUCTURE: &str = "hdf5 free-space list";

/// Checks the free-space list at `address`, if any, and claims its bytes.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `past-the-end` where it exceeds the file, `hdf5-checksum`.
pub(super) fn check(file: &File, address: u64) -> Result<()> {
    if address == u64::MAX {
        return Ok(());
    }
    let (offset, length) = file.widths();
    let head = file.bytes_as(STRUCTURE, address, 18 + 7 * length + offset)?;
    sums::checked(&head, b"FSHD", "free-space list", address)?;
    let mut reader = file.reader(&head);
    // Signature, version, client; four totals; four small numbers; the longest section.
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
    let bytes = file.bytes_as(STRUCTURE, sections, used)?;
    sums::checked(&bytes, b"FSSE", "free-space list", sections)?;
    file.context.offset(sections, room)?;
    if let Some(record) = file.record() {
        record.claim(sections, room, STRUCTURE);
    }
    Ok(())
}
