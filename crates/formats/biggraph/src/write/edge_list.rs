//! Edge lists of other formats: columns named `lhs`, `rhs` and `rel`, or one table with these columns.

use super::super::edges::buckets::column_name;
use super::super::edges::integers::read_elements;
use super::tables;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::{DType, Encoding, Order, Region, Shape};
use weighbridge_io::source::{Source, SourceRef, check_range};

/// Required columns of an edge list.
const NEEDED: [&str; 3] = ["lhs", "rhs", "rel"];
/// Optional column.
const WEIGHT: &str = "weight";
/// Name of an ignored column.
const IGNORED: &str = "-";
/// Maximum number of columns of an edge list.
const MAX_COLUMNS: u64 = 4;
/// Number of rows of a text table that are checked.
const CHECKED_ROWS: u64 = 64;

/// True where the tensors are the columns of an edge list, or the columns of the only table have these names.
pub(crate) fn has_columns(checkpoint: &Checkpoint) -> bool {
    if let [table] = checkpoint.tensors.as_slice()
        && NEEDED.iter().all(|name| column_names(table).iter().any(|own| own == name))
    {
        return true;
    }
    let is_column = |name: &str| {
        checkpoint
            .tensors
            .iter()
            .any(|t| t.shape.rank() == 1 && !t.role.is_state() && column_name(t) == Some(name))
    };
    NEEDED.into_iter().all(is_column)
}

/// Column names of a table, if its file has them.
fn column_names(table: &TensorEntry) -> Vec<String> {
    let Some(Value::List(names)) = table.attributes.get("columns") else { return Vec::new() };
    let text = |name: &Value| match name {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    names.iter().filter_map(text).collect()
}

/// Splits a table of edges into a tensor per column; `None`
/// if the checkpoint has columns already.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `edge-columns`, if `names` do not identify the columns.
pub(super) fn columns(checkpoint: &Checkpoint, names: Option<&[String]>) -> Result<Option<Checkpoint>> {
    let [table] = checkpoint.tensors.as_slice() else { return Ok(None) };
    let [rows, count] = *table.shape.dims() else { return Ok(None) };
    if checkpoint.format == super::ID || table.role.is_state() {
        return Ok(None);
    }
    let own: Vec<String> = column_names(table)
        .into_iter()
        .map(|name| if name == WEIGHT || NEEDED.contains(&name.as_str()) { name } else { IGNORED.to_owned() })
        .collect();
    let names = names.unwrap_or(&own);
    let once = |name: &&str| names.iter().filter(|own| own == name).count() == 1;
    let known = |name: &String| [WEIGHT, IGNORED].contains(&name.as_str()) || NEEDED.contains(&name.as_str());
    let fits = names.len() as u64 == count && NEEDED.iter().all(once) && names.iter().all(known);
    if !fits || names.iter().filter(|name| *name == WEIGHT).count() > 1 {
        return Err(Error::usage("edge-columns", "the edge columns of the table are not specified")
            .on_tensor(table.name())
            .expected(format_args!("names of {count} columns: lhs, rhs, rel, and weight or - for others"))
            .found(if names.is_empty() { "none".to_owned() } else { names.join(",") })
            .hint(Opt::Set.pair("columns", "lhs,rel,rhs")));
    }
    let mut made = Checkpoint { tensors: Vec::new(), ..checkpoint.clone() };
    for (place, name) in (0u64..).zip(names).filter(|(_, name)| *name != IGNORED) {
        let source: SourceRef = Arc::new(Column::new(table, place)?);
        let path = TensorPath::new([Name::from(name.as_str())]);
        let mut column =
            TensorEntry::dense(path, table.dtype(), Shape::new([rows]), &source, 0, Encoding::ROW)?;
        column.role = Role::Edges;
        made.tensors.push(column);
    }
    Ok(Some(made))
}

/// Rejects an edge list of another format as a table of embeddings: its ids would become rows of
/// numbers.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`], `edge-list`.
pub(in super::super) fn refuse(checkpoint: &Checkpoint) -> Result<()> {
    let own = checkpoint.carried_origin().is_some_and(|origin| origin.format == super::ID);
    if checkpoint.format == super::ID || own {
        return Ok(());
    }
    for table in checkpoint.tensors.iter().filter(|t| tables::is_table(t)) {
        if is_list(checkpoint, table)? {
            return Err(Error::mismatch("edge-list", "the table looks like an edge list, not embeddings")
                .on_tensor(table.name())
                .expected("rows of real numbers")
                .found(format_args!("whole numbers in {}", table.shape))
                .hint(phrase![
                    Opt::Kind.with("edges"),
                    " ",
                    Opt::Set.pair("columns", "lhs,rel,rhs"),
                    " writes edges; ",
                    Opt::Cast.with("f32"),
                    " writes the numbers as embeddings"
                ]));
        }
    }
    Ok(())
}

/// True for a table of two to four columns with integers; row names count as a column.
fn is_list(checkpoint: &Checkpoint, table: &TensorEntry) -> Result<bool> {
    let [rows, columns] = *table.shape.dims() else { return Ok(false) };
    let all = columns + u64::from(table.row_names.is_some());
    if !(2..=MAX_COLUMNS).contains(&all) || rows == 0 || columns == 0 || table.cast.is_some() {
        return Ok(false);
    }
    if !table.stored.is_float() {
        return Ok(!matches!(table.stored, DType::C64 | DType::C128));
    }
    // Text has no dtype: ids are integers, and one more column may hold weights.
    if checkpoint.format != "tsv" {
        return Ok(false);
    }
    let first = table.rows(0..rows.min(CHECKED_ROWS))?;
    let bytes = first.read_tensor(Order::Row)?;
    let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let width = usize::try_from(columns).unwrap_or(usize::MAX);
    let is_id = |x: &f32| *x >= 0.0 && x.fract() == 0.0;
    let whole = (0..width).filter(|place| values.iter().skip(*place).step_by(width).all(is_id)).count();
    let numbered = match &table.row_names {
        Some(labels) => {
            let names = labels.read()?;
            let is_number = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
            names.iter().take(values.len() / width.max(1)).all(is_number)
        }
        None => false,
    };
    let ids = whole as u64 + u64::from(numbered);
    // A column counts as weights only if all others are integers.
    let needed = if numbered { all - 1 } else { columns };
    Ok(ids >= needed.max(2))
}

/// Column of a table, little-endian.
#[derive(Debug)]
struct Column {
    table: TensorEntry,
    place: u64,
    size: u64,
    len: u64,
}

impl Column {
    fn new(table: &TensorEntry, place: u64) -> Result<Self> {
        let size = table.dtype().size().ok_or_else(|| {
            Error::unsupported("packed-columns", "columns of packed elements cannot be split")
                .on_tensor(table.name())
        })? as u64;
        let rows = table.shape.dims().first().copied().unwrap_or(0);
        let table = TensorEntry { row_names: None, ..table.clone() };
        Ok(Self { table, place, size, len: rows.saturating_mul(size) })
    }
}

impl Source for Column {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        read_elements(offset, buffer, self.size, |rows, out| {
            let region =
                Region { start: vec![rows.start, self.place], shape: vec![rows.end - rows.start, 1] };
            out.extend(self.table.read_region(&region, Order::Row)?);
            Ok(())
        })
    }
    fn label(&self) -> &str {
        self.table.extents.first().map_or("table", |extent| extent.source.label())
    }
    fn is_sequential(&self) -> bool {
        self.table.extents.iter().any(|extent| extent.source.is_sequential())
    }
}
