//! Heaps of long values: texts of variable length are kept there.

use super::file::File;
use super::sums;
use bytes::Bytes;
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
}

struct Heap {
    bytes: Bytes,
    objects: HashMap<u32, Range<usize>>,
}

impl Heaps {
    /// The text that an element of variable length points to: a length, an address, an index. Many
    /// elements may point to one long text, and all of it may be padding.
    pub(super) fn value(&mut self, file: &File, element: &[u8]) -> Result<Bytes> {
        let mut reader = file.reader(element);
        let (len, address, index) = (u64::from(reader.u32()?), reader.offset()?, reader.u32()?);
        if address == u64::MAX || len == 0 || (address == 0 && index == 0) {
            return Ok(Bytes::new());
        }
        let object = self.find(file, address, index)?;
        let own = usize::try_from(len).unwrap_or(usize::MAX);
        let Some(object) = object.filter(|bytes| bytes.len() >= own) else {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: a value of variable length is not in its heap",
            )
            .at(address)
            .found(format_args!("object {index}, {len} bytes")));
        };
        Ok(object.slice(..own))
    }

    /// The bytes of an object of the heap at `address`; `None` where there is none of that number.
    pub(super) fn find(&mut self, file: &File, address: u64, index: u32) -> Result<Option<Bytes>> {
        if !self.kept.contains_key(&address) {
            let heap = Heap::read(file, address)?;
            if self.bytes + heap.bytes.len() > KEPT {
                self.kept.clear();
                self.bytes = 0;
            }
            self.bytes += heap.bytes.len();
            self.kept.insert(address, heap);
        }
        Ok(self.kept.get(&address).and_then(|heap| {
            let range = heap.objects.get(&index)?.clone();
            Some(heap.bytes.slice(range))
        }))
    }
}

/// The bytes of the heap at `address`, and how many of them are its head.
pub(super) fn collection(file: &File, address: u64) -> Result<(Bytes, usize)> {
    let head = file.bytes(address, 8 + file.widths().1)?;
    let mut reader = file.reader(&head);
    if reader.take(4)? != b"GCOL" || reader.u8()? != 1 {
        return Err(sums::lost("a heap of values", address));
    }
    reader.skip(3)?;
    let len = reader.length()?;
    if len < SHORTEST {
        return Err(Error::corrupt("hdf5-corrupt", "HDF5: a heap of values is too short")
            .at(address)
            .expected(format_args!("at least {SHORTEST} bytes"))
            .found(format_args!("{len} bytes")));
    }
    Ok((file.bytes(address, len)?, head.len()))
}

impl Heap {
    fn read(file: &File, address: u64) -> Result<Self> {
        let (bytes, head) = collection(file, address)?;
        let mut reader = file.reader(&bytes);
        let mut objects = HashMap::new();
        reader.skip(head)?;
        // The last object, of index 0, is the room that is left.
        while reader.left() >= 8 + usize::from(file.place.superblock.length_size) {
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
