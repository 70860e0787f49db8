//! `--timeout`: aborts work that takes too long.
//!
//! Work that can be cancelled is cancelled, as by Ctrl-C, and removes its partial output. Otherwise the process ends.

use crate::output::{Output, document_has_begun};
use crate::{args::Common, progress, streams};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{sleep, spawn};
use std::time::Duration;
use weighbridge::{Error, Kind};

/// True after the timeout.
static OVER: AtomicBool = AtomicBool::new(false);
/// Time that cancelled work may take to clean up.
const GRACE: Duration = Duration::from_secs(5);
/// Time that printing the error may take: the reader of a pipe may be the cause of the delay.
const PRINTING: Duration = Duration::from_secs(1);

/// Starts the timer, which ends the process with exit code 2.
pub(crate) fn start(common: &Common) {
    let Some(seconds) = common.timeout else { return };
    let (json, color) = (common.json, common.color);
    spawn(move || {
        sleep(Duration::from_secs(seconds.into()));
        OVER.store(true, Ordering::SeqCst);
        if progress::ask_to_stop() {
            sleep(GRACE);
        }
        let (done, printed) = mpsc::channel();
        spawn(move || {
            let mut output = Output::new(json, color);
            // A partly printed document stays incomplete.
            match json && !document_has_begun() {
                true => output.error(&error(seconds)),
                false => output.print_error(&error(seconds)),
            }
            let _ = done.send(());
        });
        let _ = printed.recv_timeout(PRINTING);
        streams::remove_spools();
        exit(2);
    });
}

/// Replaces the cancellation that the timer caused by the timeout error.
pub(crate) fn explain(found: Error, common: &Common) -> Error {
    match common.timeout {
        Some(seconds) if found.kind() == Kind::Cancelled && OVER.load(Ordering::SeqCst) => error(seconds),
        _ => found,
    }
}

fn error(seconds: u32) -> Error {
    Error::limit("took-too-long", "the work took longer than the timeout")
        .expected(format_args!(
            "at most {} (--timeout)",
            weighbridge::text::counted(seconds, "second", "seconds")
        ))
        .hint("raise --timeout, or select fewer files or tensors")
}
