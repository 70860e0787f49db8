//! From bytes to the index.

use super::{ARRAY, Header};
use weighbridge_core::checkpoint::{Checkpoint, Note, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
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

/// The tensor of an array that takes `len` bytes of `source` from `start` on, its header among them.
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
        return Err(lengths(Error::corrupt("truncated", "the array has fewer bytes than its shape takes")));
    }
    if found > expected && !lenient {
        return Err(lengths(Error::corrupt(
            "trailing-bytes",
            "there are bytes behind the last element of the array",
        ))
        .hint("numpy ignores them; if you know where they come from, open the file leniently"));
    }
    if found > expected {
        let text = format!("{path}: {} bytes behind the last element are ignored", found - expected);
        notes.push(Note::omission("trailing-bytes", text));
    }
    if header.native {
        let text = format!("{path}: the file leaves the byte order open; little-endian is taken");
        notes.push(Note::new("native-byte-order", text));
    }
    let (shape, encoding) = (header.shape.clone(), header.encoding);
    let mut entry = TensorEntry::dense(path, header.dtype, shape, source, start + header.len, encoding)?;
    entry.guessed = header.native;
    Ok(entry)
}
