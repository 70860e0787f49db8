//! Sizes of the texts of a column, from their lengths alone: a page decoder allocates as many lengths as the page
//! declares, and in prefix encoding a text takes no bytes for a prefix shared with the one before.
//!
//! ```text
//! plain              a length of 4 bytes and a text, repeated
//! delta length       numbers: the lengths; then the texts
//! delta byte array   numbers: length of the prefix shared with the text before; numbers: suffix lengths; the suffixes
//! numbers            values per block, miniblocks per block, count, first value (zigzag), with 7 bits a byte; then blocks
//! block              smallest difference (zigzag); the width of each miniblock, a byte; the differences minus the smallest
//! ```

use super::File;
use crate::table::pipe::guarded;
use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescriptor;
use std::sync::Arc;
use weighbridge_core::error::{Error, Kind, Result};

/// Bytes of a decoded length.
const LENGTH_MEMORY: u64 = 4;

/// Sizes of the texts of a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Texts {
    /// Largest memory of the lengths of a page, in bytes.
    pub(super) lengths: u64,
    /// Bytes of the longest text; 0 where all have one length.
    pub(super) longest: u64,
}

impl File {
    /// Measures the texts of a column of a row group; `values` is the count declared by its page headers. Unpacks the pages
    /// one by one.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if the pages cannot be unpacked; `page-values` if a page has more lengths than values;
    /// [`Kind::Limit`] if there are more names than a name list can hold.
    pub(super) fn texts(&self, group: usize, leaf: usize, values: u64) -> Result<Texts> {
        let label = self.source.0.label();
        let chunk = self.metadata.metadata().row_group(group).column(leaf);
        let column = chunk.column_descr();
        let named = column.physical_type() == Type::BYTE_ARRAY;
        if named {
            // A block of a few bytes can encode millions of lengths.
            self.check_memory(values.saturating_mul(super::VALUE_MEMORY))?;
        }
        let rows = usize::try_from(self.metadata.metadata().row_group(group).num_rows()).unwrap_or(0);
        let found = guarded("a row group", || {
            let mut pages = SerializedPageReader::new(Arc::new(self.source.clone()), chunk, rows, None)?;
            let mut texts = Texts::default();
            while let Some(page) = pages.get_next_page()? {
                let Some((encoding, values, bytes)) = values_of(&page, column) else { continue };
                let of_page = look(encoding, values, bytes, named).ok_or_else(|| {
                    let text = "the number of text lengths in a page differs from its values";
                    let error = Error::corrupt("page-values", text).in_file(label);
                    ParquetError::External(Box::new(error.found(format_args!("{values} values"))))
                })?;
                texts.lengths = texts.lengths.max(of_page.lengths);
                texts.longest = texts.longest.max(of_page.longest);
            }
            Ok::<_, ParquetError>(texts)
        });
        let root = self.metadata.metadata().file_metadata().schema_descr().get_column_root_idx(leaf);
        found.map_err(
            |error| {
                if error.kind() == Kind::Corrupt { self.blame(group, &[root], error) } else { error }
            },
        )
    }
}

/// Encoding of the values of a page, their number, and their bytes; `None` if there are none.
pub(super) fn values_of<'a>(page: &'a Page, column: &ColumnDescriptor) -> Option<(Encoding, u32, &'a [u8])> {
    match page {
        Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, .. } => {
            let mut bytes: &[u8] = buf;
            let levels = [
                (column.max_rep_level(), *rep_level_encoding),
                (column.max_def_level(), *def_level_encoding),
            ];
            for (most, how) in levels.into_iter().filter(|(most, _)| *most > 0) {
                bytes = behind_levels(bytes, most, how, *num_values)?;
            }
            Some((*encoding, *num_values, bytes))
        }
        Page::DataPageV2 { buf, num_values, encoding, def_levels_byte_len, rep_levels_byte_len, .. } => {
            let levels = usize::try_from(rep_levels_byte_len.checked_add(*def_levels_byte_len)?).ok()?;
            Some((*encoding, *num_values, buf.get(levels..)?))
        }
        Page::DictionaryPage { buf, num_values, .. } => Some((Encoding::PLAIN, *num_values, buf)),
    }
}

/// Bytes behind the levels of a version 1 data page.
fn behind_levels(bytes: &[u8], most: i16, how: Encoding, values: u32) -> Option<&[u8]> {
    if how == Encoding::RLE {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        return rest.get(usize::try_from(u32::from_le_bytes(*len)).ok()?..);
    }
    // The older form: bits alone.
    let bits = u64::from(i16::BITS - most.leading_zeros());
    let len = u64::from(values).saturating_mul(bits).div_ceil(8);
    bytes.get(usize::try_from(len).ok()?..)
}

/// Measures the texts of a page; `None` if it has more lengths than `values`, or they end too early. The longest text
/// is searched only where `named`.
fn look(encoding: Encoding, values: u32, bytes: &[u8], named: bool) -> Option<Texts> {
    let values = u64::from(values);
    let mut texts = Texts::default();
    match encoding {
        Encoding::PLAIN if named => {
            let (mut rest, mut left) = (bytes, values);
            while let (1.., Some((len, text))) = (left, rest.split_first_chunk::<4>()) {
                let len = u32::from_le_bytes(*len);
                // A text beyond the page is an error of the decoder.
                let Some(behind) = usize::try_from(len).ok().and_then(|len| text.get(len..)) else { break };
                texts.longest = texts.longest.max(len.into());
                (rest, left) = (behind, left - 1);
            }
        }
        Encoding::DELTA_LENGTH_BYTE_ARRAY => {
            let lengths = Numbers::new(bytes).filter(|lengths| lengths.count <= values)?;
            texts.lengths = lengths.count.saturating_mul(LENGTH_MEMORY);
            if named {
                texts.longest = lengths.filter_map(|len| u64::try_from(len).ok()).max().unwrap_or(0);
            }
        }
        Encoding::DELTA_BYTE_ARRAY => {
            let begun = Numbers::new(bytes).filter(|begun| begun.count <= values)?;
            let rest = Numbers::new(bytes.get(begun.end()?..)?).filter(|rest| rest.count <= values)?;
            texts.lengths = begun.count.saturating_add(rest.count).saturating_mul(LENGTH_MEMORY);
            if named {
                // A prefix is at most the text before; everything else is bytes of the page.
                let (mut before, mut left) = (0u64, bytes.len() as u64);
                for (begun, rest) in begun.zip(rest) {
                    let Some(after) = u64::try_from(rest).ok().and_then(|rest| left.checked_sub(rest)) else {
                        break;
                    };
                    before = u64::try_from(begun).unwrap_or(u64::MAX).min(before) + (left - after);
                    left = after;
                    texts.longest = texts.longest.max(before);
                }
            }
        }
        _ => {}
    }
    Some(texts)
}

/// Delta-encoded numbers.
#[derive(Debug, Clone)]
pub(super) struct Numbers<'a> {
    bytes: &'a [u8],
    /// Total count, and remaining count.
    pub(super) count: u64,
    left: u64,
    /// Miniblocks per block, and numbers per miniblock.
    minis: usize,
    each: u64,
    first: Option<i32>,
    last: i32,
    /// Smallest difference of the block, widths of its miniblocks, the current miniblock, and its remaining count.
    least: i32,
    widths: &'a [u8],
    mini: usize,
    mini_left: u64,
    /// Next bit.
    at: u64,
}

impl<'a> Numbers<'a> {
    /// Returns `None` where the bytes are not delta-encoded numbers.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut at = 0;
        let block = number(bytes, &mut at)?;
        let minis = number(bytes, &mut at)?;
        let count = number(bytes, &mut at)?;
        let first = i32::try_from(zigzag(number(bytes, &mut at)?)).ok()?;
        let each = block.checked_div(minis)?;
        if each == 0 || block % minis != 0 || each % 32 != 0 {
            return None;
        }
        Some(Self {
            bytes,
            count,
            left: count,
            minis: usize::try_from(minis).ok()?,
            each,
            first: Some(first),
            last: 0,
            least: 0,
            widths: &[],
            mini: 0,
            mini_left: 0,
            at: (at as u64).saturating_mul(8),
        })
    }

    /// Returns the number of values.
    pub(super) fn total(&self) -> u64 {
        self.count
    }

    /// End offset of the numbers, before any was read. A miniblock is stored whole or not at all.
    pub(super) fn end(&self) -> Option<usize> {
        let mut at = usize::try_from(self.at / 8).ok()?;
        let mut left = self.count.saturating_sub(1);
        while left > 0 {
            number(self.bytes, &mut at)?;
            let widths = self.bytes.get(at..at.checked_add(self.minis)?)?;
            at += self.minis;
            for &width in widths {
                // Miniblocks behind the last number have a width but no bytes.
                if left == 0 {
                    break;
                }
                let bytes = (self.each / 8).checked_mul(width.into())?;
                at = at.checked_add(usize::try_from(bytes).ok()?)?;
                left = left.saturating_sub(self.each);
            }
        }
        Some(at)
    }
}

impl Iterator for Numbers<'_> {
    type Item = i32;

    fn next(&mut self) -> Option<i32> {
        self.left = self.left.checked_sub(1)?;
        if let Some(first) = self.first.take() {
            self.last = first;
            return Some(first);
        }
        if self.mini_left == 0 {
            self.mini += 1;
            if self.mini >= self.widths.len() {
                let mut at = usize::try_from(self.at / 8).ok()?;
                self.least = i32::try_from(zigzag(number(self.bytes, &mut at)?)).ok()?;
                self.widths = self.bytes.get(at..at.checked_add(self.minis)?)?;
                self.at = ((at + self.minis) as u64).saturating_mul(8);
                self.mini = 0;
            }
            self.mini_left = self.each;
        }
        let width = *self.widths.get(self.mini)?;
        let above = bits(self.bytes, self.at, width)?;
        self.at += u64::from(width);
        self.mini_left -= 1;
        self.last = self.last.wrapping_add(self.least).wrapping_add(above.cast_signed());
        Some(self.last)
    }
}

/// Number of `width` bits (at most 32), lowest bit first.
fn bits(bytes: &[u8], at: u64, width: u8) -> Option<u32> {
    if width > 32 {
        return None;
    }
    let (from, end) = (usize::try_from(at / 8).ok()?, (at + u64::from(width)).div_ceil(8));
    let bytes = bytes.get(from..usize::try_from(end).ok()?.max(from))?;
    let all = bytes.iter().rev().fold(0u64, |all, &byte| all << 8 | u64::from(byte));
    u32::try_from(all >> (at % 8) & ((1 << width) - 1)).ok()
}

/// Number with 7 bits a byte; `None` also for values of 2^63 and above.
fn number(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, RecordBatch, StringArray, StringViewArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::{WriterProperties, WriterVersion};
    use weighbridge_format::OpenOptions;
    use weighbridge_io::source::{MemorySource, SourceRef};

    /// Table of names alone.
    fn table(names: &ArrayRef, encoding: Encoding, version: WriterVersion, optional: bool) -> SourceRef {
        let batch = RecordBatch::try_from_iter_with_nullable([("name", names.clone(), optional)]).unwrap();
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_dictionary_enabled(encoding == Encoding::RLE_DICTIONARY)
            .set_data_page_size_limit(4096)
            .set_data_page_row_count_limit(1000);
        let properties = match encoding {
            Encoding::RLE_DICTIONARY => properties,
            _ => properties.set_encoding(encoding),
        };
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties.build())).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        Arc::new(MemorySource::new("m", file))
    }

    /// Texts written by the library are measured as declared, and can be read.
    #[test]
    fn measured_text_sizes_match_decoded_ones() {
        let long = "n".repeat(900);
        let word = |n: usize| match n % 500 {
            77 => format!("{long}{n}"),
            78 => long.clone(),
            79 => String::new(),
            _ => format!("user_{n:08}"),
        };
        for count in [1, 2, 3, 129, 5000] {
            let words: Vec<String> = (0..count).map(word).collect();
            let longest = words.iter().map(String::len).max().unwrap() as u64;
            let text: ArrayRef = Arc::new(StringArray::from(words.clone()));
            let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(&words));
            for encoding in [
                Encoding::PLAIN,
                Encoding::DELTA_LENGTH_BYTE_ARRAY,
                Encoding::DELTA_BYTE_ARRAY,
                Encoding::RLE_DICTIONARY,
            ] {
                for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
                    for (names, optional) in [(&text, false), (&text, true), (&views, false)] {
                        let source = table(names, encoding, version, optional);
                        let options = OpenOptions::default();
                        let file = File::read(&source, &options.limits).unwrap();
                        let found = file.texts(0, 0, count as u64).unwrap();
                        let what = format!("{count} {encoding} {version:?} {optional}");
                        assert_eq!(found.longest, longest, "{what}");
                        let list =
                            super::super::open(&source, &options).unwrap().tensors[0].row_names.clone();
                        let list = list.unwrap().read().unwrap();
                        assert!(list.iter().eq(words.iter().map(String::as_str)), "{what}");
                    }
                }
            }
        }
    }

    /// `count` numbers: the first, and then blocks of `block` that each take three bytes.
    fn same(count: u64, block: u64, first: u8) -> Vec<u8> {
        let varint = |mut n: u64| {
            let mut out = Vec::new();
            while n >= 0x80 {
                out.push(n.to_le_bytes()[0] | 0x80);
                n >>= 7;
            }
            out.push(n.to_le_bytes()[0]);
            out
        };
        let blocks = count.saturating_sub(1).div_ceil(block);
        let blocks = [0, 0].repeat(usize::try_from(blocks).unwrap());
        [varint(block), varint(1), varint(count), vec![first * 2], blocks].concat()
    }

    #[test]
    fn rejects_more_text_lengths_than_values() {
        let (lengths, prefixes) = (Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY);
        let two = |begun: u64, rest: u64| [same(begun, 1 << 30, 0), same(rest, 1 << 30, 0)].concat();
        for (bytes, encoding, values, expected) in [
            (same(1000, 1 << 30, 3), lengths, 1000, Some((4000, 3))),
            (same(1001, 1 << 30, 3), lengths, 1000, None),
            (same(2_000_000_000, 1 << 30, 0), lengths, 10, None),
            (two(1000, 1000), prefixes, 1000, Some((8000, 0))),
            (two(1001, 1000), prefixes, 1000, None),
            (two(1000, 2_000_000_000), prefixes, 1000, None),
            (vec![], lengths, 10, None),
            (vec![0, 1, 5, 0], lengths, 10, None),
            (vec![128, 1, 0, 5, 0], lengths, 10, None),
            (vec![9; 40], Encoding::RLE_DICTIONARY, 10, Some((0, 0))),
        ] {
            let found = look(encoding, values, &bytes, true).map(|texts| (texts.lengths, texts.longest));
            assert_eq!(found, expected, "{encoding} {values} {:?}", &bytes[..bytes.len().min(12)]);
        }
        // The second has the first as its prefix.
        let bytes = [&[128, 1, 1, 2, 0, 6, 0, 128, 1, 1, 2, 6, 5, 0][..], b"abc"].concat();
        assert_eq!(look(prefixes, 2, &bytes, true), Some(Texts { lengths: 16, longest: 3 }));
    }
}
