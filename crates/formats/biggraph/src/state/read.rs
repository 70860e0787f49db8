//! Parsing of a blob to the optimizer state of each parameter.

use std::sync::Arc;
use weighbridge_core::checkpoint::{Name, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{ConcatSource, RangeSource, SourceRef};
use weighbridge_pickle::{Graph, Object, ObjectId};
use weighbridge_torch_archive::{self as torch, Saved};

/// Slots of Adagrad.
const SUM: &str = "sum";
const STEP: &str = "step";
/// Maximum nesting of option values; BigGraph's have three levels.
const MAX_DEPTH: usize = 16;
/// Maximum number of slots and values taken from one blob, and of pairs visited for them. A pickle
/// can refer to the same list many times.
const MAX_VALUES: usize = 1 << 18;
/// Maximum number of parameters of one optimizer.
const MAX_PARAMETERS: usize = 100_000;

/// Contents of a blob.
#[derive(Debug)]
pub(in super::super) struct State {
    /// Container form written by torch: `zip` or `legacy`.
    pub(in super::super) form: &'static str,
    /// State by parameter, in the order of the blob.
    pub(in super::super) state: Vec<ParameterState>,
    /// Optimizer options; `None` for an empty dict.
    pub(in super::super) groups: Option<Value>,
    /// Parameter numbers, in the order of the optimizer.
    pub(in super::super) parameters: Vec<i64>,
    /// Unknown keys, not in the index.
    pub(in super::super) unknown: Vec<String>,
}

/// Optimizer state of one parameter.
#[derive(Debug)]
pub(in super::super) struct ParameterState {
    /// Number of the parameter.
    pub(in super::super) parameter: i64,
    /// Tensors by name, such as `sum`.
    pub(in super::super) tensors: Vec<(String, TensorEntry)>,
    /// Other values by name, such as a `step` that is an integer.
    pub(in super::super) values: Vec<(String, Value)>,
}

impl ParameterState {
    /// True where all slots that upstream's Adagrad reads are present: torch fails with a
    /// `KeyError` otherwise.
    pub(in super::super) fn is_complete(&self) -> bool {
        let has_sum = self.tensors.iter().any(|(name, _)| name == SUM);
        has_sum
            && (self.tensors.iter().any(|(name, _)| name == STEP)
                || self.values.iter().any(|(name, _)| name == STEP))
    }
}

/// Parses the blob in the elements of `entry`.
///
/// # Errors
/// Errors of the torch reader; `state-form` if it is not an optimizer state.
pub(in super::super) fn read(entry: &TensorEntry, limits: &Limits) -> Result<State> {
    let source = bytes_of(entry)?;
    let saved = torch::read(&source, limits)?;
    if let Some(rest) = saved.archive_rest() {
        return Err(rest.to_error().in_file(source.label()));
    }
    let form = saved.form().as_str();
    let graph = saved.graph();
    let pairs = graph.pairs(saved.root()).ok_or_else(|| wrong("a dict"))?;
    let mut found =
        State { form, state: Vec::new(), groups: None, parameters: Vec::new(), unknown: Vec::new() };
    let mut values = Values { graph, left: MAX_VALUES };
    for &(key, value) in pairs {
        values.spend(1)?;
        match graph.text(key) {
            Some("state") => found.state = state(&saved, value, &mut values, &mut found.unknown)?,
            Some("param_groups") => {
                found.parameters = parameters(&mut values, value)?;
                found.groups = Some(values.value(value, MAX_DEPTH)?);
            }
            other => found.unknown.push(other.unwrap_or("a key that is not text").to_owned()),
        }
    }
    Ok(found)
}

/// Source of the bytes of a one-dimensional byte tensor, in one or more extents.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] if they extend beyond their source.
fn bytes_of(entry: &TensorEntry) -> Result<SourceRef> {
    if let Some(extent) = entry.single_extent() {
        return Ok(Arc::new(RangeSource::new(extent.source.clone(), extent.offset, extent.len)?));
    }
    let mut extents: Vec<_> = entry.extents.iter().collect();
    extents.sort_by_key(|extent| extent.first_row());
    let ranges = extents.iter().map(|extent| (extent.source.clone(), extent.offset, extent.len)).collect();
    Ok(Arc::new(ConcatSource::new(entry.path.to_text(), ranges)?))
}

fn wrong(what: &str) -> Error {
    Error::corrupt("state-form", "not an optimizer state dict").expected(what)
}

/// Optimizer state of each parameter.
fn state(
    saved: &Saved,
    id: ObjectId,
    values: &mut Values<'_>,
    unknown: &mut Vec<String>,
) -> Result<Vec<ParameterState>> {
    let graph = saved.graph();
    let pairs = graph.pairs(id).ok_or_else(|| wrong("a dict as state"))?;
    let mut all = Vec::with_capacity(pairs.len());
    for &(key, value) in pairs {
        let parameter = graph.int(key).ok_or_else(|| wrong("numbers of parameters as keys of state"))?;
        let slots = graph.pairs(value).ok_or_else(|| wrong("a dict for each parameter"))?;
        let mut one = ParameterState { parameter, tensors: Vec::new(), values: Vec::new() };
        // Parameters may share slots in the pickle; here each gets its own.
        values.spend(1 + slots.len())?;
        for &(name, value) in slots {
            let name = graph.text(name).ok_or_else(|| wrong("text as names of slots"))?.to_owned();
            // The caller sets the path of the parameter.
            if let Some(entry) = saved.tensor(value, TensorPath::value())? {
                one.tensors.push((name, entry));
                continue;
            }
            match values.value(value, 1) {
                Ok(value) => one.values.push((name, value)),
                Err(error) if values.left == 0 => return Err(error),
                Err(_) => unknown.push(name),
            }
        }
        all.push(one);
    }
    Ok(all)
}

/// Numbers in `params` of all groups, in order.
fn parameters(values: &mut Values<'_>, groups: ObjectId) -> Result<Vec<i64>> {
    let graph = values.graph;
    let mut all = Vec::new();
    for &group in graph.sequence(groups).ok_or_else(|| wrong("a list as param_groups"))? {
        let pairs = graph.pairs(group).ok_or_else(|| wrong("a dict for each group"))?;
        values.spend(1 + pairs.len())?;
        let params = pairs.iter().rev().find(|(key, _)| graph.text(*key) == Some("params"));
        let numbers = params.and_then(|(_, list)| graph.sequence(*list)).unwrap_or_default();
        // A group may occur in the list many times, but a parameter may not.
        if all.len() + numbers.len() > MAX_PARAMETERS {
            return Err(Error::limit("state-size", "the optimizer has too many parameters"));
        }
        for &number in numbers {
            all.push(graph.int(number).ok_or_else(|| wrong("numbers as params"))?);
        }
    }
    Ok(all)
}

/// Plain values of a graph. A shared list is copied for each reference, so all values taken
/// from a blob share one budget.
struct Values<'a> {
    graph: &'a Graph,
    /// Remaining values; 0 once the budget is exceeded.
    left: usize,
}

fn too_much() -> Error {
    Error::limit("state-size", "the optimizer state or options are too large or too deeply nested")
}

impl Values<'_> {
    /// Charges the budget.
    fn spend(&mut self, count: usize) -> Result<()> {
        let left = self.left.checked_sub(count);
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or_else(too_much)
    }

    fn value(&mut self, id: ObjectId, depth: usize) -> Result<Value> {
        self.spend(1)?;
        let below = || depth.checked_sub(1).ok_or_else(too_much);
        Ok(match self.graph.object(id) {
            Object::None => Value::Null,
            Object::Bool(b) => Value::Bool(*b),
            Object::Int(n) => Value::I64(*n),
            Object::Float(x) => Value::F64(x.to_bits()),
            Object::Text(_) | Object::ByteString(_) => {
                let text = self.graph.text(id).ok_or_else(|| wrong("short texts as options"))?;
                Value::Text(text.to_owned())
            }
            Object::List(items) => {
                let depth = below()?;
                Value::List(items.iter().map(|item| self.value(*item, depth)).collect::<Result<_>>()?)
            }
            Object::Tuple(items) => {
                let depth = below()?;
                Value::List(items.iter().map(|item| self.value(*item, depth)).collect::<Result<_>>()?)
            }
            _ => {
                let pairs = self.graph.pairs(id).ok_or_else(|| wrong("plain values as options"))?;
                let depth = below()?;
                let pair = |&(key, value): &(ObjectId, ObjectId)| {
                    let name = match (self.graph.text(key), self.graph.int(key)) {
                        (Some(text), _) => Name::from(text),
                        (None, Some(number)) => Name::from(number.to_string().as_str()),
                        (None, None) => return Err(wrong("texts as names of options")),
                    };
                    Ok((name, self.value(value, depth)?))
                };
                Value::Map(pairs.iter().map(pair).collect::<Result<_>>()?)
            }
        })
    }
}
