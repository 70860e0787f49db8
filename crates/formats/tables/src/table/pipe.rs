//! Between this library and those that write and read columnar files.

use super::Table;
use super::columns::arrow_type;
use arrow_array::{ArrayRef, FixedSizeListArray, RecordBatch, StringArray, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::string::FromUtf8Error;
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::checkpoint::{
    Checkpoint, Metadata, Name, Note, RowNameList, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::Output;
use weighbridge_core::text::{counted, quoted};
use weighbridge_io::catch_panic;
use weighbridge_io::source::to_usize;

/// The key under which the name of the tensor goes along.
pub(crate) const TENSOR_KEY: &str = "weighbridge.tensor";

/// The key under which Parquet has the schema of Arrow.
const ARROW_SCHEMA: &str = "ARROW:schema";

/// What a library writes, until it is passed on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pipe(Arc<Mutex<Vec<u8>>>);

impl Pipe {
    /// Passes on what was written.
    ///
    /// # Errors
    /// What the output says.
    pub(crate) fn drain(&self, out: &mut dyn Output) -> Result<()> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.write(&bytes)?;
        bytes.clear();
        Ok(())
    }
}

impl io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs a library on untrusted bytes. A panic becomes an error: the bytes are corrupt.
///
/// # Errors
/// Those of the library, with our own errors taken out of those that wrap them.
pub(crate) fn guarded<T, E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    what: &'static str,
    work: impl FnOnce() -> std::result::Result<T, E>,
) -> Result<T> {
    match catch_panic(work) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(unwrap(what, &*error.into())),
        Err(_) => Err(Error::corrupt("not-understood", format!("{what} contradicts itself"))),
    }
}

/// Our own error inside of one of a library, if there is one; else one that quotes it.
fn unwrap(what: &str, error: &(dyn std::error::Error + 'static)) -> Error {
    let mut inner = Some(error);
    while let Some(current) = inner {
        if let Some(own) = current.downcast_ref::<Error>() {
            let mut copy = Error::new(own.kind(), own.code(), own.message());
            if let Some(file) = own.file() {
                copy = copy.in_file(file);
            }
            return own.offset().map_or(copy.within(what), |offset| {
                Error::new(own.kind(), own.code(), own.message()).at(offset).within(what)
            });
        }
        inner = match current.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped as &(dyn std::error::Error + 'static)),
            None => current.source(),
        };
    }
    let text: String = error.to_string().chars().take(300).collect();
    Error::corrupt("not-understood", format!("{what} cannot be read")).found(text)
}

/// The columns under which a table is written.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] where there are more columns than Arrow counts.
pub(crate) fn schema(table: &Table, metadata: Vec<(String, String)>) -> Result<SchemaRef> {
    let mut fields = Vec::new();
    if table.entry.row_names.is_some() {
        fields.push(Field::new("name", DataType::Utf8, false));
    }
    if table.columns > 0 {
        let (item, width) = item(table)?;
        fields.push(Field::new("vector", DataType::FixedSizeList(item, width), false));
    }
    let metadata: BTreeMap<String, String> = metadata.into_iter().collect();
    Ok(Arc::new(Schema::new_with_metadata(fields, metadata)))
}

fn item(table: &Table) -> Result<(Arc<Field>, i32)> {
    let wide = || {
        Error::mismatch("too-wide", "the table has more columns than this form can count")
            .on_tensor(table.entry.name())
    };
    let width = i32::try_from(table.columns).map_err(|_| wide())?;
    let of = arrow_type(table.entry.dtype()).ok_or_else(|| {
        Error::mismatch("table-dtype", "no column has such elements").on_tensor(table.entry.name())
    })?;
    Ok((Arc::new(Field::new("item", of, false)), width))
}

/// Gives `write` all rows as record batches of `at_once` rows, and `out` what goes through `pipe` meanwhile.
///
/// # Errors
/// What the sources and `write` say.
pub(crate) fn batches(
    table: &Table,
    schema: &SchemaRef,
    at_once: u64,
    pipe: &Pipe,
    out: &mut dyn Output,
    write: &mut dyn FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    let names = table.names()?;
    let mut start = 0;
    while start < table.rows {
        let rows = start..table.rows.min(start + at_once);
        write(&batch(table, schema, names.as_deref(), &rows, out)?)?;
        pipe.drain(out)?;
        start = rows.end;
    }
    Ok(())
}

/// Some rows as a record batch.
fn batch(
    table: &Table,
    schema: &SchemaRef,
    names: Option<&RowNameList>,
    rows: &Range<u64>,
    out: &mut dyn Output,
) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = Vec::new();
    if let Some(names) = names {
        let places = to_usize(rows.start)?..to_usize(rows.end)?;
        columns.push(Arc::new(StringArray::from_iter_values(places.filter_map(|row| names.get(row)))));
    }
    if table.columns > 0 {
        let mut bytes = Vec::new();
        table.read(rows, out, &mut bytes)?;
        let (item, width) = item(table)?;
        let count = to_usize((rows.end - rows.start) * table.columns)?;
        let column = guarded("the table", || {
            let data = ArrayData::builder(item.data_type().clone())
                .len(count)
                .add_buffer(Buffer::from_vec(bytes))
                .align_buffers(true)
                .build()?;
            FixedSizeListArray::try_new(item, width, make_array(data), None)
        })?;
        columns.push(Arc::new(column));
    }
    guarded("the table", || RecordBatch::try_new(schema.clone(), columns))
}

/// What goes along with a table: its tensor's name, the texts of the metadata, and what the bridges
/// carry besides. In a `plain` file the texts of the metadata alone.
pub(crate) fn carried(checkpoint: &Checkpoint, entry: &TensorEntry, plain: bool) -> Vec<(String, String)> {
    let name = entry.text();
    // Not a copy of the other tensors: this is done for each table.
    let mut single = Checkpoint {
        tensors: vec![entry.clone()],
        metadata: checkpoint.metadata.clone(),
        origin: checkpoint.origin.clone(),
        ..Checkpoint::default()
    };
    if let [dim] = *entry.shape.dims() {
        single.tensors[0].shape = weighbridge_core::tensor::Shape::new([dim, 1]);
    }
    let mut pairs = Vec::new();
    if entry.path != TensorPath::value() && !plain {
        pairs.push((TENSOR_KEY.to_owned(), name.clone()));
    }
    let index = single.bridge_index(&[name]).filter(|_| !plain);
    pairs.extend(index.map(|index| (Metadata::INDEX_KEY.to_owned(), index)));
    for (key, value) in checkpoint.metadata.iter() {
        if let Value::Text(text) = value
            && !is_reserved(key)
        {
            pairs.push((key.to_owned(), text.clone()));
        }
    }
    pairs
}

/// Keys that belong to the libraries of columnar files, and to this one.
pub(super) fn is_reserved(key: &str) -> bool {
    key.starts_with(Metadata::RESERVED_PREFIX) || key.starts_with("ARROW:") || key == "pandas"
}

/// A pair of metadata, key and value, as it stands in the file: any bytes.
pub(crate) type RawPair = (Vec<u8>, Vec<u8>);

/// Puts what went along back into the checkpoint, whose one tensor is the table. Of a key that stands twice the first
/// value counts, as in pyarrow. Keys and values that are not UTF-8 are kept as bytes where no other key looks the same.
pub(crate) fn restore(checkpoint: &mut Checkpoint, pairs: impl IntoIterator<Item = RawPair>) {
    let (mut texts, mut odd) = (Vec::new(), Vec::new());
    for (key, value) in pairs {
        match (String::from_utf8(key), String::from_utf8(value)) {
            (Ok(key), Ok(value)) => texts.push((key, value)),
            (key, value) => odd.push((bytes_of(key), bytes_of(value))),
        }
    }
    // Stable: of one key in the order of the file.
    texts.sort_by(|(a, _), (b, _)| a.cmp(b));
    let find = |key: &str| texts.iter().find(|(own, _)| own == key).map(|(_, value)| value.clone());
    let name = find(TENSOR_KEY).filter(|name| name.len() <= 1 << 16);
    if let (Some(name), Some(tensor)) = (&name, checkpoint.tensors.first_mut()) {
        tensor.path = TensorPath::from_dotted(name);
    }
    let index = find(Metadata::INDEX_KEY);
    let mut left_out = LeftOut::default();
    for (key, value) in texts {
        if is_reserved(&key) {
            match &*key {
                "pandas" => {
                    let text = "pandas wrote its own description beside the columns";
                    checkpoint.notes.push(Note::new("pandas", text));
                }
                TENSOR_KEY | Metadata::INDEX_KEY | ARROW_SCHEMA => {}
                _ => left_out.add(&key),
            }
        } else {
            match checkpoint.metadata.get(&key) {
                None => checkpoint.metadata.set(key, Value::Text(value)),
                Some(Value::Text(first)) if *first == value => {}
                Some(_) => left_out.add(&key),
            }
        }
    }
    if let Some(index) = index {
        checkpoint.restore_bridge_index(&[name.unwrap_or_else(|| TensorPath::value().to_text())], &index);
    }
    restore_odd(checkpoint, odd, &mut left_out);
    checkpoint.notes.extend(left_out.note());
}

/// Puts pairs of metadata that are not text into the checkpoint: their bytes.
fn restore_odd(checkpoint: &mut Checkpoint, pairs: Vec<RawPair>, left_out: &mut LeftOut) {
    let mut kept = 0u64;
    for (key, value) in pairs {
        // Bytes that are not UTF-8 are spelled out, and another key may have that spelling.
        let key = Name::new(key).to_text();
        if is_reserved(&key) || checkpoint.metadata.get(&key).is_some() {
            left_out.add(&key);
            continue;
        }
        let value =
            String::from_utf8(value).map_or_else(|error| Value::Bytes(error.into_bytes()), Value::Text);
        checkpoint.metadata.set(key, value);
        kept += 1;
    }
    if kept > 0 {
        let text = counted(
            kept,
            "pair of the metadata is not UTF-8: its bytes are kept",
            "pairs of the metadata are not UTF-8: their bytes are kept",
        );
        checkpoint.notes.push(Note::new("metadata-bytes", text));
    }
}

fn bytes_of(text: std::result::Result<String, FromUtf8Error>) -> Vec<u8> {
    text.map_or_else(FromUtf8Error::into_bytes, String::into_bytes)
}

/// Pairs of metadata that have no place in the checkpoint.
#[derive(Default)]
struct LeftOut {
    count: u64,
    first: String,
}

impl LeftOut {
    fn add(&mut self, key: &str) {
        if self.count == 0 {
            self.first = quoted(key);
        }
        self.count += 1;
    }

    fn note(self) -> Option<Note> {
        (self.count > 0).then(|| {
            let pairs = counted(self.count, "pair of the metadata is", "pairs of the metadata are");
            let text = format!(
                "{pairs} not kept, first {}: the key is that of another pair, or belongs to a library",
                self.first
            );
            Note::omission("metadata-key-taken", text)
        })
    }
}
