//! A pickle that was read, and how far reading may go.

use super::allowed::{ImportVerdict, allowed};
use super::graph::{Graph, Object, ObjectId};
use super::opcode::opcode_name;
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase::{Job, Phrase};
use weighbridge_core::text::escape;
use weighbridge_core::{Budget, HeldMemory, phrase};

/// Bounds on what reading a pickle may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The bounds that hold for all files. `header_bytes` bounds the short text that is kept in
    /// memory, all of it together. Objects take memory of the budget, instructions work.
    pub limits: Limits,
    /// True to take the bytes behind the description of an array of joblib for the array, as joblib does.
    pub arrays: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self::with_limits(Limits::default())
    }
}

impl Options {
    /// Reading within these limits.
    pub fn with_limits(limits: Limits) -> Self {
        Self { limits, arrays: false }
    }
}

/// One instruction that would import something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalUse {
    /// The [`Object::Global`] that came of it.
    pub object: ObjectId,
    /// Offset of the instruction in the source.
    pub offset: u64,
    /// The instruction: `GLOBAL`, `STACK_GLOBAL` or `INST`.
    pub opcode: &'static str,
}

/// A pickle that was read to its end.
#[derive(Debug)]
pub struct Pickle {
    /// The objects.
    pub graph: Graph,
    /// The object that loading the pickle would return.
    pub root: ObjectId,
    /// The protocol that it declares; 0 where it declares none.
    pub protocol: u8,
    /// Offset in the source just behind the pickle, where another one may begin.
    pub end: u64,
    /// What would be imported, in order.
    pub globals: Vec<GlobalUse>,
    /// True where there are frames, as protocol 4 has them.
    pub uses_frames: bool,
    pub(super) counts: Box<[u64; 256]>,
    /// The memory of the objects.
    pub(super) held: HeldMemory,
}

impl Pickle {
    /// The budget of the file. The memory that the objects hold is given back to it with them.
    pub fn budget(&self) -> &Budget {
        self.held.budget()
    }

    /// How often each instruction occurs, by name; those that do not occur are left out.
    pub fn opcode_counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        (0u8..=255)
            .zip(self.counts.iter())
            .filter(|&(_, &count)| count > 0)
            .filter_map(|(code, &count)| Some((opcode_name(code)?, count)))
    }

    /// Says what loading the pickle in Python would run, where that is known to be dangerous.
    pub fn warning(&self) -> Option<Phrase> {
        let dangerous =
            |&(module, name): &(&str, &str)| matches!(allowed(module, name), ImportVerdict::Dangerous(_));
        let first = self.global_names().into_iter().find(dangerous)?;
        let is_called = self.graph.iter().any(|(_, object)| {
            matches!(object, Object::Reduced(made) if self.graph.global(made.callable) == Some(first))
        });
        let verb = if is_called { "call" } else { "import" };
        let name = escape(&format!("{}.{}", first.0, first.1));
        Some(phrase![
            format_args!("Loading this file in Python would {verb} `{name}`. Run `"),
            Job::Scan.call(),
            "` before you use it."
        ])
    }

    /// Module and name of each import, once, in order of first use. Names that are not short text
    /// are left out.
    pub fn global_names(&self) -> Vec<(&str, &str)> {
        let mut seen = std::collections::HashSet::new();
        self.globals.iter().filter_map(|g| self.graph.global(g.object)).filter(|g| seen.insert(*g)).collect()
    }
}
