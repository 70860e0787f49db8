//! Every byte of a file that is no element of a tensor.
//!
//! The file is listed once more, and what is read on the way is remembered: the structures that lead
//! from the superblock to every object are the structures of the file. Then come the places of all
//! datasets, and the heaps that texts in them point to.

use super::dataset::Stored;
use super::file::{File, Place};
use super::header::Header;
use super::layout::Layout;
use super::record::{self, Range, Record};
use super::types::Class;
use super::{Contents, listed};
use crate::Dataset;
use hdf5_reader::checksum::jenkins_lookup3;
use hdf5_reader::io::Cursor;
use std::collections::HashSet;
use std::sync::Arc;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::TensorPath;
use weighbridge_core::error::{Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

/// Elements that are read at once in search of heaps.
const AT_ONCE: u64 = 64 << 10;
/// In search of heaps no more is read than so many times the length of the file, all datasets together: they may be
/// names for one, or never written.
const ELEMENTS_TIMES: u64 = 16;

/// The longest structure whose end is searched for.
const LONGEST: u64 = 64 << 10;
/// Bytes that are hashed in all searches together.
const MOST_HASHED: u64 = 256 << 20;

/// True where `source` is an HDF5 file, also behind a user block.
pub fn is_hdf5(source: &SourceRef) -> bool {
    Place::find(source, &Limits::default()).is_ok()
}

/// Which ranges of an HDF5 file are structures, datasets that are no tensors, or room that is free.
/// Zeros that nothing points to are free room; other bytes there are nobody's.
///
/// # Errors
/// As [`super::read`].
pub fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let place = Place::find(source, limits)?;
    outline_of(&place).map_err(|error| error.in_file(source.label()))
}

fn outline_of(place: &Arc<Place>) -> Result<Outline> {
    let record = Arc::new(Record::new(place.superblock.offset_size, place.superblock.length_size));
    let file = place.open_recorded(&record);
    let contents: Contents = listed(place, place.open_recorded(&record))?;
    around(place, &file, &record)?;
    let mut left = place.source.len().saturating_mul(ELEMENTS_TIMES);
    for dataset in contents.items.iter().filter_map(|item| item.dataset.as_ref()) {
        // What is wrong with one is told where it is opened; its bytes are then nobody's.
        if dataset.claim(&file, &record, &mut left).is_err() {
            continue;
        }
    }
    let mut outline = Outline::new(Gaps::Free);
    if place.base > 0 {
        let block = read_vec(&*place.source, 0, place.base.min(place.source.len()))?;
        match block.iter().all(|&byte| byte == 0) {
            true => outline.padding(0, place.base, "empty user block"),
            false => outline.hidden(0, place.base, "a user block in front of the file"),
        }
    }
    let mut ranges = record.ranges();
    extend(&file, &mut ranges)?;
    let hidden = record.hidden();
    for range in ranges {
        let within = hidden.partition_point(|(address, _)| *address < range.address);
        let mut from = range.address;
        for &(address, len) in hidden[within..].iter().take_while(|(address, _)| *address < range.end) {
            outline.header(from.saturating_add(place.base), address.saturating_sub(from), range.what);
            outline.hidden(
                address.saturating_add(place.base),
                len,
                "a message that no reader of HDF5 looks at",
            );
            from = address.saturating_add(len);
        }
        outline.header(from.saturating_add(place.base), range.end.saturating_sub(from), range.what);
    }
    Ok(outline)
}

/// Structures that are read only as far as they are used end with a checksum over all of them: where
/// such a one is found before the next range begins, the bytes up to it are the structure's.
fn extend(file: &File, ranges: &mut [Range]) -> Result<()> {
    let mut left = MOST_HASHED;
    let end = file.place.source.len().saturating_sub(file.place.base);
    // Where the next structure begins; what has no mark may be a part of this one.
    let (mut next, mut nexts) = (end, Vec::with_capacity(ranges.len()));
    for range in ranges.iter().rev() {
        nexts.push(next);
        if range.marked || range.what != record::PLAIN {
            next = range.address;
        }
    }
    for (range, next) in ranges.iter_mut().zip(nexts.into_iter().rev()) {
        let most = next.min(range.address.saturating_add(LONGEST));
        if !range.marked || most <= range.end {
            continue;
        }
        let bytes = match file.peek(range.address, most - range.address) {
            Ok(bytes) => bytes,
            // Enough was read: what is left over is then nobody's.
            Err(error) if error.kind() == Kind::Limit => return Ok(()),
            Err(error) => return Err(error),
        };
        let known = weighbridge_io::source::to_usize(range.end - range.address)?.max(8);
        for len in known..=bytes.len() {
            let Some((body, sum)) = bytes.get(..len).and_then(<[u8]>::split_last_chunk::<4>) else { break };
            let Some(rest) = left.checked_sub(len as u64) else { return Ok(()) };
            left = rest;
            if jenkins_lookup3(body) == u32::from_le_bytes(*sum) {
                range.end = range.address + len as u64;
                break;
            }
        }
    }
    Ok(())
}

/// The superblock and what hangs on it besides the root group.
fn around(place: &Arc<Place>, file: &File, record: &Record) -> Result<()> {
    let block = &place.superblock;
    let width = u64::from(block.offset_size);
    let len = match block.version {
        0 => 24 + 4 * width + 2 * width + 24,
        1 => 28 + 4 * width + 2 * width + 24,
        _ => 12 + 4 * width + 4,
    };
    record.claim(0, len, "hdf5 superblock");
    let image = &place.image.place;
    record.claim(image.start, image.end - image.start, "hdf5 image of the cache");
    let defined = |address: u64| !Cursor::is_undefined_offset(address, block.offset_size);
    if let Some(address) = block.extension_address.filter(|&address| defined(address)) {
        // One that cannot be read is passed over by readers, too.
        let _ = Header::of_anything(file, address);
    }
    if block.version < 2 && defined(block.driver_info_address) {
        let head = file.bytes(block.driver_info_address, 16)?;
        let mut reader = place.reader(&head);
        reader.skip(4)?;
        let more = u64::from(reader.u32()?);
        record.claim(block.driver_info_address, 16u64.saturating_add(more), "hdf5 driver information");
    }
    Ok(())
}

impl Dataset {
    /// Claims the bytes of the elements, wherever they are. `left` is how many may be read in search of heaps.
    fn claim(&self, file: &File, record: &Record, left: &mut u64) -> Result<()> {
        let stored: &Stored = &self.stored;
        match &stored.layout {
            // In the header, which was read.
            Layout::Compact(..) => {}
            Layout::Contiguous(Some(address), _) => {
                let len = self.byte_len()?;
                stored.place.offset(*address, len)?;
                record.claim(*address, len, "hdf5 dataset");
            }
            // Its mappings were read, where it is virtual.
            Layout::Contiguous(None, _) | Layout::Virtual(_) => {}
            Layout::Chunked(chunked) => {
                for (address, len) in self.chunk_ranges(file, chunked)? {
                    record.claim(address, len, "hdf5 chunk");
                }
            }
        }
        if stored.element.class == Class::LongText { self.claim_heaps(file, left) } else { Ok(()) }
    }

    /// Reads the heads of all heaps that the elements point to.
    fn claim_heaps(&self, file: &File, left: &mut u64) -> Result<()> {
        let size = u64::from(self.stored.element.size);
        let entry = self.raw(TensorPath::value())?;
        // Those that were never written are all the same.
        let unwritten = matches!(self.stored.layout, Layout::Contiguous(None, _));
        let mut seen = HashSet::new();
        for piece in &entry.pieces {
            let step = AT_ONCE.saturating_mul(size);
            let (mut at, end) = (0, if unwritten { piece.len.min(size) } else { piece.len });
            while at < end {
                let take = step.min(end - at);
                let Some(rest) = left.checked_sub(take) else { return Ok(()) };
                *left = rest;
                let bytes = read_vec(&*piece.source, piece.offset + at, take)?;
                for element in bytes.chunks_exact(weighbridge_io::source::to_usize(size)?) {
                    let mut reader = file.place.reader(element);
                    let (len, address) = (reader.u32()?, reader.offset()?);
                    if len > 0 && address != u64::MAX && seen.insert(address) {
                        super::heap::collection(file, address)?;
                    }
                }
                at += take;
            }
        }
        Ok(())
    }
}
