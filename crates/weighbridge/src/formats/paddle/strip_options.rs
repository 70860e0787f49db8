//! What can be taken out of a program, and what was.

use std::collections::BTreeSet;

/// What to take out of a program. Each part on request; nothing by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Strip {
    /// The author's source paths and lines: the attribute `op_callstack` and its like.
    pub source: bool,
    /// Operators that only training needs: gradients, optimizer steps, learning-rate schedules.
    pub training: bool,
    /// Variables that hold gradients.
    pub gradients: bool,
    /// Variables that hold an optimizer's state; their tensors go with them.
    pub state: bool,
    /// Variables that no operator uses; tensors of those go with them.
    pub unused: bool,
}

/// What was taken out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StripReport {
    /// Number of attributes.
    pub attributes: u64,
    /// Bytes of text in them.
    pub attribute_bytes: u64,
    /// Number of operators.
    pub operators: u64,
    /// Names of variables that no block declares any more.
    pub variables: BTreeSet<String>,
}

impl Strip {
    /// Everything.
    pub fn all() -> Self {
        Self { source: true, training: true, gradients: true, state: true, unused: true }
    }
    /// True where nothing is asked for.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}
