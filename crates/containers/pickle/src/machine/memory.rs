//! Memory of objects, counted before allocation.
//!
//! An opcode of one byte can make an object of a hundred bytes, so a limit on the number of objects
//! alone is too weak for small files.

use super::Machine;
use crate::graph::{Blob, Object, ObjectId, Reduced, Text};
use crate::opened::GlobalUse;
use weighbridge_core::error::Result;

/// Allocator overhead per allocation.
const ALLOCATION: u64 = 8;
/// Bytes of a mark, which is a stack height.
const MARK: u64 = size_of::<usize>() as u64;
/// Bytes of an object id on the stack, in the memo or in a list; vectors double when they grow.
const ID: u64 = 2 * size_of::<ObjectId>() as u64;

impl Machine<'_> {
    /// Counts an object with its current content.
    pub(super) fn take_object(&mut self, object: &Object) -> Result<()> {
        let boxed = match object {
            Object::BigInt(bytes) => allocation(bytes.len()),
            Object::Text(text) | Object::ByteString(text) => {
                allocation(size_of::<Text>()) + text.short.as_ref().map_or(0, |text| allocation(text.len()))
            }
            Object::Bytes(blob) | Object::ByteArray(blob) => {
                allocation(size_of::<Blob>()) + blob.short.as_ref().map_or(0, |bytes| allocation(bytes.len()))
            }
            Object::Tuple(items) | Object::FrozenSet(items) => allocation(size_of_val::<[_]>(items)),
            Object::Reduced(_) => allocation(size_of::<Reduced>()),
            container => capacity_bytes(container),
        };
        self.held.take(size_of::<Object>() as u64 + boxed)
    }

    /// Counts the growth of a container.
    pub(super) fn take_growth(&mut self, bytes: u64) -> Result<()> {
        self.held.take(bytes)
    }

    /// Counts a module or name in the table of interned names.
    pub(super) fn take_name(&mut self, name: &str) -> Result<()> {
        self.held.take(name.len() as u64 + 4 * ALLOCATION)
    }

    /// Counts a memo entry: in the vector if it `follows` the last one, else in the map.
    pub(super) fn take_place(&mut self, follows: bool) -> Result<()> {
        self.held.take(if follows { ID } else { 6 * ID })
    }

    /// Counts an entry in the table of changes.
    pub(super) fn take_change(&mut self) -> Result<()> {
        self.held.take(6 * ID)
    }

    /// Counts bytes of the bit set.
    pub(super) fn take_bits(&mut self, bytes: usize) -> Result<()> {
        self.held.take(bytes as u64)
    }

    /// Counts an import.
    pub(super) fn take_global(&mut self) -> Result<()> {
        self.held.take(2 * size_of::<GlobalUse>() as u64)
    }

    /// Counts stack and marks if they are higher than before.
    pub(super) fn take_height(&mut self) -> Result<()> {
        let height = (self.stack.len() as u64) * ID + (self.marks.len() as u64) * 2 * MARK;
        let more = height.saturating_sub(self.stacked);
        if more > 0 {
            self.stacked = height;
            self.held.take(more)?;
        }
        Ok(())
    }
}

/// Memory of the growable containers of an object.
pub(super) fn capacity_bytes(object: &Object) -> u64 {
    let ids = |items: &Vec<ObjectId>| allocation(items.capacity() * size_of::<ObjectId>());
    let pairs = |pairs: &Vec<(ObjectId, ObjectId)>| allocation(pairs.capacity() * 2 * size_of::<ObjectId>());
    match object {
        Object::List(items) | Object::Set(items) => ids(items),
        Object::Dict(items) => pairs(items),
        Object::Reduced(made) => ids(&made.items) + pairs(&made.pairs) + ids(&made.states),
        _ => 0,
    }
}

/// Bytes of an allocation of that length; zero for an empty one.
fn allocation(len: usize) -> u64 {
    if len == 0 { 0 } else { len as u64 + ALLOCATION }
}
