//! Handwritten programs, run in separate folders; expected numbers were computed by Paddle 2.6.2.

#![allow(clippy::disallowed_methods)]

mod numbers;
mod refused;
mod saved;

use super::{Executor, Scope, Value};
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::checkpoint::{TensorEntry, TensorPath};
use weighbridge_core::tensor::{DType, Encoding, Order, Shape};
use weighbridge_core::topology::{
    Attribute, AttributeValue, Block, Operator, Slot, Topology, Variable, VariableKind,
};
use weighbridge_io::source::{MemorySource, SourceRef};

/// An operator: arguments as `slot: name name`, in and out.
fn op(
    kind: &str,
    inputs: &[(&str, &[&str])],
    outputs: &[(&str, &[&str])],
    attributes: &[(&str, AttributeValue)],
) -> Operator {
    let slots = |slots: &[(&str, &[&str])]| {
        let slot = |&(name, arguments): &(&str, &[&str])| Slot {
            name: name.to_owned(),
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
        };
        slots.iter().map(slot).collect()
    };
    let attribute = |(name, value): &(&str, AttributeValue)| Attribute {
        name: (*name).to_owned(),
        kind: String::new(),
        value: value.clone(),
    };
    Operator {
        kind: kind.to_owned(),
        inputs: slots(inputs),
        outputs: slots(outputs),
        attributes: attributes.iter().map(attribute).collect(),
        blocks: Vec::new(),
    }
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::Text(text.to_owned())
}

fn int(number: i64) -> AttributeValue {
    AttributeValue::Int(number)
}

fn ints(numbers: &[i64]) -> AttributeValue {
    AttributeValue::List(numbers.iter().map(|&n| AttributeValue::Int(n)).collect())
}

const YES: AttributeValue = AttributeValue::Bool(true);
const NO: AttributeValue = AttributeValue::Bool(false);

fn save(name: &str, file: &str) -> Operator {
    op("save", &[("X", &[name])], &[], &[("file_path", text(file))])
}

fn load(file: &str, name: &str) -> Operator {
    op("load", &[], &[("Out", &[name])], &[("file_path", text(file))])
}

fn save_combine(names: &[&str], file: &str) -> Operator {
    op("save_combine", &[("X", names)], &[("Y", &["raw"])], &[("file_path", text(file))])
}

fn load_combine(file: &str, names: &[&str]) -> Operator {
    op("load_combine", &[], &[("Out", names)], &[("file_path", text(file))])
}

fn fetch(name: &str, col: i64) -> Operator {
    op("fetch", &[("X", &[name])], &[("Out", &["fetch"])], &[("col", int(col))])
}

fn feed(name: &str, col: i64) -> Operator {
    op("feed", &[("X", &["feed"])], &[("Out", &[name])], &[("col", int(col))])
}

/// Adds an attribute to an operator.
fn with(mut operator: Operator, name: &str, value: AttributeValue) -> Operator {
    operator.attributes.push(Attribute { name: name.to_owned(), kind: String::new(), value });
    operator
}

fn program(operators: Vec<Operator>) -> Topology {
    declaring(operators, &[])
}

fn declaring(operators: Vec<Operator>, variables: &[(&str, VariableKind)]) -> Topology {
    let variable = |(name, kind): &(&str, VariableKind)| Variable {
        name: (*name).to_owned(),
        kind: kind.clone(),
        dtype: None,
        dtype_name: None,
        shape: None,
        lod_level: 0,
        persistable: true,
        parameter: false,
        stop_gradient: false,
    };
    let main = Block { operators, variables: variables.iter().map(variable).collect(), ..Block::default() };
    Topology {
        form: "program-desc",
        writer: None,
        bytes: Arc::new([]),
        blocks: vec![main],
        feeds: Vec::new(),
        fetches: Vec::new(),
        operator_versions: Vec::new(),
    }
}

fn tensor(dtype: DType, dims: &[u64], bytes: &[u8]) -> TensorEntry {
    let source: SourceRef = Arc::new(MemorySource::new("given", bytes.to_vec()));
    TensorEntry::dense(TensorPath::value(), dtype, Shape::new(dims), &source, 0, Encoding::ROW).unwrap()
}

fn f32s(values: &[f32]) -> TensorEntry {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    tensor(DType::F32, &[values.len() as u64], &bytes)
}

fn bytes_of(entry: &TensorEntry) -> Vec<u8> {
    entry.read_tensor(Order::Row).unwrap()
}

/// Runs a program in `folder` and returns the fetched values.
fn run(
    folder: &Path,
    topology: &Topology,
    scope: &mut Scope,
) -> weighbridge_core::Result<Vec<(String, TensorEntry)>> {
    Executor::new(folder).run(topology, scope, &[])
}

/// Returns a scope with these tensors.
fn scope(tensors: &[(&str, TensorEntry)]) -> Scope {
    let mut scope = Scope::new();
    tensors.iter().for_each(|(name, entry)| scope.set(*name, Value::Tensor(entry.clone())));
    scope
}

/// All files below `folder` with their bytes, by relative name.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    use weighbridge_io::source::{Folder, LocalFolder};
    let listed = LocalFolder::open(folder).unwrap().list(9).unwrap();
    let read = |name: &Path| (name.display().to_string(), std::fs::read(folder.join(name)).unwrap());
    listed.iter().map(|item| read(&item.name)).collect()
}

fn golden(path: &str) -> std::path::PathBuf {
    weighbridge_testkit::testdata("paddle").join(path)
}
