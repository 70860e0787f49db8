//! Progress bar on standard error for work that takes longer than a second, and cancellation by Ctrl-C.

use crate::args::Common;
use crate::streams;
use indicatif::{ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weighbridge::engine::Progress;

/// Time of the first Ctrl-C or request to terminate. A later one ends the process at once.
static STOP: OnceLock<Instant> = OnceLock::new();

/// True while cancellable work runs.
static WORKING: AtomicBool = AtomicBool::new(false);

/// Requests this close to the first are the same one: some programs signal a process and its group.
const SAME_REQUEST: Duration = Duration::from_millis(500);

/// Time before a bar is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// Progress bar and cancellation of one piece of work.
#[derive(Debug)]
pub(crate) struct ProgressBar {
    bar: indicatif::ProgressBar,
    allowed: bool,
    shown: AtomicBool,
    begun: Instant,
}

/// Installs the handler of Ctrl-C, which cancels the work. A process without work removes its temporary files and ends.
pub(crate) fn handle_interruption() {
    // A second handler is refused; the first one stays.
    let _ = ctrlc::set_handler(|| {
        let again = STOP.get_or_init(Instant::now).elapsed() > SAME_REQUEST;
        let idle = !WORKING.load(Ordering::SeqCst) && streams::has_spools();
        if again || idle {
            streams::remove_spools();
            std::process::exit(130);
        }
    });
}

/// Cancels the work, as Ctrl-C does. Returns false if no work runs.
pub(crate) fn ask_to_stop() -> bool {
    STOP.get_or_init(Instant::now);
    WORKING.load(Ordering::SeqCst)
}

impl ProgressBar {
    /// Creates the bar of one piece of work, which Ctrl-C cancels.
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
