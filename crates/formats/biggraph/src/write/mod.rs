//! Files of a folder, or a single file, from an index. Deterministic.

mod checkpoint;
mod companions;
mod edge_list;
mod edges;
mod entities;
mod foreign;
mod known;
mod model;
mod root;
mod settings;
mod tables;

pub use checkpoint::version_file;
pub(super) use companions::{add as add_companion, companions};
pub(crate) use edge_list::has_columns as is_edge_list;
pub(super) use edge_list::refuse as refuse_edge_list;
pub(crate) use root::FORMAT_VERSION;
pub(super) use settings::SETTINGS;

use self::settings::Settings;
use super::retype;
use weighbridge_core::checkpoint::{Checkpoint, Loss, Note, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{FileBuilder, PlannedFile, WritePlan};
use weighbridge_core::tensor::{Cast, DType, Encoding, Order, Shape};
use weighbridge_format::PlanOptions;
use weighbridge_io::source::SourceRef;

/// Format id.
const ID: &str = "biggraph";
/// Path of the optimizer blob in a file.
const STATE: [&str; 2] = ["optimizer", "state_dict"];
/// Kinds that can be written.
const KINDS: [&str; 7] = ["checkpoint", "init", "embeddings", "model", "edges", "entities", "config"];

/// Lays out `checkpoint` as the requested kind, its original kind, or a suitable one.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`] for an unknown kind or setting; [`weighbridge_core::Kind::Mismatch`] if the
/// kind cannot hold the checkpoint; [`weighbridge_core::Kind::Corrupt`] if edges to be repartitioned refer to
/// missing rows.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    checkpoint.check_unique()?;
    let settings = Settings::of(options)?;
    let renamed = settings.renamed.iter().try_fold(None, |made: Option<Checkpoint>, (old, new)| {
        retype::rename_type(made.as_ref().unwrap_or(checkpoint), old, new).map(Some)
    })?;
    let checkpoint = renamed.as_ref().unwrap_or(checkpoint);
    let kind = kind(checkpoint, options)?;
    let edge_list = match kind {
        "edges" => edge_list::columns(checkpoint, settings.columns.as_deref())?,
        "checkpoint" | "init" | "embeddings" => edge_list::refuse(checkpoint).map(|()| None)?,
        _ => None,
    };
    let checkpoint = edge_list.as_ref().unwrap_or(checkpoint);
    let mut losses = Vec::new();
    losses.extend(checkpoint.left_out().map(Note::loss));
    losses.extend(foreign::losses(checkpoint));
    let files = match kind {
        "checkpoint" => checkpoint::folder(checkpoint, &settings, &mut losses)?,
        "init" => checkpoint::init(checkpoint, &settings, &mut losses)?,
        "embeddings" => vec![checkpoint::embeddings(checkpoint, &settings, &mut losses)?],
        "model" => vec![checkpoint::model(checkpoint, &mut losses)?],
        "edges" => edges::files(checkpoint, &settings, &mut losses)?,
        "entities" => entities::folder(checkpoint, &settings, &mut losses)?,
        _ => vec![checkpoint::config(checkpoint, &mut losses)?],
    };
    Ok(WritePlan { format: ID, kind, files, losses })
}

/// Kind to write.
fn kind(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<&'static str> {
    let known = |word: &str| KINDS.into_iter().find(|kind| *kind == word);
    if let Some(word) = &options.kind {
        return known(word).ok_or_else(|| {
            Error::usage("unknown-kind", "unknown kind for biggraph").expected(KINDS.join(", ")).found(word)
        });
    }
    if let Some(origin) = checkpoint.origin.as_ref().filter(|o| o.format == ID)
        && let Some(kind) = known(&origin.kind)
    {
        return Ok(kind);
    }
    let any = |role: &Role| checkpoint.tensors.iter().any(|t| t.role == *role);
    Ok(if any(&Role::Edges) || edge_list::has_columns(checkpoint) || options.setting("columns").is_some() {
        "edges"
    } else if any(&Role::Names) && !any(&Role::Embedding) {
        "entities"
    } else {
        "checkpoint"
    })
}

/// Version in the metadata.
fn version_of(checkpoint: &Checkpoint) -> Option<u64> {
    match checkpoint.metadata.get("version") {
        Some(Value::U64(version)) => Some(*version),
        _ => None,
    }
}

/// Optimizer options in the metadata of a blob: `None` without a blob, `Some(None)` for an empty dict.
fn param_groups(value: &Value) -> Option<Option<&Value>> {
    match value {
        Value::Map(pairs) => Some(
            pairs.iter().find(|(name, _)| name.as_str() == Some("param_groups")).map(|(_, groups)| groups),
        ),
        _ => None,
    }
}

/// Returns `entry` as `f32`, like upstream. A requested cast is kept: upstream reads any type.
fn as_float32(entry: &TensorEntry, losses: &mut Vec<Loss>) -> Result<TensorEntry> {
    let subject = || match entry.role {
        Role::OptimizerState { .. } => entry.name(),
        _ => entry.path.to_string(),
    };
    let mut entry = entry.clone();
    if let Some(cast) = entry.cast {
        if cast.to != DType::F32 {
            let detail = format!("upstream writes f32, and converts {} to f32 on reading", cast.to);
            losses.push(Loss::new("not-float32", subject(), detail));
        }
        return Ok(entry);
    }
    if entry.stored == DType::F32 {
        return Ok(entry);
    }
    if !entry.stored.cast_is_supported(DType::F32) {
        return Err(Error::unsupported("no-such-cast", format!("cannot cast {} to f32", entry.stored))
            .on_tensor(entry.name()));
    }
    if !entry.stored.cast_is_exact(DType::F32) {
        let detail = format!("{} values are rounded to f32", entry.stored);
        losses.push(Loss::new("rounding", subject(), detail));
    } else {
        let detail = format!("dtype {} is stored as f32, as upstream writes it", entry.stored);
        losses.push(Loss::new("dtype-lost", subject(), detail));
    }
    entry.cast = Some(Cast::from(DType::F32));
    Ok(entry)
}

fn no_place(tensor: &TensorEntry) -> Loss {
    Loss::new("no-place", tensor.name(), "tensor dropped: this kind of file has no place for it")
}

fn no_such_slot(tensor: &TensorEntry) -> Loss {
    Loss::new(
        "state-slot",
        tensor.name(),
        "tensor dropped: upstream's optimizer has no state of this name and shape",
    )
}

fn literal(name: &str, content: impl AsRef<[u8]>) -> PlannedFile {
    let mut file = FileBuilder::new(name);
    file.literal(content.as_ref());
    file.finish()
}

/// Writes the bytes of a source as a file.
pub(crate) fn bytes_of(name: &str, source: SourceRef) -> Result<PlannedFile> {
    let shape = Shape::new([source.len()]);
    let path = TensorPath::value();
    let bytes = TensorEntry::dense(path, DType::U8, shape, &source, 0, Encoding::ROW)?;
    let mut file = FileBuilder::new(name);
    file.tensor(&bytes, Order::Row)?;
    Ok(file.finish())
}
