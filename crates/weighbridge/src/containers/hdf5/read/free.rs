//! Lists of the room that is free in a heap. They lead to nothing; only whoever accounts for every
//! byte looks at them.

use super::file::File;
use crate::error::Result;

/// What its bytes are called.
const WHAT: &str = "hdf5 list of free room";

/// Claims the list of free room at `address`, where bytes are accounted for.
///
/// # Errors
/// [`crate::Kind::Corrupt`], `past-the-end`, where it leaves the file.
pub(super) fn claim(file: &File, address: u64) -> Result<()> {
    let (offset, length) = (u64::from(file.offset_size()), u64::from(file.length_size()));
    let undefined = |address| hdf5_reader::io::Cursor::is_undefined_offset(address, file.offset_size());
    let Some(record) = file.record().filter(|_| !undefined(address)) else { return Ok(()) };
    let head = file.bytes_as(WHAT, address, 18 + 7 * length + offset)?;
    if !head.starts_with(b"FSHD") {
        return Ok(());
    }
    let mut reader = file.place.reader(&head);
    // Mark, version, client; four sums; four small numbers; the longest section.
    reader.skip(6)?;
    for _ in 0..4 {
        reader.length()?;
    }
    reader.skip(8)?;
    reader.length()?;
    let (sections, _used, room) = (reader.offset()?, reader.length()?, reader.length()?);
    if !undefined(sections) {
        file.place.offset(sections, room)?;
        record.claim(sections, room, WHAT);
    }
    Ok(())
}
