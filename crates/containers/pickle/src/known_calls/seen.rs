//! The graph as it is when an instruction is reached.

use crate::graph::{Graph, Object, ObjectId, Reduced};

/// Stands for what is not as it was: no form knows it.
static CHANGED: Object = Object::Extension(-1);

/// A graph, seen from an instruction. Python uses arguments and states as they are at the call, and keeps what it was given: an
/// object that changes behind the call was something else then, or becomes something else under what was made of it. Of such an
/// object nothing is seen.
///
/// Honest pickles change an object only before it is used, save those that hold themselves; what these change are elements and
/// attributes, which no form looks into.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    /// The graph as it is at the end of the pickle.
    pub(super) graph: &'a Graph,
    /// Offset of the instruction.
    pub(super) at: u64,
}

impl<'a> Seen<'a> {
    /// The graph at the instruction at `at`.
    pub(super) fn at(graph: &'a Graph, at: u64) -> Self {
        Self { graph, at }
    }

    pub(super) fn object(self, id: ObjectId) -> &'a Object {
        match self.graph.changed(id) {
            Some(changed) if changed > self.at => &CHANGED,
            _ => self.graph.object(id),
        }
    }

    /// Text never changes.
    pub(super) fn text(self, id: ObjectId) -> Option<&'a str> {
        self.graph.text(id)
    }

    /// Nor do numbers.
    pub(super) fn int(self, id: ObjectId) -> Option<i64> {
        self.graph.int(id)
    }

    /// Nor tuples.
    pub(super) fn tuple(self, id: ObjectId) -> Option<&'a [ObjectId]> {
        self.graph.tuple(id)
    }

    /// Nor what is imported.
    pub(super) fn global(self, id: ObjectId) -> Option<(&'a str, &'a str)> {
        self.graph.global(id)
    }

    /// The items of a list or tuple.
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
