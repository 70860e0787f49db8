//! What is intact of an array that is cut short: its first rows, where these lie one after the other.
//!
//! An array with fewer rows is another array, so the tensor says so: the attribute
//! [`SALVAGED_ROWS`], and an entry among what is lost. Column-major arrays have parts of all rows
//! or none. Nothing proves the elements themselves.

use super::{ARRAY, Header};
use crate::checkpoint::{Checkpoint, SALVAGED_ROWS, TensorEntry, TensorPath, Value};
use crate::error::{Error, Result};
use crate::formats::OpenOptions;
use crate::source::{Cursor, SourceRef};
use crate::tensor::{Order, Shape};

/// The index of what is intact.
///
/// # Errors
/// Where the header is damaged: then it is not known what follows. `truncated` where not one row is there.
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
        entry.attributes.insert(SALVAGED_ROWS.to_owned(), Value::Text(format!("0 to {whole} of {rows}")));
        checkpoint.lose(format_args!("(rows {whole} to {rows} of {})", TensorPath::value()), error);
    } else {
        checkpoint.damage_mut(error).expected = Some(1);
    }
    checkpoint.tensors.push(entry);
    Ok(checkpoint)
}
