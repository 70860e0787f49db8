//! `info`, `ls`, `show` and `stats`: what is in a file.

use super::given::Given;
use super::{Answer, answer, opened_as, said, worded};
use crate::work::Interrupted::IsLeft;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use weighbridge::ops::list::{ListOptions, Sort, list};
use weighbridge::ops::stats::{StatsOptions, measure};
use weighbridge::ops::{info as sums, show as values};

/// A file as a whole.
#[pyfunction]
#[pyo3(signature = (**given))]
pub(crate) fn info<'py>(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> Answer<'py> {
    let given = Given::new(py, "info", given);
    let (path, opening) = (given.needed("path")?, given.opening()?);
    answer(&given, None, IsLeft, move |_| {
        let info = sums::info(&opened_as(&path, opening)?);
        said(&worded("info", info).to_json(), 0)
    })
}

/// The tensors of a file.
#[pyfunction]
#[pyo3(signature = (**given))]
pub(crate) fn ls<'py>(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> Answer<'py> {
    let given = Given::new(py, "ls", given);
    given.excludes("group", &["pieces", "hash"])?;
    let (path, opening) = (given.needed("path")?, given.opening()?);
    let options = ListOptions {
        select: given.texts("select")?,
        drop: given.texts("drop")?,
        sort: given.one_of("sort", &[("name", Sort::Name), ("size", Sort::Size), ("dtype", Sort::Dtype)])?,
        group: given.number("group", 1..)?,
        hash: given.flag("hash")?,
        extents: given.flag("pieces")?,
    };
    answer(&given, None, IsLeft, move |_| {
        let listing = list(opened_as(&path, opening)?, &options)?;
        said(&worded("ls", listing), 0)
    })
}

/// The values of a tensor, or of a slice of it.
#[pyfunction]
#[pyo3(signature = (**given))]
pub(crate) fn show<'py>(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> Answer<'py> {
    let given = Given::new(py, "show", given);
    let (path, opening) = (given.needed("path")?, given.opening()?);
    let name = given.name("name")?;
    answer(&given, None, IsLeft, move |_| {
        let checkpoint = opened_as(&path, opening)?;
        said(&values::document(&checkpoint, name.as_deref())?, 0)
    })
}

/// Measures the values of tensors.
#[pyfunction]
#[pyo3(signature = (**given))]
pub(crate) fn stats<'py>(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> Answer<'py> {
    let given = Given::new(py, "stats", given);
    let (path, opening) = (given.needed("path")?, given.opening()?);
    let name = given.name("name")?;
    let mut options = StatsOptions::default();
    options.bins = given.number("bins", 1..=1000)?.unwrap_or(options.bins);
    answer(&given, None, IsLeft, move |_| {
        let measured = measure(opened_as(&path, opening)?, name.as_deref(), &options)?;
        said(&worded("stats", measured), 0)
    })
}
