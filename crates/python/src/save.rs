//! Writing of checkpoints made or opened in Python.

use crate::entry::{Entry, dtype_of};
use crate::errors::{OrRaise, raise};
use crate::index::Index;
use crate::row_names::RowNames;
use crate::values;
use crate::wording::words;
use crate::work::{Interrupted, wait_for};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use weighbridge::checkpoint::{Checkpoint, MemoryRowNames, Metadata, Role, RowNameList};
use weighbridge::engine::{LocalSink, RunOptions};
use weighbridge::json::tree;
use weighbridge::ops::{self, Changes, ConvertOptions, Inputs, Written, plan_checkpoint, target_form};
use weighbridge::phrase::Worded;
use weighbridge::tensor::Rounding;
use weighbridge::{Error, Result, TensorEntry};

/// Options of writing, named as those of the command.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Writing {
    format: Option<String>,
    kind: Option<String>,
    settings: BTreeMap<String, String>,
    cast: Option<String>,
    rounding: String,
    seed: u64,
    deny_loss: bool,
    force: bool,
    threads: usize,
    memory: u64,
    sync: bool,
}

impl Writing {
    /// Converts to options of the library, without progress.
    fn options(self) -> Result<ConvertOptions> {
        let rounding = Rounding::from_name(&self.rounding)
            .ok_or_else(|| Error::usage("unknown-rounding", "unknown rounding").found(&self.rounding))?;
        let cast = self.cast.as_deref().map(dtype_of).transpose()?;
        let run =
            RunOptions { threads: self.threads, memory: self.memory, sync: self.sync, ..Default::default() };
        Ok(ConvertOptions {
            to: self.format,
            kind: self.kind,
            settings: self.settings.into_iter().collect(),
            changes: Changes { cast, rounding, ..Changes::default() },
            seed: self.seed,
            deny_loss: self.deny_loss,
            force: self.force,
            run,
            ..ConvertOptions::default()
        })
    }
}

/// A tensor to write: path, role, slot, elements, and row names.
pub(crate) type Given<'py> = (
    Bound<'py, PyAny>,
    Option<String>,
    Option<Bound<'py, PyAny>>,
    PyRef<'py, Entry>,
    Option<Bound<'py, PyAny>>,
);

/// Writes `tensors`, or all of `base`, to `target`, atomically; returns a report with the losses.
#[pyfunction]
#[pyo3(signature = (target, base, tensors, metadata, options, progress=None))]
pub(crate) fn save_tensors<'py>(
    py: Python<'py>,
    target: PathBuf,
    base: Option<PyRef<'py, Index>>,
    tensors: Vec<Given<'py>>,
    metadata: Option<&Bound<'py, PyDict>>,
    options: Writing,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let is_made = base.is_none();
    let checkpoint = assembled(py, base, &tensors, metadata, target.display().to_string())?;
    let mut options = options.options().or_raise(py)?;
    let written = wait_for(py, Some("save"), progress, Interrupted::Stops, move |watcher| {
        options.run.progress = watcher.clone();
        let notes = checkpoint.notes.clone();
        LocalSink::check(&target, options.force)?;
        // The check for unread companions of the source applies to opened checkpoints only.
        let inputs = if is_made { Inputs::default() } else { Inputs::of(&checkpoint, &target) };
        let source = PathBuf::from(&checkpoint.label);
        let (format, kind) = target_form(&target, &options)?;
        if is_made && format.info().id == "biggraph" {
            check_unique_row_names(&checkpoint)?;
        }
        let plan = plan_checkpoint(checkpoint, format, kind, &options)?;
        inputs.check(&source, &target, &plan)?;
        LocalSink::check_plan(&plan, &target, options.force)?;
        let report = Some(ops::save(&plan, &target, options.force, &options.run)?);
        let written = Written { target: target.display().to_string(), plan, notes, report };
        Ok(tree(&written.worded(&words(Some("save")))))
    })?;
    values::json(py, &written)
}

/// Makes a checkpoint of `base` or of `tensors`, with `metadata` added.
pub(crate) fn assembled(
    py: Python<'_>,
    base: Option<PyRef<'_, Index>>,
    tensors: &[Given<'_>],
    metadata: Option<&Bound<'_, PyDict>>,
    label: String,
) -> PyResult<Checkpoint> {
    let mut checkpoint = match base {
        Some(base) => Checkpoint::clone(&base.checkpoint),
        None => {
            // A bridge format: names and elements only.
            let mut made = Checkpoint::new("safetensors", "single", label);
            made.tensors = tensors.iter().map(|given| named(py, given)).collect::<PyResult<_>>()?;
            check_unique_tensors(&made).or_raise(py)?;
            made
        }
    };
    let metadata = metadata.map(values::metadata).transpose()?.unwrap_or_else(Metadata::default);
    for (key, value) in metadata.iter() {
        checkpoint.metadata.set(key, value.clone());
    }
    Ok(checkpoint)
}

/// Makes the tensor with its new name, role and row names.
fn named(py: Python<'_>, (path, role, slot, entry, row_names): &Given<'_>) -> PyResult<TensorEntry> {
    let mut tensor = TensorEntry::clone(&entry.tensor);
    tensor.path = values::to_path(path)?;
    let slot = slot.as_ref().map(values::name).transpose()?;
    if let (Some("optimizer"), None, Role::OptimizerPart { .. }) = (role.as_deref(), &slot, &tensor.role) {
        // Optimizer state without a slot: the name of its parameter here is unknown.
        tensor.role = Role::OptimizerPart { of: None };
    } else if let Some(word) = role {
        tensor.role = Role::from_parts(word, slot).ok_or_else(|| {
            let error = Error::usage("unknown-role", "unknown role, or optimizer state without a slot");
            let hint =
                "the roles are parameter, buffer, embedding, edges, names, other, and (\"optimizer\", SLOT)";
            raise(py, error.on_tensor(&tensor.path).found(word).hint(hint))
        })?;
    }
    if let Some(row_names) = row_names {
        let list = match row_names.cast::<RowNames>() {
            Ok(row_names) => row_names.get().list().clone(),
            Err(_) => {
                let mut list = RowNameList::new();
                for name in row_names.try_iter()? {
                    list.push(&values::text(&name?, "a row name")?);
                }
                list
            }
        };
        let rows = tensor.shape.dims().first().copied().unwrap_or(0);
        let row_names = MemoryRowNames::shared("names", list);
        let count = row_names.read().map(|list| list.len() as u64).or_raise(py)?;
        weighbridge::checkpoint::check_count(&*row_names, count, rows)
            .map_err(|error| error.on_tensor(tensor.name()))
            .or_raise(py)?;
        tensor.row_names = Some(row_names);
    }
    Ok(tensor)
}

/// Fails if two tensors have the same path and slot.
fn check_unique_tensors(checkpoint: &Checkpoint) -> Result<()> {
    let mut seen = HashSet::with_capacity(checkpoint.tensors.len());
    match checkpoint.tensors.iter().find(|tensor| !seen.insert((&tensor.path, tensor.role.slot()))) {
        Some(duplicate) => {
            Err(Error::usage("name-collision", "duplicate tensor name").on_tensor(duplicate.name()))
        }
        None => Ok(()),
    }
}

/// Fails if a table has duplicate row names: in BigGraph an entity has one row. Applies to tables made in Python only:
/// conversions keep the names of the file.
pub(crate) fn check_unique_row_names(checkpoint: &Checkpoint) -> Result<()> {
    for tensor in &checkpoint.tensors {
        let Some(row_names) = &tensor.row_names else { continue };
        let list = row_names.read()?;
        if list.index().len() == list.len() {
            continue;
        }
        let mut seen = HashSet::new();
        let duplicate = list.iter().find(|name| !seen.insert(*name)).unwrap_or_default();
        return Err(Error::mismatch("name-twice", "duplicate row name")
            .on_tensor(tensor.name())
            .found(weighbridge::text::escape(duplicate))
            .hint("keep one row for each entity"));
    }
    Ok(())
}
