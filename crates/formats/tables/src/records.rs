//! Tables read as records: columns of text and numbers, from front to back.
//!
//! The sections are the row groups of Parquet, or the record batches of Arrow.

#[cfg(test)]
mod tests;

use crate::arrow::ArrowSections;
use crate::parquet::ParquetSections;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Schema, SchemaRef};
use std::fmt::{self, Debug, Write as _};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::checkpoint::{
    Cells, RecordColumn, RecordSection, Records, RecordsRef, TensorEntry, escape_text,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::Elements;
use weighbridge_core::tensor::DType;
use weighbridge_core::text::counted;
use weighbridge_io::source::{SourceRef, read_vec, to_usize};

/// Maximum characters of a type in an error.
const MAX_TYPE: usize = 80;
/// Longest decimal text of a 64-bit integer.
const DIGITS: u64 = 20;
/// Bytes of a number.
const NUMBER: usize = size_of::<f64>();
/// Magic bytes of the formats; each is at both ends of a file.
const MAGICS: [&[u8]; 3] = [crate::parquet::MAGIC, crate::parquet::ENCRYPTED, crate::arrow::MAGIC];

/// Cells that a picked column becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    /// Text, from a column of text or integers. A missing value is empty text.
    Text,
    /// Numbers of dtype `f64`, from a column of integers or floats. A missing value is NaN.
    Number,
}

/// Column of a table to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pick {
    /// Index of the column in the table.
    pub place: usize,
    /// Name in the records.
    pub name: String,
    /// Cells to make.
    pub kind: CellKind,
}

/// Parquet or Arrow file with a parsed footer.
#[derive(Debug)]
pub struct TableFile {
    source: SourceRef,
    limits: Limits,
    schema: SchemaRef,
    sections: Box<dyn Sections>,
}

/// Sections of a table.
pub(crate) trait Sections: Debug + Send + Sync {
    /// Selects the columns to read, in ascending order. Returns the number of rows of each section.
    fn select(&mut self, columns: Vec<usize>) -> Result<Vec<u64>>;

    /// Opens a section at the row `skip`: returns the maximum bytes of the texts of a row, and the next batches.
    fn open(&self, section: usize, skip: u64) -> Result<(u64, NextBatch<'_>)>;
}

/// Function that returns the next batch of a section.
pub(crate) type NextBatch<'s> = Box<dyn FnMut() -> Result<Option<RecordBatch>> + Send + 's>;

impl TableFile {
    /// Returns true for a Parquet or Arrow file, by its first bytes. A line of text may begin with them too.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`].
    pub fn is_table(source: &SourceRef) -> Result<bool> {
        let head = read_vec(&**source, 0, source.len().min(8))?;
        let Some(magic) = MAGICS.iter().find(|magic| head.starts_with(magic)) else { return Ok(false) };
        let is_binary = head.get(magic.len()).is_some_and(|byte| *byte < b' ' && !byte.is_ascii_whitespace());
        let len = magic.len() as u64;
        Ok(is_binary || source.len() >= 2 * len && read_vec(&**source, source.len() - len, len)? == **magic)
    }

    /// Opens a file: reads its footer.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for a malformed footer; [`weighbridge_core::Kind::Unsupported`] for an encrypted file;
    /// [`weighbridge_core::Kind::Limit`].
    pub fn open(source: &SourceRef, limits: &Limits) -> Result<Self> {
        let is_arrow = read_vec(&**source, 0, source.len().min(8))?.starts_with(crate::arrow::MAGIC);
        let opened = if is_arrow {
            ArrowSections::open(source, limits)
                .map(|(schema, own)| (schema, Box::new(own) as Box<dyn Sections>))
        } else {
            ParquetSections::open(source, limits).map(|(schema, own)| (schema, Box::new(own) as _))
        };
        let (schema, sections) = opened.map_err(|error| error.in_file(source.label()))?;
        Ok(Self { source: source.clone(), limits: limits.clone(), schema, sections })
    }

    /// Returns the names of the columns.
    pub fn columns(&self) -> Vec<&str> {
        self.schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    /// Returns the records of these columns, in this order.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`], `column-type`; [`weighbridge_core::Kind::Corrupt`] for malformed batches;
    /// [`weighbridge_core::Kind::Limit`].
    pub fn records(mut self, picks: &[Pick]) -> Result<RecordsRef> {
        let in_file = |error: Error| error.in_file(self.source.label());
        picks.iter().try_for_each(|pick| check_type(&self.schema, pick)).map_err(in_file)?;
        let mut places: Vec<usize> = picks.iter().map(|pick| pick.place).collect();
        places.sort_unstable();
        places.dedup();
        let sections = self.sections.select(places.clone()).map_err(in_file)?;
        let rows = sections.iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows));
        let rows =
            rows.ok_or_else(|| in_file(Error::corrupt("row-count", "the row count overflows 64 bits")))?;
        // One run of a few bytes can encode 2^31 rows: a small file must not become a huge table.
        let bytes = rows.saturating_mul((picks.len() * NUMBER) as u64);
        self.limits.check_expansion("the table is", bytes, self.source.len()).map_err(in_file)?;
        let column = |pick: &Pick| RecordColumn {
            name: pick.name.clone(),
            dtype: (pick.kind == CellKind::Number).then_some(DType::F64),
        };
        let columns = picks.iter().map(column).collect();
        let picks = picks.iter().map(|pick| (places.binary_search(&pick.place).unwrap_or(0), pick.kind));
        Ok(Arc::new(TableRecords { picks: picks.collect(), columns, rows: sections, file: self }))
    }
}

/// Fails unless a picked column has a type for its cells.
fn check_type(schema: &Schema, pick: &Pick) -> Result<()> {
    let missing = || Error::usage("no-such-column", "the table has no such column").found(pick.place);
    let field = schema.fields().get(pick.place).ok_or_else(missing)?;
    let of = match field.data_type() {
        DataType::Dictionary(_, of) => of,
        of => of,
    };
    let is_text = matches!(
        of,
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
    );
    let (fits, expected) = match pick.kind {
        CellKind::Text => (is_text || of.is_integer(), "text or integers"),
        CellKind::Number => (of.is_integer() || of.is_floating(), "integers or floats"),
    };
    if fits {
        return Ok(());
    }
    let found: String = escape_text(&field.data_type().to_string()).chars().take(MAX_TYPE).collect();
    let name: String = escape_text(field.name()).chars().take(MAX_TYPE).collect();
    Err(Error::unsupported("column-type", format!("the column {name} has an unsupported type"))
        .expected(format_args!("{expected} for {}", pick.name))
        .found(found))
}

/// Records of a table.
#[derive(Debug)]
struct TableRecords {
    file: TableFile,
    /// Column of a batch, and the cells to make of it, for each column of the records.
    picks: Vec<(usize, CellKind)>,
    columns: Vec<RecordColumn>,
    /// Rows of each section.
    rows: Vec<u64>,
}

impl Records for TableRecords {
    fn describe(&self) -> String {
        counted(self.rows.iter().sum::<u64>(), "row", "rows")
    }

    fn columns(&self) -> &[RecordColumn] {
        &self.columns
    }

    fn sections(&self) -> Vec<u64> {
        self.rows.clone()
    }

    fn tensors(&self) -> Vec<&TensorEntry> {
        Vec::new()
    }

    fn sources(&self) -> Vec<SourceRef> {
        vec![self.file.source.clone()]
    }

    fn open(&self, section: usize) -> Result<Box<dyn RecordSection + '_>> {
        let opened = self.file.sections.open(section, 0);
        let (texts, next) = opened.map_err(|error| error.in_file(self.file.source.label()))?;
        let row_bytes = texts.saturating_add((self.picks.len() * NUMBER) as u64).saturating_add(DIGITS);
        let state = Mutex::new(State { next, at: 0, batch: None });
        Ok(Box::new(Section { records: self, number: section, row_bytes, state }))
    }
}

/// Opened section.
struct Section<'r> {
    records: &'r TableRecords,
    number: usize,
    row_bytes: u64,
    state: Mutex<State<'r>>,
}

/// Position in a section: a section is decoded from front to back.
struct State<'r> {
    next: NextBatch<'r>,
    /// Next row.
    at: u64,
    /// Rows from `at` on that are decoded already.
    batch: Option<RecordBatch>,
}

impl Debug for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Section").field("number", &self.number).finish_non_exhaustive()
    }
}

impl RecordSection for Section<'_> {
    fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    fn read(&self, rows: Range<u64>, _: &mut dyn Elements, into: &mut [Cells]) -> Result<()> {
        self.read_rows(rows, into).map_err(|error| error.in_file(self.records.file.source.label()))
    }
}

impl Section<'_> {
    fn read_rows(&self, rows: Range<u64>, into: &mut [Cells]) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.at != rows.start {
            let (_, next) = self.records.file.sections.open(self.number, rows.start)?;
            *state = State { next, at: rows.start, batch: None };
        }
        while state.at < rows.end {
            let batch = match state.batch.take() {
                Some(batch) => batch,
                None => (state.next)()?.ok_or_else(|| self.short(state.at))?,
            };
            let count = (batch.num_rows() as u64).min(rows.end - state.at);
            let take = to_usize(count)?;
            for ((place, kind), cells) in self.records.picks.iter().zip(&mut *into) {
                let column = batch.columns().get(*place).ok_or_else(another)?;
                append(column, take, *kind, &self.records.file.limits, cells).map_err(|(row, error)| {
                    let before: u64 = self.records.rows.iter().take(self.number).sum();
                    error.within(format_args!("row {}", before + state.at + row as u64 + 1))
                })?;
            }
            state.at += count;
            state.batch = (take < batch.num_rows()).then(|| batch.slice(take, batch.num_rows() - take));
        }
        Ok(())
    }

    /// Returns the error for a section that ends after `found` rows.
    fn short(&self, found: u64) -> Error {
        Error::corrupt("row-count", "a row group has fewer rows than the footer declares")
            .expected(self.records.rows.get(self.number).copied().unwrap_or(0))
            .found(found)
    }
}

fn another() -> Error {
    Error::corrupt("another-column", "the column type differs from the schema")
}

/// Values of a column by row; `None` where missing.
enum Values<'a> {
    Bytes(Box<dyn Fn(usize) -> Option<&'a [u8]> + 'a>),
    Integers(Box<dyn Fn(usize) -> Option<i128> + 'a>),
    Floats(Box<dyn Fn(usize) -> Option<f64> + 'a>),
}

impl<'a> Values<'a> {
    fn of(array: &'a dyn Array) -> Option<Self> {
        macro_rules! bytes {
            ($($cast:ident $(::<$offset:ty>)?),*) => {
                $(if let Some(own) = array.$cast$(::<$offset>)?() {
                    return Some(Self::Bytes(Box::new(move |row| own.is_valid(row).then(|| own.value(row).as_ref()))));
                })*
            };
        }
        macro_rules! numbers {
            ($kind:ident, $to:ty: $($of:ty),*) => {
                $(if let Some(own) = array.as_primitive_opt::<$of>() {
                    return Some(Self::$kind(Box::new(move |row| {
                        own.is_valid(row).then(|| <$to>::from(own.value(row)))
                    })));
                })*
            };
        }
        macro_rules! keys {
            ($($of:ty),*) => {
                $(if let Some(own) = array.as_dictionary_opt::<$of>() {
                    return Self::of(own.values()).map(|values| values.by(own.values().len(), move |row| own.key(row)));
                })*
            };
        }
        bytes!(as_string_opt::<i32>, as_string_opt::<i64>, as_string_view_opt);
        bytes!(as_binary_opt::<i32>, as_binary_opt::<i64>, as_binary_view_opt);
        numbers!(Integers, i128: Int64Type, Int32Type, Int16Type, Int8Type);
        numbers!(Integers, i128: UInt64Type, UInt32Type, UInt16Type, UInt8Type);
        numbers!(Floats, f64: Float32Type, Float64Type, Float16Type);
        keys!(Int32Type, Int64Type, Int16Type, Int8Type, UInt32Type, UInt64Type, UInt16Type, UInt8Type);
        None
    }

    /// Values of a dictionary of `len` values by the keys of rows.
    fn by(self, len: usize, key: impl Fn(usize) -> Option<usize> + 'a) -> Self {
        let key = move |row| key(row).filter(|key| *key < len);
        match self {
            Self::Bytes(of) => Self::Bytes(Box::new(move |row| of(key(row)?))),
            Self::Integers(of) => Self::Integers(Box::new(move |row| of(key(row)?))),
            Self::Floats(of) => Self::Floats(Box::new(move |row| of(key(row)?))),
        }
    }
}

/// Returns the maximum bytes of the text of a row.
pub(crate) fn longest(column: &dyn Array) -> u64 {
    match Values::of(column) {
        Some(Values::Bytes(of)) => {
            (0..column.len()).filter_map(|row| of(row).map(<[u8]>::len)).max().unwrap_or(0) as u64
        }
        _ => DIGITS,
    }
}

/// Appends the cells of the first `count` rows. An error has the row.
fn append(
    column: &dyn Array,
    count: usize,
    kind: CellKind,
    limits: &Limits,
    cells: &mut Cells,
) -> std::result::Result<(), (usize, Error)> {
    let values = Values::of(column).ok_or_else(|| (0, another()))?;
    match (values, kind, cells) {
        (Values::Bytes(of), CellKind::Text, Cells::Text(list)) => {
            for row in 0..count {
                let text = of(row).unwrap_or_default();
                Limits::check(
                    "bytes of the name of a row",
                    "name_bytes",
                    text.len() as u64,
                    limits.name_bytes,
                )
                .map_err(|error| (row, error))?;
                let text = std::str::from_utf8(text).map_err(|_| {
                    (row, Error::unsupported("not-utf8", "the text is not UTF-8").expected("text in UTF-8"))
                })?;
                list.push(text);
            }
        }
        (Values::Integers(of), CellKind::Text, Cells::Text(list)) => {
            let mut text = String::new();
            for row in 0..count {
                text.clear();
                if let Some(number) = of(row) {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "{number}");
                }
                list.push(&text);
            }
        }
        (Values::Integers(of), CellKind::Number, Cells::Numbers(bytes)) => {
            #[expect(clippy::cast_precision_loss, reason = "the nearest number is meant")]
            let number = |row| of(row).map_or(f64::NAN, |number| number as f64);
            (0..count).for_each(|row| bytes.extend_from_slice(&number(row).to_le_bytes()));
        }
        (Values::Floats(of), CellKind::Number, Cells::Numbers(bytes)) => {
            (0..count).for_each(|row| bytes.extend_from_slice(&of(row).unwrap_or(f64::NAN).to_le_bytes()));
        }
        _ => return Err((0, another())),
    }
    Ok(())
}
