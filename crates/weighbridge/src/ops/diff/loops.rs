//! The loops over pairs of values. Sums are kept side by side in a fixed order: the result is the same bits on every machine.

use super::values::Tolerance;
use crate::ops::wide::wide;

/// Sums that are kept side by side.
const LANES: usize = 8;

/// How far finite values are apart.
pub(super) struct Apart {
    /// How many are not within the tolerance.
    pub(super) beyond: u64,
    /// The largest distance.
    pub(super) max_abs: f64,
    /// The largest distance as a share of the larger value.
    pub(super) max_relative: f64,
    /// The sum of the distances.
    pub(super) sum_abs: f64,
    /// The sum of the products.
    pub(super) dot: f64,
    /// The sums of the squares of both sides.
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
    /// How far `left` and `right`, which are finite and as many, are apart.
    pub(super) fn apart(left: &[f64], right: &[f64], tolerance: Tolerance) -> Apart {
        let Tolerance { absolute, relative } = tolerance;
        let mut beyond = [0u64; LANES];
        let (mut most, mut share) = ([0f64; LANES], [0f64; LANES]);
        let (mut sums, mut dots) = ([0f64; LANES], [0f64; LANES]);
        let (mut lefts, mut rights) = ([0f64; LANES], [0f64; LANES]);
        macro_rules! look {
            ($lane:expr, $a:expr, $b:expr) => {{
                let (lane, a, b): (usize, f64, f64) = ($lane, $a, $b);
                let distance = (a - b).abs();
                beyond[lane] += u64::from(distance > absolute + relative * b.abs());
                most[lane] = if distance > most[lane] { distance } else { most[lane] };
                let larger = if a.abs() > b.abs() { a.abs() } else { b.abs() };
                // Two zeros give NaN, which is never more.
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
                look!(lane, left[lane], right[lane]);
            }
        }
        for lane in 0..left_rest.len().min(right_rest.len()) {
            look!(lane, left_rest[lane], right_rest[lane]);
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
            /// The most steps from one number of a float type to the next, in little-endian pairs, where both are finite: below
            /// these bits of infinity.
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
