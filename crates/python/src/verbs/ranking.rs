//! `evaluate`, `neighbors` and `rank`: scores of trained embeddings.

use super::given::Given;
use super::{Answer, answer, encoded, worded};
use crate::work::Interrupted::Stops;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use weighbridge::formats::biggraph::{EvaluateOptions as EvaluateSettings, NeighborOptions};
use weighbridge::ops::evaluate::{self as evaluation, CandidateNames, EvaluateOptions};
use weighbridge::ops::neighbors::{self as search, NeighborsOptions, Query};
use weighbridge::ops::values;

/// Default memory of the command.
const MEMORY: u64 = 1 << 30;

/// Ranks edges by a checkpoint of PyTorch-BigGraph.
#[pyfunction]
#[pyo3(signature = (*, progress=None, **given))]
pub(crate) fn evaluate<'py>(
    py: Python<'py>,
    progress: Option<&Bound<'py, PyAny>>,
    given: Option<&Bound<'py, PyDict>>,
) -> Answer<'py> {
    let given = Given::new(py, "evaluate", given);
    let (path, opening, edges) = (given.needed("path")?, given.opening()?, given.needed("edges")?);
    let filter = given.paths("filter")?;
    let lists = given.lists("candidates")?.into_iter();
    let candidates = lists
        .map(|(entity, names)| CandidateNames {
            entity,
            names: names.iter().map(String::as_str).collect(),
            file: None,
        })
        .collect();
    let mut settings = EvaluateSettings {
        negatives: given.parsed("negatives", values::negatives)?.unwrap_or_default(),
        seed: given.number("seed", ..)?.unwrap_or(0),
        threads: given.threads()?,
        memory: given.size("memory")?.unwrap_or(MEMORY),
        ..EvaluateSettings::default()
    };
    answer(&given, progress, Stops, move |watcher| {
        settings.progress = watcher.clone();
        let options = EvaluateOptions { open: opening.options()?, filter, candidates, settings };
        let report = evaluation::evaluate(&path, &edges, &options)?;
        encoded(&worded("evaluate", report).to_json(), 0)
    })
}

/// Finds the nearest rows of a table.
#[pyfunction]
#[pyo3(signature = (*, progress=None, **given))]
pub(crate) fn neighbors<'py>(
    py: Python<'py>,
    progress: Option<&Bound<'py, PyAny>>,
    given: Option<&Bound<'py, PyDict>>,
) -> Answer<'py> {
    let given = Given::new(py, "neighbors", given);
    given.requires("reverse", "relation")?;
    let (path, opening) = (given.needed("path")?, given.opening()?);
    let rows = given.texts("rows")?;
    // Bytes of `f32`, and the number of columns.
    let query = match (given.bytes("vectors")?, given.number("columns", ..)?.unwrap_or(0)) {
        (None, _) => Query::Rows(rows),
        (Some(bytes), columns) => Query::Vectors {
            table: rows.into_iter().next(),
            values: bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            columns,
        },
    };
    let queries = given.path("queries")?;
    let mut settings = NeighborOptions {
        count: given.parsed("count", values::positive)?.unwrap_or(10),
        comparator: given.parsed("by", values::comparator)?,
        relation: given.text("relation")?,
        reverse: given.flag("reverse")?,
        threads: given.threads()?,
        memory: given.size("memory")?.unwrap_or(MEMORY),
        ..NeighborOptions::default()
    };
    answer(&given, progress, Stops, move |watcher| {
        settings.progress = watcher.clone();
        let options = NeighborsOptions { open: opening.options()?, queries, settings };
        encoded(&search::neighbors(&path, &query, &options)?.to_json(), 0)
    })
}

/// Ranks one edge by a checkpoint of PyTorch-BigGraph.
#[pyfunction]
#[pyo3(signature = (**given))]
pub(crate) fn rank<'py>(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> Answer<'py> {
    let given = Given::new(py, "rank", given);
    let (path, opening) = (given.needed("path")?, given.opening()?);
    let text = |name: &'static str| given.text(name)?.ok_or_else(|| given.missing(name));
    let (lhs, rhs, relation) = (text("lhs")?, text("rhs")?, text("relation")?);
    answer(&given, None, Stops, move |watcher| {
        let settings = EvaluateSettings { progress: watcher.clone(), ..EvaluateSettings::default() };
        let report = evaluation::rank(&path, &relation, [&lhs, &rhs], &opening.options()?, &settings)?;
        encoded(&report.to_json(), 0)
    })
}
