//! Heaps of long values: texts of variable length are kept there.

use super::attributes::spend;
use super::file::File;
use hdf5_reader::StorageBuffer;
use std::collections::HashMap;
use std::ops::Range;
use weighbridge_core::error::{Error, Result};

/// Bytes of heaps that are kept while values are read.
const KEPT: usize = 4 << 20;

/// The shortest heap that the original makes and reads.
const SHORTEST: u64 = 4096;

/// Heaps that were read, so that the values of one are not read again for each.
#[derive(Default)]
pub(super) struct Heaps {
    kept: HashMap<u64, Heap>,
    bytes: usize,
    /// The longest that is read; none where there is no bound but that of the file.
    longest: Option<u64>,
}

struct Heap {
    bytes: StorageBuffer,
    objects: HashMap<u32, Range<usize>>,
}

impl Heaps {
    /// Heaps of so many bytes at most.
    pub(super) fn up_to(longest: u64) -> Self {
        Self { longest: Some(longest), ..Self::default() }
    }

    /// The text that an element of variable length points to: a length, an address, an index. Its bytes are taken
    /// from `room` before they are copied: many elements may point to one long text, and all of it may be padding.
    pub(super) fn value(&mut self, file: &File, element: &[u8], room: &mut u64) -> Result<Vec<u8>> {
        let mut reader = file.place.reader(element);
        let (len, address, index) = (u64::from(reader.u32()?), reader.offset()?, reader.u32()?);
        if address == u64::MAX || len == 0 || (address == 0 && index == 0) {
            return Ok(Vec::new());
        }
        let object = self.find(file, address, index)?;
        let own = usize::try_from(len).unwrap_or(usize::MAX);
        let Some(text) = object.and_then(|bytes| bytes.get(..own)) else {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: a value of variable length is not in its heap",
            )
            .at(address)
            .found(format_args!("object {index}, {len} bytes")));
        };
        spend(room, len)?;
        Ok(text.to_vec())
    }

    /// The bytes of an object of the heap at `address`; `None` where there is none of that number.
    pub(super) fn find(&mut self, file: &File, address: u64, index: u32) -> Result<Option<&[u8]>> {
        if !self.kept.contains_key(&address) {
            let heap = Heap::read(file, address, self.longest)?;
            if self.bytes + heap.bytes.len() > KEPT {
                self.kept.clear();
                self.bytes = 0;
            }
            self.bytes += heap.bytes.len();
            self.kept.insert(address, heap);
        }
        Ok(self.kept.get(&address).and_then(|heap| {
            let range = heap.objects.get(&index)?.clone();
            heap.bytes.get(range)
        }))
    }
}

/// The bytes of the heap at `address`, and how many of them are its head.
pub(super) fn collection(file: &File, address: u64) -> Result<(StorageBuffer, usize)> {
    collection_up_to(file, address, None)
}

fn collection_up_to(file: &File, address: u64, longest: Option<u64>) -> Result<(StorageBuffer, usize)> {
    let head = file.bytes(address, 8 + u64::from(file.length_size()))?;
    let mut reader = file.place.reader(&head);
    if reader.take(4)? != b"GCOL" || reader.u8()? != 1 {
        return Err(Error::corrupt("hdf5-corrupt", "HDF5: a heap of values has lost its mark").at(address));
    }
    reader.skip(3)?;
    let len = reader.length()?;
    if let Some(longest) = longest.filter(|&longest| len > longest) {
        return Err(Error::limit("hdf5-heap", "HDF5: a heap of values is longer than is read at once")
            .at(address)
            .expected(format_args!("at most {longest} bytes"))
            .found(format_args!("{len} bytes")));
    }
    if len < SHORTEST {
        return Err(Error::corrupt("hdf5-corrupt", "HDF5: a heap of values is too short")
            .at(address)
            .expected(format_args!("at least {SHORTEST} bytes"))
            .found(format_args!("{len} bytes")));
    }
    Ok((file.bytes(address, len)?, head.len()))
}

impl Heap {
    fn read(file: &File, address: u64, longest: Option<u64>) -> Result<Self> {
        let (bytes, head) = collection_up_to(file, address, longest)?;
        let mut reader = file.place.reader(&bytes);
        let mut objects = HashMap::new();
        reader.skip(head)?;
        // The last object, of index 0, is the room that is left.
        while reader.left() >= 8 + usize::from(file.length_size()) {
            let index = u32::from(reader.u16()?);
            reader.skip(6)?;
            let len = usize::try_from(reader.length()?).unwrap_or(usize::MAX);
            if index == 0 {
                // With the head of it: all that is left.
                if len != reader.left() + head {
                    let text = "HDF5: the room that is left in a heap of values does not end with the heap";
                    return Err(Error::corrupt("hdf5-corrupt", text).at(address).found(len));
                }
                break;
            }
            let start = reader.at();
            reader.take(len)?;
            objects.insert(index, start..start + len);
            reader.skip(len.next_multiple_of(8) - len)?;
        }
        Ok(Self { bytes, objects })
    }
}
