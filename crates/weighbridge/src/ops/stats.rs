//! What the values of a tensor are like: range, mean and spread, oddities, a histogram.
//!
//! The tensor is read in blocks, in the order in which it is stored, so nothing is transposed and
//! memory stays bounded. It is read once for the moments, and once more for the histogram, whose
//! bins need the range. Blocks are of one size and are merged in their order: the result does not
//! depend on the number of threads.

mod histogram;
mod loops;
mod measured;
mod part;

pub use histogram::Histogram;
pub use measured::{Measured, measure, places};

use super::{number_json, parallel};
use crate::checkpoint::TensorEntry;
use crate::error::{Error, Result};
use crate::tensor::DType;
use part::{Part, Worker};
use serde_json::{Value as Json, json};

/// Bytes of one block.
const BLOCK: u64 = 4 << 20;
/// The most bins of a histogram.
const MAX_BINS: usize = 10_000;

/// What [`stats`] shall do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatsOptions {
    /// Bins of the histogram, at most 10,000. With 0 there is none, and the tensor is read once.
    pub bins: usize,
    /// Threads; 0 for one a processor. Sequential sources are read by one.
    pub threads: usize,
}

impl Default for StatsOptions {
    fn default() -> Self {
        Self { bins: 20, threads: 0 }
    }
}

/// A value of a tensor: exact for integers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Of an integer or boolean tensor.
    Int(i128),
    /// Of a float tensor, or the modulus of a complex number.
    Float(f64),
}

impl Number {
    /// The value, rounded where it is an integer above 2^53.
    #[allow(clippy::cast_precision_loss)]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(i) => i as f64,
            Self::Float(x) => x,
        }
    }
    /// A JSON number.
    pub fn to_json(self) -> Json {
        match self {
            Self::Int(i) => i64::try_from(i).map_or_else(|_| json!(u64::try_from(i).ok()), |i| json!(i)),
            Self::Float(x) => number_json(x),
        }
    }
}

/// What the values of one tensor are like. Booleans count as 0 and 1, complex numbers as their
/// modulus. `min`, `max`, `mean`, `std` and the histogram are over the finite values only.
#[derive(Debug, Clone, PartialEq)]
pub struct Stats {
    /// The type of the elements.
    pub dtype: DType,
    /// All elements.
    pub count: u64,
    /// The elements that are neither NaN nor infinite.
    pub finite: u64,
    /// The smallest finite value, if there is one.
    pub min: Option<Number>,
    /// The largest finite value, if there is one.
    pub max: Option<Number>,
    /// The mean; `None` without finite values.
    pub mean: Option<f64>,
    /// The standard deviation of the population (as numpy's); `None` as for `mean`.
    pub std: Option<f64>,
    /// Elements that are 0 or -0.
    pub zeros: u64,
    /// Elements that are not a number.
    pub nan: u64,
    /// Elements that are +infinity.
    pub pos_inf: u64,
    /// Elements that are -infinity.
    pub neg_inf: u64,
    /// Elements of a float type that are not zero but below its smallest normal number. Complex
    /// numbers are judged by their modulus.
    pub subnormal: u64,
    /// True where there are elements and all have the same bits.
    pub all_equal: bool,
    /// How the finite values are spread; `None` without finite values, or if it was not asked.
    pub histogram: Option<Histogram>,
}

/// Reads `entry` and says what its values are like.
///
/// # Errors
/// [`crate::Kind::Unsupported`] for packed types, [`crate::Kind::Usage`] for too many bins, and
/// what the sources say.
pub fn stats(entry: &TensorEntry, options: &StatsOptions) -> Result<Stats> {
    stats_by(entry, options, BLOCK)
}

/// [`stats`] in blocks of so many bytes.
fn stats_by(entry: &TensorEntry, options: &StatsOptions, block: u64) -> Result<Stats> {
    entry.verify_tensor()?;
    let dtype = entry.dtype();
    if dtype.size().is_none() {
        return Err(Error::unsupported(
            "packed-values",
            format!("elements of type {dtype} share bytes and have no statistics"),
        )
        .on_tensor(entry.name()));
    }
    if options.bins > MAX_BINS {
        return Err(Error::usage("too-many-bins", "a histogram cannot have so many bins")
            .expected(format_args!("at most {MAX_BINS}"))
            .found(options.bins));
    }
    let add = |worker: &mut Worker, number: usize, bytes: &[u8]| worker.add(dtype, number, bytes);
    let mut parts: Vec<(usize, Part)> = parallel::over_blocks(entry, block, options.threads, add)?
        .into_iter()
        .flat_map(|worker: Worker| worker.parts)
        .collect();
    parts.sort_by_key(|(number, _)| *number);
    let whole = parts.into_iter().map(|(_, part)| part).reduce(Part::merged).unwrap_or_default();
    let mut stats = whole.into_stats(dtype);
    if let (Some(min), Some(max), 1..) = (stats.min, stats.max, options.bins) {
        let empty = Histogram::new(min.to_f64(), max.to_f64(), options.bins);
        let count = |counted: &mut part::Counted, _: usize, bytes: &[u8]| counted.add(dtype, &empty, bytes);
        let counted = parallel::over_blocks(entry, block, options.threads, count)?;
        stats.histogram = Some(counted.into_iter().fold(empty.clone(), |sum, c| sum.plus(&c.counts)));
    }
    Ok(stats)
}

impl Stats {
    /// All fields; `histogram` as `{"min", "max", "counts"}`. What there is not is `null`.
    pub fn to_json(&self) -> Json {
        json!({
            "dtype": self.dtype.name(),
            "count": self.count,
            "finite": self.finite,
            "min": self.min.map(Number::to_json),
            "max": self.max.map(Number::to_json),
            "mean": self.mean.map(number_json),
            "std": self.std.map(number_json),
            "zeros": self.zeros,
            "nan": self.nan,
            "pos_inf": self.pos_inf,
            "neg_inf": self.neg_inf,
            "subnormal": self.subnormal,
            "all_equal": self.all_equal,
            "histogram": self.histogram.as_ref().map(Histogram::to_json),
        })
    }

    /// The histogram as text; see [`Histogram::lines`]. Empty where there is none.
    pub fn histogram_lines(&self, width: usize) -> Vec<String> {
        self.histogram.as_ref().map(|h| h.lines(width)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
