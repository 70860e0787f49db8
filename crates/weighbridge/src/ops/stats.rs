//! Statistics of the values of a tensor: range, mean and standard deviation, oddities, a histogram.
//!
//! The tensor is read in blocks, in storage order, so nothing is transposed and memory stays bounded. It is read once for the
//! moments, and a second time for the histogram, whose bins need the range. Blocks have one size and are merged in order: the
//! result does not depend on the number of threads.

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

/// Block size in bytes.
const BLOCK: u64 = 4 << 20;
/// Maximum number of bins of a histogram.
const MAX_BINS: usize = 10_000;

/// Options of [`stats`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatsOptions {
    /// Number of bins of the histogram, at most 10,000. With 0 there is none, and the tensor is read once.
    pub bins: usize,
    /// Number of threads; 0 for one per processor. Sequential sources are read by one thread.
    pub threads: usize,
}

impl Default for StatsOptions {
    fn default() -> Self {
        Self { bins: 20, threads: 0 }
    }
}

/// Value of a tensor: exact for integers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Value of an integer or boolean tensor.
    Int(i128),
    /// Value of a float tensor, or the modulus of a complex number.
    Float(f64),
}

impl Number {
    /// Returns the value, rounded for integers above 2^53.
    #[allow(clippy::cast_precision_loss)]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Int(i) => i as f64,
            Self::Float(x) => x,
        }
    }
    /// Returns a JSON number.
    pub fn to_json(self) -> Json {
        match self {
            Self::Int(i) => i64::try_from(i).map_or_else(|_| json!(u64::try_from(i).ok()), |i| json!(i)),
            Self::Float(x) => number_json(x),
        }
    }
}

/// Statistics of one tensor. Booleans count as 0 and 1, complex numbers as their modulus. `min`, `max`, `mean`, `std` and the
/// histogram cover only the finite values.
#[derive(Debug, Clone, PartialEq)]
pub struct Stats {
    /// The element type.
    pub dtype: DType,
    /// Number of elements.
    pub count: u64,
    /// Number of elements that are neither NaN nor infinite.
    pub finite: u64,
    /// The smallest finite value, if there is one.
    pub min: Option<Number>,
    /// The largest finite value, if there is one.
    pub max: Option<Number>,
    /// The mean; `None` without finite values.
    pub mean: Option<f64>,
    /// The population standard deviation (as in numpy); `None` as for `mean`.
    pub std: Option<f64>,
    /// Elements that are 0 or -0.
    pub zeros: u64,
    /// Elements that are NaN.
    pub nan: u64,
    /// Elements that are +infinity.
    pub pos_inf: u64,
    /// Elements that are -infinity.
    pub neg_inf: u64,
    /// Elements of a float type that are not zero but below its smallest normal number. Complex numbers count by their modulus.
    pub subnormal: u64,
    /// True where there are elements, and all have the same bits.
    pub all_equal: bool,
    /// The distribution of the finite values; `None` without finite values, or unless requested.
    pub histogram: Option<Histogram>,
}

/// Reads `entry` and computes the statistics of its values.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// use weighbridge::ops::stats::{StatsOptions, stats};
///
/// let model = weighbridge::open(&path)?;
/// let found = stats(model.tensor("w1")?.entry(), &StatsOptions::default())?;
/// assert_eq!((found.count, found.nan), (16, 0));
/// println!("mean {:?}, standard deviation {:?}", found.mean, found.std);
/// for line in found.histogram_lines(60) {
///     println!("{line}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Kind::Unsupported`] for packed types, [`crate::Kind::Usage`] for too many bins, and errors of the sources.
pub fn stats(entry: &TensorEntry, options: &StatsOptions) -> Result<Stats> {
    stats_by(entry, options, BLOCK)
}

/// Computes [`stats`] in blocks of `block` bytes.
fn stats_by(entry: &TensorEntry, options: &StatsOptions, block: u64) -> Result<Stats> {
    entry.verify_tensor()?;
    let dtype = entry.dtype();
    if dtype.size().is_none() {
        return Err(Error::unsupported(
            "packed-values",
            format!("elements of type {dtype} are packed into shared bytes and have no statistics"),
        )
        .on_tensor(entry.name()));
    }
    if options.bins > MAX_BINS {
        return Err(Error::usage("too-many-bins", "too many histogram bins")
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
    /// Returns all fields; `histogram` as `{"min", "max", "counts"}`. Missing values are `null`.
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

    /// Returns the histogram as text; see [`Histogram::lines`]. Empty where there is none.
    pub fn histogram_lines(&self, width: usize) -> Vec<String> {
        self.histogram.as_ref().map(|h| h.lines(width)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
