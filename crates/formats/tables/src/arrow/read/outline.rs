//! What stands around the elements: messages, their heads, the buffers of other columns, the footer.

use super::{File, Layout, buffers_of, record_batch};
use arrow_ipc::Block;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

/// What the file begins with: its mark, and two bytes up to a multiple of 8. Zeros up to a further multiple may follow.
const START: u64 = 8;
/// Buffers and messages begin at a multiple of this; most writers take 64.
const ALIGNMENT: u64 = 8;
/// As far as writers align.
const MOST_ALIGNMENT: u64 = 64;
/// A message without length.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// What may stand before a message: a mark, and its length.
const MARK: [u8; 4] = [0xff; 4];

pub(in crate::arrow) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let file = File::read(source, limits)?;
    let layout = Layout::of(&file.schema, &mut Vec::new())?;
    file.check_overlap()?;
    let mut outline = Outline::new(Gaps::Zeros(MOST_ALIGNMENT));
    outline.elements = true;
    outline.header(0, START, "arrow mark");
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
    // A message without length may end the messages, as it does in a stream.
    let mut end = start + schema;
    for block in file.dictionaries.iter().chain(&file.blocks) {
        let (offset, _, len) = file.place(block)?;
        end = end.max(offset.saturating_add(len));
    }
    if end.saturating_add(END.len() as u64) <= file.footer
        && read_vec(&**source, end, END.len() as u64)? == END
    {
        outline.header(end, END.len() as u64, "end of messages");
    }
    outline.header(file.footer, source.len() - file.footer, "footer");
    Ok(outline)
}

/// Where the first message begins, of the bytes before `end`: some writers align it further than the mark.
fn first_message(source: &SourceRef, end: u64) -> Result<u64> {
    let room = end.saturating_sub(START).min(MOST_ALIGNMENT - START + ALIGNMENT);
    let bytes = read_vec(&**source, START, room)?;
    let (words, _) = bytes.as_chunks::<8>();
    let zeros = words.iter().take_while(|word| **word == [0; 8]).count();
    // Nothing but zeros is no message.
    Ok(if zeros == words.len() { START } else { START + zeros as u64 * ALIGNMENT })
}

/// Bytes of the message at `at`, its mark and length among them, of those before `end`.
fn message_len(source: &SourceRef, at: u64, end: u64) -> Result<u64> {
    if end < at.saturating_add(8) {
        return Ok(0);
    }
    let head = read_vec(&**source, at, 8)?;
    let number = |at: usize| {
        head.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from(u32::from_le_bytes(*b)))
    };
    let len = if head.starts_with(&MARK) { number(4) + 8 } else { number(0) + 4 };
    Ok(if len <= end - at { len } else { 0 })
}

impl File {
    fn outline_batch(&self, block: &Block, elements: &[usize], outline: &mut Outline) -> Result<()> {
        let (offset, len, all) = self.place(block)?;
        outline.header(offset, len, "head of a batch");
        let bytes = read_vec(&*self.source, offset, len)?;
        let head = record_batch(&bytes).map_err(|e| e.at(offset))?;
        let buffers = buffers_of(&head)?;
        let body = offset.saturating_add(len);
        let of_column = self.columns_of(&head, buffers.len());
        let mut unaligned = 0u64;
        for (number, &(at, size)) in buffers.iter().enumerate() {
            if at.checked_add(size).is_none_or(|end| end > all - len) {
                return Err(Error::corrupt("past-the-end", "a buffer leaves its batch").at(offset));
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
            let text = format!("{unaligned} buffers of a batch do not begin at a multiple of {ALIGNMENT}");
            outline.findings.push(Finding::warning("unaligned-buffers", text).at(offset));
        }
        Ok(())
    }
}
