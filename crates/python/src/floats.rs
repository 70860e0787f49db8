//! How a thread computes with floating-point numbers.

/// Has this thread keep subnormal numbers and round to the nearest, as everything here expects. Other libraries may have had the
/// thread that asks for work flush them to zero (`torch.set_flush_denormal`), and threads take that over from the one that
/// starts them.
pub(crate) fn as_expected() {
    #[cfg(target_arch = "x86_64")]
    {
        // All exceptions masked, nothing flushed, to the nearest: as a process begins.
        static DEFAULT: u32 = 0x1F80;
        // SAFETY: the state that Rust expects of a thread is put back, from a word that is valid for the read.
        #[allow(unsafe_code)]
        unsafe {
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const DEFAULT, options(nostack, readonly, preserves_flags));
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        // Nothing trapped, nothing flushed, to the nearest, NaN as they are: as a process begins.
        const DEFAULT: u64 = 0;
        // SAFETY: the state that Rust expects of a thread is put back; no memory is touched.
        #[allow(unsafe_code)]
        unsafe {
            std::arch::asm!("msr fpcr, {}", in(reg) DEFAULT, options(nomem, nostack, preserves_flags));
        }
    }
}
