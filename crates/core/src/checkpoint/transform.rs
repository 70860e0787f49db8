//! Changes of an index as values, which formats can supply.

use super::{Checkpoint, Loss, Note};
use crate::error::Result;

/// Change of an index. No bytes move.
///
/// Jobs such as a conversion apply a list of these in order. Formats supply their own, such as rows for new entities of a
/// PyTorch-BigGraph table.
pub trait IndexTransform: std::fmt::Debug + Send + Sync {
    /// Applies the change, and reports losses and notes.
    ///
    /// # Errors
    /// The reason why the change is impossible.
    fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()>;
}

/// Losses and notes from changes of an index.
#[derive(Debug, Clone, Default)]
pub struct TransformReport {
    /// Losses, in the order of the changes.
    pub losses: Vec<Loss>,
    /// Notes, in the order of the changes.
    pub notes: Vec<Note>,
}
