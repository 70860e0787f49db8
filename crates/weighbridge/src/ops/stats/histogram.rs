//! Histogram of values over their range.

use super::{loops, number_json};
use serde_json::{Value as Json, json};

/// Number of values binned at once.
const STEP: usize = 512;

/// Counts of values in bins of equal width. A bin includes its lower edge and excludes its upper one, except the last, which
/// includes both: as in numpy, over the values as `f64`.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// The lower edge of the first bin: the smallest value.
    pub min: f64,
    /// The upper edge of the last bin: the largest value.
    pub max: f64,
    /// Number of values in each bin. One bin only where all values are equal.
    pub counts: Vec<u64>,
    /// `bins / (max - min)`, or half of it; then values are halved, too.
    per_unit: f64,
    scale: f64,
    edges: Vec<f64>,
}

#[allow(clippy::cast_precision_loss)] // at most 10,000 bins
fn as_f64(n: usize) -> f64 {
    n as f64
}

impl Histogram {
    /// Makes an empty histogram of values from `min` to `max`, which are finite and in order.
    pub(super) fn new(min: f64, max: f64, bins: usize) -> Self {
        let bins = if min < max { bins.max(1) } else { 1 };
        // A range wider than f64 is computed at half its size.
        let scale = if (max - min).is_finite() { 1.0 } else { 0.5 };
        let width = max * scale - min * scale;
        let step = width / as_f64(bins);
        let edge = |i: usize| if i == bins { max } else { (min * scale + as_f64(i) * step) / scale };
        let edges = (0..=bins).map(edge).collect();
        // Infinite for a range below the normal numbers; `bin` divides then.
        let per_unit = as_f64(bins) / width;
        Self { min, max, counts: vec![0; bins], per_unit, scale, edges }
    }

    /// Returns the edges of the bins, one more than there are bins.
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// Returns the bin of `x`, which is between `min` and `max`.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, then bounded
    fn bin(&self, x: f64) -> usize {
        let last = self.counts.len() - 1;
        if last == 0 {
            return 0;
        }
        let distance = x * self.scale - self.min * self.scale;
        let place = if self.per_unit.is_finite() {
            distance * self.per_unit
        } else {
            distance / (self.max - self.min) * as_f64(last + 1)
        };
        let guess = (place as usize).min(last);
        // The product is rounded, so the edges decide.
        if self.edges[guess] <= x && (guess == last || x < self.edges[guess + 1]) {
            return guess;
        }
        self.edges.partition_point(|edge| *edge <= x).saturating_sub(1).min(last)
    }

    /// Counts the finite `values`, which are between `min` and `max`, into `counts`, bin by bin.
    pub(super) fn count(&self, values: &[f64], counts: &mut [u64]) {
        // Maximum effect of rounding on a position or an edge, in bins: closer to an edge, the edge itself decides.
        let slack = 1e-9 + self.min.abs().max(self.max.abs()) * self.per_unit * 4.0 * f64::EPSILON;
        let direct = self.counts.len() > 1 && self.scale == 1.0 && slack.is_finite();
        let mut bins = [loops::UNSURE; STEP];
        for values in values.chunks(STEP) {
            let bins = &mut bins[..values.len()];
            if direct {
                loops::bins(values, self.min, self.per_unit, slack, bins);
            }
            for (&bin, &x) in bins.iter().zip(values) {
                if let Some(count) = counts.get_mut(bin as usize) {
                    *count += 1;
                } else if x.is_finite() {
                    counts[self.bin(x)] += 1;
                }
            }
        }
    }

    /// Adds these counts, bin by bin.
    pub(super) fn plus(mut self, counts: &[u64]) -> Self {
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            *sum += count;
        }
        self
    }

    /// Returns `{"min", "max", "counts"}`.
    pub fn to_json(&self) -> Json {
        json!({ "min": number_json(self.min), "max": number_json(self.max), "counts": self.counts })
    }

    /// Returns one line per bin: its lower edge, a bar in eighths of a column, the count. The longest bar fills a line of `width`
    /// columns; at least one column is reserved for bars.
    pub fn lines(&self, width: usize) -> Vec<String> {
        let labels = labels(&self.edges[..self.counts.len()]);
        let numbers: Vec<String> = self.counts.iter().map(u64::to_string).collect();
        let widest = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or(0);
        let (left, right) = (widest(&labels), widest(&numbers));
        let columns = width.saturating_sub(left + right + 2).max(1);
        let most = self.counts.iter().copied().max().unwrap_or(0).max(1);
        self.counts
            .iter()
            .zip(labels.iter().zip(&numbers))
            .map(|(&count, (label, number))| {
                let bar = bar(count, most, columns);
                format!("{label:>left$} {bar:<columns$} {number:>right$}")
            })
            .collect()
    }

    /// Returns the histogram in one line: one column per bin, in eighths of the line height. An empty bin is a space; a bin with
    /// values is always visible.
    pub fn spark(&self) -> String {
        const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let most = self.counts.iter().copied().max().unwrap_or(0).max(1);
        self.counts.iter().map(|&count| HEIGHTS[eighths(count, most, 1)]).collect()
    }
}

/// Returns a bar for `count`, where `most` fills `columns` columns.
fn bar(count: u64, most: u64, columns: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = eighths(count, most, columns);
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

/// Returns eighths of a column, rounded; at least one where `count` is not 0.
fn eighths(count: u64, most: u64, columns: usize) -> usize {
    let (full, most) = (columns as u128 * 8, u128::from(most));
    let share = (u128::from(count) * full + most / 2) / most;
    usize::try_from(share).unwrap_or(usize::MAX).max(usize::from(count > 0))
}

/// Returns short numbers: four significant digits, or as many as distinguish neighbors.
fn labels(edges: &[f64]) -> Vec<String> {
    const MAX_DIGITS: usize = 17;
    let all = |digits: usize| edges.iter().map(|x| short(*x, digits)).collect::<Vec<_>>();
    let distinct = |labels: &Vec<String>| {
        labels.windows(2).zip(edges.windows(2)).all(|(text, x)| text[0] != text[1] || x[0] == x[1])
    };
    (4..MAX_DIGITS).map(all).find(distinct).unwrap_or_else(|| all(MAX_DIGITS))
}

/// Returns a number in few columns.
fn short(x: f64, digits: usize) -> String {
    if x == 0.0 {
        return "0".into();
    }
    if (1e-3..1e5).contains(&x.abs()) {
        let whole = format!("{:.0}", x.abs().trunc()).len();
        let text = format!("{x:.*}", if x.abs() < 1.0 { digits } else { digits.saturating_sub(whole) });
        return match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
        };
    }
    format!("{x:.*e}", digits.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(min: f64, max: f64, counts: &[u64]) -> Histogram {
        Histogram::new(min, max, counts.len()).plus(counts)
    }

    #[test]
    fn every_value_is_between_the_edges_of_its_bin() {
        let ranges = [
            (0.0, 1.0),
            (-1.0, 1.0),
            (0.1, 0.3),
            (-f64::MAX, f64::MAX),
            (5e-324, 100.0 * 5e-324),
            (1.0, 1.0 + f64::EPSILON),
            (-1e-310, 1e-310),
            (1e300, 1.1e300),
        ];
        for (min, max) in ranges {
            for bins in [1, 2, 3, 20, 1000] {
                let histogram = Histogram::new(min, max, bins);
                let edges = histogram.edges().to_vec();
                assert_eq!((edges[0], edges[bins], edges.len()), (min, max, bins + 1));
                assert!(edges.is_sorted());
                let inside = (0..=500).map(|i| min + (max / 500.0 - min / 500.0) * f64::from(i));
                for x in inside.chain(edges.iter().copied()).map(|x| x.clamp(min, max)) {
                    let bin = histogram.bin(x);
                    let below = if bin + 1 == bins { x <= edges[bin + 1] } else { x < edges[bin + 1] };
                    assert!(edges[bin] <= x && below, "{x:e} in {bin} of {bins}, {min:e}..{max:e}");
                }
            }
        }
    }

    #[test]
    fn equal_values_have_one_bin() {
        let histogram = Histogram::new(2.5, 2.5, 20);
        assert_eq!((histogram.counts.len(), histogram.bin(2.5)), (1, 0));
    }

    #[test]
    fn lines_of_a_width() {
        let lines = with(-1.0, 1.0, &[0, 1, 50, 100]).lines(20);
        assert_eq!(
            lines,
            ["  -1               0", "-0.5 ▏             1", "   0 █████▌       50", " 0.5 ███████████ 100"]
        );
        assert!(lines.iter().all(|line| line.chars().count() == 20));
        assert_eq!(with(0.0, 2.0, &[3, 3]).lines(0), ["0 █ 3", "1 █ 3"]);
        assert_eq!(with(0.0, 0.0, &[0]).lines(8), ["0      0"]);
    }

    #[test]
    fn a_spark() {
        assert_eq!(with(0.0, 1.0, &[0, 1, 400, 800]).spark(), " ▁▄█");
    }

    #[test]
    fn short_numbers() {
        let all =
            [0.0, -0.0, 1.0, -12.3456, 99999.0, 123456.0, 0.001, 0.00012, 1e-300, -0.03125, 1000.0, 20.0];
        let texts: Vec<String> = all.iter().map(|x| short(*x, 4)).collect();
        assert_eq!(
            texts,
            [
                "0",
                "0",
                "1",
                "-12.35",
                "99999",
                "1.235e5",
                "0.001",
                "1.200e-4",
                "1.000e-300",
                "-0.0312",
                "1000",
                "20"
            ]
        );
    }

    #[test]
    fn labels_distinguish_neighbors() {
        assert_eq!(labels(&[1.0, 1.00002, 1.00004]), ["1", "1.00002", "1.00004"]);
        assert_eq!(labels(&[123456.0, 123456.5]), ["1.234560e5", "1.234565e5"]);
        assert_eq!(labels(&[0.25, 0.25]), ["0.25", "0.25"]);
        let close = [1.0, 1.0 + f64::EPSILON];
        assert_eq!(labels(&close), ["1", "1.0000000000000002"]);
    }
}
