//! The stream of SelectedRows: some rows of a taller tensor, each with its number there. One in a
//! file, never among others.

use super::dense::put_tensor_head;
use super::header::{self, Dense, array, words};
use weighbridge_core::checkpoint::{TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::FileBuilder;
use weighbridge_core::tensor::Order;
use weighbridge_io::source::Cursor;

/// The attribute that holds the numbers of the rows: a list of [`Value::I64`], in the order of the
/// rows of the tensor. They may repeat and need not rise.
pub(crate) const ROWS: &str = "rows";
/// The attribute that holds the number of rows of the taller tensor: a [`Value::I64`].
pub(crate) const HEIGHT: &str = "height";

/// Reads the stream that begins at the cursor, which stands behind it afterwards. The elements are
/// hopped over; the numbers of the rows are read. Errors name the tensor `path`.
///
/// Attributes of the tensor: `rows` and `height` always, and `desc` as
/// for a dense tensor. That the tensor has as many rows as there are numbers is not checked.
///
/// # Errors
/// As [`dense::read`](super::dense::read), and [`weighbridge_core::Kind::Corrupt`]: `rows-too-long`.
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

/// The number of rows, held against the length of the file.
fn row_count(cursor: &mut Cursor) -> Result<u64> {
    let at = cursor.position();
    let count = u64::from_le_bytes(array(cursor, "the number of rows")?);
    let most = cursor.remaining() / 8;
    if count <= most {
        return Ok(count);
    }
    Err(Error::corrupt("rows-too-long", "there are more rows than the file has room for")
        .at(at)
        .expected(format_args!("at most {most}"))
        .found(count)
        .hint("the file is cut short, or holds no selected rows"))
}

/// Appends the stream of `entry`: the bytes that Paddle writes, and those that were read where it
/// was not changed.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`], code `selected-rows`, where the attributes `rows` and `height`
/// are not both there; else as [`dense::write`](super::dense::write).
pub fn write(file: &mut FileBuilder, entry: &TensorEntry) -> Result<()> {
    let bad = || {
        Error::mismatch("selected-rows", "a tensor of selected rows needs the numbers of its rows")
            .on_tensor(entry.name())
            .expected(format_args!("the attributes `{ROWS}`, a list of i64, and `{HEIGHT}`, an i64"))
            .hint("a tensor without them is written as a dense tensor")
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
