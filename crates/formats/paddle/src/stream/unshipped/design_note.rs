//! Tensor in the form of the note "Model Format": one version, and the LoD last. **Paddle does not
//! read it.**
//!
//! ```text
//! u32 version = 0 | u32 desc length | desc | data | u64 levels | per level: u64 bytes, u64[] offsets
//! ```
//!
//! The released form has two versions with the LoD between them. The two forms are distinguishable: a desc at the
//! position of the released form's levels would have to begin with a byte of 0, and no desc does.

use super::super::header::{self, Dense, array};
use super::super::lod::{self, Lod};
use super::super::{combined, desc};
use weighbridge_core::checkpoint::{TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::FileBuilder;
use weighbridge_core::tensor::Order;
use weighbridge_io::source::{Cursor, SourceRef};

/// Reads a tensor of this form at the cursor and moves the cursor to its end. The attributes are those of
/// [`dense::read`](super::super::dense::read).
///
/// # Errors
/// Same as [`dense::read`](super::super::dense::read).
pub fn read(cursor: &mut Cursor, path: &TensorPath, limits: &Limits) -> Result<Dense> {
    read_parts(cursor, path, limits).map_err(|e| e.in_file(cursor.source().label()).on_tensor(path))
}

fn read_parts(cursor: &mut Cursor, path: &TensorPath, limits: &Limits) -> Result<Dense> {
    let start = cursor.position();
    header::stream_version(cursor)?;
    let len = u32::from_le_bytes(array(cursor, "the length of a desc")?);
    let desc = header::desc(cursor, u64::from(len), limits)?;
    let mut dense = header::tensor(cursor, desc, path, start)?;
    Lod::read(cursor, limits)?.describe(&mut dense.entry);
    dense.header.stream_bytes = cursor.position() - start;
    Ok(dense)
}

/// Reads a file of one tensor of this form.
///
/// # Errors
/// Same as [`read`], and [`weighbridge_core::Kind::Corrupt`]: `trailing-bytes`.
pub fn read_file(source: &SourceRef, path: &TensorPath, limits: &Limits) -> Result<Dense> {
    let mut cursor = Cursor::new(source.clone(), 0);
    let dense = read(&mut cursor, path, limits)?;
    match cursor.remaining() {
        0 => Ok(dense),
        rest => Err(combined::trailing(cursor.position(), rest).in_file(source.label()).on_tensor(path)),
    }
}

/// Appends `entry` in this form. **Paddle does not read it.**
///
/// # Errors
/// Same as [`dense::write`](super::super::dense::write).
pub fn write(file: &mut FileBuilder, entry: &TensorEntry) -> Result<()> {
    let desc = desc::of_entry(entry)?;
    let len = u32::try_from(desc.len()).map_err(|_| {
        Error::mismatch("too-large", "the tensor desc exceeds 2^32 bytes").on_tensor(entry.name())
    })?;
    let levels = lod::bytes(entry)?;
    file.literal([&0u32.to_le_bytes()[..], &len.to_le_bytes(), &desc].concat());
    file.tensor(entry, Order::Row)?;
    file.literal(levels);
    Ok(())
}
