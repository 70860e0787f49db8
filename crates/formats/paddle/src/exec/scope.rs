//! The variables of a run.

use crate::stream::lod::LOD;
use crate::stream::selected_rows::{HEIGHT, ROWS};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::{Name, TensorEntry, TensorPath};

/// What a variable holds.
#[derive(Debug, Clone)]
pub enum Value {
    /// A tensor: a range of a file, or of memory. LoD, and the numbers of selected rows, stand in its
    /// attributes, as the streams of Paddle's files give them.
    Tensor(TensorEntry),
    /// A Vocab: words with their numbers, in the order of the file.
    Words(Vec<(Name, i32)>),
}

/// Variables by name. It outlives a run, so that one program can save what another one loaded.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    variables: BTreeMap<String, Value>,
}

impl Scope {
    /// A scope without variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a variable; `None` where it has none.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.variables.get(name)
    }

    /// The tensor of a variable; `None` where it has none, or holds something else.
    pub fn tensor(&self, name: &str) -> Option<&TensorEntry> {
        match self.variables.get(name) {
            Some(Value::Tensor(entry)) => Some(entry),
            _ => None,
        }
    }

    /// Gives a variable a value. A tensor is named after it, and keeps of its attributes those
    /// that Paddle knows: LoD, and what belongs to selected rows.
    pub fn set(&mut self, name: impl Into<String>, value: Value) {
        let name = name.into();
        let value = match value {
            Value::Tensor(entry) => Value::Tensor(named(entry, &name)),
            words @ Value::Words(_) => words,
        };
        self.variables.insert(name, value);
    }

    /// Takes a variable out.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.variables.remove(name)
    }

    /// All variables with their values, in the order of their names' bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value))
    }
}

/// The tensor under the name of a variable. What else a file said of it, such as the very bytes of
/// a desc, is forgotten here, as Paddle forgets it.
fn named(mut entry: TensorEntry, name: &str) -> TensorEntry {
    entry.path = TensorPath::new(vec![Name::from(name)]);
    entry.attributes.retain(|key, _| matches!(key.as_str(), LOD | ROWS | HEIGHT));
    entry
}

/// True where the tensor is some rows of a taller one.
pub(super) fn is_selected_rows(entry: &TensorEntry) -> bool {
    entry.attributes.contains_key(ROWS)
}
