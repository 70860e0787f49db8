//! Tables of edges, such as Parquet files, read from front to back.

use super::MAX_LINE;
use super::text::{BadLine, Columns, Edge, Field, NAMES};
use weighbridge_core::checkpoint::{Cells, RecordSection, RecordsRef, RowNameList, TensorEntry, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::Elements;
use weighbridge_core::tensor::{Order, Region};

/// Bytes of a chunk for each of its rows: more than the usual text of an edge.
const ROW_BYTES: u64 = 64;
/// Usual bytes of a value as text.
const VALUE_BYTES: u64 = 12;
/// Maximum number of columns listed in an error.
const MAX_LISTED: usize = 20;

impl Columns {
    /// Finds the columns of a table with these names: returns the index and the meaning (`lhs`, `rhs`, `rel`, `weight`) of each.
    ///
    /// Columns are found by their names, or else by their positions if no name contradicts. Without `given`, a table with columns named `lhs` and `rhs` may
    /// also have `rel` and `weight`; any other table has the default columns.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `edge-columns`, with the columns of the table.
    pub fn find(given: Option<&Self>, names: &[&str]) -> Result<Vec<(usize, &'static str)>> {
        let by_name = |name: &&'static str| {
            let mut places = (0..names.len()).filter(|place| names[*place] == *name);
            // Of several columns with one name, none is meant.
            let place = places.next().filter(|_| places.next().is_none())?;
            Some((place, *name))
        };
        let wanted = NAMES.into_iter().filter(|name| match given {
            Some(columns) => columns.has(name),
            None => ["lhs", "rhs"].contains(name) || names.contains(name),
        });
        let wanted: Vec<&'static str> = wanted.collect();
        let found: Vec<_> = wanted.iter().filter_map(by_name).collect();
        if found.len() == wanted.len() {
            return Ok(found);
        }
        let columns = given.cloned().unwrap_or_default();
        let places = NAMES.into_iter().zip(columns.places());
        let ordered: Vec<_> = places.filter_map(|(name, place)| Some((place?, name))).collect();
        // A column with another of these names is not meant.
        let fits = |(place, name): &(usize, &str)| {
            names.get(*place).is_some_and(|own| own == name || !NAMES.contains(own))
        };
        if columns.count() == names.len() && ordered.iter().all(fits) {
            return Ok(ordered);
        }
        let shown: Vec<String> = names.iter().take(MAX_LISTED).map(|name| escape_text(name)).collect();
        let more = if names.len() > MAX_LISTED { ", …" } else { "" };
        Err(Error::usage("edge-columns", "the table has other columns")
            .expected(format_args!(
                "columns named {}, or {} columns in the order {}",
                wanted.join(" and "),
                columns.count(),
                columns.text()
            ))
            .found(format_args!("{} columns: {}{more}", names.len(), shown.join(", ")))
            .hint(phrase![
                "name all columns in their order, such as ",
                Opt::Columns.with("lhs,-,rhs"),
                "; - is a column that is not read"
            ]))
    }
}

/// Number of bytes of a table as text, estimated.
pub(super) fn estimated_len(records: &RecordsRef) -> u64 {
    records.sections().into_iter().fold(0, u64::saturating_add).saturating_mul(row_len(records))
}

/// Usual bytes of a row as text.
pub(super) fn row_len(records: &RecordsRef) -> u64 {
    (records.columns().len() as u64).max(1) * VALUE_BYTES
}

/// Rows of a table.
#[derive(Debug)]
pub(super) struct Rows {
    /// Number of the first row in the table, from 0.
    pub(super) first: u64,
    pub(super) count: usize,
    cells: Vec<Cells>,
}

/// Reader of a table from front to back.
pub(super) struct TableReader<'t> {
    records: &'t RecordsRef,
    /// Rows of each section.
    sections: Vec<u64>,
    /// Current section, opened where some of its rows were read.
    section: usize,
    open: Option<Box<dyn RecordSection + 't>>,
    /// Next row of the section, and of the table.
    row: u64,
    first: u64,
}

impl<'t> TableReader<'t> {
    pub(super) fn new(records: &'t RecordsRef) -> Self {
        Self { records, sections: records.sections(), section: 0, open: None, row: 0, first: 0 }
    }

    /// Reads the rows of the next chunk of about `size` bytes. The rows depend on `size` and the table alone.
    pub(super) fn next(&mut self, size: u64) -> Result<Option<Rows>> {
        let most = (size / ROW_BYTES).max(1);
        let mut cells = Cells::of(self.records.columns());
        let mut count = 0u64;
        while count < most && cells.iter().map(Cells::bytes).sum::<u64>() < size {
            let Some(&rows) = self.sections.get(self.section) else { break };
            if self.row >= rows {
                (self.section, self.row, self.open) = (self.section + 1, 0, None);
                continue;
            }
            let section = match self.open.take() {
                Some(section) => section,
                None => self.records.open(self.section)?,
            };
            // Texts may be much longer than the others.
            let at_once = (size / section.row_bytes().max(1)).clamp(1, most - count);
            let end = rows.min(self.row + at_once);
            section.read(self.row..end, &mut NoElements, &mut cells)?;
            count += end - self.row;
            self.row = end;
            self.open = Some(section);
        }
        let rows = Rows { first: self.first, count: usize::try_from(count).unwrap_or(usize::MAX), cells };
        self.first += count;
        Ok((count > 0).then_some(rows))
    }
}

/// Elements for records that have no tensors.
struct NoElements;

impl Elements for NoElements {
    fn read(&mut self, entry: &TensorEntry, _: &Region, _: Order, _: &mut Vec<u8>) -> Result<()> {
        Err(Error::unsupported("edge-list", "the records of an import have no tensors")
            .on_tensor(entry.name()))
    }
}

/// Columns of an edge in the rows of a table.
pub(super) struct EdgeCells<'r> {
    names: [Option<&'r RowNameList>; 3],
    weights: Option<&'r [[u8; 8]]>,
}

impl<'r> EdgeCells<'r> {
    pub(super) fn new(records: &RecordsRef, rows: &'r Rows) -> Self {
        let cells = |name: &str| {
            let place = records.columns().iter().position(|column| column.name == name)?;
            rows.cells.get(place)
        };
        let text = |name: &str| match cells(name) {
            Some(Cells::Text(list)) => Some(list),
            _ => None,
        };
        let weights = match cells("weight") {
            Some(Cells::Numbers(bytes)) => Some(bytes.as_chunks().0),
            _ => None,
        };
        Self { names: [text("lhs"), text("rhs"), text("rel")], weights }
    }

    /// Appends the names of a row to `text`. Returns its edge.
    pub(super) fn edge(&self, row: usize, text: &mut Vec<u8>) -> Result<Edge, BadLine> {
        let name = |place: usize| self.names[place].map(|list| list.get(row).unwrap_or_default());
        let (names, columns) = ([name(0), name(1), name(2)], ["lhs", "rhs", "rel"]);
        for (name, column) in names.iter().zip(columns) {
            let is_optional = column == "rel";
            if name.map_or(!is_optional, str::is_empty) {
                return Err(BadLine::NoName(column));
            }
        }
        if names.iter().flatten().map(|name| name.len()).sum::<usize>() > MAX_LINE {
            return Err(BadLine::Length("row"));
        }
        let weight = match self.weights {
            Some(weights) => f64::from_le_bytes(weights.get(row).copied().unwrap_or_default()),
            None => 1.0,
        };
        #[expect(clippy::cast_possible_truncation, reason = "edges have weights of 32 bits")]
        let weight = weight as f32;
        if !weight.is_finite() {
            return Err(BadLine::NoWeight);
        }
        let mut push = |name: &str| {
            let start = text.len();
            text.extend_from_slice(name.as_bytes());
            Field::of(start..text.len())
        };
        let [lhs, rhs, rel] = names;
        let (lhs, rel, rhs) =
            (push(lhs.unwrap_or_default()), rel.map(&mut push), push(rhs.unwrap_or_default()));
        Ok(Edge { lhs, rhs, rel, weight })
    }
}
