//! Roles of tensors by their paths, as Flax and optax name them.
//!
//! ```text
//! params.Dense_0.kernel                 parameter
//! batch_stats.BatchNorm_0.mean          buffer: a collection that is not trained
//! opt_state.0.mu.Dense_0.kernel         optimizer state of the parameter with the same end of its path
//! opt_state.0.count                     optimizer state without a parameter
//! optimizer.state.param_states.Dense_0.kernel.grad_ema     the same, from flax.optim
//! step                                  other: a counter
//! ```

use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Name, Role, StateOf, TensorEntry, TensorPath};

/// Parts of paths of optimizer state: fields of train states, and the maps of `flax.optim`.
const STATE: [&str; 3] = ["opt_state", "optimizer_state", PARAM_STATES];
/// Part before the path of a parameter in `flax.optim`; the slot is the last part.
const PARAM_STATES: &str = "param_states";
/// Fields of states of optax that have one tensor per parameter, below the position of a transformation.
const SLOTS: [&str; 3] = ["mu", "nu", "trace"];
/// Collections of Flax with tensors that are not trained.
const BUFFERS: [&str; 3] = ["batch_stats", "cache", "intermediates"];
/// Maximum number of parts before the name of a collection.
const MAX_BEFORE: usize = 2;
/// Counter of training steps.
const STEP: &str = "step";

/// Returns true for a path that names optimizer state.
pub(crate) fn is_state(path: &TensorPath) -> bool {
    path.parts().iter().any(|part| is_one_of(part, &STATE))
}

fn is_one_of(part: &Name, names: &[&str]) -> bool {
    names.iter().any(|name| part.as_bytes() == name.as_bytes())
}

fn is_number(part: &Name) -> bool {
    !part.as_bytes().is_empty() && part.as_bytes().iter().all(u8::is_ascii_digit)
}

/// Sets the role of every tensor.
pub(crate) fn assign(tensors: &mut [TensorEntry]) {
    let roles = derived(tensors);
    for (tensor, role) in tensors.iter_mut().zip(roles) {
        tensor.role = role;
    }
}

/// Returns the roles of tensors that follow from their paths and shapes.
pub(crate) fn derived(tensors: &[TensorEntry]) -> Vec<Role> {
    // Chains of optax under any name: `optimizer.0.mu`.
    let mut chains: HashSet<&[Name]> = HashSet::new();
    for tensor in tensors {
        let parts = tensor.path.parts();
        let slot = parts.windows(2).position(|pair| is_number(&pair[0]) && is_one_of(&pair[1], &SLOTS));
        chains.extend(slot.map(|place| &parts[..place]));
    }
    // First part of a state after the name of its root, if the path is one of state.
    let state_from = |path: &TensorPath| {
        let parts = path.parts();
        let named = parts.iter().position(|part| is_one_of(part, &STATE)).map(|place| place + 1);
        named.or_else(|| {
            (0..parts.len()).find(|&place| is_number(&parts[place]) && chains.contains(&parts[..place]))
        })
    };

    // Parameters by the ends of their paths; `None` if several have the same end.
    let mut ends: HashMap<&[Name], Option<usize>> = HashMap::new();
    for (place, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| state_from(&tensor.path).is_none())
    {
        let parts = tensor.path.parts();
        for from in 0..=MAX_BEFORE.min(parts.len().saturating_sub(1)) {
            let end = ends.entry(&parts[from..]).or_insert(Some(place));
            if *end != Some(place) {
                *end = None;
            }
        }
    }
    let role = |tensor: &TensorEntry| {
        let parts = tensor.path.parts();
        if let Some(from) = state_from(&tensor.path) {
            let of = owner(parts, from, &ends).and_then(|place| tensors.get(place));
            let of = of.map(|of| Box::new(StateOf { name: of.text(), guessed: false }));
            return Role::OptimizerPart { of };
        }
        if parts.iter().take(MAX_BEFORE + 1).any(|part| is_one_of(part, &BUFFERS)) {
            return Role::Buffer;
        }
        let is_step = parts.len() <= MAX_BEFORE && parts.last().is_some_and(|part| is_one_of(part, &[STEP]));
        if is_step && tensor.shape.rank() == 0 { Role::Other } else { Role::Parameter }
    };
    tensors.iter().map(role).collect()
}

/// Returns the parameter of optimizer state at `parts`: the longest end of a path that both have. `from` is the first part of the state.
fn owner(parts: &[Name], from: usize, ends: &HashMap<&[Name], Option<usize>>) -> Option<usize> {
    let parts = match parts.iter().position(|part| is_one_of(part, &[PARAM_STATES])) {
        // The slot follows the path of the parameter.
        Some(place) => parts.get(place..parts.len() - 1)?,
        None => {
            // Positions in chains, then a field of the state.
            let numbers = parts.get(from..)?.iter().take_while(|part| is_number(part)).count();
            parts.get(from + numbers..)?
        }
    };
    // The fields of a state follow a number, and are not the path of a parameter.
    let ends_at = (1..parts.len()).filter(|&from| !is_number(&parts[from - 1]));
    ends_at.filter_map(|from| ends.get(&parts[from..])).next().copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_core::source::{MemorySource, SourceRef};
    use weighbridge_core::tensor::{DType, Encoding, Shape};

    fn roles(names: &[&str]) -> Vec<String> {
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 4]));
        let entry = |name: &&str| {
            let path = TensorPath::from_dotted(name);
            TensorEntry::dense(path, DType::F32, Shape::from([]), &source, 0, Encoding::ROW).unwrap()
        };
        let tensors: Vec<TensorEntry> = names.iter().map(entry).collect();
        let word = |role: &Role| match role.state_of() {
            Some(of) => format!("optimizer of {}", of.name),
            None => role.as_str().to_owned(),
        };
        derived(&tensors).iter().map(word).collect()
    }

    #[test]
    fn state_belongs_to_the_parameter_of_the_same_path() {
        let found = roles(&[
            "step",
            "params.Dense_0.kernel",
            "params.Dense_1.kernel",
            "batch_stats.BatchNorm_0.mean",
            "opt_state.0.count",
            "opt_state.0.mu.Dense_0.kernel",
            "opt_state.1.inner.0.nu.Dense_1.kernel",
            "opt_state.0.mu.Dense_2.kernel",
        ]);
        let expected = [
            "other",
            "parameter",
            "parameter",
            "buffer",
            "optimizer",
            "optimizer of params.Dense_0.kernel",
            "optimizer of params.Dense_1.kernel",
            "optimizer",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn variables_as_parameters_keep_their_collection() {
        let found = roles(&["params.params.w", "opt_state.0.mu.params.w", "opt_state.0.trace.params.w"]);
        assert_eq!(found, ["parameter", "optimizer of params.params.w", "optimizer of params.params.w"]);
    }

    #[test]
    fn chains_are_found_under_any_name() {
        let found =
            roles(&["model.w", "model.0.w", "tx.0.mu.w", "tx.0.count", "tx.1.count", "other.0.count"]);
        // Two parameters end in `w`.
        assert_eq!(found, ["parameter", "parameter", "optimizer", "optimizer", "optimizer", "parameter"]);
    }

    #[test]
    fn states_of_flax_optim_name_the_slot_last() {
        let found = roles(&[
            "optimizer.target.Dense_0.kernel",
            "optimizer.state.param_states.Dense_0.kernel.grad_ema",
            "optimizer.state.step",
        ]);
        assert_eq!(found, ["parameter", "optimizer of optimizer.target.Dense_0.kernel", "parameter"]);
    }
}
