//! What can be taken out of a program, and what must stay.

use super::edit::Edits;
use super::model::{Attr, Model, Op};
use super::view::{fed, stored};
use super::words::{DATA, FETCH, PARAMETER, SET_PARAMETER, SHADOW_OUTPUT};
use super::{SourceLeak, Strip, StripReport};
use crate::topology::AttributeValue;
use std::collections::HashMap;

/// Attributes that tell of source code and that no operator needs.
const SOURCE: &[&str] = &["op_callstack", "op_namescope", "struct_name"];

/// Operators that train, beside those whose name ends in `_grad`.
const TRAINING: &[&str] = &[
    "adadelta_",
    "adagrad_",
    "adam_",
    "adamax_",
    "adamw_",
    "apply_per_channel_scale",
    "asgd_",
    "average_accumulates_",
    "c_adam",
    "check_finite_and_unscale_",
    "decayed_adagrad",
    "dgc",
    "dgc_momentum",
    "distributed_fused_lamb",
    "distributed_fused_lamb_init",
    "dpsgd",
    "ftrl",
    "fused_adam_",
    "lamb_",
    "lars_momentum_",
    "merged_adam_",
    "merged_momentum_",
    "momentum_",
    "nadam_",
    "radam_",
    "rmsprop_",
    "rprop_",
    "sgd_",
    "sparse_momentum",
    "update_loss_scaling_",
];

/// Operators that do something beside their results.
const EFFECTS: &[&str] =
    &["assert", "print", "save", "save_combine", "py_func", "run_program", "send_v2", "p_send", "barrier"];

/// The name without dialect.
fn short(name: &str) -> &str {
    name.split_once('.').map_or(name, |(_, short)| short)
}

fn trains(op: &Op) -> bool {
    let name = short(&op.name);
    // An operator that works in place has the ending `_`; those on sparse rows say so.
    let bare = name.strip_suffix('_').unwrap_or(name);
    let dense = bare.strip_suffix("_dense_param_sparse").unwrap_or(bare);
    bare.ends_with("_grad")
        || TRAINING.iter().any(|t| *t == name || t.strip_suffix('_').unwrap_or(t) == dense)
}

/// The changes that take out what is asked for, and what they take. Names are left to the caller.
pub(super) fn edits(model: &Model, what: &Strip) -> (Edits, StripReport) {
    let mut edits = Edits::default();
    let mut report = StripReport::default();
    let graph = Graph::of(model);
    let gone = graph.gone(what);
    for (block, units) in graph.by_block() {
        let operators = &model.blocks[block].operators;
        let elements: Vec<_> =
            operators.iter().zip(units).map(|(op, unit)| (op.span.clone(), gone[unit])).collect();
        edits.remove(&model.blocks[block].list, &elements);
    }
    for (block, owner) in graph.owners.iter().enumerate() {
        for (position, op) in model.blocks[block].operators.iter().enumerate() {
            let unit = owner.unwrap_or_else(|| graph.first[block] + position);
            if gone[unit] {
                report.operators += 1;
            } else if what.source {
                source(op, &mut edits, &mut report);
            }
        }
    }
    (edits, report)
}

fn source(op: &Op, edits: &mut Edits, report: &mut StripReport) {
    let tells = |attr: &Attr| SOURCE.contains(&attr.attribute.name.as_str());
    for attr in op.attributes.iter().filter(|a| tells(a)) {
        report.attributes += 1;
        report.attribute_bytes += text(&attr.attribute.value).len() as u64;
    }
    for (number, list) in op.lists.iter().enumerate() {
        let of_list = op.attributes.iter().filter(|a| a.list == number);
        let elements: Vec<_> = of_list.map(|a| (a.span.clone(), tells(a))).collect();
        if elements.iter().any(|(_, goes)| *goes) {
            edits.remove(list, &elements);
        }
    }
}

/// See [`super::PirProgram::source_leaks`].
pub(super) fn leaks(model: &Model) -> Vec<SourceLeak> {
    let mut leaks = Vec::new();
    for op in model.blocks.iter().flat_map(|b| &b.operators) {
        for attr in &op.attributes {
            let known = SOURCE.contains(&attr.attribute.name.as_str());
            let holds_text =
                matches!(attr.attribute.value, AttributeValue::Text(_) | AttributeValue::List(_));
            if !known && !holds_text {
                continue;
            }
            let text = text(&attr.attribute.value);
            let stack = text.contains("File \"") && text.contains("\", line ");
            if stack || (known && !text.is_empty()) {
                leaks.push(SourceLeak {
                    operator: op.name.clone(),
                    attribute: attr.attribute.name.clone(),
                    text,
                    offset: attr.span.start as u64,
                });
            }
        }
    }
    leaks
}

/// All texts of a value, a line each.
fn text(value: &AttributeValue) -> String {
    match value {
        AttributeValue::Text(text) => text.clone(),
        AttributeValue::List(list) => {
            list.iter().map(text).filter(|t| !t.is_empty()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// One operator of an outermost block, with all that its bodies do.
struct Unit<'m> {
    op: &'m Op,
    trains: bool,
    acts: bool,
    operands: Vec<i64>,
}

/// Who makes what, and who reads it.
struct Graph<'m> {
    units: Vec<Unit<'m>>,
    /// For each block the unit around it; none for an outermost one.
    owners: Vec<Option<usize>>,
    /// For each outermost block the unit of its first operator.
    first: Vec<usize>,
    /// The unit that makes a value.
    makers: HashMap<i64, usize>,
}

impl<'m> Graph<'m> {
    fn of(model: &'m Model) -> Self {
        let count = model.blocks.len();
        let mut graph = Self {
            units: Vec::new(),
            owners: vec![None; count],
            first: vec![0; count],
            makers: HashMap::new(),
        };
        // A body stands after the block around it, so its owner is known when it is met.
        for (place, block) in model.blocks.iter().enumerate() {
            let owner = graph.owners[place];
            graph.first[place] = graph.units.len();
            for op in &block.operators {
                let unit = owner.unwrap_or(graph.units.len());
                if owner.is_none() {
                    graph.units.push(Unit { op, trains: false, acts: false, operands: Vec::new() });
                }
                for &body in &op.blocks {
                    graph.owners[body] = Some(unit);
                }
                let name = short(&op.name);
                // A yield only hands on, and a push onto a stack only serves a pop.
                let hands_on = op.name.starts_with("cf.");
                let declares = [PARAMETER, DATA, FETCH, SHADOW_OUTPUT].contains(&op.name.as_str());
                let acts = op.name == SET_PARAMETER
                    || EFFECTS.contains(&name)
                    || (op.results.is_empty() && !hands_on && !declares);
                let whole = &mut graph.units[unit];
                whole.trains |= trains(op);
                whole.acts |= acts;
                whole.operands.extend(op.operands.iter().filter(|id| **id != 0));
                for result in op.results.iter().filter(|r| r.id != 0) {
                    graph.makers.insert(result.id, unit);
                }
            }
        }
        graph
    }

    /// Units of outermost blocks, block by block.
    fn by_block(&self) -> Vec<(usize, std::ops::Range<usize>)> {
        let mut blocks = Vec::new();
        let roots: Vec<usize> = (0..self.owners.len()).filter(|&b| self.owners[b].is_none()).collect();
        for (i, &block) in roots.iter().enumerate() {
            let end = roots.get(i + 1).map_or(self.units.len(), |&next| self.first[next]);
            blocks.push((block, self.first[block]..end));
        }
        blocks
    }

    fn makers_of(&self, unit: usize) -> impl Iterator<Item = usize> {
        self.units[unit].operands.iter().filter_map(|id| self.makers.get(id).copied())
    }

    /// For each unit whether it goes.
    fn gone(&self, what: &Strip) -> Vec<bool> {
        let mut gone = if what.training { self.training() } else { vec![false; self.units.len()] };
        let used = self.used(&vec![false; self.units.len()]);
        let still = self.used(&gone);
        for (place, unit) in self.units.iter().enumerate().filter(|&(place, _)| !still[place]) {
            let (op, kept) = (unit.op, stored(unit.op));
            let gradient = op.named.as_ref().is_some_and(|n| n.name.contains("@GRAD"));
            let parameter = op.name == PARAMETER;
            let declares = parameter || op.name == DATA;
            gone[place] |= (what.state && op.name == DATA && kept)
                || (what.gradients && declares && gradient)
                || (what.unused && (parameter || kept))
                || (what.training && fed(op) && used[place]);
        }
        gone
    }

    /// For each unit whether one that stays reads what it makes.
    fn used(&self, gone: &[bool]) -> Vec<bool> {
        let mut used = vec![false; self.units.len()];
        for unit in (0..self.units.len()).filter(|&unit| !gone[unit]) {
            for maker in self.makers_of(unit).filter(|&maker| maker != unit) {
                used[maker] = true;
            }
        }
        used
    }

    /// Units that only training needs. Declarations of tensors are not among them.
    fn training(&self) -> Vec<bool> {
        let count = self.units.len();
        let declares = |unit: usize| [PARAMETER, DATA].contains(&self.units[unit].op.name.as_str());
        // Makers come before readers, so one pass forward is enough.
        let mut after = vec![false; count];
        for unit in 0..count {
            after[unit] = self.units[unit].trains || self.makers_of(unit).any(|maker| after[maker]);
        }
        let is_output = |unit: usize| {
            let name = self.units[unit].op.name.as_str();
            // A fetch is asked for by name; what dynamic code hands out may be its gradients.
            name == FETCH || (name == SHADOW_OUTPUT && !after[unit])
        };
        if (0..count).any(is_output) {
            let mut live: Vec<bool> =
                (0..count).map(|unit| is_output(unit) || (self.units[unit].acts && !after[unit])).collect();
            for unit in (0..count).rev().filter(|&unit| live[unit]).collect::<Vec<_>>() {
                let mut open = vec![unit];
                while let Some(unit) = open.pop() {
                    for maker in self.makers_of(unit) {
                        if !std::mem::replace(&mut live[maker], true) {
                            open.push(maker);
                        }
                    }
                }
            }
            return (0..count).map(|unit| !live[unit] && !declares(unit)).collect();
        }
        self.after_outputless(&after, declares)
    }

    /// Where there are no outputs, the forward part ends in values that nobody reads but training.
    /// It stays; constants, and what is made of them and of state alone, go with their readers.
    fn after_outputless(&self, after: &[bool], declares: impl Fn(usize) -> bool) -> Vec<bool> {
        let count = self.units.len();
        let mut constant = vec![false; count];
        for unit in 0..count {
            let op = self.units[unit].op;
            let like = ["full_like", "ones_like", "zeros_like"].contains(&short(&op.name));
            let state = op.name == DATA && stored(op);
            let free = !declares(unit) && !self.units[unit].acts;
            constant[unit] = state || (free && (like || self.makers_of(unit).all(|maker| constant[maker])));
        }
        let mut gone: Vec<bool> = (0..count).map(|unit| after[unit] && !declares(unit)).collect();
        let (mut read, mut kept) = (vec![false; count], vec![false; count]);
        for unit in (0..count).rev() {
            gone[unit] |= constant[unit] && !declares(unit) && read[unit] && !kept[unit];
            for maker in self.makers_of(unit) {
                read[maker] = true;
                kept[maker] |= !gone[unit];
            }
        }
        gone
    }
}
