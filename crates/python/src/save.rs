//! Writing what was made or opened in Python.

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

/// How to write, as the command's options say it.
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
    /// The options of the library, without a watch.
    fn options(self) -> Result<ConvertOptions> {
        let rounding = Rounding::from_name(&self.rounding).ok_or_else(|| {
            Error::usage("unknown-rounding", "there is no such rounding").found(&self.rounding)
        })?;
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

/// One tensor to write: its path, its role and slot, its elements, and the names of its rows.
pub(crate) type Given<'py> = (
    Bound<'py, PyAny>,
    Option<String>,
    Option<Bound<'py, PyAny>>,
    PyRef<'py, Entry>,
    Option<Bound<'py, PyAny>>,
);

/// Writes `tensors`, or else all of `base`, to `target`, all or nothing; returns what was written and lost.
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
    let written = wait_for(py, Some("save"), progress, Interrupted::Stops, move |watch| {
        options.run.progress = watch.clone();
        let notes = checkpoint.notes.clone();
        LocalSink::check(&target, options.force)?;
        // Tensors that were put together by hand are what their caller wants to keep.
        let inputs = if is_made { Inputs::default() } else { Inputs::of(&checkpoint, &target) };
        let source = PathBuf::from(&checkpoint.label);
        let (format, kind) = target_form(&target, &options)?;
        if is_made && format.info().id == "biggraph" {
            no_row_twice(&checkpoint)?;
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

/// All of `base`, or else a checkpoint of `tensors`, with `metadata` besides what it says already.
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
            // As one of a bridge that says nothing but names and elements.
            let mut made = Checkpoint::new("safetensors", "single", label);
            made.tensors = tensors.iter().map(|given| named(py, given)).collect::<PyResult<_>>()?;
            no_two_alike(&made).or_raise(py)?;
            made
        }
    };
    let metadata = metadata.map(values::metadata).transpose()?.unwrap_or_else(Metadata::default);
    for (key, value) in metadata.iter() {
        checkpoint.metadata.set(key, value.clone());
    }
    Ok(checkpoint)
}

/// The tensor under the name, and with the role, that it is to have.
fn named(py: Python<'_>, (path, role, slot, entry, labels): &Given<'_>) -> PyResult<TensorEntry> {
    let mut tensor = TensorEntry::clone(&entry.tensor);
    tensor.path = values::to_path(path)?;
    let slot = slot.as_ref().map(values::name).transpose()?;
    if let (Some("optimizer"), None, Role::OptimizerPart { .. }) = (role.as_deref(), &slot, &tensor.role) {
        // A tensor's own: what its parameter is called here is not known.
        tensor.role = Role::OptimizerPart { of: None };
    } else if let Some(word) = role {
        tensor.role = Role::from_parts(word, slot).ok_or_else(|| {
            let error =
                Error::usage("unknown-role", "there is no such role, or an optimizer's tensor has no slot");
            let hint =
                "the roles are parameter, buffer, embedding, edges, names, other, and (\"optimizer\", SLOT)";
            raise(py, error.on_tensor(&tensor.path).found(word).hint(hint))
        })?;
    }
    if let Some(labels) = labels {
        let list = match labels.cast::<RowNames>() {
            Ok(labels) => labels.get().list().clone(),
            Err(_) => {
                let mut list = RowNameList::new();
                for name in labels.try_iter()? {
                    list.push(&values::text(&name?, "the name of a row")?);
                }
                list
            }
        };
        let rows = tensor.shape.dims().first().copied().unwrap_or(0);
        let labels = MemoryRowNames::shared("names", list);
        let count = labels.read().map(|list| list.len() as u64).or_raise(py)?;
        weighbridge::checkpoint::check_count(&*labels, count, rows)
            .map_err(|error| error.on_tensor(tensor.name()))
            .or_raise(py)?;
        tensor.row_names = Some(labels);
    }
    Ok(tensor)
}

/// Fails where two tensors have the same path and slot.
fn no_two_alike(checkpoint: &Checkpoint) -> Result<()> {
    let mut seen = HashSet::with_capacity(checkpoint.tensors.len());
    match checkpoint.tensors.iter().find(|tensor| !seen.insert((&tensor.path, tensor.role.slot()))) {
        Some(twice) => {
            Err(Error::usage("name-collision", "two tensors have this name").on_tensor(twice.name()))
        }
        None => Ok(()),
    }
}

/// Fails where two rows of a table have one name: in BigGraph an entity has one row. What a file has is written as it is by
/// conversions; a table that is made here is asked for.
pub(crate) fn no_row_twice(checkpoint: &Checkpoint) -> Result<()> {
    for tensor in &checkpoint.tensors {
        let Some(labels) = &tensor.row_names else { continue };
        let list = labels.read()?;
        if list.index().len() == list.len() {
            continue;
        }
        let mut seen = HashSet::new();
        let twice = list.iter().find(|name| !seen.insert(*name)).unwrap_or_default();
        return Err(Error::mismatch("name-twice", "two rows have one name: which one is meant?")
            .on_tensor(tensor.name())
            .found(weighbridge::text::escape(twice))
            .hint("give each entity one row"));
    }
    Ok(())
}
