//! Loops for wide registers.

/// Compiles a function twice: for any processor of its family, and for x86-64 as most have been since 2013 (AVX2); the
/// first call looks which one runs here. Both compute the same bits: nothing is fused or reordered.
///
/// Loops are to be plain ones over arrays: a closure that is handed to an iterator is not compiled for wide registers.
macro_rules! wide {
    ($function:item) => {
        #[multiversion::multiversion(targets("x86_64+avx+avx2+bmi1+bmi2+f16c+lzcnt+movbe+popcnt"))]
        #[allow(clippy::needless_range_loop)] // of lanes, in arrays side by side
        $function
    };
}

pub(super) use wide;
