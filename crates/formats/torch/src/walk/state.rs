//! Optimizers: which tensors are what one remembers, and about which parameter.
//!
//! ```text
//! {"state": {0: {"step": 1, "exp_avg": tensor, ...}, 1: ...},
//!  "param_groups": [{"lr": 0.1, ..., "params": [0, 1, ...]}, ...]}
//! ```
//!
//! This is what `Optimizer.state_dict` gives. The numbers count the parameters in the order in which the optimizer
//! was given them, which mostly is that of the model; no name is said, but by `param_names` (torch 2.6 and later),
//! and where the keys are names themselves, as FSDP has them. So the parameters are looked for among dicts of
//! nothing but tensors: where the shapes let them stand in one way only in one dict, they are these.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use weighbridge_core::Budget;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Role, StateOf, TensorEntry};
use weighbridge_core::tensor::{DType, Shape};
use weighbridge_pickle::{Cost, Graph, Object, ObjectId};

#[cfg(test)]
mod tests;

/// Tensors of a state dict that no optimizer is given, by the last part of their name: the buffers of torch's own modules.
const BUFFERS: [&str; 3] = ["running_mean", "running_var", "num_batches_tracked"];

/// The two members of an optimizer's state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    state: ObjectId,
    groups: ObjectId,
}

impl Form {
    /// The form of a dict of these members; `None` where it is no state of an optimizer, and where there is no work left to
    /// know that.
    pub(super) fn of(graph: &Graph, members: &[(String, ObjectId)], budget: &Budget) -> Option<Self> {
        let member = |wanted: &str| members.iter().find(|(key, _)| key == wanted).map(|&(_, id)| id);
        let (state, groups) = (member("state")?, member("param_groups")?);
        let (Some(pairs), Object::List(list)) = (graph.pairs(state), graph.object(groups)) else {
            return None;
        };
        let take = |count: usize| look_at(budget, count);
        // Numbers, or names: never both.
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

    /// True for the members that are the optimizer's.
    pub(super) fn has(self, id: ObjectId) -> bool {
        id == self.state || id == self.groups
    }
}

/// Takes the work for so many things; `None` where there is none.
fn look_at(budget: &Budget, count: usize) -> Option<()> {
    budget.take_work((count as u64).saturating_mul(Cost::VISIT)).ok()
}

/// The value of a dict under that text.
fn item(graph: &Graph, dict: ObjectId, wanted: &str) -> Option<ObjectId> {
    // The last one counts, as in Python.
    graph.pairs(dict)?.iter().rev().find(|(key, _)| graph.text(*key) == Some(wanted)).map(|&(_, value)| value)
}

/// A run of tensors in the index, and how many parts of their paths lead to the dict that they stand in.
#[derive(Debug, Clone)]
struct Run {
    tensors: Range<usize>,
    height: usize,
}

/// Optimizers that were met, and dicts of tensors.
#[derive(Debug, Default)]
pub(super) struct Optimizers {
    found: Vec<(Form, Run)>,
    models: Vec<Run>,
}

/// A parameter as its optimizer knows it.
#[derive(Debug, Default)]
struct Param {
    /// The places of its state in the index.
    state: Vec<usize>,
    /// Its shape by that state; `None` where there is none that says it.
    shape: Option<Shape>,
    name: Option<String>,
}

impl Optimizers {
    /// Notes the optimizer whose tensors these are.
    pub(super) fn add(&mut self, form: Form, tensors: Range<usize>, height: usize) {
        if !tensors.is_empty() {
            self.found.push((form, Run { tensors, height }));
        }
    }

    /// Notes a dict of nothing but these tensors.
    pub(super) fn add_model(&mut self, tensors: Range<usize>, height: usize) {
        if !tensors.is_empty() {
            self.models.push(Run { tensors, height });
        }
    }

    /// Gives state its parameter where it is certain enough, as far as the budget goes; the rest stays as it is.
    pub(super) fn assign(self, graph: &Graph, checkpoint: &mut Checkpoint, budget: &Budget) {
        let models = self.models.len();
        for (form, run) in &self.found {
            let groups = graph.sequence(form.groups).unwrap_or_default();
            let lens = groups.iter().map(|&group| params(graph, group).len());
            let count = lens.fold(0usize, usize::saturating_add);
            let all = checkpoint.tensors.len();
            // What is more than there are tensors has no place in any model.
            if count > all || groups.len() > all {
                continue;
            }
            let places = [models, count, groups.len()].into_iter().fold(all, usize::saturating_add);
            if look_at(budget, places).is_none() {
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

    /// The place of each parameter by its name, where all have one and one dict has them all.
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

    /// The place of each parameter by order and shape, where one dict has room for them, and in one way only.
    fn in_order(&self, groups: &[Vec<Param>], tensors: &[TensorEntry]) -> Option<Vec<Option<usize>>> {
        // Each group is in order, but which tensor is of which group only its shape can say.
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
                // Where there are others, what has no shape may stand anywhere.
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
            // One that they fit, though in several ways, is one of which they may be, too.
            let aligned: Option<Vec<_>> = aligned.collect();
            aligned.map(|groups| groups.into_iter().flatten().collect::<Vec<_>>())
        });
        let found = only(fitting)?;
        // All of what has a shape, or nothing.
        let params = groups.iter().flatten();
        let whole = params.zip(&found).all(|(param, place)| param.shape.is_none() || place.is_some());
        whole.then_some(found)
    }
}

impl Param {
    /// True where the tensor may be this parameter.
    fn fits(&self, entry: &TensorEntry) -> bool {
        self.shape.as_ref().is_none_or(|shape| *shape == entry.shape)
    }
}

/// The one item, where there is one only.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}

/// The parameters of a group, as it names them.
fn params(graph: &Graph, group: ObjectId) -> &[ObjectId] {
    item(graph, group, "params").and_then(|params| graph.sequence(params)).unwrap_or_default()
}

/// True for a tensor that an optimizer may have been given.
fn is_trained(entry: &TensorEntry) -> bool {
    let last = entry.path.parts().last().and_then(|name| name.as_str());
    let number = entry.stored.is_float() || matches!(entry.stored, DType::C64 | DType::C128);
    number
        && !entry.attributes.contains_key(Attributes::ALIAS_OF)
        && !last.is_some_and(|last| BUFFERS.contains(&last))
}

/// The key of a tensor in the dict that its path leads to with the first `height` parts.
fn below(entry: &TensorEntry, height: usize) -> Option<String> {
    let parts = entry.path.parts().get(height..)?.iter().map(|part| part.as_str());
    Some(parts.collect::<Option<Vec<_>>>()?.join("."))
}

/// The parameters of each group, with their state. `None` where they contradict each other, or where state of one
/// has more shapes than one.
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
        // A name has several parts; what stands deeper than the slots of a number belongs to it as well.
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

/// The shape that all of this state has but for counts; `Some(None)` where there is nothing else, `None` where
/// it has several.
fn shape_of(state: &[usize], tensors: &[TensorEntry]) -> Option<Option<Shape>> {
    let shapes = || state.iter().filter_map(|&place| tensors.get(place)).map(|entry| &entry.shape);
    let one = |shapes: HashSet<&Shape>| (shapes.len() < 2).then(|| shapes.into_iter().next().cloned());
    let ranked = shapes().filter(|shape| shape.rank() > 0).collect();
    let long = || shapes().filter(|shape| shape.elements() != Some(1)).collect();
    one(ranked).or_else(|| one(long()))
}

/// Where each of `params` stands among `candidates`, in their order; `None` where they do not fit, and no place for
/// any where they fit in several ways. Of all ways the first lets each stand as early as it can, the other as late:
/// where these are one, there is no third.
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
