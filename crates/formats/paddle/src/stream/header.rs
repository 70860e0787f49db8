//! Common parts of all stream headers: fixed-size integers, the desc, and the data after it.

use super::desc::{DESC, TensorDesc};
use weighbridge_core::checkpoint::{TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Encoding;
use weighbridge_core::text::counted;
use weighbridge_io::source::Cursor;

/// Maximum plausible length of a desc in bytes. A longer desc beyond the end of the file is a damaged length and not
/// a truncated file.
const MAX_PLAUSIBLE_DESC_LEN: u64 = 4096;

/// Byte ranges of the parts of a tensor stream. Offsets count from the start of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Offset of the stream.
    pub stream_offset: u64,
    /// Length of the stream, header and data.
    pub stream_bytes: u64,
    /// Offset of the desc.
    pub desc_offset: u64,
    /// Length of the desc.
    pub desc_bytes: u64,
    /// Offset of the elements.
    pub data_offset: u64,
    /// Length of the elements.
    pub data_bytes: u64,
}

/// Tensor of a stream with the byte ranges of its parts.
#[derive(Debug, Clone)]
pub struct Dense {
    /// Tensor: row-major, with the properties of the stream as attributes.
    pub entry: TensorEntry,
    /// Byte ranges of its parts.
    pub header: Header,
}

/// Decoded desc, with its original bytes if they differ from Paddle's own encoding.
pub(super) struct ReadDesc {
    pub(super) desc: TensorDesc,
    kept: Option<Vec<u8>>,
    offset: u64,
    bytes: u64,
}

/// Reads `N` bytes of a header; `what` names them in errors.
pub(super) fn array<const N: usize>(cursor: &mut Cursor, what: &str) -> Result<[u8; N]> {
    need(cursor, N as u64, what)?;
    cursor.array(what)
}

/// Fails unless `len` more bytes of a header are available.
pub(super) fn need(cursor: &Cursor, len: u64, what: &str) -> Result<()> {
    let found = cursor.remaining();
    if len <= found {
        return Ok(());
    }
    Err(Error::corrupt("truncated-header", format!("the file ends within {what}"))
        .in_file(cursor.source().label())
        .at(cursor.position())
        .expected(format_args!("{len} more bytes"))
        .found(format_args!("{found} bytes"))
        .hint(format_args!(
            "the file is truncated: {} bytes of the header and all data are missing; download it again",
            len - found
        )))
}

/// Reads the version word at the start of a stream.
pub(super) fn stream_version(cursor: &mut Cursor) -> Result<()> {
    let at = cursor.position();
    let version = u32::from_le_bytes(array(cursor, "the version of a stream")?);
    if version == 0 {
        return Ok(());
    }
    Err(Error::corrupt("stream-version", "unknown stream version").at(at).expected(0).found(version).hint(
        "every Paddle version writes 0; the file has another format, or the preceding data are damaged",
    ))
}

/// Reads fields 4 to 6: the version of the tensor, the length of the desc, and the desc.
pub(super) fn tensor_version_and_desc(cursor: &mut Cursor, limits: &Limits) -> Result<ReadDesc> {
    let at = cursor.position();
    let version = u32::from_le_bytes(array(cursor, "the version of a tensor")?);
    if version != 0 {
        return Err(Error::corrupt("tensor-version", "unknown tensor version")
            .at(at)
            .expected(0)
            .found(version)
            .hint(
                "every Paddle version writes 0; Paddle rejects others with \"Only version 0 is supported\"",
            ));
    }
    let at = cursor.position();
    let len = i32::from_le_bytes(array(cursor, "the length of a desc")?);
    let len = u64::try_from(len).map_err(|_| {
        Error::corrupt("negative-desc-length", "the length of the tensor desc is negative")
            .at(at)
            .expected("0 or more")
            .found(len)
    })?;
    desc(cursor, len, limits)
}

/// Reads a desc of `len` bytes, directly after its length.
pub(super) fn desc(cursor: &mut Cursor, len: u64, limits: &Limits) -> Result<ReadDesc> {
    let offset = cursor.position();
    if len > MAX_PLAUSIBLE_DESC_LEN && len > cursor.remaining() {
        return Err(Error::corrupt("desc-too-long", "the tensor desc exceeds the file")
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

/// Skips the elements, which are not read, and returns the tensor of a stream that began at
/// `stream_offset`. The stream length does not include data after the elements.
pub(super) fn tensor(
    cursor: &mut Cursor,
    read: ReadDesc,
    path: &TensorPath,
    stream_offset: u64,
) -> Result<Dense> {
    let ReadDesc { desc, kept, offset, bytes } = read;
    let data_offset = cursor.position();
    let data_bytes = desc.shape.bytes(desc.dtype).ok_or_else(|| {
        Error::corrupt("shape-overflow", "the tensor length exceeds 2^64 bytes")
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
        format!("the last tensor has no data: {bytes} missing (not detected by Paddle)")
    } else {
        format!("the last tensor is {bytes} short (not detected by Paddle)")
    };
    Err(Error::corrupt("truncated-data", message)
        .in_file(cursor.source().label())
        .at(cursor.position())
        .expected(format_args!("{len} bytes for {} {}", desc.dtype, desc.shape))
        .found(format_args!("{found} bytes"))
        .hint("the file is truncated, and later tensors are missing too; download it again"))
}

/// Iterates over 8-byte little-endian integers; an incomplete last one is ignored.
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word))
}
