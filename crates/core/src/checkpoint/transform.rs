//! Changes of an index as values, so that a format can supply its own.

use super::{Checkpoint, Loss, Note};
use crate::error::Result;

/// A change of an index. No bytes move.
///
/// Whole jobs, such as a conversion, apply a list of these in order. A format supplies what only it understands, such as
/// rows for new entities of a PyTorch-BigGraph table.
pub trait IndexTransform: std::fmt::Debug + Send + Sync {
    /// Applies the change, and reports what it loses and what is worth knowing.
    ///
    /// # Errors
    /// The fault that makes the change impossible.
    fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()>;
}

/// Losses of changes of an index, and notes on them.
#[derive(Debug, Clone, Default)]
pub struct TransformReport {
    /// Losses, in the order of the changes.
    pub losses: Vec<Loss>,
    /// Notes, in the order of the changes.
    pub notes: Vec<Note>,
}
