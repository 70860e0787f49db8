//! Random rows.

use super::quantile::normal_quantile;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{Source, check_range};

/// The period with which upstream repeats its random numbers: a prime.
pub(crate) const REPEAT_OF_UPSTREAM: u64 = 1_000_003;

/// Whether the numbers of a table repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// No: each is drawn for itself.
    Independent,
    /// A table of at least so many numbers repeats after them, row by row, as upstream's do with
    /// [`REPEAT_OF_UPSTREAM`].
    Block(u64),
}

/// Rows of independent normal numbers of mean 0: binary32, little-endian, row by row.
///
/// Number k of a table depends on the seed and on k alone, and has the same bits on every machine. It is
/// `scale` times the quantile (see AS 241) of one of 2^52 equally likely probabilities, so it lies
/// within 8.3 times `scale`.
#[derive(Debug, Clone)]
pub(crate) struct NormalSource {
    len: u64,
    key: u64,
    scale: f64,
    repeat: Option<u64>,
}

impl NormalSource {
    /// A table of `rows` by `columns` numbers with standard deviation `scale`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`]: `scale` where it is negative, not finite or too large for binary32;
    /// `shape-overflow` where the table passes 2^64 bytes; `repeat` for a period of 0.
    pub(crate) fn new(rows: u64, columns: u64, scale: f64, seed: u64, repeat: Repeat) -> Result<Self> {
        if !(scale >= 0.0 && scale * 9.0 <= f64::from(f32::MAX)) {
            return Err(Error::usage("scale", "random rows need a scale from 0 to about 3e37").found(scale));
        }
        let count = rows.checked_mul(columns);
        let len = count.and_then(|count| count.checked_mul(4)).ok_or_else(|| {
            Error::usage("shape-overflow", "the table has no length below 2^64 bytes")
                .found(format_args!("{rows} rows of {columns}"))
        })?;
        let repeat = match repeat {
            Repeat::Independent => None,
            Repeat::Block(0) => return Err(Error::usage("repeat", "numbers cannot repeat after none")),
            Repeat::Block(period) => Some(period).filter(|&period| len / 4 >= period),
        };
        // The seed is scattered first, lest the tables of neighbouring seeds be shifts of each other.
        Ok(Self { len, key: scatter(seed ^ 0x5851_f42d_4c95_7f2d), scale, repeat })
    }

    /// Number `k` of the table.
    fn number(&self, k: u64) -> [u8; 4] {
        let k = self.repeat.map_or(k, |period| k % period);
        let bits = scatter(self.key.wrapping_add(k.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        // 52 bits and a half: exact, never 0 or 1, and as far from the one as from the other.
        let p = ((bits >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64);
        // Rounded to the nearest, and in range by the rule for the scale.
        #[allow(clippy::cast_possible_truncation)]
        let x = (normal_quantile(p) * self.scale) as f32;
        x.to_le_bytes()
    }
}

/// The seed of rows that are drawn for a table which has `rows` rows of the type `entity`. Tables of
/// other types, and a table that has grown since, get other numbers from one `seed`; the same seed,
/// type and number of rows give the same ones, on every machine.
pub(crate) fn seed_of_table(seed: u64, entity: &str, rows: u64) -> u64 {
    // FNV-1a. Every name is followed by eight bytes, so no name with its rows reads as another.
    let bytes = entity.bytes().chain(rows.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // The seed is scattered before the hash joins it, lest a neighbouring seed undo a neighbouring name.
    scatter(scatter(seed) ^ hash)
}

/// The finaliser of SplitMix64: every bit of the result depends on every bit of `x`.
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
        // A read may begin within a number.
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
    fn the_numbers_are_normal() {
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
            // Neighbours, and numbers of neighbouring seeds, know nothing of each other.
            let other = NormalSource::new(n, 1, 1.0, seed.wrapping_add(1), Repeat::Independent).unwrap();
            let y = numbers(&other, 0, n);
            let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / n as f64;
            assert!(product(&x, &x[1..]).abs() < 5e-3 && product(&x, &y).abs() < 5e-3);
            assert!(product(&x, &y[1..]).abs() < 5e-3);
            // Kolmogorov and Smirnov: the k-th smallest is near the quantile of its place.
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
    fn any_range_is_that_of_the_whole() {
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
    fn large_tables_repeat_as_upstream_does_where_that_is_asked() {
        let period = REPEAT_OF_UPSTREAM;
        let of = |rows, repeat| NormalSource::new(rows, 1, 0.5, 9, repeat).unwrap();
        let block = of(3 * period, Repeat::Block(period));
        assert_eq!(numbers(&block, 5, 100), numbers(&block, 5 + 2 * period, 100));
        let free = of(3 * period, Repeat::Independent);
        assert_eq!(numbers(&block, 5, 100), numbers(&free, 5, 100));
        assert_ne!(numbers(&free, 5, 100), numbers(&free, 5 + period, 100));
        // The last numbers are far away, and cost no more.
        let far = NormalSource::new(1 << 50, 100, 1.0, 0, Repeat::Independent).unwrap();
        assert!(numbers(&far, far.len() / 4 - 10, 10).iter().all(|x| x.is_finite()));
    }

    /// Python, with the same generator and `statistics.NormalDist().inv_cdf`.
    #[test]
    fn the_bits_are_fixed() {
        let source = NormalSource::new(100_000, 1, 1.0, 42, Repeat::Independent).unwrap();
        let bits = |k: u64| u32::from_le_bytes(source.number(k));
        assert_eq!(
            [0, 1, 2, 3, 99_999].map(bits),
            [0xbf52_e569, 0xbfd6_a23d, 0x3f96_57c1, 0x3f84_d1e4, 0x3e83_b730]
        );
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        for scale in [-1.0, f64::NAN, f64::INFINITY, 1e38] {
            assert!(NormalSource::new(1, 1, scale, 0, Repeat::Independent).is_err());
        }
        assert!(NormalSource::new(u64::MAX, 2, 1.0, 0, Repeat::Independent).is_err());
        assert!(NormalSource::new(1, 1, 1.0, 0, Repeat::Block(0)).is_err());
        assert!(NormalSource::new(0, 5, 1.0, 0, Repeat::Independent).unwrap().is_empty());
    }
}
