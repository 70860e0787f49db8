//! Loops over pairs of values. Lanes are summed in a fixed order, so results are bit-identical on every machine.

use super::values::Tolerance;
use crate::ops::wide::wide;

/// Number of parallel sums.
const LANES: usize = 8;

/// Distance of finite values.
pub(super) struct Apart {
    /// Number of elements beyond the tolerance.
    pub(super) beyond: u64,
    /// Largest absolute error.
    pub(super) max_abs: f64,
    /// Largest relative error, as a fraction of the larger value.
    pub(super) max_relative: f64,
    /// Sum of absolute errors.
    pub(super) sum_abs: f64,
    /// Sum of products.
    pub(super) dot: f64,
    /// Sums of squares of both sides.
    pub(super) squares: [f64; 2],
}

wide! {
    /// True where no value is NaN or infinite.
    pub(super) fn all_finite(values: &[f64]) -> bool {
        let mut all = true;
        for x in values {
            all &= x.abs() < f64::INFINITY;
        }
        all
    }
}

wide! {
    /// Measures the distance of `left` and `right`, which are finite and of equal length.
    pub(super) fn apart(left: &[f64], right: &[f64], tolerance: Tolerance) -> Apart {
        let Tolerance { absolute, relative } = tolerance;
        let mut beyond = [0u64; LANES];
        let (mut most, mut share) = ([0f64; LANES], [0f64; LANES]);
        let (mut sums, mut dots) = ([0f64; LANES], [0f64; LANES]);
        let (mut lefts, mut rights) = ([0f64; LANES], [0f64; LANES]);
        macro_rules! distance_step {
            ($lane:expr, $a:expr, $b:expr) => {{
                let (lane, a, b): (usize, f64, f64) = ($lane, $a, $b);
                let distance = (a - b).abs();
                beyond[lane] += u64::from(distance > absolute + relative * b.abs());
                most[lane] = if distance > most[lane] { distance } else { most[lane] };
                let larger = if a.abs() > b.abs() { a.abs() } else { b.abs() };
                // Two zeros yield NaN, which is never larger.
                let part = distance / larger;
                share[lane] = if part > share[lane] { part } else { share[lane] };
                sums[lane] += distance;
                dots[lane] += a * b;
                lefts[lane] += a * a;
                rights[lane] += b * b;
            }};
        }
        let ((left, left_rest), (right, right_rest)) = (left.as_chunks::<LANES>(), right.as_chunks::<LANES>());
        for (left, right) in left.iter().zip(right) {
            for lane in 0..LANES {
                distance_step!(lane, left[lane], right[lane]);
            }
        }
        for lane in 0..left_rest.len().min(right_rest.len()) {
            distance_step!(lane, left_rest[lane], right_rest[lane]);
        }
        let most_of = |lanes: [f64; LANES]| lanes.into_iter().fold(0.0, f64::max);
        Apart {
            beyond: beyond.iter().sum(),
            max_abs: most_of(most),
            max_relative: most_of(share),
            sum_abs: sums.iter().sum(),
            dot: dots.iter().sum(),
            squares: [lefts.iter().sum(), rights.iter().sum()],
        }
    }
}

macro_rules! most_steps {
    ($name:ident, $bits:ty, $size:literal) => {
        wide! {
            /// Returns the largest error in units in the last place over pairs of little-endian floats that are both finite, which
            /// means below the bits `infinity`.
            pub(super) fn $name(left: &[u8], right: &[u8], infinity: $bits) -> $bits {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let mut most = 0;
                let pairs = left.as_chunks::<$size>().0.iter().zip(right.as_chunks::<$size>().0);
                for (a, b) in pairs {
                    let (a, b) = (<$bits>::from_le_bytes(*a), <$bits>::from_le_bytes(*b));
                    let (size_a, size_b) = (a & !SIGN, b & !SIGN);
                    // The numbers in their order: both zeros in the middle.
                    let place_a = if a == size_a { SIGN + size_a } else { SIGN - size_a };
                    let place_b = if b == size_b { SIGN + size_b } else { SIGN - size_b };
                    let finite = (size_a < infinity) & (size_b < infinity);
                    let steps = if finite { place_a.abs_diff(place_b) } else { 0 };
                    most = if steps > most { steps } else { most };
                }
                most
            }
        }
    };
}

most_steps!(most_steps_of_16, u16, 2);
most_steps!(most_steps_of_32, u32, 4);
most_steps!(most_steps_of_64, u64, 8);
