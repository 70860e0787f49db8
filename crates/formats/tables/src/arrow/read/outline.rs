//! Outline of everything but the elements: messages, their headers, buffers of other columns, the footer.

use super::{File, Layout, buffers_of, record_batch};
use arrow_ipc::Block;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

/// Length of the magic and its padding to a multiple of 8. Zeros up to a larger multiple may follow.
const MAGIC_LEN: u64 = 8;
/// Alignment of buffers and messages; most writers use 64.
const ALIGNMENT: u64 = 8;
/// Largest alignment used by writers.
const MAX_ALIGNMENT: u64 = 64;
/// End-of-stream marker: a message without length.
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Continuation marker that may precede the length of a message.
const CONTINUATION: [u8; 4] = [0xff; 4];

pub(in crate::arrow) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let file = File::read(source, limits)?;
    let layout = Layout::of(&file.schema, &mut Vec::new())?;
    file.check_overlap()?;
    let mut outline = Outline::new(Gaps::Zeros(MAX_ALIGNMENT));
    outline.elements = true;
    outline.header(0, MAGIC_LEN, "arrow magic");
    let start = first_message(source, file.footer)?;
    let schema = message_len(source, start, file.footer)?;
    outline.header(start, schema, "schema");
    for block in &file.dictionaries {
        let (offset, _, len) = file.place(block)?;
        outline.header(offset, len, "dictionary");
    }
    let elements = layout.elements();
    for block in &file.blocks {
        file.outline_batch(block, &elements, &mut outline)?;
    }
    // An end-of-stream marker may end the messages, as in a stream.
    let mut end = start + schema;
    for block in file.dictionaries.iter().chain(&file.blocks) {
        let (offset, _, len) = file.place(block)?;
        end = end.max(offset.saturating_add(len));
    }
    if end.saturating_add(END_OF_STREAM.len() as u64) <= file.footer
        && read_vec(&**source, end, END_OF_STREAM.len() as u64)? == END_OF_STREAM
    {
        outline.header(end, END_OF_STREAM.len() as u64, "end of messages");
    }
    outline.header(file.footer, source.len() - file.footer, "footer");
    Ok(outline)
}

/// Offset of the first message before `end`: some writers align it further than the magic.
fn first_message(source: &SourceRef, end: u64) -> Result<u64> {
    let room = end.saturating_sub(MAGIC_LEN).min(MAX_ALIGNMENT - MAGIC_LEN + ALIGNMENT);
    let bytes = read_vec(&**source, MAGIC_LEN, room)?;
    let (words, _) = bytes.as_chunks::<8>();
    let zeros = words.iter().take_while(|word| **word == [0; 8]).count();
    // Zeros alone are not a message.
    Ok(if zeros == words.len() { MAGIC_LEN } else { MAGIC_LEN + zeros as u64 * ALIGNMENT })
}

/// Length of the message at `at`, including its marker and length, bounded by `end`.
fn message_len(source: &SourceRef, at: u64, end: u64) -> Result<u64> {
    if end < at.saturating_add(8) {
        return Ok(0);
    }
    let head = read_vec(&**source, at, 8)?;
    let number = |at: usize| {
        head.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from(u32::from_le_bytes(*b)))
    };
    let len = if head.starts_with(&CONTINUATION) { number(4) + 8 } else { number(0) + 4 };
    Ok(if len <= end - at { len } else { 0 })
}

impl File {
    fn outline_batch(&self, block: &Block, elements: &[usize], outline: &mut Outline) -> Result<()> {
        let (offset, len, all) = self.place(block)?;
        outline.header(offset, len, "record batch header");
        let bytes = read_vec(&*self.source, offset, len)?;
        let head = record_batch(&bytes).map_err(|e| e.at(offset))?;
        let buffers = buffers_of(&head)?;
        let body = offset.saturating_add(len);
        let of_column = self.columns_of(&head, buffers.len());
        let mut unaligned = 0u64;
        for (number, &(at, size)) in buffers.iter().enumerate() {
            if at.checked_add(size).is_none_or(|end| end > all - len) {
                return Err(
                    Error::corrupt("past-the-end", "a buffer extends beyond its record batch").at(offset)
                );
            }
            unaligned += u64::from(!body.saturating_add(at).is_multiple_of(ALIGNMENT));
            match of_column.get(number) {
                Some(column) if elements.binary_search(column).is_ok() => {
                    outline.elements(body + at, size, "elements")
                }
                Some(_) => outline.header(body + at, size, "another column"),
                None => outline.header(body + at, size, "a column"),
            }
        }
        if unaligned > 0 {
            let text = format!("{unaligned} buffers of a record batch are not aligned to {ALIGNMENT} bytes");
            outline.findings.push(Finding::warning("unaligned-buffers", text).at(offset));
        }
        Ok(())
    }
}
