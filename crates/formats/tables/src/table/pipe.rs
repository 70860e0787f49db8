//! Glue between this crate and the libraries for columnar files.

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

/// Metadata key of the tensor name.
pub(crate) const TENSOR_KEY: &str = "weighbridge.tensor";

/// Metadata key of the Arrow schema in Parquet files.
const ARROW_SCHEMA: &str = "ARROW:schema";

/// Buffer for the output of a library.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pipe(Arc<Mutex<Vec<u8>>>);

impl Pipe {
    /// Passes the buffered bytes on.
    ///
    /// # Errors
    /// The errors of the output.
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
/// The errors of the library; errors of this project inside them are unwrapped.
pub(crate) fn guarded<T, E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    what: &'static str,
    work: impl FnOnce() -> std::result::Result<T, E>,
) -> Result<T> {
    match catch_panic(work) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(unwrap(what, &*error.into())),
        Err(_) => Err(Error::corrupt("not-understood", format!("{what} is inconsistent"))),
    }
}

/// Error of this project inside a library error, if any; otherwise an error that quotes the library.
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
    // A trace of the decoder: it names fields of the encoding, not of the file.
    if text.contains("\n\t") {
        return Error::corrupt("not-understood", format!("{what} is damaged"))
            .hint("use another copy of the file");
    }
    Error::corrupt("not-understood", format!("{what} cannot be read")).found(text)
}

/// Schema of a written table.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] if there are more columns than Arrow can count.
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
    let wide = || Error::mismatch("too-wide", "the table has too many columns").on_tensor(table.entry.name());
    let width = i32::try_from(table.columns).map_err(|_| wide())?;
    let of = arrow_type(table.entry.dtype()).ok_or_else(|| {
        Error::mismatch("table-dtype", "a column cannot hold this dtype").on_tensor(table.entry.name())
    })?;
    Ok((Arc::new(Field::new("item", of, false)), width))
}

/// Passes all rows to `write` as record batches of `at_once` rows, and the bytes in `pipe` to `out`.
///
/// # Errors
/// The errors of the sources and of `write`.
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

/// Builds a record batch from a range of rows.
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

/// Metadata stored with a table: its tensor's name, the text metadata, and the entries of
/// the bridge metadata. In a `plain` file the text metadata alone.
pub(crate) fn carried(checkpoint: &Checkpoint, entry: &TensorEntry, plain: bool) -> Vec<(String, String)> {
    let name = entry.text();
    // The other tensors are not copied: this runs for each table.
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

/// True for keys reserved by the libraries of columnar files or by this project.
pub(super) fn is_reserved(key: &str) -> bool {
    key.starts_with(Metadata::RESERVED_PREFIX) || key.starts_with("ARROW:") || key == "pandas"
}

/// Metadata pair, key and value, as in the file: any bytes.
pub(crate) type RawPair = (Vec<u8>, Vec<u8>);

/// Restores stored metadata into a checkpoint with the table as its only tensor. For a duplicate key the first
/// value counts, as in pyarrow. Keys and values that are not UTF-8 are kept as bytes unless another key has the same spelling.
pub(crate) fn restore(checkpoint: &mut Checkpoint, pairs: impl IntoIterator<Item = RawPair>) {
    let (mut texts, mut odd) = (Vec::new(), Vec::new());
    for (key, value) in pairs {
        match (String::from_utf8(key), String::from_utf8(value)) {
            (Ok(key), Ok(value)) => texts.push((key, value)),
            (key, value) => odd.push((bytes_of(key), bytes_of(value))),
        }
    }
    // Stable: duplicates stay in file order.
    texts.sort_by(|(a, _), (b, _)| a.cmp(b));
    let find = |key: &str| texts.iter().find(|(own, _)| own == key).map(|(_, value)| value.clone());
    let name = find(TENSOR_KEY).filter(|name| name.len() <= 1 << 16);
    if let (Some(name), Some(tensor)) = (&name, checkpoint.tensors.first_mut()) {
        tensor.path = TensorPath::from_dotted(name);
    }
    let index = find(Metadata::INDEX_KEY);
    let mut dropped = DroppedPairs::default();
    for (key, value) in texts {
        if is_reserved(&key) {
            match &*key {
                "pandas" => {
                    let text = "the file has a pandas description of the columns";
                    checkpoint.notes.push(Note::new("pandas", text));
                }
                TENSOR_KEY | Metadata::INDEX_KEY | ARROW_SCHEMA => {}
                _ => dropped.add(&key),
            }
        } else {
            match checkpoint.metadata.get(&key) {
                None => checkpoint.metadata.set(key, Value::Text(value)),
                Some(Value::Text(first)) if *first == value => {}
                Some(_) => dropped.add(&key),
            }
        }
    }
    if let Some(index) = index {
        checkpoint.restore_bridge_index(&[name.unwrap_or_else(|| TensorPath::value().to_text())], &index);
    }
    restore_odd(checkpoint, odd, &mut dropped);
    checkpoint.notes.extend(dropped.note());
}

/// Stores metadata pairs that are not text in the checkpoint, as bytes.
fn restore_odd(checkpoint: &mut Checkpoint, pairs: Vec<RawPair>, dropped: &mut DroppedPairs) {
    let mut kept = 0u64;
    for (key, value) in pairs {
        // Bytes that are not UTF-8 are escaped, and another key may have the same spelling.
        let key = Name::new(key).to_text();
        if is_reserved(&key) || checkpoint.metadata.get(&key).is_some() {
            dropped.add(&key);
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
            "metadata pair is not UTF-8: kept as bytes",
            "metadata pairs are not UTF-8: kept as bytes",
        );
        checkpoint.notes.push(Note::new("metadata-bytes", text));
    }
}

fn bytes_of(text: std::result::Result<String, FromUtf8Error>) -> Vec<u8> {
    text.map_or_else(FromUtf8Error::into_bytes, String::into_bytes)
}

/// Metadata pairs without a place in the checkpoint.
#[derive(Default)]
struct DroppedPairs {
    count: u64,
    first: String,
}

impl DroppedPairs {
    fn add(&mut self, key: &str) {
        if self.count == 0 {
            self.first = quoted(key);
        }
        self.count += 1;
    }

    fn note(self) -> Option<Note> {
        (self.count > 0).then(|| {
            let pairs = counted(self.count, "metadata pair", "metadata pairs");
            let text = format!("{pairs} dropped, first {}: the key is a duplicate or reserved", self.first);
            Note::omission("metadata-key-taken", text)
        })
    }
}
