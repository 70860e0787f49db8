//! A progress bar on standard error for work that takes longer than a second, and Ctrl-C.

use crate::args::Common;
use crate::streams;
use indicatif::{ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weighbridge::engine::Progress;

/// When the first Ctrl-C or request to terminate came. A later one ends the process at once.
static STOP: OnceLock<Instant> = OnceLock::new();

/// True from when work is done that can be asked to stop.
static WORKING: AtomicBool = AtomicBool::new(false);

/// Requests so close to the first are the same one: some programs send it to a process and to its
/// group.
const SAME_REQUEST: Duration = Duration::from_millis(500);

/// How long work may take before a bar is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shows progress and hears Ctrl-C.
#[derive(Debug)]
pub(crate) struct ProgressBar {
    bar: indicatif::ProgressBar,
    allowed: bool,
    shown: AtomicBool,
    begun: Instant,
}

/// Handles Ctrl-C from now on: work is asked to stop. A process without work ends where it has a temporary file of a stream,
/// which is removed.
pub(crate) fn handle_interruption() {
    // A second handler in one process is refused; the first one does the same.
    let _ = ctrlc::set_handler(|| {
        let again = STOP.get_or_init(Instant::now).elapsed() > SAME_REQUEST;
        let idle = !WORKING.load(Ordering::SeqCst) && streams::has_spools();
        if again || idle {
            streams::remove_spools();
            std::process::exit(130);
        }
    });
}

/// Asks the work to stop, as Ctrl-C does. False where there is none that hears it.
pub(crate) fn ask_to_stop() -> bool {
    STOP.get_or_init(Instant::now);
    WORKING.load(Ordering::SeqCst)
}

impl ProgressBar {
    /// A watcher for one piece of work. From now on, Ctrl-C asks the work to stop.
    pub(crate) fn new(common: &Common) -> Self {
        handle_interruption();
        WORKING.store(true, Ordering::SeqCst);
        Self {
            bar: indicatif::ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
            allowed: !common.quiet && !common.json && std::io::stderr().is_terminal(),
            shown: AtomicBool::new(false),
            begun: Instant::now(),
        }
    }
}

impl Progress for ProgressBar {
    fn begin(&self, bytes: u64) {
        let style = "{bar:32} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            self.bar.set_style(style);
        }
        self.bar.set_length(bytes);
    }

    fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
        if self.allowed && self.begun.elapsed() > PATIENCE && !self.shown.swap(true, Ordering::Relaxed) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    fn stopped(&self) -> bool {
        STOP.get().is_some()
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        WORKING.store(false, Ordering::SeqCst);
        self.bar.finish_and_clear();
    }
}
