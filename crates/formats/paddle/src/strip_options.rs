//! Options and report of a strip.

use std::collections::BTreeSet;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Job, Opt};
use weighbridge_core::text::escape;

/// Parts to remove from a program. All are off by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Strip {
    /// The author's source paths and lines: the attribute `op_callstack` and similar ones.
    pub source: bool,
    /// Operators that only training needs: gradients, optimizer steps, learning-rate schedules and, in a program
    /// with outputs, operators that no output needs. The remaining operators are switched to inference
    /// (`is_test`).
    pub training: bool,
    /// Variables with gradients.
    pub gradients: bool,
    /// Variables with optimizer state, together with their tensors.
    pub state: bool,
    /// Variables that no operator uses, together with their tensors.
    pub unused: bool,
    /// Variables that become the outputs of the program, with `training`: the program is reduced to them and their
    /// inputs, as in `paddle.static.normalize_program`. If the list is empty, the program keeps its own outputs.
    pub outputs: Vec<String>,
}

/// Removed parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StripReport {
    /// Number of removed attributes.
    pub attributes: u64,
    /// Length of their text in bytes.
    pub attribute_bytes: u64,
    /// Number of removed operators.
    pub operators: u64,
    /// Names of variables that no block declares any more.
    pub variables: BTreeSet<String>,
    /// Ends of the forward pass of a training program without outputs; the forward pass is kept.
    pub ends: Vec<String>,
}

impl Strip {
    /// Selects all parts.
    pub fn all() -> Self {
        Self { source: true, training: true, gradients: true, state: true, unused: true, outputs: Vec::new() }
    }

    /// True if no part is selected.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Fails if outputs are named without removing operators.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `outputs-without-training`.
    pub(super) fn check(&self) -> Result<()> {
        if self.training || self.outputs.is_empty() {
            return Ok(());
        }
        Err(Error::usage("outputs-without-training", "outputs are named without removing operators").hint(
            phrase![
                "add ",
                Opt::Strip.with("training"),
                " or ",
                Opt::Strip.with("all"),
                " to use ",
                Opt::Outputs
            ],
        ))
    }

    /// True if variables of a sort are removed: a program that is reduced to named outputs keeps no others.
    pub(super) fn drops(&self, sort: bool) -> bool {
        sort || !self.outputs.is_empty()
    }
}

/// Returns the error for an output that the program lacks.
pub(super) fn no_such_output(name: &str) -> Error {
    Error::mismatch("no-such-output", "the main block of the program has no variable with this name")
        .found(escape(name))
        .hint(phrase!["run `", Job::Program.call().of(&["MODEL"]).with(Opt::List), "` to list the variables"])
}
