//! How long the lists of a column are, by their levels alone: whoever reads rows takes memory for all of their values, and a run of
//! a few bytes can be a list of 2^31.
//!
//! ```text
//! levels    runs, one behind the other; 1: this value goes on with the list before, 0: it begins a list
//! run       number with 7 bits a byte: times two, then a byte with the level of all
//! packed    number with 7 bits a byte: groups of eight times two, and one; a bit for each value, the lowest first
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
    /// The number of values of the longest list of a column of a row group. It unpacks the pages, one after the other.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] where they cannot be unpacked.
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

/// What stands behind its length in 4 bytes.
fn behind_length(bytes: &[u8]) -> Option<&[u8]> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.get(..usize::try_from(u32::from_le_bytes(*len)).ok()?)
}

/// Lists that are counted.
#[derive(Debug, Default)]
struct Lists {
    /// Values of the list that is not known to have ended.
    open: u64,
    longest: u64,
}

impl Lists {
    /// Counts the values of a page. Those without a level go on with the list before.
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

    /// `count` values of one level.
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
    fn the_longest_list_is_found() {
        // One list of five: a run of one 0, a run of four 1.
        assert_eq!(longest(&[(&[2, 0, 8, 1], 5)]), 5);
        // Lists of 3, 1 and 4, in bits: 0 1 1 0 0 1 1 1.
        assert_eq!(longest(&[(&[3, 0b1110_0110], 8)]), 4);
        // Bits behind the last value do not count.
        assert_eq!(longest(&[(&[3, 0b1111_1110], 3)]), 3);
        // A list goes on in the next page.
        assert_eq!(longest(&[(&[2, 0, 8, 1], 5), (&[6, 1, 4, 0], 5)]), 8);
        // Runs that claim more than there are values, and values without levels.
        assert_eq!(longest(&[(&[2, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 1], 1000)]), 1000);
        assert_eq!(longest(&[(&[2, 0], 700), (&[], 3)]), 703);
        // Many of one, and none.
        assert_eq!(longest(&[(&[0xd0, 0x0f, 0], 1000)]), 1);
        assert_eq!(longest(&[(&[0, 1, 0, 0, 2, 0], 1)]), 1);
        assert_eq!(longest(&[]), 0);
    }
}
