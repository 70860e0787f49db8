//! Removal of training parts and source information from a program.

use super::edit::Edits;
use super::model::{Attr, Model, Op};
use super::view::{fed, stored};
use super::words::{DATA, FETCH, PARAMETER, SHADOW_OUTPUT};
use super::{SourceLeak, Strip, StripReport};
use crate::flow::{Flow, IS_TEST, Phase, SOURCE, short};
use crate::strip_options::no_such_output;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use weighbridge_core::error::Result;
use weighbridge_core::topology::{AttributeValue, Topology};

/// Training operators, besides those whose name ends in `_grad`.
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

/// Returns the training phase of an operator.
fn phase(op: &Op) -> Phase {
    let name = short(&op.name);
    // In-place operators end in `_`; those on sparse rows have a suffix of their own.
    let bare = name.strip_suffix('_').unwrap_or(name);
    let dense = bare.strip_suffix("_dense_param_sparse").unwrap_or(bare);
    if TRAINING.iter().any(|t| *t == name || t.strip_suffix('_').unwrap_or(t) == dense) {
        Phase::Update
    } else if bare.ends_with("_grad") {
        Phase::Backward
    } else {
        Phase::Forward
    }
}

/// Returns the edits that remove the requested parts, and a description of the change. Names are set by the caller.
///
/// # Errors
/// See [`super::PirProgram::strip`].
pub(super) fn edits(model: &Model, topology: &Topology, what: &Strip) -> Result<(Edits, Change)> {
    let mut edits = Edits::default();
    let mut report = StripReport::default();
    let mut kept = Vec::new();
    let main = &model.blocks[0];
    let flow = Flow::of(topology, |block, place| phase(&model.blocks[block].operators[place]));
    let outputs = outputs(model, topology, what)?;
    let mut names: Option<Vec<String>> =
        (!outputs.is_empty()).then(|| outputs.iter().map(|o| o.value.clone()).collect());
    let named = names.is_some();
    let mut gone = vec![false; main.operators.len()];
    let prunes = what.training && (named || flow.has_outputs() || flow.trains());
    if prunes {
        if named || flow.has_outputs() {
            kept = flow.live(names.as_deref());
        } else {
            kept = flow.forward();
            report.ends = flow.ends(&kept);
            names = Some(report.ends.clone());
        }
        for (place, op) in main.operators.iter().enumerate() {
            gone[place] = !kept[place] && ![PARAMETER, DATA].contains(&op.name.as_str());
        }
    }
    let used = |gone: &[bool]| -> HashSet<i64> {
        let blocks = model
            .blocks
            .iter()
            .enumerate()
            .filter(|&(block, _)| !flow.owner(block).is_some_and(|step| gone[step]));
        let operators = blocks
            .flat_map(|(block, b)| b.operators.iter().enumerate().map(move |(place, op)| (block, place, op)));
        let stays = operators.filter(|&(block, place, _)| block > 0 || !gone[place]);
        stays.flat_map(|(_, _, op)| &op.operands).copied().collect()
    };
    let (before, now) = (used(&vec![false; gone.len()]), used(&gone));
    let handed: HashSet<i64> = outputs.iter().map(|o| o.id).collect();
    for (place, op) in main.operators.iter().enumerate() {
        let id = op.results.first().map_or(0, |r| r.id);
        if now.contains(&id) || handed.contains(&id) {
            continue;
        }
        let (parameter, data, kept) = (op.name == PARAMETER, op.name == DATA, stored(op));
        let gradient = op.named.as_ref().is_some_and(|n| n.name.contains("@GRAD"));
        gone[place] |= (what.drops(what.state) && data && kept)
            || (what.gradients && (parameter || data) && gradient)
            || (what.drops(what.unused) && (parameter || kept))
            || (prunes && fed(op) && (named || before.contains(&id)));
    }
    let elements: Vec<_> =
        main.operators.iter().zip(&gone).map(|(op, gone)| (op.span.clone(), *gone)).collect();
    edits.remove(&main.list, &elements);
    for (block, b) in model.blocks.iter().enumerate() {
        for (place, op) in b.operators.iter().enumerate() {
            let step = if block == 0 { Some(place) } else { flow.owner(block) };
            if step.is_some_and(|step| gone[step]) {
                report.operators += 1;
                continue;
            }
            if what.source {
                source(op, &mut edits, &mut report);
            }
            if what.training {
                inference(op, &topology.bytes, &mut edits);
            }
        }
    }
    fetches(model, &outputs, &topology.bytes, &mut edits);
    Ok((edits, Change { report, kept, outputs: names }))
}

/// Result of a strip.
pub(super) struct Change {
    pub(super) report: StripReport,
    /// For each operator of the main block, true if the outputs need it; empty if no operators are removed for their
    /// lack of use.
    pub(super) kept: Vec<bool>,
    /// Values that become outputs, or the ends of the forward pass of a program without outputs.
    pub(super) outputs: Option<Vec<String>>,
}

impl Change {
    /// Compares the outputs of the changed program with those of the original.
    ///
    /// # Errors
    /// See [`Flow::check`].
    pub(super) fn check(&self, model: &Model, before: &Topology, after: &Topology) -> Result<()> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let flow = Flow::of(before, |block, place| phase(&model.blocks[block].operators[place]));
        flow.check(&self.kept, self.outputs.as_deref(), after)
    }
}

/// Value that becomes an output.
struct Output {
    id: i64,
    /// Name of the value in the topology.
    value: String,
    /// Name of the output.
    name: String,
    /// Byte range of its type in the file.
    kind: Range<usize>,
}

/// Returns the values of the main block with the names in `what.outputs`. The name of an existing output refers to
/// its value.
fn outputs(model: &Model, topology: &Topology, what: &Strip) -> Result<Vec<Output>> {
    if what.outputs.is_empty() {
        return Ok(Vec::new());
    }
    let values = || {
        model
            .blocks
            .iter()
            .flat_map(|b| b.arguments.iter().chain(b.operators.iter().flat_map(|op| &op.results)))
    };
    let kinds: HashMap<i64, &Range<usize>> = values().map(|v| (v.id, &v.text)).collect();
    let mut found: HashMap<&str, (i64, &str)> = HashMap::new();
    for (op, described) in model.blocks[0].operators.iter().zip(&topology.blocks[0].operators) {
        let operand =
            op.operands.first().zip(described.inputs.first().and_then(|slot| slot.arguments.first()));
        let results = described.outputs.iter().flat_map(|slot| &slot.arguments).zip(&op.results);
        if [FETCH, SHADOW_OUTPUT].contains(&op.name.as_str()) {
            let name = op.named.as_ref().map(|named| named.name.as_str());
            if let (Some(name), Some((id, value))) = (name, operand) {
                found.entry(name).or_insert((*id, value));
            }
            continue;
        }
        for (name, result) in results.filter(|(_, result)| result.id != 0) {
            found.insert(name, (result.id, name));
        }
    }
    let output = |(place, wanted): (usize, &String)| {
        let (id, value) = *found.get(wanted.as_str()).ok_or_else(|| no_such_output(wanted))?;
        let kind = kinds.get(&id).copied().ok_or_else(|| no_such_output(wanted))?.clone();
        // Paddle names an output after its value, if the value has a name.
        let unnamed = wanted.starts_with('%') || wanted.starts_with("fetch_name_");
        let name = if unnamed { format!("fetch_name_{place}") } else { wanted.clone() };
        Ok(Output { id, value: value.to_owned(), name, kind })
    };
    what.outputs.iter().enumerate().map(output).collect()
}

/// Switches an operator to inference.
fn inference(op: &Op, bytes: &[u8], edits: &mut Edits) {
    let Some(attr) = op.attribute(IS_TEST).filter(|a| a.attribute.value == AttributeValue::Bool(false))
    else {
        return;
    };
    let text = String::from_utf8_lossy(&bytes[attr.span.clone()]);
    let text = match text.contains("false") {
        true => text.replacen("false", "true", 1),
        false => format!(r##"{{"AT":{{"#":"0.a_bool","D":true}},"N":"{IS_TEST}"}}"##),
    };
    edits.replace(attr.span.clone(), text);
}

/// Adds operators that fetch `outputs`, as Paddle writes them.
fn fetches(model: &Model, outputs: &[Output], bytes: &[u8], edits: &mut Edits) {
    let ids = model.blocks.iter().flat_map(|b| b.operators.iter().flat_map(|op| &op.results)).map(|r| r.id);
    let mut id = ids.max().unwrap_or(0).max(0);
    let flag = |name: &str| {
        format!(r##"{{"AT":{{"#":"0.a_array","D":[{{"#":"0.a_bool","D":true}}]}},"N":"{name}"}}"##)
    };
    let end = model.blocks[0].list.end.saturating_sub(1);
    for (column, output) in outputs.iter().enumerate() {
        id = id.saturating_add(1);
        let kind = String::from_utf8_lossy(&bytes[output.kind.clone()]);
        let name = serde_json::Value::from(output.name.as_str());
        let text = format!(
            r##",{{"#":"1.fetch","A":[{{"AT":{{"#":"0.a_str","D":{name}}},"N":"name"}},{{"AT":{{"#":"0.a_i32","D":{column}}},"N":"col"}}],"I":[{{"%":{}}}],"O":[{{"%":{id},"TT":{kind}}}],"OA":[{},{}]}}"##,
            output.id,
            flag("persistable"),
            flag("stop_gradient"),
        );
        edits.replace(end..end, text);
    }
}

fn source(op: &Op, edits: &mut Edits, report: &mut StripReport) {
    let is_source = |attr: &Attr| SOURCE.contains(&attr.attribute.name.as_str());
    for attr in op.attributes.iter().filter(|a| is_source(a)) {
        report.attributes += 1;
        report.attribute_bytes += text(&attr.attribute.value).len() as u64;
    }
    for (number, list) in op.lists.iter().enumerate() {
        let of_list = op.attributes.iter().filter(|a| a.list == number);
        let elements: Vec<_> = of_list.map(|a| (a.span.clone(), is_source(a))).collect();
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

/// Returns all texts of a value, one per line.
fn text(value: &AttributeValue) -> String {
    match value {
        AttributeValue::Text(text) => text.clone(),
        AttributeValue::List(list) => {
            list.iter().map(text).filter(|t| !t.is_empty()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
