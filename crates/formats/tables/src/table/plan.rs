//! Selection of tables, and the plan of their files.

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
use weighbridge_core::text::counted;
use weighbridge_format::FormatInfo;

/// Dtype of a table without columns, in a typed format.
pub(crate) const NO_COLUMNS: DType = DType::U8;

/// Parameters of a format that writes tables.
pub(crate) struct Form<'a> {
    /// Format info.
    pub info: &'static FormatInfo,
    /// Kind to write.
    pub kind: &'static str,
    /// Extension of files in a folder, without the dot.
    pub extension: &'static str,
    /// True where names, roles and metadata are stored in the file.
    pub carries: bool,
    /// True where the file has no entries of Weighbridge's own.
    pub plain: bool,
    /// Constructor of the encoder of a table.
    #[allow(clippy::type_complexity)]
    pub encoder: &'a dyn Fn(Table) -> Result<Arc<dyn Encode>>,
}

/// Plans a file for each table: a single table is the target itself, several become a folder.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `not-a-table` if no tensor is a table, `table-dtype` for a dtype that
/// the format cannot hold.
pub(crate) fn plan(checkpoint: &Checkpoint, form: &Form<'_>) -> Result<WritePlan> {
    let mut losses = Vec::new();
    let mut tables = Vec::new();
    let names = checkpoint.bridge_names(weighbridge_format::file_name::tidy, &[]);
    for (tensor, name) in checkpoint.tensors.iter().zip(names) {
        if tensor.role.is_state() {
            let detail = phrase![
                "a table has no place for optimizer state; with ",
                Opt::NoState,
                " its omission is not a loss"
            ];
            losses.push(Loss::new("state-dropped", tensor.name(), detail));
        } else if let Some(table) = Table::new(tensor).filter(is_table) {
            if !form.info.dtypes.contains(&tensor.dtype()) {
                let text = format!("{} cannot hold dtype {}", form.info.id, tensor.dtype());
                return Err(Error::mismatch("table-dtype", text)
                    .on_tensor(tensor.name())
                    .hint(tensor.f32_hint()));
            }
            tables.push((table, name));
        } else {
            let detail = format!("tensor of shape {} dropped: it is not a table", tensor.shape);
            losses.push(Loss::new("not-a-table", tensor.name(), detail));
        }
    }
    if tables.is_empty() {
        let count = counted(checkpoint.tensors.len() as u64, "tensor", "tensors");
        let first = checkpoint.tensors.iter().find(|tensor| !tensor.role.is_state());
        return Err(Error::mismatch("not-a-table", "a table needs 1 or 2 dimensions")
            .in_file(&checkpoint.label)
            .found(
                first.map_or(count.clone(), |first| format!("{count}, the first has shape {}", first.shape)),
            )
            .hint("write npz or safetensors instead"));
    }
    losses.extend(checkpoint.left_behind());
    let alone = tables.len() == 1;
    if !alone {
        let detail = "each table is written to its own file; the files do not reopen as one model";
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
            let detail = "a tensor of one dimension is stored as one column";
            losses.push(Loss::new("shape", table.entry.name(), detail));
        }
        let name = if alone { String::new() } else { format!("{name}.{}", form.extension) };
        files.push(PlannedFile::streamed(name, (form.encoder)(table)?));
    }
    if form.carries {
        losses.extend(checkpoint.notes.iter().find(|note| note.code == COLUMN_NAMES).map(|note| {
            let detail = format!("{}; they are written as name and vector", note.text);
            Loss::new("columns-renamed", escape_text(&checkpoint.label), detail)
        }));
        let own = |(key, value): &(&str, &Value)| is_reserved(key) && matches!(value, Value::Text(_));
        losses.extend(checkpoint.metadata.iter().filter(own).map(|(key, _)| {
            let detail = "the key is reserved by libraries of the format or by weighbridge";
            Loss::new("metadata-dropped", escape_text(key), detail)
        }));
        let typed = |(_, value): &(&str, &Value)| form.plain && !matches!(value, Value::Text(_));
        losses.extend(checkpoint.metadata.iter().filter(typed).map(|(key, _)| {
            Loss::new(
                "metadata-dropped",
                escape_text(key),
                "a plain file has no place for values other than text",
            )
        }));
    } else {
        losses.extend(checkpoint.metadata.iter().map(|(key, _)| {
            Loss::new("metadata-dropped", escape_text(key), "metadata dropped: the table has no place for it")
        }));
    }
    Ok(WritePlan { format: form.info.id, kind: form.kind, files, losses })
}

/// True for a table with columns, or at least row names.
pub(crate) fn is_table(table: &Table) -> bool {
    table.columns > 0 || table.entry.row_names.is_some()
}

/// Loss for a table without columns in a typed format: no column declares the dtype.
fn columnless(table: &Table) -> Option<Loss> {
    let dtype = table.entry.dtype();
    (table.columns == 0 && dtype != NO_COLUMNS).then(|| {
        let detail = format!("dtype {dtype} dropped: a file without columns reads as {NO_COLUMNS}");
        Loss::new("dtype-lost", table.entry.name(), detail)
    })
}

/// Loss for a text format, which does not store the dtype.
fn untyped(entry: &TensorEntry) -> Option<Loss> {
    let dtype = entry.dtype();
    (dtype != DType::F32).then(|| {
        let rounded = if dtype.cast_is_exact(DType::F32) { "" } else { ", with rounding" };
        let detail = format!("dtype {dtype} dropped: text is read as f32{rounded}");
        Loss::new("dtype-lost", entry.name(), detail)
    })
}

/// Losses of a file that holds rows alone.
fn stripped(entry: &TensorEntry, alone: bool) -> Vec<Loss> {
    let mut losses = Vec::new();
    if alone && entry.path != TensorPath::value() {
        losses.push(Loss::new(
            "name-dropped",
            entry.name(),
            "tensor name dropped: the table has no place for it",
        ));
    }
    let mut bare = Checkpoint { tensors: vec![entry.clone()], ..Checkpoint::default() };
    bare.metadata = Metadata::default();
    bare.tensors[0].path = TensorPath::value();
    // Tables usually hold embeddings; dropping that role is not a loss.
    if entry.role == Role::Embedding {
        bare.tensors[0].role = Role::Parameter;
    }
    if bare.bridge_index(&[TensorPath::value().to_text()]).is_some() {
        let detail = "role and attributes dropped: the table holds rows only";
        losses.push(Loss::new("index-dropped", entry.name(), detail));
    }
    losses
}
