//! Layers of a network as a program, with its constants.

use crate::dtype;
use crate::xml::Element;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::quoted;
use weighbridge_core::topology::{
    Attribute, AttributeValue, Block, Endpoint, Operator, Slot, Topology, Variable, VariableKind,
};

/// Form of a program that is a network of OpenVINO.
pub(crate) const FORM: &str = "openvino";
/// Memory of a layer or a port, besides its texts.
const ENTRY: u64 = 400;

/// Constant of a network.
#[derive(Debug)]
pub(crate) struct Constant<'a> {
    /// Names of the layers that contain it, and its own.
    pub(crate) path: Vec<String>,
    /// Options.
    pub(crate) data: &'a Element,
}

/// Network with its constants.
#[derive(Debug)]
pub(crate) struct Network<'a> {
    /// Constants in the order of the file.
    pub(crate) constants: Vec<Constant<'a>>,
    /// Program.
    pub(crate) topology: Topology,
}

struct Builder<'a, 'b> {
    budget: &'b Budget,
    blocks: Vec<Block>,
    constants: Vec<Constant<'a>>,
}

/// Reads a network.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for edges without a layer; [`weighbridge_core::Kind::Limit`].
pub(crate) fn read<'a>(net: &'a Element, bytes: Vec<u8>, budget: &Budget) -> Result<Network<'a>> {
    let mut builder = Builder { budget, blocks: Vec::new(), constants: Vec::new() };
    let (feeds, fetches) = builder.block(net, &[])?;
    let writer = net.child("rt_info").map_or(&[][..], |info| &info.children).iter();
    let writer = writer
        .filter(|info| info.attribute("name") == Some("OpenVINO Runtime") || info.name == "Runtime_version");
    let writer =
        writer.filter_map(|info| info.attribute("value")).map(|version| format!("OpenVINO {version}")).next();
    let topology = Topology {
        form: FORM,
        writer,
        bytes: Arc::from(bytes),
        blocks: builder.blocks,
        feeds,
        fetches,
        operator_versions: Vec::new(),
    };
    Ok(Network { constants: builder.constants, topology })
}

/// Port of a layer: the number of the layer and its own.
type Port<'a> = (&'a str, &'a str);

impl<'a> Builder<'a, '_> {
    fn endpoint(&self, variable: &Variable) -> Result<Endpoint> {
        let rank = variable.shape.as_ref().map_or(0, |shape| shape.len() as u64);
        self.budget.take_memory(ENTRY + variable.name.len() as u64 + 8 * rank)?;
        Ok(Endpoint { name: variable.name.clone(), dtype: variable.dtype, shape: variable.shape.clone() })
    }

    /// Adds the layers of a network or a body, and returns its inputs and outputs. Bodies follow the block of their layer.
    fn block(&mut self, net: &'a Element, path: &[String]) -> Result<(Vec<Endpoint>, Vec<Endpoint>)> {
        let number = self.blocks.len();
        self.blocks.push(Block::default());
        let layers = net.items("layers");
        let mut block = Block::default();
        let mut values: HashMap<Port<'_>, usize> = HashMap::new();
        let mut names = HashSet::new();
        let (mut feeds, mut fetches) = (Vec::new(), Vec::new());
        for (place, layer) in layers.iter().enumerate() {
            let kind = layer.attribute("type").unwrap_or_default();
            let id = layer.attribute("id").unwrap_or_default();
            let (layer_name, element) =
                (layer_name(layer, place), element_type(layer).and_then(dtype::of_name));
            for (output, port) in layer.items("output").iter().enumerate() {
                let mut name = layer_name.clone();
                if output > 0 {
                    name = format!("{name}:{output}");
                }
                self.budget.take_memory(ENTRY + 2 * name.len() as u64)?;
                if !names.insert(name.clone()) {
                    name = format!("{name}~{}", block.variables.len());
                }
                values.insert((id, port.attribute("id").unwrap_or_default()), block.variables.len());
                let mut variable = variable(name, port);
                if kind == "Const" {
                    variable.persistable = true;
                    variable.dtype = element;
                }
                if kind == "Parameter" {
                    variable.dtype = element;
                    feeds.push(self.endpoint(&variable)?);
                }
                block.variables.push(variable);
            }
        }
        let mut edges: HashMap<Port<'_>, Port<'_>> = HashMap::new();
        for edge in net.items("edges") {
            self.budget.take_memory(ENTRY)?;
            let port = |layer, port| {
                (edge.attribute(layer).unwrap_or_default(), edge.attribute(port).unwrap_or_default())
            };
            edges.insert(port("to-layer", "to-port"), port("from-layer", "from-port"));
        }
        for (place, layer) in layers.iter().enumerate() {
            self.budget.take_memory(ENTRY)?;
            let kind = layer.attribute("type").unwrap_or_default();
            let id = layer.attribute("id").unwrap_or_default();
            let own =
                |path: &[String]| path.iter().cloned().chain([layer_name(layer, place)]).collect::<Vec<_>>();
            if kind == "Const" {
                let data = layer.child("data").ok_or_else(|| missing(layer, "data"))?;
                let path = own(path);
                self.budget.take_memory(path.iter().map(|part| part.len() as u64).sum::<u64>())?;
                self.constants.push(Constant { path, data });
                continue;
            }
            if kind == "Parameter" {
                continue;
            }
            let mut inputs = Vec::new();
            for port in layer.items("input") {
                let to = (id, port.attribute("id").unwrap_or_default());
                let from = edges.get(&to).and_then(|from| values.get(from));
                let variable = from.and_then(|&value| block.variables.get(value)).ok_or_else(|| {
                    Error::corrupt("index-out-of-range", "no edge leads to an input of a layer")
                        .at(layer.at)
                        .found(format_args!("port {} of layer {}", quoted(to.1), quoted(id)))
                })?;
                self.budget.take_memory(variable.name.len() as u64)?;
                if kind == "Result" {
                    fetches.push(self.endpoint(variable)?);
                }
                inputs.push(variable.name.clone());
            }
            let outputs = layer.items("output").iter().filter_map(|port| {
                let value = values.get(&(id, port.attribute("id").unwrap_or_default()))?;
                block.variables.get(*value).map(|variable| variable.name.clone())
            });
            let slot = |arguments| vec![Slot { name: String::new(), arguments }];
            let mut operator = Operator {
                kind: kind.to_owned(),
                inputs: slot(inputs),
                outputs: slot(outputs.collect()),
                attributes: options(layer),
                blocks: Vec::new(),
            };
            for body in
                layer.children.iter().filter(|child| child.name == "body" || child.name.ends_with("_body"))
            {
                let mut path = own(path);
                self.budget.take_memory(path.iter().map(|part| part.len() as u64).sum::<u64>())?;
                if body.name != "body" {
                    path.push(body.name.clone());
                }
                operator.blocks.push(self.blocks.len());
                let body_block = self.blocks.len();
                let (inputs, _) = self.block(body, &path)?;
                if let Some(block) = self.blocks.get_mut(body_block) {
                    block.arguments = inputs.into_iter().map(|input| input.name).collect();
                }
            }
            block.operators.push(operator);
        }
        if let Some(place) = self.blocks.get_mut(number) {
            *place = block;
        }
        Ok((feeds, fetches))
    }
}

/// Returns the name of a layer.
fn layer_name(layer: &Element, place: usize) -> String {
    match layer.attribute("name") {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => format!("layer_{place}"),
    }
}

fn element_type(layer: &Element) -> Option<&str> {
    layer.child("data")?.attribute("element_type")
}

fn variable(name: String, port: &Element) -> Variable {
    let dims = port.children.iter().filter(|dim| dim.name == "dim").map(|dim| dim.text.parse().unwrap_or(-1));
    Variable {
        name,
        kind: VariableKind::Tensor,
        dtype: port.attribute("precision").map(str::to_lowercase).as_deref().and_then(dtype::of_precision),
        dtype_name: port.attribute("precision").map(str::to_owned),
        shape: Some(dims.collect()),
        lod_level: 0,
        persistable: false,
        parameter: false,
        stop_gradient: false,
    }
}

/// Returns the options of a layer as attributes, after its name.
fn options(layer: &Element) -> Vec<Attribute> {
    let named = |(key, value): &(String, String)| Attribute {
        name: key.clone(),
        kind: String::new(),
        value: match value.as_str() {
            "true" => AttributeValue::Bool(true),
            "false" => AttributeValue::Bool(false),
            text => match (text.parse::<i64>(), text.parse::<f32>()) {
                (Ok(number), _) => AttributeValue::Int(number),
                (_, Ok(number)) => AttributeValue::Float(number),
                _ => AttributeValue::Text(text.to_owned()),
            },
        },
    };
    let own = layer.attributes.iter().filter(|(key, _)| matches!(key.as_str(), "name" | "version"));
    let data = layer.child("data").map_or(&[][..], |data| &data.attributes);
    own.chain(data).map(named).collect()
}

fn missing(layer: &Element, what: &str) -> Error {
    Error::corrupt("missing-attribute", format!("a layer has no {what}"))
        .at(layer.at)
        .found(quoted(layer.attribute("name").unwrap_or_default()))
}
