//! The verbs: jobs of the library with their options as keywords, and their reports as documents.
//!
//! | module | verbs |
//! | --- | --- |
//! | `given` | keywords as typed values |
//! | `looking` | `info`, `ls`, `show`, `stats` |
//! | `checking` | `verify`, `scan`, `diff`, `seal` |
//! | `writing` | `convert`, `edit`, `shard`, `merge` |
//! | `models` | `program`, `checkpoint` |

pub(crate) mod checking;
mod given;
pub(crate) mod looking;
pub(crate) mod models;
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

/// The document of a report, and the exit code that the command ends with.
type Answer<'py> = PyResult<(Bound<'py, PyAny>, u8)>;

/// A document as text, which is made without the interpreter's lock; and the exit code.
type Said = (Vec<u8>, u8);

/// A document as text.
fn said(document: &impl Serialize, code: u8) -> Result<Said> {
    let text =
        serde_json::to_vec(document).map_err(|cause| Error::io("cannot make the report", cause.into()))?;
    Ok((text, code))
}

/// Does the work of a verb, and returns its document.
fn answer<'py>(
    given: &Given<'py>,
    progress: Option<&Bound<'py, PyAny>>,
    interrupted: Interrupted,
    work: impl FnOnce(&Arc<Watcher>) -> Result<Said> + Send + 'static,
) -> Answer<'py> {
    given.finish()?;
    let py = given.py();
    let (text, code) = wait_for(py, Some(given.verb()), progress, interrupted, work)?;
    let document = py.import("json")?.call_method1("loads", (PyBytes::new(py, &text),))?;
    Ok((document, code))
}

/// Opens what a verb reads; an error about a damaged file says what salvaging would give.
fn opened(path: &Path, options: &OpenOptions) -> Result<Checkpoint> {
    open_with(path, options).map_err(|error| registry().offer_salvage(error, path, options))
}

/// As [`opened`], of what the caller said.
fn opened_as(path: &Path, opening: Opening) -> Result<Checkpoint> {
    opened(path, &opening.options()?)
}

/// A report in the words of a verb.
fn worded<T: Worded>(verb: &'static str, report: T) -> T {
    report.worded(&words(Some(verb)))
}

/// The exit code of what was written, where these are its losses: 1 where a tensor is not in the target.
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
        // The program does so when it ends; a process of Python does not know of this buffer.
        let _ = std::io::stdout().flush();
        // The command has told of a file that was cut short: nobody else needs to hear of it.
        lost::is_told();
        code
    })
}
