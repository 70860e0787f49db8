//! Datatype messages (section IV.A.2.d of the HDF5 File Format Specification), version 1, as h5py
//! writes them.

use weighbridge_core::tensor::DType;

/// Class and version byte of a datatype, version 1.
const fn class(number: u8) -> u8 {
    0x10 | number
}

/// An integer of `size` bytes, little-endian.
pub(super) fn integer(size: u8, signed: bool) -> Vec<u8> {
    let flags = if signed { 0x08 } else { 0 };
    let mut bytes = vec![class(0), flags, 0, 0];
    bytes.extend(u32::from(size).to_le_bytes());
    // Bit offset, then precision.
    bytes.extend(0u16.to_le_bytes());
    bytes.extend((u16::from(size) * 8).to_le_bytes());
    bytes
}

/// A float of `size` bytes, little-endian: sign, exponent, fraction from the highest bit down, with
/// a leading 1 that is not stored.
pub(super) fn float(size: u8, exponent: u8, fraction: u8, bias: u32) -> Vec<u8> {
    let bits = size * 8;
    let mut bytes = vec![class(1), 0x20, bits - 1, 0];
    bytes.extend(u32::from(size).to_le_bytes());
    bytes.extend(0u16.to_le_bytes());
    bytes.extend(u16::from(bits).to_le_bytes());
    // Position and size of the exponent, position and size of the fraction.
    bytes.extend([fraction, exponent, 0, fraction]);
    bytes.extend(bias.to_le_bytes());
    bytes
}

/// Booleans as h5py stores them: an enumeration FALSE, TRUE over a signed byte.
pub(super) fn boolean() -> Vec<u8> {
    let mut bytes = vec![class(8), 2, 0, 0];
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(integer(1, true));
    bytes.extend(b"FALSE\0\0\0TRUE\0\0\0\0");
    bytes.extend([0, 1]);
    bytes
}

/// Complex numbers as h5py stores them: a compound of the floats `r` and `i`.
fn complex(part: &[u8], size: u8) -> Vec<u8> {
    let mut bytes = vec![class(6), 2, 0, 0];
    bytes.extend((u32::from(size) * 2).to_le_bytes());
    for (name, offset) in [(b'r', 0), (b'i', u32::from(size))] {
        bytes.extend([name, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(offset.to_le_bytes());
        // No dimensions: the rank, three reserved bytes, the permutation, four reserved bytes,
        // four sizes.
        bytes.extend([0; 28]);
        bytes.extend(part);
    }
    bytes
}

/// `size` uninterpreted bytes, with an empty tag.
pub(super) fn opaque(size: u32) -> Vec<u8> {
    let mut bytes = vec![class(5), 0, 0, 0];
    bytes.extend(size.to_le_bytes());
    bytes
}

/// UTF-8 text of variable length; an element is a reference into a global heap.
pub(super) fn text() -> Vec<u8> {
    // A string, NUL-terminated in memory, UTF-8.
    let mut bytes = vec![class(9), 0x01, 0x01, 0];
    bytes.extend(16u32.to_le_bytes());
    bytes.extend(integer(1, false));
    bytes
}

/// Datatype message of elements of `dtype`; `None` where HDF5 has no exact equivalent.
pub(super) fn of(dtype: DType) -> Option<Vec<u8>> {
    Some(match dtype {
        DType::Bool => boolean(),
        DType::U8 => integer(1, false),
        DType::I8 => integer(1, true),
        DType::U16 => integer(2, false),
        DType::I16 => integer(2, true),
        DType::U32 => integer(4, false),
        DType::I32 => integer(4, true),
        DType::U64 => integer(8, false),
        DType::I64 => integer(8, true),
        DType::F16 => float(2, 5, 10, 15),
        DType::BF16 => float(2, 8, 7, 127),
        DType::F32 => float(4, 8, 23, 127),
        DType::F64 => float(8, 11, 52, 1023),
        DType::C64 => complex(&float(4, 8, 23, 127), 4),
        DType::C128 => complex(&float(8, 11, 52, 1023), 8),
        // A float datatype cannot describe a type without infinities, or with other NaNs: libhdf5 would
        // misread the elements. Of the 8-bit floats only e5m2 is described exactly.
        DType::F8E5M2 => float(1, 5, 2, 15),
        _ => return None,
    })
}
