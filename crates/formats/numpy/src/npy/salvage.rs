//! What is intact of an array that is cut short: its first rows, where these lie one after the other.
//!
//! An array with fewer rows is another array, so the tensor says so: the attribute
//! [`Attributes::SALVAGED_ROWS`], and an entry among what is lost. Column-major arrays have parts of all rows
//! or none. Nothing proves the elements themselves.
//!
//! Nothing proves the header either. One that leaves bytes over, or that with one bit changed would say the
//! very length that is there, may be what is damaged: rows by a wrong shape or type would be scrambled.

use super::{ARRAY, Header};
use weighbridge_core::checkpoint::{Attributes, Checkpoint, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{Order, Shape};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{Cursor, SourceRef};

/// The index of what is intact.
///
/// # Errors
/// Where the header is damaged: then it is not known what follows; `shape-uncertain` where it may be.
/// `truncated` where not one row is there.
pub(super) fn open(source: &SourceRef, error: &Error, options: &OpenOptions) -> Result<Checkpoint> {
    let header = Header::read(&mut Cursor::new(source.clone(), 0), source.len(), &options.limits)?;
    // The length of the header may be what is damaged; a header that is whole ends with its line.
    let mut last = [0];
    source.read_at(header.len - 1, &mut last)?;
    if last != *b"\n" {
        return Err(Error::corrupt("data-misplaced", "the header does not end where its length says").at(8));
    }
    let mut checkpoint = Checkpoint::new("npy", ARRAY, source.label());
    let there = source.len().saturating_sub(header.len);
    let needed = header.data_len()?;
    if needed < there || (needed > there && fits_with_one_bit(&header, there)) {
        return Err(Error::corrupt(
            "shape-uncertain",
            "the shape or the type in the header may be what is damaged, so rows cannot be told",
        )
        .at(header.len)
        .expected(format_args!("{needed} bytes by the header"))
        .found(format_args!("{there}")));
    }
    let in_rows = header.encoding.order == Order::Row || header.shape.is_order_free();
    let rows = header.shape.dims().first().copied().unwrap_or(0);
    let row_bytes = needed.checked_div(rows).unwrap_or(0);
    let whole = there.checked_div(row_bytes).unwrap_or(0).min(rows);
    if !in_rows || whole == 0 {
        return Err(Error::corrupt("truncated", "not one row of the array is whole").at(header.len));
    }
    let rest = header.shape.dims().iter().skip(1).copied();
    let shape = Shape::new(std::iter::once(whole).chain(rest).collect::<Vec<_>>());
    let path = TensorPath::value();
    let mut entry = TensorEntry::dense(path, header.dtype, shape, source, header.len, header.encoding)?;
    entry.guessed = header.native;
    if whole < rows {
        entry
            .attributes
            .insert(Attributes::SALVAGED_ROWS.to_owned(), Value::Text(format!("0 to {whole} of {rows}")));
        checkpoint.lose(format_args!("(rows {whole} to {rows} of {})", TensorPath::value()), error);
    } else {
        checkpoint.damage_mut(error).expected = Some(1);
    }
    checkpoint.tensors.push(entry);
    Ok(checkpoint)
}

/// True where a header that differs from this one in one bit says that the data has `len` bytes, and other
/// rows. A first extent that differs leaves rows as they are.
fn fits_with_one_bit(header: &Header, len: u64) -> bool {
    let dims = header.shape.dims();
    let size = header.dtype.size().unwrap_or(1) as u64;
    let product = |dims: &[u64], size: u64| dims.iter().try_fold(size, |n, &extent| n.checked_mul(extent));
    // b1, i2, f4, c8, c16 and their like differ in one digit.
    if [1, 2, 4, 8, 16].into_iter().any(|other| other != size && product(dims, other) == Some(len)) {
        return true;
    }
    (1..dims.len()).any(|place| {
        one_bit_from(dims.get(place).copied().unwrap_or(0)).into_iter().any(|extent| {
            let mut other = dims.to_vec();
            other[place] = extent;
            product(&other, size) == Some(len)
        })
    })
}

/// The numbers that are one bit of one digit away, as text.
fn one_bit_from(number: u64) -> Vec<u64> {
    let text = number.to_string().into_bytes();
    let mut others = Vec::new();
    for place in 0..text.len() {
        for bit in 0..4 {
            let mut other = text.clone();
            other[place] ^= 1 << bit;
            others.extend(std::str::from_utf8(&other).ok().and_then(|text| text.parse::<u64>().ok()));
        }
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_io::source::MemorySource;

    fn opened(descr: &str, shape: &str, len: usize) -> std::result::Result<Vec<u64>, &'static str> {
        let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        text.push_str(&" ".repeat(117 - text.len()));
        text.push('\n');
        let bytes = [b"\x93NUMPY\x01\0\x76\0", text.as_bytes(), &vec![1; len]].concat();
        let source: SourceRef = Arc::new(MemorySource::new("a.npy", bytes));
        let error = Error::corrupt("truncated", "cut");
        let found = open(&source, &error, &OpenOptions::default());
        found.map(|found| found.tensors[0].shape.dims().to_vec()).map_err(|error| error.code().as_str())
    }

    #[test]
    fn a_header_that_may_be_damaged_gives_no_rows() {
        // 4 times 3 floats, of which a bit of the header says otherwise.
        assert_eq!(opened("<f4", "(4, 2)", 48), Err("shape-uncertain"));
        assert_eq!(opened("<f4", "(4, 7)", 48), Err("shape-uncertain"));
        assert_eq!(opened("<f8", "(4, 3)", 48), Err("shape-uncertain"));
        assert_eq!(opened("<f2", "(4, 3)", 48), Err("shape-uncertain"));
        // Cut in a row, at a row, and too early.
        assert_eq!(opened("<f4", "(100, 5)", 1010), Ok(vec![50, 5]));
        assert_eq!(opened("<f4", "(7, 3)", 48), Ok(vec![4, 3]));
        assert_eq!(opened("<f4", "(4, 5)", 19), Err("truncated"));
    }
}
