//! Optimizer state: assigns state tensors to their parameters.
//!
//! ```text
//! {"state": {0: {"step": 1, "exp_avg": tensor, ...}, 1: ...},
//!  "param_groups": [{"lr": 0.1, ..., "params": [0, 1, ...]}, ...]}
//! ```
//!
//! This is the form of `Optimizer.state_dict`. The numbers count the parameters in the order of the optimizer's
//! constructor, usually that of the model. Names are present in `param_names` (torch 2.6 and later), and where the
//! keys are names, as with FSDP. Otherwise the parameters are searched among dicts of tensors: a unique match of the
//! shapes in exactly one dict identifies them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use weighbridge_core::Budget;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Role, StateOf, TensorEntry};
use weighbridge_core::tensor::{DType, Shape};
use weighbridge_pickle::{Cost, Graph, Object, ObjectId};

#[cfg(test)]
mod tests;

/// Buffers of torch's modules by the last part of their name; optimizers never have state for them.
const BUFFERS: [&str; 3] = ["running_mean", "running_var", "num_batches_tracked"];

/// The two members of an optimizer state dict.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    state: ObjectId,
    groups: ObjectId,
}

impl Form {
    /// Recognizes an optimizer state dict by its members; `None` for other dicts, or if the work budget is spent.
    pub(super) fn of(graph: &Graph, members: &[(String, ObjectId)], budget: &Budget) -> Option<Self> {
        let member = |wanted: &str| members.iter().find(|(key, _)| key == wanted).map(|&(_, id)| id);
        let (state, groups) = (member("state")?, member("param_groups")?);
        let (Some(pairs), Object::List(list)) = (graph.pairs(state), graph.object(groups)) else {
            return None;
        };
        let take = |count: usize| take_work(budget, count);
        // All keys are numbers, or all are names.
        let mut named = None;
        let mut is_key = |id: ObjectId| {
            let is_name = graph.text(id).is_some();
            (is_name || graph.int(id).is_some()) && *named.get_or_insert(is_name) == is_name
        };
        take(pairs.len())?;
        let is_state = pairs.iter().all(|&(key, value)| is_key(key) && graph.pairs(value).is_some());
        for &group in list {
            take(1 + graph.pairs(group)?.len())?;
            let Object::List(params) = graph.object(item(graph, group, "params")?) else { return None };
            take(params.len())?;
            if !params.iter().all(|&param| is_key(param)) {
                return None;
            }
        }
        (is_state && !list.is_empty()).then_some(Self { state, groups })
    }

    /// Returns true for the two members.
    pub(super) fn has(self, id: ObjectId) -> bool {
        id == self.state || id == self.groups
    }
}

/// Takes the work for `count` visits; `None` if the budget is spent.
fn take_work(budget: &Budget, count: usize) -> Option<()> {
    budget.take_work((count as u64).saturating_mul(Cost::VISIT)).ok()
}

/// Value of a text key in a dict.
fn item(graph: &Graph, dict: ObjectId, wanted: &str) -> Option<ObjectId> {
    // The last of duplicate keys counts, as in Python.
    graph.pairs(dict)?.iter().rev().find(|(key, _)| graph.text(*key) == Some(wanted)).map(|&(_, value)| value)
}

/// A run of tensors in the index, and the number of path parts of their dict.
#[derive(Debug, Clone)]
struct Run {
    tensors: Range<usize>,
    height: usize,
}

/// Optimizers and dicts of tensors found so far.
#[derive(Debug, Default)]
pub(super) struct Optimizers {
    found: Vec<(Form, Run)>,
    models: Vec<Run>,
}

/// A parameter in an optimizer state dict.
#[derive(Debug, Default)]
struct Param {
    /// Indexes of its state tensors.
    state: Vec<usize>,
    /// Its shape, derived from the state; `None` if the state has no shape.
    shape: Option<Shape>,
    name: Option<String>,
}

impl Optimizers {
    /// Adds an optimizer with its tensors.
    pub(super) fn add(&mut self, form: Form, tensors: Range<usize>, height: usize) {
        if !tensors.is_empty() {
            self.found.push((form, Run { tensors, height }));
        }
    }

    /// Adds a dict that holds only these tensors.
    pub(super) fn add_model(&mut self, tensors: Range<usize>, height: usize) {
        if !tensors.is_empty() {
            self.models.push(Run { tensors, height });
        }
    }

    /// Assigns parameters to state where the match is unique, within the budget; other state stays unassigned.
    pub(super) fn assign(self, graph: &Graph, checkpoint: &mut Checkpoint, budget: &Budget) {
        let models = self.models.len();
        for (form, run) in &self.found {
            let groups = graph.sequence(form.groups).unwrap_or_default();
            let lens = groups.iter().map(|&group| params(graph, group).len());
            let count = lens.fold(0usize, usize::saturating_add);
            let all = checkpoint.tensors.len();
            // More parameters than tensors cannot match any model.
            if count > all || groups.len() > all {
                continue;
            }
            let places = [models, count, groups.len()].into_iter().fold(all, usize::saturating_add);
            if take_work(budget, places).is_none() {
                return;
            }
            let Some(groups) = read(graph, groups, run, &checkpoint.tensors) else { continue };
            let found = self.named(&groups, &checkpoint.tensors).map(|found| (found, false));
            let found =
                found.or_else(|| self.in_order(&groups, &checkpoint.tensors).map(|found| (found, true)));
            let Some((found, guessed)) = found else { continue };
            for (param, place) in groups.iter().flatten().zip(found) {
                let Some(name) = place.and_then(|place| checkpoint.tensors.get(place)).map(TensorEntry::text)
                else {
                    continue;
                };
                for &state in &param.state {
                    if budget.take_memory(Cost::text(name.len() as u64)).is_err() {
                        return;
                    }
                    if let Some(entry) = checkpoint.tensors.get_mut(state) {
                        let of = Box::new(StateOf { name: name.clone(), guessed });
                        entry.role = Role::OptimizerPart { of: Some(of) };
                    }
                }
            }
        }
    }

    /// Index of each parameter by name, if all have names and exactly one dict holds them all.
    fn named(&self, groups: &[Vec<Param>], tensors: &[TensorEntry]) -> Option<Vec<Option<usize>>> {
        let names: Option<HashMap<&str, usize>> = groups
            .iter()
            .flatten()
            .enumerate()
            .map(|(at, param)| Some((param.name.as_deref()?, at)))
            .collect();
        let count: usize = groups.iter().map(Vec::len).sum();
        let names = names.filter(|names| names.len() == count)?;
        let params: Vec<&Param> = groups.iter().flatten().collect();
        only(self.models.iter().filter_map(|model| {
            let mut found = vec![None; count];
            for place in model.tensors.clone() {
                let entry = tensors.get(place)?;
                if let Some(&at) = names.get(below(entry, model.height)?.as_str()) {
                    if !params.get(at)?.fits(entry) {
                        return None;
                    }
                    *found.get_mut(at)? = Some(place);
                }
            }
            found.iter().all(Option::is_some).then_some(found)
        }))
    }

    /// Index of each parameter by order and shape, if exactly one dict matches, in exactly one way.
    fn in_order(&self, groups: &[Vec<Param>], tensors: &[TensorEntry]) -> Option<Vec<Option<usize>>> {
        // Each group is in order, but only the shape decides the group of a tensor.
        if groups.len() > 1 {
            let mut of_group: HashMap<&Shape, usize> = HashMap::new();
            for (number, group) in groups.iter().enumerate() {
                for shape in group.iter().filter_map(|param| param.shape.as_ref()) {
                    if *of_group.entry(shape).or_insert(number) != number {
                        return None;
                    }
                }
            }
        }
        let fitting = self.models.iter().filter_map(|model| {
            let candidates: Vec<(usize, &TensorEntry)> = model
                .tensors
                .clone()
                .filter_map(|place| Some((place, tensors.get(place)?)))
                .filter(|(_, entry)| is_trained(entry))
                .collect();
            let aligned = groups.iter().map(|group| {
                // With several groups, a parameter without a shape may be anywhere.
                let wanted: Vec<&Param> =
                    group.iter().filter(|param| groups.len() == 1 || param.shape.is_some()).collect();
                let ways = ways(&wanted, &candidates)?;
                let mut ways = ways.into_iter();
                let placed = group.iter().map(|param| match groups.len() == 1 || param.shape.is_some() {
                    true => ways.next().flatten(),
                    false => None,
                });
                Some(placed.collect::<Vec<_>>())
            });
            // A dict that matches in several ways is still a candidate.
            let aligned: Option<Vec<_>> = aligned.collect();
            aligned.map(|groups| groups.into_iter().flatten().collect::<Vec<_>>())
        });
        let found = only(fitting)?;
        // All parameters with a shape must match.
        let params = groups.iter().flatten();
        let whole = params.zip(&found).all(|(param, place)| param.shape.is_none() || place.is_some());
        whole.then_some(found)
    }
}

impl Param {
    /// Returns true if the tensor can be this parameter.
    fn fits(&self, entry: &TensorEntry) -> bool {
        self.shape.as_ref().is_none_or(|shape| *shape == entry.shape)
    }
}

/// Returns the item of an iterator of exactly one.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}

/// Keys of the parameters in a group.
fn params(graph: &Graph, group: ObjectId) -> &[ObjectId] {
    item(graph, group, "params").and_then(|params| graph.sequence(params)).unwrap_or_default()
}

/// Returns true for a tensor that an optimizer can train.
fn is_trained(entry: &TensorEntry) -> bool {
    let last = entry.path.parts().last().and_then(|name| name.as_str());
    let number = entry.stored.is_float() || matches!(entry.stored, DType::C64 | DType::C128);
    number
        && !entry.attributes.contains_key(Attributes::ALIAS_OF)
        && !last.is_some_and(|last| BUFFERS.contains(&last))
}

/// Key of a tensor in the dict at the first `height` parts of its path.
fn below(entry: &TensorEntry, height: usize) -> Option<String> {
    let parts = entry.path.parts().get(height..)?.iter().map(|part| part.as_str());
    Some(parts.collect::<Option<Vec<_>>>()?.join("."))
}

/// Reads the parameters of each group with their state. `None` for contradicting keys, or state of several shapes for one
/// parameter.
fn read(graph: &Graph, groups: &[ObjectId], run: &Run, tensors: &[TensorEntry]) -> Option<Vec<Vec<Param>>> {
    let mut places: HashMap<String, (usize, usize)> = HashMap::new();
    let mut read: Vec<Vec<Param>> = Vec::with_capacity(groups.len());
    for (number, &group) in groups.iter().enumerate() {
        let params = params(graph, group);
        let names = item(graph, group, "param_names").and_then(|names| graph.sequence(names));
        let names = names.filter(|names| names.len() == params.len()).unwrap_or_default();
        let mut all = Vec::with_capacity(params.len());
        for (at, &param) in params.iter().enumerate() {
            let key = graph.text(param).map(str::to_owned);
            let text = key.clone().or_else(|| graph.int(param).map(|n| n.to_string()))?;
            if places.insert(text, (number, at)).is_some() {
                return None;
            }
            let name = names.get(at).and_then(|&name| graph.text(name)).map(str::to_owned);
            all.push(Param { name: name.or(key), ..Param::default() });
        }
        read.push(all);
    }
    for place in run.tensors.clone() {
        let entry = tensors.get(place)?;
        let parts = entry.path.parts().get(run.height..)?;
        let [first, middle @ .., _] = parts else { continue };
        if first.as_str() != Some("state") {
            continue;
        }
        // A name has several parts; tensors nested in the slots of a number also belong to it.
        let texts: Option<Vec<&str>> = middle.iter().map(|part| part.as_str()).collect();
        let texts = texts?;
        let number = texts.first().filter(|first| first.parse::<i64>().is_ok());
        let known = places.get(&texts.join(".")).or_else(|| places.get(*number?));
        let Some(param) = known.and_then(|&(group, at)| read.get_mut(group)?.get_mut(at)) else { continue };
        param.state.push(place);
    }
    for param in read.iter_mut().flatten() {
        param.shape = shape_of(&param.state, tensors)?;
    }
    Some(read)
}

/// Common shape of the state, without counters; `Some(None)` for counters only, `None` for several shapes.
fn shape_of(state: &[usize], tensors: &[TensorEntry]) -> Option<Option<Shape>> {
    let shapes = || state.iter().filter_map(|&place| tensors.get(place)).map(|entry| &entry.shape);
    let one = |shapes: HashSet<&Shape>| (shapes.len() < 2).then(|| shapes.into_iter().next().cloned());
    let ranked = shapes().filter(|shape| shape.rank() > 0).collect();
    let long = || shapes().filter(|shape| shape.elements() != Some(1)).collect();
    one(ranked).or_else(|| one(long()))
}

/// Matches `params` to `candidates` in order. Returns `None` without a match, and no index for any parameter if there
/// are several matches. The earliest and the latest match are compared: if they are equal, the match is unique.
fn ways(params: &[&Param], candidates: &[(usize, &TensorEntry)]) -> Option<Vec<Option<usize>>> {
    let mut early = Vec::with_capacity(params.len());
    let mut from = candidates.iter().enumerate();
    for param in params {
        early.push(from.find(|(_, (_, entry))| param.fits(entry))?.0);
    }
    let mut from = candidates.iter().enumerate().rev();
    let mut same = true;
    for (param, &early) in params.iter().zip(&early).rev() {
        let late = from.find(|(_, (_, entry))| param.fits(entry))?.0;
        same &= late == early || param.state.is_empty();
    }
    let place = |&at: &usize| candidates.get(at).filter(|_| same).map(|&(place, _)| place);
    Some(early.iter().map(place).collect())
}
