//! Counts the bytes that each thread holds, and on request those of all threads together. The library
//! opens and plans in the thread of its caller, so such a case is seen by the counters of its own
//! thread; conversions and statistics have workers.
// Rust knows no safe way to stand in for the allocator; nothing else in here is unsafe.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// True while [`peak_of_all`] runs: only then is it worth the traffic between processors.
static TOGETHER: AtomicBool = AtomicBool::new(false);
static ALL_LIVE: AtomicI64 = AtomicI64::new(0);
static ALL_PEAK: AtomicI64 = AtomicI64::new(0);

fn count(bytes: i64) {
    if TOGETHER.load(Ordering::Relaxed) {
        let live = ALL_LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
        ALL_PEAK.fetch_max(live, Ordering::Relaxed);
    }
    // At the end of a thread its counters may be gone.
    let live = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        live.get()
    });
    if let Ok(live) = live {
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live)));
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX / 4)
}

// SAFETY: every call is passed on to the allocator of the system as it came; counting takes
// no memory, as the counters are cells in the thread's own storage.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // While bytes move, both blocks may be held.
        count(signed(size));
        count(-signed(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs `work`; what it gives, and the bytes that it held at its peak.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = LIVE.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let result = work();
    (result, PEAK.with(Cell::get) - before)
}

/// As [`peak_of`], of all threads together: for one caller at a time, while nothing else runs.
pub fn peak_of_all<T>(work: impl FnOnce() -> T) -> (T, i64) {
    ALL_LIVE.store(0, Ordering::Relaxed);
    ALL_PEAK.store(0, Ordering::Relaxed);
    TOGETHER.store(true, Ordering::Relaxed);
    let result = work();
    TOGETHER.store(false, Ordering::Relaxed);
    (result, ALL_PEAK.load(Ordering::Relaxed))
}
