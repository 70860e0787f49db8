//! Catches panics of libraries that parse untrusted input, and silences them on request.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// True while panics of this thread are caught and become errors.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Replaces the panic hook of the process once, so that panics caught by [`catch_panic`] print nothing. All other panics go
/// to the previous hook.
///
/// Without this call, caught panics become errors too, but the default hook prints their message and location. The command,
/// the Python package and the fuzzer call it; no library of Weighbridge does.
pub fn quiet_panics() {
    static ONCE: Once = Once::new();
    // The hook cannot be changed while a thread unwinds.
    if std::thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // At the end of a thread the flag may be destroyed.
            if !CAUGHT.try_with(Cell::get).unwrap_or(false) {
                before(info);
            }
        }));
    });
}

/// Runs `work`, which may panic on malformed input. After a panic, state that `work` changed must not be used.
///
/// # Errors
/// Returns the payload of the panic.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    let outer = CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(outer);
    result
}
