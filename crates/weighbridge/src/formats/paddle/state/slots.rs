//! The names that Paddle's optimizers give their tensors: `PARAM_moment1_0`.

use std::collections::HashSet;

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

/// Parameter and slot of a key, by its form alone: `w_0_moment1_0` is `w_0` and `moment1_0`.
pub(super) fn take_apart(key: &str) -> Option<(&str, &str)> {
    let counted = without_count(key)?;
    let accumulator = ACCUMULATORS.iter().find_map(|name| counted.strip_suffix(name)?.strip_suffix('_'))?;
    let param = without_count(accumulator).and_then(|rest| rest.strip_suffix(MASTER)).unwrap_or(accumulator);
    let slot = key.get(param.len() + 1..)?;
    (!param.is_empty()).then_some((param, slot))
}

/// `key` without the number that makes it unique.
fn without_count(key: &str) -> Option<&str> {
    let (rest, count) = key.rsplit_once('_')?;
    (!count.is_empty() && count.bytes().all(|b| b.is_ascii_digit())).then_some(rest)
}

/// True for a tensor of an optimizer that belongs to no parameter.
pub(super) fn is_global(key: &str) -> bool {
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
    /// True where the whole dict is the state of an optimizer.
    pub(super) whole: bool,
}

impl<'a> Scope<'a> {
    /// The scope of a dict with these keys of tensors, and these keys of all else.
    pub(super) fn new(tensors: impl Iterator<Item = &'a str>, others: impl Iterator<Item = &'a str>) -> Self {
        let keys: HashSet<&str> = tensors.collect();
        let known = |key: &&str| take_apart(key).is_some();
        let all = keys.iter().any(known) && keys.iter().all(|key| known(key) || is_global(key));
        let mut others = others;
        let whole = all || others.any(|key| key == LR_SCHEDULER || key == MASTER_WEIGHTS);
        Self { keys, whole }
    }

    /// Parameter and slot of the tensor under `key`, where it is an optimizer's.
    pub(super) fn owner(&self, key: &'a str) -> Option<(&'a str, &'a str)> {
        take_apart(key).filter(|(param, _)| self.whole || self.keys.contains(param))
    }
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
            assert_eq!(take_apart(key), Some((param, slot)));
            assert_eq!(format!("{param}_{slot}"), key);
        }
        for key in
            ["linear_0.w_0", "moment1_0", "_moment1_0", "w_moment1", "w_moment1_x", "", "w_fp32_master_0"]
        {
            assert_eq!(take_apart(key), None, "{key}");
        }
    }

    #[test]
    fn only_optimizers_are_taken_apart() {
        let scope = |tensors: &[&'static str], others: &[&'static str]| {
            Scope::new(tensors.iter().copied(), others.iter().copied())
        };
        assert_eq!(scope(&["a.weight", "a_moment1_0"], &[]).owner("a_moment1_0"), None);
        assert!(scope(&["b.weight", "a_moment1_0"], &[LR_SCHEDULER]).owner("a_moment1_0").is_some());
        assert!(scope(&["a", "b", "a_moment1_0"], &[]).owner("a_moment1_0").is_some());
        assert!(scope(&["a_moment1_0", "learning_rate_0"], &[]).owner("a_moment1_0").is_some());
        assert!(!scope(&["learning_rate_0"], &[]).whole);
    }
}
