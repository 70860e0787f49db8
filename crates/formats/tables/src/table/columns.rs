//! Selection of the table's columns in an Arrow schema, and conversion of record batches to rows.
//!
//! The rules, in this order:
//! 1. a column of fixed-size lists of numbers: the one named `vector`, else the first;
//! 2. a column of lists of numbers, all of one length: likewise;
//! 3. all numeric columns side by side, which must have one type.
//!
//! The row names are the first text column. Other columns are skipped with a note.

use super::NO_COLUMNS;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema};
use weighbridge_core::checkpoint::{Attributes, Note, RowNameList, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::DType;
use weighbridge_io::source::to_usize;

/// Attribute of a table built from several columns: their names.
const COLUMNS: &str = "columns";
/// Code of the note with the column names.
pub(super) const COLUMN_NAMES: &str = "column-names";
/// Keys in the metadata of a field: its extension type, the parameters of that type, and Parquet's field id.
const EXTENSION: &str = "ARROW:extension:name";
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";
const FIELD_ID: &str = "PARQUET:field_id";
/// Maximum number of columns and column properties listed in notes.
const MAX_LISTED: usize = 20;

/// Columns that make up a table.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// Element type.
    pub dtype: DType,
    /// Position of the elements.
    pub vector: Vector,
    /// Column of row names.
    pub names: Option<usize>,
}

/// Position of the elements of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Vector {
    /// Column with a list of this fixed length.
    Fixed(usize, u64),
    /// Column with lists; their length is in the data.
    List(usize),
    /// One element in each of these columns.
    Plain(Vec<usize>),
    /// No elements: row names only.
    None,
}

/// Element type of an Arrow type.
fn dtype(of: &DataType) -> Option<DType> {
    Some(match of {
        DataType::Int8 => DType::I8,
        DataType::Int16 => DType::I16,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::UInt8 => DType::U8,
        DataType::UInt16 => DType::U16,
        DataType::UInt32 => DType::U32,
        DataType::UInt64 => DType::U64,
        DataType::Float16 => DType::F16,
        DataType::Float32 => DType::F32,
        DataType::Float64 => DType::F64,
        _ => return None,
    })
}

/// Arrow type of an element type.
pub(crate) fn arrow_type(of: DType) -> Option<DataType> {
    Some(match of {
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::UInt8,
        DType::U16 => DataType::UInt16,
        DType::U32 => DataType::UInt32,
        DType::U64 => DataType::UInt64,
        DType::F16 => DataType::Float16,
        DType::F32 => DataType::Float32,
        DType::F64 => DataType::Float64,
        _ => return None,
    })
}

/// Element types that a column can have.
pub(crate) static DTYPES: &[DType] = &[
    DType::U8,
    DType::I8,
    DType::U16,
    DType::I16,
    DType::U32,
    DType::I32,
    DType::U64,
    DType::I64,
    DType::F16,
    DType::F32,
    DType::F64,
];

impl Layout {
    /// Selects the table of a schema.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`]: `no-table` if no column holds numbers or names,
    /// `mixed-columns` if numeric columns have several types.
    pub(crate) fn of(schema: &Schema, notes: &mut Vec<Note>) -> Result<Self> {
        let fields = schema.fields();
        let text = |t: &DataType| matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        let names = fields.iter().position(|field| text(field.data_type()));
        let mut lists: Vec<(usize, Vector, DType)> = Vec::new();
        for (place, field) in fields.iter().enumerate() {
            let (vector, item) = match field.data_type() {
                DataType::FixedSizeList(item, len) => match u64::try_from(*len) {
                    Ok(len) => (Vector::Fixed(place, len), item),
                    Err(_) => continue,
                },
                DataType::List(item) | DataType::LargeList(item) => (Vector::List(place), item),
                _ => continue,
            };
            lists.extend(dtype(item.data_type()).map(|dtype| (place, vector, dtype)));
        }
        let rank = |(place, vector, _): &(usize, Vector, DType)| {
            (matches!(vector, Vector::List(_)), fields[*place].name() != "vector", *place)
        };
        let plain: Vec<(usize, DType)> =
            fields.iter().enumerate().filter_map(|(i, f)| Some((i, dtype(f.data_type())?))).collect();
        let (vector, dtype) = if let Some((_, vector, dtype)) = lists.into_iter().min_by_key(rank) {
            (vector, dtype)
        } else if let Some(&(_, dtype)) = plain.first() {
            if let Some(&(other, _)) = plain.iter().find(|(_, own)| *own != dtype) {
                return Err(Error::unsupported("mixed-columns", "the numeric columns have different types")
                    .expected(dtype)
                    .found(format_args!("{} is {}", fields[other].name(), fields[other].data_type())));
            }
            (Vector::Plain(plain.into_iter().map(|(place, _)| place).collect()), dtype)
        } else if names.is_some() {
            (Vector::None, NO_COLUMNS)
        } else {
            return Err(Error::unsupported(
                "no-table",
                "the table has no column of numbers, lists of numbers or names",
            ));
        };
        let layout = Self { dtype, vector, names };
        let used = layout.projection();
        let others: Vec<_> = (0..fields.len()).filter(|place| used.binary_search(place).is_err()).collect();
        for &place in &others {
            let kind = fields[place].data_type().to_string();
            let kind: String = escape_text(&kind).chars().take(80).collect();
            notes.push(Note::skipped_tensor(fields[place].name(), format!("a column of type {kind}")));
        }
        notes.extend(renamed(schema, &used));
        notes.extend(column_property_notes(schema, &used));
        Ok(layout)
    }

    /// Attributes of the table: the names of its columns, where several columns make up the rows.
    pub(crate) fn attributes(&self, schema: &Schema) -> Attributes {
        let Vector::Plain(places) = &self.vector else { return Attributes::new() };
        let fields = places.iter().filter_map(|&place| schema.fields().get(place));
        let names = fields.map(|field| Value::Text(field.name().clone())).collect();
        Attributes::from([(COLUMNS.to_owned(), Value::List(names))])
    }

    /// The columns of the elements, in order.
    pub(crate) fn elements(&self) -> Vec<usize> {
        match &self.vector {
            Vector::Fixed(place, _) | Vector::List(place) => vec![*place],
            Vector::Plain(places) => places.clone(),
            Vector::None => Vec::new(),
        }
    }

    /// True for a column of elements or names.
    pub(crate) fn reads(&self, column: usize) -> bool {
        self.names == Some(column)
            || match &self.vector {
                Vector::Fixed(place, _) | Vector::List(place) => *place == column,
                Vector::Plain(places) => places.binary_search(&column).is_ok(),
                Vector::None => false,
            }
    }

    /// All used columns, in order.
    fn projection(&self) -> Vec<usize> {
        let mut all = self.elements();
        all.extend(self.names);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Appends the elements of a batch of the [element columns](Self::elements), row by row.
    /// Each row has `width` elements.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`]: `nulls`, `ragged-list`.
    pub(crate) fn rows(&self, batch: &RecordBatch, width: u64, out: &mut Vec<u8>) -> Result<()> {
        let size = self.dtype.size().unwrap_or(1);
        let width = to_usize(width)?;
        if let Vector::Plain(_) = self.vector {
            let columns = batch.columns().iter().map(|c| values(c, size)).collect::<Result<Vec<_>>>()?;
            out.reserve_exact(columns.iter().map(|column| column.len()).sum());
            for row in 0..batch.num_rows() {
                for column in &columns {
                    out.extend_from_slice(column.get(row * size..(row + 1) * size).ok_or_else(short)?);
                }
            }
            return Ok(());
        }
        let Some(column) = batch.columns().first() else { return Ok(()) };
        refuse_nulls(&**column)?;
        let elements = match &self.vector {
            Vector::Fixed(..) => {
                let list = column.as_fixed_size_list_opt().ok_or_else(another)?;
                list.values().slice(list.value_offset_at(0), list.len() * width)
            }
            _ => match (column.as_list_opt::<i32>(), column.as_list_opt::<i64>()) {
                (Some(list), _) => {
                    let offsets: Vec<i64> = list.offsets().iter().map(|&o| i64::from(o)).collect();
                    of_list(&offsets, list.values(), width)?
                }
                (_, Some(list)) => of_list(list.offsets(), list.values(), width)?,
                _ => return Err(another()),
            },
        };
        out.extend_from_slice(values(&elements, size)?);
        Ok(())
    }

    /// Appends the names in a batch with one column of names, up to `most` bytes in the list.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`], `nulls`; the errors of [`RowNameList::push_within`].
    pub(crate) fn names(batch: &RecordBatch, list: &mut RowNameList, most: u64) -> Result<()> {
        let Some(column) = batch.columns().first() else { return Ok(()) };
        refuse_nulls(&**column)?;
        if let Some(names) = column.as_string_opt::<i32>() {
            names.iter().flatten().try_for_each(|name| list.push_within(name, most))?;
        } else if let Some(names) = column.as_string_opt::<i64>() {
            names.iter().flatten().try_for_each(|name| list.push_within(name, most))?;
        } else if let Some(names) = column.as_string_view_opt() {
            names.iter().flatten().try_for_each(|name| list.push_within(name, most))?;
        } else if let Some(names) = column.as_binary_view_opt() {
            // Arrow byte views, not checked as UTF-8 yet: the list reaches its limit before they are all visited.
            for name in names.iter().flatten() {
                let name = std::str::from_utf8(name)
                    .map_err(|_| Error::corrupt("not-understood", "a row name is not UTF-8"))?;
                list.push_within(name, most)?;
            }
        } else {
            return Err(another());
        }
        Ok(())
    }

    /// Length of the first list of a batch.
    pub(crate) fn first_width(batch: &RecordBatch) -> Option<u64> {
        let column = batch.columns().first().filter(|column| !column.is_empty())?;
        let len = match (column.as_list_opt::<i32>(), column.as_list_opt::<i64>()) {
            (Some(list), _) => i64::from(list.value_length(0)),
            (_, Some(list)) => list.value_length(0),
            _ => return None,
        };
        u64::try_from(len).ok()
    }
}

/// Note where writing the table would rename or reorder its columns.
fn renamed(schema: &Schema, used: &[usize]) -> Option<Note> {
    let names: Vec<&str> = used.iter().map(|&place| schema.fields()[place].name().as_str()).collect();
    if matches!(names[..], ["name", "vector"] | ["vector"] | ["name"]) {
        return None;
    }
    let shown: Vec<String> = names.iter().take(MAX_LISTED).map(|name| short_text(name)).collect();
    let more = if names.len() > MAX_LISTED { ", …" } else { "" };
    Some(Note::new(COLUMN_NAMES, format!("the columns are named {}{more}", shown.join(", "))))
}

/// Notes on column properties without a place in the checkpoint: extension types, such as tensors of
/// more dimensions, and metadata of fields.
fn column_property_notes(schema: &Schema, used: &[usize]) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut more = 0u64;
    let mut push = |note: &dyn Fn() -> Note| match notes.len() < MAX_LISTED {
        true => notes.push(note()),
        false => more += 1,
    };
    for field in used.iter().map(|&place| &schema.fields()[place]) {
        let item = match field.data_type() {
            DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item) => Some(item),
            _ => None,
        };
        for own in [Some(field), item].into_iter().flatten() {
            let column = || short_text(field.name());
            if let Some(kind) = own.metadata().get(EXTENSION) {
                let parameters = own.metadata().get(EXTENSION_METADATA).map_or("", String::as_str);
                push(&|| {
                    let text = format!(
                        "extension type {} of the column {} omitted: {}",
                        short_text(kind),
                        column(),
                        short_text(parameters)
                    );
                    Note::omission("column-type", text)
                });
            }
            let mut keys: Vec<&String> = own.metadata().keys().collect();
            keys.retain(|key| ![EXTENSION, EXTENSION_METADATA, FIELD_ID].contains(&key.as_str()));
            keys.sort_unstable();
            for key in keys {
                push(&|| {
                    let text = format!("metadata of the column {} omitted: {}", column(), short_text(key));
                    Note::omission("column-metadata", text)
                });
            }
        }
    }
    if more > 0 {
        notes.push(Note::omission("column-metadata", format!("{more} more column properties omitted")));
    }
    notes
}

/// Escaped start of a text from the file.
fn short_text(text: &str) -> String {
    let start: String = text.chars().take(80).collect();
    escape_text(&start)
}

/// Elements of lists that must all have `width` elements.
fn of_list(offsets: &[i64], elements: &ArrayRef, width: usize) -> Result<ArrayRef> {
    let lengths = offsets.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    if let Some((row, len)) = lengths.enumerate().find(|(_, len)| usize::try_from(*len) != Ok(width)) {
        return Err(Error::unsupported("ragged-list", "the lists of the column have different lengths")
            .expected(format_args!("{width} elements"))
            .found(format_args!("{len} in row {row} of its record batch")));
    }
    let first = offsets.first().and_then(|&first| usize::try_from(first).ok()).unwrap_or(0);
    let count = offsets.len().saturating_sub(1) * width;
    if first.checked_add(count).is_none_or(|end| end > elements.len()) {
        return Err(short());
    }
    Ok(elements.slice(first, count))
}

/// Bytes of the elements of a numeric array.
fn values(array: &ArrayRef, size: usize) -> Result<&[u8]> {
    refuse_nulls(&**array)?;
    macro_rules! of {
        ($($t:ident),*) => {
            $(if let Some(array) = array.as_primitive_opt::<arrow_array::types::$t>() {
                return array.values().inner().get(..array.len() * size).ok_or_else(short);
            })*
        };
    }
    of!(
        Int8Type,
        Int16Type,
        Int32Type,
        Int64Type,
        UInt8Type,
        UInt16Type,
        UInt32Type,
        UInt64Type,
        Float16Type,
        Float32Type,
        Float64Type
    );
    Err(another())
}

fn refuse_nulls(array: &dyn Array) -> Result<()> {
    if array.null_count() == 0 {
        return Ok(());
    }
    Err(Error::unsupported("nulls", "the column has missing values")
        .found(format_args!("{} in one record batch", array.null_count()))
        .hint("fill the missing values and write the table again"))
}

fn short() -> Error {
    Error::corrupt("short-column", "the column has fewer elements than rows")
}

fn another() -> Error {
    Error::corrupt("another-column", "the column type differs from the schema")
}
