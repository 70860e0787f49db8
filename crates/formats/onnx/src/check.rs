//! Outline of a file, and checks of a model.

use crate::external::Place as Outside;
use crate::graph::{self, Place};
use crate::read;
use crate::skeleton::{RAW, Skeleton};
use crate::typed::{DOUBLES, FLOATS};
use crate::wire::LEN;
use std::collections::{BTreeMap, HashSet};
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::{Checkpoint, escape_text};
use weighbridge_core::error::Result;
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::text::quoted;
use weighbridge_core::topology::{Block, Topology};
use weighbridge_io::source::SourceRef;

/// Bytes at the beginning of a file that decide whether it is a model.
const HEAD: u64 = 32;
/// Maximum number of findings of one kind.
const MAX_FINDINGS: usize = 20;

/// Returns the ranges of a file without elements.
pub(crate) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let head = weighbridge_io::source::read_vec(&**source, 0, source.len().min(HEAD))?;
    if !read::recognises(&head, source) {
        // External data: writers align the elements.
        return Ok(Outline::new(Gaps::Free));
    }
    let limits = limits.with_budget_of(source);
    let skeleton = Skeleton::read(source, &limits, false)?;
    let content = graph::parse(&skeleton.bytes, &limits.budget_of(source))?;
    let mut outline = Outline::new(Gaps::Forbidden);
    let mut at = 0;
    for (described, stored) in content.tensors.iter().zip(&skeleton.tensors) {
        for run in stored.runs.iter().filter(|run| run.len > 0) {
            outline.header(at, run.at.saturating_sub(at), "ONNX model");
            at = run.at.saturating_add(run.len);
            let is_plain = run.wire == LEN && matches!(run.field, RAW | FLOATS | DOUBLES);
            if !read::is_listed(described) {
                outline.unread(run.at, run.len, "elements of a tensor that is not listed");
            } else if !is_plain || stored.runs.len() > 1 {
                outline.elements = true;
                outline.elements(run.at, run.len, "elements in a typed field");
            }
        }
    }
    outline.header(at, source.len().saturating_sub(at), "ONNX model");
    Ok(outline)
}

/// Checks names, the order of operators, and external data.
pub(crate) fn check(checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
    let Some(topology) = checkpoint.topology.as_deref().filter(|topology| topology.form == graph::FORM)
    else {
        return Ok(Vec::new());
    };
    let content = graph::parse_again(topology)?;
    let mut findings = Vec::new();
    for one in content.tensors.iter().filter(|one| one.is_duplicate).take(MAX_FINDINGS) {
        if let Place::Initializer(name) = &one.place {
            let text = format!("two stored tensors have the name {}", quoted(name));
            findings.push(Finding::error("duplicate-name", text).on_tensor(&one.path));
        }
    }
    findings.extend(values(topology));
    findings.extend(opsets(topology));
    let mut spans: BTreeMap<(String, u64), (u64, String)> = BTreeMap::new();
    for one in content.tensors.iter().filter(|one| one.header.is_external) {
        let place = Outside::of(&one.header)?;
        let (dtype, shape, _) = read::layout(one.header.dtype, &one.header.dims)?;
        let end = place.offset.saturating_add(shape.bytes(dtype).unwrap_or(0));
        let known = spans.entry((place.name().to_owned(), place.offset)).or_insert((0, String::new()));
        if known.0 < end {
            *known = (end, one.path.to_text());
        }
    }
    let mut last: Option<(&String, u64, &String)> = None;
    for ((file, begin), (end, name)) in &spans {
        if let Some((_, _, other)) = last.filter(|(own, stop, _)| *own == file && stop > begin)
            && findings.len() < 3 * MAX_FINDINGS
        {
            let text = format!(
                "its external data begins within that of {}, in {}",
                escape_text(other),
                escape_text(file)
            );
            findings.push(Finding::error("overlap", text).on_tensor(escape_text(name)));
        }
        if last.is_none_or(|(own, stop, _)| own != file || stop < *end) {
            last = Some((file, *end, name));
        }
    }
    Ok(findings)
}

/// Finds values that two operators make, and those used before they are made. Names that no operator makes are reported by the check
/// of the program.
fn values(topology: &Topology) -> Vec<Finding> {
    let (mut twice, mut early) = (Vec::new(), Vec::new());
    for (number, block) in topology.blocks.iter().enumerate() {
        let all: HashSet<&str> = made(block).collect();
        let mut known: HashSet<&str> = HashSet::new();
        for operator in &block.operators {
            for name in operator.inputs.iter().flat_map(|slot| &slot.arguments).map(String::as_str) {
                if all.contains(name) && !known.contains(name) && early.len() < MAX_FINDINGS {
                    let text = format!(
                        "{} in block {number} reads {} before an operator makes it",
                        quoted(&operator.kind),
                        quoted(name)
                    );
                    early.push(Finding::error("operators-unsorted", text));
                }
            }
            for name in operator.outputs.iter().flat_map(|slot| &slot.arguments).map(String::as_str) {
                if !name.is_empty() && !known.insert(name) && twice.len() < MAX_FINDINGS {
                    let text = format!("two operators in block {number} make {}", quoted(name));
                    twice.push(Finding::error("duplicate-value", text));
                }
            }
        }
    }
    twice.extend(early);
    twice
}

/// Returns the names that operators of a block make.
fn made(block: &Block) -> impl Iterator<Item = &str> {
    let slots = block.operators.iter().flat_map(|operator| &operator.outputs);
    slots.flat_map(|slot| &slot.arguments).map(String::as_str).filter(|name| !name.is_empty())
}

/// Finds domains of operators whose version the model does not state.
fn opsets(topology: &Topology) -> Option<Finding> {
    let stated: HashSet<&str> = topology.operator_versions.iter().map(|(name, _)| name.as_str()).collect();
    let domain = |kind: &'_ str| kind.rsplit_once(':').map_or("ai.onnx", |(domain, _)| domain).to_owned();
    let missing =
        topology.operators().map(|o| domain(&o.kind)).find(|name| !stated.contains(name.as_str()))?;
    let text = format!("the model uses operators of {} and does not state their version", quoted(&missing));
    Some(Finding::error("no-opset", text))
}
