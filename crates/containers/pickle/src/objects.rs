//! Objects by number, in blocks: a single vector of millions would be copied on each growth, with both copies in memory.

use super::graph::Object;

/// Number of objects in a block.
const BLOCK: usize = 1024;

/// Append-only list of objects.
#[derive(Debug, Clone, Default)]
pub(super) struct Objects {
    /// All blocks except the last one hold [`BLOCK`] objects.
    blocks: Vec<Vec<Object>>,
}

impl Objects {
    pub(super) fn len(&self) -> usize {
        self.blocks.last().map_or(0, |last| (self.blocks.len() - 1) * BLOCK + last.len())
    }

    pub(super) fn get(&self, place: usize) -> Option<&Object> {
        self.blocks.get(place / BLOCK)?.get(place % BLOCK)
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut Object> {
        self.blocks.get_mut(place / BLOCK)?.get_mut(place % BLOCK)
    }

    pub(super) fn push(&mut self, object: Object) {
        match self.blocks.last_mut() {
            Some(last) if last.len() < BLOCK => last.push(object),
            // The first block grows: most scanned pickles are small.
            None => self.blocks.push(vec![object]),
            Some(_) => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(object);
                self.blocks.push(block);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Object> {
        self.blocks.iter().flatten()
    }
}

impl FromIterator<Object> for Objects {
    fn from_iter<I: IntoIterator<Item = Object>>(objects: I) -> Self {
        let mut all = Self::default();
        objects.into_iter().for_each(|object| all.push(object));
        all
    }
}
