//! Check of a program against its parameters.

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

/// Runs [`structure`], and [`parameters`] unless the tensors are in the file of the program.
pub fn program(topology: &Topology, tensors: &[TensorEntry]) -> Vec<Finding> {
    let mut findings = structure(topology);
    if !topology.has_tensors() {
        findings.extend(parameters(topology, tensors));
    }
    findings
}

/// Compares tensors with the variables that a program declares.
///
/// - Errors: `missing-parameter`, `shape-differs`, `dtype-differs`, `duplicate-parameter`.
/// - Warnings: `extra-tensors`, `missing-state` (missing variables that the program does not mark as parameters),
///   `swapped-tensors`, `names-in-other-order`, `lod-differs`, `for-paddle-lite` (quantized weights with scales in attributes).
/// - Unchecked: `saved-as-half` (all tensors are f16 and the program declares another dtype, as after `save_as_fp16` of Paddle:
///   whether it runs depends on the loader), `no-parameters` (no tensors at all).
/// - Notes: `quantized` (scales and weights that differ from their declarations, as Paddle writes them).
///
/// The name of a tensor in the program is its attribute `variable_name` or `renamed_from`, else its path. A declared dimension of
/// -1 matches any size. Vocabularies are not tensors; the format checks them.
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
            let text = format!("two tensors for the variable {}", escape(name));
            // A state dict lists a tensor of a layer under each of its structured names.
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

/// Returns the name of each tensor in the program, in order. The name of optimizer state with the path of its parameter is
/// `PATH_SLOT`.
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
            // State may have its own name, or that of its parameter.
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
        format!("the program has {} parameters, but the file has no tensors to compare with", declared.len());
    let hint = phrase![
        "check the parameter file instead, with ",
        Opt::Program,
        " if the program is in another folder"
    ];
    vec![Finding::unchecked("no-parameters", text).hint(hint)]
}

fn missing(declared: &[&Variable], by_name: &HashMap<&str, &TensorEntry>) -> Vec<Finding> {
    // Training programs mark parameters; the other variables are state, which is often in a file of
    // its own.
    let marked = declared.iter().any(|v| v.parameter);
    let (mut findings, mut state) = (Vec::new(), Vec::new());
    for variable in declared.iter().filter(|v| !by_name.contains_key(v.name.as_str())) {
        if marked && !variable.parameter {
            state.push(variable.name.as_str());
            continue;
        }
        let text = format!("missing parameter, declared in the program as {}", type_of(variable));
        findings.push(Finding::error("missing-parameter", text).on_tensor(escape(&variable.name)));
    }
    if !state.is_empty() {
        let names = listed(state.iter().copied());
        let text = format!(
            "{}: {names}",
            counted(
                state.len(),
                "persistable variable without a tensor",
                "persistable variables without tensors"
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
        "the program does not declare {} of the tensors: {}",
        extra.len(),
        listed(extra.iter().map(String::as_str))
    );
    Some(Finding::warning("extra-tensors", text))
}

/// Returns true if a tensor of that shape can be that variable. Only dense tensors are declared with the shape of their data.
fn fits(variable: &Variable, shape: &Shape, quantized: &Quantized<'_>) -> bool {
    variable.kind != VariableKind::Tensor || quantized.admits(variable, shape.dims())
}

fn shapes(pairs: &[(&Variable, &TensorEntry)], quantized: &Quantized<'_>) -> Vec<Finding> {
    let wrong: Vec<_> = pairs.iter().filter(|(v, t)| !fits(v, &t.shape, quantized)).collect();
    let mut findings = Vec::new();
    for (variable, tensor) in &wrong {
        let declared = variable.shape.as_deref().unwrap_or_default();
        let text =
            format!("shape mismatch: the program declares {declared:?}, the tensor is {}", tensor.shape);
        findings.push(Finding::error("shape-differs", text).on_tensor(tensor.name()));
    }
    // Pairs of tensors, by actual and declared shape.
    let mut waiting: HashMap<(Vec<i64>, Vec<i64>), Vec<&TensorEntry>> = HashMap::new();
    for (variable, tensor) in &wrong {
        let Some(declared) = &variable.shape else { continue };
        let found: Option<Vec<i64>> = tensor.shape.dims().iter().map(|&d| i64::try_from(d).ok()).collect();
        let Some(found) = found else { continue };
        let other = waiting.get_mut(&(declared.clone(), found.clone())).and_then(Vec::pop);
        match other {
            Some(other) => {
                let text = format!(
                    "{} and {} have each other's shapes and may be swapped",
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

/// If shapes differ: tests whether they match with the names sorted in another order.
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
        (bytes, "by bytes"),
        (natural, "in natural order (fc_2 before fc_10)"),
        (declared, "in the order of the program"),
    ];
    let (_, how) = candidates.iter().find(|(names, _)| names.len() == tensors.len() && fit(names))?;
    let text = format!("all shapes match if the names are sorted {how}");
    Some(
        Finding::warning("names-in-other-order", text)
            .hint("in a combined file, tensors are sorted by the bytes of their names"),
    )
}

/// Compares names in natural order: runs of digits by their value.
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
            "all tensors are f16, but the program declares another dtype for {} of {}: saved in half precision",
            wrong.len(),
            pairs.len()
        );
        let hint = phrase![
            "Paddle fails when it runs an operator, unless the model is loaded with load_as_fp16 or the program is cast \
             too; restore the declared dtype with ",
            Opt::Cast.with("f32")
        ];
        return vec![Finding::unchecked("saved-as-half", text).hint(hint)];
    }
    let one = |(variable, tensor): &&(&Variable, &TensorEntry)| {
        let declared = variable.dtype.map_or("another dtype", DType::name);
        let text =
            format!("dtype mismatch: the program declares {declared}, the tensor is {}", tensor.stored);
        Finding::error("dtype-differs", text).on_tensor(tensor.name())
    };
    wrong.iter().map(one).collect()
}

/// Reports tensors that differ from their declarations because they are quantized.
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
            "{count} more or fewer dimensions of size 1 than declared, which Paddle accepts: {}",
            listed(&scales)
        );
        findings.push(Finding::note("quantized", text));
    }
    let weights = of(QuantizedRole::Weight);
    if !weights.is_empty() {
        let count = counted(weights.len(), "quantized weight is", "quantized weights are");
        let text = format!(
            "{count} stored as i8; the program declares another dtype and dequantizes: {}",
            listed(&weights)
        );
        findings.push(Finding::note("quantized", text));
    }
    let lite = of(QuantizedRole::LiteWeight);
    if !lite.is_empty() {
        let count =
            counted(lite.len(), "quantized weight has its scale", "quantized weights have their scales");
        let text = format!("{count} in an attribute of an operator: {}", listed(&lite));
        let hint = "use Paddle Lite for this model; Paddle fails when it runs the operator";
        findings.push(Finding::warning("for-paddle-lite", text).hint(hint));
    }
    findings
}

/// Compares the declared LoD levels of a variable with those of its tensor.
fn levels(variable: &Variable, tensor: &TensorEntry) -> Option<Finding> {
    let Some(Value::List(levels)) = tensor.attributes.get(LOD) else { return None };
    let declared = usize::try_from(variable.lod_level).ok()?;
    if levels.is_empty() || levels.len() == declared {
        return None;
    }
    let text =
        format!("LoD mismatch: the program declares {declared} levels, the tensor has {}", levels.len());
    Some(Finding::warning("lod-differs", text).on_tensor(tensor.name()))
}

/// Formats the declared dtype and shape of a variable.
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
