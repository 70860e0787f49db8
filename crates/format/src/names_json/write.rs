//! Writer of lists of names, with the bytes of `json.dump(names, indent=4)`.

use crate::json::write_string;
use std::ops::Range;
use std::sync::Arc;
use weighbridge_core::checkpoint::RowNameList;
use weighbridge_core::error::Result;
use weighbridge_io::source::{Source, check_range, to_usize};

/// Names per block.
const BLOCK: usize = 4096;

/// Source with the JSON of a list of names, generated on reading: a table of any size is written without a second copy of its names.
#[derive(Debug)]
pub struct NamesJson {
    label: String,
    names: Arc<RowNameList>,
    rows: Range<usize>,
    /// Offset of each block of names, and the total length.
    offsets: Vec<u64>,
}

impl NamesJson {
    /// Creates the source for the names of a range of rows, without rows past the end of the list. Its name in errors is `label`.
    pub fn new(label: impl Into<String>, names: Arc<RowNameList>, rows: Range<usize>) -> Self {
        let end = rows.end.min(names.len());
        let mut json = Self { label: label.into(), names, rows: rows.start.min(end)..end, offsets: vec![0] };
        let mut offset = 0;
        let mut text = String::new();
        for block in 0..json.blocks() {
            text.clear();
            json.block(block, &mut text);
            offset += text.len() as u64;
            json.offsets.push(offset);
        }
        json
    }

    /// Returns the number of blocks: at least one.
    fn blocks(&self) -> usize {
        self.rows.len().div_ceil(BLOCK).max(1)
    }

    /// Appends the text of a block: its names with their separators, and the brackets of the list.
    fn block(&self, block: usize, out: &mut String) {
        let start = self.rows.start + block * BLOCK;
        let end = (start + BLOCK).min(self.rows.end);
        if self.rows.is_empty() {
            out.push_str("[]");
            return;
        }
        for row in start..end {
            out.push_str(if row == self.rows.start { "[\n    " } else { ",\n    " });
            write_string(out, self.names.get(row).unwrap_or(""));
        }
        if end == self.rows.end {
            out.push_str("\n]");
        }
    }
}

impl Source for NamesJson {
    fn len(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(0)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        // Block with the first byte: the last one that begins at or before it.
        let mut block = self.offsets.partition_point(|&start| start <= offset).saturating_sub(1);
        let mut rest = buffer;
        let mut at = offset;
        let mut text = String::new();
        while !rest.is_empty() {
            text.clear();
            self.block(block, &mut text);
            let within = to_usize(at - self.offsets.get(block).copied().unwrap_or(at))?;
            let bytes = text.as_bytes().get(within..).unwrap_or_default();
            let take = bytes.len().min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&bytes[..take]);
            rest = later;
            at += take as u64;
            block += 1;
        }
        Ok(())
    }

    fn label(&self) -> &str {
        &self.label
    }

    /// Returns true: each read generates its block again.
    fn is_sequential(&self) -> bool {
        true
    }
}

/// Returns the text of a file of names.
pub fn names_json<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for name in names {
        out.push_str(if out.is_empty() { "[\n    " } else { ",\n    " });
        write_string(&mut out, name);
    }
    out.push_str(if out.is_empty() { "[]" } else { "\n]" });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_io::source::read_vec;

    #[test]
    fn writes_the_bytes_of_python() {
        assert_eq!(names_json([]), "[]");
        assert_eq!(
            names_json(["a", "sü\"ß\u{1f600}"]),
            "[\n    \"a\",\n    \"s\\u00fc\\\"\\u00df\\ud83d\\ude00\"\n]"
        );
    }

    #[test]
    fn reads_of_ranges_match_the_whole_text() {
        let names: RowNameList =
            (0..10_000).map(|i| format!("näme {i}")).collect::<Vec<_>>().iter().map(String::as_str).collect();
        let names = Arc::new(names);
        for rows in [0..0, 5..5, 0..1, 0..BLOCK, 1..BLOCK + 2, 3..20_000, 9_999..10_000, 10_000..10_001] {
            let json = NamesJson::new("names", names.clone(), rows.clone());
            let text = names_json(names.iter().skip(rows.start).take(rows.len()));
            let bytes = read_vec(&json, 0, json.len()).unwrap();
            assert_eq!(String::from_utf8(bytes).unwrap(), text);
            let step = (text.len() / 7).max(1);
            for start in (0..text.len()).step_by(step) {
                let end = (start + 3 * step / 2).min(text.len());
                let part = read_vec(&json, start as u64, (end - start) as u64).unwrap();
                assert_eq!(part, &text.as_bytes()[start..end]);
            }
            assert!(read_vec(&json, json.len(), 1).is_err());
        }
    }
}
