//! Report to Python of a file truncated while mapped views of it are alive.
//!
//! The library maps zeros in place of the lost bytes and continues. Python code that computes with such a view does not
//! check for this, so the SIGBUS handler schedules a pending call: the interpreter raises `FileChangedError` in the main
//! thread the next time that thread runs Python code.

use crate::errors::raise;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use weighbridge::{Error, Kind};

/// True from the loss of a page until it is reported.
static UNREPORTED: AtomicBool = AtomicBool::new(false);

/// True if the program forbade maps.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Registers the callback for lost pages, for any installer of the handler: the command may also run in this process. Installs
/// no handler itself.
pub(crate) fn register() {
    weighbridge::source::notify_of_lost_pages(schedule_report);
}

/// Installs the SIGBUS guard before the first array over a mapped file, unless the program forbade it. Without the guard,
/// elements are read instead of mapped.
pub(crate) fn guard() {
    if !FORBIDDEN.load(Ordering::Relaxed) && !weighbridge::source::maps_are_guarded() {
        weighbridge::guard_maps();
    }
}

/// Allows or forbids arrays over mapped files, which need a SIGBUS handler. Returns true if files are mapped.
#[pyfunction]
#[pyo3(signature = (allowed=true))]
pub(crate) fn guard_maps(allowed: bool) -> bool {
    FORBIDDEN.store(!allowed, Ordering::Relaxed);
    guard();
    weighbridge::source::maps_are_guarded()
}

/// Marks lost pages as reported, after another error reported them.
pub(crate) fn set_reported() {
    UNREPORTED.store(false, Ordering::SeqCst);
}

/// Schedules the report. Runs within a signal handler, so it must be async-signal-safe.
extern "C" fn schedule_report() {
    if UNREPORTED.swap(true, Ordering::SeqCst) {
        return;
    }
    // SAFETY: neither call needs the GIL. The second call takes its own lock, for a few instructions that touch no
    // mapped file; access to a mapped file raised the signal, so this thread cannot hold that lock. The scheduled
    // function stays valid: Python never unloads extension modules.
    #[allow(unsafe_code)]
    let is_scheduled = unsafe {
        ffi::Py_IsInitialized() != 0 && ffi::Py_AddPendingCall(Some(report), std::ptr::null_mut()) == 0
    };
    if !is_scheduled {
        // The queue of pending calls is full: the next lost page tries again.
        UNREPORTED.store(false, Ordering::SeqCst);
    }
}

/// Called by the interpreter, in its main thread.
extern "C" fn report(_: *mut c_void) -> c_int {
    if !UNREPORTED.swap(false, Ordering::SeqCst) {
        return 0;
    }
    Python::attach(|py| {
        let error = Error::new(
            Kind::Io,
            "file-shrank",
            "a mapped file became shorter or unreadable; the lost bytes read as zeros",
        );
        raise(py, error.hint("discard results computed from arrays of this file")).restore(py);
    });
    -1
}
