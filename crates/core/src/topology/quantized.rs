//! Quantized programs: tensors that may differ from their declarations.
//!
//! Paddle quantizes the weights and scales of a program in memory, and writes the program with its original declarations. Its
//! operators do not rely on the declared dtype and shape of these tensors, so the model is valid.

use super::{Operator, Topology, Variable};
use crate::tensor::DType;
use std::collections::HashMap;

/// Slots of quantizing operators with one number per tensor or per channel.
const SCALES: [&str; 8] =
    ["Scale", "Scales", "InScale", "OutScale", "ZeroPoint", "InAccum", "InState", "Iter"];
impl Quantized<'_> {
    /// Suffix of the attribute with the scale of a weight, after the name of the weight.
    pub const SCALE_ATTRIBUTE: &'static str = "_quant_scale";
}

/// Role of a variable in quantization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantizedRole {
    /// Scale, zero point or running statistic: dimensions of size 1 are ignored.
    Scale,
    /// Weight that an operator dequantizes: `i8`, whatever is declared.
    Weight,
    /// Weight with its scale in an attribute of its operator: `i8` or `i16`. Paddle Lite runs the program; Paddle rejects the
    /// operator.
    LiteWeight,
}

/// Variables of a program that take part in quantization.
#[derive(Debug, Clone, Default)]
pub struct Quantized<'a> {
    /// `None` if operators use a variable in different roles.
    roles: HashMap<&'a str, Option<QuantizedRole>>,
}

impl Topology {
    /// Finds the variables that all their operators use for quantization, in one role.
    pub fn quantized(&self) -> Quantized<'_> {
        let mut roles: HashMap<&str, Option<QuantizedRole>> = HashMap::new();
        // An operator with a body reads what its body reads.
        for operator in self.operators().filter(|operator| operator.blocks.is_empty()) {
            for slot in &operator.inputs {
                for (place, name) in slot.arguments.iter().enumerate() {
                    let role = role(operator, &slot.name, place, name);
                    let known = roles.entry(name).or_insert(role);
                    if *known != role {
                        *known = None;
                    }
                }
            }
        }
        roles.retain(|_, role| role.is_some());
        Quantized { roles }
    }
}

/// Returns the role of the argument at index `place` of a slot. Operands of PIR share one unnamed slot, the data first.
fn role(operator: &Operator, slot: &str, place: usize, name: &str) -> Option<QuantizedRole> {
    let kind = operator.kind.strip_prefix("pd_op.").unwrap_or(&operator.kind);
    if kind.contains("quantize") || kind == "moving_average_abs_max_scale" {
        let is_scale = SCALES.contains(&slot) || (slot.is_empty() && place > 0);
        let is_data = slot == "X" || (slot.is_empty() && place == 0);
        return match () {
            () if is_scale => Some(QuantizedRole::Scale),
            () if is_data && kind.contains("dequantize") => Some(QuantizedRole::Weight),
            () => None,
        };
    }
    let scaled =
        |attribute: &super::Attribute| attribute.name.strip_suffix(Quantized::SCALE_ATTRIBUTE) == Some(name);
    operator.attributes.iter().any(scaled).then_some(QuantizedRole::LiteWeight)
}

impl Quantized<'_> {
    /// Returns the role of a variable; `None` if it has none, or several.
    pub fn role(&self, variable: &str) -> Option<QuantizedRole> {
        self.roles.get(variable).copied().flatten()
    }

    /// Returns true if a tensor of these sizes matches the declaration, as [`Variable::admits`], or is a scale that differs only in
    /// dimensions of size 1: `[]` and `[1]`, `[6]` and `[1, 6]`.
    pub fn admits(&self, variable: &Variable, dims: &[u64]) -> bool {
        variable.admits(dims)
            || (self.role(&variable.name) == Some(QuantizedRole::Scale)
                && variable.shape.as_ref().is_some_and(|shape| same_but_for_ones(shape, dims)))
    }

    /// Returns true if a tensor of this dtype matches the declaration, or is a quantized weight.
    pub fn admits_dtype(&self, variable: &Variable, dtype: DType) -> bool {
        variable.dtype.is_none_or(|declared| declared == dtype)
            || match self.role(&variable.name) {
                Some(QuantizedRole::Weight) => dtype == DType::I8,
                Some(QuantizedRole::LiteWeight) => matches!(dtype, DType::I8 | DType::I16),
                Some(QuantizedRole::Scale) | None => false,
            }
    }
}

/// Returns true if the sizes are equal without those of 1; -1 matches any.
fn same_but_for_ones(declared: &[i64], dims: &[u64]) -> bool {
    let declared: Vec<i64> = declared.iter().copied().filter(|&extent| extent != 1).collect();
    let dims: Vec<u64> = dims.iter().copied().filter(|&extent| extent != 1).collect();
    let same = |(&declared, &found): (&i64, &u64)| u64::try_from(declared).map_or(true, |d| d == found);
    declared.len() == dims.len() && declared.iter().zip(&dims).all(same)
}

#[cfg(test)]
mod tests {
    use super::super::{Attribute, AttributeValue, Block, Slot, VariableKind};
    use super::*;
    use std::sync::Arc;

    fn operator(kind: &str, inputs: &[(&str, &[&str])], attributes: &[&str]) -> Operator {
        let slot = |(name, arguments): &(&str, &[&str])| Slot {
            name: (*name).to_owned(),
            arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
        };
        let attribute = |name: &&str| Attribute {
            name: (*name).to_owned(),
            kind: "FLOATS".to_owned(),
            value: AttributeValue::None,
        };
        Operator {
            kind: kind.to_owned(),
            inputs: inputs.iter().map(slot).collect(),
            attributes: attributes.iter().map(attribute).collect(),
            ..Operator::default()
        }
    }

    fn topology(operators: Vec<Operator>) -> Topology {
        Topology {
            form: "program-desc",
            writer: None,
            bytes: Arc::new([]),
            blocks: vec![Block { operators, ..Block::default() }],
            feeds: Vec::new(),
            fetches: Vec::new(),
            operator_versions: Vec::new(),
        }
    }

    fn variable(name: &str, shape: &[i64]) -> Variable {
        Variable {
            name: name.to_owned(),
            kind: VariableKind::Tensor,
            dtype: Some(DType::F32),
            dtype_name: None,
            shape: Some(shape.to_vec()),
            lod_level: 0,
            persistable: true,
            parameter: false,
            stop_gradient: false,
        }
    }

    #[test]
    fn only_scales_may_lack_dimensions_of_size_one() {
        let slots: &[(&str, &[&str])] = &[("X", &["w"]), ("Scale", &["s"]), ("ZeroPoint", &["z"])];
        let program = topology(vec![operator("dequantize_linear", slots, &[])]);
        let quantized = program.quantized();
        let (s, w) = (variable("s", &[6]), variable("w", &[6]));
        assert!(
            quantized.admits(&s, &[6]) && quantized.admits(&s, &[1, 6]) && !quantized.admits(&s, &[6, 2])
        );
        assert!(!quantized.admits(&s, &[3, 2]) && !quantized.admits(&s, &[]));
        assert!(!quantized.admits(&w, &[1, 6]));
        let z = variable("z", &[1]);
        assert!(quantized.admits(&z, &[]) && !quantized.admits(&z, &[2]));
        assert!(quantized.admits_dtype(&w, DType::I8) && !quantized.admits_dtype(&w, DType::I16));
        assert!(!quantized.admits_dtype(&s, DType::I8));
    }

    #[test]
    fn operands_of_pir_have_roles_by_index() {
        let program = topology(vec![operator("pd_op.dequantize_linear", &[("", &["w", "s", "z"])], &[])]);
        let quantized = program.quantized();
        assert_eq!(quantized.role("w"), Some(QuantizedRole::Weight));
        assert_eq!(quantized.role("s"), Some(QuantizedRole::Scale));
    }

    #[test]
    fn variables_read_by_other_operators_have_no_role() {
        let slots: &[(&str, &[&str])] = &[("X", &["w"]), ("Scale", &["s"])];
        let other = operator("elementwise_add", &[("X", &["w"]), ("Y", &["s"])], &[]);
        let program = topology(vec![operator("dequantize_linear", slots, &[]), other]);
        let quantized = program.quantized();
        assert_eq!((quantized.role("w"), quantized.role("s")), (None, None));
    }

    #[test]
    fn scale_attributes_mark_weights() {
        let filter: &[(&str, &[&str])] = &[("Filter", &["w"]), ("Input", &["x"])];
        let program = topology(vec![operator("conv2d", filter, &["w_quant_scale", "strides"])]);
        let quantized = program.quantized();
        assert_eq!((quantized.role("w"), quantized.role("x")), (Some(QuantizedRole::LiteWeight), None));
        let w = variable("w", &[2]);
        assert!(quantized.admits_dtype(&w, DType::I16) && !quantized.admits_dtype(&w, DType::F64));
    }
}
