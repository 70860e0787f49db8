//! What can be taken out of a program, and what was.

use std::collections::BTreeSet;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::{Job, Opt};
use weighbridge_core::text::escape;

/// What to take out of a program. Each part on request; nothing by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Strip {
    /// The author's source paths and lines: the attribute `op_callstack` and its like.
    pub source: bool,
    /// Operators that only training needs: gradients, optimizer steps, learning-rate schedules, and,
    /// in a program with outputs, whatever no output needs. The others are switched to inference
    /// (`is_test`).
    pub training: bool,
    /// Variables that hold gradients.
    pub gradients: bool,
    /// Variables that hold an optimizer's state; their tensors go with them.
    pub state: bool,
    /// Variables that no operator uses; tensors of those go with them.
    pub unused: bool,
    /// Variables that become the outputs of the program, with `training`: it is cut down to them, as
    /// `paddle.static.normalize_program` does, and gets the inputs that they need. Where there are
    /// none, the program keeps its own outputs.
    pub outputs: Vec<String>,
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
    /// The ends of the forward pass of a training program without outputs, all of which stays.
    pub ends: Vec<String>,
}

impl Strip {
    /// Everything.
    pub fn all() -> Self {
        Self { source: true, training: true, gradients: true, state: true, unused: true, outputs: Vec::new() }
    }

    /// True where nothing is asked for.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Fails where outputs are named and the operators are to stay.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `outputs-without-training`.
    pub(super) fn check(&self) -> Result<()> {
        if self.training || self.outputs.is_empty() {
            return Ok(());
        }
        Err(Error::usage("outputs-without-training", "outputs are named, but no operators are taken out")
            .hint(phrase![
                Opt::Strip.with("training"),
                " or ",
                Opt::Strip.with("all"),
                " goes with ",
                Opt::Outputs
            ]))
    }

    /// True where variables of that sort are to go: a program that is cut down to named outputs
    /// keeps no others.
    pub(super) fn drops(&self, sort: bool) -> bool {
        sort || !self.outputs.is_empty()
    }
}

/// The error for an output that the program does not have.
pub(super) fn no_such_output(name: &str) -> Error {
    Error::mismatch("no-such-output", "the program has no variable of this name in its main block")
        .found(escape(name))
        .hint(phrase!["`", Job::Program.call().of(&["MODEL"]).with(Opt::List), "` shows the variables"])
}
