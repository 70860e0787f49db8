//! JSON programs of Paddle 3: PIR.
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
//! Operators read and produce values identified by numbers. Results are numbered from 1 over the whole file,
//! block arguments are negative, and 0 means no value. Names are abbreviated: `1.conv2d` is `pd_op.conv2d`.
//! Early files have full names, and `#` for ids of values; they are supported too. Only tensors of a parameter
//! file, inputs and outputs have names; other values are called `%12`.
//!
//! Programs are changed by editing their text. Untouched parts keep every byte: keys, numbers, layout, and unknown
//! content.

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

/// Program of Paddle 3 with its text.
#[derive(Debug, Clone)]
pub struct PirProgram {
    bytes: Arc<[u8]>,
    model: Model,
    limits: Limits,
}

/// Attribute that discloses the author's source code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLeak {
    /// Operator, such as `pd_op.conv2d`.
    pub operator: String,
    /// Attribute, such as `op_callstack`.
    pub attribute: String,
    /// Disclosed text; several texts are on separate lines.
    pub text: String,
    /// Offset of the attribute in the program, in bytes.
    pub offset: u64,
}

/// True if `head`, the beginning of a file, is that of a PIR program: JSON that begins
/// with `base_code` and has the magic word, compact or pretty-printed.
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
    /// Parses a whole program. Memory and time are linear in the length of `bytes`.
    ///
    /// # Errors
    /// With the offset of the fault: [`weighbridge_core::Kind::Corrupt`]: `not-utf8`, `bad-json`,
    /// `bad-program` for a value of the wrong kind, `missing-field`, `duplicate-key`,
    /// `duplicate-value` for two values with one id; [`weighbridge_core::Kind::Unsupported`]: `not-pir`,
    /// `too-long`; [`weighbridge_core::Kind::Limit`]: `limit` (`header_bytes`, `tensors`, `name_bytes`,
    /// `dimensions`), `names-too-long` if many operators read a tensor with a long name, and `nesting`
    /// for JSON deeper than 256 levels.
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Self> {
        Limits::check_part("bytes in a program", "header_bytes", bytes.len() as u64, limits.header_bytes, 1)?;
        let model = read::read(bytes, limits)?;
        view::check_names(&model, bytes.len())?;
        Ok(Self { bytes: bytes.into(), model, limits: limits.clone() })
    }

    /// Returns the text: the original text with the changes applied.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.to_vec()
    }

    /// Returns the version of PIR: 1 in models of Paddle 3.0, 4 in those of 3.3; 0 in development builds.
    pub fn version(&self) -> i64 {
        self.model.version
    }

    /// False if the program was saved without the flags that training needs.
    pub fn trainable(&self) -> bool {
        self.model.trainable
    }

    /// Returns the content of the program. Its parameters, in the order of a combined file, are
    /// [`Topology::parameters`].
    ///
    /// Parameters, inputs and outputs keep their names; other variables are named after their number: `%12`. Only
    /// variables stored in files are persistable. A missing operand is called `@EMPTY@`, as in the older programs.
    pub fn topology(&self) -> Topology {
        view::topology(&self.model, &self.bytes)
    }

    /// Returns all parameter names in program order, which differs from that of a parameter file. Parameters that are
    /// not stored in a file are included.
    pub fn parameter_names(&self) -> Vec<&str> {
        let all = self.model.blocks.iter().flat_map(|b| &b.operators);
        let parameters = all.filter(|op| op.name == words::PARAMETER);
        parameters.filter_map(|op| op.named.as_ref()).map(|named| named.name.as_str()).collect()
    }

    /// Returns notes on irregularities: `pir-version-0`, `parameters-guessed`, `more-blocks`, `undefined-value`,
    /// `unknown-dialect`, `name-of-two-types`.
    pub fn notes(&self) -> Vec<Note> {
        view::notes(&self.model)
    }

    /// Renames parameters, state, inputs and outputs: from old name to new name, all at once, so that two names can be
    /// swapped. Returns the old names that the program has; other names in the map are ignored.
    ///
    /// A combined parameter file is sorted by name, so its order changes too.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `name-taken`: duplicate new name;
    /// [`weighbridge_core::Kind::Usage`], `bad-name`: empty new name; [`weighbridge_core::Kind::Limit`] for names
    /// that are too long. On error the program is unchanged.
    pub fn rename(&mut self, names: &BTreeMap<String, String>) -> Result<BTreeSet<String>> {
        let (edits, renamed) = rename::edits(&self.model, &self.bytes, names)?;
        self.apply(edits)?;
        Ok(renamed)
    }

    /// Removes the requested parts. Everything that an output of the program needs is kept.
    ///
    /// - `source`: the attributes `op_callstack`, `op_namescope` and `struct_name`, which no
    ///   operator needs.
    /// - `training`: operators that no output depends on and without effects independent of training (prints,
    ///   assertions, random draws, changes of stored tensors). Inputs that only these operators read are removed too.
    ///   A program without outputs keeps its forward pass. Operators with the setting `is_test` are switched to
    ///   inference.
    /// - `state`, `gradients`: tensors of this kind (gradients by the name `@GRAD`), unless a remaining operator
    ///   reads them.
    /// - `unused`: parameters and state that no operator reads.
    /// - `outputs`: see [`Strip::outputs`]; a value without a name is named by its number, `%12`.
    ///
    /// The outputs of the changed program are compared with those of the original.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `outputs-without-training`; [`weighbridge_core::Kind::Mismatch`],
    /// `no-such-output`; [`weighbridge_core::Kind::Corrupt`], `outputs-changed`. On error the program is unchanged.
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

    /// Lists attributes that disclose the author's source code: those that [`strip`](Self::strip)
    /// removes, and any text that resembles a Python call stack.
    pub fn source_leaks(&self) -> Vec<SourceLeak> {
        strip::leaks(&self.model)
    }

    fn apply(&mut self, edits: Edits) -> Result<()> {
        if edits.is_empty() {
            return Ok(());
        }
        let changed = edits.apply(&self.bytes);
        *self = Self::parse(&changed, &self.limits)
            .map_err(|e: Error| e.hint("the error is in the changed program"))?;
        Ok(())
    }
}
