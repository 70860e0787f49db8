//! Comparators, and blocks of scores.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, s};
use std::ops::Range;

/// Smallest squared distance of `l2`: that of upstream.
const LEAST_SQUARE: f32 = 1e-30;
/// Number of partial sums of a norm.
const LANES: usize = 16;
/// Number of pairs scored together.
const PAIRS: usize = 16;

/// Comparator of two rows. Higher scores are closer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparator {
    /// Dot product.
    Dot,
    /// Cosine of the angle.
    Cos,
    /// Negative Euclidean distance.
    L2,
    /// Negative square of the Euclidean distance.
    SquaredL2,
}

impl Comparator {
    /// All comparators.
    pub const ALL: [Self; 4] = [Self::Dot, Self::Cos, Self::L2, Self::SquaredL2];

    /// Returns the name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dot => "dot",
            Self::Cos => "cos",
            Self::L2 => "l2",
            Self::SquaredL2 => "squared_l2",
        }
    }

    /// Returns the comparator of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }
}

/// Comparator with the meaning of columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scorer {
    pub(crate) comparator: Comparator,
    /// True where the first column is a bias: added to scores, and not compared.
    pub(crate) bias: bool,
}

/// Rows prepared for comparison.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    columns: usize,
    values: Vec<f32>,
    /// Squared norm of each row, for distances.
    squares: Vec<f32>,
}

impl Prepared {
    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.values.len() / self.columns.max(1)
    }

    fn rows(&self, rows: Range<usize>, bias: bool) -> ArrayView2<'_, f32> {
        let columns = self.columns;
        let part = self.values.get(rows.start * columns..rows.end * columns).unwrap_or_default();
        matrix(part, columns).slice_move(s![.., usize::from(bias)..])
    }
}

impl Scorer {
    /// Prepares rows of `columns` elements.
    pub(crate) fn prepare(&self, mut values: Vec<f32>, columns: usize) -> Prepared {
        let skipped = usize::from(self.bias);
        let mut squares = Vec::new();
        match self.comparator {
            Comparator::Dot => {}
            Comparator::Cos => {
                for row in values.chunks_exact_mut(columns.max(1)) {
                    let row = row.get_mut(skipped..).unwrap_or_default();
                    // The reciprocal first, as upstream: a row of zeros becomes NaN.
                    let factor = square(row).sqrt().recip();
                    row.iter_mut().for_each(|x| *x *= factor);
                }
            }
            Comparator::L2 | Comparator::SquaredL2 => {
                let rows = values.chunks_exact(columns.max(1));
                squares = rows.map(|row| square(row.get(skipped..).unwrap_or_default())).collect();
            }
        }
        Prepared { columns, values, squares }
    }

    /// Scores each of `queries` with each of `candidates`: one row a query.
    pub(crate) fn scores(
        &self,
        (queries, of_queries): (&Prepared, Range<usize>),
        (candidates, of_candidates): (&Prepared, Range<usize>),
        out: &mut Vec<f32>,
    ) {
        let width = of_candidates.len();
        // Every element is overwritten.
        out.resize(of_queries.len() * width, 0.0);
        let left = queries.rows(of_queries.clone(), self.bias);
        let right = candidates.rows(of_candidates.clone(), self.bias);
        let shape = (of_queries.len(), width);
        let Ok(mut target) = ArrayViewMut2::from_shape(shape, out) else { return };
        general_mat_mul(1.0, &left, &right.t(), 0.0, &mut target);
        if width == 0 || (!self.bias && matches!(self.comparator, Comparator::Dot | Comparator::Cos)) {
            return;
        }
        let squares = candidates.squares.get(of_candidates.clone()).unwrap_or_default();
        let biases = self.biases(candidates, of_candidates);
        let own_biases = self.biases(queries, of_queries.clone());
        for (place, row) in out.chunks_exact_mut(width).enumerate() {
            let own = queries.squares.get(of_queries.start + place).copied().unwrap_or_default();
            match self.comparator {
                Comparator::Dot | Comparator::Cos => {}
                Comparator::L2 => {
                    for (score, square) in row.iter_mut().zip(squares) {
                        *score = -((square - 2.0 * *score) + own).max(LEAST_SQUARE).sqrt();
                    }
                }
                Comparator::SquaredL2 => {
                    for (score, square) in row.iter_mut().zip(squares) {
                        *score = -((square - 2.0 * *score) + own);
                    }
                }
            }
            if let Some(own) = own_biases.get(place) {
                row.iter_mut().zip(&biases).for_each(|(score, bias)| *score = (*score + own) + bias);
            }
        }
    }

    fn biases(&self, of: &Prepared, rows: Range<usize>) -> Vec<f32> {
        if !self.bias {
            return Vec::new();
        }
        rows.map(|row| of.values.get(row * of.columns).copied().unwrap_or_default()).collect()
    }

    /// Scores each of `queries` with the candidate at the same place, with the arithmetic of [`scores`](Self::scores).
    pub(crate) fn pairs(&self, queries: &Prepared, candidates: &Prepared) -> Vec<f32> {
        let count = queries.len().min(candidates.len());
        let (mut scores, mut block) = (Vec::with_capacity(count), Vec::new());
        for start in (0..count).step_by(PAIRS) {
            let rows = start..count.min(start + PAIRS);
            self.scores((queries, rows.clone()), (candidates, rows.clone()), &mut block);
            scores.extend(block.iter().step_by(rows.len() + 1));
        }
        scores
    }
}

/// Returns the rows of `values` as a matrix.
pub(super) fn matrix(values: &[f32], columns: usize) -> ArrayView2<'_, f32> {
    let shape = (values.len() / columns.max(1), columns);
    // The length is a multiple of the columns: only whole rows are made.
    ArrayView2::from_shape(shape, values).unwrap_or_else(|_| ArrayView2::from(&[] as &[[f32; 0]; 0]))
}

/// Returns the sum of squares.
pub(super) fn square(row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut sums = [0f32; LANES];
    for chunk in chunks {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += x * x;
        }
    }
    rest.iter().map(|x| x * x).sum::<f32>() + sums.iter().sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers without a pattern.
    fn numbers(count: usize) -> Vec<f32> {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from(u16::try_from(state >> 16).unwrap()) / 32768.0 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    fn direct(scorer: Scorer, a: &[f32], b: &[f32]) -> f64 {
        let skip = usize::from(scorer.bias);
        let wide = |row: &[f32]| row[skip..].iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
        let (left, right) = (wide(a), wide(b));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let apart: Vec<f64> = left.iter().zip(&right).map(|(a, b)| a - b).collect();
        let score = match scorer.comparator {
            Comparator::Dot => dot(&left, &right),
            Comparator::Cos => dot(&left, &right) / (dot(&left, &left) * dot(&right, &right)).sqrt(),
            Comparator::L2 => -dot(&apart, &apart).sqrt(),
            Comparator::SquaredL2 => -dot(&apart, &apart),
        };
        score + if scorer.bias { f64::from(a[0]) + f64::from(b[0]) } else { 0.0 }
    }

    #[test]
    fn scores_are_those_of_the_definition() {
        for (columns, rows) in [(1, 3), (2, 5), (7, 40), (33, 20)] {
            let (a, b) = (numbers(rows * columns), numbers(2 * rows * columns).split_off(rows * columns));
            for comparator in Comparator::ALL {
                for bias in [false, true] {
                    let scorer = Scorer { comparator, bias };
                    if bias && columns == 1 && comparator == Comparator::Cos {
                        continue;
                    }
                    let (left, right) =
                        (scorer.prepare(a.clone(), columns), scorer.prepare(b.clone(), columns));
                    let mut out = Vec::new();
                    scorer.scores((&left, 0..rows), (&right, 0..rows), &mut out);
                    let pairs = scorer.pairs(&left, &right);
                    for (i, one) in a.chunks(columns).enumerate() {
                        for (j, other) in b.chunks(columns).enumerate() {
                            let (score, truth) = (out[i * rows + j], direct(scorer, one, other));
                            let near = (f64::from(score) - truth).abs() < 1e-4 * (1.0 + truth.abs());
                            assert!(near, "{comparator:?} {bias} {columns}: {score} {truth}");
                        }
                        assert_eq!(pairs[i].to_bits(), out[i * rows + i].to_bits());
                    }
                }
            }
        }
    }

    #[test]
    fn equal_rows_have_equal_scores_at_every_place() {
        let columns = 37;
        let row = numbers(columns);
        let other = numbers(2 * columns).split_off(columns);
        for comparator in Comparator::ALL {
            let scorer = Scorer { comparator, bias: false };
            let all = scorer.prepare(row.repeat(101), columns);
            let query = scorer.prepare(other.repeat(7), columns);
            let (mut out, mut one) = (Vec::new(), Vec::new());
            scorer.scores((&query, 0..7), (&all, 0..101), &mut out);
            scorer.scores((&query, 3..4), (&all, 50..51), &mut one);
            assert!(out.iter().all(|score| score.to_bits() == one[0].to_bits()), "{comparator:?}");
        }
    }

    #[test]
    fn comparators_have_the_names_of_configurations() {
        for comparator in Comparator::ALL {
            assert_eq!(Comparator::from_name(comparator.name()), Some(comparator));
        }
        assert_eq!(Comparator::from_name("cosine"), None);
    }
}
