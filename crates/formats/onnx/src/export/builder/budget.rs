//! Budget of an export: memory of the graph, and work.

use super::Builder;
use crate::export::operator::Op;
use weighbridge_core::error::{Error, Result};

/// Maximum number of dimensions of a value.
const MAX_RANK: usize = 64;
/// Memory of a node without its names, of a name, of a dimension, and of an element of a constant in bytes.
pub(super) const NODE: usize = 512;
pub(super) const NAME: usize = 256;
pub(super) const DIM: usize = 24;
pub(super) const ELEMENT: usize = 16;
/// Work for a variable that an operator names, and for two results of an operator.
const VARIABLE: usize = 64;
const PAIR: usize = 8;

impl Builder<'_> {
    /// Takes memory for a part of the graph. [`check_budget`](Self::check_budget) reports an excess.
    pub(super) fn take_memory(&mut self, bytes: usize) {
        if self.excess.is_none() && self.budget.take_memory(bytes as u64).is_err() {
            self.excess = Some(too_large("memory"));
        }
    }

    /// Takes work for bytes that are computed. [`check_budget`](Self::check_budget) reports an excess.
    pub(super) fn take_work(&mut self, bytes: usize) {
        if self.excess.is_none() && self.budget.take_work(bytes as u64).is_err() {
            self.excess = Some(too_large("work"));
        }
    }

    /// Takes work for variables that operators name.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] if the budget of the export is exceeded.
    pub(in super::super) fn take_variables(&mut self, count: usize) -> Result<()> {
        self.take_work(count.saturating_add(1).saturating_mul(VARIABLE));
        self.check_budget()
    }

    /// Takes work for an operator, before its translation. Each result is compared with the others when it is assigned.
    ///
    /// # Errors
    /// As [`take_variables`](Self::take_variables).
    pub(in super::super) fn take_operator(&mut self, op: &Op<'_>) -> Result<()> {
        let count = |slots: &[(&str, Vec<&str>)]| slots.iter().map(|(_, names)| names.len()).sum::<usize>();
        let (inputs, outputs) = (count(&op.inputs), count(&op.outputs));
        self.take_work(outputs.saturating_mul(outputs).saturating_mul(PAIR));
        self.take_variables(inputs.saturating_add(outputs))
    }

    /// Takes memory for the results of an operator that is translated.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] if the budget of the export is exceeded, or a result has too many dimensions.
    pub(in super::super) fn take_results(&mut self, op: &Op<'_>) -> Result<()> {
        for name in op.outputs.iter().flat_map(|(_, names)| names) {
            let found = self.scopes.iter().rev().find_map(|scope| scope.values.get(*name));
            let Some(value) = found else { continue };
            check_rank(value.rank().unwrap_or(0))?;
            let elements = value.constant.as_ref().map_or(0, |constant| constant.len());
            self.take_memory(elements.saturating_mul(ELEMENT));
        }
        self.check_budget()
    }

    /// Returns the excess of the budget, if there is one.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] if the budget of the export is exceeded.
    pub(in super::super) fn check_budget(&mut self) -> Result<()> {
        self.excess.take().map_or(Ok(()), Err)
    }
}

/// Rejects values with more than [`MAX_RANK`] dimensions.
///
/// # Errors
/// [`weighbridge_core::Kind::Limit`].
pub(in super::super) fn check_rank(rank: usize) -> Result<()> {
    if rank <= MAX_RANK {
        return Ok(());
    }
    Err(Error::limit("limit", "a value of the program has too many dimensions")
        .expected(format_args!("at most {MAX_RANK}"))
        .found(rank)
        .hint("this limit is fixed"))
}

fn too_large(budget: &str) -> Error {
    let message = format!("the export exceeds the {budget} budget for a program of this size");
    Error::limit("limit", message).hint("this limit is fixed")
}
