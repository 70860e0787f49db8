//! `program` and `checkpoint`: features of single formats.

use super::given::Given;
use super::{Answer, answer, encoded, worded};
use crate::work::Interrupted::Stops;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use weighbridge::engine::RunOptions;
use weighbridge::formats::open_with;
use weighbridge::formats::paddle::Strip;
use weighbridge::ops::program::{Form, RewriteOptions, document, rewrite};
use weighbridge::ops::several::Worst;
use weighbridge::ops::values;
use weighbridge::ops::versions::{VersionsOptions, versions};

/// Shows or rewrites the program of a model.
#[pyfunction]
#[pyo3(signature = (*, progress=None, **given))]
pub(crate) fn program<'py>(
    py: Python<'py>,
    progress: Option<&Bound<'py, PyAny>>,
    given: Option<&Bound<'py, PyDict>>,
) -> Answer<'py> {
    let given = Given::new(py, "program", given);
    given.excludes("list", &["dot", "text"])?;
    given.excludes("dot", &["text"])?;
    given.requires("strip", "output")?;
    given.requires("outputs", "strip")?;
    given.requires("rename", "output")?;
    let (path, opening, output) = (given.needed("path")?, given.opening()?, given.path("output")?);
    let forms = [("list", Form::List), ("dot", Form::Dot), ("text", Form::Text)];
    let mut form = None;
    for (name, own) in forms {
        if given.flag(name)? {
            form = Some(own);
        }
    }
    let parts = ["source", "training", "gradients", "state", "unused", "all"];
    let strip = given.listed("strip", |word| match parts.iter().find(|part| **part == word) {
        Some(part) => Ok(*part),
        None => Err(format!("expected one of {}", parts.join(", "))),
    })?;
    let has = |part: &str| strip.contains(&part) || strip.contains(&"all");
    let strip = Strip {
        source: has("source"),
        training: has("training"),
        gradients: has("gradients"),
        state: has("state"),
        unused: has("unused"),
        outputs: given.listed("outputs", |name| Ok(name.to_owned()))?,
    };
    let names = given.pairs("rename")?.into_iter().collect();
    let (settings, force) = (given.pairs("set")?, given.flag("force")?);
    answer(&given, progress, Stops, move |watcher| {
        let open = opening.options()?;
        let mut checkpoint = open_with(&path, &open)?;
        let Some(target) = output else { return encoded(&document(&checkpoint, form)?, 0) };
        let run = RunOptions { progress: watcher.clone(), ..RunOptions::default() };
        let options = RewriteOptions { names, strip, form, settings, force, open, run };
        let written = rewrite(&mut checkpoint, &path, &target, &options)?;
        encoded(&worded("program", written).to_json(), 0)
    })
}

/// Shows or changes the versions in a folder of PyTorch-BigGraph checkpoints.
#[pyfunction]
#[pyo3(signature = (**given))]
pub(crate) fn checkpoint<'py>(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> Answer<'py> {
    let given = Given::new(py, "checkpoint", given);
    for (name, other) in [
        ("start_over", "recover"),
        ("delete_newer", "rollback"),
        ("copies", "preserve"),
        ("prune", "keep"),
        ("keep", "prune"),
    ] {
        given.requires(name, other)?;
    }
    let (path, opening) = (given.needed("path")?, given.opening()?);
    let (keep, prune) = (given.parsed("keep", values::positive)?, given.flag("prune")?);
    let mut options = VersionsOptions {
        recover: given.flag("recover")?,
        start_over: given.flag("start_over")?,
        rollback: given.number("rollback", ..)?,
        delete_newer: given.flag("delete_newer")?,
        preserve: given.number("preserve", ..)?,
        copies: given.flag("copies")?,
        prune: keep.filter(|_| prune),
        sweep: given.listed("sweep", values::remnants)?,
        ..VersionsOptions::default()
    };
    answer(&given, None, Stops, move |_| {
        options.open = opening.options()?;
        let report = worded("checkpoint", versions(&path, &options)?);
        encoded(&report.to_json(), Worst::from(report.verdict).code())
    })
}
