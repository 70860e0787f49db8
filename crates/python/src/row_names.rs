//! Row names of a table.

use crate::errors::OrRaise;
use pyo3::exceptions::{PyIndexError, PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PySlice, PyString};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use weighbridge::checkpoint::RowNameList;
use weighbridge::text::escape;
use weighbridge::{Error, Result};

/// Rows with one name: the first, and the next one if the name repeats.
#[derive(Debug, Clone, Copy)]
struct RowPosition {
    first: usize,
    next: Option<usize>,
}

/// Row names of a table, in row order: a sequence of `str` that also finds rows by name.
#[pyclass(frozen, sequence, module = "weighbridge._weighbridge")]
#[derive(Debug)]
pub(crate) struct RowNames {
    list: Arc<RowNameList>,
    index: OnceLock<HashMap<Box<str>, RowPosition>>,
}

impl RowNames {
    /// Wraps a list of names.
    pub(crate) fn new(list: Arc<RowNameList>) -> Self {
        Self { list, index: OnceLock::new() }
    }

    /// The list of names.
    pub(crate) fn list(&self) -> &RowNameList {
        &self.list
    }

    fn position(&self, name: &str) -> Option<RowPosition> {
        let index = self.index.get_or_init(|| {
            let mut positions = HashMap::<Box<str>, RowPosition>::with_capacity(self.list.len());
            for (row, own) in self.list.iter().enumerate() {
                match positions.get_mut(own) {
                    Some(position) => position.next = position.next.or(Some(row)),
                    None => {
                        positions.insert(Box::from(own), RowPosition { first: row, next: None });
                    }
                }
            }
            positions
        });
        index.get(name).copied()
    }

    /// The only row with this name; an error if several rows have it.
    fn only_row(&self, name: &str) -> Result<Option<usize>> {
        match self.position(name) {
            Some(RowPosition { first, next: Some(next) }) => {
                Err(Error::mismatch("name-twice", "ambiguous row name: several rows have it")
                    .expected("one row with this name")
                    .found(format_args!("{}: rows {first} and {next}", escape(name)))
                    .hint("use a row number: row_names.index(name, START) finds the rows one by one"))
            }
            position => Ok(position.map(|position| position.first)),
        }
    }
}

/// Subscript of [`RowNames`].
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

    /// Name of a row, or the list of names of a slice of rows.
    fn __getitem__<'py>(&self, py: Python<'py>, rows: Rows<'py>) -> PyResult<Bound<'py, PyAny>> {
        match rows {
            Rows::One(row) => {
                let place = match row < 0 {
                    true => self.list.len().checked_sub(row.unsigned_abs()),
                    false => Some(row.unsigned_abs()),
                };
                let name = place.and_then(|place| self.list.get(place)).ok_or_else(|| {
                    PyIndexError::new_err(format!("row {row} is out of range for {} rows", self.list.len()))
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
                "row names are indexed by int or slice, not {}: use row_of(name) to find a row",
                other.get_type().name()?
            ))),
        }
    }

    /// First row with this name, from `start` up to `stop`; raises `ValueError` if there is none, as `list.index` does.
    #[pyo3(signature = (name, start=0, stop=None))]
    fn index(&self, name: &str, start: isize, stop: Option<isize>) -> PyResult<usize> {
        let within = |row: isize| match row < 0 {
            true => self.list.len().saturating_sub(row.unsigned_abs()),
            false => row.unsigned_abs().min(self.list.len()),
        };
        let (start, stop) = (within(start), stop.map_or(self.list.len(), within));
        // The index holds the first row: no search needed.
        match self.position(name) {
            Some(RowPosition { first, next: Some(next) }) if first < start => {
                (next.max(start)..stop).find(|&row| self.list.get(row) == Some(name))
            }
            Some(RowPosition { first, .. }) if (start..stop).contains(&first) => Some(first),
            _ => None,
        }
        .ok_or_else(|| PyValueError::new_err(format!("no row is named {name:?}")))
    }

    /// Number of rows with this name.
    fn count(&self, name: &Bound<'_, PyAny>) -> usize {
        let Ok(name) = name.extract::<String>() else { return 0 };
        self.list.iter().filter(|own| *own == name).count()
    }

    /// Iterator over the names, last row first.
    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let names: Vec<&str> = (0..self.list.len()).rev().filter_map(|row| self.list.get(row)).collect();
        PyList::new(py, names)?.try_iter()
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        name.extract::<String>().is_ok_and(|name| self.position(&name).is_some())
    }

    /// Row with this name; raises `KeyError` if there is none and `MismatchError` if there are several.
    fn row_of(&self, py: Python<'_>, name: &str) -> PyResult<usize> {
        self.only_row(name).or_raise(py)?.ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    /// Row of each name, `None` for a name without a row; raises `MismatchError` if several rows have one of the names.
    fn rows_of(&self, py: Python<'_>, names: Vec<String>) -> PyResult<Vec<Option<usize>>> {
        names.iter().map(|name| self.only_row(name)).collect::<Result<_>>().or_raise(py)
    }

    /// Names of the rows from `start` up to, not including, `end`.
    #[pyo3(signature = (start=0, end=None))]
    fn part(&self, start: usize, end: Option<usize>) -> Vec<&str> {
        let end = end.unwrap_or(usize::MAX).min(self.list.len());
        (start..end).filter_map(|row| self.list.get(row)).collect()
    }

    fn __repr__(&self) -> String {
        format!("<RowNames: {} names>", self.list.len())
    }
}
