//! Stream of SelectedRows: some rows of a taller tensor, each with its row index. A file contains one stream of
//! this kind only.

use super::dense::put_tensor_head;
use super::header::{self, Dense, array, words};
use weighbridge_core::checkpoint::{TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::FileBuilder;
use weighbridge_core::tensor::Order;
use weighbridge_io::source::Cursor;

/// Attribute with the row indices: a list of [`Value::I64`], in the order of the rows of the tensor. Indices may
/// repeat and need not be sorted.
pub(crate) const ROWS: &str = "rows";
/// Attribute with the number of rows of the taller tensor: a [`Value::I64`].
pub(crate) const HEIGHT: &str = "height";

/// Reads the stream at the cursor and moves the cursor to its end. The row indices are read, the elements are
/// skipped. Errors name the tensor `path`.
///
/// Attributes of the tensor: `rows` and `height` always, and `desc` as for a dense tensor. The number of row indices
/// is not compared with the number of rows.
///
/// # Errors
/// Same as [`dense::read`](super::dense::read), and [`weighbridge_core::Kind::Corrupt`]: `rows-too-long`.
pub fn read(cursor: &mut Cursor, path: &TensorPath, limits: &Limits) -> Result<Dense> {
    read_parts(cursor, path, limits).map_err(|e| e.in_file(cursor.source().label()).on_tensor(path))
}

fn read_parts(cursor: &mut Cursor, path: &TensorPath, limits: &Limits) -> Result<Dense> {
    let start = cursor.position();
    header::stream_version(cursor)?;
    let count = row_count(cursor)?;
    let len = count.saturating_mul(8);
    Limits::check("bytes of row numbers", "header_bytes", len, limits.header_bytes)
        .map_err(|e| e.at(start + 4))?;
    let rows = words(&cursor.bytes(len, "the numbers of the rows")?)
        .map(|row| Value::I64(row.cast_signed()))
        .collect();
    let height = i64::from_le_bytes(array(cursor, "the height")?);
    let desc = header::tensor_version_and_desc(cursor, limits)?;
    let mut selected = header::tensor(cursor, desc, path, start)?;
    selected.entry.attributes.insert(ROWS.into(), Value::List(rows));
    selected.entry.attributes.insert(HEIGHT.into(), Value::I64(height));
    Ok(selected)
}

/// Reads the number of rows, and compares it with the length of the file.
fn row_count(cursor: &mut Cursor) -> Result<u64> {
    let at = cursor.position();
    let count = u64::from_le_bytes(array(cursor, "the number of rows")?);
    let most = cursor.remaining() / 8;
    if count <= most {
        return Ok(count);
    }
    Err(Error::corrupt("rows-too-long", "the row indices exceed the file")
        .at(at)
        .expected(format_args!("at most {most}"))
        .found(count)
        .hint("the file is truncated, or is not a file of selected rows"))
}

/// Appends the stream of `entry`: the bytes that Paddle writes, or the original bytes of an unchanged tensor.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`], code `selected-rows`, if the attribute `rows` or `height` is missing;
/// otherwise as in [`dense::write`](super::dense::write).
pub fn write(file: &mut FileBuilder, entry: &TensorEntry) -> Result<()> {
    let bad = || {
        Error::mismatch("selected-rows", "the tensor has no row indices")
            .on_tensor(entry.name())
            .expected(format_args!("the attributes `{ROWS}`, a list of i64, and `{HEIGHT}`, an i64"))
            .hint("write it as a dense tensor, or add the attributes")
    };
    let (Some(Value::List(rows)), Some(Value::I64(height))) =
        (entry.attributes.get(ROWS), entry.attributes.get(HEIGHT))
    else {
        return Err(bad());
    };
    let mut out = 0u32.to_le_bytes().to_vec();
    out.extend_from_slice(&(rows.len() as u64).to_le_bytes());
    for row in rows {
        let Value::I64(row) = row else { return Err(bad()) };
        out.extend_from_slice(&row.to_le_bytes());
    }
    out.extend_from_slice(&height.to_le_bytes());
    put_tensor_head(&mut out, entry)?;
    file.literal(out);
    file.tensor(entry, Order::Row)
}
