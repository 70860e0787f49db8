//! The verbs: jobs of the library with their options as keywords and their reports as documents.
//!
//! | module | verbs |
//! | --- | --- |
//! | `given` | keywords as typed values |
//! | `looking` | `info`, `ls`, `show`, `stats` |
//! | `checking` | `verify`, `scan`, `diff`, `seal` |
//! | `writing` | `convert`, `edit`, `shard`, `merge` |
//! | `importing` | `import_edges` |
//! | `models` | `program`, `checkpoint` |
//! | `ranking` | `evaluate`, `neighbors`, `rank` |

pub(crate) mod checking;
mod given;
pub(crate) mod importing;
pub(crate) mod looking;
pub(crate) mod models;
pub(crate) mod ranking;
pub(crate) mod writing;

use crate::index::Opening;
use crate::lost;
use crate::wording::words;
use crate::work::{Interrupted, Watcher, wait_for};
use given::Given;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use weighbridge::checkpoint::{Checkpoint, Loss};
use weighbridge::formats::{open_with, registry};
use weighbridge::phrase::Worded;
use weighbridge::{Error, OpenOptions, Result};

/// Document of a report, and the exit code of the command.
type Answer<'py> = PyResult<(Bound<'py, PyAny>, u8)>;

/// Document as JSON text, made without the GIL, and the exit code.
type Encoded = (Vec<u8>, u8);

/// Serializes a document.
fn encoded(document: &impl Serialize, code: u8) -> Result<Encoded> {
    let text = serde_json::to_vec(document)
        .map_err(|cause| Error::io("cannot serialize the report", cause.into()))?;
    Ok((text, code))
}

/// Runs the work of a verb and returns its document.
fn answer<'py>(
    given: &Given<'py>,
    progress: Option<&Bound<'py, PyAny>>,
    interrupted: Interrupted,
    work: impl FnOnce(&Arc<Watcher>) -> Result<Encoded> + Send + 'static,
) -> Answer<'py> {
    given.finish()?;
    let py = given.py();
    let (text, code) = wait_for(py, Some(given.verb()), progress, interrupted, work)?;
    let document = py.import("json")?.call_method1("loads", (PyBytes::new(py, &text),))?;
    Ok((document, code))
}

/// Opens the input of a verb; an error about a damaged file includes what salvage would recover.
fn opened(path: &Path, options: &OpenOptions) -> Result<Checkpoint> {
    open_with(path, options).map_err(|error| registry().offer_salvage(error, path, options))
}

/// As [`opened`], with options from keywords.
fn opened_with(path: &Path, opening: Opening) -> Result<Checkpoint> {
    opened(path, &opening.options()?)
}

/// Words a report for a verb.
fn worded<T: Worded>(verb: &'static str, report: T) -> T {
    report.worded(&words(Some(verb)))
}

/// Exit code for a written file with these losses: 1 if a tensor is missing from the target.
fn code_of(losses: &[Loss], is_content: bool) -> u8 {
    u8::from(!is_content && losses.iter().any(Loss::is_tensor))
}

/// Runs the command on the standard streams of the process, as the program does; returns its exit code.
#[pyfunction]
#[pyo3(signature = (arguments))]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    let name = OsString::from("weighbridge");
    py.detach(|| {
        let code = weighbridge_cli::command(std::iter::once(name).chain(arguments));
        // The program flushes at its end; a Python process does not flush this buffer.
        let _ = std::io::stdout().flush();
        // The command has reported a truncated file itself.
        lost::set_reported();
        code
    })
}
