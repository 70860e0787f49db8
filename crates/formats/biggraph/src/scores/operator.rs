//! Operators of relations, applied to rows.

use super::comparator::matrix;
use ndarray::ArrayViewMut2;
use ndarray::linalg::general_mat_mul;

/// Operator of a relation with its trained parameters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operator {
    /// Product with a vector, element by element.
    Diagonal(Vec<f32>),
    /// Sum with a vector.
    Translation(Vec<f32>),
    /// Product with a square matrix, row-major.
    Linear(Vec<f32>),
    /// Product with a square matrix, then sum with a vector.
    Affine(Vec<f32>, Vec<f32>),
    /// Product with a complex vector; the first half of a row is real, the second imaginary.
    ComplexDiagonal { real: Vec<f32>, imag: Vec<f32> },
}

impl Operator {
    /// Applies the operator to rows of `columns` elements.
    pub(crate) fn apply(&self, rows: &mut [f32], columns: usize) {
        let columns = columns.max(1);
        match self {
            Self::Diagonal(factors) => {
                for row in rows.chunks_exact_mut(columns) {
                    row.iter_mut().zip(factors).for_each(|(x, factor)| *x *= factor);
                }
            }
            Self::Translation(addends) => add(rows, addends, columns),
            Self::Linear(factors) => multiply(rows, factors, columns),
            Self::Affine(factors, addends) => {
                multiply(rows, factors, columns);
                add(rows, addends, columns);
            }
            Self::ComplexDiagonal { real, imag } => {
                for row in rows.chunks_exact_mut(columns) {
                    let (a, b) = row.split_at_mut(columns / 2);
                    for ((a, b), (c, d)) in a.iter_mut().zip(b).zip(real.iter().zip(imag)) {
                        (*a, *b) = (*a * c - *b * d, *a * d + *b * c);
                    }
                }
            }
        }
    }
}

fn add(rows: &mut [f32], addends: &[f32], columns: usize) {
    for row in rows.chunks_exact_mut(columns) {
        row.iter_mut().zip(addends).for_each(|(x, addend)| *x += addend);
    }
}

/// Replaces each row by its product with the matrix.
fn multiply(rows: &mut [f32], factors: &[f32], columns: usize) {
    let before = rows.to_vec();
    let Ok(mut target) = ArrayViewMut2::from_shape((rows.len() / columns, columns), rows) else { return };
    general_mat_mul(1.0, &matrix(&before, columns), &matrix(factors, columns).t(), 0.0, &mut target);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_those_of_upstream() {
        let applied = |operator: Operator| {
            let mut rows = vec![1.0, 2.0, 3.0, 4.0];
            operator.apply(&mut rows, 2);
            rows
        };
        let matrix = vec![1.0, 10.0, 100.0, 1000.0];
        assert_eq!(applied(Operator::Diagonal(vec![2.0, 3.0])), [2.0, 6.0, 6.0, 12.0]);
        assert_eq!(applied(Operator::Translation(vec![2.0, 3.0])), [3.0, 5.0, 5.0, 7.0]);
        // Row by column: M[i][j] times v[j].
        assert_eq!(applied(Operator::Linear(matrix.clone())), [21.0, 2100.0, 43.0, 4300.0]);
        assert_eq!(applied(Operator::Affine(matrix, vec![1.0, 2.0])), [22.0, 2102.0, 44.0, 4302.0]);
        // (1 + 2i)(3 + 4i) = -5 + 10i; (3 + 4i)(3 + 4i) = -7 + 24i.
        let complex = Operator::ComplexDiagonal { real: vec![3.0], imag: vec![4.0] };
        assert_eq!(applied(complex), [-5.0, 10.0, -7.0, 24.0]);
    }
}
