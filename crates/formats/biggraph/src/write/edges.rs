//! Files of edges.

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

/// The column of weights.
const WEIGHT: &str = "weight";

/// The files of a checkpoint's edges: one for each bucket, or the target itself where the columns
/// belong to no bucket. The edges are cut into other partitions first, where that is asked for.
pub(super) fn files(
    checkpoint: &Checkpoint,
    settings: &Settings,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    if settings.partitions.is_some() && settings.stored_ids {
        return Err(Error::usage("bad-setting", "edges that go to other partitions are written as int64")
            .found("ids=stored")
            .hint("leave out ids=stored, or partitions"));
    }
    losses.extend(checkpoint.tensors.iter().filter(|t| changes(t, settings)).map(|column| {
        let detail =
            format!("{} values become int64: fractions and what is too large are lost", column.dtype());
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

/// True where ids, relations or lists may not be the same numbers as `i64`.
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

/// A column in the type in which it is written.
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
        let detail = "weights lose their fraction, and what passes int64";
        losses.push(Loss::new("weights-truncated", column.name(), detail));
    }
    integers::as_integers(column)
}
