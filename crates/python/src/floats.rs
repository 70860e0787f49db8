//! Floating-point mode of a thread.

/// Sets the default mode for this thread: subnormal numbers kept, rounding to nearest. The calling thread may flush
/// subnormals to zero (`torch.set_flush_denormal`), and new threads inherit the mode of the thread that starts them.
pub(crate) fn set_default_mode() {
    #[cfg(target_arch = "x86_64")]
    {
        // State at process start: all exceptions masked, no flush to zero, round to nearest.
        static DEFAULT: u32 = 0x1F80;
        // SAFETY: the state that Rust expects of a thread is put back, from a word that is valid for the read.
        #[allow(unsafe_code)]
        unsafe {
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const DEFAULT, options(nostack, readonly, preserves_flags));
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        // State at process start: no traps, no flush to zero, round to nearest, NaN payloads kept.
        const DEFAULT: u64 = 0;
        // SAFETY: the state that Rust expects of a thread is put back; no memory is touched.
        #[allow(unsafe_code)]
        unsafe {
            std::arch::asm!("msr fpcr, {}", in(reg) DEFAULT, options(nomem, nostack, preserves_flags));
        }
    }
}
