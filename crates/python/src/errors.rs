//! Errors of the library as Python exceptions.

use crate::wording::words;
use crate::{lost, values};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use weighbridge::phrase::Worded;
use weighbridge::{Error, ErrorCode, Result};

/// Converts `error` to an exception, worded for the format-specific functions.
pub(crate) fn raise(py: Python<'_>, error: Error) -> PyErr {
    raise_to(py, error, None)
}

/// Converts `error` to an exception, worded for the caller of the function `asked`. `weighbridge.errors` chooses its class.
pub(crate) fn raise_to(py: Python<'_>, error: Error, asked: Option<&'static str>) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let error = error.worded(&words(asked));
    if error.code() == ErrorCode::FileShrank {
        lost::set_reported();
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

/// Conversion of library results to `PyResult`.
pub(crate) trait OrRaise<T> {
    /// Returns the value, or the error as an exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, error))
    }
}
