//! Messages of a file read from its front, for a file that lost its footer.
//!
//! ```text
//! ARROW1 00 00    the magic, padded to eight bytes
//! message         FFFFFFFF, length of the header (i32), header (flatbuffer), body, whose length is in the header
//! ...             the schema first, then batches
//! ```

use crate::table::flat;
use crate::table::pipe::{RawPair, guarded};
use arrow_ipc::{Block, MessageHeader, MetadataVersion};
use arrow_schema::{Schema, SchemaRef};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

/// Offset of the first message.
const FIRST_MESSAGE: u64 = 8;
/// Continuation marker before the length of a header.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// Contents of the messages.
pub(super) struct Messages {
    pub(super) schema: SchemaRef,
    pub(super) version: MetadataVersion,
    /// Intact batches.
    pub(super) blocks: Vec<Block>,
    /// Metadata pairs.
    pub(super) pairs: Vec<RawPair>,
}

/// Walks the messages up to the first damaged or truncated one.
///
/// # Errors
/// Fails if the schema (the first message) cannot be read; [`weighbridge_core::Kind::Limit`]; the errors of the source.
pub(super) fn messages(source: &SourceRef, limits: &Limits) -> Result<Messages> {
    let (mut head, mut at) = head(source, FIRST_MESSAGE, limits)?
        .ok_or_else(|| Error::corrupt("no-schema", "the file ends before its schema").at(FIRST_MESSAGE))?;
    let odd = flat::readable_message(&mut head);
    let message = flat::message("the schema", &head)?;
    let schema = message
        .header_as_schema()
        .ok_or_else(|| Error::corrupt("no-schema", "the first message is not a schema").at(FIRST_MESSAGE))?;
    if schema.endianness() != arrow_ipc::Endianness::Little {
        return Err(Error::unsupported("big-endian", "the file is big-endian"));
    }
    let version = message.version();
    let pairs = flat::raw_pairs(schema, &head, &odd);
    let schema: Schema = guarded("the schema", || arrow_ipc::convert::try_fb_to_schema(schema))?;
    let mut blocks = Vec::new();
    while let Some((bytes, body)) = head_at(source, at, limits)? {
        let Ok(message) = flat::message("the header of a message", &bytes) else { break };
        let Ok(len) = u64::try_from(message.bodyLength()) else { break };
        let Some(end) = body.checked_add(len).filter(|&end| end <= source.len()) else { break };
        if message.header_type() == MessageHeader::RecordBatch {
            let numbers = (i64::try_from(at), i32::try_from(body - at), i64::try_from(len));
            let (Ok(offset), Ok(head), Ok(len)) = numbers else { break };
            Limits::check("batches", "tensors", blocks.len() as u64 + 1, limits.tensors)?;
            blocks.push(Block::new(offset, head, len));
        }
        at = end;
    }
    Ok(Messages { schema: Arc::new(schema), version, blocks, pairs })
}

/// Like [`head`], but a header above a limit ends the messages.
fn head_at(source: &SourceRef, at: u64, limits: &Limits) -> Result<Option<(Vec<u8>, u64)>> {
    match head(source, at, limits) {
        Err(error) if error.kind() == weighbridge_core::Kind::Limit => Ok(None),
        read => read,
    }
}

/// Header of the message at `at`, and the offset of its body. `None` at the end of the messages, and
/// where the file ends inside the header.
fn head(source: &SourceRef, at: u64, limits: &Limits) -> Result<Option<(Vec<u8>, u64)>> {
    let left = source.len().saturating_sub(at);
    if left < 8 {
        return Ok(None);
    }
    let mut start = [0; 8];
    source.read_at(at, &mut start)?;
    let [a, b, c, d, rest @ ..] = start;
    if [a, b, c, d] != CONTINUATION {
        return Ok(None);
    }
    let len = u64::from(u32::from_le_bytes(rest));
    if len == 0 || len > left - 8 {
        return Ok(None);
    }
    Limits::check("bytes of a message", "header_bytes", len, limits.header_bytes)?;
    Ok(Some((read_vec(&**source, at + 8, len)?, at + 8 + len)))
}
