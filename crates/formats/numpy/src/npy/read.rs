//! Reader: array to checkpoint.

use super::{ARRAY, Header};
use weighbridge_core::checkpoint::{Checkpoint, Note, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{Cursor, SourceRef};

pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let mut checkpoint = Checkpoint::new("npy", ARRAY, source.label());
    let mut cursor = Cursor::new(source.clone(), 0);
    let header = Header::read(&mut cursor, source.len(), &options.limits)?;
    let path = TensorPath::value();
    let entry = entry(&header, path, source, 0, source.len(), options.lenient, &mut checkpoint.notes)?;
    checkpoint.tensors.push(entry);
    Ok(checkpoint)
}

/// Returns the tensor of an array of `len` bytes in `source` from `start` on, header included.
pub(crate) fn entry(
    header: &Header,
    path: TensorPath,
    source: &SourceRef,
    start: u64,
    len: u64,
    lenient: bool,
    notes: &mut Vec<Note>,
) -> Result<TensorEntry> {
    let fail = |e: Error| e.on_tensor(&path).at(start + header.len);
    let expected = header.data_len().map_err(fail)?;
    let found = len - header.len;
    let lengths = |e: Error| {
        fail(e)
            .expected(format_args!("{expected} bytes for {} {}", header.dtype, header.shape))
            .found(format_args!("{found} bytes"))
    };
    if found < expected {
        return Err(lengths(Error::corrupt("truncated", "the array is shorter than its shape requires")));
    }
    if found > expected && !lenient {
        let error = Error::corrupt("trailing-bytes", "bytes follow the last element of the array");
        return Err(lengths(error).hint(phrase![
            "numpy ignores trailing bytes; ",
            Opt::Lenient,
            " does the same"
        ]));
    }
    if found > expected {
        let text = format!("{path}: {} trailing bytes behind the last element ignored", found - expected);
        notes.push(Note::omission("trailing-bytes", text));
    }
    if header.native {
        let text = format!("{path}: native byte order, little-endian assumed");
        notes.push(Note::new("native-byte-order", text));
    }
    let (shape, encoding) = (header.shape.clone(), header.encoding);
    let mut entry = TensorEntry::dense(path, header.dtype, shape, source, start + header.len, encoding)?;
    entry.guessed = header.native;
    Ok(entry)
}
