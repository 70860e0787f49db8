//! Graph of objects of a checkpoint: which variable belongs to which layer or optimizer.

use crate::wire::{Fields, Value, put_bytes};
use std::collections::{HashMap, HashSet};
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Attributes, Name, Role, StateOf, TensorEntry, TensorPath, Value as Text};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;

/// Attribute with the key of a tensor in a checkpoint of objects.
pub(crate) const CHECKPOINT_KEY: &str = "checkpoint_key";
/// Names of the step counter of an optimizer.
const STEPS: [&str; 2] = ["iter", "_iterations"];
/// Names of the learning rate of an optimizer.
const RATES: [&str; 2] = ["learning_rate", "_learning_rate"];
/// List of all variables of an optimizer.
const VARIABLES: &str = "_variables";
/// List of the parameters of an optimizer.
const TRAINABLE: &str = "_trainable_variables";
/// Variables that are not trained, by their last name.
const STATISTICS: [&str; 2] = ["moving_mean", "moving_variance"];
/// Memory of a node, a child, an attribute or a slot, besides its texts.
const ENTRY: u64 = 100;

/// Graph of objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    children: Vec<(usize, String)>,
    /// Keys of saved values, with the names of their variables.
    values: Vec<(Vec<u8>, String)>,
    has_slots: bool,
}

impl Node {
    fn child(&self, names: &[&str]) -> Option<usize> {
        self.children.iter().find(|(_, name)| names.contains(&name.as_str())).map(|child| child.0)
    }

    fn is_optimizer(&self) -> bool {
        self.has_slots || (self.child(&STEPS).is_some() && self.child(&RATES).is_some())
    }
}

impl Objects {
    /// Parses a `TrackableObjectGraph`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for malformed messages; [`weighbridge_core::Kind::Limit`].
    pub(crate) fn parse(message: &[u8], budget: &Budget) -> Result<Self> {
        let mut objects = Self::default();
        for field in Fields::of(message) {
            let field = field?;
            if let (1, Value::Bytes(bytes)) = (field.number, field.value) {
                budget.take_memory(ENTRY)?;
                objects.nodes.push(Node::parse(bytes, budget)?);
            }
        }
        Ok(objects)
    }

    /// Returns the names of variables by key.
    fn full_names(&self) -> HashMap<&[u8], &str> {
        let values = self.nodes.iter().flat_map(|node| &node.values);
        values
            .filter(|value| !value.1.is_empty())
            .map(|(key, name)| (key.as_slice(), name.as_str()))
            .collect()
    }

    fn key_of(&self, node: usize) -> Option<&[u8]> {
        self.nodes.get(node)?.values.first().map(|(key, _)| key.as_slice())
    }

    /// Returns the keys of the settings and counters of optimizers, and those of their state without a slot.
    fn of_optimizers(&self) -> (HashSet<&[u8]>, HashSet<&[u8]>) {
        let (mut settings, mut state) = (HashSet::new(), HashSet::new());
        for optimizer in self.nodes.iter().filter(|node| node.is_optimizer()) {
            let own: HashSet<usize> = optimizer.children.iter().map(|child| child.0).collect();
            settings.extend(own.iter().filter_map(|&node| self.key_of(node)));
            let listed = |name: &str| {
                let list = optimizer.child(&[name]).and_then(|node| self.nodes.get(node));
                list.into_iter().flat_map(|list| &list.children).map(|child| child.0)
            };
            let trained: HashSet<usize> = listed(TRAINABLE).collect();
            let rest = listed(VARIABLES).filter(|node| !own.contains(node) && !trained.contains(node));
            state.extend(rest.filter_map(|node| self.key_of(node)));
        }
        (settings, state)
    }

    /// Sets roles and names of variables. `keys` are those of the tensors.
    pub(crate) fn describe(&self, tensors: &mut [TensorEntry], keys: &[Vec<u8>]) {
        let names = self.full_names();
        let (settings, state) = self.of_optimizers();
        for (tensor, key) in tensors.iter_mut().zip(keys) {
            if let Some(name) = names.get(key.as_slice()) {
                tensor
                    .attributes
                    .insert(Attributes::VARIABLE_NAME.to_owned(), Text::Text((*name).to_owned()));
            }
            if tensor.role.is_state() {
                continue;
            }
            if state.contains(key.as_slice()) {
                tensor.role = Role::OptimizerPart { of: None };
            } else if settings.contains(key.as_slice()) || is_buffer(tensor) {
                tensor.role = Role::Buffer;
            }
        }
        link(tensors);
    }
}

impl Node {
    fn parse(message: &[u8], budget: &Budget) -> Result<Self> {
        let mut node = Self::default();
        for field in Fields::of(message) {
            let field = field?;
            let Value::Bytes(bytes) = field.value else { continue };
            budget.take_memory(ENTRY.saturating_add(bytes.len() as u64))?;
            match field.number {
                1 => {
                    let (mut child, mut name) = (0, String::new());
                    for field in Fields::of(bytes) {
                        let field = field?;
                        match field.number {
                            1 => {
                                child =
                                    usize::try_from(field.uint().unwrap_or_default()).unwrap_or(usize::MAX)
                            }
                            2 => name = field.text().unwrap_or_default(),
                            _ => {}
                        }
                    }
                    node.children.push((child, name));
                }
                2 => {
                    let (mut key, mut name) = (Vec::new(), String::new());
                    for field in Fields::of(bytes) {
                        let field = field?;
                        match field.number {
                            2 => name = field.text().unwrap_or_default(),
                            3 => key = field.bytes().unwrap_or_default().to_vec(),
                            _ => {}
                        }
                    }
                    node.values.push((key, name));
                }
                3 => node.has_slots = true,
                _ => {}
            }
        }
        Ok(node)
    }
}

/// Returns true for a variable that is not trained, by its dtype or its last name.
pub(crate) fn is_buffer(tensor: &TensorEntry) -> bool {
    let last = tensor.path.parts().last().and_then(Name::as_str).unwrap_or_default();
    !(tensor.stored.is_float() || matches!(tensor.stored, DType::C64 | DType::C128))
        || STATISTICS.contains(&last)
}

/// Links the state of optimizers that is listed without its variable, by the names of both. tf-keras names it `Adam/m/NAME`, Keras 3
/// `adam/NAME_momentum` with underscores for the slashes of NAME.
fn link(tensors: &mut [TensorEntry]) {
    let mut by_name: HashMap<String, Option<usize>> = HashMap::new();
    for (place, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| !tensor.role.is_state()) {
        if let Some(name) = tensor.text_attribute(Attributes::VARIABLE_NAME) {
            for name in [name.to_owned(), name.replace('/', "_")] {
                // A name of two variables is none.
                by_name
                    .entry(name)
                    .and_modify(|old| *old = old.filter(|&old| old == place))
                    .or_insert(Some(place));
            }
        }
    }
    let mut links = Vec::new();
    for (place, tensor) in tensors.iter().enumerate() {
        if tensor.role != (Role::OptimizerPart { of: None }) {
            continue;
        }
        let Some(name) = tensor.text_attribute(Attributes::VARIABLE_NAME) else { continue };
        let Some((_, rest)) = name.split_once('/') else { continue };
        let after_slot = rest.split_once('/').map(|(_, name)| name);
        let before_slot = rest.match_indices('_').map(|(end, _)| &rest[..end]).rev();
        let mut candidates = after_slot.into_iter().chain(before_slot);
        let found = candidates.find_map(|name| {
            let variable = by_name.get(name).copied().flatten()?;
            (tensors.get(variable)?.shape == tensor.shape).then_some(variable)
        });
        links.extend(found.map(|variable| (place, variable)));
    }
    for (place, variable) in links {
        let name = tensors.get(variable).map(TensorEntry::text).unwrap_or_default();
        if let Some(tensor) = tensors.get_mut(place) {
            tensor.role = Role::OptimizerPart { of: Some(Box::new(StateOf { name, guessed: false })) };
        }
    }
}

/// Guesses roles in a checkpoint of names: `NAME/Adam` is a slot of the variable `NAME` of the same shape. Returns the number of
/// slots.
pub(crate) fn guess(tensors: &mut [TensorEntry]) -> usize {
    let shapes: HashMap<TensorPath, _> =
        tensors.iter().map(|tensor| (tensor.path.clone(), (tensor.shape.clone(), tensor.stored))).collect();
    let mut count = 0;
    for tensor in tensors {
        let Some((last, parent)) = tensor.path.parts().split_last() else { continue };
        let name = last.as_str().unwrap_or_default();
        let parent = TensorPath::new(parent);
        if is_slot(name) && shapes.get(&parent) == Some(&(tensor.shape.clone(), tensor.stored)) {
            tensor.role = Role::OptimizerState { slot: last.clone() };
            tensor.path = parent;
            tensor.guessed = true;
            count += 1;
        } else if is_buffer(tensor) || is_average(name) || is_power(name) {
            tensor.role = Role::Buffer;
        }
    }
    count
}

/// Returns true for the name of a slot of an optimizer of TensorFlow 1: `Adam`, `Adam_1`.
fn is_slot(name: &str) -> bool {
    const SLOTS: [&str; 15] = [
        "Adadelta",
        "Adagrad",
        "AdagradDA",
        "Adam",
        "AdamW",
        "AdaMax",
        "Ftrl",
        "Lamb",
        "LARSOptimizer",
        "Momentum",
        "Nadam",
        "ProximalAdagrad",
        "RMSProp",
        "adam_m",
        "adam_v",
    ];
    let stem = match name.rsplit_once('_') {
        Some((stem, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            stem
        }
        _ => name,
    };
    SLOTS.contains(&stem)
}

fn is_average(name: &str) -> bool {
    name == "ExponentialMovingAverage"
}

/// Returns true for a counter of an optimizer: the power of a rate.
fn is_power(name: &str) -> bool {
    matches!(name, "beta1_power" | "beta2_power")
}

/// Returns a graph of objects with other keys. `key` maps each key to the new one; a value without a key is dropped.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for malformed messages.
pub(crate) fn with_keys<'a>(message: &[u8], key: &dyn Fn(&[u8]) -> Option<&'a [u8]>) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(message.len());
    for field in Fields::of(message) {
        let field = field?;
        let (1, Value::Bytes(node)) = (field.number, field.value) else {
            out.extend_from_slice(field.raw);
            continue;
        };
        let mut changed = Vec::with_capacity(node.len());
        for field in Fields::of(node) {
            let field = field?;
            let (2, Value::Bytes(value)) = (field.number, field.value) else {
                changed.extend_from_slice(field.raw);
                continue;
            };
            if let Some(value) = with_key(value, key)? {
                put_bytes(&mut changed, 2, &value);
            }
        }
        put_bytes(&mut out, 1, &changed);
    }
    Ok(out)
}

fn with_key<'a>(value: &[u8], key: &dyn Fn(&[u8]) -> Option<&'a [u8]>) -> Result<Option<Vec<u8>>> {
    let mut out = Vec::with_capacity(value.len());
    for field in Fields::of(value) {
        let field = field?;
        match field.number {
            3 => match key(field.bytes().unwrap_or_default()) {
                Some(key) => put_bytes(&mut out, 3, key),
                None => return Ok(None),
            },
            _ => out.extend_from_slice(field.raw),
        }
    }
    Ok(Some(out))
}
