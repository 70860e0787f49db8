//! Statistics of a block, decoded to `f64`, in a form that can be merged.

use super::loops::{self, Distances};
use super::{Histogram, Number, Stats};
use crate::ops::decode::{decode, singles};
use crate::tensor::DType;
use crate::tensor::f16;

/// Number of elements decoded at once: 32 KiB as `f64`, which stay in the first-level cache.
const CHUNK: usize = 4096;
/// Number of elements processed at once where nothing is decoded.
const IN_PLACE: usize = 4 * CHUNK;
/// Number of values whose mean is a good reference for distances from the mean of all.
const SAMPLE_LEN: usize = 8;
/// 2^600.
const LARGE: f64 = f64::from_bits((1023 + 600) << 52);
/// Ranges below the first or above the second value are scaled for computation.
const PLAIN_RANGE: (f64, f64) = (1e-140, 1e140);

/// Statistics of some elements.
#[derive(Debug, Clone)]
pub(super) struct Part {
    count: u64,
    finite: u64,
    min: f64,
    max: f64,
    /// The exact range of 64-bit integers.
    wide: Option<(i128, i128)>,
    /// The mean, rounded, and its rounding error.
    mean: (f64, f64),
    /// The sum of squared distances from the mean, in the [`unit`] of this range.
    squares: f64,
    zeros: u64,
    nan: u64,
    pos_inf: u64,
    neg_inf: u64,
    subnormal: u64,
    first: [u8; 16],
    all_equal: bool,
}

impl Default for Part {
    fn default() -> Self {
        Self {
            count: 0,
            finite: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            wide: None,
            mean: (0.0, 0.0),
            squares: 0.0,
            zeros: 0,
            nan: 0,
            pos_inf: 0,
            neg_inf: 0,
            subnormal: 0,
            first: [0; 16],
            all_equal: true,
        }
    }
}

/// Result of one thread: its blocks, by number.
#[derive(Default)]
pub(super) struct Worker {
    pub(super) parts: Vec<(usize, Part)>,
    values: Vec<f64>,
    singles: Vec<[u8; 4]>,
}

/// Histogram counts of one thread.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) counts: Vec<u64>,
    values: Vec<f64>,
}

impl Worker {
    /// Adds a block of little-endian elements, or the next part of it, which ends at a chunk or block end.
    pub(super) fn add(&mut self, dtype: DType, number: usize, bytes: &[u8]) {
        let size = dtype.size().unwrap_or(1);
        let mut whole = match self.parts.pop_if(|(last, _)| *last == number) {
            Some((_, part)) => part,
            None => Part::default(),
        };
        let chunk = if dtype == DType::F32 { IN_PLACE } else { CHUNK };
        for chunk in bytes.chunks(chunk * size) {
            let single = singles(dtype, chunk, &mut self.singles)
                .and_then(|singles| Part::of_singles(singles, smallest_normal(dtype)));
            let mut part = single.unwrap_or_else(|| {
                decode(dtype, chunk, &mut self.values);
                Part::of_values(&mut self.values, smallest_normal(dtype))
            });
            part.wide = wide_range(dtype, chunk);
            if let Some(first) = chunk.get(..size) {
                part.first[..size].copy_from_slice(first);
            }
            // All elements are equal if each equals the previous one.
            part.all_equal = chunk.get(size..) == chunk.get(..chunk.len().saturating_sub(size));
            whole = whole.merged(part);
        }
        self.parts.push((number, whole));
    }
}

impl Counted {
    /// Counts a block of little-endian elements into the bins of `histogram`.
    pub(super) fn add(&mut self, dtype: DType, histogram: &Histogram, bytes: &[u8]) {
        self.counts.resize(histogram.counts.len(), 0);
        for chunk in bytes.chunks(CHUNK * dtype.size().unwrap_or(1)) {
            decode(dtype, chunk, &mut self.values);
            histogram.count(&self.values, &mut self.counts);
        }
    }
}

impl Part {
    /// Computes the statistics of `values`, and removes those that are not finite.
    fn of_values(values: &mut Vec<f64>, smallest_normal: f64) -> Self {
        let mut part = Self { count: values.len() as u64, ..Self::default() };
        if !values.iter().fold(true, |all, x| all & x.is_finite()) {
            for x in values.iter() {
                part.nan += u64::from(x.is_nan());
                part.pos_inf += u64::from(*x == f64::INFINITY);
                part.neg_inf += u64::from(*x == f64::NEG_INFINITY);
            }
            values.retain(|x| x.is_finite());
        }
        if values.is_empty() {
            return part;
        }
        part.finite = values.len() as u64;
        let range = loops::range(values, smallest_normal);
        (part.min, part.max, part.zeros) = (range.least, range.most, range.zeros);
        part.subnormal = range.small.saturating_sub(range.zeros);
        if part.min == part.max {
            // The sum of equal values may not be representable.
            part.mean = (part.min, 0.0);
            return part;
        }
        let (unit, count) = (unit(part.min, part.max), as_f64(part.finite));
        let center = loops::distances(values, unit, 0.0).sum / count;
        part.set_moments(center, unit, loops::distances(values, unit, center));
        part
    }

    /// Computes the statistics of `values`, as little-endian `f32`, in one pass; `None` without values, or with values that are not
    /// finite. Sums are `f64` and relative to a value near the mean, so that the mean need not be known before.
    #[allow(clippy::cast_possible_truncation)] // a power of two that `f32` represents exactly
    fn of_singles(values: &[[u8; 4]], smallest_normal: f64) -> Option<Self> {
        let few = values.get(..SAMPLE_LEN.min(values.len())).filter(|few| !few.is_empty())?;
        let near =
            few.iter().map(|&x| f64::from(f32::from_le_bytes(x))).sum::<f64>() / as_f64(few.len() as u64);
        let (range, distances) = loops::of_singles(values, near, smallest_normal as f32);
        // The squares of all `f32` numbers are well within the range of `f64`.
        if !distances.squares.is_finite() {
            return None;
        }
        let count = values.len() as u64;
        let mut part = Self {
            count,
            finite: count,
            min: f64::from(range.least),
            max: f64::from(range.most),
            zeros: range.zeros,
            subnormal: range.small.saturating_sub(range.zeros),
            ..Self::default()
        };
        part.set_moments(near, 1.0, distances);
        Some(part)
    }

    /// Sets mean and squares from the distances of all finite values from `center`, in this unit.
    fn set_moments(&mut self, center: f64, unit: f64, distances: Distances) {
        let count = as_f64(self.finite);
        let (mean, rest) = exact_sum(center, distances.sum / count);
        self.mean = (mean / unit, rest / unit);
        self.squares = (distances.squares - distances.sum * distances.sum / count).max(0.0);
    }

    /// Merges this part and the next one, by the formula of Chan, Golub and LeVeque.
    pub(super) fn merged(self, next: Self) -> Self {
        if self.count == 0 {
            return next;
        }
        if next.count == 0 {
            return self;
        }
        let (min, max) = (self.min.min(next.min), self.max.max(next.max));
        let (mean, squares) = match (self.finite, next.finite) {
            (_, 0) => (self.mean, self.squares),
            (0, _) => (next.mean, next.squares),
            _ => self.joint_moments(&next, unit(min, max)),
        };
        Self {
            count: self.count + next.count,
            finite: self.finite + next.finite,
            min,
            max,
            wide: match (self.wide, next.wide) {
                (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
                (a, b) => a.or(b),
            },
            mean,
            squares,
            zeros: self.zeros + next.zeros,
            nan: self.nan + next.nan,
            pos_inf: self.pos_inf + next.pos_inf,
            neg_inf: self.neg_inf + next.neg_inf,
            subnormal: self.subnormal + next.subnormal,
            first: self.first,
            all_equal: self.all_equal && next.all_equal && self.first == next.first,
        }
    }

    /// Returns mean and squares of both parts, which have finite values, in the unit of their joint range.
    fn joint_moments(&self, next: &Self, unit: f64) -> ((f64, f64), f64) {
        let (a, b) = (as_f64(self.finite), as_f64(next.finite));
        let distance = (next.mean.0 * unit - self.mean.0 * unit) + (next.mean.1 * unit - self.mean.1 * unit);
        // Step from the larger part: the distance may overflow f64, but half of it does not.
        let (from, step) = match a >= b {
            true => (self.mean, distance * (b / (a + b)) / unit),
            false => (next.mean, -distance * (a / (a + b)) / unit),
        };
        let squares = self.squares_in(unit) + next.squares_in(unit) + distance * distance * a * (b / (a + b));
        (exact_sum(from.0, from.1 + step), squares)
    }

    /// Returns the sum of squared distances in a unit that is not larger than the own one.
    fn squares_in(&self, unit: f64) -> f64 {
        let ratio = unit / self::unit(self.min, self.max);
        self.squares * ratio * ratio
    }

    pub(super) fn into_stats(self, dtype: DType) -> Stats {
        let some = self.finite > 0;
        let range = some.then(|| match (self.wide, dtype) {
            (Some((min, max)), _) => (Number::Int(min), Number::Int(max)),
            (None, DType::C64 | DType::C128) => (Number::Float(self.min), Number::Float(self.max)),
            (None, dtype) if dtype.is_float() => (Number::Float(self.min), Number::Float(self.max)),
            _ => (Number::Int(exact(self.min)), Number::Int(exact(self.max))),
        });
        // The mean of equal values can be off by rounding; its exact value is known.
        let (mean, std) = match self.min == self.max {
            true => (self.min, 0.0),
            false => {
                let spread = (self.squares / as_f64(self.finite)).sqrt();
                (self.mean.0, spread / unit(self.min, self.max))
            }
        };
        Stats {
            dtype,
            count: self.count,
            finite: self.finite,
            min: range.map(|r| r.0),
            max: range.map(|r| r.1),
            mean: some.then_some(mean),
            std: some.then_some(std),
            zeros: self.zeros,
            nan: self.nan,
            pos_inf: self.pos_inf,
            neg_inf: self.neg_inf,
            subnormal: self.subnormal,
            all_equal: self.count > 0 && self.all_equal,
            histogram: None,
        }
    }
}

/// Returns the scale factor of distances, so that the squares of very small and very large ones are within `f64`: a power of
/// two, which rounds nothing. A wider range has the same factor or a smaller one.
fn unit(min: f64, max: f64) -> f64 {
    match max - min {
        range if range > PLAIN_RANGE.1 => 1.0 / LARGE,
        range if range > 0.0 && range < PLAIN_RANGE.0 => LARGE,
        _ => 1.0,
    }
}

/// Returns the rounded sum of two numbers, and its rounding error (Knuth).
fn exact_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let from_b = sum - a;
    (sum, (a - (sum - from_b)) + (b - from_b))
}

#[allow(clippy::cast_precision_loss)] // a count of elements
fn as_f64(n: u64) -> f64 {
    n as f64
}

/// Returns an integer of up to 32 bits that was converted to `f64`.
#[allow(clippy::cast_possible_truncation)]
fn exact(x: f64) -> i128 {
    x as i128
}

/// Returns the smallest normal number of a float type; 0 for types without subnormal numbers.
fn smallest_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::MIN_POSITIVE.to_f64(),
        DType::BF16 | DType::F32 | DType::C64 => f64::from(f32::MIN_POSITIVE),
        DType::F64 | DType::C128 => f64::MIN_POSITIVE,
        DType::F8E4M3 => 2f64.powi(-6),
        DType::F8E4M3Fnuz => 2f64.powi(-7),
        DType::F8E5M2 => 2f64.powi(-14),
        DType::F8E5M2Fnuz => 2f64.powi(-15),
        _ => 0.0,
    }
}

/// Returns the range of 64-bit integers, which `f64` would round.
fn wide_range(dtype: DType, bytes: &[u8]) -> Option<(i128, i128)> {
    let words = bytes.as_chunks::<8>().0;
    match dtype {
        DType::I64 => {
            let values = words.iter().map(|w| i64::from_le_bytes(*w));
            let (min, max) = values.fold((i64::MAX, i64::MIN), |(a, b), x| (a.min(x), b.max(x)));
            (!words.is_empty()).then(|| (min.into(), max.into()))
        }
        DType::U64 => {
            let values = words.iter().map(|w| u64::from_le_bytes(*w));
            let (min, max) = values.fold((u64::MAX, 0), |(a, b), x| (a.min(x), b.max(x)));
            (!words.is_empty()).then(|| (min.into(), max.into()))
        }
        _ => None,
    }
}
