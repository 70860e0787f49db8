//! `info`, `ls`, `show` and `stats`: the content of a file.

use super::given::Given;
use super::{Answer, answer, encoded, opened_with, worded};
use crate::work::Interrupted::IsLeft;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use weighbridge::ops::list::{ListOptions, Sort, list};
use weighbridge::ops::stats::{StatsOptions, measure};
use weighbridge::ops::{info as summarize, show as values};

/// Summarizes a file.
#[pyfunction]
#[pyo3(signature = (**given))]
pub(crate) fn info<'py>(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> Answer<'py> {
    let given = Given::new(py, "info", given);
    let (path, opening) = (given.needed("path")?, given.opening()?);
    answer(&given, None, IsLeft, move |_| {
        let checkpoint = opened_with(&path, opening)?;
        let mut info = summarize::info(&checkpoint);
        info.add_others(&path, &checkpoint)?;
        encoded(&worded("info", info).to_json(), 0)
    })
}

/// Lists the tensors of a file.
#[pyfunction]
#[pyo3(signature = (**given))]
pub(crate) fn ls<'py>(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> Answer<'py> {
    let given = Given::new(py, "ls", given);
    given.excludes("group", &["extents", "hash"])?;
    let (path, opening) = (given.needed("path")?, given.opening()?);
    let options = ListOptions {
        select: given.texts("select")?,
        drop: given.texts("drop")?,
        sort: given.one_of("sort", &[("name", Sort::Name), ("size", Sort::Size), ("dtype", Sort::Dtype)])?,
        group: given.number("group", 1..)?,
        hash: given.flag("hash")?,
        extents: given.flag("extents")?,
    };
    answer(&given, None, IsLeft, move |_| {
        let listing = list(opened_with(&path, opening)?, &options)?;
        encoded(&worded("ls", listing), 0)
    })
}

/// Shows the values of a tensor, or of a slice of it.
#[pyfunction]
#[pyo3(signature = (**given))]
pub(crate) fn show<'py>(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> Answer<'py> {
    let given = Given::new(py, "show", given);
    let (path, opening) = (given.needed("path")?, given.opening()?);
    let name = given.name("name")?;
    answer(&given, None, IsLeft, move |_| {
        let checkpoint = opened_with(&path, opening)?;
        encoded(&values::document(&checkpoint, name.as_deref())?, 0)
    })
}

/// Computes statistics of the values of tensors.
#[pyfunction]
#[pyo3(signature = (**given))]
pub(crate) fn stats<'py>(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> Answer<'py> {
    let given = Given::new(py, "stats", given);
    let (path, opening) = (given.needed("path")?, given.opening()?);
    let name = given.name("name")?;
    let mut options = StatsOptions::default();
    options.bins = given.number("bins", 1..=1000)?.unwrap_or(options.bins);
    answer(&given, None, IsLeft, move |_| {
        let measured = measure(opened_with(&path, opening)?, name.as_deref(), &options)?;
        encoded(&worded("stats", measured), 0)
    })
}
