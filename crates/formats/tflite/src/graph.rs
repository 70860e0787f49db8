//! Subgraphs as a program.

use crate::dtype;
use crate::flat::{List, Number, Table, Tables};
use crate::read::{Model, tensor_name};
use crate::schema::{Kind, Scalar};
use std::collections::HashMap;
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Name, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::topology::{
    Attribute, AttributeValue, Block, Endpoint, Operator, Slot, Topology, Variable, VariableKind,
};

/// Form of a program that is a model of TensorFlow Lite.
pub(crate) const FORM: &str = "tflite";
/// Attribute of operators that are not of TensorFlow Lite.
pub(crate) const IS_CUSTOM: &str = "custom";
/// Number of operators that have a name of their own.
const CUSTOM: i64 = 32;
/// Memory of a variable, an operator or an attribute, besides its texts.
const ENTRY: u64 = 300;
/// Memory of an argument or an item of a list, besides its text.
const ITEM: u64 = 40;

/// Reads the subgraphs of a model.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for malformed tables; [`weighbridge_core::Kind::Limit`].
pub(crate) fn topology(model: &Model<'_>, writer: Option<String>) -> Result<Topology> {
    let (codes, operator_versions) = codes(model)?;
    let (mut blocks, mut feeds, mut fetches) = (Vec::new(), Vec::new(), Vec::new());
    for (number, subgraph) in model.subgraphs.iter().enumerate() {
        let subgraph = subgraph?;
        let (variables, types) = variables(model, subgraph.tables("tensors")?)?;
        let parser = Parser { model, variables: &variables, codes: &codes };
        let [inputs, outputs] = [parser.names(&subgraph, "inputs")?, parser.names(&subgraph, "outputs")?];
        let mut block = Block::default();
        for operator in subgraph.tables("operators")?.iter() {
            block.operators.push(parser.operator(&operator?)?);
        }
        match number {
            0 => {
                let budget = &model.root.file.budget;
                feeds = endpoints(&inputs, &variables, &types, budget)?;
                fetches = endpoints(&outputs, &variables, &types, budget)?;
            }
            _ => block.arguments = inputs,
        }
        block.variables = variables;
        blocks.push(block);
    }
    Ok(Topology { form: FORM, writer, bytes: Arc::new([]), blocks, feeds, fetches, operator_versions })
}

/// Versions of operators by their names.
type Versions = Vec<(String, i64)>;
/// Kind of an operator: its name, and true if it is not of TensorFlow Lite.
type Code = (String, bool);

/// Returns the kinds of operators by their index, and their versions.
fn codes(model: &Model<'_>) -> Result<(Vec<Code>, Versions)> {
    let file = model.root.file;
    let (mut names, mut versions) = (Vec::new(), Vec::new());
    for code in model.root.tables("operator_codes")?.iter() {
        file.budget.take_memory(ENTRY)?;
        let code = code?;
        // The older field has one byte, and a placeholder for greater numbers.
        let number = code.int("builtin_code")?.max(code.int("deprecated_builtin_code")?);
        let custom = code.text("custom_code")?.filter(|name| number == CUSTOM && !name.is_empty());
        let name = match (custom, file.schema.word("BuiltinOperator", number)) {
            (Some(name), _) => Name::new(name).to_text(),
            (None, Some(word)) => word.to_owned(),
            (None, None) => format!("operator_{number}"),
        };
        versions.push((name.clone(), code.int("version")?));
        names.push((name, number == CUSTOM));
    }
    Ok((names, versions))
}

/// Returns the variables of a subgraph, and the dtype and shape of each.
fn variables(model: &Model<'_>, tensors: Tables<'_>) -> Result<(Vec<Variable>, HashMap<String, usize>)> {
    let file = model.root.file;
    let (mut variables, mut places) = (Vec::new(), HashMap::new());
    for (place, tensor) in (0u64..).zip(tensors.iter()) {
        file.budget.take_memory(ENTRY)?;
        let tensor = tensor?;
        let mut name = tensor_name(&tensor, place)?.to_text();
        if places.contains_key(&name) {
            name = format!("{name}~{place}");
        }
        places.insert(name.clone(), variables.len());
        let number = tensor.int("type")?;
        let word = file.schema.word("TensorType", number);
        let signature = tensor.ints("shape_signature")?;
        let shape = if signature.is_empty() { tensor.ints("shape")? } else { signature };
        let is_constant = model.constant(&tensor).is_ok_and(|found| found.is_some());
        variables.push(Variable {
            name,
            kind: match number {
                dtype::RESOURCE => VariableKind::Other("resource".to_owned()),
                dtype::VARIANT => VariableKind::Other("variant".to_owned()),
                _ => VariableKind::Tensor,
            },
            dtype: dtype::of_number(number),
            dtype_name: Some(word.map_or_else(|| number.to_string(), str::to_owned)),
            shape: Some(shape),
            lod_level: 0,
            persistable: is_constant,
            parameter: false,
            stop_gradient: false,
        });
    }
    Ok((variables, places))
}

fn endpoints(
    names: &[String],
    variables: &[Variable],
    places: &HashMap<String, usize>,
    budget: &Budget,
) -> Result<Vec<Endpoint>> {
    let endpoint = |name: &String| {
        let variable = places.get(name).and_then(|&place| variables.get(place));
        let shape = variable.and_then(|variable| variable.shape.as_ref());
        let rank = shape.map_or(0, |shape| shape.len() as u64);
        budget.take_memory(ITEM + name.len() as u64 + 8 * rank)?;
        let dtype = variable.and_then(|variable| variable.dtype);
        Ok(Endpoint { name: name.clone(), dtype, shape: shape.cloned() })
    };
    names.iter().map(endpoint).collect()
}

struct Parser<'a> {
    model: &'a Model<'a>,
    variables: &'a [Variable],
    codes: &'a [Code],
}

impl Parser<'_> {
    /// Returns the names of the tensors in a list; an omitted one has an empty name.
    fn names(&self, table: &Table<'_>, list: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for number in table.ints(list)? {
            let name = match usize::try_from(number).ok().and_then(|number| self.variables.get(number)) {
                Some(variable) => variable.name.clone(),
                None if number == -1 => String::new(),
                None => return Err(out_of_range("tensor", table.at, self.variables.len() as u64, number)),
            };
            self.model.root.file.budget.take_memory(ITEM + name.len() as u64)?;
            names.push(name);
        }
        Ok(names)
    }

    fn operator(&self, table: &Table<'_>) -> Result<Operator> {
        let file = self.model.root.file;
        file.budget.take_memory(ENTRY)?;
        let code = table.int("opcode_index")?;
        let found = usize::try_from(code).ok().and_then(|code| self.codes.get(code));
        let Some((kind, is_custom)) = found else {
            return Err(out_of_range("operator code", table.at, self.codes.len() as u64, code));
        };
        file.budget.take_memory(kind.len() as u64)?;
        let slot = |arguments| vec![Slot { name: String::new(), arguments }];
        let mut operator = Operator {
            kind: kind.clone(),
            inputs: slot(self.names(table, "inputs")?),
            outputs: slot(self.names(table, "outputs")?),
            attributes: Vec::new(),
            blocks: Vec::new(),
        };
        if *is_custom {
            let value = AttributeValue::Bool(true);
            operator.attributes.push(Attribute { name: IS_CUSTOM.to_owned(), kind: String::new(), value });
        }
        for union in ["builtin_options", "builtin_options_2"] {
            if let Some((_, Some(options))) = table.union(union)? {
                self.options(&options, &mut operator)?;
            }
        }
        let outside = List {
            at: table.uint("large_custom_options_offset")?,
            count: table.uint("large_custom_options_size")?,
        };
        let custom = match table.list("custom_options")? {
            Some((list, _)) => Some(list),
            None => (outside.at > 1).then_some(outside),
        };
        if let Some(list) = custom.filter(|list| list.count > 0) {
            let value = AttributeValue::Bytes(file.bytes(list.at, list.count)?);
            operator.attributes.push(Attribute {
                name: "custom_options".to_owned(),
                kind: String::new(),
                value,
            });
        }
        Ok(operator)
    }

    /// Adds the fields of options as attributes. Numbers that are not stored have their defaults.
    fn options(&self, options: &Table<'_>, operator: &mut Operator) -> Result<()> {
        let file = self.model.root.file;
        for field in file.schema.fields(options.kind) {
            file.budget.take_memory(ENTRY)?;
            let value = match &field.kind {
                Kind::Scalar(scalar) => single(options.number(field, *scalar)?, *scalar),
                Kind::Enum(words, scalar) => {
                    let number = options.number(field, *scalar)?;
                    match number {
                        Number::Int(number) => match file.schema.word(words, number) {
                            Some(word) => AttributeValue::Word(word.to_owned()),
                            None => AttributeValue::Int(number),
                        },
                        Number::Float(_) => single(number, *scalar),
                    }
                }
                Kind::Text => match options.text(field.name)? {
                    Some(text) => AttributeValue::Text(Name::new(text).to_text()),
                    None => continue,
                },
                Kind::List(_) => match options.list(field.name)? {
                    Some((list, Kind::Scalar(Scalar::U8))) => {
                        AttributeValue::Bytes(file.bytes(list.at, list.count)?)
                    }
                    Some((list, &(Kind::Scalar(scalar) | Kind::Enum(_, scalar)))) => {
                        file.budget.take_memory(list.count.saturating_mul(ITEM))?;
                        let mut values = Vec::new();
                        for place in 0..list.count {
                            let number = file.number(list.at + place * scalar.width(), scalar)?;
                            values.push(single(number, scalar));
                        }
                        AttributeValue::List(values)
                    }
                    _ => continue,
                },
                // No options have tables in them.
                Kind::Table(_) | Kind::Union(_) => continue,
            };
            if field.name == "subgraph"
                || field.name.contains("subgraph_ind")
                || field.name == "called_computations"
            {
                let numbers = match &value {
                    AttributeValue::List(values) => values.as_slice(),
                    single => std::slice::from_ref(single),
                };
                let block = |value: &AttributeValue| match value {
                    AttributeValue::Int(number) => usize::try_from(*number).ok(),
                    _ => None,
                };
                operator.blocks.extend(numbers.iter().filter_map(block));
            }
            operator.attributes.push(Attribute { name: field.name.to_owned(), kind: String::new(), value });
        }
        Ok(())
    }
}

fn single(number: Number, scalar: Scalar) -> AttributeValue {
    match number {
        Number::Int(value) if scalar == Scalar::Bool => AttributeValue::Bool(value != 0),
        Number::Int(value) => AttributeValue::Int(value),
        Number::Float(value) => AttributeValue::Float(value),
    }
}

fn out_of_range(what: &str, at: u64, count: u64, found: i64) -> Error {
    Error::corrupt("index-out-of-range", format!("the {what} does not exist"))
        .at(at)
        .expected(format_args!("less than {count}"))
        .found(found)
}

/// Returns the signatures: the tensor, dtype and shape of each input and output by its name.
pub(crate) fn signatures(model: &Model<'_>) -> Result<Vec<(Name, Value)>> {
    let mut signatures = Vec::new();
    for signature in model.root.tables("signature_defs")?.iter() {
        let signature = signature?;
        model.root.file.budget.take_memory(ENTRY)?;
        let number = signature.uint("subgraph_index")?;
        let Some(subgraph) = model.subgraphs.get(number)? else {
            let found = number.cast_signed();
            return Err(out_of_range("subgraph of a signature", signature.at, model.subgraphs.len(), found));
        };
        let mut ports = Vec::new();
        for list in ["inputs", "outputs"] {
            let mut shown = Vec::new();
            for port in signature.tables(list)?.iter() {
                let port = port?;
                model.root.file.budget.take_memory(ENTRY)?;
                let name = Name::new(port.text("name")?.unwrap_or_default());
                shown.push((name, Value::Text(port_text(model, &subgraph, &port)?)));
            }
            ports.push((Name::from(list), Value::Map(shown)));
        }
        if number > 0 {
            ports.push((Name::from("subgraph"), Value::U64(number)));
        }
        signatures.push((Name::new(signature.text("signature_key")?.unwrap_or_default()), Value::Map(ports)));
    }
    Ok(signatures)
}

/// Returns the tensor, dtype and shape of an input or output.
fn port_text(model: &Model<'_>, subgraph: &Table<'_>, port: &Table<'_>) -> Result<String> {
    let number = port.uint("tensor_index")?;
    let tensors = subgraph.tables("tensors")?;
    let Some(tensor) = tensors.get(number)? else {
        return Err(out_of_range("tensor of a signature", port.at, tensors.len(), number.cast_signed()));
    };
    let dtype = tensor.int("type")?;
    let word = model.root.file.schema.word("TensorType", dtype);
    let signature = tensor.ints("shape_signature")?;
    let dims = if signature.is_empty() { tensor.ints("shape")? } else { signature };
    let name = tensor_name(&tensor, number)?.to_text();
    model.root.file.budget.take_memory(name.len() as u64)?;
    Ok(format!("{name} {} {dims:?}", word.map_or_else(|| dtype.to_string(), str::to_owned)))
}
