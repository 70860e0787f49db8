//! The names of the rows of a table.

use crate::errors::OrRaise;
use pyo3::exceptions::{PyIndexError, PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PySlice, PyString};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use weighbridge::checkpoint::RowNameList;
use weighbridge::text::escape;
use weighbridge::{Error, Result};

/// Where a name stands: its first row, and the next one where there is one.
#[derive(Debug, Clone, Copy)]
struct RowPosition {
    first: usize,
    next: Option<usize>,
}

/// The names of the rows of a table, in their order: a sequence of `str` that finds rows by name, too.
#[pyclass(frozen, sequence, module = "weighbridge._weighbridge")]
#[derive(Debug)]
pub(crate) struct RowNames {
    list: Arc<RowNameList>,
    index: OnceLock<HashMap<Box<str>, RowPosition>>,
}

impl RowNames {
    /// Names that were read.
    pub(crate) fn new(list: Arc<RowNameList>) -> Self {
        Self { list, index: OnceLock::new() }
    }

    /// The names themselves.
    pub(crate) fn list(&self) -> &RowNameList {
        &self.list
    }

    fn place(&self, name: &str) -> Option<RowPosition> {
        let index = self.index.get_or_init(|| {
            let mut places = HashMap::<Box<str>, RowPosition>::with_capacity(self.list.len());
            for (row, own) in self.list.iter().enumerate() {
                match places.get_mut(own) {
                    Some(place) => place.next = place.next.or(Some(row)),
                    None => {
                        places.insert(Box::from(own), RowPosition { first: row, next: None });
                    }
                }
            }
            places
        });
        index.get(name).copied()
    }

    /// The one row of that name. Where there are several, nobody knows which one is meant.
    fn only_row(&self, name: &str) -> Result<Option<usize>> {
        match self.place(name) {
            Some(RowPosition { first, next: Some(next) }) => {
                Err(Error::mismatch("name-twice", "several rows have one name: which one is meant?")
                    .expected("one row of this name")
                    .found(format_args!("{}: rows {first} and {next}", escape(name)))
                    .hint(
                        "take a row by its number: labels.index(name, START) finds them one after the other",
                    ))
            }
            place => Ok(place.map(|place| place.first)),
        }
    }
}

/// What picks names.
#[derive(FromPyObject)]
enum Rows<'py> {
    One(isize),
    Some(Bound<'py, PySlice>),
    Other(Bound<'py, PyAny>),
}

#[pymethods]
impl RowNames {
    fn __len__(&self) -> usize {
        self.list.len()
    }

    /// The name of a row, or of the rows of a slice, as a list.
    fn __getitem__<'py>(&self, py: Python<'py>, rows: Rows<'py>) -> PyResult<Bound<'py, PyAny>> {
        match rows {
            Rows::One(row) => {
                let place = match row < 0 {
                    true => self.list.len().checked_sub(row.unsigned_abs()),
                    false => Some(row.unsigned_abs()),
                };
                let name = place.and_then(|place| self.list.get(place)).ok_or_else(|| {
                    PyIndexError::new_err(format!("there is no row {row} among {}", self.list.len()))
                })?;
                Ok(PyString::new(py, name).into_any())
            }
            Rows::Some(slice) => {
                let bounds = slice.indices(isize::try_from(self.list.len())?)?;
                let places = (0..bounds.slicelength).map(|nth| {
                    let nth = isize::try_from(nth).ok()?;
                    usize::try_from(bounds.start + nth * bounds.step).ok()
                });
                let names = places.filter_map(|place| self.list.get(place?));
                Ok(PyList::new(py, names.collect::<Vec<_>>())?.into_any())
            }
            Rows::Other(other) => Err(PyTypeError::new_err(format!(
                "names of rows are had by a number or a slice, not {}: row_of(name) gives the row of a name",
                other.get_type().name()?
            ))),
        }
    }

    /// The first row of that name; raises `ValueError` where there is none, as of any sequence.
    #[pyo3(signature = (name, start=0, stop=None))]
    fn index(&self, name: &str, start: isize, stop: Option<isize>) -> PyResult<usize> {
        let within = |row: isize| match row < 0 {
            true => self.list.len().saturating_sub(row.unsigned_abs()),
            false => row.unsigned_abs().min(self.list.len()),
        };
        let (start, stop) = (within(start), stop.map_or(self.list.len(), within));
        // The first of all is known without a search.
        match self.place(name) {
            Some(RowPosition { first, next: Some(next) }) if first < start => {
                (next.max(start)..stop).find(|&row| self.list.get(row) == Some(name))
            }
            Some(RowPosition { first, .. }) if (start..stop).contains(&first) => Some(first),
            _ => None,
        }
        .ok_or_else(|| PyValueError::new_err(format!("no row has the name {name:?}")))
    }

    /// How many rows have that name.
    fn count(&self, name: &Bound<'_, PyAny>) -> usize {
        let Ok(name) = name.extract::<String>() else { return 0 };
        self.list.iter().filter(|own| *own == name).count()
    }

    /// The names from the last one to the first.
    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let names: Vec<&str> = (0..self.list.len()).rev().filter_map(|row| self.list.get(row)).collect();
        PyList::new(py, names)?.try_iter()
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        name.extract::<String>().is_ok_and(|name| self.place(&name).is_some())
    }

    /// The row of that name; raises `KeyError` where there is none, and `MismatchError` where there are several.
    fn row_of(&self, py: Python<'_>, name: &str) -> PyResult<usize> {
        self.only_row(name).or_raise(py)?.ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    /// The rows of these names, `None` for those that no row has; raises `MismatchError` where several rows have one.
    fn rows_of(&self, py: Python<'_>, names: Vec<String>) -> PyResult<Vec<Option<usize>>> {
        names.iter().map(|name| self.only_row(name)).collect::<Result<_>>().or_raise(py)
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
