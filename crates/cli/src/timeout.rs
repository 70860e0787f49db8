//! `--timeout`: an end to what takes too long.
//!
//! What can stop by itself is asked to, as by Ctrl-C, and takes back what it has written. What does not, because nothing is
//! written yet or somebody else holds it up, ends with the process.

use crate::output::{Output, document_has_begun};
use crate::{args::Common, progress, streams};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{sleep, spawn};
use std::time::Duration;
use weighbridge::{Error, Kind};

/// True when the time is over.
static OVER: AtomicBool = AtomicBool::new(false);
/// How long work that was asked to stop may take to clean up.
const GRACE: Duration = Duration::from_secs(5);
/// How long the error may take to be printed: whoever shall read it may be what holds us up.
const PRINTING: Duration = Duration::from_secs(1);

/// Ends the process, with the code of an error, where it still runs after the time that the arguments grant.
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
            // A document that was begun stays without its end.
            match json && !document_has_begun() {
                true => output.error(&error(seconds)),
                false => output.tell(&error(seconds)),
            }
            let _ = done.send(());
        });
        let _ = printed.recv_timeout(PRINTING);
        streams::remove_spools();
        exit(2);
    });
}

/// What the command ends with: the time instead of an interruption that it made.
pub(crate) fn explain(found: Error, common: &Common) -> Error {
    match common.timeout {
        Some(seconds) if found.kind() == Kind::Cancelled && OVER.load(Ordering::SeqCst) => error(seconds),
        _ => found,
    }
}

fn error(seconds: u32) -> Error {
    Error::limit("took-too-long", "the work was not done in the time that it may take")
        .expected(format_args!(
            "at most {} (--timeout)",
            weighbridge::text::counted(seconds, "second", "seconds")
        ))
        .hint("give it more time, or look at less of it")
}
