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
/// Maximum length of a message: its length field has 16 bits and is a multiple of 8.
const MAX_MESSAGE_LEN: usize = 0xfff8;
/// Maximum number of dimensions in HDF5.
pub(super) const MAX_DIMENSIONS: usize = 32;
/// The undefined address: that of the elements of an empty dataset.
pub(super) const UNDEFINED: u64 = u64::MAX;

/// Messages of one object.
#[derive(Default)]
pub(super) struct Header {
    count: u16,
    bytes: Vec<u8>,
}

impl Header {
    /// Adds the messages of a dataset: datatype, dataspace, fill value, layout. Returns the offset, within the
    /// messages, of the address of the elements.
    pub(super) fn dataset(&mut self, datatype: &[u8], space: &Space, len: u64) -> Result<usize> {
        self.message(DATASPACE, 0, &dataspace(space))?;
        self.message(DATATYPE, CONSTANT, datatype)?;
        // Version 2: late allocation, fill value written if set, a default fill value of no bytes.
        self.message(FILL_VALUE, CONSTANT, &[2, 2, 2, 1, 0, 0, 0, 0])?;
        // Version 3, contiguous: address and length.
        let mut layout = vec![3, 1];
        layout.extend(UNDEFINED.to_le_bytes());
        layout.extend(len.to_le_bytes());
        let place = self.bytes.len() + 8 + 2;
        self.message(LAYOUT, 0, &layout)?;
        Ok(place)
    }

    /// Adds the symbol table message of a group: the addresses of its B-tree and of its local heap.
    pub(super) fn symbol_table(&mut self, btree: u64, heap: u64) -> Result<()> {
        let mut bytes = btree.to_le_bytes().to_vec();
        bytes.extend(heap.to_le_bytes());
        self.message(SYMBOL_TABLE, 0, &bytes)
    }

    /// Adds an attribute. An ASCII name makes a message of version 1, as h5py writes; any other name needs
    /// version 3, which marks it as UTF-8.
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
                // In version 1 every part is padded to a multiple of 8 bytes.
                bytes.resize(bytes.len().next_multiple_of(8), 0);
            }
        }
        bytes.extend(data);
        if bytes.len() > MAX_MESSAGE_LEN {
            return Err(too_long(name, bytes.len()));
        }
        self.message(ATTRIBUTE, 0, &bytes)
    }

    fn message(&mut self, kind: u16, flags: u8, content: &[u8]) -> Result<()> {
        let padded = content.len().next_multiple_of(8);
        let (Ok(len), Some(count)) = (u16::try_from(padded), self.count.checked_add(1)) else {
            return Err(Error::mismatch("hdf5-header", "the HDF5 object has more than 65,535 attributes"));
        };
        self.count = count;
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(len.to_le_bytes());
        self.bytes.extend([flags, 0, 0, 0]);
        self.bytes.extend(content);
        self.bytes.resize(self.bytes.len() + (padded - content.len()), 0);
        Ok(())
    }

    /// Returns the header, and the length of the prefix before the messages.
    pub(super) fn finish(self) -> Result<(Vec<u8>, usize)> {
        let len = u32::try_from(self.bytes.len())
            .map_err(|_| Error::mismatch("hdf5-header", "the attributes of the HDF5 object exceed 4 GiB"))?;
        let mut bytes = vec![1, 0];
        bytes.extend(self.count.to_le_bytes());
        // Reference count: one link.
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        // The messages begin at a multiple of 8.
        bytes.extend([0; 4]);
        let prefix = bytes.len();
        bytes.extend(self.bytes);
        Ok((bytes, prefix))
    }
}

/// Dataspace of a dataset or attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Space {
    /// Neither elements nor dimensions.
    Null,
    /// Dimensions; none for a scalar.
    Simple(Vec<u64>),
}

/// Encodes a dataspace message (section IV.A.2.b), version 1: a scalar where there are no dimensions; else
/// the dimensions, and the same values again as the maximum dimensions. The null dataspace has version 2.
fn dataspace(space: &Space) -> Vec<u8> {
    let Space::Simple(dims) = space else { return vec![2, 0, 0, 2] };
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
        format!(
            "the attribute {} is too long for an HDF5 object header",
            weighbridge_core::text::escape(name)
        ),
    )
    .expected(format_args!("at most {MAX_MESSAGE_LEN} bytes"))
    .found(format_args!("{found} bytes"))
    .hint("store the numbers as a tensor; texts have no such limit")
}
