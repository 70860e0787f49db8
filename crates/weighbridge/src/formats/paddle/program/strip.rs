//! Taking out of a program what its users do not need.

use super::ProgramDesc;
use super::access::{arguments, attribute, bytes, in_attributes, kind, operators, shown};
use super::framework::{self, OpDesc};
use crate::error::Result;
use crate::formats::paddle::{Strip, StripReport};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The attribute with the author's source lines.
pub(super) const CALLSTACK: &[u8] = b"op_callstack";

// Bits of the attribute `op_role`. Forward is 0; 4 and 8 (talk between trainers) stay.
const BACKWARD: i32 = 1;
const OPTIMIZE: i32 = 2;
const SCHEDULE: i32 = 16;
const LOSS: i32 = 256;
/// The role of an operator whose role was never set: all other bits mean nothing.
const UNSPECIFIED: i32 = 0x1000;

impl ProgramDesc {
    /// Takes out what is asked for. What is left can be loaded: blocks keep their places, and
    /// nothing goes that a remaining operator uses.
    ///
    /// - `source`: the attribute `op_callstack`. Other text that gives away paths is listed by
    ///   [`source_leaks`](Self::source_leaks) and stays.
    /// - `training`: operators of the optimizer and of learning-rate schedules; and those of the
    ///   backward pass (by role, or by a type that ends in `_grad`) and of the loss, unless a
    ///   remaining operator reads what they write, such as a `fetch` of a gradient.
    /// - `gradients`: variables with `@GRAD` in their names.
    /// - `state`: persistable variables that only operators of the optimizer and of schedules use,
    ///   and never as the parameter: moments, powers, learning rates. They are told by the roles
    ///   and slots of operators, not by names. As long as the operators stay (without `training`),
    ///   the variables do.
    /// - `unused`: variables that no operator of any block uses, persistable ones as well; the
    ///   lists of feeds and fetches stay. A program without operators is a list of variables, and
    ///   keeps them.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] where the program would be larger than protobuf allows.
    pub fn strip(&mut self, what: &Strip) -> Result<StripReport> {
        let mut report = StripReport::default();
        if what.is_nothing() {
            return Ok(report);
        }
        let mut message = self.message.clone();
        let state = if what.state { state(&message) } else { HashSet::new() };
        if what.source {
            source(&mut message, &mut report);
        }
        if what.training {
            training(&mut message, &mut report);
        }
        let declarations = variables(&mut message, what, &state, &mut report);
        if declarations > 0 || report != StripReport::default() {
            self.replace(message)?;
        }
        Ok(report)
    }
}

fn source(program: &mut framework::ProgramDesc, report: &mut StripReport) {
    for op in program.blocks.iter_mut().flat_map(|b| &mut b.ops) {
        op.attrs.retain(|attr| {
            let gone = bytes(&attr.name) == CALLSTACK;
            if gone {
                report.attributes += 1;
                let length: usize = attr.s.iter().chain(&attr.strings).map(Vec::len).sum();
                report.attribute_bytes += length as u64;
            }
            !gone
        });
    }
}

/// What an operator is there for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Forward,
    /// Backward pass or loss: goes unless it is needed.
    Derivation,
    /// Optimizer or schedule: goes.
    Update,
}

fn purpose(op: &OpDesc) -> Purpose {
    let role = attribute(op, "op_role").and_then(|a| a.i).unwrap_or(0);
    let role = if role & UNSPECIFIED == 0 { role } else { 0 };
    if role & (OPTIMIZE | SCHEDULE) != 0 || (role == 0 && is_optimizer(op)) {
        Purpose::Update
    } else if role & (BACKWARD | LOSS) != 0 || bytes(&op.r#type).ends_with(b"_grad") {
        Purpose::Derivation
    } else {
        Purpose::Forward
    }
}

/// True for an operator that makes a step: it has a parameter, its gradient and the parameter after.
/// Programs before roles have no other sign.
fn is_optimizer(op: &OpDesc) -> bool {
    let has =
        |slots: &[framework::op_desc::Var], name: &[u8]| slots.iter().any(|s| bytes(&s.parameter) == name);
    has(&op.inputs, b"Param") && has(&op.inputs, b"Grad") && has(&op.outputs, b"ParamOut")
}

fn training(program: &mut framework::ProgramDesc, report: &mut StripReport) {
    let keep = needed(program);
    let mut keep = keep.into_iter();
    for block in &mut program.blocks {
        block.ops.retain(|_| {
            let keep = keep.next().unwrap_or(true);
            report.operators += u64::from(!keep);
            keep
        });
    }
}

/// For every operator of every block, in order: whether a program without training needs it.
fn needed(program: &framework::ProgramDesc) -> Vec<bool> {
    let all: Vec<&OpDesc> = operators(program).collect();
    let mut keep: Vec<bool> = all.iter().map(|op| purpose(op) == Purpose::Forward).collect();
    let mut writers: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (place, op) in all.iter().enumerate() {
        if purpose(op) == Purpose::Derivation {
            arguments(&op.outputs).for_each(|name| writers.entry(name).or_default().push(place));
        }
    }
    // From what stays back to what it reads. Each writer of a name is looked at once.
    let mut open: Vec<usize> = (0..all.len()).filter(|&place| keep.get(place) == Some(&true)).collect();
    while let Some(op) = open.pop().and_then(|place| all.get(place)) {
        for name in arguments(&op.inputs).chain(in_attributes(op)) {
            for writer in writers.remove(name.as_slice()).unwrap_or_default() {
                if let Some(keep) = keep.get_mut(writer).filter(|keep| !**keep) {
                    *keep = true;
                    open.push(writer);
                }
            }
        }
    }
    keep
}

/// The variables of the optimizer: persistable, used by updates only, and never as the parameter.
fn state(program: &framework::ProgramDesc) -> HashSet<Vec<u8>> {
    let vars = program.blocks.iter().flat_map(|b| &b.vars);
    let mut state: HashSet<Vec<u8>> =
        vars.filter(|v| v.persistable.unwrap_or(false)).map(|v| bytes(&v.name).to_vec()).collect();
    let mut updated = HashSet::new();
    for op in operators(program) {
        let update = purpose(op) == Purpose::Update;
        for slot in op.inputs.iter().chain(&op.outputs) {
            let parameter = matches!(bytes(&slot.parameter), b"Param" | b"ParamOut");
            for name in &slot.arguments {
                if update && !parameter {
                    updated.insert(name.as_slice());
                } else {
                    state.remove(name);
                }
            }
        }
        for name in in_attributes(op).filter(|_| !update) {
            state.remove(name);
        }
    }
    state.retain(|name| updated.contains(name.as_slice()));
    state
}

/// Removes the declarations of variables that are asked for and that no operator uses. Gives how
/// many went: a variable may be declared in other blocks still.
fn variables(
    program: &mut framework::ProgramDesc,
    what: &Strip,
    state: &HashSet<Vec<u8>>,
    report: &mut StripReport,
) -> u64 {
    let mut used: HashSet<Vec<u8>> = HashSet::new();
    let mut any = false;
    for op in operators(program) {
        any = true;
        for name in arguments(&op.inputs).chain(arguments(&op.outputs)).chain(in_attributes(op)) {
            if !used.contains(name) {
                used.insert(name.clone());
            }
        }
    }
    let mut left: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut gone: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut removed = 0;
    for block in &mut program.blocks {
        block.vars.retain(|var| {
            let name = bytes(&var.name);
            let holder = matches!(kind(var), Some(9 | 10));
            let asked = (what.unused && any)
                || (what.gradients && name.windows(5).any(|part| part == b"@GRAD"))
                || state.contains(name);
            let goes = asked && !holder && !used.contains(name);
            let list = if goes { &mut gone } else { &mut left };
            if !list.contains(name) {
                list.insert(name.to_vec());
            }
            removed += u64::from(goes);
            !goes
        });
    }
    report.variables = gone.difference(&left).map(|name| shown(name).into_owned()).collect();
    removed
}
