//! Networks: layers of binary files and of text, as a program.

use crate::schema::{self, Field as Known, Kind, LAYER, V0_LAYER, V1_LAYER};
use crate::text::Value as Text;
use crate::walk::{Content, Layer as Stored, Message};
use crate::wire::{Field, Fields, Value as Wire};
use std::collections::HashMap;
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::Result;
use weighbridge_core::topology::{
    Attribute, AttributeValue, Block, Endpoint, Operator, Slot, Topology, Variable, VariableKind,
};

/// Form of a program that is a network of Caffe.
pub(crate) const FORM: &str = "caffe";
/// Type of a layer of inputs.
const INPUT: &str = "Input";
/// Memory of an attribute, besides its texts.
const ATTRIBUTE: u64 = 150;
/// Memory of a layer, besides its attributes.
const ENTRY: u64 = 500;

/// Layer of a network.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// Name.
    pub(crate) name: String,
    /// Type, as present releases name it.
    pub(crate) kind: String,
    bottoms: Vec<String>,
    tops: Vec<String>,
    attributes: Vec<Attribute>,
}

/// Network.
#[derive(Debug, Default)]
pub(crate) struct Network {
    /// Name.
    pub(crate) name: Option<String>,
    inputs: Vec<String>,
    /// Four sizes of each input.
    input_dims: Vec<i64>,
    input_shapes: Vec<Vec<i64>>,
    /// Layers.
    pub(crate) layers: Vec<Layer>,
}

/// Reads the network of a binary file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for malformed fields; [`weighbridge_core::Kind::Limit`].
pub(crate) fn of_binary(content: &Content, budget: &Budget) -> Result<Network> {
    let mut network = Network::default();
    for field in Fields::of(&content.fields) {
        let field = field?;
        match field.number {
            1 => network.name = field.text(),
            3 => network.inputs.extend(field.text()),
            4 => field.ints(&mut network.input_dims),
            8 => {
                let mut dims = Vec::new();
                for dim in Fields::of(field.bytes().unwrap_or_default()) {
                    dim?.ints(&mut dims);
                }
                network.input_shapes.push(dims);
            }
            _ => {}
        }
    }
    for stored in &content.layers {
        network.layers.push(layer(stored, budget)?);
    }
    Ok(network)
}

fn layer(stored: &Stored, budget: &Budget) -> Result<Layer> {
    budget.take_memory(ENTRY)?;
    let mut layer = Layer::default();
    let is_new = stored.message == Message::Layer;
    let [name, kind, bottom, top] = if is_new { [1, 2, 3, 4] } else { [4, 5, 2, 3] };
    for field in Fields::of(&stored.fields) {
        let field = field?;
        let number = field.number;
        if number == name {
            layer.name = field.text().unwrap_or_default();
        } else if number == kind {
            layer.kind = match field.int() {
                Some(number) => {
                    schema::type_of_number(number).map_or_else(|| number.to_string(), str::to_owned)
                }
                None => field.text().unwrap_or_default(),
            };
        } else if number == bottom {
            layer.bottoms.extend(field.text());
        } else if number == top {
            layer.tops.extend(field.text());
        } else if !is_new && number == 1 {
            old_layer(&field, &mut layer, budget)?;
        } else {
            attribute(&field, "", if is_new { &LAYER } else { &V1_LAYER }, &mut layer.attributes, budget)?;
        }
    }
    Ok(layer)
}

/// Adds the fields of a layer of the oldest version.
fn old_layer(field: &Field<'_>, layer: &mut Layer, budget: &Budget) -> Result<()> {
    for field in Fields::of(field.bytes().unwrap_or_default()) {
        let field = field?;
        match field.number {
            1 => layer.name = field.text().unwrap_or_default(),
            2 => layer.kind = schema::type_of_word(&field.text().unwrap_or_default()).to_owned(),
            _ => attribute(&field, "", &V0_LAYER, &mut layer.attributes, budget)?,
        }
    }
    Ok(())
}

/// Adds a field of a layer to its attributes; nested fields have their path as name.
fn attribute(
    field: &Field<'_>,
    prefix: &str,
    known: &[Known],
    out: &mut Vec<Attribute>,
    budget: &Budget,
) -> Result<()> {
    let found = known.iter().find(|known| known.0 == field.number);
    let own = found.map_or_else(|| format!("field_{}", field.number), |known| known.1.to_owned());
    let name = if prefix.is_empty() { own } else { format!("{prefix}.{own}") };
    budget.take_memory(ATTRIBUTE.saturating_add(name.len() as u64))?;
    let value = match (found.map(|known| known.2), field.value) {
        (Some(Kind::Message(inner)), Wire::Bytes(bytes)) => {
            for field in Fields::of(bytes) {
                attribute(&field?, &name, inner, out, budget)?;
            }
            return Ok(());
        }
        (Some(Kind::Text), Wire::Bytes(_)) => AttributeValue::Text(field.text().unwrap_or_default()),
        (Some(Kind::Bool), Wire::Varint(value)) => AttributeValue::Bool(value != 0),
        (Some(Kind::Word(words)), Wire::Varint(value)) => {
            match usize::try_from(value).ok().and_then(|value| words.get(value)) {
                Some(word) => AttributeValue::Word((*word).to_owned()),
                None => AttributeValue::Int(value.cast_signed()),
            }
        }
        (Some(Kind::Float), Wire::Fixed32(bits)) => AttributeValue::Float(f32::from_bits(bits)),
        (Some(Kind::Int | Kind::Bool), Wire::Bytes(_)) => {
            let mut values = Vec::new();
            field.ints(&mut values);
            budget.take_memory((size_of::<AttributeValue>() * values.len()) as u64)?;
            AttributeValue::List(values.into_iter().map(AttributeValue::Int).collect())
        }
        (_, Wire::Varint(value)) => AttributeValue::Int(value.cast_signed()),
        (_, Wire::Fixed32(bits)) => AttributeValue::Float(f32::from_bits(bits)),
        (_, Wire::Fixed64(bits)) => AttributeValue::Double(f64::from_bits(bits)),
        (_, Wire::Bytes(bytes)) => AttributeValue::Bytes(bytes.to_vec()),
    };
    out.push(Attribute { name, kind: String::new(), value });
    Ok(())
}

/// Reads the network of a text.
///
/// # Errors
/// [`weighbridge_core::Kind::Limit`].
pub(crate) fn of_text(fields: &[(String, Text)], budget: &Budget) -> Result<Network> {
    let mut network = Network::default();
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("name", value) => network.name = scalar(value),
            ("input", value) => network.inputs.extend(scalar(value)),
            ("input_dim", value) => {
                network.input_dims.extend(scalar(value).and_then(|text| text.parse::<i64>().ok()))
            }
            ("input_shape", Text::Message(dims)) => {
                let dims = dims.iter().filter_map(|(_, value)| scalar(value)?.parse().ok());
                network.input_shapes.push(dims.collect());
            }
            ("layer" | "layers", Text::Message(fields)) => network.layers.push(text_layer(fields, budget)?),
            _ => {}
        }
    }
    Ok(network)
}

fn scalar(value: &Text) -> Option<String> {
    match value {
        Text::Text(text) | Text::Word(text) => Some(text.clone()),
        Text::Message(_) => None,
    }
}

fn text_layer(fields: &[(String, Text)], budget: &Budget) -> Result<Layer> {
    budget.take_memory(ENTRY)?;
    let mut layer = Layer::default();
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("name", value) => layer.name = scalar(value).unwrap_or_default(),
            ("type", value) => {
                layer.kind = schema::type_of_word(&scalar(value).unwrap_or_default()).to_owned()
            }
            ("bottom", value) => layer.bottoms.extend(scalar(value)),
            ("top", value) => layer.tops.extend(scalar(value)),
            // The oldest version nests the fields of a layer.
            ("layer", Text::Message(inner)) => {
                let inner = text_layer(inner, budget)?;
                (layer.name, layer.kind) = (inner.name, inner.kind);
                layer.attributes.extend(inner.attributes);
            }
            // Elements in text are those of no file that Caffe writes.
            ("blobs", _) => {}
            _ => text_attribute(name, value, &mut layer.attributes, budget)?,
        }
    }
    Ok(layer)
}

fn text_attribute(name: &str, value: &Text, out: &mut Vec<Attribute>, budget: &Budget) -> Result<()> {
    budget.take_memory(ATTRIBUTE.saturating_add(name.len() as u64))?;
    let value = match value {
        Text::Message(fields) => {
            for (inner, value) in fields {
                text_attribute(&format!("{name}.{inner}"), value, out, budget)?;
            }
            return Ok(());
        }
        Text::Text(text) => AttributeValue::Text(text.clone()),
        Text::Word(word) => match (word.as_str(), word.parse::<i64>(), word.parse::<f32>()) {
            ("true", ..) => AttributeValue::Bool(true),
            ("false", ..) => AttributeValue::Bool(false),
            (_, Ok(number), _) => AttributeValue::Int(number),
            (_, _, Ok(number)) => AttributeValue::Float(number),
            _ => AttributeValue::Word(word.clone()),
        },
    };
    out.push(Attribute { name: name.to_owned(), kind: String::new(), value });
    Ok(())
}

impl Network {
    /// Returns the program of the network, with its original bytes.
    pub(crate) fn program(self, bytes: Vec<u8>) -> Topology {
        let mut feeds = Vec::new();
        for (place, name) in self.inputs.iter().enumerate() {
            let legacy = self.input_dims.get(4 * place..4 * place + 4).map(<[i64]>::to_vec);
            let shape = self.input_shapes.get(place).cloned().or(legacy);
            feeds.push(Endpoint { name: name.clone(), dtype: None, shape });
        }
        let variables = feeds.iter().map(|feed| Variable {
            name: feed.name.clone(),
            kind: VariableKind::Tensor,
            dtype: None,
            dtype_name: None,
            shape: feed.shape.clone(),
            lod_level: 0,
            persistable: false,
            parameter: false,
            stop_gradient: true,
        });
        let mut block = Block { variables: variables.collect(), ..Block::default() };
        // Results that no later layer reads are the outputs, as in Caffe.
        let mut unread: HashMap<String, usize> = HashMap::new();
        for (place, layer) in self.layers.into_iter().enumerate() {
            for name in &layer.bottoms {
                unread.remove(name);
            }
            for name in &layer.tops {
                unread.insert(name.clone(), place);
            }
            if layer.kind == INPUT {
                feeds.extend(inputs(&layer));
            }
            let slot = |arguments| vec![Slot { name: String::new(), arguments }];
            let name = AttributeValue::Text(layer.name);
            let name = Attribute { name: "name".to_owned(), kind: String::new(), value: name };
            block.operators.push(Operator {
                kind: layer.kind,
                inputs: slot(layer.bottoms),
                outputs: slot(layer.tops),
                attributes: std::iter::once(name).chain(joined(layer.attributes)).collect(),
                blocks: Vec::new(),
            });
        }
        let mut fetches: Vec<(usize, String)> =
            unread.into_iter().map(|(name, place)| (place, name)).collect();
        fetches.sort();
        let fetches = fetches.into_iter().map(|(_, name)| Endpoint { name, dtype: None, shape: None });
        Topology {
            form: FORM,
            writer: None,
            bytes: Arc::from(bytes),
            blocks: vec![block],
            feeds,
            fetches: fetches.collect(),
            operator_versions: Vec::new(),
        }
    }
}

/// Returns the inputs of a layer of inputs. Several inputs have their sizes in one list.
fn inputs(layer: &Layer) -> Vec<Endpoint> {
    let is_size = |attribute: &&Attribute| attribute.name == "input_param.shape.dim";
    let values = layer.attributes.iter().filter(is_size).flat_map(|attribute| match &attribute.value {
        AttributeValue::List(values) => values.as_slice(),
        single => std::slice::from_ref(single),
    });
    let size =
        |value: &AttributeValue| if let AttributeValue::Int(size) = value { Some(*size) } else { None };
    let sizes: Vec<i64> = values.filter_map(size).collect();
    let shape = (layer.tops.len() == 1 && !sizes.is_empty()).then_some(sizes);
    layer.tops.iter().map(|name| Endpoint { name: name.clone(), dtype: None, shape: shape.clone() }).collect()
}

/// Joins repeated attributes to lists.
fn joined(attributes: Vec<Attribute>) -> Vec<Attribute> {
    let mut out: Vec<Attribute> = Vec::with_capacity(attributes.len());
    let mut places: HashMap<String, usize> = HashMap::new();
    for attribute in attributes {
        match places.get(&attribute.name).and_then(|&place| out.get_mut(place)) {
            Some(first) => match &mut first.value {
                AttributeValue::List(values) => values.push(attribute.value),
                single => {
                    let first = std::mem::replace(single, AttributeValue::None);
                    *single = AttributeValue::List(vec![first, attribute.value]);
                }
            },
            None => {
                places.insert(attribute.name.clone(), out.len());
                out.push(attribute);
            }
        }
    }
    out
}
