//! The program beside the parameters.

use crate::values;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;
use weighbridge::ops::program;
use weighbridge::topology::Topology;

/// A program that was read, and never run: what a framework would do with the tensors.
#[pyclass(frozen, module = "weighbridge._weighbridge")]
#[derive(Debug)]
pub(crate) struct Program {
    topology: Arc<Topology>,
}

impl Program {
    /// The program as it was understood.
    pub(crate) fn new(topology: Arc<Topology>) -> Self {
        Self { topology }
    }

    /// The same.
    pub(crate) fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }
}

#[pymethods]
impl Program {
    /// The form of its bytes: `program-desc` (protobuf) or `pir` (JSON).
    #[getter]
    fn form(&self) -> &'static str {
        self.topology.form
    }

    /// The version of what wrote it, such as `2.6.2`, where it says so.
    #[getter]
    fn writer(&self) -> Option<&str> {
        self.topology.writer.as_deref()
    }

    /// The names of its inputs, in their order.
    #[getter]
    fn feeds(&self) -> Vec<&str> {
        self.topology.feeds.iter().map(|feed| feed.name.as_str()).collect()
    }

    /// The names of its outputs, in their order.
    #[getter]
    fn fetches(&self) -> Vec<&str> {
        self.topology.fetches.iter().map(|fetch| fetch.name.as_str()).collect()
    }

    /// The program in short: inputs, outputs, counts, and how often each type of operator occurs.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        values::json(py, &program::summary(&self.topology).to_json())
    }

    /// All of it, as the command prints it with `--json`.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        values::json(py, &program::to_json(&self.topology))
    }

    /// All of it as text.
    fn text(&self, py: Python<'_>) -> String {
        py.detach(|| program::listing(&self.topology).to_string())
    }

    /// Its operators and variables as a graph in the language of Graphviz.
    fn dot(&self, py: Python<'_>) -> String {
        py.detach(|| program::to_dot(&self.topology).to_string())
    }

    /// The program as it was read.
    fn bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.topology.bytes)
    }

    fn __repr__(&self) -> String {
        let operators = self.topology.operators().count();
        format!(
            "<Program: {}, {} blocks, {operators} operators>",
            self.topology.form,
            self.topology.blocks.len()
        )
    }
}
