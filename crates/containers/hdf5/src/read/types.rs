//! Datatype messages: types of elements.

use super::bytes::Reader;
use crate::Kind;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{DType, Endian};

/// Newest version of datatype messages.
const VERSION: u32 = 5;
/// Maximum length of the display text of a type, in characters: types may have many dimensions or long names.
const MAX_TEXT_LEN: usize = 240;
/// Maximum number of array dimensions in the display text.
const SHOWN_DIMS: usize = 8;

/// A type and the size of one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Type {
    pub(crate) class: Class,
    /// Size of one element in the file, in bytes.
    pub(crate) size: u32,
}

/// Class of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Class {
    Number(DType, Endian),
    /// Fixed-length text.
    Text(Padding),
    /// Variable-length text: the element is a reference into a heap.
    LongText,
    Opaque(String),
    /// Enumeration: the names, and the encoded values.
    Enum(DType, Endian, Vec<String>, Vec<u8>),
    /// Array of elements, with its dimensions.
    Array(Box<Type>, Vec<u32>),
    Other(String),
}

/// Padding of a fixed-length text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Padding {
    /// A zero byte; the bytes behind it are ignored.
    Terminated,
    Zeros,
    Spaces,
}

impl Padding {
    fn from_bits(bits: u32) -> Self {
        match bits & 15 {
            1 => Self::Zeros,
            2 => Self::Spaces,
            _ => Self::Terminated,
        }
    }

    /// Returns the text without its padding.
    pub(crate) fn trim(self, bytes: &[u8]) -> &[u8] {
        let ends_with = |last: u8| bytes.iter().rposition(|&b| b != last).map_or(0, |at| at + 1);
        let len = match self {
            Self::Terminated => memchr::memchr(0, bytes).unwrap_or(bytes.len()),
            Self::Zeros => ends_with(0),
            Self::Spaces => ends_with(b' '),
        };
        &bytes[..len]
    }
}

impl Type {
    /// Parses a datatype message.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        // Types contain no addresses, so the widths do not matter.
        parse(&mut Reader::new(bytes, 8, 8), 0)
    }

    /// Kind of a dataset with elements of this type.
    pub(super) fn kind(&self) -> Kind {
        match &self.class {
            Class::Number(dtype, endian) | Class::Enum(dtype, endian, ..) => Kind::Numbers(*dtype, *endian),
            Class::Text(_) | Class::LongText => Kind::Text,
            Class::Opaque(tag) => Kind::Opaque { size: u64::from(self.size), tag: tag.clone() },
            Class::Array(base, dims) => {
                let (few, more) = (dims.iter().take(SHOWN_DIMS).collect::<Vec<_>>(), dims.len() > SHOWN_DIMS);
                let more = if more { "…" } else { "" };
                Kind::Other(cut(format!("arrays {few:?}{more} of {}", base.words())))
            }
            Class::Other(words) => Kind::Other(words.clone()),
        }
    }

    /// Display text.
    pub(super) fn words(&self) -> String {
        match self.kind() {
            Kind::Numbers(dtype, _) => dtype.to_string(),
            Kind::Opaque { size, .. } => format!("opaque bytes, {size} each"),
            Kind::Text => "text".to_owned(),
            Kind::Other(words) => words,
        }
    }

    /// Heap memory of the type, in bytes.
    pub(super) fn held(&self) -> u64 {
        match &self.class {
            Class::Opaque(text) | Class::Other(text) => text.len() as u64,
            Class::Enum(_, _, names, values) => {
                names.iter().map(|name| name.len() + size_of::<String>()).sum::<usize>() as u64
                    + values.len() as u64
            }
            Class::Array(base, dims) => (size_of::<Self>() + size_of_val(&dims[..])) as u64 + base.held(),
            _ => 0,
        }
    }
}

/// Truncates a display text.
fn cut(mut words: String) -> String {
    if let Some((end, _)) = words.char_indices().nth(MAX_TEXT_LEN) {
        words.truncate(end);
        words.push('…');
        words.shrink_to_fit();
    }
    words
}

fn parse(reader: &mut Reader<'_>, depth: usize) -> Result<Type> {
    Budget::check_depth(depth)?;
    let word = reader.u32()?;
    let (version, flags) = (word >> 4 & 15, word >> 8);
    if !(1..=VERSION).contains(&version) {
        return Err(
            Error::corrupt("hdf5-corrupt", "HDF5: the datatype has an unsupported version").found(version)
        );
    }
    let size = reader.u32()?;
    if size == 0 {
        return Err(Error::corrupt("hdf5-corrupt", "HDF5: the datatype has an element size of 0"));
    }
    let class = match word & 15 {
        0 => integer(reader, flags, size)?,
        1 => float(reader, flags, size)?,
        2 => {
            reader.skip(2)?;
            Class::Other(format!("timestamps of {size} bytes"))
        }
        3 if (flags >> 4) & 15 > 1 => {
            let text = "HDF5: the text datatype has an unknown character set";
            return Err(Error::corrupt("hdf5-corrupt", text).found((flags >> 4) & 15));
        }
        3 => Class::Text(Padding::from_bits(flags)),
        4 => {
            reader.skip(4)?;
            Class::Other(format!("bit fields of {size} bytes"))
        }
        5 => {
            let tag = reader.take((flags & 0xff) as usize)?;
            Class::Opaque(String::from_utf8_lossy(Padding::Terminated.trim(tag)).into_owned())
        }
        6 => compound(reader, flags, size, version, depth)?,
        7 => Class::Other("references".to_owned()),
        8 => enumeration(reader, flags, size, version, depth)?,
        9 if flags & 15 == 1 && (flags >> 8) & 15 > 1 => {
            let text = "HDF5: the text datatype has an unknown character set";
            return Err(Error::corrupt("hdf5-corrupt", text).found((flags >> 8) & 15));
        }
        9 => {
            let base = parse(reader, depth + 1)?;
            match flags & 15 {
                1 if base.size == 1 => Class::LongText,
                1 => {
                    let text = "HDF5: the variable-length text datatype has characters wider than one byte";
                    return Err(Error::corrupt("hdf5-corrupt", text).found(base.size));
                }
                _ => Class::Other(cut(format!("lists of {}", base.words()))),
            }
        }
        10 => array(reader, version, depth)?,
        11 => {
            let base = parse(reader, depth + 1)?;
            complex(&base, size)
                .unwrap_or_else(|| Class::Other("complex numbers of an unknown form".to_owned()))
        }
        class => Class::Other(format!("elements of unknown class {class}")),
    };
    Ok(Type { class, size })
}

fn endian(flags: u32) -> Endian {
    if flags & 1 != 0 { Endian::Big } else { Endian::Little }
}

fn integer(reader: &mut Reader<'_>, flags: u32, size: u32) -> Result<Class> {
    let (offset, precision) = (reader.u16()?, reader.u16()?);
    if precision == 0 || u32::from(offset) + u32::from(precision) > size.saturating_mul(8) {
        return Err(Error::corrupt("hdf5-corrupt", "HDF5: the integer datatype has more bits than its size")
            .found(format_args!("{precision} bits from bit {offset} of {size} bytes")));
    }
    let signed = flags & 8 != 0;
    let dtype = match (size, signed) {
        (1, false) => Some(DType::U8),
        (1, true) => Some(DType::I8),
        (2, false) => Some(DType::U16),
        (2, true) => Some(DType::I16),
        (4, false) => Some(DType::U32),
        (4, true) => Some(DType::I32),
        (8, false) => Some(DType::U64),
        (8, true) => Some(DType::I64),
        _ => None,
    };
    let whole = offset == 0 && u32::from(precision) == size.saturating_mul(8);
    Ok(match dtype.filter(|_| whole) {
        Some(dtype) => Class::Number(dtype, if size == 1 { Endian::Little } else { endian(flags) }),
        None => Class::Other(format!("integers of {precision} bits from bit {offset} of {size} bytes")),
    })
}

fn float(reader: &mut Reader<'_>, flags: u32, size: u32) -> Result<Class> {
    let (offset, precision) = (reader.u16()?, reader.u16()?);
    let exponent = (reader.u8()?, reader.u8()?);
    let fraction = (reader.u8()?, reader.u8()?);
    let bias = reader.u32()?;
    // VAX byte order, a stored leading bit and other offsets are rare, and must not be read as IEEE floats.
    let is_ieee = flags & 0x40 == 0 && flags >> 4 & 3 == 2 && offset == 0;
    let whole =
        u32::from(precision) == size.saturating_mul(8) && (flags >> 8 & 0xff) + 1 == u32::from(precision);
    let dtype = match (size, exponent, fraction, bias) {
        (1, (3, 4), (0, 3), 7) => Some(DType::F8E4M3),
        (1, (2, 5), (0, 2), 15) => Some(DType::F8E5M2),
        (2, (10, 5), (0, 10), 15) => Some(DType::F16),
        (2, (7, 8), (0, 7), 127) => Some(DType::BF16),
        (4, (23, 8), (0, 23), 127) => Some(DType::F32),
        (8, (52, 11), (0, 52), 1023) => Some(DType::F64),
        _ => None,
    };
    Ok(match dtype.filter(|_| is_ieee && whole) {
        Some(dtype) => Class::Number(dtype, if size == 1 { Endian::Little } else { endian(flags) }),
        None => Class::Other(format!(
            "floats of {precision} bits in {size} bytes with {} exponent and {} fraction bits",
            exponent.1, fraction.1
        )),
    })
}

/// Complex numbers: two consecutive floats.
fn complex(base: &Type, size: u32) -> Option<Class> {
    let Class::Number(dtype, endian) = base.class else { return None };
    match (dtype, size) {
        (DType::F32, 8) => Some(Class::Number(DType::C64, endian)),
        (DType::F64, 16) => Some(Class::Number(DType::C128, endian)),
        _ => None,
    }
}

fn compound(reader: &mut Reader<'_>, flags: u32, size: u32, version: u32, depth: usize) -> Result<Class> {
    let count = flags & 0xffff;
    let mut fields: Vec<(String, u64, Type)> = Vec::new();
    for _ in 0..count {
        let name = String::from_utf8_lossy(padded_name(reader, version)?).into_owned();
        let offset = match version {
            1 | 2 => u64::from(reader.u32()?),
            // As many bytes as the size needs.
            _ => reader.number(4 - (size.leading_zeros() / 8) as usize)?,
        };
        if version == 1 {
            // Array members before array types existed: rank, permutation, four dimensions.
            let rank = reader.u8()?;
            reader.skip(27)?;
            if rank != 0 {
                return Ok(Class::Other(format!("records of {count} fields with array members")));
            }
        }
        fields.push((name, offset, parse(reader, depth + 1)?));
    }
    if let [(real, 0, base), (imaginary, at, other)] = fields.as_slice()
        && base == other
        && *at == u64::from(base.size)
        && matches!((real.as_str(), imaginary.as_str()), ("r", "i") | ("real", "imag") | ("re", "im"))
        && let Some(class) = complex(base, size)
    {
        return Ok(class);
    }
    let names: Vec<&str> = fields.iter().take(8).map(|(name, ..)| name.as_str()).collect();
    let more = if fields.len() > names.len() { ", …" } else { "" };
    Ok(Class::Other(cut(format!("records of {count} fields ({}{more})", names.join(", ")))))
}

fn enumeration(reader: &mut Reader<'_>, flags: u32, size: u32, version: u32, depth: usize) -> Result<Class> {
    let base = parse(reader, depth + 1)?;
    // The enumeration must have the size of its integers; else values would be misread.
    if base.size != size {
        return Err(Error::corrupt(
            "hdf5-corrupt",
            "HDF5: the enumeration does not have the size of its integers",
        )
        .expected(format_args!("{} bytes", base.size))
        .found(format_args!("{size} bytes")));
    }
    let count = (flags & 0xffff) as usize;
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(padded_name(reader, version)?);
    }
    let values = reader.take(count.saturating_mul(base.size as usize))?;
    Ok(match base.class {
        Class::Number(DType::I8 | DType::U8, endian)
            if (names == [b"FALSE".as_slice(), b"TRUE"] && values == [0, 1])
                || (names == [b"TRUE".as_slice(), b"FALSE"] && values == [1, 0]) =>
        {
            Class::Number(DType::Bool, endian)
        }
        Class::Number(dtype, endian) => {
            let names = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
            Class::Enum(dtype, endian, names, values.to_vec())
        }
        _ => Class::Other(cut(format!("an enumeration over {}", base.words()))),
    })
}

fn array(reader: &mut Reader<'_>, version: u32, depth: usize) -> Result<Class> {
    let rank = reader.u8()?;
    if version < 3 {
        reader.skip(3)?;
    }
    let dims = (0..rank).map(|_| reader.u32()).collect::<Result<Vec<_>>>()?;
    if version < 3 {
        reader.skip(4 * usize::from(rank))?;
    }
    Ok(Class::Array(Box::new(parse(reader, depth + 1)?), dims))
}

/// Reads a NUL-terminated name; before version 3 it is padded to a multiple of 8 bytes.
fn padded_name<'a>(reader: &mut Reader<'a>, version: u32) -> Result<&'a [u8]> {
    let start = reader.at();
    let name = reader.text()?;
    if version < 3 {
        let used = reader.at() - start;
        reader.skip(used.next_multiple_of(8) - used)?;
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An enumeration FALSE, TRUE over a signed byte, with a stated element size of `size` bytes.
    fn truth(size: u8) -> Vec<u8> {
        let mut bytes = vec![0x18, 2, 0, 0, size, 0, 0, 0];
        bytes.extend([0x10, 8, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0]);
        bytes.extend(b"FALSE\0\0\0TRUE\0\0\0\0");
        bytes.extend([0, 1]);
        bytes
    }

    #[test]
    fn rejects_enumerations_of_another_size_than_their_integers() {
        let whole = Type::parse(&truth(1)).unwrap();
        assert_eq!(whole, Type { class: Class::Number(DType::Bool, Endian::Little), size: 1 });
        for size in [2, 4, 255] {
            assert_eq!(Type::parse(&truth(size)).unwrap_err().code().as_str(), "hdf5-corrupt");
        }
    }
}
