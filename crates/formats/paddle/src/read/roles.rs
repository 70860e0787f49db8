//! Tensor roles derived from a program.

use super::join::path_of;
use std::collections::HashMap;
use weighbridge_core::checkpoint::{Role, TensorEntry};
use weighbridge_core::topology::Topology;

/// Marks the untrained tensors as buffers: variables declared without the parameter flag, if the program
/// uses that flag at all, and running means and variances.
pub(super) fn from_program(tensors: &mut [TensorEntry], topology: &Topology) {
    let stored = topology.parameters();
    let flags = stored.iter().any(|v| v.parameter);
    let mut roles: HashMap<_, Role> = HashMap::new();
    if flags {
        for variable in stored.iter().filter(|v| !v.parameter) {
            roles.insert(path_of(&variable.name), Role::Buffer);
        }
    }
    for operator in topology.operators() {
        let running: Vec<&String> = match operator.kind.as_str() {
            "batch_norm" | "sync_batch_norm" => {
                operator.input("Mean").iter().chain(operator.input("Variance")).collect()
            }
            // Operands of PIR have positions instead of names: x, mean, variance, scale, bias.
            "pd_op.batch_norm_" | "pd_op.batch_norm" | "pd_op.sync_batch_norm_" => {
                operator.input("").iter().skip(1).take(2).collect()
            }
            _ => Vec::new(),
        };
        for name in running {
            roles.insert(path_of(name), Role::Buffer);
        }
    }
    for tensor in tensors.iter_mut().filter(|t| t.role == Role::Parameter) {
        if let Some(role) = roles.get(&tensor.path) {
            tensor.role = role.clone();
        }
    }
}
