//! Choice of the tensors that are kept of several checkpoints, with their state.

use super::variables::{of_which, partly};
use super::{Same, collision};
use crate::checkpoint::{Attributes, Checkpoint, Name, Role, TensorEntry, TensorPath};
use crate::error::Result;
use std::collections::{BTreeSet, HashMap, HashSet};

type Key = (TensorPath, Option<Name>);

fn key(tensor: &TensorEntry) -> Key {
    (tensor.path.clone(), tensor.role.slot().cloned())
}

fn is_state(tensor: &TensorEntry) -> bool {
    tensor.role.is_state()
}

/// True for state with a path of its own, as in checkpoints of PyTorch.
fn is_part(tensor: &TensorEntry) -> bool {
    matches!(tensor.role, Role::OptimizerPart { .. })
}

/// Returns the common path of all state of one parameter in its file: the path of the parameter, or of the dict around it.
fn group(state: &TensorEntry) -> &[Name] {
    let path = state.path.parts();
    match path.split_last() {
        Some((_, dict)) if is_part(state) => dict,
        _ => path,
    }
}

/// Returns for each tensor of each source whether it is kept.
pub(super) fn choose(sources: &[Checkpoint], same: Same) -> Result<Vec<Vec<bool>>> {
    let mut owners: HashMap<Key, usize> = HashMap::new();
    for (number, source) in sources.iter().enumerate() {
        for tensor in &source.tensors {
            let owner = owners.entry(key(tensor)).or_insert(number);
            match same {
                _ if *owner == number => {}
                Same::First => {}
                Same::Last => *owner = number,
                Same::Refuse | Same::Prefix => return Err(collision(tensor, &sources[*owner], source)),
            }
        }
    }
    let parameters = Parameters::of(sources);
    let parts: Vec<Parts> =
        sources.iter().enumerate().map(|(number, source)| Parts::of(source, number, &owners)).collect();
    let mut choices = Vec::with_capacity(sources.len());
    for (number, (source, parts)) in sources.iter().zip(&parts).enumerate() {
        let mut kept = Vec::with_capacity(source.tensors.len());
        for tensor in &source.tensors {
            kept.push(if is_part(tensor) {
                parts.keep(tensor, source, &parameters)?
            } else if is_state(tensor) {
                parameters.keep_state_of(tensor, number, source, &owners)?
            } else {
                owners.get(&key(tensor)) == Some(&number)
            });
        }
        choices.push(kept);
    }
    one_source_of_state(sources, same, &mut choices);
    Ok(choices)
}

/// Parameters of all sources, by every name that state may use for them.
struct Parameters<'a> {
    /// Source and path of each parameter with that name.
    by_name: HashMap<String, Vec<(usize, &'a TensorPath)>>,
    /// The sources with a parameter of that path.
    by_path: HashMap<&'a TensorPath, BTreeSet<usize>>,
    /// True where several sources have a parameter of the same path.
    are_contested: bool,
}

impl<'a> Parameters<'a> {
    fn of(sources: &'a [Checkpoint]) -> Self {
        let mut all = Self { by_name: HashMap::new(), by_path: HashMap::new(), are_contested: false };
        for (number, source) in sources.iter().enumerate() {
            for tensor in source.tensors.iter().filter(|tensor| !is_state(tensor)) {
                all.by_path.entry(&tensor.path).or_default().insert(number);
                let other = [Attributes::VARIABLE_NAME, Attributes::STRUCTURED_NAME]
                    .map(|key| tensor.text_attribute(key));
                let other = other.into_iter().flatten().map(str::to_owned);
                let names: BTreeSet<String> = other.chain([tensor.path.to_text()]).collect();
                for name in names {
                    all.by_name.entry(name).or_default().push((number, &tensor.path));
                }
            }
        }
        all.are_contested = all.by_path.values().any(|sources| sources.len() > 1);
        all
    }

    /// True where the parameter is kept that this state of the source `number` was trained with.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`], `state-of-which`.
    fn keep_state_of(
        &self,
        state: &TensorEntry,
        number: usize,
        source: &Checkpoint,
        owners: &HashMap<Key, usize>,
    ) -> Result<bool> {
        let is_taken = |path: &TensorPath, from: usize| owners.get(&(path.clone(), None)) == Some(&from);
        // A parameter with its own path in its own file is the owner.
        if self.by_path.get(&state.path).is_some_and(|sources| sources.contains(&number)) {
            return Ok(is_taken(&state.path, number));
        }
        let path = state.path.to_text();
        let names: BTreeSet<&str> =
            state.text_attribute(Attributes::PARAMETER_VARIABLE).into_iter().chain([path.as_str()]).collect();
        let all = || names.iter().filter_map(|&name| self.by_name.get(name)).flatten();
        let own: Vec<_> = all().filter(|(from, _)| *from == number).collect();
        if !own.is_empty() {
            return Ok(own.iter().all(|(from, path)| is_taken(path, *from)));
        }
        // Without an owner in its file, it may belong to any parameter of that name, or to one that replaces it.
        let mut from: BTreeSet<usize> = all().map(|(from, _)| *from).collect();
        for (_, path) in all() {
            from.extend(self.by_path.get(path).into_iter().flatten());
        }
        if from.len() > 1 { Err(of_which(state, source)) } else { Ok(true) }
    }
}

/// Owners of state with a path of its own in one source: whether its parameters are kept.
#[derive(Default)]
struct Parts {
    /// By name, where the source has such state.
    taken: HashMap<String, bool>,
    /// True where one of them is kept, and where one is dropped.
    any: bool,
    left_out: bool,
}

impl Parts {
    fn of(source: &Checkpoint, number: usize, owners: &HashMap<Key, usize>) -> Self {
        let mut all = Self::default();
        if !source.tensors.iter().any(is_part) {
            return all;
        }
        for parameter in source.tensors.iter().filter(|tensor| !is_state(tensor)) {
            let taken = owners.get(&key(parameter)) == Some(&number);
            (all.any, all.left_out) = (all.any || taken, all.left_out || !taken);
            all.taken.entry(parameter.text()).or_insert(taken);
        }
        all
    }

    /// True where the parameter is kept that this state was trained with.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`], `state-of-which`.
    fn keep(&self, state: &TensorEntry, source: &Checkpoint, parameters: &Parameters<'_>) -> Result<bool> {
        if let Some(&taken) = state.role.state_of().and_then(|of| self.taken.get(&of.name)) {
            return Ok(taken);
        }
        match (self.any, self.left_out) {
            (taken, left_out) if taken != left_out => Ok(taken),
            (true, _) => Err(partly(state, source)),
            // Its file has no parameter: the owner may be any other one, and some of them were dropped.
            _ if parameters.are_contested => Err(of_which(state, source)),
            _ => Ok(true),
        }
    }
}

/// Keeps all state of a parameter from one source, where several sources have the same state.
fn one_source_of_state(sources: &[Checkpoint], same: Same, choices: &mut [Vec<bool>]) {
    let mut having: HashMap<&[Name], BTreeSet<usize>> = HashMap::new();
    let mut known: HashMap<Key, usize> = HashMap::new();
    let mut contested: HashSet<&[Name]> = HashSet::new();
    for (number, (source, kept)) in sources.iter().zip(&*choices).enumerate() {
        for (tensor, _) in source.tensors.iter().zip(kept).filter(|(tensor, kept)| **kept && is_state(tensor))
        {
            having.entry(group(tensor)).or_default().insert(number);
            if *known.entry(key(tensor)).or_insert(number) != number {
                contested.insert(group(tensor));
            }
        }
    }
    for (number, (source, kept)) in sources.iter().zip(choices).enumerate() {
        for (tensor, kept) in source.tensors.iter().zip(kept).filter(|(tensor, _)| is_state(tensor)) {
            let group = group(tensor);
            let Some(having) = having.get(group).filter(|_| contested.contains(group)) else { continue };
            let one = if same == Same::Last { having.last() } else { having.first() };
            *kept &= one == Some(&number);
        }
    }
}
