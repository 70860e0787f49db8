//! Consistent renaming of variables.

use super::access::{bytes, kind, shown};
use super::{ProgramDesc, framework};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::{escape, near};
use weighbridge_core::topology::Quantized;

/// Text attributes that contain names of variables. Only values equal to a name are renamed.
///
/// In order: parameter and gradient of an operator; variables kept by control flow; names across a step of
/// `recurrent`; gradients requested from `while_grad`; signatures of `run_program`; variables sent and received
/// between trainers; parameters of an engine that replaces a part of the program.
const NAMING: &[&str] = &[
    "op_role_var",
    "skip_eager_deletion_vars",
    "states",
    "ex_states",
    "original_output_grad",
    "x_names",
    "param_grad_names",
    "x_grad_names",
    "out_grad_names",
    "fwd_in_names",
    "fwd_out_names",
    "send_varnames",
    "recv_varnames",
    "remote_varnames",
    "slice_varnames",
    "table_names",
    "table_name",
    "parameters",
];

/// Argument that denotes no variable.
const EMPTY: &str = "@EMPTY@";
/// Names of the lists of the executor.
const HOLDERS: [&str; 2] = ["feed", "fetch"];

/// Treatment of names that Paddle derived from a renamed one by an `@`: `w@GRAD`,
/// `w@GRAD@RENAME@block0@0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Derived {
    /// Derived names are kept.
    Keep,
    /// Derived names are renamed too: `w@GRAD` becomes `v@GRAD` if `w` becomes `v`.
    Along,
}

impl ProgramDesc {
    /// Renames variables in all places: declarations in all blocks, inputs and outputs of operators, variables used
    /// as attribute values, text attributes with variable names (`op_role_var`, `skip_eager_deletion_vars` and
    /// others), and attributes whose own names begin with that of a variable (`w_quant_scale`).
    ///
    /// Returns the number of changed places; if it is 0, the program keeps its bytes. All names change at once, so two
    /// names can be swapped. Names are written as in [`topology`](Self::topology). The order of a combined file
    /// is the order of the names, so it changes with them.
    ///
    /// # Errors
    /// On error nothing is renamed. [`weighbridge_core::Kind::Mismatch`] for a name that the program lacks, and
    /// for two variables with the same new name; [`weighbridge_core::Kind::Usage`] for an empty name and for the
    /// names that Paddle reserves (`feed`, `fetch`, `@EMPTY@`).
    pub fn rename(&mut self, names: &BTreeMap<String, String>, derived: Derived) -> Result<u64> {
        let mut message = self.message.clone();
        let mapping = mapping(&mut message, names, derived)?;
        let mut changed = 0;
        each_name(&mut message, &mut |name, _| {
            if let Some(new) = mapping.get(name) {
                name.clone_from(new);
                changed += 1;
            }
        });
        for attr in message.blocks.iter_mut().flat_map(|block| &mut block.ops).flat_map(|op| &mut op.attrs) {
            let Some(name) = &mut attr.name else { continue };
            let weight = name.strip_suffix(Quantized::SCALE_ATTRIBUTE.as_bytes());
            if let Some(new) = weight.and_then(|weight| mapping.get(weight)) {
                *name = [new, Quantized::SCALE_ATTRIBUTE.as_bytes()].concat();
                changed += 1;
            }
        }
        if changed > 0 {
            self.replace(message)?;
        }
        Ok(changed)
    }
}

/// Returns the new name of a variable that Paddle derived by an `@` from one of `names`, as [`Derived::Along`] does.
pub(in super::super) fn derived_name(name: &str, names: &BTreeMap<String, String>) -> Option<String> {
    new_name(name.as_bytes(), names, Derived::Along).and_then(|new| String::from_utf8(new).ok())
}

/// Maps old names to new ones, for those that change.
fn mapping(
    message: &mut framework::ProgramDesc,
    names: &BTreeMap<String, String>,
    derived: Derived,
) -> Result<HashMap<Vec<u8>, Vec<u8>>> {
    let mut there = BTreeSet::new();
    each_name(message, &mut |name, place| {
        if place == NameKind::Variable && !there.contains(name) {
            there.insert(name.clone());
        }
    });
    let mut reserved: HashSet<&[u8]> = HashSet::from([EMPTY.as_bytes()]);
    let holders = message.blocks.iter().flat_map(|b| &b.vars).filter(|v| matches!(kind(v), Some(9 | 10)));
    reserved.extend(holders.map(|v| bytes(&v.name)));

    let mut missing: BTreeSet<&str> = names.keys().map(String::as_str).collect();
    let mut mapping = HashMap::new();
    let mut taken: HashMap<Vec<u8>, &[u8]> = HashMap::new();
    for old in &there {
        missing.remove(&*shown(old));
        let new = new_name(old, names, derived).filter(|new| new != old);
        if let Some(new) = &new {
            refuse_reserved(old, new, &reserved)?;
        }
        if let Some(other) = taken.insert(new.clone().unwrap_or_else(|| old.clone()), old) {
            let both = format!("{} and {}", shown(other), shown(old));
            return Err(Error::mismatch("name-collision", "duplicate variable name after renaming")
                .found(both)
                .hint("rename the other variable as well, or choose another name"));
        }
        if let Some(new) = new {
            mapping.insert(old.clone(), new);
        }
    }
    match missing.first() {
        None => Ok(mapping),
        Some(name) => {
            let error =
                Error::mismatch("no-such-variable", "the program has no variable with this name").found(name);
            let names: Vec<_> = there.iter().map(|name| shown(name)).collect();
            Err(match near(|| names.iter().map(|name| &**name), name, 3).as_slice() {
                [] => error,
                near => error.hint(format_args!("did you mean {}?", escape(&near.join(", ")))),
            })
        }
    }
}

/// Returns the new name of a variable: the requested one, or the one derived from the longest requested name before
/// an `@`.
fn new_name(old: &[u8], names: &BTreeMap<String, String>, derived: Derived) -> Option<Vec<u8>> {
    if let Some(new) = names.get(&*shown(old)) {
        return Some(new.as_bytes().to_vec());
    }
    if derived == Derived::Keep {
        return None;
    }
    // Names are bounded by a limit, and an `@` is rare: the loop is short.
    let ends =
        old.iter().enumerate().rev().filter(|&(at, &b)| at > 0 && b == b'@').map(|(at, _)| at).take(16);
    for end in ends {
        let (base, rest) = old.split_at(end);
        if let Some(new) = names.get(&*shown(base)) {
            return Some([new.as_bytes(), rest].concat());
        }
    }
    None
}

fn refuse_reserved(old: &[u8], new: &[u8], reserved: &HashSet<&[u8]>) -> Result<()> {
    if new.is_empty() {
        return Err(Error::usage("empty-name", "the new variable name is empty").found(shown(old)));
    }
    let kept = |name: &[u8]| reserved.contains(name);
    if kept(old) || kept(new) || HOLDERS.iter().any(|h| h.as_bytes() == new) {
        return Err(Error::usage("reserved-name", "the variable name is reserved by Paddle")
            .found(format_args!("{} to {}", shown(old), shown(new))));
    }
    Ok(())
}

/// Role of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameKind {
    /// Name of a variable.
    Variable,
    /// Possible name of a variable, in a text attribute that contains names.
    Mention,
}

/// Visits every place with the name of a variable.
fn each_name(program: &mut framework::ProgramDesc, visit: &mut impl FnMut(&mut Vec<u8>, NameKind)) {
    for block in &mut program.blocks {
        for var in &mut block.vars {
            if let Some(name) = &mut var.name {
                visit(name, NameKind::Variable);
            }
        }
        for op in &mut block.ops {
            for slot in op.inputs.iter_mut().chain(&mut op.outputs) {
                slot.arguments.iter_mut().for_each(|name| visit(name, NameKind::Variable));
            }
            for attr in &mut op.attrs {
                attr.var_name
                    .iter_mut()
                    .chain(&mut attr.vars_name)
                    .for_each(|n| visit(n, NameKind::Variable));
                if NAMING.iter().any(|n| n.as_bytes() == bytes(&attr.name)) {
                    attr.s.iter_mut().chain(&mut attr.strings).for_each(|n| visit(n, NameKind::Mention));
                }
            }
        }
    }
}
