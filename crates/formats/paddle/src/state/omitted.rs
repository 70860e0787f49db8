//! Omitted objects of a pickle, and detection of arrays within them.

use std::collections::BTreeMap;
use weighbridge_core::Budget;
use weighbridge_core::checkpoint::Note;
use weighbridge_core::error::Result;
use weighbridge_core::text::counted;
use weighbridge_pickle::{Cost, Graph, NdArray, Object, ObjectId, Options, Reach};
use weighbridge_torch_archive as torch;

/// Maximum number of distinct descriptions that are reported by name.
const MAX_NAMED: usize = 100;

/// Omitted objects of one pickle.
#[derive(Debug, Default)]
pub(super) struct Omitted {
    plain: Kinds,
    /// Objects from which arrays can be reached; computed on first use.
    reach: Option<Reach>,
}

/// Number of omitted objects by description.
#[derive(Debug, Default)]
struct Kinds {
    named: BTreeMap<String, u64>,
    /// Objects with other descriptions, beyond the maximum.
    unnamed: u64,
}

impl Omitted {
    /// Counts an omitted object that contains no array.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] if the memory budget is exhausted.
    pub(super) fn count(&mut self, what: &str, budget: &Budget) -> Result<()> {
        budget.take_memory(Cost::text(what.len() as u64))?;
        let kinds = &mut self.plain;
        let named = kinds.named.len();
        match kinds.named.get_mut(what) {
            Some(count) => *count += 1,
            None if named < MAX_NAMED => _ = kinds.named.insert(what.to_owned(), 1),
            None => kinds.unnamed += 1,
        }
        Ok(())
    }

    /// True if an array can be reached from the object, or if the memory budget does not allow the search. `size` is
    /// the number of objects of the graph and of references between them.
    pub(super) fn leads_to_array(
        &mut self,
        id: ObjectId,
        (graph, bounds): (&Graph, &Options),
        size: u64,
        budget: &Budget,
    ) -> bool {
        if self.reach.is_none() {
            // The number of an object and of the next reference to it.
            let cost = size.saturating_mul(2 * size_of::<usize>() as u64);
            if budget.take_memory(cost).is_err() {
                return true;
            }
            let is_array = |id| {
                let outside = matches!(graph.object(id), Object::PersistentId(_));
                outside || torch::is_tensor(graph, id) || !matches!(NdArray::of(graph, id, bounds), Ok(None))
            };
            self.reach = Some(Reach::of(graph, is_array));
            // One byte for each object remains allocated: little compared with the objects.
            budget.give_memory(cost);
        }
        self.reach.as_ref().is_some_and(|reach| reach.holds_tensor(id))
    }

    /// Returns the notes about omitted objects.
    pub(super) fn notes(self) -> Vec<Note> {
        const CODE: &str = "unknown-class";
        let mut notes = Vec::new();
        for (what, count) in self.plain.named {
            let text = format!("{what}: {} omitted", counted(count, "object", "objects"));
            notes.push(Note::omission(CODE, text));
        }
        if self.plain.unnamed > 0 {
            let text =
                format!("{} of other classes omitted", counted(self.plain.unnamed, "object", "objects"));
            notes.push(Note::omission(CODE, text));
        }
        notes
    }
}
