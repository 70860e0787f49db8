//! What `weighbridge.primitiv` needs besides opening and saving: settings of optimizers, and batches.

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

/// Settings of an optimizer: the name of its class where that can be told, whole numbers, and floats.
type Settings<'py> =
    (Option<Bound<'py, PyAny>>, Vec<(Bound<'py, PyAny>, u32)>, Vec<(Bound<'py, PyAny>, f32)>);

fn settings<'py>(py: Python<'py>, optimizer: &Optimizer) -> Settings<'py> {
    let class = optimizer.class().map(|class| values::part(py, &class.name()));
    let uints = optimizer.uints().map(|(key, value)| (values::part(py, key), value)).collect();
    let floats = optimizer.floats().map(|(key, value)| (values::part(py, key), value)).collect();
    (class, uints, floats)
}

/// The settings in an optimizer file of primitiv.
#[pyfunction]
#[pyo3(signature = (path, lenient=false))]
pub(crate) fn read_optimizer(py: Python<'_>, path: PathBuf, lenient: bool) -> PyResult<Settings<'_>> {
    let optimizer = wait(py, None, Interrupted::IsLeft, move |_| {
        let options = OpenOptions { lenient, ..OpenOptions::default() };
        Optimizer::read(Arc::new(FileSource::open(path)?), &options)
    })?;
    Ok(settings(py, &optimizer))
}

/// Writes an optimizer file of primitiv, all or nothing.
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
    wait(py, None, Interrupted::Stops, move |watch| {
        let run = RunOptions { progress: watch.clone(), ..RunOptions::default() };
        ops::save(&optimizer.plan()?, &path, force, &run).map(|_| ())
    })
}

/// The settings that a new optimizer of the class of that name has, and the names of the stats that it keeps for each
/// parameter.
#[pyfunction]
pub(crate) fn optimizer_defaults<'py>(py: Python<'py>, name: &str) -> (Settings<'py>, Vec<&'static str>) {
    let class = OptimizerClass::from_name(name);
    (settings(py, &Optimizer::new(&class)), class.stats().to_vec())
}

/// The same tensor, whose last dimension is a batch of primitiv's.
#[pyfunction]
pub(crate) fn batched(py: Python<'_>, entry: PyRef<'_, Entry>, batch: u64) -> PyResult<Entry> {
    let mut tensor = TensorEntry::clone(&entry.tensor);
    if tensor.shape.dims().last() != Some(&batch) {
        let error = Error::mismatch("batch", "the batch is not the last dimension").on_tensor(tensor.name());
        return Err(raise(py, error.expected(&tensor.shape).found(format_args!("batch {batch}"))));
    }
    tensor.attributes.insert("batch".to_owned(), Value::U64(batch));
    Ok(Entry::alone(tensor))
}
