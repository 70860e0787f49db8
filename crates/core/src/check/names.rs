//! Check for duplicate names and optimizer state without parameter.

use super::listed;
use crate::checkpoint::{Name, TensorEntry, TensorPath};
use crate::finding::Finding;
use std::collections::{HashMap, HashSet};

/// Reports duplicate names and optimizer state without its parameter.
pub fn names(tensors: &[TensorEntry]) -> Vec<Finding> {
    let mut findings = duplicates(tensors);
    findings.extend(lone_state(tensors));
    findings
}

/// Reports tensors with the same path and slot: `duplicate-name`. A lookup by name is ambiguous.
fn duplicates(tensors: &[TensorEntry]) -> Vec<Finding> {
    let mut counts: HashMap<(&TensorPath, Option<&Name>), u64> = HashMap::with_capacity(tensors.len());
    let mut findings = Vec::new();
    for tensor in tensors {
        let count = counts.entry((&tensor.path, tensor.role.slot())).or_default();
        *count += 1;
        if *count == 2 {
            findings.push(Finding::error("duplicate-name", "duplicate tensor name").on_tensor(tensor.name()));
        }
    }
    findings
}

/// Reports optimizer state without its parameter: `state-without-parameter`, one warning for all. Files with state only, such as
/// `.pdopt` of Paddle, are exempt.
fn lone_state(tensors: &[TensorEntry]) -> Vec<Finding> {
    let owners: HashSet<&TensorPath> =
        tensors.iter().filter(|t| !t.role.is_state()).map(|t| &t.path).collect();
    let lone = |t: &&TensorEntry| t.role.slot().is_some() && !owners.contains(&t.path);
    let names: Vec<String> = tensors.iter().filter(lone).map(TensorEntry::text).collect();
    if owners.is_empty() || names.is_empty() {
        return Vec::new();
    }
    let text = format!(
        "{} tensors are optimizer state of missing parameters: {}",
        names.len(),
        listed(names.iter().map(String::as_str))
    );
    vec![Finding::warning("state-without-parameter", text)]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{source, tensor};
    use super::*;
    use crate::checkpoint::Role;
    use crate::tensor::DType;

    #[test]
    fn reports_duplicates_and_state_without_parameter() {
        let memory = source(64);
        let state = |name: &str, slot: &str| {
            let mut entry = tensor(name, DType::F32, &[2], &memory, 0);
            entry.role = Role::OptimizerState { slot: Name::from(slot) };
            entry
        };
        let plain = |name: &str| tensor(name, DType::F32, &[2], &memory, 0);
        let good = [plain("w"), state("w", "m1"), state("w", "m2")];
        assert_eq!(duplicates(&good), []);
        assert_eq!(lone_state(&good), []);
        assert_eq!(lone_state(&[state("w", "m1")]), []);
        let twice = duplicates(&[plain("w"), plain("w"), plain("w")]);
        assert_eq!((twice.len(), twice[0].code.as_str()), (1, "duplicate-name"));
        let lone = lone_state(&[plain("w"), state("v", "m1")]);
        assert_eq!(lone[0].code, "state-without-parameter");
        assert!(lone[0].text.ends_with("v/m1"));
    }
}
