//! Global heaps: values of variable length, such as texts.

use super::file::File;
use super::sums;
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Range;
use weighbridge_core::error::{Error, Result};

/// Maximum length of cached heaps, in bytes.
const MAX_CACHED_LEN: usize = 4 << 20;

/// Minimum length of a heap, as the HDF5 library writes and reads it.
const MIN_HEAP_LEN: u64 = 4096;

/// Cache of heaps, so that a heap is not read again for each of its values.
#[derive(Default)]
pub(super) struct Heaps {
    cached: HashMap<u64, Heap>,
    bytes: usize,
}

struct Heap {
    bytes: Bytes,
    objects: HashMap<u32, Range<usize>>,
}

impl Heaps {
    /// Returns the value that a variable-length element refers to (length, address, index). Many
    /// elements may refer to one long value, and all of it may be padding.
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
                "HDF5: the global heap does not contain a variable-length value",
            )
            .at(address)
            .found(format_args!("object {index}, {len} bytes")));
        };
        Ok(object.slice(..own))
    }

    /// Returns the bytes of the object `index` of the heap at `address`; `None` where it does not exist.
    pub(super) fn find(&mut self, file: &File, address: u64, index: u32) -> Result<Option<Bytes>> {
        if !self.cached.contains_key(&address) {
            let heap = Heap::read(file, address)?;
            if self.bytes + heap.bytes.len() > MAX_CACHED_LEN {
                self.cached.clear();
                self.bytes = 0;
            }
            self.bytes += heap.bytes.len();
            self.cached.insert(address, heap);
        }
        Ok(self.cached.get(&address).and_then(|heap| {
            let range = heap.objects.get(&index)?.clone();
            Some(heap.bytes.slice(range))
        }))
    }
}

/// Reads the heap at `address`. Returns its bytes, and the length of its header.
pub(super) fn collection(file: &File, address: u64) -> Result<(Bytes, usize)> {
    let head = file.bytes(address, 8 + file.widths().1)?;
    let mut reader = file.reader(&head);
    if reader.take(4)? != b"GCOL" || reader.u8()? != 1 {
        return Err(sums::lost("global heap", address));
    }
    reader.skip(3)?;
    let len = reader.length()?;
    if len < MIN_HEAP_LEN {
        return Err(Error::corrupt("hdf5-corrupt", "HDF5: the global heap is too short")
            .at(address)
            .expected(format_args!("at least {MIN_HEAP_LEN} bytes"))
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
        // The last object, of index 0, is the free space.
        while reader.left() >= 8 + usize::from(file.context.superblock.length_size) {
            let index = u32::from(reader.u16()?);
            reader.skip(6)?;
            let len = usize::try_from(reader.length()?).unwrap_or(usize::MAX);
            if index == 0 {
                // Its length includes its header: it must end with the heap.
                if len != reader.left() + head {
                    let text = "HDF5: the free space of the global heap does not end with the heap";
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
