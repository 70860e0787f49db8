//! libFuzzer driver for the target in `WEIGHBRIDGE_FUZZ_TARGET`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use weighbridge_fuzz::{Target, quiet_panics, target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    // libFuzzer reports every panic as a crash, even one that the library catches.
    quiet_panics();
    let name = std::env::var("WEIGHBRIDGE_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| panic!("WEIGHBRIDGE_FUZZ_TARGET is not a target: {name:?}"))
});

fuzz_target!(|bytes: &[u8]| {
    TARGET.feed(bytes);
});
