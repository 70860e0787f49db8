//! Optimizer state: roles, and parameters by name.
//!
//! ```text
//! optim.state.fc.weight.exp_avg       state of `fc.weight`, `model.fc.weight`, ...
//! optim.param_groups.0.lr             options of the optimizer
//! ```

use std::collections::{HashMap, HashSet};
use weighbridge_core::Budget;
use weighbridge_core::checkpoint::{Checkpoint, Role, StateOf};
use weighbridge_pickle::Cost;

/// Key of the state in a dict of an optimizer.
const STATE: &str = "state.";
/// Key of the options in a dict of an optimizer. torch before version 2.4 stores them as one value.
const GROUPS: &str = "param_groups";

/// Finds optimizers by their flat names: a prefix with both `state.` and `param_groups.`. Returns the prefixes with their dot.
fn optimizers(checkpoint: &Checkpoint) -> HashSet<String> {
    let prefix = |name: &str, key: &str| {
        let at = match name.starts_with(key) {
            true => 0,
            false => name.find(&format!(".{key}"))? + 1,
        };
        Some(name[..at].to_owned())
    };
    let names: Vec<String> = checkpoint.tensors.iter().map(|entry| entry.text()).collect();
    let is_end = |name: &str, prefix: &str| matches!(name.get(prefix.len() + GROUPS.len()..), Some(rest) if rest.is_empty() || rest.starts_with('.'));
    let keys = checkpoint.metadata.iter().map(|(key, _)| key);
    let all = keys.chain(names.iter().map(String::as_str));
    let groups = all.filter_map(|name| prefix(name, GROUPS).filter(|prefix| is_end(name, prefix)));
    let with_groups: HashSet<String> = groups.collect();
    names
        .iter()
        .filter_map(|name| prefix(name, STATE))
        .filter(|prefix| with_groups.contains(prefix))
        .collect()
}

/// State tensor: its index in the checkpoint, and the name of its parameter.
type State = (usize, String);

/// Sets the roles of optimizer state, and the parameter of each where the names identify it.
pub(super) fn assign(checkpoint: &mut Checkpoint, budget: &Budget) {
    let optimizers = optimizers(checkpoint);
    if optimizers.is_empty() {
        return;
    }
    let mut states: HashMap<&str, Vec<State>> = HashMap::new();
    let mut others: HashMap<String, usize> = HashMap::new();
    for (place, entry) in checkpoint.tensors.iter_mut().enumerate() {
        let name = entry.text();
        let of = |prefix: &&String| {
            let rest = name.strip_prefix(prefix.as_str());
            rest.is_some_and(|rest| rest.starts_with(STATE) || rest.starts_with(GROUPS))
        };
        let Some(prefix) = optimizers.iter().find(of) else {
            others.insert(name, place);
            continue;
        };
        entry.role = Role::OptimizerPart { of: None };
        let parameter = name[prefix.len()..].strip_prefix(STATE).and_then(|rest| rest.rsplit_once('.'));
        if let Some((parameter, _slot)) = parameter {
            states.entry(prefix).or_default().push((place, parameter.to_owned()));
        }
    }
    for states in states.values() {
        let parameters: HashSet<&str> = states.iter().map(|(_, parameter)| parameter.as_str()).collect();
        let Some(model) = model_of(&parameters, &others, budget) else { continue };
        for (place, parameter) in states {
            let name = format!("{model}{parameter}");
            if budget.take_memory(Cost::text(name.len() as u64)).is_err() {
                return;
            }
            if let Some(entry) = checkpoint.tensors.get_mut(*place) {
                entry.role = Role::OptimizerPart { of: Some(Box::new(StateOf { name, guessed: false })) };
            }
        }
    }
}

/// Returns the only prefix under which all `parameters` are tensors of the model.
fn model_of(parameters: &HashSet<&str>, others: &HashMap<String, usize>, budget: &Budget) -> Option<String> {
    let first = parameters.iter().max_by_key(|name| name.len())?;
    let is_prefix = |prefix: &str| prefix.is_empty() || prefix.ends_with('.');
    budget.take_work((others.len() as u64).saturating_mul(Cost::VISIT)).ok()?;
    let prefixes =
        others.keys().filter_map(|name| name.strip_suffix(first)).filter(|prefix| is_prefix(prefix));
    let mut fitting = prefixes.filter(|prefix| {
        budget.take_work((parameters.len() as u64).saturating_mul(Cost::VISIT)).is_ok()
            && parameters.iter().all(|name| others.contains_key(&format!("{prefix}{name}")))
    });
    let only = fitting.next()?;
    fitting.next().is_none().then(|| only.to_owned())
}
