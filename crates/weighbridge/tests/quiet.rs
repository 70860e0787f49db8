//! A caught panic of a library is an error like any other: nothing is printed of it if the program asks for that.
//!
//! A process of its own: the test counts calls of the panic hook, and a process has only one.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weighbridge::formats::{OpenOptions, registry};
use weighbridge::quiet_panics;
use weighbridge::source::MemorySource;
use weighbridge::tensor::Order;

#[test]
fn panics_that_are_caught_reach_no_hook() {
    static HEARD: AtomicU64 = AtomicU64::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        HEARD.fetch_add(1, Ordering::Relaxed);
        before(info);
    }));
    quiet_panics();
    let path = weighbridge_testkit::testdata("tables/half.uncompressed.arrow");
    let good = std::fs::read(path).unwrap();
    let mut caught = 0;
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] = 0x85;
        let opened = registry().open_source(Arc::new(MemorySource::new("bad", bad)), &OpenOptions::default());
        let read = opened.and_then(|checkpoint| {
            checkpoint.tensors.iter().try_for_each(|tensor| {
                tensor.row_names.as_ref().map(|names| names.read()).transpose()?;
                tensor.read_tensor(Order::Row).map(|_| ())
            })
        });
        caught += u64::from(read.is_err_and(|error| error.to_string().contains("is inconsistent")));
    }
    assert!(caught > 0, "no damage brings Arrow to panic any more: this test needs another file");
    assert_eq!(HEARD.load(Ordering::Relaxed), 0);
    // All others are heard as before.
    assert!(catch_unwind(|| panic!("on purpose")).is_err());
    assert_eq!(HEARD.load(Ordering::Relaxed), 1);
}
