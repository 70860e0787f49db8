//! Random rows.

use super::quantile::normal_quantile;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Source, check_range};

/// Period of upstream's repeated random numbers: a prime.
pub(crate) const REPEAT_OF_UPSTREAM: u64 = 1_000_003;

/// Repetition of the numbers of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Each number is drawn independently.
    Independent,
    /// A table of at least this many numbers repeats after them, in row-major order, like upstream's with
    /// [`REPEAT_OF_UPSTREAM`].
    Block(u64),
}

/// Rows of independent normal numbers with mean 0: binary32, little-endian, row by row.
///
/// Number k of a table depends only on the seed and k, and has the same bits on every machine. It is
/// `scale` times the quantile (see AS 241) of one of 2^52 equally likely probabilities, so it is
/// within 8.3 times `scale`.
#[derive(Debug, Clone)]
pub(crate) struct NormalSource {
    len: u64,
    key: u64,
    scale: f64,
    repeat: Option<u64>,
}

impl NormalSource {
    /// Table of `rows` by `columns` numbers with standard deviation `scale`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`]: `scale` if negative, not finite or too large for binary32;
    /// `shape-overflow` if the table exceeds 2^64 bytes; `repeat` for a period of 0.
    pub(crate) fn new(rows: u64, columns: u64, scale: f64, seed: u64, repeat: Repeat) -> Result<Self> {
        if !(scale >= 0.0 && scale * 9.0 <= f64::from(f32::MAX)) {
            return Err(
                Error::usage("scale", "the scale of random rows must be from 0 to about 3e37").found(scale)
            );
        }
        let count = rows.checked_mul(columns);
        let len = count.and_then(|count| count.checked_mul(4)).ok_or_else(|| {
            Error::usage("shape-overflow", "the byte size of the table overflows 64 bits")
                .found(format_args!("{rows} rows of {columns}"))
        })?;
        let repeat = match repeat {
            Repeat::Independent => None,
            Repeat::Block(0) => return Err(Error::usage("repeat", "the repeat period is 0")),
            Repeat::Block(period) => Some(period).filter(|&period| len / 4 >= period),
        };
        // Scatter the seed first: otherwise tables of neighboring seeds would be shifts of each other.
        Ok(Self { len, key: scatter(seed ^ 0x5851_f42d_4c95_7f2d), scale, repeat })
    }

    /// Number `k` of the table.
    fn number(&self, k: u64) -> [u8; 4] {
        let k = self.repeat.map_or(k, |period| k % period);
        let bits = scatter(self.key.wrapping_add(k.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        // 52 bits and a half: exact, never 0 or 1, and symmetric.
        let p = ((bits >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64);
        // Rounded to nearest; in range by the check of the scale.
        #[allow(clippy::cast_possible_truncation)]
        let x = (normal_quantile(p) * self.scale) as f32;
        x.to_le_bytes()
    }
}

/// Seed for the rows drawn for a table with `rows` rows of the type `entity`. Other types,
/// and the same table with more rows, get other numbers from one `seed`; the same seed,
/// type and row count yield the same numbers on every machine.
pub(crate) fn seed_of_table(seed: u64, entity: &str, rows: u64) -> u64 {
    // FNV-1a. Each name is followed by eight bytes, so the combination is unambiguous.
    let bytes = entity.bytes().chain(rows.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // Scatter the seed before the hash joins it: otherwise neighboring seeds and names could cancel out.
    scatter(scatter(seed) ^ hash)
}

/// Finalizer of SplitMix64: every bit of the result depends on every bit of `x`.
fn scatter(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Source for NormalSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let mut k = offset / 4;
        let mut rest = buffer;
        // A read may begin inside a number.
        let within = weighbridge_io::source::to_usize(offset % 4)?;
        if within > 0 {
            let number = self.number(k);
            let head = number.get(within..).unwrap_or_default();
            let take = head.len().min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&head[..take]);
            rest = later;
            k += 1;
        }
        let mut numbers = rest.chunks_exact_mut(4);
        for place in numbers.by_ref() {
            place.copy_from_slice(&self.number(k));
            k += 1;
        }
        let tail = numbers.into_remainder();
        if !tail.is_empty() {
            tail.copy_from_slice(&self.number(k)[..tail.len()]);
        }
        Ok(())
    }

    fn label(&self) -> &str {
        "random rows"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_io::source::read_vec;

    fn numbers(source: &NormalSource, from: u64, count: u64) -> Vec<f64> {
        let bytes = read_vec(source, from * 4, count * 4).unwrap();
        bytes.chunks(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
    }

    #[test]
    fn numbers_are_normally_distributed() {
        for seed in [0, 1, u64::MAX] {
            let n = 1_000_000;
            let source = NormalSource::new(n, 1, 0.001, seed, Repeat::Independent).unwrap();
            let mut x: Vec<f64> = numbers(&source, 0, n).iter().map(|x| x / 0.001).collect();
            let moment = |p: i32| x.iter().map(|x| x.powi(p)).sum::<f64>() / n as f64;
            // Five standard errors of each.
            assert!(moment(1).abs() < 5.0 * 1e-3);
            assert!((moment(2) - 1.0).abs() < 5.0 * 1.42e-3);
            assert!(moment(3).abs() < 5.0 * 3.9e-3);
            assert!((moment(4) - 3.0).abs() < 5.0 * 9.8e-3);
            // Neighbors, and numbers of neighboring seeds, are uncorrelated.
            let other = NormalSource::new(n, 1, 1.0, seed.wrapping_add(1), Repeat::Independent).unwrap();
            let y = numbers(&other, 0, n);
            let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / n as f64;
            assert!(product(&x, &x[1..]).abs() < 5e-3 && product(&x, &y).abs() < 5e-3);
            assert!(product(&x, &y[1..]).abs() < 5e-3);
            // Kolmogorov-Smirnov: the k-th smallest is near the quantile of its rank.
            x.sort_by(f64::total_cmp);
            let wanted =
                [(100_000, -1.281_552), (500_000, 0.0), (841_345, 1.0), (977_250, 2.0), (999_000, 3.0902)];
            for (k, quantile) in wanted {
                assert!((x[k] - quantile).abs() < 0.06, "{k}: {}", x[k]);
            }
            assert!(x[0] < -4.2 && x[0] > -7.0 && x[x.len() - 1] > 4.2 && x[x.len() - 1] < 7.0);
        }
    }

    #[test]
    fn partial_reads_match_the_whole() {
        let source = NormalSource::new(10, 7, 1.0, 3, Repeat::Block(50)).unwrap();
        let whole = read_vec(&source, 0, 280).unwrap();
        for start in 0..280u64 {
            for len in [0, 1, 2, 3, 5, 8, 40] {
                if start + len <= 280 {
                    let part = read_vec(&source, start, len).unwrap();
                    assert_eq!(part, &whole[usize::try_from(start).unwrap()..][..part.len()]);
                }
            }
        }
        assert_eq!(whole[..80], whole[200..]);
        assert_eq!(source.read_at(277, &mut [0; 4]).unwrap_err().code().as_str(), "past-the-end");
    }

    #[test]
    fn large_tables_repeat_like_upstream_on_request() {
        let period = REPEAT_OF_UPSTREAM;
        let of = |rows, repeat| NormalSource::new(rows, 1, 0.5, 9, repeat).unwrap();
        let block = of(3 * period, Repeat::Block(period));
        assert_eq!(numbers(&block, 5, 100), numbers(&block, 5 + 2 * period, 100));
        let free = of(3 * period, Repeat::Independent);
        assert_eq!(numbers(&block, 5, 100), numbers(&free, 5, 100));
        assert_ne!(numbers(&free, 5, 100), numbers(&free, 5 + period, 100));
        // The last numbers cost as little as the first.
        let far = NormalSource::new(1 << 50, 100, 1.0, 0, Repeat::Independent).unwrap();
        assert!(numbers(&far, far.len() / 4 - 10, 10).iter().all(|x| x.is_finite()));
    }

    /// Values from Python, with the same generator and `statistics.NormalDist().inv_cdf`.
    #[test]
    fn numbers_have_fixed_bits() {
        let source = NormalSource::new(100_000, 1, 1.0, 42, Repeat::Independent).unwrap();
        let bits = |k: u64| u32::from_le_bytes(source.number(k));
        assert_eq!(
            [0, 1, 2, 3, 99_999].map(bits),
            [0xbf52_e569, 0xbfd6_a23d, 0x3f96_57c1, 0x3f84_d1e4, 0x3e83_b730]
        );
    }

    #[test]
    fn rejects_invalid_parameters() {
        for scale in [-1.0, f64::NAN, f64::INFINITY, 1e38] {
            assert!(NormalSource::new(1, 1, scale, 0, Repeat::Independent).is_err());
        }
        assert!(NormalSource::new(u64::MAX, 2, 1.0, 0, Repeat::Independent).is_err());
        assert!(NormalSource::new(1, 1, 1.0, 0, Repeat::Block(0)).is_err());
        assert!(NormalSource::new(0, 5, 1.0, 0, Repeat::Independent).unwrap().is_empty());
    }
}
