//! Errors of the library as exceptions of Python.

use crate::wording::words;
use crate::{lost, values};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use weighbridge::phrase::Worded;
use weighbridge::{Error, ErrorCode, Result};

/// The exception that says what `error` says, in the words for the functions of single formats.
pub(crate) fn raise(py: Python<'_>, error: Error) -> PyErr {
    raise_to(py, error, None)
}

/// The exception that says what `error` says to whoever called the function `asked`. Its class is chosen in Python, in
/// `weighbridge.errors`.
pub(crate) fn raise_to(py: Python<'_>, error: Error, asked: Option<&'static str>) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let error = error.worded(&words(asked));
    if error.code() == ErrorCode::FileShrank {
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
