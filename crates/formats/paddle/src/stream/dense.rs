//! Stream of one tensor: Paddle's DenseTensor, formerly LoDTensor.

use super::desc;
use super::header::{self, Dense};
use super::lod::{self, Lod};
use weighbridge_core::checkpoint::{TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::FileBuilder;
use weighbridge_core::tensor::Order;
use weighbridge_io::source::Cursor;

/// Length in bytes of the shortest stream: two versions, no levels, the length of a desc, a desc of two bytes, and
/// no elements.
pub const MIN_LEN: u64 = 4 + 8 + 4 + 4 + 2;

/// Reads the stream at the cursor and moves the cursor to its end. The elements are skipped. Errors name the
/// tensor `path`.
///
/// Attributes of the tensor: [`lod::LOD`] if it has levels, `lod_odd_bytes` and `desc` if the stream differs from
/// Paddle's own encoding.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `truncated-header`, `truncated-data`, `lod-too-long`,
/// `negative-desc-length`, `desc-too-long`, `shape-overflow`, and those of
/// [`TensorDesc::parse`](desc::TensorDesc::parse). [`weighbridge_core::Kind::Unsupported`]: `stream-version`,
/// `tensor-version`. [`weighbridge_core::Kind::Limit`] for a header, or dimensions, beyond the limits.
pub fn read(cursor: &mut Cursor, path: &TensorPath, limits: &Limits) -> Result<Dense> {
    read_parts(cursor, path, limits).map_err(|e| e.in_file(cursor.source().label()).on_tensor(path))
}

fn read_parts(cursor: &mut Cursor, path: &TensorPath, limits: &Limits) -> Result<Dense> {
    let start = cursor.position();
    header::stream_version(cursor)?;
    let lod = Lod::read(cursor, limits)?;
    let desc = header::tensor_version_and_desc(cursor, limits)?;
    let mut dense = header::tensor(cursor, desc, path, start)?;
    lod.describe(&mut dense.entry);
    Ok(dense)
}

/// Appends the stream of `entry`: the bytes that Paddle writes, or the original bytes of an unchanged tensor.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] as in [`desc::of_entry`] and [`lod::levels`];
/// [`weighbridge_core::Kind::Unsupported`] if the elements cannot be copied.
pub fn write(file: &mut FileBuilder, entry: &TensorEntry) -> Result<()> {
    file.literal(header_of(entry)?);
    file.tensor(entry, Order::Row)
}

/// Returns the number of bytes that [`write()`] appends.
///
/// # Errors
/// Same as [`write()`].
pub fn stream_bytes(entry: &TensorEntry) -> Result<u64> {
    let header = header_of(entry)?.len() as u64;
    let data = entry.shape.bytes(entry.dtype());
    data.and_then(|data| data.checked_add(header)).ok_or_else(|| {
        Error::mismatch("too-large", "the tensor length exceeds 2^64 bytes").on_tensor(entry.name())
    })
}

fn header_of(entry: &TensorEntry) -> Result<Vec<u8>> {
    let mut out = 0u32.to_le_bytes().to_vec();
    out.extend_from_slice(&lod::bytes(entry)?);
    put_tensor_head(&mut out, entry)?;
    Ok(out)
}

/// Appends fields 4 to 6: the version of the tensor, the length of the desc, and the desc.
pub(super) fn put_tensor_head(out: &mut Vec<u8>, entry: &TensorEntry) -> Result<()> {
    let desc = desc::of_entry(entry)?;
    let len = i32::try_from(desc.len()).map_err(|_| {
        Error::mismatch("too-large", "the tensor desc exceeds 2^31 bytes").on_tensor(entry.name())
    })?;
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&desc);
    Ok(())
}
