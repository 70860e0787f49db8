//! The values of a block: decoded to `f64`, counted, and gathered so that parts can be joined.

use super::{Histogram, Number, Stats};
use crate::ops::decode::{decode, decode_single};
use crate::tensor::DType;
use half::f16;

/// Elements that are decoded at once: 32 KiB as `f64`, which stay in the first cache.
const CHUNK: usize = 4096;
/// Elements whose distances are added at once: simple loops, which the compiler makes wide.
const STEP: usize = 64 * LANES;
/// Sums that are kept side by side, so that the compiler can use wide registers. Fixed: it decides
/// in which order values are added.
const LANES: usize = 8;

/// What is known of some elements.
#[derive(Debug, Clone)]
pub(super) struct Part {
    count: u64,
    finite: u64,
    min: f64,
    max: f64,
    /// The exact range of 64-bit integers.
    wide: Option<(i128, i128)>,
    mean: f64,
    /// The sum of the squared distances from the mean.
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
            mean: 0.0,
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

/// What one thread gathers: its blocks, by number.
#[derive(Default)]
pub(super) struct Worker {
    pub(super) parts: Vec<(usize, Part)>,
    values: Vec<f64>,
    singles: Vec<f32>,
}

/// What one thread counts for the histogram.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) counts: Vec<u64>,
    values: Vec<f64>,
}

impl Worker {
    /// Takes a block of little-endian elements.
    pub(super) fn add(&mut self, dtype: DType, number: usize, bytes: &[u8]) {
        let size = dtype.size().unwrap_or(1);
        let mut whole = Part::default();
        for chunk in bytes.chunks(CHUNK * size) {
            let single = decode_single(dtype, chunk, &mut self.singles)
                .then(|| Part::of_singles(&self.singles, smallest_normal(dtype)))
                .flatten();
            whole = whole.merged(single.unwrap_or_else(|| {
                decode(dtype, chunk, &mut self.values);
                Part::of_values(&mut self.values, smallest_normal(dtype))
            }));
        }
        whole.wide = wide_range(dtype, bytes);
        if let Some(first) = bytes.get(..size) {
            whole.first[..size].copy_from_slice(first);
        }
        // All are equal where each equals the one before.
        whole.all_equal = bytes.get(size..) == bytes.get(..bytes.len().saturating_sub(size));
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
    /// What is known of `values`; those that are not finite are taken out of them.
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
        let (mut least, mut most) = ([f64::INFINITY; LANES], [f64::NEG_INFINITY; LANES]);
        let (mut zeros, mut small) = ([0u64; LANES], [0u64; LANES]);
        let (mut sums, mut squares) = ([0f64; LANES], [0f64; LANES]);
        let (eights, rest) = values.as_chunks::<LANES>();
        let mut look = |lane: usize, x: f64| {
            least[lane] = if x < least[lane] { x } else { least[lane] };
            most[lane] = if x > most[lane] { x } else { most[lane] };
            zeros[lane] += u64::from(x == 0.0);
            small[lane] += u64::from(x.abs() < smallest_normal);
            sums[lane] += x;
        };
        for eight in eights {
            (0..LANES).for_each(|lane| look(lane, eight[lane]));
        }
        rest.iter().enumerate().for_each(|(lane, &x)| look(lane, x));
        part.min = least.into_iter().fold(f64::INFINITY, f64::min);
        part.max = most.into_iter().fold(f64::NEG_INFINITY, f64::max);
        part.zeros = zeros.iter().sum();
        part.subnormal = small.iter().sum::<u64>().saturating_sub(part.zeros);
        part.mean = sums.iter().sum::<f64>() / as_f64(part.finite);
        for eight in eights {
            (0..LANES).for_each(|lane| squares[lane] += (eight[lane] - part.mean).powi(2));
        }
        rest.iter().enumerate().for_each(|(lane, &x)| squares[lane] += (x - part.mean).powi(2));
        part.squares = squares.iter().sum();
        part
    }

    /// What is known of `values` of types that `f32` holds exactly, twice as fast as by `f64`; `None` where there is
    /// none, or one that is not finite. Sums are of `f64`, taken from a value near the mean, so that the mean need not be known
    /// before.
    #[allow(clippy::cast_possible_truncation)] // a power of two that `f32` has, too
    fn of_singles(values: &[f32], smallest_normal: f64) -> Option<Self> {
        let smallest_normal = smallest_normal as f32;
        let few = values.get(..LANES.min(values.len())).filter(|few| !few.is_empty())?;
        let near = few.iter().map(|&x| f64::from(x)).sum::<f64>() / as_f64(few.len() as u64);
        // Several passes over what is in the first cache anyway: each needs as many wide registers as there are.
        let (eights, rest) = values.as_chunks::<LANES>();
        let (mut least, mut most) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
        let (mut zeros, mut small) = ([0u32; LANES], [0u32; LANES]);
        let mut look = |lane: usize, x: f32| {
            least[lane] = if x < least[lane] { x } else { least[lane] };
            most[lane] = if x > most[lane] { x } else { most[lane] };
            zeros[lane] += u32::from(x == 0.0);
            small[lane] += u32::from(x.abs() < smallest_normal);
        };
        for eight in eights {
            (0..LANES).for_each(|lane| look(lane, eight[lane]));
        }
        rest.iter().enumerate().for_each(|(lane, &x)| look(lane, x));
        let (mut sums, mut squares) = ([0f64; LANES], [0f64; LANES]);
        let mut distances = [0f64; STEP];
        for part in values.chunks(STEP) {
            let distances = &mut distances[..part.len()];
            distances.iter_mut().zip(part).for_each(|(distance, &x)| *distance = f64::from(x) - near);
            let (eights, rest) = distances.as_chunks::<LANES>();
            for eight in eights {
                (0..LANES).for_each(|lane| sums[lane] += eight[lane]);
            }
            rest.iter().enumerate().for_each(|(lane, x)| sums[lane] += x);
            for eight in eights {
                (0..LANES).for_each(|lane| squares[lane] += eight[lane] * eight[lane]);
            }
            rest.iter().enumerate().for_each(|(lane, x)| squares[lane] += x * x);
        }
        let all = squares.iter().sum::<f64>();
        // The squares of all numbers of `f32` stay far within `f64`.
        if !all.is_finite() {
            return None;
        }
        let count = values.len() as u64;
        let total = |counts: [u32; LANES]| counts.into_iter().map(u64::from).sum::<u64>();
        let (zeros, sum) = (total(zeros), sums.iter().sum::<f64>());
        Some(Self {
            count,
            finite: count,
            min: f64::from(least.into_iter().fold(f32::INFINITY, f32::min)),
            max: f64::from(most.into_iter().fold(f32::NEG_INFINITY, f32::max)),
            mean: near + sum / as_f64(count),
            squares: (all - sum * sum / as_f64(count)).max(0.0),
            zeros,
            subnormal: total(small).saturating_sub(zeros),
            ..Self::default()
        })
    }

    /// This part and the one behind it, by the formula of Chan, Golub and LeVeque.
    pub(super) fn merged(self, next: Self) -> Self {
        if self.count == 0 {
            return next;
        }
        if next.count == 0 {
            return self;
        }
        let (a, b) = (as_f64(self.finite), as_f64(next.finite));
        let (mean, squares) = match (self.finite, next.finite) {
            (_, 0) => (self.mean, self.squares),
            (0, _) => (next.mean, next.squares),
            _ => {
                let distance = next.mean - self.mean;
                let share = b / (a + b);
                (self.mean + distance * share, self.squares + next.squares + distance * distance * a * share)
            }
        };
        Self {
            count: self.count + next.count,
            finite: self.finite + next.finite,
            min: self.min.min(next.min),
            max: self.max.max(next.max),
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

    pub(super) fn into_stats(self, dtype: DType) -> Stats {
        let some = self.finite > 0;
        let range = some.then(|| match (self.wide, dtype) {
            (Some((min, max)), _) => (Number::Int(min), Number::Int(max)),
            (None, DType::C64 | DType::C128) => (Number::Float(self.min), Number::Float(self.max)),
            (None, dtype) if dtype.is_float() => (Number::Float(self.min), Number::Float(self.max)),
            _ => (Number::Int(exact(self.min)), Number::Int(exact(self.max))),
        });
        // The mean of equal values can be a rounding off; what it must be is known.
        let (mean, std) = match self.min == self.max {
            true => (self.min, 0.0),
            false => (self.mean, (self.squares / as_f64(self.finite)).sqrt()),
        };
        Stats {
            dtype,
            count: self.count,
            finite: self.finite,
            min: range.map(|r| r.0),
            max: range.map(|r| r.1),
            mean: Some(mean).filter(|x| some && x.is_finite()),
            std: Some(std).filter(|x| some && x.is_finite()),
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

#[allow(clippy::cast_precision_loss)] // a count of elements
fn as_f64(n: u64) -> f64 {
    n as f64
}

/// An integer of up to 32 bits that went through `f64`.
#[allow(clippy::cast_possible_truncation)]
fn exact(x: f64) -> i128 {
    x as i128
}

/// The smallest normal number of a float type; 0 for types that have no subnormal ones.
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

/// The range of 64-bit integers, which `f64` would round.
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
