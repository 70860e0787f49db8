//! Objects of a pickle that are not kept, and which of them lead to arrays.

use std::collections::BTreeMap;
use weighbridge_core::Budget;
use weighbridge_core::checkpoint::Note;
use weighbridge_core::error::Result;
use weighbridge_core::text::counted;
use weighbridge_pickle::{Cost, Graph, NdArray, Object, ObjectId, Options, Reach};
use weighbridge_torch_archive as torch;

/// Kinds of objects are named up to this number.
const NAMED: usize = 100;

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
    /// [`weighbridge_core::Kind::Limit`] where there is no memory for what it is.
    pub(super) fn count(&mut self, what: &str, budget: &Budget) -> Result<()> {
        budget.take_memory(Cost::text(what.len() as u64))?;
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
        budget: &Budget,
    ) -> bool {
        if self.reach.is_none() {
            // Numbers of an object and of the next reference to it.
            let cost = size.saturating_mul(2 * size_of::<usize>() as u64);
            if budget.take_memory(cost).is_err() {
                return true;
            }
            let is_array = |id| {
                let outside = matches!(graph.object(id), Object::PersistentId(_));
                outside || torch::is_tensor(graph, id) || !matches!(NdArray::of(graph, id, bounds), Ok(None))
            };
            self.reach = Some(Reach::of(graph, is_array));
            // A byte for each object stays, which is little beside the objects.
            budget.give_memory(cost);
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
