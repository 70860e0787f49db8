//! Control flow and lists of tensors.
//!
//! | Paddle | ONNX |
//! | --- | --- |
//! | `conditional_block` twice with `select_input`, `pd_op.if` | `If` |
//! | `while`, `pd_op.while` | `Loop`; variables that the body assigns are carried |
//! | tensor arrays | sequences |
//!
//! A body of `ProgramDesc` writes variables of the program around it. A `conditional_block` is translated when its results are
//! read: by `select_input`, inside a branch of the `If`. Results that had a value before keep it in the other branch.

use super::Exporter;
use super::builder::{Builder, Dims, Value};
use super::infer::{Inferred, common};
use super::operator::Op;
use crate::constant::Constant;
use crate::dtype;
use crate::model::{Attr, Dim, Graph};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::{Operator, VariableKind};

/// Maximum nesting of bodies.
pub(super) const MAX_DEPTH: usize = 32;
/// Value of a Python variable that is not assigned yet, in programs of `to_static`.
const PLACEHOLDER: f64 = 1.77113e27;
/// Maximum translations of the body of one loop, until the dimensions of its variables no longer change.
const MAX_ROUNDS: usize = 6;

/// Operators of `ProgramDesc` that this module translates, or that need no node.
pub(super) const DESC: &[&str] = &[
    "assert",
    "conditional_block",
    "conditional_block_infer",
    "feed",
    "fetch",
    "lod_array_length",
    "print",
    "read_from_array",
    "select_input",
    "tensor_array_to_tensor",
    "while",
    "write_to_array",
];
/// The same of PIR, without dialect.
pub(super) const PIR: &[&str] = &[
    "array_length",
    "array_read",
    "array_to_tensor",
    "array_write",
    "assert",
    "assign_out",
    "combine",
    "create_array",
    "create_array_like",
    "data",
    "feed",
    "fetch",
    "if",
    "parameter",
    "print",
    "select_input",
    "shadow_output",
    "slice_list",
    "split_list",
    "while",
    "yield",
];

/// State of control flow.
#[derive(Default)]
pub(super) struct State {
    /// True for a program in PIR.
    pub(super) is_pir: bool,
    /// Results of conditional blocks that are not translated yet.
    pending: HashMap<String, Rc<Pending>>,
    /// Results of the last `select_input` operators, translated together with the first of them.
    selected: HashMap<String, Value>,
    /// Lengths of lists, if known, by the names of their values.
    lengths: HashMap<String, i64>,
    /// Lists that were never written, by the names of their values. The dimensions of their elements are those of the first.
    unwritten: HashSet<String>,
    /// Variables of loop bodies that are placeholders before the loop, by the names of their values. One that takes the type of
    /// another value is no longer here.
    placeholders: HashSet<String>,
    depth: usize,
}

/// Conditional block that is not translated yet.
struct Pending {
    block: usize,
    /// Values that the block reads, as they were at its place in the program.
    values: Vec<(String, Value)>,
}

/// Returns true for an operator that this module translates; its name is that of a program.
pub(super) fn handles(kind: &str) -> bool {
    match kind.split_once('.') {
        Some(("builtin", name)) => {
            matches!(name, "parameter" | "combine" | "split" | "slice" | "shadow_output")
        }
        Some((_, name)) => {
            let name = name.strip_suffix('_').unwrap_or(name);
            PIR.contains(&name) && !matches!(name, "combine" | "parameter" | "shadow_output")
        }
        None => DESC.contains(&kind),
    }
}

/// Translates an operator of control flow. Returns false for another operator.
pub(super) fn translate<'a>(
    exporter: &mut Exporter<'a>,
    b: &mut Builder<'a>,
    op: &Op<'a>,
    number: usize,
    place: usize,
) -> Result<bool> {
    if !handles(op.shown) {
        return Ok(false);
    }
    match op.kind {
        "conditional_block" | "conditional_block_infer" => conditional(exporter, b, op)?,
        "select_input" if op.is_pir => select_pir(b, op)?,
        "select_input" => select(exporter, b, op, number, place)?,
        "while" if op.is_pir => while_pir(exporter, b, op)?,
        "while" => while_desc(exporter, b, op)?,
        "if" => if_pir(exporter, b, op)?,
        "write_to_array" => {
            let (array, index) = (op.output("Out"), b.input(op, "I")?);
            let x = b.input(op, "X")?;
            let name = array.first().copied().unwrap_or("");
            write(b, &[name], &index, &x)?;
        }
        "array_write" => {
            let names: Vec<&str> = op.inputs.iter().flat_map(|(_, names)| names.clone()).collect();
            let [array, x, index] = names[..] else { return Err(op.malformed("needs three operands")) };
            let (x, index) = (b.get(x)?, b.get(index)?);
            // The list is changed in place: the operand and the result are one list.
            let result = first_output(op).unwrap_or(array);
            write(b, &[array, result], &index, &x)?;
        }
        "read_from_array" | "array_read" => {
            let (list, index) = operands(b, op, ["X", "I"])?;
            let index = scalar(b, &index, DType::I64);
            let value = b.binary("SequenceAt", &list, &index);
            set_first(b, op, value);
        }
        "lod_array_length" | "array_length" => {
            let list = first_operand(b, op)?;
            let length = length_of(b, &list);
            let is_scalar = first_output(op)
                .and_then(|name| b.declaration(name))
                .and_then(|variable| variable.shape.as_ref())
                .is_some_and(Vec::is_empty);
            let length = if is_scalar && op.is_pir { length } else { b.reshape(&length, &[1]) };
            set_first(b, op, length);
        }
        "tensor_array_to_tensor" | "array_to_tensor" => {
            let list = first_operand(b, op)?;
            let stack = i64::from(op.bool("use_stack", false));
            let attributes = vec![("axis", Attr::Int(op.int("axis", 0))), ("new_axis", Attr::Int(stack))];
            let value = b.node("ConcatFromSequence", &[&list], attributes);
            let mut names = op.outputs.iter().flat_map(|(_, names)| names.clone());
            if let Some(name) = names.next() {
                b.set(name, value);
            }
            if let Some(name) = names.next() {
                let sizes = sizes_in(b, op, &list, op.int("axis", 0))?;
                b.set(name, sizes);
            }
        }
        "create_array" | "create_array_like" => {
            let dtype = op.dtype("dtype").or_else(|| {
                first_output(op).and_then(|name| b.declaration(name)).and_then(|variable| variable.dtype)
            });
            let list = empty(b, dtype.unwrap_or(DType::F32));
            if let Some(name) = first_output(op) {
                set_list(b, &[name], list, Some(0))?;
            }
        }
        "print" => {
            let value = first_operand(b, op)?;
            set_first(b, op, value);
        }
        // The second operand takes the value of the first.
        "assign_out" => {
            let value = first_operand(b, op)?;
            let mut value = b.identity(&value);
            for name in op.inputs.iter().skip(1).chain(&op.outputs).flat_map(|(_, names)| names) {
                // The value may take the name of the variable.
                b.set(name, value);
                value = b.get(name)?;
            }
        }
        // Inputs, outputs, parameters and lists are found by name.
        _ => {}
    }
    Ok(true)
}

fn first_output<'a>(op: &Op<'a>) -> Option<&'a str> {
    op.outputs.iter().flat_map(|(_, names)| names).next().copied()
}

fn set_first(b: &mut Builder<'_>, op: &Op<'_>, value: Value) {
    if let Some(name) = first_output(op) {
        b.set(name, value);
    }
}

fn first_operand(b: &mut Builder<'_>, op: &Op<'_>) -> Result<Value> {
    let name = op.inputs.iter().flat_map(|(_, names)| names).next();
    let name = name.ok_or_else(|| op.malformed("lacks its operand"))?;
    b.get(name)
}

/// Returns two operands: by slot in `ProgramDesc`, by order in PIR.
fn operands(b: &mut Builder<'_>, op: &Op<'_>, slots: [&str; 2]) -> Result<(Value, Value)> {
    if !op.is_pir {
        return Ok((b.input(op, slots[0])?, b.input(op, slots[1])?));
    }
    let names: Vec<&str> = op.inputs.iter().flat_map(|(_, names)| names.clone()).collect();
    let [first, second, ..] = names[..] else { return Err(op.malformed("needs two operands")) };
    Ok((b.get(first)?, b.get(second)?))
}

/// Returns a value of one element as a scalar.
pub(super) fn scalar(b: &mut Builder<'_>, value: &Value, dtype: DType) -> Value {
    let value = b.cast(value, dtype);
    if value.rank() == Some(0) { value } else { b.reshape(&value, &[]) }
}

// ---- lists

/// Returns an empty list.
fn empty(b: &mut Builder<'_>, dtype: DType) -> Value {
    let number = dtype::number(dtype).unwrap_or(1);
    b.node("SequenceEmpty", &[], vec![("dtype", Attr::Int(number))])
}

/// Assigns a list to variables and notes its length.
fn set_list(b: &mut Builder<'_>, names: &[&str], list: Value, length: Option<i64>) -> Result<()> {
    let mut list = list;
    for name in names {
        b.set(name, list);
        list = b.get(name)?;
    }
    if length == Some(0) {
        b.control.unwritten.insert(list.name.clone());
    }
    match length {
        Some(length) => b.control.lengths.insert(list.name, length),
        None => b.control.lengths.remove(&list.name),
    };
    Ok(())
}

/// Returns the length of a list.
fn length_of(b: &mut Builder<'_>, list: &Value) -> Value {
    match b.control.lengths.get(&list.name) {
        Some(length) => b.int(*length),
        None => b.unary("SequenceLength", list),
    }
}

/// Puts an element into the list of the first variable, an empty one if it has none yet: in place of the element at the index,
/// or at the end. Assigns the list to all the variables.
fn write(b: &mut Builder<'_>, names: &[&str], index: &Value, x: &Value) -> Result<()> {
    let found = match names.first() {
        Some(name) => b.find(name)?,
        None => None,
    };
    let (list, length) = match found {
        Some(list) => {
            let length = b.control.lengths.get(&list.name).copied();
            (list, length)
        }
        None => (empty(b, x.dtype), Some(0)),
    };
    let index = scalar(b, index, DType::I64);
    let at = b.known_ints(&index)?.and_then(|at| at.first().copied());
    let is_first = length == Some(0) || b.control.unwritten.contains(&list.name);
    let dims = if is_first { x.dims.clone() } else { common(&list.dims, &x.dims) };
    let append = |b: &mut Builder<'_>| {
        let longer = b.node("SequenceInsert", &[&list, x], Vec::new());
        Value { dims: dims.clone(), ..longer }
    };
    let replace = |b: &mut Builder<'_>| {
        let shorter = b.node("SequenceErase", &[&list, &index], Vec::new());
        let list = b.node("SequenceInsert", &[&shorter, x, &index], Vec::new());
        Value { dims: dims.clone(), ..list }
    };
    if let (Some(length), Some(at)) = (length, at) {
        if at == length {
            let list = append(b);
            return set_list(b, names, list, Some(length + 1));
        }
        if (0..length).contains(&at) {
            let list = replace(b);
            return set_list(b, names, list, Some(length));
        }
    }
    let length = length_of(b, &list);
    let inside = b.binary("Less", &index, &length);
    let (replace, _) = b.body(&[], |b| Ok(vec![replace(b)]))?;
    let (append, _) = b.body(&[], |b| Ok(vec![append(b)]))?;
    let result = Inferred { dtype: x.dtype, dims, is_sequence: true };
    let list = branch(b, &inside, replace, append, vec![result]).pop().unwrap_or_else(Value::none);
    set_list(b, names, list, None)
}

/// Returns the sizes of the elements of a list along an axis: 32-bit integers, rank 1.
fn sizes_in(b: &mut Builder<'_>, op: &Op<'_>, list: &Value, axis: i64) -> Result<Value> {
    let axis = b.axis(op, &Value { is_sequence: false, ..list.clone() }, axis)?;
    let length = length_of(b, list);
    let formals = [
        b.formal("iteration", DType::I64, Some(Vec::new()), false),
        b.formal("condition", DType::Bool, Some(Vec::new()), false),
    ];
    let (body, _) = b.body(&formals, |b| {
        let element = b.binary("SequenceAt", list, &formals[0]);
        let element =
            Value { is_sequence: false, dims: element.rank().map(|rank| vec![Dim::Open; rank]), ..element };
        let size = b.dim(&element, axis);
        let size = scalar(b, &size, DType::I32);
        Ok(vec![b.identity(&formals[1]), size])
    })?;
    let always = b.scalar(1.0, DType::Bool);
    let attributes = vec![("body", Attr::Graph(Box::new(body)))];
    let sizes = b.typed("Loop", &[&length, &always], attributes, vec![Inferred::open(DType::I32, 1)]);
    Ok(sizes.into_iter().next().unwrap_or_else(Value::none))
}

fn branch(
    b: &mut Builder<'_>,
    condition: &Value,
    then: Graph,
    otherwise: Graph,
    results: Vec<Inferred>,
) -> Vec<Value> {
    let attributes =
        vec![("then_branch", Attr::Graph(Box::new(then))), ("else_branch", Attr::Graph(Box::new(otherwise)))];
    b.typed("If", &[condition], attributes, results)
}

// ---- branches of ProgramDesc

/// Notes the results of a conditional block; those that have a value already are branched on at once.
fn conditional<'a>(exporter: &mut Exporter<'a>, b: &mut Builder<'a>, op: &Op<'a>) -> Result<()> {
    let block = *op.blocks.first().ok_or_else(|| op.malformed("lacks its block"))?;
    let condition = b.input(op, "Cond")?;
    let condition = scalar(b, &condition, DType::Bool);
    match known(&condition) {
        Some(true) => return nested(exporter, b, block),
        Some(false) => return Ok(()),
        None => {}
    }
    let results = op.output("Out");
    let (old, new): (Vec<&str>, Vec<&str>) = results.iter().partition(|name| b.is_assigned(name));
    if !new.is_empty() {
        let mut values = Vec::new();
        for name in
            named(exporter, b, &[block], |o| o.inputs.iter().flat_map(|slot| &slot.arguments).collect())?
        {
            if b.is_assigned(name) {
                values.push((name.to_owned(), b.get(name)?));
            }
        }
        let pending = Rc::new(Pending { block, values });
        for name in new {
            b.control.pending.insert(name.to_owned(), pending.clone());
        }
    }
    if old.is_empty() {
        return Ok(());
    }
    let (then, taken) = b.body(&[], |b| {
        nested(exporter, b, block)?;
        old.iter().map(|name| b.get(name)).collect()
    })?;
    let (otherwise, kept) = b.body(&[], |b| old.iter().map(|name| b.get(name)).collect())?;
    let values = joined(b, op, &condition, (then, taken), (otherwise, kept))?;
    for (name, value) in old.iter().zip(values) {
        b.set(name, value);
    }
    Ok(())
}

/// Returns the variables that the operators of blocks and of their bodies name, in order. `of` returns those of an operator.
fn named<'a>(
    exporter: &Exporter<'a>,
    b: &mut Builder<'a>,
    blocks: &[usize],
    of: fn(&'a Operator) -> Vec<&'a String>,
) -> Result<Vec<&'a str>> {
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    let operators = |block: &usize| exporter.topology.blocks.get(*block).map(|block| block.operators.iter());
    // Blocks are nested at most `MAX_DEPTH` deep, and each is run by one operator.
    let mut open: Vec<_> = blocks.iter().rev().filter_map(operators).collect();
    while let Some(last) = open.last_mut() {
        let Some(operator) = last.next() else {
            open.pop();
            continue;
        };
        let own = of(operator);
        b.take_variables(own.len())?;
        names.extend(own.into_iter().map(String::as_str).filter(|name| known.insert(*name)));
        open.extend(operator.blocks.iter().rev().filter_map(operators));
    }
    Ok(names)
}

/// Returns true for the value that Paddle gives a Python variable that is not assigned on every path.
fn is_placeholder(value: &Value) -> bool {
    let number = value.constant.as_ref().and_then(|constant| super::operator::only(constant));
    number.is_some_and(|number| (number / PLACEHOLDER - 1.0).abs() < 1e-6)
}

/// Returns true for a placeholder, and for a variable of a loop that is one before the loop.
fn may_be_placeholder(b: &Builder<'_>, value: &Value) -> bool {
    is_placeholder(value) || b.control.placeholders.contains(&value.name)
}

/// Returns a value of the dtype and rank of another, in the place of a placeholder.
fn zeros_like(b: &mut Builder<'_>, placeholder: &Value, like: &Value) -> Value {
    b.control.placeholders.remove(&placeholder.name);
    if like.is_sequence {
        return empty(b, like.dtype);
    }
    Value::of(Constant::filled(0.0, like.dtype, &vec![1; like.rank().unwrap_or(1)]))
}

/// Returns a condition that is known while exporting.
fn known(condition: &Value) -> Option<bool> {
    condition.constant.as_ref().and_then(|constant| super::operator::only(constant)).map(|value| value != 0.0)
}

/// Translates the operators of a block in the current body.
fn nested<'a>(exporter: &mut Exporter<'a>, b: &mut Builder<'a>, block: usize) -> Result<()> {
    b.control.depth += 1;
    if b.control.depth > MAX_DEPTH {
        return Err(too_deep());
    }
    exporter.count_body(block)?;
    let done = exporter.run_block(b, block);
    b.control.depth -= 1;
    done
}

/// Returns the error for blocks in blocks beyond [`MAX_DEPTH`].
pub(super) fn too_deep() -> Error {
    Error::limit("nested-too-deep", "the blocks of the program are nested too deeply")
        .expected(format_args!("at most {MAX_DEPTH} levels"))
}

/// Adds an `If` whose branches return the same number of results.
fn joined(
    b: &mut Builder<'_>,
    op: &Op<'_>,
    condition: &Value,
    (then, taken): (Graph, Vec<Value>),
    (otherwise, kept): (Graph, Vec<Value>),
) -> Result<Vec<Value>> {
    let mut results = Vec::new();
    for (one, other) in taken.iter().zip(&kept) {
        if one.dtype != other.dtype || one.is_sequence != other.is_sequence {
            return Err(op.refuse("the branches return different dtypes"));
        }
        let dims = common(&one.dims, &other.dims);
        results.push(Inferred { dtype: one.dtype, dims, is_sequence: one.is_sequence });
    }
    Ok(branch(b, condition, then, otherwise, results))
}

/// Returns a result of a branch: of a conditional block, which runs in the current body, or a value of before.
fn result_of<'a>(exporter: &mut Exporter<'a>, b: &mut Builder<'a>, name: &str) -> Result<Value> {
    if let Some(value) = b.find(name)? {
        return Ok(value);
    }
    if let Some(pending) = b.control.pending.get(name).cloned() {
        for (name, value) in &pending.values {
            b.set(name, value.clone());
        }
        nested(exporter, b, pending.block)?;
    }
    b.get(name)
}

/// Translates all `select_input` of one condition as one `If`.
fn select<'a>(
    exporter: &mut Exporter<'a>,
    b: &mut Builder<'a>,
    op: &Op<'a>,
    number: usize,
    place: usize,
) -> Result<()> {
    let output = op.output("Out").first().copied().unwrap_or("");
    if let Some(value) = b.control.selected.remove(output) {
        b.set(output, value);
        return Ok(());
    }
    let mask_name = op.input("Mask").first().copied().unwrap_or("");
    let operators = exporter.topology.blocks.get(number).and_then(|block| block.operators.get(place..));
    let mut group: Vec<(&str, &'a [String])> = Vec::new();
    for (distance, other) in operators.unwrap_or(&[]).iter().enumerate() {
        let is_same =
            other.kind == "select_input" && other.input("Mask").first().is_some_and(|m| m == mask_name);
        let Some(out) = other.output("Out").first().filter(|_| is_same) else { continue };
        let names = other.input("X");
        // The result of one that was overwritten, and later inputs, belong to another group.
        let is_ready = names.iter().all(|name| b.is_assigned(name) || b.control.pending.contains_key(name));
        if group.iter().any(|(name, _)| name == out) || (distance > 0 && !is_ready) {
            break;
        }
        group.push((out, names));
    }
    let mask = b.input(op, "Mask")?;
    let condition = scalar(b, &mask, DType::Bool);
    if let Some(is_true) = known(&condition) {
        let name = op.input("X").get(usize::from(is_true)).ok_or_else(|| op.malformed("needs two inputs"))?;
        let value = result_of(exporter, b, name)?;
        b.set(output, value);
        return Ok(());
    }
    // The values of placeholders take the types of the other side, known after the first round.
    let mut types: Vec<Option<Value>> = vec![None; group.len()];
    let (then, otherwise) = loop {
        let names = b.names();
        let mut sides = Vec::new();
        for side in [1, 0] {
            sides.push(b.body(&[], |b| {
                let mut values = Vec::new();
                for ((_, names), like) in group.iter().zip(&types) {
                    let name = names.get(side).ok_or_else(|| op.malformed("needs two inputs"))?;
                    let value = result_of(exporter, b, name)?;
                    values.push(match like {
                        Some(like) if may_be_placeholder(b, &value) => zeros_like(b, &value, like),
                        _ => value,
                    });
                }
                Ok(values)
            })?);
        }
        let (Some(otherwise), Some(then)) = (sides.pop(), sides.pop()) else { return Ok(()) };
        let mut is_settled = true;
        for (place, (_, names)) in group.iter().enumerate() {
            let (one, other) = (&then.1[place], &otherwise.1[place]);
            if one.dtype == other.dtype || types[place].is_some() {
                continue;
            }
            for (side, other) in [(1, other), (0, one)] {
                let value = names.get(side).map(|name| b.find(name)).transpose()?.flatten();
                if value.is_some_and(|value| may_be_placeholder(b, &value)) {
                    types[place] = Some(other.clone());
                    is_settled = false;
                }
            }
        }
        if is_settled {
            break (then, otherwise);
        }
        b.forget_names(&names);
    };
    let values = joined(b, op, &condition, then, otherwise)?;
    for ((name, _), value) in group.iter().zip(values) {
        if *name == output {
            b.set(output, value);
        } else {
            b.control.selected.insert((*name).to_owned(), value);
        }
    }
    Ok(())
}

/// `pd_op.select_input`, in programs translated from protobuf: the operand with the number of the mask.
fn select_pir(b: &mut Builder<'_>, op: &Op<'_>) -> Result<()> {
    let names: Vec<&str> = op.inputs.iter().flat_map(|(_, names)| names.clone()).collect();
    let [mask, zero, one] = names[..] else { return Err(op.refuse("a choice among more than two values")) };
    let (mask, zero, one) = (b.get(mask)?, b.get(zero)?, b.get(one)?);
    let condition = scalar(b, &mask, DType::Bool);
    let value = match known(&condition) {
        Some(is_true) => {
            if is_true {
                one
            } else {
                zero
            }
        }
        None => {
            let then = b.body(&[], |_| Ok(vec![one]))?;
            let otherwise = b.body(&[], |_| Ok(vec![zero]))?;
            joined(b, op, &condition, then, otherwise)?.pop().unwrap_or_else(Value::none)
        }
    };
    set_first(b, op, value);
    Ok(())
}

// ---- loops

/// Returns the variables that an operator writes.
fn written(operator: &Operator) -> Vec<&String> {
    operator.outputs.iter().flat_map(|slot| &slot.arguments).chain(changed(operator)).collect()
}

/// Returns the operands that an operator of PIR changes in place.
pub(super) fn changed(operator: &Operator) -> &[String] {
    let operands = operator.input("");
    match operator.kind.as_str() {
        "pd_op.array_write_" | "pd_op.increment_" => operands.get(..1).unwrap_or(&[]),
        "pd_op.assign_out_" => operands.get(1..2).unwrap_or(&[]),
        _ => &[],
    }
}

/// Gives the operands that an operator of PIR changes in place the value of its result.
pub(super) fn alias(b: &mut Builder<'_>, operator: &Operator) -> Result<()> {
    if let Some(result) = operator.output("").first() {
        for name in changed(operator) {
            let value = b.get(result)?;
            b.set(name, value);
        }
    }
    Ok(())
}

/// Variable that a loop carries: its name in the body, its value before.
struct Carried<'n> {
    name: &'n str,
    initial: Value,
}

/// Body of a loop: returns the condition and the carried values at its end.
type Next<'n, 'a> = dyn FnMut(&mut Builder<'a>) -> Result<(Value, Vec<Value>)> + 'n;

/// Adds a `Loop`. `next` returns the condition and the carried values at the end of the body.
fn repeat<'a>(
    b: &mut Builder<'a>,
    op: &Op<'a>,
    condition: &Value,
    carried: &mut [Carried<'_>],
    next: &mut Next<'_, 'a>,
) -> Result<Vec<Value>> {
    let mut dims: Vec<Dims> = carried.iter().map(|c| c.initial.dims.clone()).collect();
    let mut unwritten: Vec<bool> =
        carried.iter().map(|c| b.control.unwritten.contains(&c.initial.name)).collect();
    for round in 0..MAX_ROUNDS {
        let names = b.names();
        let mut formals = vec![
            b.formal("iteration", DType::I64, Some(Vec::new()), false),
            b.formal("condition", DType::Bool, Some(Vec::new()), false),
        ];
        for ((c, dims), is_unwritten) in carried.iter().zip(&dims).zip(&unwritten) {
            let formal = b.formal(c.name, c.initial.dtype, dims.clone(), c.initial.is_sequence);
            if *is_unwritten {
                b.control.unwritten.insert(formal.name.clone());
            } else {
                b.control.unwritten.remove(&formal.name);
            }
            // In the first round the body may tell the type of a placeholder, also of one around this loop.
            if round == 0 && may_be_placeholder(b, &c.initial) {
                b.control.placeholders.insert(formal.name.clone());
            }
            formals.push(formal);
        }
        let inputs = formals.clone();
        let (graph, results) = b.body(&formals, |b| {
            for (c, formal) in carried.iter().zip(&inputs[2..]) {
                b.set(c.name, formal.clone());
            }
            let (again, mut values) = next(b)?;
            let again = scalar(b, &again, DType::Bool);
            for (value, c) in values.iter_mut().zip(carried.iter()) {
                if value.dtype != c.initial.dtype && !value.is_sequence && !may_be_placeholder(b, &c.initial)
                {
                    return Err(op.refuse("a variable of the loop changes its dtype"));
                }
            }
            values.insert(0, again);
            Ok(values)
        })?;
        let mut is_placed = true;
        for (((c, formal), result), dims) in
            carried.iter_mut().zip(&formals[2..]).zip(&results[1..]).zip(&mut dims)
        {
            let is_placeholder = may_be_placeholder(b, &c.initial);
            // The body has replaced the variable to learn its type; it is not replaced in the next round.
            let is_replaced = !b.control.placeholders.remove(&formal.name) && round == 0;
            is_placed &= !(is_placeholder && is_replaced);
            if is_placeholder && (result.dtype != c.initial.dtype || result.rank() != c.initial.rank()) {
                c.initial = zeros_like(b, &c.initial, result);
                *dims = common(&c.initial.dims, &result.dims);
                is_placed = false;
            }
        }
        if !is_placed {
            b.forget_names(&names);
            continue;
        }
        let after: Vec<Dims> = results[1..].iter().map(|value| value.dims.clone()).collect();
        let mut joint: Vec<Dims> = Vec::new();
        for ((before, after), is_unwritten) in dims.iter().zip(after).zip(&mut unwritten) {
            let is_first = std::mem::take(is_unwritten);
            joint.push(if is_first { after } else { widened(round, before, common(before, &after)) });
        }
        if joint != dims {
            dims = joint;
            b.forget_names(&names);
            continue;
        }
        let mut graph = graph;
        for (place, dims) in joint.iter().enumerate() {
            graph.inputs[place + 2].shape.clone_from(dims);
            graph.outputs[place + 1].shape.clone_from(dims);
        }
        let types = carried.iter().zip(&results[1..]).zip(&joint);
        let types = types.map(|((c, value), dims)| Inferred {
            dtype: value.dtype,
            dims: dims.clone(),
            is_sequence: c.initial.is_sequence,
        });
        let types = types.collect();
        let none = Value::none();
        let condition = scalar(b, condition, DType::Bool);
        let mut inputs = vec![&none, &condition];
        inputs.extend(carried.iter().map(|c| &c.initial));
        return Ok(b.typed("Loop", &inputs, vec![("body", Attr::Graph(Box::new(graph)))], types));
    }
    Err(op.refuse("the dimensions of the variables of the loop do not settle"))
}

/// Returns the dimensions of a variable for the next round. The later the round, the less is assumed of those that change.
fn widened(round: usize, before: &Dims, joint: Dims) -> Dims {
    match joint {
        joint if joint == *before || round < 2 => joint,
        Some(dims) if round < 4 => Some(vec![Dim::Open; dims.len()]),
        _ => None,
    }
}

fn while_desc<'a>(exporter: &mut Exporter<'a>, b: &mut Builder<'a>, op: &Op<'a>) -> Result<()> {
    let block = *op.blocks.first().ok_or_else(|| op.malformed("lacks its block"))?;
    let condition_name = op.input("Condition").first().copied();
    let condition_name = condition_name.ok_or_else(|| op.malformed("lacks its condition"))?;
    let condition = b.get(condition_name)?;
    let mut carried = Vec::new();
    for name in named(exporter, b, &[block], written)? {
        if b.is_assigned(name) {
            carried.push(Carried { name, initial: b.get(name)? });
            continue;
        }
        // A list that the loop fills, declared outside of it.
        let declared = exporter.topology.blocks.iter().take(block).flat_map(|b| &b.variables);
        let array = declared.filter(|v| v.name == name).find(|v| v.kind == VariableKind::TensorArray);
        if let Some(array) = array {
            let initial = empty(b, array.dtype.unwrap_or(DType::F32));
            b.control.unwritten.insert(initial.name.clone());
            carried.push(Carried { name, initial });
        }
    }
    let names: Vec<&str> = carried.iter().map(|c| c.name).collect();
    let values = repeat(b, op, &condition, &mut carried, &mut |b| {
        nested(exporter, b, block)?;
        let again = b.get(condition_name)?;
        let values = names.iter().map(|name| b.get(name)).collect::<Result<_>>()?;
        Ok((again, values))
    })?;
    for (c, value) in carried.iter().zip(values) {
        b.set(c.name, value);
    }
    Ok(())
}

/// Returns the operands of the `cf.yield` at the end of a block.
fn yielded<'a>(exporter: &Exporter<'a>, op: &Op<'_>, block: usize) -> Result<&'a [String]> {
    let block = exporter.topology.blocks.get(block);
    let last = block.and_then(|block| block.operators.iter().rfind(|o| o.kind == "cf.yield"));
    match (block, last) {
        (Some(_), Some(last)) => Ok(last.input("")),
        (Some(_), None) => Ok(&[]),
        (None, _) => Err(op.malformed("runs a block that does not exist")),
    }
}

fn while_pir<'a>(exporter: &mut Exporter<'a>, b: &mut Builder<'a>, op: &Op<'a>) -> Result<()> {
    let block = *op.blocks.first().ok_or_else(|| op.malformed("lacks its block"))?;
    let operands: Vec<&str> = op.inputs.iter().flat_map(|(_, names)| names.clone()).collect();
    let (condition, rest) = operands.split_first().ok_or_else(|| op.malformed("lacks its condition"))?;
    let condition = b.get(condition)?;
    let body = exporter.topology.blocks.get(block).ok_or_else(|| op.malformed("lacks its block"))?;
    if body.arguments.len() != rest.len() {
        return Err(op.malformed("has a body with another number of arguments"));
    }
    let mut carried = Vec::new();
    for (name, operand) in body.arguments.iter().zip(rest) {
        carried.push(Carried { name, initial: b.get(operand)? });
    }
    // Values around the loop that its body changes in place.
    let own = carried.len();
    let arguments: HashSet<&str> = body.arguments.iter().map(String::as_str).collect();
    for name in named(exporter, b, &[block], written)? {
        if b.is_assigned(name) && !arguments.contains(name) {
            carried.push(Carried { name, initial: b.get(name)? });
        }
    }
    let ends = yielded(exporter, op, block)?;
    if ends.len() != own + 1 {
        return Err(op.malformed("has a body with another number of results"));
    }
    let around: Vec<&str> = carried[own..].iter().map(|c| c.name).collect();
    let values = repeat(b, op, &condition, &mut carried, &mut |b| {
        nested(exporter, b, block)?;
        let again = b.get(&ends[0])?;
        let mut values = ends[1..].iter().map(|name| b.get(name)).collect::<Result<Vec<_>>>()?;
        for name in &around {
            values.push(b.get(name)?);
        }
        Ok((again, values))
    })?;
    let results: Vec<&str> = op.outputs.iter().flat_map(|(_, names)| names.clone()).collect();
    let (loop_values, changed) = values.split_at(own.min(values.len()));
    for (name, value) in results.iter().zip(loop_values) {
        b.set(name, value.clone());
    }
    for (c, value) in carried[own..].iter().zip(changed) {
        b.set(c.name, value.clone());
    }
    Ok(())
}

fn if_pir<'a>(exporter: &mut Exporter<'a>, b: &mut Builder<'a>, op: &Op<'a>) -> Result<()> {
    let [then_block, else_block] = op.blocks[..] else { return Err(op.malformed("needs two blocks")) };
    let condition = first_operand(b, op)?;
    let condition = scalar(b, &condition, DType::Bool);
    let mut changed = named(exporter, b, &[then_block, else_block], written)?;
    changed.retain(|name| b.is_assigned(name));
    if let Some(is_true) = known(&condition) {
        let block = if is_true { then_block } else { else_block };
        nested(exporter, b, block)?;
        let ends = yielded(exporter, op, block)?;
        for (name, end) in op.outputs.iter().flat_map(|(_, names)| names).zip(ends) {
            let value = b.get(end)?;
            b.set(name, value);
        }
        return Ok(());
    }
    let mut sides = Vec::new();
    for block in [then_block, else_block] {
        let ends = yielded(exporter, op, block)?;
        sides.push(b.body(&[], |b| {
            nested(exporter, b, block)?;
            let mut values = ends.iter().map(|name| b.get(name)).collect::<Result<Vec<_>>>()?;
            for name in &changed {
                values.push(b.get(name)?);
            }
            Ok(values)
        })?);
    }
    let (Some(otherwise), Some(then)) = (sides.pop(), sides.pop()) else { return Ok(()) };
    if then.1.len() != otherwise.1.len() {
        return Err(op.malformed("has branches with different numbers of results"));
    }
    let values = joined(b, op, &condition, then, otherwise)?;
    let mut results: Vec<&str> = op.outputs.iter().flat_map(|(_, names)| names.clone()).collect();
    results.extend(&changed);
    for (name, value) in results.iter().zip(values) {
        b.set(name, value);
    }
    Ok(())
}
