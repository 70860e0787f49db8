//! Programs as JSON, of Paddle 3: PIR.
//!
//! ```text
//! {"base_code": {"magic": "pir", "trainable": true, "version": 4},
//!  "program": {"regions": [{"#": "region_0", "blocks": [
//!    {"#": "block_0", "args": [], "ops": [
//!      {"#": "p", "A": [is_distributed, is_parameter, need_clip, "fc.w_0"], "DA": [], "QA": [],
//!       "O": {"%": 1, "TT": type}, "OA": [persistable, stop_gradient, trainable]},
//!      {"#": "1.data", "A": [{"N": "name", "AT": {"#": "0.a_str", "D": "x"}}, ...],
//!       "I": [], "O": [{"%": 2, "TT": type}], "OA": [...]},
//!      {"#": "1.matmul", "A": [...], "I": [{"%": 2}, {"%": 1}], "O": [{"%": 3, "TT": type}]},
//!      {"#": "1.while", ..., "regions": [{"blocks": [{"args": [{"#": -1, "TT": type}], ...}]}]}
//! ]}]}]}}
//! ```
//!
//! Operators read and make values, which have numbers: results count from 1 over the whole file,
//! arguments of blocks are negative, 0 is none. Words are short: `1.conv2d` is `pd_op.conv2d`.
//! Early files have the full words, and `#` for ids of values; they are read too. Only tensors
//! of a parameter file, inputs and outputs have names; here other values are called `%12`.
//!
//! A program is changed by cutting and pasting its text. So what is not touched stays as it is to
//! the last byte: keys, numbers, layout, and all that is not known here.

mod edit;
mod json;
mod model;
mod read;
mod rename;
mod strip;
#[cfg(test)]
mod tests;
mod values;
mod view;
mod words;

use super::{Strip, StripReport};
use edit::Edits;
use model::Model;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weighbridge_core::checkpoint::Note;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::topology::Topology;

/// A program of Paddle 3, with its text.
#[derive(Debug, Clone)]
pub struct PirProgram {
    bytes: Arc<[u8]>,
    model: Model,
    limits: Limits,
}

/// An attribute that tells of the author's source code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLeak {
    /// The operator, such as `pd_op.conv2d`.
    pub operator: String,
    /// The attribute, such as `op_callstack`.
    pub attribute: String,
    /// What it tells; several texts stand on lines of their own.
    pub text: String,
    /// The offset in the program at which the attribute begins, in bytes.
    pub offset: u64,
}

/// True where a file of this beginning is a program in PIR, by its content: JSON that begins
/// with `base_code` and has the magic word, compact or laid out for people.
pub fn looks_like(head: &[u8]) -> bool {
    let head = head.strip_prefix("\u{feff}".as_bytes()).unwrap_or(head);
    let mut tight = head.iter().copied().filter(|b| !b.is_ascii_whitespace());
    if !br#"{"base_code":{"#.iter().all(|&b| tight.next() == Some(b)) {
        return false;
    }
    let base: Vec<u8> = tight.take_while(|&b| b != b'}').collect();
    base.windows(13).any(|window| window == br#""magic":"pir""#)
}

impl PirProgram {
    /// Reads a program, all of it. Memory and time grow with the length of `bytes` alone.
    ///
    /// # Errors
    /// With the byte where the fault lies: [`weighbridge_core::Kind::Corrupt`]: `not-utf8`, `bad-json`,
    /// `bad-program` for a value of the wrong kind, `missing-field`, `duplicate-key`,
    /// `duplicate-value` for two values of one id; [`weighbridge_core::Kind::Unsupported`]: `not-pir`,
    /// `too-long`; [`weighbridge_core::Kind::Limit`]: `limit` (`header_bytes`, `tensors`, `name_bytes`,
    /// `dimensions`), `names-too-long` where many operators read a tensor of a long name, and `nesting`
    /// where JSON is deeper than 256 levels.
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Self> {
        Limits::check("bytes in a program", "header_bytes", bytes.len() as u64, limits.header_bytes)?;
        let model = read::read(bytes, limits)?;
        view::check_names(&model, bytes.len())?;
        Ok(Self { bytes: bytes.into(), model, limits: limits.clone() })
    }

    /// The text: that which was read, with the changes made since and none besides.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.to_vec()
    }

    /// The version of PIR: 1 in models of Paddle 3.0, 4 in those of 3.3; 0 in development builds.
    pub fn version(&self) -> i64 {
        self.model.version
    }

    /// False where the program was saved without the flags that training needs.
    pub fn trainable(&self) -> bool {
        self.model.trainable
    }

    /// What was understood of the program. Its parameters, in the order of a combined file, are
    /// [`Topology::parameters`].
    ///
    /// Variables are called as parameters, inputs and outputs are called in the file, others by
    /// their number: `%12`. Only what stands in files is persistable. An operand that is none is
    /// called `@EMPTY@`, as in the older programs.
    pub fn topology(&self) -> Topology {
        view::topology(&self.model, &self.bytes)
    }

    /// Names of parameters in the order of the program, which is not that of a parameter file;
    /// also of those that stand in no file.
    pub fn parameter_names(&self) -> Vec<&str> {
        let all = self.model.blocks.iter().flat_map(|b| &b.operators);
        let parameters = all.filter(|op| op.name == words::PARAMETER);
        parameters.filter_map(|op| op.named.as_ref()).map(|named| named.name.as_str()).collect()
    }

    /// What is odd: `pir-version-0`, `parameters-guessed`, `more-blocks`, `undefined-value`,
    /// `unknown-dialect`, `name-of-two-types`.
    pub fn notes(&self) -> Vec<Note> {
        view::notes(&self.model)
    }

    /// Renames parameters, state, inputs and outputs: from old name to new name, all at once, so
    /// that two can swap. Gives the old names that the program has; others in the map are let be.
    ///
    /// The order of a combined parameter file is that of names, so that file changes too.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `name-taken`: two tensors would have one name;
    /// [`weighbridge_core::Kind::Usage`], `bad-name`: a new name is empty; [`weighbridge_core::Kind::Limit`] for names
    /// that are too long. The program is as before.
    pub fn rename(&mut self, names: &BTreeMap<String, String>) -> Result<BTreeSet<String>> {
        let (edits, renamed) = rename::edits(&self.model, &self.bytes, names)?;
        self.apply(edits)?;
        Ok(renamed)
    }

    /// Takes out what is asked for. What an output of the program needs always stays.
    ///
    /// - `source`: the attributes `op_callstack`, `op_namescope` and `struct_name`, which no
    ///   operator needs.
    /// - `training`: operators on which no output depends, and no effect that is independent of
    ///   training (prints, assertions, random draws, changes of stored tensors). Inputs that only
    ///   they read go too. A program without outputs keeps its forward pass. Each operator that has
    ///   the setting `is_test` gets it.
    /// - `state`, `gradients`: such tensors (by name `@GRAD` for the second), where no operator
    ///   that stays reads them.
    /// - `unused`: parameters and state that no operator reads.
    /// - `outputs`: see [`Strip::outputs`]; a value without a name is called by its number, `%12`.
    ///
    /// The changed program is held against the outputs of the one before.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `outputs-without-training`; [`weighbridge_core::Kind::Mismatch`],
    /// `no-such-output`; [`weighbridge_core::Kind::Corrupt`], `outputs-changed`. The program is as before.
    pub fn strip(&mut self, what: &Strip) -> Result<StripReport> {
        what.check()?;
        let topology = self.topology();
        let (edits, mut change) = strip::edits(&self.model, &topology, what)?;
        let mut changed = self.clone();
        changed.apply(edits)?;
        change.check(&self.model, &topology, &changed.topology())?;
        let before = view::all_names(&self.model);
        *self = changed;
        if change.report.operators > 0 {
            let after = view::all_names(&self.model);
            change.report.variables = before.difference(&after).cloned().collect();
        }
        Ok(change.report)
    }

    /// Attributes that tell of the author's source code: those that [`strip`](Self::strip) takes
    /// out, and any text that looks like the call stack of Python.
    pub fn source_leaks(&self) -> Vec<SourceLeak> {
        strip::leaks(&self.model)
    }

    fn apply(&mut self, edits: Edits) -> Result<()> {
        if edits.is_empty() {
            return Ok(());
        }
        let changed = edits.apply(&self.bytes);
        *self =
            Self::parse(&changed, &self.limits).map_err(|e: Error| e.hint("the changed program is meant"))?;
        Ok(())
    }
}
