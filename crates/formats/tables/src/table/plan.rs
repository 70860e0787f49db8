//! Which tensors are tables, and the files that they become.

use super::Table;
use super::columns::COLUMN_NAMES;
use super::pipe::is_reserved;
use std::sync::Arc;
use weighbridge_core::checkpoint::{
    Checkpoint, Loss, Metadata, Role, TensorEntry, TensorPath, Value, escape_text,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::{Encode, PlannedFile, WritePlan};
use weighbridge_core::tensor::DType;
use weighbridge_format::FormatInfo;

/// What a table without columns, in a format that has types, is read as.
pub(crate) const NO_COLUMNS: DType = DType::U8;

/// How a format writes tables.
pub(crate) struct Form<'a> {
    /// What it is.
    pub facts: &'static FormatInfo,
    /// The kind that is written.
    pub kind: &'static str,
    /// The extension of files in a folder, without dot.
    pub extension: &'static str,
    /// True where names, roles and metadata go along in the file.
    pub carries: bool,
    /// True where none of this goes along in entries of Weighbridge's own.
    pub plain: bool,
    /// What writes the file of a table.
    #[allow(clippy::type_complexity)]
    pub encoder: &'a dyn Fn(Table) -> Result<Arc<dyn Encode>>,
}

/// Plans a file for each table: one is the target itself, several stand in a folder.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `not-a-table` where no tensor is one, `table-dtype` for elements that
/// the format cannot hold.
pub(crate) fn plan(checkpoint: &Checkpoint, form: &Form<'_>) -> Result<WritePlan> {
    let mut losses = Vec::new();
    let mut tables = Vec::new();
    let names = checkpoint.bridge_names(weighbridge_format::file_name::tidy, &[]);
    for (tensor, name) in checkpoint.tensors.iter().zip(names) {
        if tensor.role.is_state() {
            let detail = "a table holds no optimizer state: it is left out";
            losses.push(Loss::new("state-dropped", tensor.name(), detail));
        } else if let Some(table) = Table::new(tensor).filter(is_table) {
            if !form.facts.dtypes.contains(&tensor.dtype()) {
                let text = format!("{} has no elements of type {}", form.facts.id, tensor.dtype());
                return Err(Error::mismatch("table-dtype", text)
                    .on_tensor(tensor.name())
                    .hint(phrase!["cast them: ", Opt::Cast.with("f32")]));
            }
            tables.push((table, name));
        } else {
            let detail = format!("a tensor of shape {} is no table: it is left out", tensor.shape);
            losses.push(Loss::new("not-a-table", tensor.name(), detail));
        }
    }
    if tables.is_empty() {
        return Err(Error::mismatch("not-a-table", "there is no table: no tensor with rows and columns")
            .in_file(&checkpoint.label)
            .found(format_args!("{} tensors", checkpoint.tensors.len()))
            .hint("tables have two dimensions; write an npz or a safetensors file"));
    }
    losses.extend(checkpoint.left_behind());
    let alone = tables.len() == 1;
    if !alone {
        let detail = "each table becomes a file of its own: they are not read back as one model";
        losses.push(Loss::new("apart", escape_text(&checkpoint.label), detail));
    }
    let mut files = Vec::with_capacity(tables.len());
    for (table, name) in tables {
        if form.carries {
            losses.extend(columnless(&table));
            if form.plain {
                losses.extend(stripped(&table.entry, alone));
            }
        } else {
            losses.extend(stripped(&table.entry, alone));
            losses.extend(untyped(&table.entry));
        }
        if table.entry.shape.rank() == 1 {
            let detail = "a tensor of one dimension becomes a table of one column";
            losses.push(Loss::new("shape", table.entry.name(), detail));
        }
        let name = if alone { String::new() } else { format!("{name}.{}", form.extension) };
        files.push(PlannedFile::streamed(name, (form.encoder)(table)?));
    }
    if form.carries {
        losses.extend(checkpoint.notes.iter().find(|note| note.code == COLUMN_NAMES).map(|note| {
            let detail = format!("{}, and become name and vector", note.text);
            Loss::new("columns-renamed", escape_text(&checkpoint.label), detail)
        }));
        let own = |(key, value): &(&str, &Value)| is_reserved(key) && matches!(value, Value::Text(_));
        losses.extend(checkpoint.metadata.iter().filter(own).map(|(key, _)| {
            let detail =
                "keys of this name belong to the libraries of the format, or to what this one carries";
            Loss::new("metadata-dropped", escape_text(key), detail)
        }));
        let typed = |(_, value): &(&str, &Value)| form.plain && !matches!(value, Value::Text(_));
        losses.extend(checkpoint.metadata.iter().filter(typed).map(|(key, _)| {
            Loss::new(
                "metadata-dropped",
                escape_text(key),
                "a plain file has no place for values that are not text",
            )
        }));
    } else {
        losses.extend(checkpoint.metadata.iter().map(|(key, _)| {
            Loss::new("metadata-dropped", escape_text(key), "the table has no place for metadata")
        }));
    }
    Ok(WritePlan { format: form.facts.id, kind: form.kind, files, losses })
}

/// A table has columns, or at least names of its rows.
pub(crate) fn is_table(table: &Table) -> bool {
    table.columns > 0 || table.entry.row_names.is_some()
}

/// Columns say of which type their elements are, but there is none.
fn columnless(table: &Table) -> Option<Loss> {
    let dtype = table.entry.dtype();
    (table.columns == 0 && dtype != NO_COLUMNS).then(|| {
        let detail = format!("without a column the file does not say {dtype}: it is read as {NO_COLUMNS}");
        Loss::new("dtype-lost", table.entry.name(), detail)
    })
}

/// Digits do not say of which type they are.
fn untyped(entry: &TensorEntry) -> Option<Loss> {
    let dtype = entry.dtype();
    (dtype != DType::F32).then(|| {
        let rounded = if dtype.cast_is_exact(DType::F32) { "" } else { ", and some are rounded" };
        let detail = format!("text does not say that its numbers are {dtype}: they are read as f32{rounded}");
        Loss::new("dtype-lost", entry.name(), detail)
    })
}

/// What a file of rows alone does not say of its tensor.
fn stripped(entry: &TensorEntry, alone: bool) -> Vec<Loss> {
    let mut losses = Vec::new();
    if alone && entry.path != TensorPath::value() {
        losses.push(Loss::new("name-dropped", entry.name(), "the table has no place for a name of its own"));
    }
    let mut bare = Checkpoint { tensors: vec![entry.clone()], ..Checkpoint::default() };
    bare.metadata = Metadata::default();
    bare.tensors[0].path = TensorPath::value();
    // A table that is written is one of embeddings as like as not; nothing is lost by not saying so.
    if entry.role == Role::Embedding {
        bare.tensors[0].role = Role::Parameter;
    }
    if bare.bridge_index(&[TensorPath::value().to_text()]).is_some() {
        let detail = "the table holds rows alone: not the tensor's role or attributes";
        losses.push(Loss::new("index-dropped", entry.name(), detail));
    }
    losses
}
