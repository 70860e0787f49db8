//! The verbs of the command, and the command itself: the same code as the program's.

use crate::lost;
use crate::work::{Interrupted, wait};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;
use weighbridge::engine::Watch;

/// Verbs that change nothing that others see, and of which most cannot be stopped: Ctrl-C leaves them behind.
const READING: [&str; 7] = ["info", "ls", "show", "stats", "diff", "verify", "scan"];

/// Carries out a verb; returns the exit code that the command would end with, and what it would print as JSON.
#[pyfunction]
#[pyo3(signature = (arguments, progress=None))]
pub(crate) fn call(
    py: Python<'_>,
    arguments: Vec<OsString>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<(u8, String)> {
    let reads = arguments.first().is_some_and(|verb| READING.iter().any(|own| verb == own));
    let interrupted = if reads { Interrupted::IsLeft } else { Interrupted::Stops };
    let answer = wait(py, progress, interrupted, move |watch| {
        let watch: Arc<dyn Watch> = watch.clone();
        weighbridge_cli::call(arguments, watch)
    })?;
    Ok((answer.code, answer.text))
}

/// Runs the command on the standard streams of the process, as the program does; returns its exit code.
#[pyfunction]
#[pyo3(signature = (arguments))]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    let name = OsString::from("weighbridge");
    py.detach(|| {
        let code = weighbridge_cli::command(std::iter::once(name).chain(arguments));
        // The program does so when it ends; a process of Python does not know of this buffer.
        let _ = std::io::stdout().flush();
        // The command has told of a file that was cut short: nobody else needs to hear of it.
        lost::is_told();
        code
    })
}
