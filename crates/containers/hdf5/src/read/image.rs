//! Metadata cache images: metadata that the writer stored in an image instead of at its address.

use super::bytes::Reader;
use super::sums;
use bytes::Bytes;
use std::ops::Range;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::to_usize;

/// Name of the structure in errors.
const STRUCTURE: &str = "cache image";

/// A cache image; empty where the file has none.
#[derive(Debug, Default)]
pub(super) struct Image {
    bytes: Bytes,
    /// Entries by address, without overlaps.
    entries: Vec<Entry>,
    /// Byte range of the image in the file.
    pub(super) place: Range<u64>,
}

#[derive(Debug)]
struct Entry {
    /// FileContext in the file that the bytes replace.
    address: u64,
    /// Offset of the bytes in the image.
    range: Range<usize>,
}

impl Entry {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.range.len() as u64)
    }
}

impl Image {
    /// Parses the image in `bytes`, stored at `address`. `reader` creates readers with the widths of the file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`].
    pub(super) fn parse<'a>(
        bytes: &'a Bytes,
        address: u64,
        reader: impl Fn(&'a [u8]) -> Reader<'a>,
    ) -> Result<Self> {
        let mut reader = reader(sums::checked(bytes, b"MDCI", STRUCTURE, address)?);
        reader.skip(4)?;
        if reader.u8()? != 0 {
            return Err(sums::lost(STRUCTURE, address));
        }
        reader.skip(1)?;
        reader.length()?;
        let count = reader.u32()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            // Type, flags, ring, age, two counts of dependencies.
            reader.skip(8)?;
            let parents = reader.u16()?;
            reader.skip(4)?;
            let (address, len) = (reader.offset()?, to_usize(reader.length()?)?);
            for _ in 0..parents {
                reader.offset()?;
            }
            let at = reader.at();
            reader.skip(len)?;
            entries.push(Entry { address, range: at..at + len });
        }
        entries.sort_by_key(|entry| entry.address);
        if entries.windows(2).any(|pair| pair[0].end() > pair[1].address) {
            let text = "HDF5: the cache image has overlapping entries";
            return Err(Error::corrupt("hdf5-corrupt", text).at(address));
        }
        let end = address.saturating_add(bytes.len() as u64);
        Ok(Self { bytes: bytes.clone(), entries, place: address..end })
    }

    /// Returns `read`, the bytes at `address`, with those of the image in place.
    pub(super) fn patched(&self, address: u64, read: Bytes) -> Bytes {
        let end = address.saturating_add(read.len() as u64);
        let first = self.entries.partition_point(|entry| entry.end() <= address);
        let found = self.entries.get(first..).unwrap_or_default();
        let mut patched = Vec::new();
        for entry in found.iter().take_while(|entry| entry.address < end) {
            if patched.is_empty() {
                patched = read.to_vec();
            }
            let (from, to) = (address.max(entry.address), end.min(entry.end()));
            let within =
                |start: u64| usize::try_from(from - start).ok().zip(usize::try_from(to - start).ok());
            let (source, target) = (within(entry.address), within(address));
            let source = source.and_then(|(from, to)| self.bytes.get(entry.range.clone())?.get(from..to));
            let target = target.and_then(|(from, to)| patched.get_mut(from..to));
            if let (Some(source), Some(target)) = (source, target) {
                target.copy_from_slice(source);
            }
        }
        if patched.is_empty() { read } else { patched.into() }
    }

    /// Returns the offset in the file of the byte at `address`.
    pub(super) fn place_of(&self, address: u64) -> u64 {
        let found = self.entries.iter().find(|entry| (entry.address..entry.end()).contains(&address));
        found.map_or(address, |entry| self.place.start + entry.range.start as u64 + (address - entry.address))
    }
}
