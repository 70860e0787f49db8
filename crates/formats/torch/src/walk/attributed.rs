//! Attributes that Python code set on tensors: other tensors, such as `main_grad`, and values.

use super::Walk;
use weighbridge_core::checkpoint::Role;
use weighbridge_core::error::Result;
use weighbridge_pickle::{Cost, ObjectId};

/// Pending attributes of a tensor.
#[derive(Debug)]
pub(super) struct Attributed {
    /// Index of the tensor.
    place: usize,
    state: ObjectId,
    depth: usize,
}

impl Walk<'_> {
    /// Queues the attributes of the last added tensor. They are walked after everything else: attributes among the tensors of a
    /// dict would hide that it is a model, and could take the name of a key.
    pub(super) fn note_attributes(&mut self, id: ObjectId, depth: usize) -> Result<()> {
        let place = self.checkpoint.tensors.len().saturating_sub(1);
        for state in self.saved.states(id) {
            self.visit()?;
            self.budget.take_memory(Cost::CONTAINER)?;
            self.attributed.push(Attributed { place, state, depth });
        }
        Ok(())
    }

    /// Walks the queued attributes, each under the name of its tensor; for several names, under the first one.
    pub(super) fn attributes_of_tensors(&mut self) -> Result<()> {
        let mut next = 0;
        // Attributes may have attributes, which are queued on the way.
        while let Some(&Attributed { place, state, depth }) = self.attributed.get(next) {
            next += 1;
            let Some(tensor) = self.checkpoint.tensors.get(place) else { continue };
            self.path = tensor.path.parts().to_vec();
            self.role = if tensor.role.is_state() { tensor.role.clone() } else { Role::Other };
            let graph = self.saved.graph();
            // With slots, the state is a pair of dicts; either may be missing.
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
