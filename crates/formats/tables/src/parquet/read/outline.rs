//! Outline of everything but the elements: page headers, other columns, indexes, the footer. And the
//! checksums of pages, where a writer stored them.

use super::super::pages::{self, Page};
use super::{File, Layout};
use crate::table::pipe::guarded;
use parquet::errors::ParquetError;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, to_usize};

/// Length of the magic at both ends.
const MAGIC_LEN: u64 = 4;
/// Code for a page whose checksum differs from its header.
const PAGE_CRC: &str = "page-crc";
/// Maximum number of damaged pages reported one by one.
const MAX_REPORTED: usize = 1000;
/// Bytes read at once.
const STEP_BYTES: u64 = 256 << 10;

/// Column chunk of a row group, with its indexes.
pub(super) struct Chunk {
    /// The row group.
    group: usize,
    /// Schema column that contains it.
    root: usize,
    start: u64,
    len: u64,
    /// Offsets, lengths and names of its indexes and filters.
    indexes: Vec<(u64, u64, &'static str)>,
}

pub(in crate::parquet) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let file = File::read(source, limits)?;
    let layout = Layout::of(file.metadata.schema(), &mut Vec::new())?;
    let elements = layout.elements();
    let mut outline = Outline::new(Gaps::Forbidden);
    outline.elements = true;
    outline.header(0, MAGIC_LEN, "parquet magic");
    for chunk in file.chunks()? {
        let of_table = elements.contains(&chunk.root);
        for page in pages::all(source, chunk.start..chunk.start.saturating_add(chunk.len))? {
            outline.header(page.offset, page.head, "page header");
            let at = page.offset.saturating_add(page.head);
            if of_table {
                outline.elements(at, page.stored, "page");
            } else {
                outline.header(at, page.stored, "page of another column");
            }
        }
        for (offset, len, what) in chunk.indexes {
            outline.header(offset, len, what);
        }
    }
    let mut tail = [0; 4];
    source.read_at(source.len() - 8, &mut tail)?;
    // Compared with the file when the footer was read.
    let footer = u64::from(u32::from_le_bytes(tail)).saturating_add(8).min(source.len());
    outline.header(source.len() - footer, footer, "footer");
    Ok(outline)
}

/// Verifies every page that has a checksum (`page-crc`), and compares the columns of the table with the footer.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`]; errors of reading the footer.
pub(in crate::parquet) fn check(source: &SourceRef, limits: &Limits) -> Result<Vec<Finding>> {
    let file = File::read(source, limits)?;
    let (mut findings, mut damaged) = (Vec::new(), 0u64);
    for chunk in file.chunks()? {
        damaged_pages(source, &chunk, &mut |offset, text| {
            damaged += 1;
            if findings.len() < MAX_REPORTED {
                findings.push(Finding::error(PAGE_CRC, text).in_file(source.label()).at(offset));
            }
        })?;
    }
    if damaged == 0
        && let Err(error) = file.check_strictly()
    {
        findings.push(Finding::from_error(&error).ok_or(error)?);
    }
    let more = damaged.saturating_sub(MAX_REPORTED as u64);
    if more > 0 {
        let text = format!("{more} more pages fail their checksums");
        findings.push(Finding::error(PAGE_CRC, text).in_file(source.label()));
    }
    Ok(findings)
}

/// Calls `give` with the offset and the fault of each damaged page of a column.
fn damaged_pages(source: &SourceRef, chunk: &Chunk, give: &mut dyn FnMut(u64, String)) -> Result<()> {
    let mut buffer = Vec::new();
    for page in pages::all(source, chunk.start..chunk.start.saturating_add(chunk.len))? {
        let Some(expected) = page.crc else { continue };
        let found = crc(source, &page, &mut buffer)?;
        if found != expected {
            let text = format!("the page checksum is {found:08x}, expected {expected:08x}");
            give(page.offset, text);
        }
    }
    Ok(())
}

/// CRC-32 of the stored bytes of a page.
fn crc(source: &SourceRef, page: &Page, buffer: &mut Vec<u8>) -> Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let (mut at, end) = (page.offset + page.head, page.offset + page.head + page.stored);
    while at < end {
        buffer.resize(to_usize(STEP_BYTES.min(end - at))?, 0);
        source.read_at(at, buffer)?;
        hasher.update(buffer);
        at += buffer.len() as u64;
    }
    Ok(hasher.finalize())
}

impl File {
    /// Cause of an error in reading columns of a row group: the first page with a wrong checksum,
    /// otherwise the error itself.
    pub(super) fn blame(&self, group: usize, columns: &[usize], error: Error) -> Error {
        let source = &self.source.0;
        let mut first = None;
        for chunk in self.chunks().unwrap_or_default() {
            if chunk.group == group && columns.binary_search(&chunk.root).is_ok() && first.is_none() {
                let mut keep = |offset, text| first = first.take().or(Some((offset, text)));
                // Other faults are in `error` already.
                let _ = damaged_pages(source, &chunk, &mut keep);
            }
        }
        first
            .map_or(error, |(offset, text)| Error::corrupt(PAGE_CRC, text).in_file(source.label()).at(offset))
    }

    /// Column chunks of all row groups.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] if the columns together are larger than the file.
    pub(super) fn chunks(&self) -> Result<Vec<Chunk>> {
        let metadata = self.metadata.metadata();
        let schema = metadata.file_metadata().schema_descr();
        guarded("a row group", || {
            let (mut chunks, mut left) = (Vec::new(), self.source.0.len());
            let groups = metadata.row_groups().iter().enumerate();
            let columns =
                groups.flat_map(|(at, group)| group.columns().iter().enumerate().map(move |c| (at, c)));
            for (group, (leaf, column)) in columns {
                let (start, len) = column.byte_range();
                // A footer that lists the same bytes a million times would have them read as often.
                left = left.checked_sub(len).ok_or_else(|| {
                    let error =
                        Error::corrupt("columns-overlap", "the columns together are larger than the file");
                    ParquetError::External(Box::new(error.at(start)))
                })?;
                let places = [
                    (column.column_index_offset(), column.column_index_length(), "column index"),
                    (column.offset_index_offset(), column.offset_index_length(), "offset index"),
                    (column.bloom_filter_offset(), column.bloom_filter_length(), "bloom filter"),
                ];
                let place = |(offset, len, what): (Option<i64>, Option<i32>, &'static str)| {
                    Some((u64::try_from(offset?).ok()?, u64::try_from(len?).ok()?, what))
                };
                let indexes = places.into_iter().filter_map(place).collect();
                chunks.push(Chunk { group, root: schema.get_column_root_idx(leaf), start, len, indexes });
            }
            Ok::<_, ParquetError>(chunks)
        })
    }
}
