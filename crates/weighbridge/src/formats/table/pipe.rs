//! Between this library and those that write and read columnar files.

use super::Table;
use super::columns::arrow_type;
use crate::checkpoint::{
    Checkpoint, INDEX_KEY, LabelList, Name, Note, RESERVED_PREFIX, TensorEntry, TensorPath, Value,
    bridge_index, restore_bridge_index,
};
use crate::error::{Error, Result};
use crate::plan::Output;
use crate::source::to_usize;
use arrow_array::{ArrayRef, FixedSizeListArray, RecordBatch, StringArray, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Once, PoisonError};

/// The key under which the name of the tensor goes along.
pub(in crate::formats) const TENSOR_KEY: &str = "weighbridge.tensor";

/// What a library writes, until it is passed on.
#[derive(Debug, Clone, Default)]
pub(in crate::formats) struct Pipe(Arc<Mutex<Vec<u8>>>);

impl Pipe {
    /// Passes on what was written.
    ///
    /// # Errors
    /// What the output says.
    pub(in crate::formats) fn drain(&self, out: &mut dyn Output) -> Result<()> {
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

thread_local! {
    /// True while a panic of this thread is an answer and no news.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Lets panics that are caught in [`guarded`] pass in silence. All others go to the hook that was there.
fn silence() {
    static ONCE: Once = Once::new();
    // While a thread unwinds, hooks cannot be changed.
    if std::thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // At the end of a thread the flag may be gone.
            if !GUARDED.try_with(Cell::get).unwrap_or(false) {
                before(info);
            }
        }));
    });
}

/// Runs what a library does with bytes that may be hostile. Should it panic, they are called corrupt, and
/// nothing else is said of it: printing where it happened would cost more than the file.
///
/// # Errors
/// What it says, with our own errors taken out of those that wrap them.
pub(in crate::formats) fn guarded<T, E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    what: &'static str,
    work: impl FnOnce() -> std::result::Result<T, E>,
) -> Result<T> {
    silence();
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    match result {
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
/// [`crate::Kind::Mismatch`] where there are more columns than Arrow counts.
pub(in crate::formats) fn schema(table: &Table, metadata: Vec<(String, String)>) -> Result<SchemaRef> {
    let mut fields = Vec::new();
    if table.entry.labels.is_some() {
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

/// Some rows as a record batch.
///
/// # Errors
/// What the sources say.
pub(in crate::formats) fn batch(
    table: &Table,
    schema: &SchemaRef,
    names: Option<&LabelList>,
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
/// carry besides.
pub(in crate::formats) fn carried(checkpoint: &Checkpoint, entry: &TensorEntry) -> Vec<(String, String)> {
    let name = entry.text();
    // Not a copy of the other tensors: this is done for each table.
    let mut single = Checkpoint {
        tensors: vec![entry.clone()],
        metadata: checkpoint.metadata.clone(),
        origin: checkpoint.origin.clone(),
        ..Checkpoint::default()
    };
    if let [dim] = *entry.shape.dims() {
        single.tensors[0].shape = crate::tensor::Shape::new([dim, 1]);
    }
    let mut pairs = Vec::new();
    if entry.path != TensorPath::value() {
        pairs.push((TENSOR_KEY.to_owned(), name.clone()));
    }
    let index = bridge_index(&single, &[name]);
    pairs.extend(index.map(|index| (INDEX_KEY.to_owned(), index)));
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
    key.starts_with(RESERVED_PREFIX) || key.starts_with("ARROW:") || key == "pandas"
}

/// A pair of metadata of which the key or the value is not UTF-8.
pub(in crate::formats) type OddPair = (Vec<u8>, Vec<u8>);

/// Puts pairs of metadata that are not text into the checkpoint: their bytes.
pub(in crate::formats) fn restore_odd<'a>(
    checkpoint: &mut Checkpoint,
    pairs: impl IntoIterator<Item = &'a OddPair>,
) {
    let mut count = 0u64;
    for (key, value) in pairs {
        count += 1;
        let value = match std::str::from_utf8(value) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Bytes(value.clone()),
        };
        let key = Name::new(key.as_slice()).to_text();
        if !is_reserved(&key) {
            checkpoint.metadata.set(key, value);
        }
    }
    if count > 0 {
        let text = format!("{count} of the pairs of the metadata are not UTF-8: their bytes are kept");
        checkpoint.notes.push(Note::new("metadata-bytes", text));
    }
}

/// Puts what went along back into the checkpoint, whose one tensor is the table.
pub(in crate::formats) fn restore(
    checkpoint: &mut Checkpoint,
    pairs: impl IntoIterator<Item = (String, String)>,
) {
    let mut pairs: Vec<(String, String)> = pairs.into_iter().collect();
    pairs.sort();
    let find = |key: &str| pairs.iter().find(|(own, _)| own == key).map(|(_, value)| value.clone());
    let name = find(TENSOR_KEY).filter(|name| name.len() <= 1 << 16);
    if let (Some(name), Some(tensor)) = (&name, checkpoint.tensors.first_mut()) {
        tensor.path = TensorPath::from_dotted(name);
    }
    let index = find(INDEX_KEY);
    for (key, value) in pairs {
        if !is_reserved(&key) {
            checkpoint.metadata.set(key, Value::Text(value));
        } else if key == "pandas" {
            checkpoint.notes.push(Note::new("pandas", "pandas wrote its own description beside the columns"));
        }
    }
    if let Some(index) = index {
        restore_bridge_index(checkpoint, &[name.unwrap_or_else(|| TensorPath::value().to_text())], &index);
    }
}
