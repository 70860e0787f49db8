//! Lengths of the lists of a column, from their levels alone: a row reader allocates all of their values, and a run of
//! a few bytes can be a list of 2^31 values.
//!
//! ```text
//! levels    consecutive runs; 1: the value continues the list, 0: it starts a list
//! run       number with 7 bits a byte: count times two, then a byte with the level of all
//! packed    number with 7 bits a byte: groups of eight times two, plus one; one bit per value, lowest bit first
//! ```

use super::File;
use crate::table::pipe::guarded;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::serialized_reader::SerializedPageReader;
use std::sync::Arc;
use weighbridge_core::error::Result;

impl File {
    /// Returns the number of values of the longest list of a column of a row group. Unpacks the pages one by one.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] if the pages cannot be unpacked.
    pub(super) fn longest_list(&self, group: usize, leaf: usize) -> Result<u64> {
        let group = self.metadata.metadata().row_group(group);
        guarded("a row group", || {
            let chunk = group.column(leaf);
            let plain = chunk.column_descr().max_rep_level() == 1;
            let rows = usize::try_from(group.num_rows()).unwrap_or(0);
            let mut pages = SerializedPageReader::new(Arc::new(self.source.clone()), chunk, rows, None)?;
            let mut lists = Lists::default();
            while let Some(page) = pages.get_next_page()? {
                let (levels, values) = match &page {
                    Page::DataPage { buf, num_values, rep_level_encoding: Encoding::RLE, .. } => {
                        (behind_length(buf), *num_values)
                    }
                    Page::DataPage { num_values, .. } => (None, *num_values),
                    Page::DataPageV2 { buf, num_values, rep_levels_byte_len, .. } => (
                        usize::try_from(*rep_levels_byte_len).ok().and_then(|len| buf.get(..len)),
                        *num_values,
                    ),
                    Page::DictionaryPage { .. } => continue,
                };
                lists.page(levels.filter(|_| plain).unwrap_or_default(), values.into());
            }
            Ok::<_, ParquetError>(lists.longest)
        })
    }
}

/// Bytes behind a length prefix of 4 bytes.
fn behind_length(bytes: &[u8]) -> Option<&[u8]> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.get(..usize::try_from(u32::from_le_bytes(*len)).ok()?)
}

/// Counter of list lengths.
#[derive(Debug, Default)]
struct Lists {
    /// Values of the list that may still continue.
    open: u64,
    longest: u64,
}

impl Lists {
    /// Counts the values of a page. Values without a level continue the list.
    fn page(&mut self, levels: &[u8], mut values: u64) {
        let mut levels = levels.iter().copied();
        while values > 0 {
            let Some(head) = varint(&mut levels) else { break };
            let count = head >> 1;
            if head & 1 == 0 {
                let Some(level) = levels.next() else { break };
                let count = count.min(values);
                self.run(level & 1, count);
                values -= count;
                continue;
            }
            for byte in levels.by_ref().take(usize::try_from(count).unwrap_or(usize::MAX)) {
                for bit in 0..values.min(8) {
                    self.run(byte >> bit & 1, 1);
                }
                values = values.saturating_sub(8);
            }
        }
        self.run(1, values);
    }

    /// Counts `count` values of one level.
    fn run(&mut self, level: u8, count: u64) {
        match level {
            0 if count > 0 => self.open = 1,
            0 => {}
            _ => self.open = self.open.saturating_add(count),
        }
        self.longest = self.longest.max(self.open);
    }
}

fn varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(pages: &[(&[u8], u64)]) -> u64 {
        let mut lists = Lists::default();
        pages.iter().for_each(|(levels, values)| lists.page(levels, *values));
        lists.longest
    }

    #[test]
    fn finds_the_longest_list() {
        // One list of five: a run of one 0, a run of four 1.
        assert_eq!(longest(&[(&[2, 0, 8, 1], 5)]), 5);
        // Lists of 3, 1 and 4, in bits: 0 1 1 0 0 1 1 1.
        assert_eq!(longest(&[(&[3, 0b1110_0110], 8)]), 4);
        // Bits behind the last value do not count.
        assert_eq!(longest(&[(&[3, 0b1111_1110], 3)]), 3);
        // A list continues in the next page.
        assert_eq!(longest(&[(&[2, 0, 8, 1], 5), (&[6, 1, 4, 0], 5)]), 8);
        // Runs that claim more values than exist, and values without levels.
        assert_eq!(longest(&[(&[2, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 1], 1000)]), 1000);
        assert_eq!(longest(&[(&[2, 0], 700), (&[], 3)]), 703);
        // Many lists of one value, and none.
        assert_eq!(longest(&[(&[0xd0, 0x0f, 0], 1000)]), 1);
        assert_eq!(longest(&[(&[0, 1, 0, 0, 2, 0], 1)]), 1);
        assert_eq!(longest(&[]), 0);
    }
}
