//! Scan of the texts of all columns, also inside lists: page by page, dictionary texts once.

use super::texts::{Numbers, values_of};
use super::{COPIES, File, READER_MEMORY};
use crate::table::binaries::Binaries;
use crate::table::pipe::guarded;
use parquet::basic::{Encoding, Type};
use parquet::column::page::PageReader;
use parquet::errors::ParquetError;
use parquet::file::serialized_reader::SerializedPageReader;
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::escape;
use weighbridge_scan::Scan;

impl File {
    /// Scans the texts of columns that are not binary.
    ///
    /// # Errors
    /// Errors unrelated to the file. A column that cannot be scanned is a finding.
    pub(super) fn look_at_texts(&self, binaries: &mut Binaries<'_>, scan: &mut Scan) -> Result<()> {
        let metadata = self.metadata.metadata();
        let schema = metadata.file_metadata().schema_descr();
        for leaf in 0..schema.num_columns() {
            let column = schema.column(leaf);
            let is_text = column.physical_type() == Type::BYTE_ARRAY
                && !binaries.columns.contains(&schema.get_column_root_idx(leaf));
            if !is_text {
                continue;
            }
            let name = escape(&column.path().string());
            for group in 0..metadata.num_row_groups() {
                if let Err(error) = self.texts_of_chunk(group, leaf, &name, binaries, scan) {
                    scan.push_error(error.within(format_args!("the column {name}")))?;
                    break;
                }
            }
        }
        Ok(())
    }

    fn texts_of_chunk(
        &self,
        group: usize,
        leaf: usize,
        name: &str,
        binaries: &mut Binaries<'_>,
        scan: &mut Scan,
    ) -> Result<()> {
        let chunk = self.metadata.metadata().row_group(group).column(leaf);
        let (start, len) = guarded("a row group", || Ok::<_, ParquetError>(chunk.byte_range()))?;
        let range = start..start.saturating_add(len);
        let held =
            self.check_column((group, leaf), range, chunk.compression())?.held.saturating_add(READER_MEMORY);
        self.check_memory(held.saturating_mul(COPIES))?;
        let rows = usize::try_from(self.metadata.metadata().row_group(group).num_rows()).unwrap_or(0);
        let mut pages = guarded("a row group", || {
            SerializedPageReader::new(Arc::new(self.source.clone()), chunk, rows, None)
        })?;
        while let Some(page) = guarded("a page", || pages.get_next_page())? {
            let Some((encoding, values, bytes)) = values_of(&page, chunk.column_descr()) else { continue };
            each(encoding, values, bytes, &mut |text| {
                if let Some(own) = binaries.text(text)? {
                    scan.absorb(own, Some(name));
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Calls `look` with each text of a page. Dictionary texts have a page of their own.
fn each(
    encoding: Encoding,
    values: u32,
    bytes: &[u8],
    look: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let broken = || Error::corrupt("page-values", "a text extends beyond its page");
    // A few bytes of delta-encoded lengths can claim very many texts.
    let fits = |lengths: &Numbers<'_>| lengths.total() <= u64::from(values);
    match encoding {
        Encoding::PLAIN => {
            let (mut rest, mut left) = (bytes, values);
            while let (1.., Some((len, behind))) = (left, rest.split_first_chunk::<4>()) {
                let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| broken())?;
                let (text, behind) = behind.split_at_checked(len).ok_or_else(broken)?;
                look(text)?;
                (rest, left) = (behind, left - 1);
            }
        }
        Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {}
        Encoding::DELTA_LENGTH_BYTE_ARRAY => {
            let lengths = Numbers::new(bytes).filter(fits).ok_or_else(broken)?;
            let mut rest = lengths.end().and_then(|end| bytes.get(end..)).ok_or_else(broken)?;
            for len in lengths {
                let parts = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len));
                let (text, behind) = parts.ok_or_else(broken)?;
                look(text)?;
                rest = behind;
            }
        }
        Encoding::DELTA_BYTE_ARRAY => {
            let begun = Numbers::new(bytes).filter(fits).ok_or_else(broken)?;
            let behind = begun.end().and_then(|end| bytes.get(end..)).ok_or_else(broken)?;
            let lengths = Numbers::new(behind).filter(fits).ok_or_else(broken)?;
            let mut rest = lengths.end().and_then(|end| behind.get(end..)).ok_or_else(broken)?;
            let mut text = Vec::new();
            for (begun, len) in begun.zip(lengths) {
                let parts = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len));
                let (own, behind) = parts.ok_or_else(broken)?;
                let begun = usize::try_from(begun).ok().filter(|begun| *begun <= text.len());
                text.truncate(begun.ok_or_else(broken)?);
                text.extend_from_slice(own);
                look(&text)?;
                rest = behind;
            }
        }
        other => {
            return Err(Error::unsupported("page-encoding", "texts in this encoding are not scanned")
                .found(format_args!("{other}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::builder::{ListBuilder, StringBuilder};
    use arrow_array::{ArrayRef, DictionaryArray, RecordBatch, StringArray, types::Int8Type};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::{WriterProperties, WriterVersion};
    use weighbridge_core::finding::Severity;
    use weighbridge_format::OpenOptions;
    use weighbridge_io::source::{MemorySource, SourceRef};

    const CALL: &str = "cos\ngetcwd\n)R.";

    fn scanned(column: &ArrayRef, properties: WriterProperties) -> Scan {
        let batch = RecordBatch::try_from_iter_with_nullable([("t", column.clone(), true)]).unwrap();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let source: SourceRef = Arc::new(MemorySource::new("t.parquet", bytes));
        super::super::scan(&source, &OpenOptions::default()).unwrap()
    }

    #[test]
    fn scans_every_text() {
        let mut lists = ListBuilder::new(StringBuilder::new());
        lists.values().append_value("harmless");
        lists.values().append_value(CALL);
        lists.append(true);
        lists.append(false);
        let columns: [ArrayRef; 3] = [
            Arc::new(StringArray::from(vec![Some("harmless"), None, Some("cos"), Some(CALL), Some("x")])),
            Arc::new(lists.finish()),
            Arc::new(["harmless", CALL, "harmless"].into_iter().collect::<DictionaryArray<Int8Type>>()),
        ];
        for column in &columns {
            for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
                for encoding in [
                    None,
                    Some(Encoding::PLAIN),
                    Some(Encoding::DELTA_LENGTH_BYTE_ARRAY),
                    Some(Encoding::DELTA_BYTE_ARRAY),
                ] {
                    let properties = WriterProperties::builder().set_writer_version(version);
                    let properties = match encoding {
                        None => properties,
                        Some(encoding) => properties.set_dictionary_enabled(false).set_encoding(encoding),
                    };
                    let scan = scanned(column, properties.build());
                    let codes: Vec<_> = scan.findings.iter().map(|finding| finding.code.as_str()).collect();
                    assert!(codes.contains(&"dangerous-import"), "{encoding:?} {:?}", scan.findings);
                    assert!(scan.findings[0].member.as_deref().is_some_and(|m| m.starts_with('t')));
                }
            }
        }
    }

    /// Ten words repeated a million times are scanned as ten words.
    #[test]
    fn scans_repeated_words_once() {
        let words = (0..1_000_000).map(|n| ["This is\na word\n", "another"][n % 2]);
        let column: ArrayRef = Arc::new(StringArray::from_iter_values(words));
        let scan = scanned(&column, WriterProperties::builder().build());
        assert!(scan.findings.iter().all(|finding| finding.severity < Severity::Unchecked), "{scan:?}");
    }
}
