//! Neutral view of a program.

use super::model::{Model, Op, Type, Value};
use super::words::{DATA, FEED, FETCH, PARAMETER, SHADOW_OUTPUT, known_dialect};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::checkpoint::Note;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::topology::{AttributeValue, Block, Endpoint, Operator, Slot, Topology, Variable};

/// Name of a missing operand (value 0), as in the older programs.
const EMPTY: &str = "@EMPTY@";

/// Names of all values.
struct Names<'m> {
    by_id: HashMap<i64, String>,
    /// Names given in the file.
    given: HashSet<&'m str>,
}

impl<'m> Names<'m> {
    fn of(model: &'m Model) -> Self {
        let mut names = Self { by_id: HashMap::new(), given: HashSet::new() };
        // Tensors first, because a fetch must not take the name of a tensor.
        for wanted in [|op: &Op| op.name != FETCH, |op: &Op| op.name == FETCH] {
            for op in operators(model).filter(|op| wanted(op)) {
                let (Some(named), Some(result)) = (declared(op), op.results.first()) else { continue };
                let fresh = names.given.insert(named);
                if result.id != 0 && (fresh || op.name != FETCH) {
                    names.by_id.insert(result.id, named.to_owned());
                }
            }
        }
        // A tensor may have the default name of a value. Each such value is renamed once.
        for &taken in &names.given {
            let Some(id) = taken.strip_prefix('%').and_then(|id| id.parse::<i64>().ok()) else { continue };
            let mut name = format!("%{id}");
            if name != taken {
                continue;
            }
            while names.given.contains(name.as_str()) {
                name.push('\'');
            }
            names.by_id.entry(id).or_insert(name);
        }
        names
    }

    fn name(&self, id: i64) -> String {
        if id == 0 {
            return EMPTY.to_owned();
        }
        if let Some(name) = self.by_id.get(&id) {
            return name.clone();
        }
        format!("%{id}")
    }
}

/// Maximum total length in bytes of the names in the view of a program of `len` bytes. An operand is a number in the
/// file and a name in the view. Well-formed files have names about as long as the text around the number.
fn max_name_bytes(len: usize) -> usize {
    len.saturating_mul(4).saturating_add(4 << 20)
}

/// Fails if the names of all operands and results together are many times the length of the program.
///
/// # Errors
/// [`weighbridge_core::Kind::Limit`], `names-too-long`.
pub(super) fn check_names(model: &Model, len: usize) -> Result<()> {
    let names = Names::of(model);
    // Other values are a number.
    let length = |id: i64| names.by_id.get(&id).map_or(0, String::len);
    let ids = operators(model)
        .flat_map(|op| op.operands.iter().copied().chain(op.results.iter().map(|result| result.id)));
    let sum = ids.fold(0usize, |sum, id| sum.saturating_add(length(id)));
    let most = max_name_bytes(len);
    if sum <= most {
        return Ok(());
    }
    Err(Error::limit("names-too-long", "the operand names exceed the length of the program many times")
        .expected(format_args!("at most {most} bytes of names"))
        .found(sum)
        .hint("shorten the long name of a tensor that many operators read"))
}

fn operators(model: &Model) -> impl Iterator<Item = &Op> {
    model.blocks.iter().flat_map(|b| &b.operators)
}

/// Returns the name that the operator declares for its result.
fn declared(op: &Op) -> Option<&str> {
    op.named.as_ref().filter(|n| n.declares).map(|n| n.name.as_str())
}

/// True if the operator's result is stored in a file: a parameter or state.
///
/// A program saved as not trainable lacks the flag. Then every parameter counts as stored, because there would
/// be no parameter file otherwise, and data are inputs.
pub(super) fn stored(op: &Op) -> bool {
    let flag = op.results.first().and_then(|r| r.persistable);
    match op.name.as_str() {
        PARAMETER => flag.unwrap_or(true),
        DATA => flag.unwrap_or(false),
        _ => false,
    }
}

/// True if the operator's result is an input of the program.
pub(super) fn fed(op: &Op) -> bool {
    op.name == FEED || op.name == DATA && !stored(op)
}

/// Returns the content of the program whose text is `bytes`.
pub(super) fn topology(model: &Model, bytes: &Arc<[u8]>) -> Topology {
    let names = Names::of(model);
    let blocks = model.blocks.iter().map(|block| {
        let mut seen = HashSet::new();
        let mut variables: Vec<_> = block.arguments.iter().map(|v| variable(v, names.name(v.id))).collect();
        for op in &block.operators {
            for result in op.results.iter().filter(|r| r.id != 0) {
                let name = names.name(result.id);
                // Several operators may name the same tensor.
                if declared(op).is_some() && !seen.insert(name.clone()) {
                    continue;
                }
                let mut variable = variable(result, name);
                variable.persistable = stored(op);
                variable.parameter = op.name == PARAMETER && is_parameter(op);
                variables.push(variable);
            }
        }
        Block {
            parent: block.parent,
            arguments: block.arguments.iter().map(|v| names.name(v.id)).collect(),
            variables,
            operators: block.operators.iter().map(|op| operator(op, &names)).collect(),
        }
    });
    let blocks = blocks.collect();
    let (feeds, fetches) = endpoints(model, &names);
    Topology {
        form: "pir",
        writer: Some(model.version.to_string()),
        bytes: bytes.clone(),
        blocks,
        feeds,
        fetches,
        operator_versions: Vec::new(),
    }
}

/// True for parameters: the short form has a flag; other operators are parameters unless their flag is false.
fn is_parameter(op: &Op) -> bool {
    let no = |value: &AttributeValue| match value {
        AttributeValue::List(list) => list.first() == Some(&AttributeValue::Bool(false)),
        value => *value == AttributeValue::Bool(false),
    };
    !op.attribute("is_parameter").is_some_and(|a| no(&a.attribute.value))
}

fn variable(value: &Value, name: String) -> Variable {
    let Type { kind, dtype_name, dtype, shape, lod_level } = value.kind.clone();
    Variable {
        name,
        kind,
        dtype,
        dtype_name,
        shape,
        lod_level,
        persistable: false,
        parameter: false,
        stop_gradient: value.stop_gradient,
    }
}

fn operator(op: &Op, names: &Names<'_>) -> Operator {
    let slot = |arguments: Vec<String>| match arguments.is_empty() {
        true => Vec::new(),
        false => vec![Slot { name: String::new(), arguments }],
    };
    // Properties of the results are stored with the variables.
    let of_result = ["persistable", "stop_gradient"];
    let kept = op.attributes.iter().filter(|a| {
        !of_result.contains(&a.attribute.name.as_str())
            || !matches!(a.attribute.value, AttributeValue::List(_))
    });
    Operator {
        kind: op.name.clone(),
        inputs: slot(op.operands.iter().map(|&id| names.name(id)).collect()),
        outputs: slot(op.results.iter().map(|r| names.name(r.id)).collect()),
        attributes: kept.map(|a| a.attribute.clone()).collect(),
        blocks: op.blocks.clone(),
    }
}

/// Returns inputs in file order and outputs in column order.
fn endpoints(model: &Model, names: &Names<'_>) -> (Vec<Endpoint>, Vec<Endpoint>) {
    let endpoint = |name: String, value: Option<&Type>| Endpoint {
        name,
        dtype: value.and_then(|t| t.dtype),
        shape: value.and_then(|t| t.shape.clone()),
    };
    let of_result = |op: &Op| {
        let result = op.results.first();
        endpoint(result.map_or(EMPTY.to_owned(), |r| names.name(r.id)), result.map(|r| &r.kind))
    };
    let feeds = operators(model).filter(|op| fed(op)).map(of_result).collect();
    let mut fetches: Vec<(i64, Endpoint)> = Vec::new();
    for op in operators(model).filter(|op| op.name == FETCH) {
        let column = match op.attribute("col").map(|a| &a.attribute.value) {
            Some(AttributeValue::Int(column)) => *column,
            _ => i64::MAX,
        };
        fetches.push((column, of_result(op)));
    }
    fetches.sort_by_key(|(column, _)| *column);
    if !fetches.is_empty() {
        return (feeds, fetches.into_iter().map(|(_, endpoint)| endpoint).collect());
    }
    // Programs traced from dynamic code name their outputs in another way, until they are saved for
    // inference.
    let types: HashMap<i64, &Type> = values(model).map(|v| (v.id, &v.kind)).collect();
    let shadows = operators(model).filter(|op| op.name == SHADOW_OUTPUT);
    let shadow = |op: &Op| {
        let name = op.named.as_ref().map_or(EMPTY, |n| &n.name).to_owned();
        endpoint(name, op.operands.first().and_then(|id| types.get(id).copied()))
    };
    (feeds, shadows.map(shadow).collect())
}

/// Iterates over all values: arguments of blocks and results.
fn values(model: &Model) -> impl Iterator<Item = &Value> {
    model.blocks.iter().flat_map(|b| b.arguments.iter().chain(b.operators.iter().flat_map(|op| &op.results)))
}

/// Returns notes on irregularities of the program.
pub(super) fn notes(model: &Model) -> Vec<Note> {
    let mut notes = Vec::new();
    if model.version == 0 {
        notes.push(Note::new(
            "pir-version-0",
            "the program has version 0 (a development build); Paddle 3.3 does not load it",
        ));
    }
    let unsaid = operators(model)
        .filter(|op| op.name == PARAMETER && op.results.first().is_some_and(|r| r.persistable.is_none()))
        .count();
    if unsaid > 0 {
        notes.push(Note::new(
            "parameters-guessed",
            format!(
                "{unsaid} parameters lack the flag `persistable` (saved with trainable=False) and are assumed to be in \
                 the parameter file; Paddle 3.3 cannot use the program"
            ),
        ));
    }
    let roots = model.blocks.iter().filter(|b| b.parent.is_none()).count();
    if roots > 1 {
        notes.push(Note::new(
            "more-blocks",
            format!("the program has {roots} outermost blocks; Paddle reads the first"),
        ));
    }
    let defined: HashSet<i64> = values(model).map(|v| v.id).collect();
    let mut lost =
        operators(model).flat_map(|op| &op.operands).filter(|id| **id != 0 && !defined.contains(id));
    if let Some(first) = lost.next() {
        let count = lost.count() + 1;
        notes.push(Note::new(
            "undefined-value",
            format!("{count} operands refer to undefined values, first %{first}"),
        ));
    }
    let mut unknown = operators(model).filter(|op| !known_dialect(&op.name));
    if let Some(first) = unknown.next() {
        let count = unknown.count() + 1;
        let name: String = first.name.chars().take(80).collect();
        notes.push(Note::new(
            "unknown-dialect",
            format!("{count} operators have an unknown dialect, first {name}"),
        ));
    }
    let mut types: HashMap<&str, &Type> = HashMap::new();
    for op in operators(model).filter(|op| op.name != FETCH) {
        let (Some(name), Some(result)) = (declared(op), op.results.first()) else { continue };
        if *types.entry(name).or_insert(&result.kind) != &result.kind {
            let name: String = name.chars().take(80).collect();
            notes.push(Note::new(
                "name-of-two-types",
                format!("two tensors of different types have the name {name}"),
            ));
            break;
        }
    }
    notes
}

/// Returns the names of all declared values.
pub(super) fn all_names(model: &Model) -> std::collections::BTreeSet<String> {
    let names = Names::of(model);
    values(model).filter(|v| v.id != 0).map(|v| names.name(v.id)).collect()
}
