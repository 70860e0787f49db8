//! Attributes that Python code gave to tensors: other tensors, such as `main_grad`, and values.

use super::Walk;
use weighbridge_core::checkpoint::Role;
use weighbridge_core::error::Result;
use weighbridge_pickle::{Cost, ObjectId};

/// Attributes of a tensor that are to be walked.
#[derive(Debug)]
pub(super) struct Attributed {
    /// The place of the tensor in the index.
    place: usize,
    state: ObjectId,
    depth: usize,
}

impl Walk<'_> {
    /// Notes the attributes of the tensor that was added last. They are walked behind all else: a dict of tensors whose
    /// attributes stood among them would not be known as that of a model, and an attribute would take the name of a key.
    pub(super) fn note_attributes(&mut self, id: ObjectId, depth: usize) -> Result<()> {
        let place = self.checkpoint.tensors.len().saturating_sub(1);
        for state in self.saved.states(id) {
            self.visit()?;
            self.budget.take_memory(Cost::CONTAINER)?;
            self.attributed.push(Attributed { place, state, depth });
        }
        Ok(())
    }

    /// Walks what was noted: each below the name of its tensor. A tensor that has several names has them below the first.
    pub(super) fn attributes_of_tensors(&mut self) -> Result<()> {
        let mut next = 0;
        // Attributes may have attributes, which are noted meanwhile.
        while let Some(&Attributed { place, state, depth }) = self.attributed.get(next) {
            next += 1;
            let Some(tensor) = self.checkpoint.tensors.get(place) else { continue };
            self.path = tensor.path.parts().to_vec();
            self.role = if tensor.role.is_state() { tensor.role.clone() } else { Role::Other };
            let graph = self.saved.graph();
            // With slots, the state is a pair of dicts, either of which may be missing.
            let parts = graph.tuple(state).unwrap_or(std::slice::from_ref(&state));
            for (number, &part) in parts.iter().enumerate() {
                self.visit()?;
                match graph.pairs(part) {
                    Some(pairs) => {
                        for (key, value) in self.members(pairs)? {
                            self.below(&key, value, depth)?;
                        }
                    }
                    None if part == ObjectId::NONE => {}
                    None => self.below(&number.to_string(), part, depth)?,
                }
            }
        }
        Ok(())
    }
}
