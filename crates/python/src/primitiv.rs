//! Native part of `weighbridge.primitiv`: settings of optimizers, and batches.

use crate::entry::Entry;
use crate::errors::raise;
use crate::values;
use crate::work::{Interrupted, wait};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge::checkpoint::Value;
use weighbridge::engine::RunOptions;
use weighbridge::formats::OpenOptions;
use weighbridge::formats::primitiv::{Optimizer, OptimizerClass};
use weighbridge::source::FileSource;
use weighbridge::{Error, TensorEntry, ops};

/// Settings of an optimizer: class name if recognized, integers, and floats.
type Settings<'py> =
    (Option<Bound<'py, PyAny>>, Vec<(Bound<'py, PyAny>, u32)>, Vec<(Bound<'py, PyAny>, f32)>);

fn settings<'py>(py: Python<'py>, optimizer: &Optimizer) -> Settings<'py> {
    let class = optimizer.class().map(|class| values::part(py, &class.name()));
    let uints = optimizer.uints().map(|(key, value)| (values::part(py, key), value)).collect();
    let floats = optimizer.floats().map(|(key, value)| (values::part(py, key), value)).collect();
    (class, uints, floats)
}

/// Reads the settings in a primitiv optimizer file.
#[pyfunction]
#[pyo3(signature = (path, lenient=false))]
pub(crate) fn read_optimizer(py: Python<'_>, path: PathBuf, lenient: bool) -> PyResult<Settings<'_>> {
    let optimizer = wait(py, None, Interrupted::IsLeft, move |_| {
        let options = OpenOptions { lenient, ..OpenOptions::default() };
        Optimizer::read(Arc::new(FileSource::open(path)?), &options)
    })?;
    Ok(settings(py, &optimizer))
}

/// Writes a primitiv optimizer file, atomically.
#[pyfunction]
#[pyo3(signature = (path, uints, floats, force=false))]
pub(crate) fn write_optimizer(
    py: Python<'_>,
    path: PathBuf,
    uints: Vec<(Bound<'_, PyAny>, u32)>,
    floats: Vec<(Bound<'_, PyAny>, f32)>,
    force: bool,
) -> PyResult<()> {
    let named = |key: &Bound<'_, PyAny>| values::name(key);
    let uints = uints.iter().map(|(key, value)| Ok((named(key)?, *value))).collect::<PyResult<Vec<_>>>()?;
    let floats = floats.iter().map(|(key, value)| Ok((named(key)?, *value))).collect::<PyResult<Vec<_>>>()?;
    let optimizer = Optimizer::from_settings(uints, floats);
    wait(py, None, Interrupted::Stops, move |watcher| {
        let run = RunOptions { progress: watcher.clone(), ..RunOptions::default() };
        ops::save(&optimizer.plan()?, &path, force, &run).map(|_| ())
    })
}

/// Default settings of the optimizer class `name`, and the names of its statistics per parameter.
#[pyfunction]
pub(crate) fn optimizer_defaults<'py>(py: Python<'py>, name: &str) -> (Settings<'py>, Vec<&'static str>) {
    let class = OptimizerClass::from_name(name);
    (settings(py, &Optimizer::new(&class)), class.stats().to_vec())
}

/// The same tensor, with its last dimension marked as a primitiv batch.
#[pyfunction]
pub(crate) fn batched(py: Python<'_>, entry: PyRef<'_, Entry>, batch: u64) -> PyResult<Entry> {
    let mut tensor = TensorEntry::clone(&entry.tensor);
    if tensor.shape.dims().last() != Some(&batch) {
        let error = Error::mismatch("batch", "the last dimension is not the batch").on_tensor(tensor.name());
        return Err(raise(py, error.expected(&tensor.shape).found(format_args!("batch {batch}"))));
    }
    tensor.attributes.insert("batch".to_owned(), Value::U64(batch));
    Ok(Entry::alone(tensor))
}
