//! The program of a model.

use crate::values;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;
use weighbridge::ops::program;
use weighbridge::topology::Topology;

/// A program of a framework, read and never run.
#[pyclass(frozen, module = "weighbridge._weighbridge")]
#[derive(Debug)]
pub(crate) struct Program {
    topology: Arc<Topology>,
}

impl Program {
    /// Wraps a parsed program.
    pub(crate) fn new(topology: Arc<Topology>) -> Self {
        Self { topology }
    }

    /// The parsed program.
    pub(crate) fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }
}

#[pymethods]
impl Program {
    /// Form of its bytes: `program-desc` (protobuf) or `pir` (JSON).
    #[getter]
    fn form(&self) -> &'static str {
        self.topology.form
    }

    /// Version of the framework that wrote it, such as `2.6.2`, if stated.
    #[getter]
    fn writer(&self) -> Option<&str> {
        self.topology.writer.as_deref()
    }

    /// Names of its inputs, in order.
    #[getter]
    fn feeds(&self) -> Vec<&str> {
        self.topology.feeds.iter().map(|feed| feed.name.as_str()).collect()
    }

    /// Names of its outputs, in order.
    #[getter]
    fn fetches(&self) -> Vec<&str> {
        self.topology.fetches.iter().map(|fetch| fetch.name.as_str()).collect()
    }

    /// Summary of the program: inputs, outputs, counts, and the number of operators by type.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        values::json(py, &program::summary(&self.topology).to_json())
    }

    /// Complete program, as the command prints it with `--json`.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        values::json(py, &program::to_json(&self.topology))
    }

    /// Complete program as text.
    fn text(&self, py: Python<'_>) -> String {
        py.detach(|| program::listing(&self.topology).to_string())
    }

    /// Graph of its operators and variables in the DOT language of Graphviz.
    fn dot(&self, py: Python<'_>) -> String {
        py.detach(|| program::to_dot(&self.topology).to_string())
    }

    /// Original bytes of the program.
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
