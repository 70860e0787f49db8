//! What stands around the elements: heads of pages, other columns, indexes, the footer. And the
//! checksums of pages, where a writer gave them.

use super::super::pages::{self, Page};
use super::{File, Layout};
use crate::table::pipe::guarded;
use parquet::errors::ParquetError;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, to_usize};

/// Bytes of the mark at both ends.
const MARK: u64 = 4;
/// The code of a page that has another checksum than its head says.
const PAGE_CRC: &str = "page-crc";
/// Damaged pages that are told one by one.
const TOLD: usize = 1000;
/// Bytes that are read at once.
const STEP: u64 = 256 << 10;

/// A column of a row group, and what belongs to it elsewhere.
pub(super) struct Chunk {
    /// The row group.
    group: usize,
    /// The column of the schema that it is of, or a part of.
    root: usize,
    start: u64,
    len: u64,
    /// Offsets and lengths of its indexes and filters.
    indexes: Vec<(u64, u64, &'static str)>,
}

pub(in crate::parquet) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let file = File::read(source, limits)?;
    let layout = Layout::of(file.metadata.schema(), &mut Vec::new())?;
    let elements = layout.elements();
    let mut outline = Outline::new(Gaps::Forbidden);
    outline.elements = true;
    outline.header(0, MARK, "parquet mark");
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
    // Held against the file when the footer was read.
    let footer = u64::from(u32::from_le_bytes(tail)).saturating_add(8).min(source.len());
    outline.header(source.len() - footer, footer, "footer");
    Ok(outline)
}

/// Holds every page that has a checksum against it: `page-crc`; and the columns of the table against what the footer says.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`]; what keeps the footer from being read.
pub(in crate::parquet) fn check(source: &SourceRef, limits: &Limits) -> Result<Vec<Finding>> {
    let file = File::read(source, limits)?;
    let (mut findings, mut damaged) = (Vec::new(), 0u64);
    for chunk in file.chunks()? {
        damaged_pages(source, &chunk, &mut |offset, text| {
            damaged += 1;
            if findings.len() < TOLD {
                findings.push(Finding::error(PAGE_CRC, text).in_file(source.label()).at(offset));
            }
        })?;
    }
    if damaged == 0
        && let Err(error) = file.check_strictly()
    {
        findings.push(Finding::from_error(&error).ok_or(error)?);
    }
    let more = damaged.saturating_sub(TOLD as u64);
    if more > 0 {
        let text = format!("{more} more pages are not what was written");
        findings.push(Finding::error(PAGE_CRC, text).in_file(source.label()));
    }
    Ok(findings)
}

/// Gives the pages of a column that are not what was written: where they are, and what is wrong.
fn damaged_pages(source: &SourceRef, chunk: &Chunk, give: &mut dyn FnMut(u64, String)) -> Result<()> {
    let mut buffer = Vec::new();
    for page in pages::all(source, chunk.start..chunk.start.saturating_add(chunk.len))? {
        let Some(expected) = page.crc else { continue };
        let found = crc(source, &page, &mut buffer)?;
        if found != expected {
            let text = format!(
                "a page is not what was written: its checksum is {found:08x}, {expected:08x} was expected"
            );
            give(page.offset, text);
        }
    }
    Ok(())
}

/// The CRC-32 of the bytes of a page as they are in the file.
fn crc(source: &SourceRef, page: &Page, buffer: &mut Vec<u8>) -> Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let (mut at, end) = (page.offset + page.head, page.offset + page.head + page.stored);
    while at < end {
        buffer.resize(to_usize(STEP.min(end - at))?, 0);
        source.read_at(at, buffer)?;
        hasher.update(buffer);
        at += buffer.len() as u64;
    }
    Ok(hasher.finalize())
}

impl File {
    /// What is wrong with columns of a row group that could not be read: the first page that has another checksum than
    /// its head says, where there is one; else what their reader said.
    pub(super) fn blame(&self, group: usize, columns: &[usize], error: Error) -> Error {
        let source = &self.source.0;
        let mut first = None;
        for chunk in self.chunks().unwrap_or_default() {
            if chunk.group == group && columns.binary_search(&chunk.root).is_ok() && first.is_none() {
                let mut keep = |offset, text| first = first.take().or(Some((offset, text)));
                // What else is wrong is known already.
                let _ = damaged_pages(source, &chunk, &mut keep);
            }
        }
        first
            .map_or(error, |(offset, text)| Error::corrupt(PAGE_CRC, text).in_file(source.label()).at(offset))
    }

    /// The columns of all row groups.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for such that take more bytes than the file has.
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
                // Whoever lists the same bytes a million times would have them read as often.
                left = left.checked_sub(len).ok_or_else(|| {
                    let error =
                        Error::corrupt("columns-overlap", "the columns take more bytes than the file has");
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
