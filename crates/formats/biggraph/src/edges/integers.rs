//! Numeric columns as 64-bit integers, whatever their dtype.

use std::ops::Range;
use std::sync::Arc;
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{DType, Element, Encoding, Order, Region, Shape};
use weighbridge_io::source::{Source, SourceRef, check_range, to_usize};

/// Reads the elements `range` of a column as integers: floats are truncated, values out of range
/// become the largest or smallest integer, and NaN the smallest, as libhdf5 converts them for
/// upstream.
///
/// # Errors
/// [`weighbridge_core::Kind::Unsupported`], code `not-numbers`, for complex numbers and elements below one byte;
/// and the errors of the sources.
pub(crate) fn read(entry: &TensorEntry, range: Range<u64>) -> Result<Vec<i64>> {
    let region = Region { start: vec![range.start], shape: vec![range.end.saturating_sub(range.start)] };
    let bytes = entry.read_region(&region, Order::Row)?;
    if entry.dtype() == DType::I64 {
        return Ok(bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect());
    }
    let size = entry.dtype().size().unwrap_or(1);
    let number = |index| DType::element_at(entry.dtype(), &bytes, index).and_then(integer);
    (0..bytes.len() / size).map(|index| number(index).ok_or_else(|| not_numbers(entry))).collect()
}

fn integer(element: Element) -> Option<i64> {
    match element {
        Element::Bool(b) => Some(i64::from(b)),
        Element::Int(n) => Some(i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })),
        Element::Float(x) if x.is_nan() => Some(i64::MIN),
        // The cast truncates towards zero and saturates.
        #[allow(clippy::cast_possible_truncation)]
        Element::Float(x) => Some(x as i64),
        Element::Complex(..) => None,
    }
}

fn not_numbers(entry: &TensorEntry) -> Error {
    Error::unsupported("not-numbers", format!("dtype {} cannot be converted to integers", entry.dtype()))
        .on_tensor(entry.name())
}

/// Column as little-endian `i64`, converted on access.
#[derive(Debug)]
struct IntegerSource {
    entry: TensorEntry,
    label: String,
    len: u64,
}

/// Returns `entry`, a column, as an `i64` column: unchanged if it is one.
///
/// # Errors
/// [`weighbridge_core::Kind::Unsupported`] for complex numbers and elements below one byte, and for columns
/// whose byte size overflows 64 bits.
pub(crate) fn as_integers(entry: &TensorEntry) -> Result<TensorEntry> {
    if entry.dtype() == DType::I64 {
        return Ok(entry.clone());
    }
    let complex = matches!(entry.dtype(), DType::C64 | DType::C128);
    if complex || entry.stored.size().is_none() {
        return Err(not_numbers(entry));
    }
    let shape = Shape::new([entry.elements()]);
    let len = shape.bytes(DType::I64).ok_or_else(|| {
        Error::unsupported("shape-overflow", "the byte size of the column as i64 overflows 64 bits")
    })?;
    let label = entry.extents.first().map_or("", |extent| extent.source.label()).to_owned();
    let source: SourceRef = Arc::new(IntegerSource { entry: entry.clone(), label, len });
    let mut made = TensorEntry::dense(entry.path.clone(), DType::I64, shape, &source, 0, Encoding::ROW)?;
    made.role = entry.role.clone();
    made.attributes = entry.attributes.clone();
    made.guessed = entry.guessed;
    Ok(made)
}

impl Source for IntegerSource {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        read_elements(offset, buffer, 8, |range, out| {
            for number in read(&self.entry, range)? {
                out.extend_from_slice(&number.to_le_bytes());
            }
            Ok(())
        })
    }
    fn label(&self) -> &str {
        &self.label
    }
    fn is_sequential(&self) -> bool {
        self.entry.extents.iter().any(|extent| extent.source.is_sequential())
    }
}

/// Fills `buffer` with the bytes at `offset` of elements of `size` bytes; `make` appends
/// a range of whole elements.
pub(crate) fn read_elements(
    offset: u64,
    buffer: &mut [u8],
    size: u64,
    make: impl FnOnce(Range<u64>, &mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    if buffer.is_empty() {
        return Ok(());
    }
    let first = offset / size;
    let end = (offset + buffer.len() as u64).div_ceil(size);
    let mut bytes = Vec::with_capacity(to_usize((end - first) * size)?);
    make(first..end, &mut bytes)?;
    let skip = to_usize(offset - first * size)?;
    match bytes.get(skip..skip + buffer.len()) {
        Some(wanted) => buffer.copy_from_slice(wanted),
        None => return Err(Error::corrupt("past-the-end", "the column ends before its last element")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::checkpoint::TensorPath;
    use weighbridge_io::source::MemorySource;

    fn column(dtype: DType, bytes: Vec<u8>) -> TensorEntry {
        let rows = (bytes.len() / dtype.size().unwrap()) as u64;
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        let path = TensorPath::from_dotted("weight");
        TensorEntry::dense(path, dtype, Shape::new([rows]), &source, 0, Encoding::ROW).unwrap()
    }

    #[test]
    fn converts_floats_like_upstream() {
        let reals = [0.5f32, 2.999, -1.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -0.0];
        let entry = column(DType::F32, reals.iter().flat_map(|x| x.to_le_bytes()).collect());
        // Values of h5py reading into an int64 array.
        let expected = [0, 2, -1, i64::MIN, i64::MAX, i64::MIN, i64::MAX, 0];
        assert_eq!(read(&entry, 0..8).unwrap(), expected);
        assert_eq!(read(&entry, 1..3).unwrap(), [2, -1]);
        let made = as_integers(&entry).unwrap();
        let bytes: Vec<u8> = expected.iter().flat_map(|n| n.to_le_bytes()).collect();
        assert_eq!(made.read_tensor(Order::Row).unwrap(), bytes);
        let source = &made.extents[0].source;
        for start in 0..bytes.len() {
            for end in start..bytes.len() {
                let mut buffer = vec![0; end - start];
                source.read_at(start as u64, &mut buffer).unwrap();
                assert_eq!(buffer, bytes[start..end]);
            }
        }
        assert_eq!(source.read_at(60, &mut [0; 5]).unwrap_err().code().as_str(), "past-the-end");
    }

    #[test]
    fn converts_every_integer_type() {
        assert_eq!(read(&column(DType::U8, vec![0, 255]), 0..2).unwrap(), [0, 255]);
        assert_eq!(read(&column(DType::I8, vec![0, 255]), 0..2).unwrap(), [0, -1]);
        let wide = column(DType::U64, u64::MAX.to_le_bytes().to_vec());
        assert_eq!(read(&wide, 0..1).unwrap(), [i64::MAX]);
        assert_eq!(as_integers(&column(DType::C64, vec![0; 8])).unwrap_err().code().as_str(), "not-numbers");
    }
}
