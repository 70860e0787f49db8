//! Unwritten elements: fill values.

use super::bytes::Reader;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Source, Within, check_range};

/// Parses a fill value message, new or old. Returns one element; empty for zeros.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] where the message is cut short or contradicts itself;
/// [`weighbridge_core::Kind::Unsupported`] for
/// unknown versions.
pub(super) fn parse(mut reader: Reader<'_>, is_new: bool) -> Result<Vec<u8>> {
    /// Fill times with a fill value: on allocation, and if set by the user.
    const FILLED: [u8; 2] = [0, 2];
    if !is_new {
        let len = reader.u32()?;
        return reader.take(len as usize).map(<[u8]>::to_vec);
    }
    let version = reader.u8()?;
    let (time, has_value) = match version {
        1 | 2 => {
            reader.skip(1)?;
            let (time, is_defined) = (reader.u8()?, reader.u8()?);
            if is_defined > 1 {
                let text = "HDF5: the fill value message has an invalid `defined` flag";
                return Err(Error::corrupt("hdf5-corrupt", text).found(is_defined));
            }
            (time, version == 1 || is_defined == 1)
        }
        3 => {
            let flags = reader.u8()?;
            if flags & 0xc0 != 0 || flags & 0x30 == 0x30 {
                let text = "HDF5: the fill value message has invalid flags";
                return Err(Error::corrupt("hdf5-corrupt", text).found(flags));
            }
            (flags >> 2 & 3, flags & 0x20 != 0)
        }
        version => {
            let text = "HDF5: the fill value message has an unsupported version";
            return Err(Error::unsupported("hdf5-unsupported", text).found(version));
        }
    };
    let len = if has_value { reader.u32()? } else { 0 };
    // In version 1 a negative length means no fill value.
    let len = if len > i32::MAX as u32 { 0 } else { len };
    let value = reader.take(len as usize)?.to_vec();
    Ok(if FILLED.contains(&time) { value } else { Vec::new() })
}

/// Source that repeats one element.
#[derive(Debug)]
pub(super) struct FillSource {
    label: String,
    /// One element.
    pattern: Vec<u8>,
    len: u64,
}

impl FillSource {
    /// Creates a source of `len` bytes that repeats `pattern`; an empty pattern means zeros.
    pub(super) fn new(label: &str, pattern: Vec<u8>, len: u64) -> Self {
        Self { label: label.to_owned(), pattern, len }
    }
}

/// Fills `buffer` with the bytes at `offset` of an endless repetition of `pattern`.
pub(super) fn repeat(pattern: &[u8], offset: u64, buffer: &mut [u8]) {
    match pattern {
        [] => buffer.fill(0),
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => buffer.fill(*first),
        pattern => {
            let start = usize::try_from(offset % pattern.len() as u64).unwrap_or(0);
            let run = pattern.iter().cycle().skip(start);
            buffer.iter_mut().zip(run).for_each(|(to, from)| *to = *from);
        }
    }
}

impl Source for FillSource {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        repeat(&self.pattern, offset, buffer);
        Ok(())
    }
    fn label(&self) -> &str {
        &self.label
    }
    fn made_of(&self) -> Option<Vec<Within<'_>>> {
        Some(Vec::new())
    }
}
