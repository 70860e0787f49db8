//! Checks of Arrow's own reader that opening skips: consistent lengths, decodable batches, complete
//! frames. Only `verify` runs them, because they read the whole table.

use super::{File, Layout, RangeOf, buffers_of, own_parts, record_batch};
use crate::table::flat;
use arrow_ipc::{Block, CompressionType, MessageHeader, MetadataVersion, RecordBatch};
use arrow_schema::DataType;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

/// Continuation marker before the length of a message; absent in old files.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// First bytes of an LZ4 frame.
const LZ4_MAGIC: [u8; 4] = 0x184d_2204u32.to_le_bytes();

/// Compares every batch of the table with its declared lengths, and decodes it.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `batch-length`, `batch-version`, `null-count`, `frame`; and the errors of opening.
pub(in crate::arrow) fn check(source: &SourceRef, limits: &Limits) -> Result<()> {
    let file = File::read(source, limits)?;
    let in_file = |error: Error| error.in_file(source.label());
    let layout = Layout::of(&file.schema, &mut Vec::new())?;
    file.check_overlap().map_err(in_file)?;
    // Charges the unpacked batches to the limits.
    file.heads(&layout, |_| false).map_err(in_file)?;
    for block in &file.dictionaries {
        file.check_message(block, MessageHeader::DictionaryBatch).map_err(in_file)?;
    }
    let mut columns = layout.elements();
    columns.extend(layout.names);
    columns.sort_unstable();
    for (number, block) in file.blocks.iter().enumerate() {
        file.check_message(block, MessageHeader::RecordBatch).map_err(in_file)?;
        file.check_buffers(block, &layout).map_err(in_file)?;
        for &column in &columns {
            file.batch(number, vec![column]).map_err(in_file)?;
        }
    }
    Ok(())
}

impl File {
    /// Compares the header of a message with the footer.
    fn check_message(&self, block: &Block, of: MessageHeader) -> Result<()> {
        let (offset, head, _) = self.place(block)?;
        let bytes = read_vec(&*self.source, offset, head)?;
        let number = |at: usize| {
            let number = bytes.get(at..).and_then(<[u8]>::first_chunk);
            number.map_or(0, |number| u64::from(u32::from_le_bytes(*number)))
        };
        let skip: u64 = if bytes.starts_with(&CONTINUATION) { 8 } else { 4 };
        let len = if skip == 8 { number(4) } else { number(0) };
        if len == 0 || len.saturating_add(skip) != head {
            return Err(Error::corrupt(
                "batch-length",
                "the header length of a message differs from the footer",
            )
            .at(offset)
            .expected(head.saturating_sub(skip))
            .found(len));
        }
        let skip = usize::try_from(skip).unwrap_or(8);
        let message = flat::message("the header of a message", bytes.get(skip..).unwrap_or_default())?;
        if message.header_type() != of
            || !matches!(message.version(), MetadataVersion::V4 | MetadataVersion::V5)
        {
            return Err(Error::corrupt(
                "batch-version",
                "the kind or version of a message differs from the footer",
            )
            .at(offset)
            .found(format_args!("{:?} {:?}", message.header_type(), message.version())));
        }
        if message.bodyLength() != block.bodyLength() {
            return Err(Error::corrupt(
                "batch-length",
                "the body length of a message differs from the footer",
            )
            .at(offset)
            .expected(block.bodyLength())
            .found(message.bodyLength()));
        }
        Ok(())
    }

    /// Compares validity bits with null counts, and LZ4 frames with their buffers.
    fn check_buffers(&self, block: &Block, layout: &Layout) -> Result<()> {
        let (offset, len, all) = self.place(block)?;
        let bytes = read_vec(&*self.source, offset, len)?;
        let head = record_batch(&bytes).map_err(|e| e.at(offset))?;
        let body = RangeOf { start: offset.saturating_add(len), len: all.saturating_sub(len) };
        let buffers = buffers_of(&head)?;
        let of_column = self.columns_of(&head, buffers.len());
        let is_lz4 = head.compression().is_some_and(|how| how.codec() == CompressionType::LZ4_FRAME);
        for (number, &(at, len)) in buffers.iter().enumerate() {
            let is_read = of_column.get(number).is_some_and(|&column| layout.reads(column));
            // A length precedes packed data; a negative length means unpacked data.
            if is_read && is_lz4 && len > 8 && at.checked_add(len).is_some_and(|end| end <= body.len) {
                let packed = read_vec(&*self.source, body.start + at, len)?;
                let claim = packed.first_chunk().map_or(-1, |claim| i64::from_le_bytes(*claim));
                if claim >= 0 && !is_one_frame(packed.get(8..).unwrap_or_default()) {
                    let text = "a compressed buffer is not exactly one LZ4 frame";
                    return Err(Error::corrupt("frame", text).at(body.start + at));
                }
            }
        }
        self.check_missing(&head, body, &buffers, layout)
    }

    /// Compares the validity bits with the null counts.
    fn check_missing(
        &self,
        head: &RecordBatch<'_>,
        body: RangeOf,
        buffers: &[(u64, u64)],
        layout: &Layout,
    ) -> Result<()> {
        let counts = head.variadicBufferCounts().map(|counts| counts.iter().collect::<Vec<_>>());
        let mut views = counts.unwrap_or_default().into_iter();
        let (mut bits, mut node, mut buffer) = (Vec::new(), 0, 0);
        for (column, field) in self.schema.fields().iter().enumerate() {
            let mut own = Vec::new();
            if find_bits(field.data_type(), &mut node, &mut buffer, &mut views, &mut own).is_none() {
                break;
            }
            bits.extend(own.into_iter().filter(|_| layout.reads(column)));
        }
        let nodes = head.nodes();
        for (node, buffer) in bits {
            let node = nodes.filter(|nodes| node < nodes.len()).map(|nodes| *nodes.get(node));
            let (Some(node), Some(&(at, len))) = (node, buffers.get(buffer)) else { break };
            let needed = u64::try_from(node.length()).unwrap_or(0).div_ceil(8);
            let fail = |text: &'static str| {
                Err(Error::corrupt("null-count", text).at(body.start.saturating_add(at)))
            };
            if len == 0 && node.null_count() != 0 {
                return fail("a column has missing values but no validity bitmap");
            }
            if len == 0 {
                continue;
            }
            if head.compression().is_some() {
                // A length precedes packed data; a negative length means unpacked data.
                let mut claim = [0; 8];
                if len >= 8 {
                    self.source.read_at(body.start + at, &mut claim)?;
                }
                if u64::try_from(i64::from_le_bytes(claim)).unwrap_or(len.saturating_sub(8)) < needed {
                    return fail("the validity bitmap of a column is too short");
                }
            } else if len < needed {
                return fail("the validity bitmap of a column is too short");
            } else if node.null_count() >= 0
                && self.zeros(body.start.saturating_add(at), node.length())? != node.null_count()
            {
                return fail("the null count of a column differs from its validity bitmap");
            }
        }
        Ok(())
    }

    /// Number of zero bits among the first `count` bits at `at`.
    fn zeros(&self, at: u64, count: i64) -> Result<i64> {
        let bytes = read_vec(&*self.source, at, u64::try_from(count).unwrap_or(0).div_ceil(8))?;
        let ones: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
        let last = u32::try_from(count % 8).unwrap_or(0);
        let beyond = bytes.last().filter(|_| last > 0).map_or(0, |byte| (byte >> last).count_ones());
        Ok(count - i64::from(ones - beyond))
    }
}

/// Indexes of the nodes and validity buffers of a column of this type and of its child columns.
fn find_bits(
    of: &DataType,
    node: &mut usize,
    buffer: &mut usize,
    views: &mut impl Iterator<Item = i64>,
    found: &mut Vec<(usize, usize)>,
) -> Option<()> {
    let (buffers, children) = own_parts(of, views)?;
    if buffers > 0 {
        found.push((*node, *buffer));
    }
    (*node, *buffer) = (*node + 1, buffer.checked_add(buffers)?);
    children.into_iter().try_for_each(|child| find_bits(child, node, buffer, views, found))
}

/// True for exactly one LZ4 frame.
fn is_one_frame(bytes: &[u8]) -> bool {
    frame_len(bytes) == Some(bytes.len())
}

/// Length of the frame at the start of `bytes`; `None` if it does not end within them.
fn frame_len(bytes: &[u8]) -> Option<usize> {
    let flags = *bytes.get(4).filter(|_| bytes.starts_with(&LZ4_MAGIC))?;
    let has = |bit: u8| usize::from(flags >> bit & 1);
    // Flags, block sizes, content length, dictionary, header checksum.
    let mut at = 4 + 2 + has(3) * 8 + has(0) * 4 + 1;
    loop {
        let word = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
        at += 4;
        if word == 0 {
            return Some(at + has(2) * 4);
        }
        at = at.checked_add(usize::try_from(word & 0x7fff_ffff).ok()?)?.checked_add(has(4) * 4)?;
    }
}
