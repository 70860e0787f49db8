//! Object headers and their messages (sections IV.A.1.a and IV.A.2), version 1.

use weighbridge_core::error::{Error, Result};

/// Message types.
const DATASPACE: u16 = 0x01;
const DATATYPE: u16 = 0x03;
const FILL_VALUE: u16 = 0x05;
const LAYOUT: u16 = 0x08;
const ATTRIBUTE: u16 = 0x0c;
const SYMBOL_TABLE: u16 = 0x11;

/// The flag of a message that never changes.
const CONSTANT: u8 = 1;
/// The longest message: its length has 16 bits and is a multiple of 8.
const LONGEST: usize = 0xfff8;
/// The most dimensions that HDF5 knows.
pub(super) const MOST_DIMENSIONS: usize = 32;
/// Where the elements of a dataset are that has none.
pub(super) const UNDEFINED: u64 = u64::MAX;

/// The messages of one object.
#[derive(Default)]
pub(super) struct Header {
    count: u16,
    bytes: Vec<u8>,
}

impl Header {
    /// The elements of a dataset: their type, extents, and place. Gives the offset, in the messages,
    /// of the address of the elements.
    pub(super) fn dataset(&mut self, datatype: &[u8], space: &Space, len: u64) -> Result<usize> {
        self.message(DATASPACE, 0, &dataspace(space))?;
        self.message(DATATYPE, CONSTANT, datatype)?;
        // Version 2: space is taken when elements are written, the fill value is written where one
        // is set, there is the default one, of no bytes.
        self.message(FILL_VALUE, CONSTANT, &[2, 2, 2, 1, 0, 0, 0, 0])?;
        // Version 3, contiguous: address and length.
        let mut layout = vec![3, 1];
        layout.extend(UNDEFINED.to_le_bytes());
        layout.extend(len.to_le_bytes());
        let place = self.bytes.len() + 8 + 2;
        self.message(LAYOUT, 0, &layout)?;
        Ok(place)
    }

    /// The members of a group: the addresses of its B-tree and of the heap of their names.
    pub(super) fn symbol_table(&mut self, btree: u64, heap: u64) -> Result<()> {
        let mut bytes = btree.to_le_bytes().to_vec();
        bytes.extend(heap.to_le_bytes());
        self.message(SYMBOL_TABLE, 0, &bytes)
    }

    /// An attribute. A name of ASCII makes a message of version 1, as h5py writes; another one needs
    /// version 3, which says that it is UTF-8.
    pub(super) fn attribute(
        &mut self,
        name: &str,
        datatype: &[u8],
        space: &Space,
        data: &[u8],
    ) -> Result<()> {
        let space = dataspace(space);
        let length = |part: usize| u16::try_from(part).map_err(|_| too_long(name, part));
        let plain = name.is_ascii();
        let mut bytes = vec![if plain { 1 } else { 3 }, 0];
        bytes.extend(length(name.len() + 1)?.to_le_bytes());
        bytes.extend(length(datatype.len())?.to_le_bytes());
        bytes.extend(length(space.len())?.to_le_bytes());
        if !plain {
            bytes.push(1);
        }
        for part in [&[name.as_bytes(), &[0]].concat(), datatype, &space] {
            bytes.extend(part);
            if plain {
                // The parts of version 1 are filled up to 8 bytes each, counted from the first.
                bytes.resize(bytes.len().next_multiple_of(8), 0);
            }
        }
        bytes.extend(data);
        if bytes.len() > LONGEST {
            return Err(too_long(name, bytes.len()));
        }
        self.message(ATTRIBUTE, 0, &bytes)
    }

    fn message(&mut self, kind: u16, flags: u8, content: &[u8]) -> Result<()> {
        let padded = content.len().next_multiple_of(8);
        let (Ok(len), Some(count)) = (u16::try_from(padded), self.count.checked_add(1)) else {
            return Err(Error::mismatch("hdf5-header", "an HDF5 object has at most 65,535 attributes"));
        };
        self.count = count;
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(len.to_le_bytes());
        self.bytes.extend([flags, 0, 0, 0]);
        self.bytes.extend(content);
        self.bytes.resize(self.bytes.len() + (padded - content.len()), 0);
        Ok(())
    }

    /// The whole header, and the length of what stands before the messages.
    pub(super) fn finish(self) -> Result<(Vec<u8>, usize)> {
        let len = u32::try_from(self.bytes.len()).map_err(|_| {
            Error::mismatch("hdf5-header", "the attributes of one HDF5 object take 4 GiB at most")
        })?;
        let mut bytes = vec![1, 0];
        bytes.extend(self.count.to_le_bytes());
        // One link leads here.
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        // The messages begin at a multiple of 8.
        bytes.extend([0; 4]);
        let prefix = bytes.len();
        bytes.extend(self.bytes);
        Ok((bytes, prefix))
    }
}

/// How many elements there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Space {
    /// None, and no extents either.
    Null,
    /// As many as the extents say; one where there are none.
    Extents(Vec<u64>),
}

/// A dataspace message (section IV.A.2.b), version 1: a scalar where there are no dimensions; else
/// the extents, and the same again as the largest that they may grow to. The null one has version 2.
fn dataspace(space: &Space) -> Vec<u8> {
    let Space::Extents(dims) = space else { return vec![2, 0, 0, 2] };
    let rank = u8::try_from(dims.len()).unwrap_or(u8::MAX);
    let mut bytes = vec![1, rank, u8::from(rank > 0), 0, 0, 0, 0, 0];
    for dim in dims.iter().chain(dims) {
        bytes.extend(dim.to_le_bytes());
    }
    bytes
}

fn too_long(name: &str, found: usize) -> Error {
    Error::mismatch(
        "hdf5-attribute-too-long",
        format!("the attribute {} does not fit into an HDF5 header", weighbridge_core::text::escape(name)),
    )
    .expected(format_args!("at most {LONGEST} bytes"))
    .found(format_args!("{found} bytes"))
    .hint("text has no such limit; numbers can stand in a dataset")
}
