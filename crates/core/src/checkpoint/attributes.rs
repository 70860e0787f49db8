//! Format-specific attributes of a tensor.

use super::Value;
use std::collections::{BTreeMap, btree_map};
use std::ops::{Deref, DerefMut};

impl Attributes {
    /// Attribute of the integers of a tensor quantized per channel: the dimension of the channels.
    pub const QUANTIZED_AXIS: &'static str = "quantized_axis";

    /// Attribute of the values of a sparse tensor: its layout, such as `coo`.
    pub const SPARSE_LAYOUT: &'static str = "sparse_layout";
}

type Map = BTreeMap<String, Value>;

static NONE: Map = Map::new();

/// Format-specific attributes, such as `batch`: a map from names to values, sorted by name. In JSON they are fields of the
/// tensor.
///
/// An empty map takes the size of a pointer: most tensors have none, and a file may have millions of tensors.
#[derive(Debug, Clone, Default)]
pub struct Attributes(Option<Box<Map>>);

impl Attributes {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self(None)
    }
    /// Removes an attribute and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let value = self.0.as_mut()?.remove(key);
        if self.is_empty() {
            self.0 = None;
        }
        value
    }
    /// Returns a mutable reference to the value of an attribute.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.0.as_mut()?.get_mut(key)
    }
    /// Removes all attributes.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

impl Deref for Attributes {
    type Target = Map;
    fn deref(&self) -> &Map {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Attributes {
    fn deref_mut(&mut self) -> &mut Map {
        self.0.get_or_insert_default()
    }
}

impl PartialEq for Attributes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl FromIterator<(String, Value)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(pairs: I) -> Self {
        let map = Map::from_iter(pairs);
        Self((!map.is_empty()).then(|| Box::new(map)))
    }
}

impl<const N: usize> From<[(String, Value); N]> for Attributes {
    fn from(pairs: [(String, Value); N]) -> Self {
        Self::from_iter(pairs)
    }
}

impl IntoIterator for Attributes {
    type Item = (String, Value);
    type IntoIter = btree_map::IntoIter<String, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.map_or_else(Map::new, |map| *map).into_iter()
    }
}

impl<'a> IntoIterator for &'a Attributes {
    type Item = (&'a String, &'a Value);
    type IntoIter = btree_map::Iter<'a, String, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
