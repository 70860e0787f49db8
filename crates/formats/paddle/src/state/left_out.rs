//! Objects of a pickle that are not kept, and which of them lead to arrays.

use super::room::Room;
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::Note;
use weighbridge_core::error::Result;
use weighbridge_core::text::counted;
use weighbridge_pickle::{Graph, Object, ObjectId, Options, Reach, ndarray};
use weighbridge_torch_archive as torch;

/// Kinds of objects are named up to this number.
const NAMED: usize = 100;
/// Bytes that it takes to know what leads to arrays, for each object and each of its references.
const REACHED: u64 = 13;

/// What is not kept of one pickle.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    plain: Kinds,
    /// Which objects lead to arrays, as soon as that is asked.
    reach: Option<Reach>,
}

/// How often objects were met, by what they are.
#[derive(Debug, Default)]
struct Kinds {
    named: BTreeMap<String, u64>,
    /// Objects of more kinds.
    unnamed: u64,
}

impl LeftOut {
    /// Counts an object that leads to no array.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`], `pickle-tangle`, where there is no room for what it is.
    pub(super) fn count(&mut self, what: &str, room: &mut Room) -> Result<()> {
        room.text(what)?;
        let kinds = &mut self.plain;
        let named = kinds.named.len();
        match kinds.named.get_mut(what) {
            Some(count) => *count += 1,
            None if named < NAMED => _ = kinds.named.insert(what.to_owned(), 1),
            None => kinds.unnamed += 1,
        }
        Ok(())
    }

    /// True where an array can be reached from the object, and where there is no room to know it. `size` is that of
    /// the graph: its objects, and the references between them.
    pub(super) fn leads_to_array(
        &mut self,
        id: ObjectId,
        (graph, bounds): (&Graph, &Options),
        size: u64,
        room: &mut Room,
    ) -> bool {
        if self.reach.is_none() {
            let cost = size.saturating_mul(REACHED);
            if room.take(cost).is_err() {
                return true;
            }
            let is_array = |id| {
                let outside = matches!(graph.object(id), Object::PersistentId(_));
                outside || torch::is_tensor(graph, id) || !matches!(ndarray(graph, id, bounds), Ok(None))
            };
            self.reach = Some(Reach::of(graph, is_array));
            // A byte for each object stays, which is little beside the objects.
            room.give(cost);
        }
        self.reach.as_ref().is_some_and(|reach| reach.holds_tensor(id))
    }

    /// What is said of it.
    pub(super) fn notes(self) -> Vec<Note> {
        const CODE: &str = "unknown-class";
        let mut notes = Vec::new();
        for (what, count) in self.plain.named {
            let text = format!("{} {what}: not kept", counted(count, "time", "times"));
            notes.push(Note::omission(CODE, text));
        }
        if self.plain.unnamed > 0 {
            let text = format!("and {} of more kinds", counted(self.plain.unnamed, "object", "objects"));
            notes.push(Note::omission(CODE, text));
        }
        notes
    }
}
