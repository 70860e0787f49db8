//! Layers of a network as a program.

use crate::network::{Layer, Network, Param};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::Result;
use weighbridge_core::topology::{
    Attribute, AttributeValue, Block, Endpoint, Operator, Slot, Topology, Variable, VariableKind,
};

/// Form of a program that is a network of ncnn.
pub(crate) const FORM: &str = "ncnn";
/// Key of the shapes of the outputs of any layer.
const SHAPES: i32 = 30;
/// Maximum rank of a blob.
const MAX_RANK: usize = 4;
/// Memory of a layer or a blob, besides its names.
const ENTRY: u64 = 400;

/// Builds the program of a network.
///
/// # Errors
/// [`weighbridge_core::Kind::Limit`].
pub(crate) fn topology(network: &Network, bytes: Vec<u8>, budget: &Budget) -> Result<Topology> {
    let mut shapes = vec![None; network.blobs.len()];
    let (mut is_read, mut is_made) = (vec![false; network.blobs.len()], vec![false; network.blobs.len()]);
    let (mut block, mut feeds) = (Block::default(), Vec::new());
    for layer in &network.layers {
        for (blob, shape) in layer.outputs.iter().zip(shapes_of(layer)) {
            if let Some(place) = shapes.get_mut(*blob) {
                *place = shape;
            }
        }
        mark(&mut is_read, &layer.inputs);
        mark(&mut is_made, &layer.outputs);
    }
    let name = |blob: usize| -> Result<String> {
        let name = network.blobs.get(blob).cloned().unwrap_or_default();
        budget.take_memory(ENTRY / 4 + name.len() as u64)?;
        Ok(name)
    };
    let shape = |blob: usize| shapes.get(blob).cloned().flatten();
    for (blob, text) in network.blobs.iter().enumerate() {
        budget.take_memory(ENTRY + text.len() as u64)?;
        block.variables.push(Variable {
            name: text.clone(),
            kind: VariableKind::Tensor,
            dtype: None,
            dtype_name: None,
            shape: shape(blob),
            lod_level: 0,
            persistable: false,
            parameter: false,
            stop_gradient: false,
        });
    }
    for layer in &network.layers {
        budget.take_memory(ENTRY + layer.kind.len() as u64)?;
        if layer.kind == "Input" {
            for &blob in &layer.outputs {
                feeds.push(Endpoint { name: name(blob)?, dtype: None, shape: shape(blob) });
            }
        }
        let slot = |blobs: &[usize]| -> Result<Vec<Slot>> {
            let arguments = blobs.iter().map(|&blob| name(blob)).collect::<Result<_>>()?;
            Ok(vec![Slot { name: String::new(), arguments }])
        };
        block.operators.push(Operator {
            kind: layer.kind.clone(),
            inputs: slot(&layer.inputs)?,
            outputs: slot(&layer.outputs)?,
            attributes: attributes(layer, budget)?,
            blocks: Vec::new(),
        });
    }
    let ends =
        is_read.iter().zip(&is_made).enumerate().filter(|(_, (is_read, is_made))| !**is_read && **is_made);
    let fetches = ends
        .map(|(blob, _)| Ok(Endpoint { name: name(blob)?, dtype: None, shape: shape(blob) }))
        .collect::<Result<_>>()?;
    Ok(Topology {
        form: FORM,
        writer: None,
        bytes: Arc::from(bytes),
        blocks: vec![block],
        feeds,
        fetches,
        operator_versions: Vec::new(),
    })
}

fn mark(marks: &mut [bool], blobs: &[usize]) {
    for &blob in blobs {
        if let Some(mark) = marks.get_mut(blob) {
            *mark = true;
        }
    }
}

/// Returns the shapes of the outputs of a layer that it states.
fn shapes_of(layer: &Layer) -> Vec<Option<Vec<i64>>> {
    if let Some(Param::List(numbers)) = layer.param(SHAPES)
        && let Some(step) = numbers.len().checked_div(layer.outputs.len()).filter(|&step| step > 0)
    {
        let shape = |numbers: &[Param]| {
            let (rank, sizes) = numbers.split_first()?;
            // A shape of three sizes may have a place for a fourth one before the last.
            let mut sizes: Vec<i64> = sizes.iter().map(|size| size.int().into()).collect();
            let ranks = 1..=sizes.len().min(MAX_RANK);
            let rank = usize::try_from(rank.int()).ok().filter(|rank| ranks.contains(rank))?;
            if rank == 3 && sizes.len() == 4 {
                sizes.remove(2);
            }
            sizes.truncate(rank);
            sizes.reverse();
            Some(sizes)
        };
        return numbers.chunks(step).map(shape).collect();
    }
    if layer.kind != "Input" {
        return Vec::new();
    }
    let [c, d, h, w] = [2, 11, 1, 0].map(|key| i64::from(layer.int(key, 0)));
    match (c, d, h, w) {
        (_, 1.., _, _) => vec![Some(vec![c, d, h, w])],
        (1.., _, _, _) => vec![Some(vec![c, h, w])],
        (_, _, 1.., _) => vec![Some(vec![h, w])],
        (_, _, _, 1..) => vec![Some(vec![w])],
        _ => Vec::new(),
    }
}

/// Returns the parameters of a layer as attributes, after its name.
fn attributes(layer: &Layer, budget: &Budget) -> Result<Vec<Attribute>> {
    let attribute = |name: String, value| Attribute { name, kind: String::new(), value };
    let mut all = vec![attribute("name".to_owned(), AttributeValue::Text(layer.name.clone()))];
    for (key, param) in &layer.params {
        let len = match param {
            Param::List(items) => items.len(),
            Param::Text(text) => text.len(),
            Param::Int(_) | Param::Float(_) => 0,
        };
        budget.take_memory(ENTRY / 4 + 40 * len as u64)?;
        all.push(attribute(key.to_string(), value(param)));
    }
    Ok(all)
}

fn value(param: &Param) -> AttributeValue {
    match param {
        Param::Int(value) => AttributeValue::Int((*value).into()),
        Param::Float(value) => AttributeValue::Float(*value),
        Param::List(items) => AttributeValue::List(items.iter().map(value).collect()),
        Param::Text(text) => AttributeValue::Text(text.clone()),
    }
}
