//! A program against the parameters that it shall run with.

use super::{listed, lod::LOD, structure};
use crate::checkpoint::{Attributes, TensorEntry, Value};
use crate::finding::Finding;
use crate::phrase;
use crate::phrase::Opt;
use crate::tensor::{DType, Shape};
use crate::text::{counted, escape};
use crate::topology::{Quantized, QuantizedRole, Topology, Variable, VariableKind};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// [`structure`] and [`parameters`].
pub fn program(topology: &Topology, tensors: &[TensorEntry]) -> Vec<Finding> {
    let mut findings = structure(topology);
    findings.extend(parameters(topology, tensors));
    findings
}

/// Holds tensors against the variables that a program declares.
///
/// Errors: `missing-parameter`, `shape-differs`, `dtype-differs`, `duplicate-parameter`. Warnings:
/// `extra-tensors`, `missing-state` (variables that are no parameters, where the program marks
/// those), `swapped-tensors`, `names-in-other-order`, `lod-differs`. Unchecked: `saved-as-half` (all
/// tensors are f16 and the program says otherwise, as Paddle's `save_as_fp16` leaves it: whether
/// it runs depends on how it is loaded), and `no-parameters` where there are no tensors at all.
/// Notes: `quantized` (scales and weights that differ from their declarations, as Paddle writes them). Warnings:
/// `for-paddle-lite` (quantized weights whose scales are attributes).
///
/// A tensor is known to the program by its attribute `variable_name` or `renamed_from`, else by its
/// path. An extent of -1 matches every extent. Vocabularies are no tensors, and left to the format.
pub fn parameters(topology: &Topology, tensors: &[TensorEntry]) -> Vec<Finding> {
    let mut declared = topology.parameters();
    declared.retain(|v| v.kind != VariableKind::Vocab);
    if tensors.is_empty() {
        return no_tensors(&declared);
    }
    let names = variable_names(topology, tensors);
    let mut findings = Vec::new();
    let mut by_name: HashMap<&str, &TensorEntry> = HashMap::with_capacity(tensors.len());
    for (name, tensor) in names.iter().zip(tensors) {
        if by_name.insert(name, tensor).is_some() {
            let text = format!("two tensors are the variable {}", escape(name));
            // A state dict lists a layer's tensor under each of its structured names.
            let listed = tensor.text_attribute(Attributes::VARIABLE_NAME).is_some();
            let finding = if listed { Finding::note } else { Finding::error };
            findings.push(finding("duplicate-parameter", text).on_tensor(tensor.name()));
        }
    }
    findings.extend(missing(&declared, &by_name));
    findings.extend(extra(&declared, &names, tensors));
    let pairs: Vec<(&Variable, &TensorEntry)> =
        declared.iter().filter_map(|v| Some((*v, *by_name.get(v.name.as_str())?))).collect();
    let quantized = topology.quantized();
    findings.extend(shapes(&pairs, &quantized));
    findings.extend(order(topology, &names, tensors, &quantized));
    findings.extend(dtypes(&pairs, &quantized));
    findings.extend(quantization(&pairs, &quantized));
    findings.extend(pairs.iter().filter_map(|(variable, tensor)| levels(variable, tensor)));
    findings
}

/// The name by which the program knows each tensor, in their order. Optimizer state, whose path is
/// that of its parameter, goes by `PATH_SLOT`.
pub fn variable_names(topology: &Topology, tensors: &[TensorEntry]) -> Vec<String> {
    let declared: HashSet<&str> = topology.parameters().iter().map(|v| v.name.as_str()).collect();
    let own = |tensor: &TensorEntry| {
        let attribute = |key| tensor.text_attribute(key).map(str::to_owned);
        attribute(Attributes::VARIABLE_NAME)
            .or_else(|| attribute(Attributes::PARAMETER_VARIABLE))
            .or_else(|| attribute(Attributes::RENAMED_FROM))
            .unwrap_or_else(|| tensor.path.to_text())
    };
    let plain: HashSet<String> = tensors.iter().filter(|t| t.role.slot().is_none()).map(own).collect();
    let name = |tensor: &TensorEntry| {
        let own = own(tensor);
        match tensor.role.slot() {
            // State may carry its own name, or that of its parameter.
            Some(_) if declared.contains(own.as_str()) && !plain.contains(&own) => own,
            Some(slot) => format!("{own}_{}", slot.to_text()),
            None => own,
        }
    };
    tensors.iter().map(name).collect()
}

fn no_tensors(declared: &[&Variable]) -> Vec<Finding> {
    if declared.is_empty() {
        return Vec::new();
    }
    let text =
        format!("the program has {} parameters, and there is no tensor to hold against them", declared.len());
    let hint = phrase![
        "check the parameter file instead, with ",
        Opt::Program,
        " for the program if it does not stand beside it"
    ];
    vec![Finding::unchecked("no-parameters", text).hint(hint)]
}

fn missing(declared: &[&Variable], by_name: &HashMap<&str, &TensorEntry>) -> Vec<Finding> {
    // Programs for training say which variables are parameters; then the others are state, which
    // often is in a file of its own.
    let marked = declared.iter().any(|v| v.parameter);
    let (mut findings, mut state) = (Vec::new(), Vec::new());
    for variable in declared.iter().filter(|v| !by_name.contains_key(v.name.as_str())) {
        if marked && !variable.parameter {
            state.push(variable.name.as_str());
            continue;
        }
        let text = format!(
            "the program needs it, and there is no such tensor; it is declared {}",
            type_of(variable)
        );
        findings.push(Finding::error("missing-parameter", text).on_tensor(escape(&variable.name)));
    }
    if !state.is_empty() {
        let names = listed(state.iter().copied());
        let text = format!(
            "{} not there, though no parameter: {names}",
            counted(
                state.len(),
                "variable that the program keeps is",
                "variables that the program keeps are"
            )
        );
        findings.push(Finding::warning("missing-state", text));
    }
    findings
}

fn extra(declared: &[&Variable], names: &[String], tensors: &[TensorEntry]) -> Option<Finding> {
    let known: HashSet<&str> = declared.iter().map(|v| v.name.as_str()).collect();
    let extra: Vec<String> = names
        .iter()
        .zip(tensors)
        .filter(|(name, _)| !known.contains(name.as_str()))
        .map(|(_, tensor)| tensor.text())
        .collect();
    if extra.is_empty() {
        return None;
    }
    let text = format!(
        "the program does not know {} of the tensors: {}",
        extra.len(),
        listed(extra.iter().map(String::as_str))
    );
    Some(Finding::warning("extra-tensors", text))
}

/// True where a tensor of that shape can be that variable. Only dense tensors are declared with the
/// shape of their data.
fn fits(variable: &Variable, shape: &Shape, quantized: &Quantized<'_>) -> bool {
    variable.kind != VariableKind::Tensor || quantized.admits(variable, shape.dims())
}

fn shapes(pairs: &[(&Variable, &TensorEntry)], quantized: &Quantized<'_>) -> Vec<Finding> {
    let wrong: Vec<_> = pairs.iter().filter(|(v, t)| !fits(v, &t.shape, quantized)).collect();
    let mut findings = Vec::new();
    for (variable, tensor) in &wrong {
        let declared = variable.shape.as_deref().unwrap_or_default();
        let text = format!("the program declares {declared:?}, the tensor is {}", tensor.shape);
        findings.push(Finding::error("shape-differs", text).on_tensor(tensor.name()));
    }
    // Of every two: by the shape that a tensor has and the one that it should have.
    let mut waiting: HashMap<(Vec<i64>, Vec<i64>), Vec<&TensorEntry>> = HashMap::new();
    for (variable, tensor) in &wrong {
        let Some(declared) = &variable.shape else { continue };
        let found: Option<Vec<i64>> = tensor.shape.dims().iter().map(|&d| i64::try_from(d).ok()).collect();
        let Some(found) = found else { continue };
        let other = waiting.get_mut(&(declared.clone(), found.clone())).and_then(Vec::pop);
        match other {
            Some(other) => {
                let text = format!(
                    "{} and {} each have the shape of the other: swapped?",
                    other.name(),
                    tensor.name()
                );
                findings.push(Finding::warning("swapped-tensors", text));
            }
            None => waiting.entry((found, declared.clone())).or_default().push(tensor),
        }
    }
    findings
}

/// Where shapes differ: would they fit if the names had been sorted in another way?
fn order(
    topology: &Topology,
    names: &[String],
    tensors: &[TensorEntry],
    quantized: &Quantized<'_>,
) -> Option<Finding> {
    let variables: HashMap<&str, &Variable> =
        topology.parameters().into_iter().map(|v| (v.name.as_str(), v)).collect();
    let fit = |names: &[&str]| {
        names
            .iter()
            .zip(tensors)
            .all(|(name, t)| variables.get(name).is_some_and(|v| fits(v, &t.shape, quantized)))
    };
    let as_given: Vec<&str> = names.iter().map(String::as_str).collect();
    let known = as_given.iter().all(|name| variables.contains_key(name));
    if !known || fit(&as_given) {
        return None;
    }
    let wanted: HashSet<&str> = as_given.iter().copied().collect();
    let declared = topology.blocks.iter().flat_map(|b| &b.variables).map(|v| v.name.as_str());
    let mut once = HashSet::new();
    let declared: Vec<&str> = declared.filter(|name| wanted.contains(name) && once.insert(*name)).collect();
    let mut natural = as_given.clone();
    natural.sort_by(|a, b| natural_order(a, b));
    let mut bytes = as_given.clone();
    bytes.sort_unstable();
    let candidates = [
        (bytes, "by their bytes"),
        (natural, "with numbers counted (fc_2 before fc_10)"),
        (declared, "as the program declares them"),
    ];
    let (_, how) = candidates.iter().find(|(names, _)| names.len() == tensors.len() && fit(names))?;
    let text = format!("all shapes would fit if the tensors stood in the order of their names sorted {how}");
    Some(
        Finding::warning("names-in-other-order", text).hint("a combined file goes by the bytes of the names"),
    )
}

/// The order in which people sort: runs of digits by their value.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        let digits = |text: &[u8]| text.iter().take_while(|c| c.is_ascii_digit()).count();
        match (digits(a), digits(b)) {
            (0, _) | (_, 0) => match (a.split_first(), b.split_first()) {
                (Some((x, rest_a)), Some((y, rest_b))) if x == y => (a, b) = (rest_a, rest_b),
                _ => return a.cmp(b),
            },
            (n, m) => {
                let (x, y) = (trim_zeros(&a[..n]), trim_zeros(&b[..m]));
                let order = x.len().cmp(&y.len()).then_with(|| x.cmp(y));
                if order != Ordering::Equal {
                    return order;
                }
                (a, b) = (&a[n..], &b[m..]);
            }
        }
    }
}

fn trim_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|&&c| c == b'0').count();
    &digits[zeros..]
}

fn dtypes(pairs: &[(&Variable, &TensorEntry)], quantized: &Quantized<'_>) -> Vec<Finding> {
    let differs = |(v, t): &&(&Variable, &TensorEntry)| !quantized.admits_dtype(v, t.stored);
    let typed = |pair: &&(&Variable, &TensorEntry)| pair.0.kind != VariableKind::Vocab && differs(pair);
    let wrong: Vec<_> = pairs.iter().filter(typed).collect();
    let all_half = pairs.iter().all(|(_, t)| t.stored == DType::F16);
    if all_half && !wrong.is_empty() {
        let text = format!(
            "all tensors are f16, and the program declares {} of {} otherwise: they were saved as half precision",
            wrong.len(),
            pairs.len()
        );
        let hint = phrase![
            "Paddle refuses it when an operator runs, unless it loads with load_as_fp16 or the program is cast too; ",
            Opt::Cast.with("f32"),
            " makes it fit again"
        ];
        return vec![Finding::unchecked("saved-as-half", text).hint(hint)];
    }
    let one = |(variable, tensor): &&(&Variable, &TensorEntry)| {
        let declared = variable.dtype.map_or("another type", DType::name);
        let text = format!("the program declares {declared}, the tensor is {}", tensor.stored);
        Finding::error("dtype-differs", text).on_tensor(tensor.name())
    };
    wrong.iter().map(one).collect()
}

/// Tensors that differ from their declarations and are right so, because they were quantized.
fn quantization(pairs: &[(&Variable, &TensorEntry)], quantized: &Quantized<'_>) -> Vec<Finding> {
    let of = |role: QuantizedRole| {
        let differ = |(v, t): &&(&Variable, &TensorEntry)| match role {
            QuantizedRole::Scale => !v.admits(t.shape.dims()) && quantized.admits(v, t.shape.dims()),
            _ => v.dtype != Some(t.stored) && quantized.admits_dtype(v, t.stored),
        };
        let differ = pairs.iter().filter(|(v, _)| quantized.role(&v.name) == Some(role)).filter(differ);
        differ.map(|(_, tensor)| tensor.text()).collect::<Vec<_>>()
    };
    let listed = |names: &[String]| listed(names.iter().map(String::as_str));
    let mut findings = Vec::new();
    let scales = of(QuantizedRole::Scale);
    if !scales.is_empty() {
        let count = counted(scales.len(), "quantization scale has", "quantization scales have");
        let text = format!(
            "{count} more or fewer extents of 1 than the program declares, which is the same to Paddle: {}",
            listed(&scales)
        );
        findings.push(Finding::note("quantized", text));
    }
    let weights = of(QuantizedRole::Weight);
    if !weights.is_empty() {
        let count = counted(weights.len(), "quantized weight is", "quantized weights are");
        let text = format!(
            "{count} i8, which the program declares otherwise and makes real numbers of: {}",
            listed(&weights)
        );
        findings.push(Finding::note("quantized", text));
    }
    let lite = of(QuantizedRole::LiteWeight);
    if !lite.is_empty() {
        let count =
            counted(lite.len(), "quantized weight has its scale", "quantized weights have their scales");
        let text = format!("{count} in an attribute of an operator: {}", listed(&lite));
        let hint = "such a model is for Paddle Lite; Paddle refuses it when the operator runs";
        findings.push(Finding::warning("for-paddle-lite", text).hint(hint));
    }
    findings
}

/// The levels of LoD that a variable is declared with against those that its tensor has.
fn levels(variable: &Variable, tensor: &TensorEntry) -> Option<Finding> {
    let Some(Value::List(levels)) = tensor.attributes.get(LOD) else { return None };
    let declared = usize::try_from(variable.lod_level).ok()?;
    if levels.is_empty() || levels.len() == declared {
        return None;
    }
    let text = format!("the program declares {declared} levels of LoD, the tensor has {}", levels.len());
    Some(Finding::warning("lod-differs", text).on_tensor(tensor.name()))
}

/// What a variable is declared as, for people.
fn type_of(variable: &Variable) -> String {
    let dtype = match (variable.dtype, &variable.dtype_name) {
        (Some(dtype), _) => dtype.to_string(),
        (None, Some(word)) => escape(word),
        (None, None) => escape(variable.kind.as_str()),
    };
    variable.shape.as_ref().map_or(dtype.clone(), |shape| format!("{dtype} {shape:?}"))
}

#[cfg(test)]
mod tests;
