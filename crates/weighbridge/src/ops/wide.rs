//! Loops for wide registers.

/// Compiles a function three times: for any processor of its family, for x86-64 with AVX2, and for x86-64 with AVX-512. The
/// first call detects the processor. All versions compute the same bits: nothing is fused or reordered.
///
/// Loops must be plain loops over arrays: a closure passed to an iterator is not compiled for wide registers.
#[cfg(feature = "wide")]
macro_rules! wide {
    ($function:item) => {
        #[multiversion::multiversion(targets(
            "x86_64+avx+avx2+bmi1+bmi2+f16c+lzcnt+popcnt+avx512f+avx512bw+avx512cd+avx512dq+avx512vl",
            "x86_64+avx+avx2+bmi1+bmi2+f16c+lzcnt+popcnt",
        ))]
        #[allow(clippy::needless_range_loop)] // of lanes, in arrays side by side
        $function
    };
}

/// Without the feature `wide`: the function unchanged.
#[cfg(not(feature = "wide"))]
macro_rules! wide {
    ($function:item) => {
        #[allow(clippy::needless_range_loop)]
        $function
    };
}

pub(super) use wide;
