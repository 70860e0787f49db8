//! Guard of mapped files: handles lost pages.
//!
//! Unix raises SIGBUS on access to a mapped page beyond the end of its file, or one that the device cannot read. The
//! handler that [`guard_maps`] installs once for the process checks whether the address is in one of our maps. If so,
//! it maps zeros there, records the loss for that map, and lets the reader continue; otherwise it behaves as the
//! previous handler. The table of maps is a fixed array of atomics, since a handler can neither lock nor allocate.

/// Most maps guarded at a time; beyond that files are read instead.
pub(super) const SLOTS: usize = 4096;

#[cfg(unix)]
pub(super) use unix::Guard;
#[cfg(unix)]
pub use unix::{guard_maps, maps_are_guarded, notify};

#[cfg(not(unix))]
pub(super) use other::Guard;
#[cfg(not(unix))]
pub use other::{guard_maps, maps_are_guarded, notify};

#[cfg(unix)]
mod unix {
    use super::SLOTS;
    use std::cell::UnsafeCell;
    use std::mem::MaybeUninit;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

    /// Slot of the table. `version` is odd while the other fields change.
    struct Slot {
        taken: AtomicBool,
        version: AtomicU32,
        /// Address of the first page.
        start: AtomicUsize,
        /// Address after the last page.
        end: AtomicUsize,
        /// True where the pages are writable.
        writable: AtomicBool,
        lost: AtomicBool,
    }

    static TABLE: [Slot; SLOTS] = [const {
        Slot {
            taken: AtomicBool::new(false),
            version: AtomicU32::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            writable: AtomicBool::new(false),
            lost: AtomicBool::new(false),
        }
    }; SLOTS];
    /// Number of slots in use so far; later slots were never used.
    static USED: AtomicUsize = AtomicUsize::new(0);
    /// Slot at which the search for a free one begins.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    /// Page size in bytes.
    static PAGE: AtomicUsize = AtomicUsize::new(4096);
    /// Callback, an `extern "C" fn()`, or null.
    static NOTIFY: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

    /// Previous handler: written once, before ours can run.
    struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);
    // SAFETY: the one thread that installs the handler writes it before the installation; it is only read from
    // then on.
    #[allow(unsafe_code)]
    unsafe impl Sync for Before {}
    static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));

    /// Sets a function that the signal handler calls for each lost page. It may only perform async-signal-safe
    /// operations, such as setting an atomic. A later call replaces it.
    pub fn notify(function: extern "C" fn()) {
        NOTIFY.store(function as *mut (), Ordering::SeqCst);
    }

    /// Result of installing the handler.
    static INSTALLED: OnceLock<bool> = OnceLock::new();

    /// Installs the signal handler (SIGBUS on Unix) that guards mapped files, for the rest of the process. From then on files
    /// are mapped; without it they are read. Call it once when the program starts, after other handlers of that signal are
    /// installed. Returns false where the system refuses, or another handler replaced this one.
    ///
    /// No library of Weighbridge calls it. The command does; the Python package does for the first array that is a view into
    /// a file.
    pub fn guard_maps() -> bool {
        *INSTALLED.get_or_init(install) && is_ours()
    }

    /// True while the handler of [`guard_maps`] is installed, so that files are mapped.
    pub fn maps_are_guarded() -> bool {
        INSTALLED.get() == Some(&true) && is_ours()
    }

    fn action() -> libc::sigaction {
        // SAFETY: all fields of the structure may be zero: no flags, an empty set, no handler.
        #[allow(unsafe_code)]
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        // On the alternate stack where the thread has one: the stack of the reader may be nearly full.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        action
    }

    fn install() -> bool {
        let ours = action();
        // SAFETY: plain system calls with pointers to our own memory, valid during the calls. The previous
        // handler is stored before ours is installed, so that our handler finds it.
        #[allow(unsafe_code)]
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE);
            PAGE.store(usize::try_from(page).unwrap_or(4096).max(1), Ordering::SeqCst);
            let before = (*BEFORE.0.get()).as_mut_ptr();
            libc::sigaction(libc::SIGBUS, std::ptr::null(), before) == 0
                && libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) == 0
        }
    }

    /// False where another part of the process replaced our handler.
    fn is_ours() -> bool {
        let mut now = action();
        // SAFETY: as in `install`; nothing is changed.
        #[allow(unsafe_code)]
        let asked = unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut now) };
        asked == 0 && now.sa_sigaction == on_signal as *const () as usize
    }

    /// Called by the system, in the thread that touched the page.
    extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: with SA_SIGINFO the system passes a valid `info`; for SIGBUS it has an address, unless another
        // program sent the signal, which the code shows.
        #[allow(unsafe_code)]
        let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
        let found = if code > 0 { slot_of(address) } else { None };
        if let Some((slot, _)) = found {
            // Set before the zeros become visible, also to other threads.
            slot.lost.store(true, Ordering::SeqCst);
        }
        match found {
            Some((slot, end)) if replaced(address, end, slot.writable.load(Ordering::SeqCst)) => {
                let function = NOTIFY.load(Ordering::SeqCst);
                if !function.is_null() {
                    // SAFETY: only `notify` writes there, and it takes a function of this type.
                    #[allow(unsafe_code)]
                    let function: extern "C" fn() = unsafe { std::mem::transmute(function) };
                    function();
                }
            }
            _ => as_before(signal, info, context),
        }
    }

    /// Returns the map that contains `address`, and the address after its last page. The interrupted reader owns that
    /// map, so its slot stays; slots that change concurrently are skipped.
    fn slot_of(address: usize) -> Option<(&'static Slot, usize)> {
        let used = USED.load(Ordering::SeqCst);
        TABLE.iter().take(used).find_map(|slot| {
            let version = slot.version.load(Ordering::SeqCst);
            let (start, end) = (slot.start.load(Ordering::SeqCst), slot.end.load(Ordering::SeqCst));
            let settled = version % 2 == 0 && slot.version.load(Ordering::SeqCst) == version;
            (settled && (start..end).contains(&address)).then_some((slot, end))
        })
    }

    /// Maps zeros from the page of `address` to `end`; in that page alone where the system refuses the whole range.
    fn replaced(address: usize, end: usize, writable: bool) -> bool {
        let page = PAGE.load(Ordering::SeqCst);
        let start = address - address % page;
        zeros(start, end, writable) || zeros(start, end.min(start.saturating_add(page)), writable)
    }

    fn zeros(start: usize, end: usize, writable: bool) -> bool {
        // SAFETY: the range is within one of our maps, which the interrupted reader keeps alive; no other code unmaps
        // or uses these addresses. The new pages are private, with the same access rights as the old ones. The
        // call is a kernel call, which does not lock or allocate in this process; `errno` is restored.
        #[allow(unsafe_code)]
        unsafe {
            let errno = errno();
            let kept = *errno;
            // Without reserving memory: a file may be larger than memory.
            let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED | libc::MAP_NORESERVE;
            let rights = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
            let place = libc::mmap(start as *mut libc::c_void, end - start, rights, flags, -1, 0);
            *errno = kept;
            place != libc::MAP_FAILED
        }
    }

    /// Behaves as the previous handler.
    fn as_before(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: `BEFORE` was written before this handler was installed. A previous handler is called as the
        // system would call it; without one, the default is restored, and the access, which is repeated on
        // return, ends the process as usual.
        #[allow(unsafe_code)]
        unsafe {
            let before = (*BEFORE.0.get()).assume_init_ref();
            match before.sa_sigaction {
                libc::SIG_DFL | libc::SIG_IGN => {
                    let mut default = action();
                    default.sa_sigaction = libc::SIG_DFL;
                    default.sa_flags = 0;
                    libc::sigaction(signal, &raw const default, std::ptr::null_mut());
                    if (*info).si_code <= 0 {
                        // Sent by a program: no access is repeated.
                        libc::raise(signal);
                    }
                }
                handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                        std::mem::transmute(handler);
                    handler(signal, info, context);
                }
                handler => {
                    let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                    handler(signal);
                }
            }
        }
    }

    #[cfg(any(target_os = "linux", target_os = "emscripten", target_os = "hurd", target_os = "redox"))]
    #[allow(unsafe_code)]
    // SAFETY: the address of this thread's error number is always valid.
    unsafe fn errno() -> *mut libc::c_int {
        unsafe { libc::__errno_location() }
    }
    #[cfg(any(target_os = "macos", target_os = "ios", target_os = "freebsd"))]
    #[allow(unsafe_code)]
    // SAFETY: as above.
    unsafe fn errno() -> *mut libc::c_int {
        unsafe { libc::__error() }
    }
    #[cfg(any(target_os = "android", target_os = "netbsd", target_os = "openbsd"))]
    #[allow(unsafe_code)]
    // SAFETY: as above.
    unsafe fn errno() -> *mut libc::c_int {
        unsafe { libc::__errno() }
    }

    /// Slot of a map in the table.
    #[derive(Debug)]
    pub(in super::super) struct Guard {
        slot: usize,
    }

    impl Guard {
        /// Guards the map of these bytes; `None` where the table is full.
        pub(in super::super) fn over(map: &[u8], writable: bool) -> Option<Self> {
            let page = PAGE.load(Ordering::SeqCst);
            // The map may begin inside its first page.
            let first = map.as_ptr() as usize;
            let (start, end) = (first - first % page, (first + map.len()).next_multiple_of(page));
            let from = NEXT.fetch_add(1, Ordering::Relaxed);
            // Low slots first, so that the handler has few to check.
            let few = USED.load(Ordering::SeqCst).min(SLOTS);
            let order = (0..few).map(|i| (from + i) % few.max(1)).chain(few..SLOTS);
            for number in order {
                let slot = &TABLE[number];
                if slot.taken.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                    USED.fetch_max(number + 1, Ordering::SeqCst);
                    slot.lost.store(false, Ordering::SeqCst);
                    slot.writable.store(writable, Ordering::SeqCst);
                    slot.set(start, end);
                    return Some(Self { slot: number });
                }
            }
            None
        }

        /// True where a page was lost.
        pub(in super::super) fn lost(&self) -> bool {
            TABLE[self.slot].lost.load(Ordering::SeqCst)
        }
    }

    impl Slot {
        fn set(&self, start: usize, end: usize) {
            self.version.fetch_add(1, Ordering::SeqCst);
            self.start.store(start, Ordering::SeqCst);
            self.end.store(end, Ordering::SeqCst);
            self.version.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            let slot = &TABLE[self.slot];
            slot.set(0, 0);
            slot.taken.store(false, Ordering::SeqCst);
        }
    }
}

/// Systems that do not allow truncating a mapped file, such as Windows, need no guard.
#[cfg(not(unix))]
mod other {
    /// Returns true: files can be mapped without a guard.
    pub fn guard_maps() -> bool {
        true
    }

    /// Does nothing: no page is ever lost.
    pub fn notify(_: extern "C" fn()) {}

    /// Returns true: no guard is needed.
    pub fn maps_are_guarded() -> bool {
        true
    }

    #[derive(Debug)]
    pub(in super::super) struct Guard;

    impl Guard {
        pub(in super::super) fn over(_: &[u8], _: bool) -> Option<Self> {
            Some(Self)
        }
        pub(in super::super) fn lost(&self) -> bool {
            false
        }
    }
}
