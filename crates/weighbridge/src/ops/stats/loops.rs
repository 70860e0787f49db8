//! Loops over values. Lanes are summed in a fixed order, so results are bit-identical on every machine.

use crate::ops::wide::wide;

/// Number of parallel sums of `f32`: two of the widest registers.
const SINGLES: usize = 32;
/// Number of parallel sums of `f64`.
const DOUBLES: usize = 8;

/// Result of one pass over values of type `T`.
pub(super) struct Range<T> {
    /// The smallest value; infinite without values.
    pub(super) least: T,
    /// The largest value; negative infinity without values.
    pub(super) most: T,
    /// Number of values that are 0 or -0.
    pub(super) zeros: u64,
    /// Number of values with a modulus below the bound, zeros included.
    pub(super) small: u64,
}

/// Distances of values from a center.
#[derive(Clone, Copy)]
pub(super) struct Distances {
    /// The sum of signed distances.
    pub(super) sum: f64,
    /// The sum of squared distances.
    pub(super) squares: f64,
}

/// Processes one value: the brackets contain the arrays of minima, maxima, and counts of zeros and small values, followed by
/// the type of the counts.
macro_rules! range_step {
    ($lane:expr, $x:expr, $bound:expr, [$least:ident, $most:ident, $zeros:ident, $small:ident]: $count:ident) => {{
        let (lane, x) = ($lane, $x);
        $least[lane] = if x < $least[lane] { x } else { $least[lane] };
        $most[lane] = if x > $most[lane] { x } else { $most[lane] };
        $zeros[lane] += $count::from(x == 0.0);
        $small[lane] += $count::from(x.abs() < $bound);
    }};
}

/// Adds one distance to the sums and to the sums of squares.
macro_rules! measure {
    ($lane:expr, $distance:expr, [$sums:ident, $squares:ident]) => {{
        let (lane, distance) = ($lane, $distance);
        $sums[lane] += distance;
        $squares[lane] += distance * distance;
    }};
}

macro_rules! fold_lanes {
    ($lanes:expr, $first:expr, $better:tt) => {{
        let mut best = $first;
        for x in $lanes {
            best = if x $better best { x } else { best };
        }
        best
    }};
}

wide! {
    /// Returns the range of little-endian `f32`s, and their distances from `near`.
    pub(super) fn of_singles(values: &[[u8; 4]], near: f64, bound: f32) -> (Range<f32>, Distances) {
        let (mut least, mut most) = ([f32::INFINITY; SINGLES], [f32::NEG_INFINITY; SINGLES]);
        let (mut zeros, mut small) = ([0u32; SINGLES], [0u32; SINGLES]);
        let (mut sums, mut squares) = ([0f64; SINGLES], [0f64; SINGLES]);
        let (groups, rest) = values.as_chunks::<SINGLES>();
        for group in groups {
            // Separate loops, so that each has enough registers.
            for lane in 0..SINGLES {
                range_step!(lane, f32::from_le_bytes(group[lane]), bound, [least, most, zeros, small]: u32);
            }
            for lane in 0..SINGLES {
                measure!(lane, f64::from(f32::from_le_bytes(group[lane])) - near, [sums, squares]);
            }
        }
        for lane in 0..rest.len() {
            range_step!(lane, f32::from_le_bytes(rest[lane]), bound, [least, most, zeros, small]: u32);
            measure!(lane, f64::from(f32::from_le_bytes(rest[lane])) - near, [sums, squares]);
        }
        let range = Range {
            least: fold_lanes!(least, f32::INFINITY, <),
            most: fold_lanes!(most, f32::NEG_INFINITY, >),
            zeros: zeros.iter().map(|n| u64::from(*n)).sum(),
            small: small.iter().map(|n| u64::from(*n)).sum(),
        };
        (range, Distances { sum: sums.iter().sum(), squares: squares.iter().sum() })
    }
}

wide! {
    /// Returns the range of `values`, which are finite.
    pub(super) fn range(values: &[f64], bound: f64) -> Range<f64> {
        let (mut least, mut most) = ([f64::INFINITY; DOUBLES], [f64::NEG_INFINITY; DOUBLES]);
        let (mut zeros, mut small) = ([0u64; DOUBLES], [0u64; DOUBLES]);
        let (groups, rest) = values.as_chunks::<DOUBLES>();
        for group in groups {
            for lane in 0..DOUBLES {
                range_step!(lane, group[lane], bound, [least, most, zeros, small]: u64);
            }
        }
        for lane in 0..rest.len() {
            range_step!(lane, rest[lane], bound, [least, most, zeros, small]: u64);
        }
        Range {
            least: fold_lanes!(least, f64::INFINITY, <),
            most: fold_lanes!(most, f64::NEG_INFINITY, >),
            zeros: zeros.iter().sum(),
            small: small.iter().sum(),
        }
    }
}

wide! {
    /// Returns the distances of `values`, times `unit`, from `center`.
    pub(super) fn distances(values: &[f64], unit: f64, center: f64) -> Distances {
        let (mut sums, mut squares) = ([0f64; DOUBLES], [0f64; DOUBLES]);
        let (groups, rest) = values.as_chunks::<DOUBLES>();
        for group in groups {
            for lane in 0..DOUBLES {
                measure!(lane, group[lane] * unit - center, [sums, squares]);
            }
        }
        for lane in 0..rest.len() {
            measure!(lane, rest[lane] * unit - center, [sums, squares]);
        }
        Distances { sum: sums.iter().sum(), squares: squares.iter().sum() }
    }
}

/// Marker in place of a bin number: the bin must be determined by the edges.
pub(super) const UNSURE: u32 = u32::MAX;

wide! {
    /// Writes the integer part of `(x - min) * per_unit` of each value to `bins`, or [`UNSURE`] where it is not finite or within
    /// `slack` of another integer.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, and is checked
    pub(super) fn bins(values: &[f64], min: f64, per_unit: f64, slack: f64, bins: &mut [u32]) {
        let far = 1.0 - slack;
        for (x, bin) in values.iter().zip(bins) {
            let place = (*x - min) * per_unit;
            let guess = place as i32;
            let share = place - f64::from(guess);
            *bin = if (share >= slack) & (share < far) { guess as u32 } else { UNSURE };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition of the lanes, one value after the other, without wide registers.
    #[test]
    fn sums_equal_those_of_separate_lanes() {
        let values: Vec<f32> = (0..1000u16).map(|i| f32::from(i).sin() * 1e3 + 0.1).collect();
        let bytes: Vec<[u8; 4]> = values.iter().map(|x| x.to_le_bytes()).collect();
        let doubles: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
        for len in [0, 1, 7, 8, 31, 32, 33, 100, 1000] {
            let by_lanes = |lanes: usize, center: f64| {
                let mut sums = vec![(0f64, 0f64); lanes];
                for (at, x) in doubles[..len].iter().enumerate() {
                    let distance = x - center;
                    sums[at % lanes].0 += distance;
                    sums[at % lanes].1 += distance * distance;
                }
                (sums.iter().map(|s| s.0).sum::<f64>(), sums.iter().map(|s| s.1).sum::<f64>())
            };
            let (range_of_singles, singles) = of_singles(&bytes[..len], 0.3, f32::MIN_POSITIVE);
            assert_eq!((singles.sum, singles.squares), by_lanes(SINGLES, 0.3), "{len}");
            let found = distances(&doubles[..len], 1.0, 0.3);
            assert_eq!((found.sum, found.squares), by_lanes(DOUBLES, 0.3), "{len}");
            let range = range(&doubles[..len], f64::MIN_POSITIVE);
            assert_eq!(f64::from(range_of_singles.least), range.least, "{len}");
            assert_eq!(range.most, doubles[..len].iter().copied().fold(f64::NEG_INFINITY, f64::max), "{len}");
        }
    }
}
