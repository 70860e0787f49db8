//! Long work: runs on its own thread, without the GIL, while the caller's thread handles Ctrl-C and reports progress.

use crate::errors::raise_to;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use weighbridge::Result;
use weighbridge::engine::Progress;

/// Interval between checks for signals on the caller's thread.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Shared state of a running job: progress, and the request to stop.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    total: AtomicU64,
    done: AtomicU64,
    stopped: AtomicBool,
}

impl Progress for Watcher {
    fn begin(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }
    fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// Behaviour of interrupted work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// The work checks [`Progress::stopped`], and the caller waits for its cleanup. A second Ctrl-C does not wait.
    Stops,
    /// The work has no visible effects and may not check [`Progress::stopped`]: it continues unattended to its end.
    IsLeft,
}

/// Runs `work` and returns its result. Calls `progress` with the bytes done and the total bytes.
///
/// # Errors
/// Errors of the work; exceptions of signal handlers, such as `KeyboardInterrupt`; exceptions of `progress`.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    interrupted: Interrupted,
    work: impl FnOnce(&Arc<Watcher>) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    wait_for(py, None, progress, interrupted, work)
}

/// As [`wait`], with errors worded for the caller of the function `asked`.
///
/// # Errors
/// As [`wait`].
pub(crate) fn wait_for<T: Send + 'static>(
    py: Python<'_>,
    asked: Option<&'static str>,
    progress: Option<&Bound<'_, PyAny>>,
    interrupted: Interrupted,
    work: impl FnOnce(&Arc<Watcher>) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let watcher = Arc::new(Watcher::default());
    let (sender, mut receiver) = channel();
    let own = watcher.clone();
    let thread = std::thread::Builder::new().name("weighbridge".to_owned()).spawn(move || {
        crate::floats::set_default_mode();
        // The receiver may be gone.
        let _ = sender.send(work(&own));
    })?;
    let mut reported = None;
    let mut raised: Option<PyErr> = None;
    let result = loop {
        match step(py, &mut receiver) {
            Ok(result) => break result,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let _ = py.detach(|| thread.join());
                return Err(PyRuntimeError::new_err(
                    "the worker thread ended without a result; this is a bug in weighbridge",
                ));
            }
        }
        let checked = py.check_signals().and_then(|()| match (&raised, progress) {
            (None, Some(progress)) => report(progress, &watcher, &mut reported),
            _ => Ok(()),
        });
        if let Err(error) = checked {
            // Unattended work ends sooner if it checks for this.
            watcher.stopped.store(true, Ordering::Relaxed);
            if raised.is_some() || interrupted == Interrupted::IsLeft {
                return Err(error);
            }
            raised = Some(error);
        }
    };
    if let Some(error) = raised {
        return Err(error);
    }
    let value = result.map_err(|error| raise_to(py, error, asked))?;
    if let Some(progress) = progress {
        report(progress, &watcher, &mut reported)?;
    }
    Ok(value)
}

/// Waits up to [`POLL_INTERVAL`] for the result, without the GIL.
fn step<T: Send>(
    py: Python<'_>,
    receiver: &mut Receiver<Result<T>>,
) -> std::result::Result<Result<T>, RecvTimeoutError> {
    // Moves the receiver: it is `Send` but not `Sync`.
    py.detach(move || receiver.recv_timeout(POLL_INTERVAL))
}

/// Calls `progress` if its arguments changed.
fn report(progress: &Bound<'_, PyAny>, watcher: &Watcher, reported: &mut Option<(u64, u64)>) -> PyResult<()> {
    let total = watcher.total.load(Ordering::Relaxed);
    let now = (watcher.done.load(Ordering::Relaxed).min(total), total);
    if *reported != Some(now) && total > 0 {
        *reported = Some(now);
        progress.call1(now)?;
    }
    Ok(())
}
