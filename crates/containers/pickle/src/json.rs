//! Values of a pickle as JSON, for display. Bounds on depth and size make cycles harmless.

use super::graph::{Blob, Graph, Object, ObjectId};
use super::numpy::{NdArray, bytes_of, lod_tensor, scalar};
use super::opened::Options;
use serde_json::{Map, Value as Json, json};
use weighbridge_core::Budget;
use weighbridge_core::text::json_number;

/// Bounds on the JSON output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonBounds {
    /// Maximum nesting depth, capped at 100.
    pub depth: usize,
    /// Maximum number of values at all levels together.
    pub values: usize,
}

impl Default for JsonBounds {
    fn default() -> Self {
        Self { depth: 16, values: 10_000 }
    }
}

/// Converts the object to JSON. An array becomes `{"array": "f32", "shape": [2, 3]}`, the result of a
/// call `{"call": "module name", "args": […]}`, a value beyond the bounds `"…"`. A dict whose keys are
/// not distinct texts becomes `{"pairs": [[key, value], …]}`.
pub fn to_json(graph: &Graph, id: ObjectId, options: &Options, bounds: JsonBounds) -> Json {
    let mut view = View { graph, options, left: bounds.values };
    view.value(id, bounds.depth.min(Budget::DEPTH))
}

struct View<'a> {
    graph: &'a Graph,
    options: &'a Options,
    left: usize,
}

impl View<'_> {
    fn value(&mut self, id: ObjectId, depth: usize) -> Json {
        let graph = self.graph;
        let (Some(left), Some(depth)) = (self.left.checked_sub(1), depth.checked_sub(1)) else {
            return json!("…");
        };
        self.left = left;
        match graph.object(id) {
            Object::None => Json::Null,
            Object::Bool(value) => json!(value),
            Object::Int(n) => json!(n),
            Object::BigInt(bytes) => json!({"integer_bytes": bytes.len()}),
            Object::Float(x) => json_number(*x),
            Object::Text(text) | Object::ByteString(text) => match &text.short {
                Some(text) => json!(text),
                None => json!({"text": "long"}),
            },
            Object::Bytes(blob) | Object::ByteArray(blob) => bytes(blob),
            Object::List(items) => self.items(items, depth),
            Object::Tuple(items) => self.items(items, depth),
            Object::Set(items) => json!({"set": self.items(items, depth)}),
            Object::FrozenSet(items) => json!({"set": self.items(items, depth)}),
            Object::Dict(pairs) => self.pairs(pairs, depth),
            Object::Global { .. } => json!({"import": self.name(id)}),
            Object::Reduced(_) => self.made(id, depth),
            Object::PersistentId(pid) => json!({"persistent_id": self.value(*pid, depth)}),
            Object::Extension(code) => json!({"extension": code}),
            Object::Buffer => json!({"buffer": true}),
        }
    }

    fn items(&mut self, items: &[ObjectId], depth: usize) -> Json {
        let mut values = Vec::new();
        for &item in items {
            values.push(self.value(item, depth));
            if self.left == 0 {
                break;
            }
        }
        Json::Array(values)
    }

    fn pairs(&mut self, pairs: &[(ObjectId, ObjectId)], depth: usize) -> Json {
        let mut object = Map::new();
        for &(key, value) in pairs {
            if self.left == 0 {
                return Json::Object(object);
            }
            match self.graph.text(key) {
                Some(key) if !object.contains_key(key) => {
                    object.insert(key.to_owned(), self.value(value, depth))
                }
                _ => return self.listed(pairs, depth),
            };
        }
        Json::Object(object)
    }

    fn listed(&mut self, pairs: &[(ObjectId, ObjectId)], depth: usize) -> Json {
        let mut list = Vec::new();
        for &(key, value) in pairs {
            if self.left == 0 {
                break;
            }
            list.push(json!([self.value(key, depth), self.value(value, depth)]));
        }
        json!({ "pairs": list })
    }

    fn name(&self, id: ObjectId) -> String {
        self.graph
            .global(id)
            .map_or_else(|| "(unknown)".to_owned(), |(module, name)| format!("{module} {name}"))
    }

    fn made(&mut self, id: ObjectId, depth: usize) -> Json {
        let graph = self.graph;
        let array = NdArray::of(graph, id, self.options).ok().flatten();
        if let Some(NdArray { descr, dtype, shape, .. }) = array {
            let name = dtype.map_or(&*descr, |dtype| dtype.name());
            return json!({"array": name, "shape": shape.dims()});
        }
        if let Ok(Some(NdArray { descr, dtype, .. })) = scalar(graph, id) {
            return json!({"scalar": dtype.map_or(&*descr, |dtype| dtype.name())});
        }
        if let Some(inner) = lod_tensor(graph, id) {
            return self.value(inner, depth);
        }
        if let Ok(Some(payload)) = bytes_of(graph, id, None) {
            return json!({"bytes": payload.len});
        }
        if let Some(pairs) = graph.pairs(id) {
            return self.pairs(pairs, depth);
        }
        let Some(made) = graph.made(id) else { return Json::Null };
        let mut object = Map::new();
        object.insert("call".into(), json!(self.name(made.callable)));
        object.insert("args".into(), self.value(made.args, depth));
        if !made.items.is_empty() {
            object.insert("items".into(), self.items(&made.items, depth));
        }
        if !made.pairs.is_empty() {
            object.insert("set".into(), self.pairs(&made.pairs, depth));
        }
        if !made.states.is_empty() {
            object.insert("state".into(), self.items(&made.states, depth));
        }
        Json::Object(object)
    }
}

fn bytes(blob: &Blob) -> Json {
    match blob.len() {
        Some(len) => json!({ "bytes": len }),
        None => json!({"bytes": "long"}),
    }
}
