//! Hash table of the names in a list.

use super::segment::low_bits;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// Maximum number of different names with one hash. Only names that are made for it have more than two.
const MAX_EQUAL_HASHES: usize = 1000;
/// Slot without a name.
const EMPTY: u32 = u32::MAX;

/// Open hash table of places in a list of names. The bits of a slot above those of a place are bits of the hash: another name in the
/// slot is recognised by them, without the list, which is larger than the caches of the processor.
#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<u32>,
    /// Bits of a place. No place has all of them.
    mask: u32,
}

impl Slots {
    /// Removes all names; makes space for `names` of them.
    pub(super) fn reset(&mut self, names: usize) {
        let slots = (names * 2).next_power_of_two().max(2);
        self.slots.clear();
        self.slots.resize(slots, EMPTY);
        self.mask = u32::try_from(slots - 1).unwrap_or(u32::MAX);
    }

    /// Number of names that the table has space for.
    pub(super) fn capacity(&self) -> usize {
        self.slots.len() / 2
    }

    /// Returns the place in the first slot for a hash; of any number if the slot is empty.
    pub(super) fn first(&self, hash: u64) -> usize {
        (self.slots[low_bits(hash, self.slots.len())] & self.mask) as usize
    }

    /// Returns the place of a name: of that with this hash in the list for which `is_same` is true, or else `next`, which is added.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`], `names-collide`, for names that were made to have equal hashes: each would be compared with
    /// all others.
    #[inline]
    pub(super) fn find_or_add(
        &mut self,
        hash: u64,
        next: u32,
        hash_of: impl Fn(u32) -> u64,
        is_same: impl Fn(u32) -> bool,
    ) -> Result<u32> {
        let own = bits_of(hash) & !self.mask;
        let mut slot = low_bits(hash, self.slots.len());
        let mut equal = 0;
        loop {
            let found = self.slots[slot];
            if found == EMPTY {
                self.slots[slot] = own | next;
                return Ok(next);
            }
            let place = found & self.mask;
            if found & !self.mask == own && hash_of(place) == hash {
                if is_same(place) {
                    return Ok(place);
                }
                equal += 1;
                if equal > MAX_EQUAL_HASHES {
                    return Err(collision());
                }
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    /// Adds the name at a place, which is not in the table yet.
    pub(super) fn add(&mut self, hash: u64, place: u32) {
        let mut slot = low_bits(hash, self.slots.len());
        while self.slots[slot] != EMPTY {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = bits_of(hash) & !self.mask | place;
    }
}

/// Bits of a hash that neither select a slot nor a partition, unless there are very many.
fn bits_of(hash: u64) -> u32 {
    let [_, _, _, a, b, c, d, _] = hash.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn collision() -> Error {
    Error::limit("names-collide", "too many different names have one hash")
        .expected(format_args!("at most {MAX_EQUAL_HASHES}"))
        .hint(phrase!["the names are made for this; ", Opt::Seed.any("NUMBER"), " selects other hashes"])
}
