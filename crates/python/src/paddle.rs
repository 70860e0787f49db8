//! Native part of `weighbridge.paddle`: programs without parameters, and the object structure of Paddle pickles.

use crate::entry::Entry;
use crate::errors::OrRaise;
use crate::index::Index;
use crate::program::Program;
use crate::values;
use crate::work::{Interrupted, wait};
use pyo3::prelude::*;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use weighbridge::checkpoint::{Attributes, Value};
use weighbridge::engine::RunOptions;
use weighbridge::formats::paddle::{self, Strip};
use weighbridge::plan::{FileBuilder, WritePlan};
use weighbridge::source::{FileSource, FolderRef, LocalFolder, SourceRef};
use weighbridge::{Limits, TensorEntry, ops};

/// Structure of the object passed to `paddle.save`, with a marker for each tensor; `None` if the file is not a Paddle pickle.
#[pyfunction]
pub(crate) fn state_structure<'py>(py: Python<'py>, index: &Index) -> PyResult<Option<Bound<'py, PyAny>>> {
    paddle::state_structure(&index.checkpoint).map(|structure| values::value(py, &structure)).transpose()
}

/// The same tensor, with `name` as its Paddle variable name.
#[pyfunction]
pub(crate) fn named_variable(entry: PyRef<'_, Entry>, name: String) -> Entry {
    let mut tensor = TensorEntry::clone(&entry.tensor);
    tensor.attributes.insert(Attributes::VARIABLE_NAME.to_owned(), Value::Text(name));
    Entry::alone(tensor)
}

/// Reads a program from a file of any form, or from the folder of a model.
#[pyfunction]
pub(crate) fn read_program(py: Python<'_>, path: PathBuf) -> PyResult<Program> {
    let topology = wait(py, None, Interrupted::IsLeft, move |_| {
        let limits = Limits::default();
        let program = if path.is_dir() {
            let folder: FolderRef = Arc::new(LocalFolder::open(path)?);
            paddle::Program::read_folder(&folder, &limits)?
        } else {
            let source: SourceRef = Arc::new(FileSource::open(path)?);
            paddle::Program::read(&source, &limits)?
        };
        Ok(program.topology())
    })?;
    Ok(Program::new(Arc::new(topology)))
}

/// Strips the named parts from the program: `source`, `training`, `gradients`, `state`, `unused`; returns it with a report
/// of the removed parts. `outputs` are the variables that become its outputs.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one per Python keyword")]
pub(crate) fn strip_program<'py>(
    py: Python<'py>,
    program: PyRef<'py, Program>,
    source: bool,
    training: bool,
    gradients: bool,
    state: bool,
    unused: bool,
    outputs: Vec<String>,
) -> PyResult<(Program, Bound<'py, PyAny>)> {
    let topology = program.topology().clone();
    let what = Strip { source, training, gradients, state, unused, outputs };
    let (stripped, report) = py
        .detach(move || {
            let mut program = paddle::Program::of(&topology)?;
            let report = program.strip(&what)?;
            Ok((program.topology(), report))
        })
        .or_raise(py)?;
    let report = json!({
        "attributes": report.attributes,
        "attribute_bytes": report.attribute_bytes,
        "operators": report.operators,
        "variables": report.variables,
    });
    Ok((Program::new(Arc::new(stripped)), values::json(py, &report)?))
}

/// The program in protobuf text format.
#[pyfunction]
pub(crate) fn program_prototxt(py: Python<'_>, program: PyRef<'_, Program>) -> PyResult<String> {
    let topology = program.topology().clone();
    py.detach(move || paddle::Program::of(&topology)?.to_text()).or_raise(py)
}

/// Operator, attribute, length of its text in bytes, and a sample line.
type Leak = (String, String, u64, Option<String>);

/// Attributes of the program with paths or lines of its author's source code.
#[pyfunction]
pub(crate) fn program_leaks(py: Python<'_>, program: PyRef<'_, Program>) -> PyResult<Vec<Leak>> {
    let topology = program.topology().clone();
    let leaks = py.detach(move || Ok(paddle::Program::of(&topology)?.source_leaks())).or_raise(py)?;
    Ok(leaks.into_iter().map(|leak| (leak.operator, leak.attribute, leak.bytes, leak.sample)).collect())
}

/// Writes the program to a file, atomically; returns its size in bytes.
#[pyfunction]
#[pyo3(signature = (program, path, force=false))]
pub(crate) fn write_program(
    py: Python<'_>,
    program: PyRef<'_, Program>,
    path: PathBuf,
    force: bool,
) -> PyResult<u64> {
    let topology = program.topology().clone();
    wait(py, None, Interrupted::Stops, move |watcher| {
        let mut file = FileBuilder::new("");
        file.literal(&topology.bytes);
        let files = vec![file.finish()];
        let plan = WritePlan { format: "paddle", kind: "program", files, losses: Vec::new() };
        let run = RunOptions { progress: watcher.clone(), ..RunOptions::default() };
        Ok(ops::save(&plan, &path, force, &run)?.bytes)
    })
}
