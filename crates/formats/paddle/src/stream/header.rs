//! What the headers of all streams share: small numbers, the desc, the data behind it.

use super::desc::{DESC, TensorDesc};
use weighbridge_core::checkpoint::{TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Encoding;
use weighbridge_core::text::counted;
use weighbridge_io::source::Cursor;

/// A desc of more bytes than this, that leaves the file, is a wrong number and no sign of a file
/// that was cut short.
const LONG_DESC: u64 = 4096;

/// Where the parts of a tensor stream lie. All in bytes; offsets from the start of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Where the stream begins.
    pub stream_offset: u64,
    /// How long it is, header and data.
    pub stream_bytes: u64,
    /// Where the desc begins.
    pub desc_offset: u64,
    /// How long the desc is.
    pub desc_bytes: u64,
    /// Where the elements begin.
    pub data_offset: u64,
    /// How long they are.
    pub data_bytes: u64,
}

/// A tensor of a stream, and where its parts lie.
#[derive(Debug, Clone)]
pub struct Dense {
    /// The tensor: row-major, with what the stream says of it as attributes.
    pub entry: TensorEntry,
    /// Where its parts lie.
    pub header: Header,
}

/// A desc that was read, with the bytes that it was read from where they are not Paddle's own form.
pub(super) struct ReadDesc {
    pub(super) desc: TensorDesc,
    kept: Option<Vec<u8>>,
    offset: u64,
    bytes: u64,
}

/// `N` bytes of a header; `what` names them.
pub(super) fn array<const N: usize>(cursor: &mut Cursor, what: &str) -> Result<[u8; N]> {
    need(cursor, N as u64, what)?;
    cursor.array(what)
}

/// Fails unless `len` more bytes of a header are there.
pub(super) fn need(cursor: &Cursor, len: u64, what: &str) -> Result<()> {
    let found = cursor.remaining();
    if len <= found {
        return Ok(());
    }
    Err(Error::corrupt("truncated-header", format!("the file ends within {what}"))
        .in_file(cursor.source().label())
        .at(cursor.position())
        .expected(format_args!("{len} bytes from here"))
        .found(format_args!("{found} bytes"))
        .hint(format_args!(
            "the file is cut short: {} bytes of the header are missing, and the data",
            len - found
        )))
}

/// Reads the version word in front of a stream.
pub(super) fn stream_version(cursor: &mut Cursor) -> Result<()> {
    let at = cursor.position();
    let version = u32::from_le_bytes(array(cursor, "the version of a stream")?);
    if version == 0 {
        return Ok(());
    }
    Err(Error::corrupt("stream-version", "the stream of a tensor has an unknown version")
        .at(at)
        .expected(0)
        .found(version)
        .hint("all of Paddle writes 0: this is another kind of file, or what stands before it is damaged"))
}

/// Reads fields 4 to 6: the version of the tensor, the length of the desc, the desc.
pub(super) fn tensor_version_and_desc(cursor: &mut Cursor, limits: &Limits) -> Result<ReadDesc> {
    let at = cursor.position();
    let version = u32::from_le_bytes(array(cursor, "the version of a tensor")?);
    if version != 0 {
        return Err(Error::corrupt("tensor-version", "a tensor has an unknown version")
            .at(at)
            .expected(0)
            .found(version)
            .hint("all of Paddle writes 0, and refuses others: \"Only version 0 is supported\""));
    }
    let at = cursor.position();
    let len = i32::from_le_bytes(array(cursor, "the length of a desc")?);
    let len = u64::try_from(len).map_err(|_| {
        Error::corrupt("negative-desc-length", "the length of the desc of a tensor is negative")
            .at(at)
            .expected("0 or more")
            .found(len)
    })?;
    desc(cursor, len, limits)
}

/// Reads a desc of `len` bytes, whose length was read just before.
pub(super) fn desc(cursor: &mut Cursor, len: u64, limits: &Limits) -> Result<ReadDesc> {
    let offset = cursor.position();
    if len > LONG_DESC && len > cursor.remaining() {
        return Err(Error::corrupt(
            "desc-too-long",
            "the desc of a tensor is longer than the rest of the file",
        )
        .at(offset.saturating_sub(4))
        .expected(format_args!("at most {} bytes", cursor.remaining()))
        .found(len));
    }
    need(cursor, len, "the desc of a tensor")?;
    Limits::check("bytes in a desc", "header_bytes", len, limits.header_bytes).map_err(|e| e.at(offset))?;
    let bytes = cursor.bytes(len, "the desc of a tensor")?;
    let desc = TensorDesc::parse(&bytes, offset, limits)?;
    let kept = (bytes != desc.canonical()).then_some(bytes);
    Ok(ReadDesc { desc, kept, offset, bytes: len })
}

/// Hops over the elements, which are not read, and gives the tensor of a stream that began at
/// `stream_offset`. What may follow the elements is not counted yet.
pub(super) fn tensor(
    cursor: &mut Cursor,
    read: ReadDesc,
    path: &TensorPath,
    stream_offset: u64,
) -> Result<Dense> {
    let ReadDesc { desc, kept, offset, bytes } = read;
    let data_offset = cursor.position();
    let data_bytes = desc.shape.bytes(desc.dtype).ok_or_else(|| {
        Error::corrupt("shape-overflow", "the tensor has more bytes than 64 bits can count")
            .at(offset)
            .found(format_args!("{} {}", desc.dtype, desc.shape))
    })?;
    skip_data(cursor, &desc, data_bytes)?;
    let source = cursor.source();
    let mut entry =
        TensorEntry::dense(path.clone(), desc.dtype, desc.shape, source, data_offset, Encoding::ROW)?;
    if let Some(kept) = kept {
        entry.attributes.insert(DESC.into(), Value::Bytes(kept));
    }
    let stream_bytes = cursor.position() - stream_offset;
    let header = Header {
        stream_offset,
        stream_bytes,
        desc_offset: offset,
        desc_bytes: bytes,
        data_offset,
        data_bytes,
    };
    Ok(Dense { entry, header })
}

fn skip_data(cursor: &mut Cursor, desc: &TensorDesc, len: u64) -> Result<()> {
    let found = cursor.remaining();
    if len <= found {
        return cursor.skip(len, "the elements of a tensor");
    }
    let missing = len - found;
    let bytes = counted(missing, "byte", "bytes");
    let message = if found == 0 {
        format!("the last tensor has no data: it lacks {bytes} (Paddle does not notice)")
    } else {
        format!("the last tensor is {bytes} short (Paddle does not notice)")
    };
    Err(Error::corrupt("truncated-data", message)
        .in_file(cursor.source().label())
        .at(cursor.position())
        .expected(format_args!("{len} bytes for {} {}", desc.dtype, desc.shape))
        .found(format_args!("{found} bytes"))
        .hint("the file is cut short; where tensors should follow, those are missing too"))
}

/// Numbers of 8 bytes, little-endian; a last part of less is left out.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word))
}
