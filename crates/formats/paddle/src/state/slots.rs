//! The names that Paddle's optimizers give their tensors: `PARAM_moment1_0`.

use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::Role;

/// What 2.6.2 and 3.3.1 call what an optimizer remembers, longer names before those they end in.
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

/// Between the name of a parameter and what is remembered of its copy in full precision.
const MASTER: &str = "_fp32_master";
/// The dict, and the slot, of the copies in full precision.
pub(super) const MASTER_WEIGHTS: &str = "master_weights";
/// The dict of the schedule of the learning rate.
pub(super) const LR_SCHEDULER: &str = "LR_Scheduler";

/// Accumulators whose names are just as well those of layers: `fc_linear_0` may be a parameter.
const COMMON: &[&str] = &["linear", "slow", "d", "m", "y"];

/// A key that has the form of an optimizer's, taken apart.
#[derive(Debug, Clone, Copy)]
struct Apart<'a> {
    param: &'a str,
    slot: &'a str,
    accumulator: &'a str,
}

impl<'a> Apart<'a> {
    fn of(key: &'a str) -> Option<Self> {
        let counted = without_count(key)?;
        let (before, accumulator) = ACCUMULATORS
            .iter()
            .find_map(|&name| Some((counted.strip_suffix(name)?.strip_suffix('_')?, name)))?;
        let param = without_count(before).and_then(|rest| rest.strip_suffix(MASTER)).unwrap_or(before);
        let slot = key.get(param.len() + 1..)?;
        (!param.is_empty()).then_some(Self { param, slot, accumulator })
    }

    /// True where the key can hardly be that of a parameter.
    fn is_well_known(&self) -> bool {
        !COMMON.contains(&self.accumulator) || self.slot.starts_with(MASTER.trim_start_matches('_'))
    }
}

/// `key` without the number that makes it unique.
fn without_count(key: &str) -> Option<&str> {
    let (rest, count) = key.rsplit_once('_')?;
    (!count.is_empty() && count.bytes().all(|b| b.is_ascii_digit())).then_some(rest)
}

/// The parameter that a key of an optimizer's form names.
pub(super) fn parameter_of(key: &str) -> Option<&str> {
    Apart::of(key).map(|apart| apart.param)
}

/// True for a tensor of an optimizer that belongs to no parameter.
fn is_global(key: &str) -> bool {
    let name = without_count(key).unwrap_or(key);
    matches!(
        name,
        "learning_rate" | "@LR_DECAY_COUNTER@" | "loss_scaling" | "num_bad_steps" | "num_good_steps"
    )
}

/// Which of the keys of a dict are an optimizer's.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    keys: HashSet<&'a str>,
    /// Parameters that an optimizer surely has tensors of.
    evident: HashSet<&'a str>,
    /// Of these, those that nobody takes for the beginning of another name.
    certain: HashSet<&'a str>,
    /// Of these, those that a tensor of the dict goes by as a variable: the keys of parameters are others then.
    variables: HashSet<&'a str>,
    /// True where the whole dict is the state of an optimizer.
    pub(super) whole: bool,
}

impl<'a> Scope<'a> {
    /// The scope of a dict with these keys of tensors, these keys of all else, and the names that its tensors have as
    /// variables.
    pub(super) fn new<'n>(
        tensors: impl Iterator<Item = &'a str>,
        others: impl Iterator<Item = &'a str>,
        names: impl Iterator<Item = &'n str>,
    ) -> Self {
        let keys: HashSet<&str> = tensors.collect();
        let apart: Vec<Apart<'_>> = keys.iter().filter_map(|key| Apart::of(key)).collect();
        let evident = evident(&apart);
        // LookAhead's state is `slow` and nothing else; all other names come in company.
        let sure = apart.iter().any(|key| key.accumulator == "slow") || !evident.is_empty();
        let all = sure && keys.iter().all(|key| Apart::of(key).is_some() || is_global(key));
        let mut others = others;
        let whole = all || others.any(|key| key == LR_SCHEDULER || key == MASTER_WEIGHTS);
        let variables = names.filter_map(|name| evident.get(name).copied()).collect();
        let certain = certain(&apart, &evident);
        Self { keys, evident, certain, variables, whole }
    }

    /// True where a tensor of the dict has that key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// Parameter and slot of the tensor under `key`, where it is an optimizer's: `w_0_moment1_0` is
    /// `w_0` and `moment1_0`.
    pub(super) fn owner(&self, key: &'a str) -> Option<(&'a str, &'a str)> {
        let apart = Apart::of(key)?;
        let known = || self.keys.contains(apart.param) || self.variables.contains(apart.param);
        let beside = || self.evident.contains(apart.param) && known();
        (self.whole || beside()).then_some((apart.param, apart.slot))
    }

    /// What a tensor is for, where its key says that it is no parameter: one of an optimizer that belongs to none.
    /// `own` is true where it goes by that name only.
    pub(super) fn role(&self, key: &'a str, own: bool) -> Option<Role> {
        if self.whole && is_global(key) {
            return Some(Role::Other);
        }
        (own && self.is_without_owner(key)).then_some(Role::OptimizerPart { of: None })
    }

    /// True for a tensor of an optimizer that stands among others, its parameter not known: that one goes by a name of its
    /// own in the dict.
    pub(super) fn is_without_owner(&self, key: &'a str) -> bool {
        self.owner(key).is_none() && Apart::of(key).is_some_and(|apart| self.certain.contains(apart.param))
    }
}

/// True for the name that Paddle itself gives a parameter: `linear_0.w_0`.
fn is_generated(param: &str) -> bool {
    let mut parts = param.rsplit('.').map(without_count);
    matches!(parts.next(), Some(Some("w" | "b"))) && matches!(parts.next(), Some(Some(_)))
}

/// Of the parameters that are `evident` those that have tensors of several names, or a name as Paddle gives it.
fn certain<'a>(apart: &[Apart<'a>], evident: &HashSet<&'a str>) -> HashSet<&'a str> {
    let mut first: HashMap<&str, &str> = HashMap::new();
    let is_certain = |key: &&Apart<'a>| {
        evident.contains(key.param)
            && (*first.entry(key.param).or_insert(key.accumulator) != key.accumulator
                || is_generated(key.param))
    };
    apart.iter().filter(is_certain).map(|key| key.param).collect()
}

/// The parameters with a tensor of a well-known name, or with all three of ASGD.
fn evident<'a>(apart: &[Apart<'a>]) -> HashSet<&'a str> {
    let mut of_asgd: HashMap<&str, HashSet<&str>> = HashMap::new();
    let mut evident = HashSet::new();
    for key in apart {
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
    fn keys_come_apart_at_the_slot() {
        for (key, param, slot) in [
            ("linear_0.w_0_moment1_0", "linear_0.w_0", "moment1_0"),
            ("linear_0.w_0_fp32_master_0_moment1_0", "linear_0.w_0", "fp32_master_0_moment1_0"),
            ("w_beta1_pow_acc_12", "w", "beta1_pow_acc_12"),
            ("w__avg_squared_grad_0", "w", "_avg_squared_grad_0"),
            ("w_velocity_0", "w", "velocity_0"),
            ("w_moment2_max_0", "w", "moment2_max_0"),
        ] {
            let apart = Apart::of(key).unwrap();
            assert_eq!((apart.param, apart.slot), (param, slot));
            assert_eq!(format!("{param}_{slot}"), key);
        }
        for key in
            ["linear_0.w_0", "moment1_0", "_moment1_0", "w_moment1", "w_moment1_x", "", "w_fp32_master_0"]
        {
            assert!(Apart::of(key).is_none(), "{key}");
        }
    }

    #[test]
    fn only_optimizers_are_taken_apart() {
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
    fn parameters_are_known_by_their_variables_too() {
        let keys = ["fc.weight", "w_0_moment1_0", "w_1_moment1_0", "w_0_linear_0"];
        let scope = Scope::new(keys.into_iter(), std::iter::empty(), ["w_0", "w_0_moment1_0"].into_iter());
        let found: Vec<_> = keys.into_iter().filter_map(|key| scope.owner(key)).collect();
        assert_eq!(found, [("w_0", "moment1_0"), ("w_0", "linear_0")]);
        let bare = Scope::new(["fc", "w_0_linear_0"].into_iter(), std::iter::empty(), ["w_0"].into_iter());
        assert_eq!(bare.owner("w_0_linear_0"), None);
    }

    #[test]
    fn state_of_parameters_of_other_names_is_known_by_company_or_by_names_of_paddle() {
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
    fn common_names_need_more_than_the_name() {
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
