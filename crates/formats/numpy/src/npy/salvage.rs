//! Salvage of an array that is cut short: its first rows, where rows are contiguous.
//!
//! The tensor has fewer rows, stated in the attribute
//! [`Attributes::SALVAGED_ROWS`] and in an entry of the losses. Rows of column-major arrays cannot be salvaged.
//! The elements have no checksum.
//!
//! The header has no checksum, either. It may be the damaged part if it leaves bytes over, or if one changed bit would make
//! its length match the file. Rows of a wrong shape or type would be scrambled, so none are returned.

use super::{ARRAY, Header};
use weighbridge_core::checkpoint::{Attributes, Checkpoint, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{Order, Shape};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{Cursor, SourceRef};

/// Reads the index of the intact rows.
///
/// # Errors
/// Where the header is damaged; `shape-uncertain` where it may be damaged;
/// `truncated` where no row is complete.
pub(super) fn open(source: &SourceRef, error: &Error, options: &OpenOptions) -> Result<Checkpoint> {
    let header = Header::read(&mut Cursor::new(source.clone(), 0), source.len(), &options.limits)?;
    // The length of the header may be damaged; an intact header ends with a line feed.
    let mut last = [0];
    source.read_at(header.len - 1, &mut last)?;
    if last != *b"\n" {
        return Err(
            Error::corrupt("data-misplaced", "the npy header does not end at its stated length").at(8)
        );
    }
    let mut checkpoint = Checkpoint::new("npy", ARRAY, source.label());
    let there = source.len().saturating_sub(header.len);
    let needed = header.data_len()?;
    if needed < there || (needed > there && fits_with_one_bit(&header, there)) {
        return Err(Error::corrupt(
            "shape-uncertain",
            "the shape or dtype in the npy header may be damaged, so rows cannot be located",
        )
        .at(header.len)
        .expected(format_args!("{needed} bytes, as the header states"))
        .found(format_args!("{there} bytes")));
    }
    let in_rows = header.encoding.order == Order::Row || header.shape.is_order_free();
    let rows = header.shape.dims().first().copied().unwrap_or(0);
    let row_bytes = needed.checked_div(rows).unwrap_or(0);
    let whole = there.checked_div(row_bytes).unwrap_or(0).min(rows);
    if !in_rows || whole == 0 {
        return Err(Error::corrupt("truncated", "no row of the array is complete").at(header.len));
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

/// True where a header that differs in one bit describes `len` bytes with other
/// rows. A different first dimension does not change the rows.
fn fits_with_one_bit(header: &Header, len: u64) -> bool {
    let dims = header.shape.dims();
    let size = header.dtype.size().unwrap_or(1) as u64;
    let product = |dims: &[u64], size: u64| dims.iter().try_fold(size, |n, &dim| n.checked_mul(dim));
    // Type codes such as i2, f4 and c8 differ in one digit.
    if [1, 2, 4, 8, 16].into_iter().any(|other| other != size && product(dims, other) == Some(len)) {
        return true;
    }
    (1..dims.len()).any(|place| {
        one_bit_from(dims.get(place).copied().unwrap_or(0)).into_iter().any(|dim| {
            let mut other = dims.to_vec();
            other[place] = dim;
            product(&other, size) == Some(len)
        })
    })
}

/// Returns the numbers whose decimal text differs in one bit of one digit.
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
    fn salvages_no_rows_if_the_header_may_be_damaged() {
        // 4 times 3 floats, with one wrong bit in the header.
        assert_eq!(opened("<f4", "(4, 2)", 48), Err("shape-uncertain"));
        assert_eq!(opened("<f4", "(4, 7)", 48), Err("shape-uncertain"));
        assert_eq!(opened("<f8", "(4, 3)", 48), Err("shape-uncertain"));
        assert_eq!(opened("<f2", "(4, 3)", 48), Err("shape-uncertain"));
        // Cut within a row, at a row, and within the first row.
        assert_eq!(opened("<f4", "(100, 5)", 1010), Ok(vec![50, 5]));
        assert_eq!(opened("<f4", "(7, 3)", 48), Ok(vec![4, 3]));
        assert_eq!(opened("<f4", "(4, 5)", 19), Err("truncated"));
    }
}
