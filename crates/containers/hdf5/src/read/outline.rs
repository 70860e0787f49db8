//! Outline of a file: the use of every byte that is not an element of a tensor.
//!
//! The file is listed again, and every read is recorded: these ranges are the structures from the
//! superblock to every object. The byte ranges of all datasets, and the heaps of their texts, are added.

use super::file::{File, FileContext};
use super::header::Header;
use super::layout::Layout;
use super::open::find;
use super::record::Record;
use super::stored::Stored;
use super::superblock::Superblock;
use super::types::Class;
use super::walk::listed;
use crate::{Contents, Dataset};
use std::collections::HashSet;
use std::sync::Arc;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::TensorPath;
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec, to_usize};

/// Number of elements read at once in search of heaps.
const ELEMENTS_PER_READ: u64 = 64 << 10;

/// True where `source` is an HDF5 file, possibly behind a user block.
pub fn is_hdf5(source: &SourceRef) -> bool {
    Superblock::find(source).is_ok()
}

/// Returns the ranges of an HDF5 file that are structures or datasets.
/// Unreferenced zeros are free space; other unreferenced bytes are unexplained.
///
/// # Errors
/// As [`super::read`].
pub fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let place = find(source, limits, None)?;
    outline_of(&place).map_err(|error| error.in_file(source.label()))
}

fn outline_of(place: &Arc<FileContext>) -> Result<Outline> {
    let record = Arc::new(Record::default());
    let file = place.open_recorded(&record);
    let contents: Contents = listed(place, place.open_recorded(&record))?;
    around(place, &file, &record)?;
    for dataset in contents.items.iter().filter_map(|item| item.dataset.as_ref()) {
        // A damaged dataset is reported where it is opened; its bytes stay unexplained.
        if dataset.claim(&file, &record).is_err() {
            continue;
        }
    }
    let mut outline = Outline::new(Gaps::Free);
    if place.superblock.at > 0 {
        let block = read_vec(&*place.source, 0, place.superblock.at.min(place.source.len()))?;
        match block.iter().all(|&byte| byte == 0) {
            true => outline.padding(0, place.superblock.at, "empty user block"),
            false => outline.hidden(0, place.superblock.at, "user block in front of the superblock"),
        }
    }
    let hidden = record.hidden();
    for range in record.ranges() {
        let within = hidden.partition_point(|(address, _)| *address < range.address);
        let mut from = range.address;
        for &(address, len) in hidden[within..].iter().take_while(|(address, _)| *address < range.end) {
            outline.header(
                from.saturating_add(place.superblock.at),
                address.saturating_sub(from),
                range.what,
            );
            outline.hidden(
                address.saturating_add(place.superblock.at),
                len,
                "message that HDF5 readers ignore",
            );
            from = address.saturating_add(len);
        }
        outline.header(from.saturating_add(place.superblock.at), range.end.saturating_sub(from), range.what);
    }
    Ok(outline)
}

/// Claims the superblock, its extension, the cache image and the driver information.
fn around(place: &Arc<FileContext>, file: &File, record: &Record) -> Result<()> {
    let block = &place.superblock;
    let width = u64::from(block.offset_size);
    let len = match block.version {
        0 => 24 + 4 * width + 2 * width + 24,
        1 => 28 + 4 * width + 2 * width + 24,
        _ => 12 + 4 * width + 4,
    };
    record.claim(0, len, "hdf5 superblock");
    let image = &place.image.place;
    record.claim(image.start, image.end - image.start, "hdf5 cache image");
    if block.extension != u64::MAX {
        // Readers ignore an unreadable extension, too.
        let _ = Header::of_anything(file, block.extension);
    }
    if block.driver != u64::MAX {
        let head = file.bytes(block.driver, 16)?;
        let mut reader = file.reader(&head);
        reader.skip(4)?;
        let more = u64::from(reader.u32()?);
        record.claim(block.driver, 16u64.saturating_add(more), "hdf5 driver information");
    }
    Ok(())
}

impl Dataset {
    /// Claims the bytes of the elements.
    fn claim(&self, file: &File, record: &Record) -> Result<()> {
        let stored: &Stored = &self.stored;
        match &stored.layout {
            // Part of the header, which is recorded.
            Layout::Compact(..) => {}
            Layout::Contiguous(Some(address), _) => {
                let len = self.byte_len()?;
                stored.context.offset(*address, len)?;
                record.claim(*address, len, "hdf5 dataset");
            }
            // The mappings of a virtual dataset are recorded already.
            Layout::Contiguous(None, _) | Layout::Virtual(_) => {}
            Layout::Chunked(chunked) => {
                for (address, len) in self.chunk_ranges(file, chunked)? {
                    record.claim(address, len, "hdf5 chunk");
                }
            }
        }
        if stored.element.class == Class::LongText { self.claim_heaps(file) } else { Ok(()) }
    }

    /// Reads all global heaps that the elements refer to.
    fn claim_heaps(&self, file: &File) -> Result<()> {
        let size = u64::from(self.stored.element.size);
        let entry = self.raw(TensorPath::value())?;
        // Unwritten elements are all equal.
        let unwritten = matches!(self.stored.layout, Layout::Contiguous(None, _));
        let mut seen = HashSet::new();
        for extent in &entry.extents {
            let step = ELEMENTS_PER_READ.saturating_mul(size);
            let (mut at, end) = (0, if unwritten { extent.len.min(size) } else { extent.len });
            while at < end {
                let take = step.min(end - at);
                // Budgeted: datasets may share bytes, or be unwritten.
                file.context.budget.take_work(take)?;
                let bytes = read_vec(&*extent.source, extent.offset + at, take)?;
                for element in bytes.chunks_exact(to_usize(size)?) {
                    let mut reader = file.reader(element);
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
