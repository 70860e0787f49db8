//! A pickle that was read, and the options for reading.

use super::allowed::{ImportVerdict, allowed};
use super::graph::{Graph, Object, ObjectId};
use super::opcode::opcode_name;
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase::{Job, Phrase};
use weighbridge_core::text::escape;
use weighbridge_core::{Budget, HeldMemory, phrase};

/// Options for reading a pickle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Limits. `header_bytes` bounds the total of short text kept in memory. Objects take memory of
    /// the budget, opcodes take work.
    pub limits: Limits,
    /// True to read the bytes after a joblib array description as the array, like joblib.
    pub arrays: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self::with_limits(Limits::default())
    }
}

impl Options {
    /// Creates options with these limits.
    pub fn with_limits(limits: Limits) -> Self {
        Self { limits, arrays: false }
    }
}

/// One opcode that imports an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalUse {
    /// The resulting [`Object::Global`].
    pub object: ObjectId,
    /// Offset of the opcode in the source.
    pub offset: u64,
    /// The opcode: `GLOBAL`, `STACK_GLOBAL` or `INST`.
    pub opcode: &'static str,
}

/// An array of joblib: its description, and its content behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoblibArray {
    /// The description.
    pub object: ObjectId,
    /// Offset of the elements in the source, or of the pickle of an object array.
    pub offset: u64,
    /// The content of an object array, a plain array of numpy; `None` for other arrays.
    pub content: Option<ObjectId>,
}

/// A pickle that was read to its end.
#[derive(Debug)]
pub struct Pickle {
    /// The objects.
    pub graph: Graph,
    /// The object that loading the pickle returns.
    pub root: ObjectId,
    /// The declared protocol; 0 if none is declared.
    pub protocol: u8,
    /// Offset in the source after the pickle, where another one may begin.
    pub end: u64,
    /// Imports in order.
    pub globals: Vec<GlobalUse>,
    /// True if the pickle has frames (protocol 4).
    pub uses_frames: bool,
    /// Arrays of joblib in the order of their descriptions; only if [`Options::arrays`] is set.
    pub arrays: Vec<JoblibArray>,
    pub(super) counts: Box<[u64; 256]>,
    /// Memory of the objects.
    pub(super) held: HeldMemory,
}

impl Pickle {
    /// Budget of the file. Dropping the pickle returns the memory of its objects.
    pub fn budget(&self) -> &Budget {
        self.held.budget()
    }

    /// Counts of the opcodes that occur, by name.
    pub fn opcode_counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        (0u8..=255)
            .zip(self.counts.iter())
            .filter(|&(_, &count)| count > 0)
            .filter_map(|(code, &count)| Some((opcode_name(code)?, count)))
    }

    /// Returns a warning if loading the pickle in Python would run a dangerous import.
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
            format_args!("loading this file in Python would {verb} `{name}`; run `"),
            Job::Scan.call(),
            "` before you use it"
        ])
    }

    /// Returns module and name of each distinct import in order of first use. Names that are not short
    /// text are omitted.
    pub fn global_names(&self) -> Vec<(&str, &str)> {
        let mut seen = std::collections::HashSet::new();
        self.globals.iter().filter_map(|g| self.graph.global(g.object)).filter(|g| seen.insert(*g)).collect()
    }
}
