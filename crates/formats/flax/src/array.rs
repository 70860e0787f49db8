//! Arrays inside extensions: shape, dtype and bytes.

use crate::dtypes;
use weighbridge_core::checkpoint::escape_text;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Shape};
use weighbridge_core::text::counted;
use weighbridge_msgpack::{ARRAY, Item, Reader, STR, marker_name};

/// Maximum bytes of the name of a dtype: numpy has none that is longer.
const MAX_NAME: u32 = 64;

/// Array whose elements are at an offset of the file.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Result of reading an array.
pub(crate) enum Read {
    /// Array.
    Array(Array),
    /// Well-formed array of a dtype outside Weighbridge, with its name.
    OtherDType(String),
}

/// Reads the `len` bytes of an array, without its elements.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], with the offset; [`weighbridge_core::Kind::Limit`] for too many dimensions.
pub(crate) fn read(reader: &mut Reader, len: u32, limits: &Limits) -> Result<Read> {
    let begin = reader.position();
    reader.cursor.need(len.into(), "an array")?;
    let end = begin + u64::from(len);
    let parts =
        reader.length(ARRAY, "an array")?.map_err(|marker| wrong(begin, "an array of 3 items", marker))?;
    if parts != 3 {
        return Err(malformed(begin).expected("3 items: shape, dtype and bytes").found(parts));
    }
    let shape = shape(reader, limits)?;
    let at = reader.position();
    let name_len =
        reader.length(STR, "the dtype of an array")?.map_err(|marker| wrong(at, "a string", marker))?;
    if name_len > MAX_NAME {
        return Err(malformed(at)
            .expected(format_args!("a name of at most {MAX_NAME} bytes"))
            .found(name_len));
    }
    let name = reader.cursor.bytes(name_len.into(), "the dtype of an array")?;
    let name = String::from_utf8_lossy(&name).into_owned();
    let at = reader.position();
    // Files of old versions have a string here.
    let data = match reader.item("the elements of an array")? {
        Item::Bin(data) | Item::Str(data) => u64::from(data),
        other => return Err(malformed(at).expected("bytes").found(format_args!("{other:?}"))),
    };
    let offset = reader.position();
    if offset.checked_add(data) != Some(end) {
        return Err(Error::corrupt(
            "length-mismatch",
            "the length of the array does not match its extension",
        )
        .at(at)
        .expected(format_args!("{} of elements", counted(end.saturating_sub(offset), "byte", "bytes")))
        .found(counted(data, "byte", "bytes")));
    }
    reader.cursor.skip(data, "the elements of an array")?;
    let Some(dtype) = dtypes::of_name(&name) else { return Ok(Read::OtherDType(escape_text(&name))) };
    if shape.bytes(dtype) != Some(data) {
        let expected = match shape.bytes(dtype) {
            Some(bytes) => format!("{} for {dtype} {shape}", counted(bytes, "byte", "bytes")),
            None => format!("fewer than 2^64 elements in {shape}"),
        };
        return Err(Error::corrupt(
            "length-mismatch",
            "the length of the elements does not match dtype and shape",
        )
        .at(at)
        .expected(expected)
        .found(counted(data, "byte", "bytes")));
    }
    Ok(Read::Array(Array { dtype, shape, offset, len: data }))
}

fn shape(reader: &mut Reader, limits: &Limits) -> Result<Shape> {
    let what = "the shape of an array";
    let at = reader.position();
    let rank = reader.length(ARRAY, what)?.map_err(|marker| wrong(at, "an array of dimensions", marker))?;
    reader.cursor.need(rank.into(), what)?;
    Limits::check("dimensions", "dimensions", rank.into(), limits.dimensions).map_err(|e| e.at(at))?;
    let mut dims = Vec::new();
    for _ in 0..rank {
        let at = reader.position();
        match reader.item(what)? {
            Item::Uint(dim) => dims.push(dim),
            other => {
                return Err(malformed(at)
                    .expected("a dimension of at least 0")
                    .found(format_args!("{other:?}")));
            }
        }
    }
    Ok(Shape::new(dims))
}

fn malformed(at: u64) -> Error {
    Error::corrupt("flax-array", "an array is not encoded as Flax encodes it").at(at)
}

fn wrong(at: u64, expected: &str, marker: u8) -> Error {
    malformed(at).expected(expected).found(format_args!("{} ({marker:02x})", marker_name(marker)))
}
