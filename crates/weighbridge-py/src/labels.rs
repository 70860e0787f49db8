//! The names of the rows of a table.

use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use weighbridge::checkpoint::LabelList;

/// The names of the rows of a table, in their order: a sequence of `str` that finds rows by name, too.
#[pyclass(frozen, sequence, module = "weighbridge._weighbridge")]
#[derive(Debug)]
pub(crate) struct Labels {
    list: Arc<LabelList>,
    index: OnceLock<HashMap<Box<str>, usize>>,
}

impl Labels {
    /// Names that were read.
    pub(crate) fn new(list: Arc<LabelList>) -> Self {
        Self { list, index: OnceLock::new() }
    }

    /// The names themselves.
    pub(crate) fn list(&self) -> &LabelList {
        &self.list
    }

    fn row(&self, name: &str) -> Option<usize> {
        let own = |(name, row): (&str, usize)| (Box::from(name), row);
        self.index.get_or_init(|| self.list.index().into_iter().map(own).collect()).get(name).copied()
    }
}

#[pymethods]
impl Labels {
    fn __len__(&self) -> usize {
        self.list.len()
    }

    fn __getitem__(&self, row: isize) -> PyResult<&str> {
        let place =
            if row < 0 { self.list.len().checked_sub(row.unsigned_abs()) } else { Some(row.unsigned_abs()) };
        place
            .and_then(|place| self.list.get(place))
            .ok_or_else(|| PyIndexError::new_err(format!("there is no row {row} among {}", self.list.len())))
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        name.extract::<String>().is_ok_and(|name| self.row(&name).is_some())
    }

    /// The first row of that name; raises `KeyError` where there is none.
    fn row_of(&self, name: &str) -> PyResult<usize> {
        self.row(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    /// The first rows of these names, `None` for those that no row has.
    fn rows_of(&self, names: Vec<String>) -> Vec<Option<usize>> {
        names.iter().map(|name| self.row(name)).collect()
    }

    /// The names from row `start` up to row `end`.
    #[pyo3(signature = (start=0, end=None))]
    fn part(&self, start: usize, end: Option<usize>) -> Vec<&str> {
        let end = end.unwrap_or(usize::MAX).min(self.list.len());
        (start..end).filter_map(|row| self.list.get(row)).collect()
    }

    fn __repr__(&self) -> String {
        format!("<Labels: {} names>", self.list.len())
    }
}
