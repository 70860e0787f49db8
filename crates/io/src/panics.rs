//! Panics of libraries that parse untrusted input: caught, and quiet where the program asks for that.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// True while a panic of this thread is caught and becomes an error.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Replaces the panic hook of the process once, so that a panic that [`catch_panic`] turns into an error prints nothing. All
/// other panics go to the hook that was set before.
///
/// Without this call such a panic is an error as well, but the default hook prints its message and place. The command, the
/// Python package and the fuzzer call it; no library of Weighbridge does.
pub fn quiet_panics() {
    static ONCE: Once = Once::new();
    // While a thread unwinds, hooks cannot be changed.
    if std::thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // At the end of a thread the flag may be gone.
            if !CAUGHT.try_with(Cell::get).unwrap_or(false) {
                before(info);
            }
        }));
    });
}

/// Runs `work`, which may panic on malformed input. Nothing that it left half done may be used after a panic.
///
/// # Errors
/// The payload of the panic.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    let outer = CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(outer);
    result
}
