//! Errors of the library as exceptions of Python.

use crate::{lost, values};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use weighbridge::phrase::Worded;
use weighbridge::{Error, Result};

/// The exception that says what `error` says. Its class is chosen in Python, in `weighbridge.errors`.
pub(crate) fn raise(py: Python<'_>, error: Error) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let error = error.worded(&weighbridge_cli::flags);
    if error.code() == "file-shrank" {
        lost::is_told();
    }
    let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    let number = cause.and_then(std::io::Error::raw_os_error);
    let made = MAKE.import(py, "weighbridge.errors", "from_json").and_then(|make| {
        let json = values::json(py, &error.to_json())?;
        make.call1((json, number))
    });
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(other) => other,
    }
}

/// Results of the library as those of Python.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception that the error becomes.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, error))
    }
}
