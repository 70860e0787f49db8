//! Variables of a run.

use crate::stream::lod::LOD;
use crate::stream::selected_rows::{HEIGHT, ROWS};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::{Name, TensorEntry, TensorPath};

/// Value of a variable.
#[derive(Debug, Clone)]
pub enum Value {
    /// Tensor: a range of a file, or of memory. LoD and the indices of selected rows are attributes, as in the
    /// streams of Paddle's files.
    Tensor(TensorEntry),
    /// Vocabulary: words with their numbers, in file order.
    Words(Vec<(Name, i32)>),
}

/// Variables by name. A scope outlives a run, so that one program can save the tensors loaded by another.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    variables: BTreeMap<String, Value>,
}

impl Scope {
    /// Creates an empty scope.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the value of a variable; `None` if it has no value.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.variables.get(name)
    }

    /// Returns the tensor of a variable; `None` if it has no value, or is not a tensor.
    pub fn tensor(&self, name: &str) -> Option<&TensorEntry> {
        match self.variables.get(name) {
            Some(Value::Tensor(entry)) => Some(entry),
            _ => None,
        }
    }

    /// Sets the value of a variable. A tensor is named after it, and keeps the attributes that Paddle supports: LoD, and
    /// those of selected rows.
    pub fn set(&mut self, name: impl Into<String>, value: Value) {
        let name = name.into();
        let value = match value {
            Value::Tensor(entry) => Value::Tensor(named(entry, &name)),
            words @ Value::Words(_) => words,
        };
        self.variables.insert(name, value);
    }

    /// Removes a variable.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.variables.remove(name)
    }

    /// Iterates over all variables with their values, sorted by the bytes of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value))
    }
}

/// Names a tensor after a variable. Other attributes, such as the original bytes of a desc, are dropped, as in
/// Paddle.
fn named(mut entry: TensorEntry, name: &str) -> TensorEntry {
    entry.path = TensorPath::new(vec![Name::from(name)]);
    entry.attributes.retain(|key, _| matches!(key.as_str(), LOD | ROWS | HEIGHT));
    entry
}

/// True for selected rows of a taller tensor.
pub(super) fn is_selected_rows(entry: &TensorEntry) -> bool {
    entry.attributes.contains_key(ROWS)
}
