//! Names of optimizer tensors in Paddle: `PARAM_moment1_0`.

use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::Role;

/// Accumulator names of Paddle 2.6.2 and 3.3.1, longer names before their own suffixes.
const ACCUMULATORS: &[&str] = &[
    "_avg_squared_update",
    "_avg_squared_grad",
    "avg_squared_update",
    "avg_squared_grad",
    "momentum_decay_pow",
    "learning_rates",
    "beta1_pow_acc",
    "beta2_pow_acc",
    "_dgc_u_",
    "_dgc_v_",
    "moment2_max",
    "mean_square",
    "mean_grad",
    "mu_product",
    "beta1_pow",
    "beta2_pow",
    "inf_norm",
    "momentum",
    "velocity",
    "squared",
    "moment1",
    "moment2",
    "moment",
    "linear",
    "prevs",
    "slow",
    "rho",
    "d",
    "m",
    "y",
];

/// Separator between the name of a parameter and an accumulator of its full-precision copy.
const MASTER: &str = "_fp32_master";
/// Name of the dict, and of the slot, of full-precision copies.
pub(super) const MASTER_WEIGHTS: &str = "master_weights";
/// Name of the dict of the learning rate schedule.
pub(super) const LR_SCHEDULER: &str = "LR_Scheduler";

/// Accumulator names that are layer names as well: `fc_linear_0` may be a parameter.
const COMMON: &[&str] = &["linear", "slow", "d", "m", "y"];

/// Key in optimizer form, split into its components.
#[derive(Debug, Clone, Copy)]
struct StateKey<'a> {
    param: &'a str,
    slot: &'a str,
    accumulator: &'a str,
}

impl<'a> StateKey<'a> {
    fn of(key: &'a str) -> Option<Self> {
        let counted = without_count(key)?;
        let (before, accumulator) = ACCUMULATORS
            .iter()
            .find_map(|&name| Some((counted.strip_suffix(name)?.strip_suffix('_')?, name)))?;
        let param = without_count(before).and_then(|rest| rest.strip_suffix(MASTER)).unwrap_or(before);
        let slot = key.get(param.len() + 1..)?;
        (!param.is_empty()).then_some(Self { param, slot, accumulator })
    }

    /// True if the key is unlikely to be that of a parameter.
    fn is_well_known(&self) -> bool {
        !COMMON.contains(&self.accumulator) || self.slot.starts_with(MASTER.trim_start_matches('_'))
    }
}

/// Returns `key` without its unique number.
fn without_count(key: &str) -> Option<&str> {
    let (rest, count) = key.rsplit_once('_')?;
    (!count.is_empty() && count.bytes().all(|b| b.is_ascii_digit())).then_some(rest)
}

/// Returns the parameter in a key of optimizer form.
pub(super) fn parameter_of(key: &str) -> Option<&str> {
    StateKey::of(key).map(|state| state.param)
}

/// True for a tensor of an optimizer without a parameter.
fn is_global(key: &str) -> bool {
    let name = without_count(key).unwrap_or(key);
    matches!(
        name,
        "learning_rate" | "@LR_DECAY_COUNTER@" | "loss_scaling" | "num_bad_steps" | "num_good_steps"
    )
}

/// Classification of the keys of a dict as optimizer state.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    keys: HashSet<&'a str>,
    /// Parameters that evidently have optimizer state.
    evident: HashSet<&'a str>,
    /// Evident parameters whose names cannot be the prefix of another name.
    certain: HashSet<&'a str>,
    /// Evident parameters that are variable names of tensors of the dict; such parameters have other keys.
    variables: HashSet<&'a str>,
    /// True if the whole dict is optimizer state.
    pub(super) whole: bool,
}

impl<'a> Scope<'a> {
    /// Classifies a dict with these tensor keys, these other keys, and these variable names of its tensors.
    pub(super) fn new<'n>(
        tensors: impl Iterator<Item = &'a str>,
        others: impl Iterator<Item = &'a str>,
        names: impl Iterator<Item = &'n str>,
    ) -> Self {
        let keys: HashSet<&str> = tensors.collect();
        let state: Vec<StateKey<'_>> = keys.iter().filter_map(|key| StateKey::of(key)).collect();
        let evident = evident(&state);
        // LookAhead's state has `slow` only; all other accumulators occur together.
        let sure = state.iter().any(|key| key.accumulator == "slow") || !evident.is_empty();
        let all = sure && keys.iter().all(|key| StateKey::of(key).is_some() || is_global(key));
        let mut others = others;
        let whole = all || others.any(|key| key == LR_SCHEDULER || key == MASTER_WEIGHTS);
        let variables = names.filter_map(|name| evident.get(name).copied()).collect();
        let certain = certain(&state, &evident);
        Self { keys, evident, certain, variables, whole }
    }

    /// True if a tensor of the dict has the key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// Returns parameter and slot of the optimizer tensor under `key`, if it is one: `w_0_moment1_0` is
    /// `w_0` and `moment1_0`.
    pub(super) fn owner(&self, key: &'a str) -> Option<(&'a str, &'a str)> {
        let state = StateKey::of(key)?;
        let known = || self.keys.contains(state.param) || self.variables.contains(state.param);
        let beside = || self.evident.contains(state.param) && known();
        (self.whole || beside()).then_some((state.param, state.slot))
    }

    /// Returns the role of an optimizer tensor without a parameter; `None` if the key may be that of a parameter.
    /// `own` is true if the tensor has no second name.
    pub(super) fn role(&self, key: &'a str, own: bool) -> Option<Role> {
        if self.whole && is_global(key) {
            return Some(Role::Other);
        }
        (own && self.is_without_owner(key)).then_some(Role::OptimizerPart { of: None })
    }

    /// True for an optimizer tensor among other tensors whose parameter is unknown, because the parameter has another
    /// name in the dict.
    pub(super) fn is_without_owner(&self, key: &'a str) -> bool {
        self.owner(key).is_none() && StateKey::of(key).is_some_and(|state| self.certain.contains(state.param))
    }
}

/// True for parameter names that Paddle generates: `linear_0.w_0`.
fn is_generated(param: &str) -> bool {
    let mut parts = param.rsplit('.').map(without_count);
    matches!(parts.next(), Some(Some("w" | "b"))) && matches!(parts.next(), Some(Some(_)))
}

/// Returns the `evident` parameters with several accumulators, or with a name that Paddle generates.
fn certain<'a>(keys: &[StateKey<'a>], evident: &HashSet<&'a str>) -> HashSet<&'a str> {
    let mut first: HashMap<&str, &str> = HashMap::new();
    let is_certain = |key: &&StateKey<'a>| {
        evident.contains(key.param)
            && (*first.entry(key.param).or_insert(key.accumulator) != key.accumulator
                || is_generated(key.param))
    };
    keys.iter().filter(is_certain).map(|key| key.param).collect()
}

/// Returns the parameters with a well-known accumulator, or with all three of ASGD.
fn evident<'a>(keys: &[StateKey<'a>]) -> HashSet<&'a str> {
    let mut of_asgd: HashMap<&str, HashSet<&str>> = HashMap::new();
    let mut evident = HashSet::new();
    for key in keys {
        if key.is_well_known() {
            evident.insert(key.param);
        } else if key.accumulator.len() == 1 {
            let found = of_asgd.entry(key.param).or_default();
            found.insert(key.accumulator);
            if found.len() == 3 {
                evident.insert(key.param);
            }
        }
    }
    evident
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_keys_into_parameter_and_slot() {
        for (key, param, slot) in [
            ("linear_0.w_0_moment1_0", "linear_0.w_0", "moment1_0"),
            ("linear_0.w_0_fp32_master_0_moment1_0", "linear_0.w_0", "fp32_master_0_moment1_0"),
            ("w_beta1_pow_acc_12", "w", "beta1_pow_acc_12"),
            ("w__avg_squared_grad_0", "w", "_avg_squared_grad_0"),
            ("w_velocity_0", "w", "velocity_0"),
            ("w_moment2_max_0", "w", "moment2_max_0"),
        ] {
            let state = StateKey::of(key).unwrap();
            assert_eq!((state.param, state.slot), (param, slot));
            assert_eq!(format!("{param}_{slot}"), key);
        }
        for key in
            ["linear_0.w_0", "moment1_0", "_moment1_0", "w_moment1", "w_moment1_x", "", "w_fp32_master_0"]
        {
            assert!(StateKey::of(key).is_none(), "{key}");
        }
    }

    #[test]
    fn splits_keys_of_optimizer_state_only() {
        let scope = |tensors: &[&'static str], others: &[&'static str]| {
            Scope::new(tensors.iter().copied(), others.iter().copied(), std::iter::empty())
        };
        assert_eq!(scope(&["a.weight", "a_moment1_0"], &[]).owner("a_moment1_0"), None);
        assert!(scope(&["b.weight", "a_moment1_0"], &[LR_SCHEDULER]).owner("a_moment1_0").is_some());
        assert!(scope(&["a", "b", "a_moment1_0"], &[]).owner("a_moment1_0").is_some());
        assert!(scope(&["a_moment1_0", "learning_rate_0"], &[]).owner("a_moment1_0").is_some());
        assert!(!scope(&["learning_rate_0"], &[]).whole);
    }

    #[test]
    fn finds_parameters_by_variable_name() {
        let keys = ["fc.weight", "w_0_moment1_0", "w_1_moment1_0", "w_0_linear_0"];
        let scope = Scope::new(keys.into_iter(), std::iter::empty(), ["w_0", "w_0_moment1_0"].into_iter());
        let found: Vec<_> = keys.into_iter().filter_map(|key| scope.owner(key)).collect();
        assert_eq!(found, [("w_0", "moment1_0"), ("w_0", "linear_0")]);
        let bare = Scope::new(["fc", "w_0_linear_0"].into_iter(), std::iter::empty(), ["w_0"].into_iter());
        assert_eq!(bare.owner("w_0_linear_0"), None);
    }

    #[test]
    fn detects_state_without_its_parameter_by_accumulators_or_generated_names() {
        let found = |keys: &[&'static str], names: &[&str]| {
            let scope = Scope::new(keys.iter().copied(), std::iter::empty(), names.iter().copied());
            keys.iter().filter(|key| scope.is_without_owner(key)).copied().collect::<Vec<_>>()
        };
        let momentum = ["0.weight", "linear_0.w_0_velocity_0", "opt.linear_0.b_0_velocity_0"];
        assert_eq!(found(&momentum, &[]), momentum[1..]);
        assert_eq!(found(&momentum, &["linear_0.w_0"]), momentum[2..]);
        let adam = ["fc.weight", "fc_moment1_0", "fc_moment2_0"];
        assert_eq!(found(&adam, &[]), adam[1..]);
        assert_eq!(found(&["fc", "fc_moment1_0", "fc_moment2_0"], &[]), [""; 0]);
        for key in ["fc_moment1_0", "fc.w_moment1_0", "fc_0.x_0_moment1_0", "fc_0.w_0_linear_0", "a_d_0"] {
            assert_eq!(found(&["a.weight", key], &[]), [""; 0], "{key}");
        }
    }

    #[test]
    fn requires_evidence_for_common_accumulator_names() {
        let state = |tensors: &[&'static str], others: &[&'static str]| {
            let scope = Scope::new(tensors.iter().copied(), others.iter().copied(), std::iter::empty());
            let mut found: Vec<_> =
                tensors.iter().filter(|key| scope.owner(key).is_some()).copied().collect();
            found.sort_unstable();
            found
        };
        for key in ["fc_linear_0", "fc_slow_0", "fc_d_0", "fc_m_0", "fc_y_0"] {
            assert!(state(&["fc", key], &[]).is_empty(), "{key}");
            assert!(state(&["fc", key, "a", "a_moment1_0"], &[]) == ["a_moment1_0"], "{key}");
            assert_eq!(state(&["fc", key, "fc_squared_0"], &[]).len(), 2, "{key}");
            assert_eq!(state(&[key], &[LR_SCHEDULER]), [key]);
            assert_eq!(state(&["fc", key], &[MASTER_WEIGHTS]), [key]);
            assert_eq!(state(&[key, "a_moment1_0"], &[]).len(), 2, "{key}");
        }
        assert!(state(&["a_linear_0", "b_linear_0", "c_d_0"], &[]).is_empty());
        assert_eq!(state(&["a_slow_0", "b_slow_0"], &[]).len(), 2);
        assert_eq!(state(&["a", "b", "a_d_0", "a_m_0", "a_y_0"], &[]), ["a_d_0", "a_m_0", "a_y_0"]);
        assert!(state(&["a", "b", "a_d_0", "a_m_0", "a_m_1"], &[]).is_empty());
        assert_eq!(state(&["a", "b", "a_fp32_master_0_linear_0"], &[]), ["a_fp32_master_0_linear_0"]);
    }
}
