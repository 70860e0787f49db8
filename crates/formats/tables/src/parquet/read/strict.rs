//! Checks of Arrow's own reader that the library used here skips: counts, types and levels that agree with
//! the footer. Only `verify` runs them, because they unpack all pages of the table.
//!
//! ```text
//! levels, indexes   consecutive runs
//! run               number with 7 bits a byte: count times two, then the value in as few bytes as its width needs
//! packed            number with 7 bits a byte: groups of eight times two, plus one; the values, lowest bits first
//! ```

use super::texts::{Numbers, values_of};
use super::{File, Layout, footer};
use crate::parquet::{footer as thrift, pages};
use crate::table::flat;
use crate::table::pipe::guarded;
use arrow_ipc::{MessageHeader, MetadataVersion};
use arrow_schema::DataType;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::basic::{Compression, ConvertedType, Encoding, LogicalType, Type};
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::{ColumnDescriptor, Type as Node};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{SourceRef, read_vec};

impl File {
    /// Compares the columns of the table with the footer.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `footer`, `column-type`, `page-values`, `page-size`, `levels`; errors of unpacking.
    pub(super) fn check_strictly(&self) -> Result<()> {
        let source = &self.source.0;
        let metadata = self.metadata.metadata();
        let file = metadata.file_metadata();
        let schema = file.schema_descr();
        check_nodes(schema.root_schema())?;
        let (place, bytes) = footer(source, &self.limits)?;
        let at_footer = |error: Error| error.in_file(source.label()).at(place);
        if let Some(orders) = file.column_orders().filter(|orders| orders.len() != schema.num_columns()) {
            return Err(at_footer(wrong("the number of column orders differs from the number of columns"))
                .expected(schema.num_columns())
                .found(orders.len()));
        }
        for pair in file.key_value_metadata().into_iter().flatten() {
            if pair.key == ARROW_SCHEMA_META_KEY {
                check_arrow_schema(pair.value.as_deref().unwrap_or_default()).map_err(at_footer)?;
                break;
            }
        }
        let rows = metadata.row_groups().iter().fold(0i64, |sum, group| sum.saturating_add(group.num_rows()));
        if rows != file.num_rows() {
            return Err(at_footer(wrong("the rows of all row groups differ from the footer"))
                .expected(file.num_rows())
                .found(rows));
        }
        let layout = Layout::of(self.metadata.schema(), &mut Vec::new())?;
        let mut types = thrift::types(&bytes).into_iter();
        for (group, of) in metadata.row_groups().iter().enumerate() {
            for (leaf, chunk) in of.columns().iter().enumerate() {
                let column = chunk.column_descr();
                let named = |error: Error| {
                    at_footer(error.within(format_args!("column {} of row group {group}", column.path())))
                };
                if types.next() != Some(number_of(column.physical_type())) {
                    return Err(named(Error::corrupt(
                        "column-type",
                        "the column type differs from the schema",
                    )));
                }
                let root = schema.get_column_root_idx(leaf);
                if layout.reads(root) {
                    self.check_counts(root, chunk, of.num_rows()).map_err(named)?;
                    self.check_pages(group, &[root], 1, 1)?;
                    self.check_chunk(group, leaf)?;
                }
            }
        }
        Ok(())
    }

    /// Checks the counts of a column in the footer for consistency.
    fn check_counts(&self, root: usize, chunk: &ColumnChunkMetaData, rows: i64) -> Result<()> {
        let column = chunk.column_descr();
        for (histogram, most) in [
            (chunk.repetition_level_histogram(), column.max_rep_level()),
            (chunk.definition_level_histogram(), column.max_def_level()),
        ] {
            let count = histogram.map_or(0, |histogram| histogram.values().len());
            if count > 0 && i64::try_from(count) != Ok(i64::from(most) + 1) {
                return Err(wrong("the number of level counts differs from the number of levels")
                    .expected(i64::from(most) + 1)
                    .found(count));
            }
        }
        // Each row has one value, missing or not; a fixed-size list has as many as its size, and one if it is empty.
        let expected = match self.metadata.schema().fields().get(root).map(|field| field.data_type()) {
            Some(DataType::FixedSizeList(_, width)) => rows.checked_mul(i64::from((*width).max(1))),
            _ if column.max_rep_level() == 0 => Some(rows),
            _ => return Ok(()),
        };
        if expected != Some(chunk.num_values()) {
            return Err(Error::corrupt(
                "page-values",
                "the number of values of the column differs from its rows",
            )
            .expected(expected.unwrap_or(i64::MAX))
            .found(chunk.num_values()));
        }
        Ok(())
    }

    /// Unpacks the pages of a column one by one, and compares them with the footer.
    fn check_chunk(&self, group: usize, leaf: usize) -> Result<()> {
        let source = &self.source.0;
        let group = self.metadata.metadata().row_group(group);
        let chunk = group.column(leaf);
        let (start, len) = guarded("a row group", || Ok::<_, ParquetError>(chunk.byte_range()))?;
        let heads = pages::all(source, start..start.saturating_add(len))?;
        let mut values = 0u64;
        for (number, page) in heads.iter().enumerate() {
            let fail = |error: Error| Err(error.in_file(source.label()).at(page.offset));
            if chunk.compression() == Compression::UNCOMPRESSED && page.unpacked != page.stored {
                let text = "an uncompressed page has two different lengths";
                return fail(Error::corrupt("page-size", text).expected(page.stored).found(page.unpacked));
            }
            if page.is_dictionary && number > 0 {
                return fail(Error::corrupt(
                    "page-values",
                    "a dictionary page follows the data of its column",
                ));
            }
            values = values.saturating_add(if page.is_dictionary { 0 } else { page.values });
        }
        if i64::try_from(values) != Ok(chunk.num_values()) {
            return Err(Error::corrupt(
                "page-values",
                "the values in the pages of a column differ from the footer",
            )
            .in_file(source.label())
            .at(start)
            .expected(chunk.num_values())
            .found(values));
        }
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        let mut pages = guarded("a row group", || {
            SerializedPageReader::new(Arc::new(self.source.clone()), chunk, rows, None)
        })?;
        let mut dictionary = None;
        let mut heads = heads.iter();
        while let Some(page) = guarded("a page", || pages.get_next_page())? {
            let head = heads.next();
            if !has_length(&page, head, chunk, source)? {
                let error =
                    Error::corrupt("page-size", "the unpacked length of a page differs from its header");
                return Err(error.in_file(source.label()).at(head.map_or(start, |head| head.offset)));
            }
            if let Page::DictionaryPage { num_values, buf, .. } = &page {
                dictionary = Some(*num_values);
                if chunk.column_type() == Type::BYTE_ARRAY && !has_texts(buf, *num_values) {
                    let error = Error::corrupt(
                        "page-values",
                        "a dictionary has fewer values than its header declares",
                    );
                    return Err(error.in_file(source.label()).at(head.map_or(start, |head| head.offset)));
                }
            } else if check_page(&page, chunk.column_descr(), dictionary).is_none() {
                let error =
                    Error::corrupt("levels", "the levels or values of a page do not match its header");
                return Err(error.in_file(source.label()).at(head.map_or(start, |head| head.offset)));
            }
        }
        Ok(())
    }
}

/// True where the length inside a Snappy page equals the length in its header. The library pads
/// missing bytes.
fn has_length(
    page: &Page,
    head: Option<&pages::Page>,
    chunk: &ColumnChunkMetaData,
    source: &SourceRef,
) -> Result<bool> {
    let Some(head) = head.filter(|_| chunk.compression() == Compression::SNAPPY) else { return Ok(true) };
    let levels = match page {
        Page::DataPageV2 { is_compressed: false, .. } => return Ok(true),
        Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
            u64::from(*def_levels_byte_len).saturating_add(u64::from(*rep_levels_byte_len))
        }
        _ => 0,
    };
    let at = head.offset.saturating_add(head.head).saturating_add(levels);
    let end = head.offset.saturating_add(head.head).saturating_add(head.stored);
    let bytes = read_vec(&**source, at, end.saturating_sub(at).min(10))?;
    Ok(bytes.is_empty() || varint(&mut &bytes[..]) == head.unpacked.checked_sub(levels))
}

/// True where `count` length-prefixed texts fit in `bytes`.
fn has_texts(mut bytes: &[u8], count: u32) -> bool {
    (0..count).all(|_| {
        let text = bytes
            .split_first_chunk::<4>()
            .and_then(|(len, rest)| rest.get(usize::try_from(u32::from_le_bytes(*len)).ok()?..));
        bytes = text.unwrap_or_default();
        text.is_some()
    })
}

fn wrong(text: &'static str) -> Error {
    Error::corrupt("footer", text)
}

/// Number of a physical type in a footer.
fn number_of(of: Type) -> i32 {
    match of {
        Type::BOOLEAN => 0,
        Type::INT32 => 1,
        Type::INT64 => 2,
        Type::INT96 => 3,
        Type::FLOAT => 4,
        Type::DOUBLE => 5,
        Type::BYTE_ARRAY => 6,
        Type::FIXED_LEN_BYTE_ARRAY => 7,
    }
}

/// Compares the groups of a schema with their declared types. The depth of the schema was bounded before.
fn check_nodes(root: &Node) -> Result<()> {
    for node in root.get_fields() {
        if !node.is_group() {
            continue;
        }
        let info = node.get_basic_info();
        let is_logical = info.logical_type_ref().is_none_or(|of| {
            matches!(of, LogicalType::List | LogicalType::Map | LogicalType::Variant { .. })
        });
        let is_map = matches!(info.converted_type(), ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE);
        let is_converted =
            is_map || matches!(info.converted_type(), ConvertedType::NONE | ConvertedType::LIST);
        let keys =
            node.get_fields().first().filter(|_| matches!(info.logical_type_ref(), Some(LogicalType::Map)));
        let has_keys = keys.is_none_or(|pairs| {
            let key = pairs.is_group().then(|| pairs.get_fields().first()).flatten();
            key.is_some_and(|key| !key.is_optional())
        });
        if !is_logical || !is_converted || !has_keys {
            let text = "the declared type of a column group does not match its columns";
            return Err(wrong(text).found(weighbridge_core::text::escape(node.name())));
        }
        check_nodes(node)?;
    }
    Ok(())
}

/// Compares the Arrow schema in the metadata with its own length and version.
fn check_arrow_schema(text: &str) -> Result<()> {
    let Ok(bytes) = STANDARD.decode(text) else { return Err(wrong("the Arrow schema is not base64")) };
    let skip = flat::start_of(&bytes);
    let rest = bytes.get(skip..).unwrap_or_default();
    let length =
        bytes.get(skip.saturating_sub(4)..skip).and_then(<[u8]>::first_chunk).map(|b| u32::from_le_bytes(*b));
    if skip > 0
        && length.and_then(|len| usize::try_from(len).ok()).is_none_or(|len| len == 0 || len > rest.len())
    {
        return Err(wrong("the length of the Arrow schema differs from its prefix"));
    }
    let message = flat::message("the Arrow schema", rest)?;
    if message.header_type() != MessageHeader::Schema
        || !matches!(message.version(), MetadataVersion::V4 | MetadataVersion::V5)
    {
        return Err(wrong("the Arrow schema has an unsupported version").found(message.version().0));
    }
    Ok(())
}

/// Compares the levels and values of a data page with its value count; `None` where they disagree.
fn check_page(page: &Page, column: &ColumnDescriptor, dictionary: Option<u32>) -> Option<()> {
    let all = u64::from(page.num_values());
    let (rep, def) = (column.max_rep_level(), column.max_def_level());
    let most = |level: i16| u64::try_from(level).unwrap_or(0);
    // Present values; with the older level encoding, all values.
    let present = match page {
        Page::DataPage { buf, def_level_encoding, rep_level_encoding, .. } => {
            let (mut bytes, mut present): (&[u8], u64) = (buf, all);
            for (level, how) in [(rep, *rep_level_encoding), (def, *def_level_encoding)] {
                if level > 0 && how == Encoding::RLE {
                    let (len, rest) = bytes.split_first_chunk::<4>()?;
                    let (levels, rest) =
                        rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
                    present = runs(levels, bits(most(level)), all, most(level))?;
                    bytes = rest;
                } else if level > 0 {
                    return Some(());
                }
            }
            if def > 0 { present } else { all }
        }
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            let (levels, rest) = buf.split_at_checked(usize::try_from(*rep_levels_byte_len).ok()?)?;
            if rep > 0 {
                runs(levels, bits(most(rep)), all, most(rep))?;
            }
            let levels = rest.get(..usize::try_from(*def_levels_byte_len).ok()?)?;
            if def > 0 { runs(levels, bits(most(def)), all, most(def))? } else { all }
        }
        Page::DictionaryPage { .. } => return Some(()),
    };
    let (encoding, _, bytes) = values_of(page, column)?;
    if present == 0 {
        return Some(());
    }
    match encoding {
        Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY => {
            let (&width, places) = bytes.split_first()?;
            let last = u64::from(dictionary?.checked_sub(1)?);
            (width <= 32).then_some(())?;
            runs(places, width.into(), present, last)?;
        }
        Encoding::DELTA_BYTE_ARRAY => {
            let begun = Numbers::new(bytes)?;
            let rest = Numbers::new(bytes.get(begun.end()?..)?)?;
            (begun.count == present && rest.count == present).then_some(())?;
            let mut before = 0i64;
            for (begun, rest) in begun.zip(rest) {
                (0..=before).contains(&i64::from(begun)).then_some(())?;
                (rest >= 0).then_some(())?;
                before = i64::from(begun) + i64::from(rest);
            }
        }
        Encoding::BYTE_STREAM_SPLIT => {
            let width = match column.physical_type() {
                Type::INT32 | Type::FLOAT => 4,
                Type::INT64 | Type::DOUBLE => 8,
                _ => usize::try_from(column.type_length()).ok().filter(|&width| width > 0)?,
            };
            bytes.len().is_multiple_of(width).then_some(())?;
        }
        Encoding::DELTA_LENGTH_BYTE_ARRAY => {
            let mut lengths = Numbers::new(bytes)?;
            (lengths.count == present && lengths.all(|len| len >= 0)).then_some(())?;
        }
        _ => {}
    }
    Some(())
}

/// Number of bits for values up to `most`.
fn bits(most: u64) -> u32 {
    u64::BITS - most.leading_zeros()
}

/// Walks runs of `width`-bit values, up to `values` of them, and returns the number equal to `most`. `None` if they end
/// early, a value exceeds `most`, or a run is empty or shorter than declared.
fn runs(mut bytes: &[u8], width: u32, values: u64, most: u64) -> Option<u64> {
    let (mut left, mut count) = (values, 0);
    while left > 0 {
        let head = varint(&mut bytes)?;
        let (run, is_packed) = (head >> 1, head & 1 == 1);
        if run == 0 {
            return None;
        }
        if !is_packed {
            let (value, rest) = bytes.split_at_checked(usize::try_from(width.div_ceil(8)).ok()?)?;
            let value = value.iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
            if value > most {
                return None;
            }
            count += if value == most { run.min(left) } else { 0 };
            left -= run.min(left);
            bytes = rest;
            continue;
        }
        let (packed, rest) = bytes.split_at_checked(usize::try_from(run.checked_mul(width.into())?).ok()?)?;
        let (mut held, mut there, mut packed) = (0u64, 0u32, packed.iter());
        for _ in 0..run.saturating_mul(8).min(left) {
            while there < width {
                held |= u64::from(*packed.next()?) << there;
                there += 8;
            }
            let value = held & ((1u64 << width) - 1);
            (held, there) = (held >> width, there - width);
            if value > most {
                return None;
            }
            count += u64::from(value == most);
        }
        left -= run.saturating_mul(8).min(left);
        bytes = rest;
    }
    Some(count)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
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

    #[test]
    fn rejects_runs_with_values_beyond_their_bound() {
        // Five of 1; three bits 1 0 1 and five more; a run longer than requested.
        assert_eq!(runs(&[10, 1], 1, 5, 1), Some(5));
        assert_eq!(runs(&[3, 0b101], 1, 3, 1), Some(2));
        assert_eq!(runs(&[200, 1, 1], 1, 3, 1), Some(3));
        // Indexes of three bits: 1 2 3 and five of 0; the last bytes of a run that begins inside a byte.
        assert_eq!(runs(&[3, 0b1101_0001, 0, 0], 3, 8, 3), Some(1));
        // Values beyond the bound, in both forms; runs without values; too few bytes; too few values.
        assert_eq!(runs(&[10, 159], 1, 5, 1), None);
        assert_eq!(runs(&[3, 0b1101_0001, 0, 0], 3, 8, 2), None);
        assert_eq!(runs(&[0, 1], 1, 1, 1), None);
        assert_eq!(runs(&[1], 1, 1, 1), None);
        assert_eq!(runs(&[95, 0xff], 1, 8, 1), None);
        assert_eq!(runs(&[4, 1], 1, 3, 1), None);
        // A dictionary of one value has indexes of zero bits.
        assert_eq!(runs(&[20], 0, 10, 0), Some(10));
    }
}
