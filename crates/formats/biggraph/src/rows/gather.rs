//! Rows of tables in another order.

use weighbridge_core::checkpoint::{Extent, TensorEntry};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{Endian, Order, Region};
use weighbridge_io::engine::Scratch;
use weighbridge_io::source::{Source, SourceRef, check_range, to_usize};

/// Number of rows ordered at once.
const ROWS_AT_ONCE: usize = 1 << 16;
/// Read size in bytes for a table whose rows must be converted.
const READ_BYTES: u64 = 1 << 20;

/// Rows of one or more tables, in any order and with repetitions: dense, little-endian, row by row.
///
/// Consecutive rows are read at once; others in the order of the table, so
/// that reads go forwards. Checksums in a table's file are not verified.
#[derive(Debug)]
pub(crate) struct GatherSource {
    label: String,
    parts: Vec<Part>,
    rows: Vec<u64>,
    /// Bytes of a row.
    row: u64,
}

/// Rows in one source.
#[derive(Debug)]
struct Part {
    /// Index of its first row among all rows of all tables.
    first: u64,
    /// Number of rows.
    count: u64,
    place: RowSource,
}

#[derive(Debug)]
enum RowSource {
    /// Complete rows in output form, from this offset on.
    Bytes(SourceRef, u64),
    /// Table whose bytes must be converted or assembled.
    Table(Box<TensorEntry>),
}

impl GatherSource {
    /// Source of the rows with these indexes; the rows of all `tables` are numbered consecutively.
    /// All tables have the same dtype (after casts) and row shape.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `rows-differ`, if the tables' rows differ;
    /// [`weighbridge_core::Kind::Usage`], `rows`, for a missing row, or without any table;
    /// [`weighbridge_core::Kind::Unsupported`], `packed-rows`, for elements below one byte.
    pub(crate) fn new(label: impl Into<String>, tables: &[TensorEntry], rows: Vec<u64>) -> Result<Self> {
        let Some(table) = tables.first() else {
            return Err(Error::usage("rows", "no table to read rows from"));
        };
        let shape = |table: &TensorEntry| table.shape.dims().get(1..).map(<[u64]>::to_vec);
        let (kind, columns) = (table.dtype(), shape(table));
        let Some(size) = kind.size().filter(|_| tables.iter().all(|t| t.stored.size().is_some())) else {
            return Err(Error::unsupported("packed-rows", "rows of packed elements cannot be reordered")
                .on_tensor(table.name()));
        };
        let elements = columns.iter().flatten().try_fold(size as u64, |all, &n| all.checked_mul(n));
        let row = elements
            .ok_or_else(|| Error::corrupt("shape-overflow", "the byte size of a row overflows 64 bits"))?;
        let mut parts = Vec::new();
        let mut first = 0u64;
        for table in tables {
            if table.dtype() != kind || shape(table) != columns {
                return Err(Error::mismatch("rows-differ", "the tables have different rows")
                    .on_tensor(table.name())
                    .expected(format_args!("{kind} rows of {columns:?}"))
                    .found(format_args!("{} {}", table.dtype(), table.shape)));
            }
            let count = table.shape.dims().first().copied().ok_or_else(|| {
                Error::mismatch("rows-differ", "a scalar has no rows").on_tensor(table.name())
            })?;
            add(&mut parts, table, first, count);
            first = first.checked_add(count).ok_or_else(|| Error::limit("too-long", "too many rows"))?;
        }
        if let Some(none) = rows.iter().find(|&&row| row >= first) {
            return Err(Error::usage("rows", "the row is beyond the last table")
                .expected(format_args!("less than {first}"))
                .found(none));
        }
        let len = row.checked_mul(rows.len() as u64);
        len.ok_or_else(|| Error::corrupt("shape-overflow", "the byte size of the rows overflows 64 bits"))?;
        Ok(Self { label: label.into(), parts, rows, row })
    }

    /// Reads whole rows, starting at index `start`.
    fn whole(&self, start: usize, out: &mut [u8]) -> Result<()> {
        let size = to_usize(self.row)?;
        let wanted = self.rows.get(start..start + out.len() / size).unwrap_or_default();
        let mut scratch = Scratch::default();
        let mut block = Vec::new();
        let mut order: Vec<usize> = Vec::new();
        for (chunk, out) in wanted.chunks(ROWS_AT_ONCE).zip(out.chunks_mut(ROWS_AT_ONCE.saturating_mul(size)))
        {
            order.clear();
            order.extend(0..chunk.len());
            if !chunk.is_sorted() {
                order.sort_unstable_by_key(|&i| chunk[i]);
            }
            let mut done = 0;
            while let Some(&place) = order.get(done) {
                let row = chunk[place];
                let mut run = 1;
                while order.get(done + run) == Some(&(place + run)) && chunk[place + run] == row + run as u64
                {
                    run += 1;
                }
                let target = out.get_mut(place * size..(place + run) * size).unwrap_or_default();
                self.run(row, target, &mut scratch, &mut block)?;
                done += run;
            }
        }
        Ok(())
    }

    /// Reads consecutive rows, possibly from several parts.
    fn run(&self, row: u64, out: &mut [u8], scratch: &mut Scratch, block: &mut Vec<u8>) -> Result<()> {
        let mut row = row;
        let mut rest = out;
        let at = self.parts.partition_point(|part| part.first <= row).saturating_sub(1);
        for part in self.parts.get(at..).unwrap_or_default() {
            while !rest.is_empty() && row < part.first + part.count {
                let within = row - part.first;
                let mut count = (part.count - within).min(rest.len() as u64 / self.row);
                if matches!(part.place, RowSource::Table(_)) {
                    count = count.min((READ_BYTES / self.row).max(1));
                }
                let (now, later) = rest.split_at_mut(to_usize(count * self.row)?);
                match &part.place {
                    RowSource::Bytes(source, offset) => source.read_at(offset + within * self.row, now)?,
                    RowSource::Table(table) => {
                        let mut region = Region::whole(&table.shape);
                        (region.start[0], region.shape[0]) = (within, count);
                        block.clear();
                        table.read_into(&region, Order::Row, scratch, block)?;
                        now.copy_from_slice(block.get(..now.len()).unwrap_or_default());
                    }
                }
                rest = later;
                row += count;
            }
        }
        Ok(())
    }
}

/// Appends the parts of a table.
fn add(parts: &mut Vec<Part>, table: &TensorEntry, first: u64, count: u64) {
    let mut extents: Vec<&Extent> = table.extents.iter().collect();
    extents.sort_by_key(|extent| extent.first_row());
    let swapped = |extent: &Extent| extent.encoding.endian == Endian::Big && table.stored.swap_unit() > 1;
    let plain = |extent: &&Extent| {
        let rows = extent.encoding.order == Order::Row || extent.region(&table.shape).shape().is_order_free();
        let whole = extent.shape(&table.shape).get(1..) == table.shape.dims().get(1..);
        rows && whole && !swapped(extent)
    };
    // Extents that skip or repeat a row are left to the engine.
    let mut next = 0;
    let gapless = extents.iter().all(|extent| {
        let here = extent.first_row() == next;
        next += extent.shape(&table.shape).first().copied().unwrap_or(0);
        here
    });
    if table.cast.is_none() && gapless && next == count && extents.iter().all(plain) {
        parts.extend(extents.iter().map(|extent| Part {
            first: first + extent.first_row(),
            count: extent.shape(&table.shape)[0],
            place: RowSource::Bytes(extent.source.clone(), extent.offset),
        }));
        return;
    }
    parts.push(Part { first, count, place: RowSource::Table(Box::new(table.clone())) });
}

impl Source for GatherSource {
    fn len(&self) -> u64 {
        // Checked against 2^64 in `new`.
        self.row * self.rows.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        if buffer.is_empty() {
            return Ok(());
        }
        let size = to_usize(self.row)?;
        let mut row = to_usize(offset / self.row)?;
        let mut rest = buffer;
        let mut within = to_usize(offset % self.row)?;
        // Partial rows: the first and the last.
        let mut single = Vec::new();
        while !rest.is_empty() {
            let whole = rest.len() / size * size;
            if within == 0 && whole > 0 {
                let (now, later) = rest.split_at_mut(whole);
                self.whole(row, now)?;
                row += whole / size;
                rest = later;
                continue;
            }
            single.resize(size, 0);
            self.whole(row, &mut single)?;
            let part = single.get(within..).unwrap_or_default();
            let take = part.len().min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&part[..take]);
            rest = later;
            row += 1;
            within = 0;
        }
        Ok(())
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn is_sequential(&self) -> bool {
        self.parts.iter().any(|part| match &part.place {
            RowSource::Bytes(source, _) => source.is_sequential(),
            RowSource::Table(table) => table.extents.iter().any(|extent| extent.source.is_sequential()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_core::checkpoint::TensorPath;
    use weighbridge_core::tensor::{DType, Encoding, Shape};
    use weighbridge_io::source::{CountingSource, MemorySource, read_vec};

    /// Table of u16 whose element k is `from + k`, row by row.
    fn table(rows: u64, columns: u64, from: u16, encoding: Encoding) -> TensorEntry {
        let at = |i: u64| {
            let (row, column) = match encoding.order {
                Order::Row => (i / columns, i % columns),
                Order::Column => (i % rows, i / rows),
            };
            from + u16::try_from(row * columns + column).unwrap()
        };
        let bytes: Vec<u8> = (0..rows * columns)
            .flat_map(|i| match encoding.endian {
                Endian::Little => at(i).to_le_bytes(),
                Endian::Big => at(i).to_be_bytes(),
            })
            .collect();
        let source: SourceRef = Arc::new(MemorySource::new("t", bytes));
        let shape = Shape::new([rows, columns]);
        TensorEntry::dense(TensorPath::value(), DType::U16, shape, &source, 0, encoding).unwrap()
    }

    fn expected(rows: &[u64], columns: u64) -> Vec<u8> {
        let numbers = rows.iter().flat_map(|row| (0..columns).map(move |c| row * columns + c));
        numbers.flat_map(|x| u16::try_from(x).unwrap().to_le_bytes()).collect()
    }

    #[test]
    fn gathers_rows_of_every_encoding() {
        let big = Encoding { order: Order::Row, endian: Endian::Big };
        let tables = [
            table(5, 3, 0, Encoding::ROW),
            table(4, 3, 15, Encoding::COLUMN),
            table(0, 3, 27, Encoding::ROW),
            table(6, 3, 27, big),
        ];
        let orders: [Vec<u64>; 5] = [
            (0..15).collect(),
            (0..15).rev().collect(),
            vec![14, 0, 4, 5, 6, 9, 9, 9, 1, 2, 3, 4, 5],
            vec![7],
            vec![],
        ];
        for rows in orders {
            let truth = expected(&rows, 3);
            let source = GatherSource::new("rows", &tables, rows).unwrap();
            assert_eq!(source.len(), truth.len() as u64);
            for start in 0..=truth.len() {
                for len in [0, 1, 5, 6, 7, 12, 30, truth.len()] {
                    if start + len <= truth.len() {
                        let part = read_vec(&source, start as u64, len as u64).unwrap();
                        assert_eq!(part, &truth[start..start + len]);
                    }
                }
            }
            assert_eq!(read_vec(&source, source.len(), 1).unwrap_err().code().as_str(), "past-the-end");
        }
    }

    #[test]
    fn finds_extents_and_reads_runs_at_once() {
        let whole = table(1000, 4, 0, Encoding::ROW);
        let counted = Arc::new(CountingSource::new(whole.extents[0].source.clone()));
        let mut extents = weighbridge_core::checkpoint::Pieces::new();
        for (start, end) in [(600u64, 1000u64), (0, 250), (250, 600)] {
            let mut extent = whole.extents[0].clone();
            (extent.source, extent.offset, extent.len) = (counted.clone(), start * 8, (end - start) * 8);
            extent.part = Some(Box::new(Region { start: vec![start, 0], shape: vec![end - start, 4] }));
            extents.push(extent);
        }
        let entry = TensorEntry { extents, ..whole };
        let rows: Vec<u64> = (500..1000).chain(0..500).collect();
        let source = GatherSource::new("rows", std::slice::from_ref(&entry), rows.clone()).unwrap();
        assert_eq!(read_vec(&source, 0, source.len()).unwrap(), expected(&rows, 4));
        assert_eq!((counted.bytes_read(), counted.calls()), (8000, 4));
        let rows: Vec<u64> = (0..1000).map(|i| i * 7919 % 1000).collect();
        let source = GatherSource::new("rows", &[entry], rows.clone()).unwrap();
        assert_eq!(read_vec(&source, 0, source.len()).unwrap(), expected(&rows, 4));
    }

    #[test]
    fn applies_casts_and_rejects_different_rows() {
        let mut wide = table(3, 2, 0, Encoding::ROW);
        wide.cast = Some(DType::F32.into());
        let source = GatherSource::new("rows", std::slice::from_ref(&wide), vec![2, 0]).unwrap();
        let truth: Vec<u8> = [4f32, 5.0, 0.0, 1.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(read_vec(&source, 0, source.len()).unwrap(), truth);
        let code = |tables: &[TensorEntry], rows: Vec<u64>| {
            GatherSource::new("r", tables, rows).unwrap_err().code().as_str()
        };
        let plain = || table(3, 2, 0, Encoding::ROW);
        assert_eq!(code(&[plain(), wide], vec![]), "rows-differ");
        assert_eq!(code(&[plain(), table(3, 3, 0, Encoding::ROW)], vec![]), "rows-differ");
        assert_eq!(code(&[plain()], vec![0, 3]), "rows");
        assert_eq!(code(&[], vec![]), "rows");
        let empty = GatherSource::new("r", &[table(3, 0, 0, Encoding::ROW)], vec![1, 2]).unwrap();
        assert!(empty.is_empty() && read_vec(&empty, 0, 0).unwrap().is_empty());
    }
}
