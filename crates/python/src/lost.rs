//! What Python is told when a file is cut short while views into it are alive.
//!
//! The library puts zeros where the bytes were and lives on. Whoever computes with such a view from Python asks
//! nobody, so the handler leaves a call with the interpreter, which raises `FileChangedError` in the main thread
//! as soon as that runs Python code again.

use crate::errors::raise;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use weighbridge::{Error, Kind};

/// True from the moment when a page was lost until somebody was told.
static UNTOLD: AtomicBool = AtomicBool::new(false);

/// True where the program forbade maps.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Says who is to be told of lost pages, whoever installs the handler: the command, too, may run in this process. Nothing of
/// the process is changed.
pub(crate) fn register() {
    weighbridge::source::notify_of_lost_pages(leave_word);
}

/// Makes maps safe before an array looks into a file: nothing is installed before the first one, and nothing where the program
/// forbade it. Without the guard the elements are read.
pub(crate) fn guard() {
    if !FORBIDDEN.load(Ordering::Relaxed) && !weighbridge::source::maps_are_guarded() {
        weighbridge::guard_maps();
    }
}

/// Says whether arrays may look into mapped files, which takes a handler of SIGBUS. Returns whether files are mapped.
#[pyfunction]
#[pyo3(signature = (allowed=true))]
pub(crate) fn guard_maps(allowed: bool) -> bool {
    FORBIDDEN.store(!allowed, Ordering::Relaxed);
    guard();
    weighbridge::source::maps_are_guarded()
}

/// An error was raised that says so: no other one is needed.
pub(crate) fn is_told() {
    UNTOLD.store(false, Ordering::SeqCst);
}

/// Called within the handler of a signal: it may do little.
extern "C" fn leave_word() {
    if UNTOLD.swap(true, Ordering::SeqCst) {
        return;
    }
    // SAFETY: neither call needs the interpreter's lock. The second one takes a lock of its own, for a few
    // instructions that touch no mapped file; the signal is raised by the touch of one, so that this thread
    // cannot be holding that lock. The function that is left there lives as long as the process: modules of
    // Python are never unloaded.
    #[allow(unsafe_code)]
    let left = unsafe {
        ffi::Py_IsInitialized() != 0 && ffi::Py_AddPendingCall(Some(tell), std::ptr::null_mut()) == 0
    };
    if !left {
        // Too many others wait there: the next page that is lost tries again.
        UNTOLD.store(false, Ordering::SeqCst);
    }
}

/// Called by the interpreter, in its main thread.
extern "C" fn tell(_: *mut c_void) -> c_int {
    if !UNTOLD.swap(false, Ordering::SeqCst) {
        return 0;
    }
    Python::attach(|py| {
        let error = Error::new(
            Kind::Io,
            "file-shrank",
            "a file became shorter, or could not be read, while arrays looked into it: the bytes that are lost read as zeros",
        );
        raise(py, error.hint("what was computed from these arrays is not to be believed")).restore(py);
    });
    -1
}
