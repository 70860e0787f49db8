//! Long work: done in a thread of its own, without the interpreter's lock, while the caller's thread listens for
//! Ctrl-C and tells how far it is.

use crate::errors::raise_to;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use weighbridge::Result;
use weighbridge::engine::Progress;

/// How long the caller's thread waits before it looks for signals again.
const STEP: Duration = Duration::from_millis(50);

/// Hears of progress from the threads that work, and tells them to stop.
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

/// What happens to work that is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// It asks [`Progress::stopped`], and is waited for while it tidies up. A second Ctrl-C does not wait.
    Stops,
    /// It changes nothing that others see, and may not ask whether it is to stop: it is left to end by itself.
    IsLeft,
}

/// Does `work` and returns what it gives. `progress`, if there is one, is called with the bytes that are done and
/// those that there are.
///
/// # Errors
/// What the work says; what a handler of a signal raises, such as `KeyboardInterrupt`; what `progress` raises.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    interrupted: Interrupted,
    work: impl FnOnce(&Arc<Watcher>) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    wait_for(py, None, progress, interrupted, work)
}

/// As [`wait`]; errors speak to whoever called the function `asked` of the package.
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
        crate::floats::as_expected();
        // Nobody may listen any more.
        let _ = sender.send(work(&own));
    })?;
    let mut told = None;
    let mut raised: Option<PyErr> = None;
    let result = loop {
        match step(py, &mut receiver) {
            Ok(result) => break result,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let _ = py.detach(|| thread.join());
                return Err(PyRuntimeError::new_err("the work ended without a result: this is a bug"));
            }
        }
        let heard = py.check_signals().and_then(|()| match (&raised, progress) {
            (None, Some(progress)) => tell(progress, &watcher, &mut told),
            _ => Ok(()),
        });
        if let Err(error) = heard {
            // What is left behind ends sooner where it asks.
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
        tell(progress, &watcher, &mut told)?;
    }
    Ok(value)
}

/// Waits for the result for a moment, without the lock.
fn step<T: Send>(
    py: Python<'_>,
    receiver: &mut Receiver<Result<T>>,
) -> std::result::Result<Result<T>, RecvTimeoutError> {
    // The receiver itself goes along: it may be moved to another thread, not shared.
    py.detach(move || receiver.recv_timeout(STEP))
}

/// Calls `progress` where there is something new to tell.
fn tell(progress: &Bound<'_, PyAny>, watcher: &Watcher, told: &mut Option<(u64, u64)>) -> PyResult<()> {
    let total = watcher.total.load(Ordering::Relaxed);
    let now = (watcher.done.load(Ordering::Relaxed).min(total), total);
    if *told != Some(now) && total > 0 {
        *told = Some(now);
        progress.call1(now)?;
    }
    Ok(())
}
