//! Snapshot of the graph at an opcode.

use crate::graph::{Graph, Object, ObjectId, Reduced};

/// Placeholder for a changed object; no form matches it.
static CHANGED: Object = Object::Extension(-1);

/// View of the graph at an opcode. Python reads arguments and states at the call. An object that changes after the call had
/// other content then, so this view hides its content.
///
/// Picklers change an object only before its use, except for objects that contain themselves; those change elements and
/// attributes, which no form checks.
#[derive(Clone, Copy)]
pub(super) struct Snapshot<'a> {
    /// The graph at the end of the pickle.
    pub(super) graph: &'a Graph,
    /// Offset of the opcode.
    pub(super) at: u64,
}

impl<'a> Snapshot<'a> {
    /// View of the graph at the opcode at offset `at`.
    pub(super) fn at(graph: &'a Graph, at: u64) -> Self {
        Self { graph, at }
    }

    pub(super) fn object(self, id: ObjectId) -> &'a Object {
        match self.graph.changed(id) {
            Some(changed) if changed > self.at => &CHANGED,
            _ => self.graph.object(id),
        }
    }

    /// Text, which is immutable.
    pub(super) fn text(self, id: ObjectId) -> Option<&'a str> {
        self.graph.text(id)
    }

    /// An integer, which is immutable.
    pub(super) fn int(self, id: ObjectId) -> Option<i64> {
        self.graph.int(id)
    }

    /// Items of a tuple, which is immutable.
    pub(super) fn tuple(self, id: ObjectId) -> Option<&'a [ObjectId]> {
        self.graph.tuple(id)
    }

    /// An import, which is immutable.
    pub(super) fn global(self, id: ObjectId) -> Option<(&'a str, &'a str)> {
        self.graph.global(id)
    }

    /// Items of a list or tuple.
    pub(super) fn sequence(self, id: ObjectId) -> Option<&'a [ObjectId]> {
        match self.object(id) {
            Object::Tuple(items) => Some(items),
            Object::List(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn made(self, id: ObjectId) -> Option<&'a Reduced> {
        match self.object(id) {
            Object::Reduced(made) => Some(made),
            _ => None,
        }
    }
}
