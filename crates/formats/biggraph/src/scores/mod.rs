//! Scores of pairs of rows, as the trained model computes them.
//!
//! ```text
//! row + global embedding -> operator of the relation -> preparation (cos: divided by the norm) -> comparator
//! ```
//!
//! Rows are compared in blocks, as products of `f32` matrices. A score depends on its two rows alone, not on their places
//! in a block, so equal rows have equal scores.

mod blocks;
mod comparator;
mod model;
mod operator;
mod table;

pub use comparator::Comparator;

pub(crate) use blocks::{Workers, each_block};
pub(crate) use comparator::{Prepared, Scorer};
pub(crate) use model::{Model, relation_names, trained_space};
pub(crate) use operator::Operator;
pub(crate) use table::Table;
