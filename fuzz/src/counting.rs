//! A counting allocator: bytes held by each thread, and on request by all threads together.
//!
//! The library opens and plans on the thread of its caller, so the counters of this thread cover such a case. Conversions and
//! statistics have workers.
// A global allocator needs unsafe code; nothing else here does.
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

/// True while [`peak_of_all`] runs: shared counters are slow.
static TOGETHER: AtomicBool = AtomicBool::new(false);
static ALL_LIVE: AtomicI64 = AtomicI64::new(0);
static ALL_PEAK: AtomicI64 = AtomicI64::new(0);

fn count(bytes: i64) {
    if TOGETHER.load(Ordering::Relaxed) {
        let live = ALL_LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
        ALL_PEAK.fetch_max(live, Ordering::Relaxed);
    }
    // The counters may be destroyed already at the end of a thread.
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

// SAFETY: every call is forwarded unchanged to the system allocator; counting does not allocate, because the counters are
// cells in thread-local storage.
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
        // Both blocks may exist during the move.
        count(signed(size));
        count(-signed(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs `work`; returns its result, and the peak of the bytes it held.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = LIVE.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let result = work();
    (result, PEAK.with(Cell::get) - before)
}

/// As [`peak_of`], for all threads together. For one caller at a time, while nothing else runs.
pub fn peak_of_all<T>(work: impl FnOnce() -> T) -> (T, i64) {
    ALL_LIVE.store(0, Ordering::Relaxed);
    ALL_PEAK.store(0, Ordering::Relaxed);
    TOGETHER.store(true, Ordering::Relaxed);
    let result = work();
    TOGETHER.store(false, Ordering::Relaxed);
    (result, ALL_PEAK.load(Ordering::Relaxed))
}
