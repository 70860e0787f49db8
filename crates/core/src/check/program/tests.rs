use super::super::testing::{self, linear, source, tensor, variable};
use super::*;
use crate::checkpoint::{Name, Role};
use crate::finding::Severity;
use crate::source::SourceRef;
use crate::topology::Block;

fn good(memory: &SourceRef) -> Vec<TensorEntry> {
    vec![tensor("fc.b", DType::F32, &[4], memory, 0), tensor("fc.w", DType::F32, &[3, 4], memory, 16)]
}

fn codes(findings: &[Finding]) -> Vec<(&'static str, Option<&str>)> {
    findings.iter().map(|f| (f.code.as_str(), f.tensor.as_deref())).collect()
}

#[test]
fn accepts_matching_parameters() {
    let memory = source(1024);
    assert_eq!(program(&linear(), &good(&memory)), []);
    // A dimension of -1 matches any size; a variable of unknown dtype any tensor.
    let mut open = linear();
    open.blocks[0].variables[1].shape = Some(vec![-1, 4]);
    open.blocks[0].variables[2].shape = None;
    open.blocks[0].variables[2].dtype = None;
    assert_eq!(program(&open, &good(&memory)), []);
    // The stored rows of selected rows are independent of the declared height.
    open.blocks[0].variables[1].kind = VariableKind::SelectedRows;
    open.blocks[0].variables[1].shape = Some(vec![1000, 4]);
    assert_eq!(program(&open, &good(&memory)), []);
}

#[test]
fn reports_missing_and_extra_tensors() {
    let memory = source(1024);
    let mut tensors = good(&memory);
    tensors[0] = tensor("fc.bias", DType::F32, &[4], &memory, 0);
    let findings = program(&linear(), &tensors);
    assert_eq!(codes(&findings), [("missing-parameter", Some("fc.b")), ("extra-tensors", None)]);
    assert!(findings[0].text.ends_with("f32 [4]") && findings[1].text.ends_with("fc.bias"));
    assert_eq!(findings[1].severity, Severity::Warning);
    let none = program(&linear(), &[]);
    assert_eq!((none[0].code.as_str(), none[0].severity), ("no-parameters", Severity::Unchecked));
    assert_eq!(program(&testing::program(vec![Block::default()], vec![], vec![]), &[]), []);
}

#[test]
fn missing_state_is_a_warning_if_parameters_are_marked() {
    let memory = source(1024);
    let mut training = linear();
    for variable in &mut training.blocks[0].variables {
        variable.parameter = variable.persistable;
    }
    training.blocks[0].variables.push(variable("fc.w_moment1_0", &[3, 4], true));
    let mut step = training.blocks[0].operators[2].clone();
    step.kind = "adam".to_owned();
    step.inputs[0].arguments = vec!["fc.w_moment1_0".to_owned()];
    training.blocks[0].operators.push(step);
    assert_eq!(codes(&program(&training, &good(&memory))), [("missing-state", None)]);
    let mut tensors = good(&memory);
    let mut moment = tensor("fc.w", DType::F32, &[3, 4], &memory, 64);
    moment.role = Role::OptimizerState { slot: Name::from("moment1_0") };
    tensors.push(moment);
    assert_eq!(program(&training, &tensors), []);
}

#[test]
fn variable_names_come_from_attributes() {
    let memory = source(1024);
    let mut tensors = good(&memory);
    for (place, key) in [Attributes::VARIABLE_NAME, Attributes::RENAMED_FROM].into_iter().enumerate() {
        let old = Value::Text(tensors[place].text());
        tensors[place].attributes.insert(key.to_owned(), old);
        tensors[place].path = crate::checkpoint::TensorPath::from_dotted(&format!("layer.{place}"));
    }
    assert_eq!(variable_names(&linear(), &tensors), ["fc.b", "fc.w"]);
    assert_eq!(program(&linear(), &tensors), []);
    tensors[1].attributes.insert(Attributes::VARIABLE_NAME.to_owned(), Value::Text("fc.b".to_owned()));
    let found = program(&linear(), &tensors);
    assert_eq!(found[0].code, "duplicate-parameter");
}

#[test]
fn shapes_and_types_are_compared() {
    let memory = source(1024);
    let mut tensors = good(&memory);
    tensors[1] = tensor("fc.w", DType::F64, &[4, 3], &memory, 16);
    let findings = program(&linear(), &tensors);
    assert_eq!(codes(&findings), [("shape-differs", Some("fc.w")), ("dtype-differs", Some("fc.w"))]);
    assert_eq!(findings[0].text, "shape mismatch: the program declares [3, 4], the tensor is [4, 3]");
    assert_eq!(findings[1].text, "dtype mismatch: the program declares f32, the tensor is f64");
    // Ranks must match.
    tensors[0] = tensor("fc.b", DType::F32, &[4, 1], &memory, 0);
    assert_eq!(codes(&program(&linear(), &tensors))[0], ("shape-differs", Some("fc.b")));
}

#[test]
fn files_saved_as_half_have_one_finding() {
    let memory = source(1024);
    let half = |name: &str, dims: &[u64]| tensor(name, DType::F16, dims, &memory, 0);
    let findings = program(&linear(), &[half("fc.b", &[4]), half("fc.w", &[3, 4])]);
    assert_eq!(codes(&findings), [("saved-as-half", None)]);
    assert_eq!(findings[0].severity, Severity::Unchecked);
    let mixed = program(&linear(), &[half("fc.b", &[4]), good(&memory).remove(1)]);
    assert_eq!(codes(&mixed), [("dtype-differs", Some("fc.b"))]);
}

#[test]
fn reports_swapped_tensors() {
    let memory = source(1024);
    let tensors =
        [tensor("fc.b", DType::F32, &[3, 4], &memory, 0), tensor("fc.w", DType::F32, &[4], &memory, 64)];
    let findings = program(&linear(), &tensors);
    let swap = findings.iter().find(|f| f.code == "swapped-tensors").unwrap();
    assert!(swap.text.contains("fc.b and fc.w"));
    assert_eq!(findings.iter().filter(|f| f.code == "shape-differs").count(), 2);
}

/// Twelve layers of different shapes, with names in natural order instead of byte order.
#[test]
fn reports_names_in_another_order() {
    let memory = source(1 << 16);
    let layers: Vec<String> = (0..12).map(|i| format!("fc_{i}.w")).collect();
    let variables = layers.iter().zip(1..).map(|(n, rows)| variable(n, &[rows, 2], true)).collect();
    let block = Block { variables, ..Block::default() };
    let topology = testing::program(vec![block], vec![], vec![]);
    let mut sorted = layers.clone();
    sorted.sort();
    let tensors: Vec<_> = sorted
        .iter()
        .enumerate()
        .map(|(i, n)| tensor(n, DType::F32, &[i as u64 + 1, 2], &memory, 0))
        .collect();
    let findings = parameters(&topology, &tensors);
    let order = findings.iter().find(|f| f.code == "names-in-other-order").unwrap();
    assert!(order.text.contains("fc_2 before fc_10"), "{}", order.text);
    let right: Vec<_> = layers
        .iter()
        .enumerate()
        .map(|(i, n)| tensor(n, DType::F32, &[i as u64 + 1, 2], &memory, 0))
        .collect();
    assert_eq!(parameters(&topology, &right), []);
}

#[test]
fn natural_order_compares_numbers_by_value() {
    let mut names = vec!["fc_10.b", "fc_2.b", "fc_2.a", "fc_02.b", "a", "fc_", "权"];
    names.sort_by(|a, b| natural_order(a, b));
    assert_eq!(names, ["a", "fc_", "fc_2.a", "fc_2.b", "fc_02.b", "fc_10.b", "权"]);
}

#[test]
fn declared_levels_of_lod_are_compared() {
    let memory = source(1024);
    let mut tensors = good(&memory);
    let level = Value::List(vec![Value::U64(0), Value::U64(4)]);
    tensors[0].attributes.insert(LOD.to_owned(), Value::List(vec![level]));
    assert_eq!(codes(&program(&linear(), &tensors)), [("lod-differs", Some("fc.b"))]);
    let mut declared = linear();
    declared.blocks[0].variables[2].lod_level = 1;
    assert_eq!(program(&declared, &tensors), []);
}
