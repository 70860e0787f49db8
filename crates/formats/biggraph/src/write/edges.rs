//! Edge files.

use super::super::edges::buckets::{self, Bucket, COLUMNS, column_name};
use super::super::edges::{self, integers};
use super::super::layout::FileName;
use super::root::FORMAT_VERSION;
use super::settings::Settings;
use weighbridge_core::checkpoint::{Checkpoint, Loss, TensorEntry, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::PlannedFile;
use weighbridge_core::tensor::DType;
use weighbridge_hdf5::write::{Data, Hdf5Builder};

/// Weight column.
const WEIGHT: &str = "weight";

/// Plans the files of a checkpoint's edges: one per bucket, or the target itself for columns
/// without a bucket. Repartitions the edges first, if requested.
pub(super) fn files(
    checkpoint: &Checkpoint,
    settings: &Settings,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    if settings.partitions.is_some() && settings.stored_ids {
        return Err(Error::usage("bad-setting", "repartitioned edges must be written as int64")
            .found("ids=stored")
            .hint("omit ids=stored, or partitions"));
    }
    losses.extend(checkpoint.tensors.iter().filter(|t| changes(t, settings)).map(|column| {
        let detail = format!(
            "{} values are stored as int64: fractions are truncated, large values clamped",
            column.dtype()
        );
        Loss::new("ids-changed", column.name(), detail)
    }));
    let parts = settings.partitions.clone().or_else(|| edges::known_partitions(checkpoint));
    let moved = parts
        .as_ref()
        .map(|parts| edges::repartition_within(checkpoint, parts, settings.memory))
        .transpose()?;
    let checkpoint = moved.as_ref().unwrap_or(checkpoint);
    let buckets = buckets::buckets(checkpoint)?;
    for tensor in checkpoint.tensors.iter().filter(|t| !buckets::is_column(t)) {
        losses.push(super::no_place(tensor));
    }
    buckets.iter().map(|bucket| file(bucket, settings, losses)).collect()
}

/// True where ids, relations or lists may change as `i64`.
fn changes(column: &TensorEntry, settings: &Settings) -> bool {
    let written = |name: &str| name != WEIGHT && COLUMNS.contains(&name);
    let inexact = column.dtype().is_float() || column.dtype() == DType::U64;
    !settings.stored_ids && inexact && buckets::is_column(column) && column_name(column).is_some_and(written)
}

fn file(bucket: &Bucket, settings: &Settings, losses: &mut Vec<Loss>) -> Result<PlannedFile> {
    let name = bucket.parts.map(|[lhs, rhs]| FileName::Edges { lhs, rhs }.to_string());
    let mut file = Hdf5Builder::new(name.unwrap_or_default());
    file.attribute(&[], FORMAT_VERSION, &Value::I64(1))?;
    for column in &bucket.columns {
        match column_name(column).filter(|name| COLUMNS.contains(name)) {
            Some(name) => file.dataset(&[name], Data::Tensor(stored(name, column, settings, losses)?))?,
            None => losses.push(super::no_place(column)),
        }
    }
    file.finish()
}

/// Column in its output type.
fn stored(
    name: &str,
    column: &TensorEntry,
    settings: &Settings,
    losses: &mut Vec<Loss>,
) -> Result<TensorEntry> {
    let whole = if name == WEIGHT { settings.truncated } else { !settings.stored_ids };
    if !whole {
        return Ok(column.clone());
    }
    if name == WEIGHT && (column.dtype().is_float() || column.dtype() == DType::U64) {
        let detail = "weights are stored as int64: fractions are truncated, large values clamped";
        losses.push(Loss::new("weights-truncated", column.name(), detail));
    }
    integers::as_integers(column)
}
