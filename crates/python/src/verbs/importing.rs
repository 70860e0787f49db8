//! `import_edges`: edge lists into BigGraph's input folders; `import_layout` for imports on a cluster.

use super::given::Given;
use super::{Answer, answer, encoded};
use crate::errors::OrRaise;
use crate::values;
use crate::work::Interrupted::Stops;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use weighbridge::engine::RunOptions;
use weighbridge::formats::biggraph::import::{Columns, EntityOrder, TextForm};
use weighbridge::ops::import::{ImportOptions, import, import_layout as layout_of};
use weighbridge::text::path_text;

/// Imports edge lists.
#[pyfunction]
#[pyo3(signature = (*, progress=None, **given))]
pub(crate) fn import_edges<'py>(
    py: Python<'py>,
    progress: Option<&Bound<'py, PyAny>>,
    given: Option<&Bound<'py, PyDict>>,
) -> Answer<'py> {
    let given = Given::new(py, "import_edges", given);
    let inputs = given.paths("sources")?;
    if inputs.is_empty() {
        return Err(given.missing("sources"));
    }
    let inputs: Vec<String> = inputs.iter().map(|path| path_text(path)).collect();
    let target = given.needed("target")?;
    let named = |names: &[&str]| format!("expected {}", names.join(", "));
    let mut options = ImportOptions {
        form: given.parsed("from_", |text| TextForm::parse(text).ok_or_else(|| named(&TextForm::NAMES)))?,
        header: given.flag("header")?,
        like_upstream: given.flag("like_upstream")?,
        seed: given.number("seed", ..)?.unwrap_or(0),
        entity_min_count: given.number("entity_min_count", ..)?.unwrap_or(1),
        relation_min_count: given.number("relation_min_count", ..)?.unwrap_or(1),
        skip_bad: given.number("skip_bad", ..)?.unwrap_or(0),
        force: given.flag("force")?,
        ..ImportOptions::new(given.needed("config")?)
    };
    options.columns = given.parsed("columns", |text| {
        Columns::parse(text)
            .map_err(|error| format!("expected {}", error.expected_text().unwrap_or_default()))
    })?;
    let order = |text: &str| EntityOrder::parse(text).ok_or_else(|| named(&EntityOrder::NAMES));
    options.order = given.parsed("order", order)?.unwrap_or_default();
    let memory = given.size("memory")?.unwrap_or(options.run.memory);
    let (threads, sync) = (given.threads()?, !given.flag("no_sync")?);
    answer(&given, progress, Stops, move |watcher| {
        options.run = RunOptions { threads, memory, sync, progress: watcher.clone() };
        encoded(&import(&inputs, &target, &options)?.to_json(), 0)
    })
}

/// Folders, buckets, entity types and relations of a configuration.
#[pyfunction]
pub(crate) fn import_layout(py: Python<'_>, config: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let layout = py.detach(|| layout_of(&config)).or_raise(py)?;
    values::json(py, &layout)
}
