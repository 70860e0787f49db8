//! Lists of the room that is free in a heap or in the file. They lead to nothing, but they have checksums.

use super::file::File;
use hdf5_reader::checksum::jenkins_lookup3;
use weighbridge_core::error::{Error, Result};

/// What its bytes are called.
const WHAT: &str = "hdf5 list of free room";

/// Checks the list of free room at `address`, if there is one, and claims its bytes.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `past-the-end` where it leaves the file, `hdf5-checksum`.
pub(super) fn check(file: &File, address: u64) -> Result<()> {
    let (offset, length) = (u64::from(file.offset_size()), u64::from(file.length_size()));
    let undefined = |address| hdf5_reader::io::Cursor::is_undefined_offset(address, file.offset_size());
    if undefined(address) {
        return Ok(());
    }
    let head = file.bytes_as(WHAT, address, 18 + 7 * length + offset)?;
    checked(&head, b"FSHD", address)?;
    let mut reader = file.place.reader(&head);
    // Mark, version, client; four sums; four small numbers; the longest section.
    reader.skip(6)?;
    for _ in 0..4 {
        reader.length()?;
    }
    reader.skip(8)?;
    reader.length()?;
    let (sections, used, room) = (reader.offset()?, reader.length()?, reader.length()?);
    if undefined(sections) {
        return Ok(());
    }
    let bytes = file.bytes_as(WHAT, sections, used)?;
    checked(&bytes, b"FSSE", sections)?;
    file.place.offset(sections, room)?;
    if let Some(record) = file.record() {
        record.claim(sections, room, WHAT);
    }
    Ok(())
}

fn checked(bytes: &[u8], mark: &[u8; 4], address: u64) -> Result<()> {
    match bytes.split_last_chunk::<4>() {
        Some((body, sum)) if body.starts_with(mark) => {
            match jenkins_lookup3(body) == u32::from_le_bytes(*sum) {
                true => Ok(()),
                false => {
                    let text = "HDF5: a list of free room does not match its checksum";
                    Err(Error::corrupt("hdf5-checksum", text).at(address))
                }
            }
        }
        _ => {
            let text = "HDF5: a list of free room has lost its mark";
            Err(Error::corrupt("hdf5-corrupt", text).at(address))
        }
    }
}
