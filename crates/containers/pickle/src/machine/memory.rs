//! The memory that objects take, counted before it is taken.
//!
//! An instruction of one byte can make an object of a hundred: the number of objects alone bounds nothing
//! that a small file should take.

use super::Machine;
use crate::graph::{Blob, Object, ObjectId, Reduced, Text};
use crate::opened::GlobalUse;
use weighbridge_core::error::Result;

/// What the allocator adds to each piece.
const PIECE: u64 = 8;
/// A mark, as a height of the stack.
const MARK: u64 = size_of::<usize>() as u64;
/// An object on the stack, in the memo or in a list: vectors double when they grow.
const ID: u64 = 2 * size_of::<ObjectId>() as u64;

impl Machine<'_> {
    /// Counts an object, with all that it holds now.
    pub(super) fn take_object(&mut self, object: &Object) -> Result<()> {
        let boxed = match object {
            Object::BigInt(bytes) => piece(bytes.len()),
            Object::Text(text) | Object::ByteString(text) => {
                piece(size_of::<Text>()) + text.short.as_ref().map_or(0, |text| piece(text.len()))
            }
            Object::Bytes(blob) | Object::ByteArray(blob) => {
                piece(size_of::<Blob>()) + blob.short.as_ref().map_or(0, |bytes| piece(bytes.len()))
            }
            Object::Tuple(items) | Object::FrozenSet(items) => piece(size_of_val::<[_]>(items)),
            Object::Reduced(_) => piece(size_of::<Reduced>()),
            container => room_of(container),
        };
        self.held.take(size_of::<Object>() as u64 + boxed)
    }

    /// Counts what a container grew by.
    pub(super) fn take_growth(&mut self, bytes: u64) -> Result<()> {
        self.held.take(bytes)
    }

    /// Counts a module or name in the table of those that are known.
    pub(super) fn take_name(&mut self, name: &str) -> Result<()> {
        self.held.take(name.len() as u64 + 4 * PIECE)
    }

    /// Counts a place of the memo: one of those that follow each other, or of a table.
    pub(super) fn take_place(&mut self, follows: bool) -> Result<()> {
        self.held.take(if follows { ID } else { 6 * ID })
    }

    /// Counts when an object changed.
    pub(super) fn take_change(&mut self) -> Result<()> {
        self.held.take(6 * ID)
    }

    /// Counts bits.
    pub(super) fn take_bits(&mut self, bytes: usize) -> Result<()> {
        self.held.take(bytes as u64)
    }

    /// Counts an import.
    pub(super) fn take_global(&mut self) -> Result<()> {
        self.held.take(2 * size_of::<GlobalUse>() as u64)
    }

    /// Counts stack and marks, where they are higher than ever.
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

/// The memory of the containers of an object that may grow.
pub(super) fn room_of(object: &Object) -> u64 {
    let ids = |items: &Vec<ObjectId>| piece(items.capacity() * size_of::<ObjectId>());
    let pairs = |pairs: &Vec<(ObjectId, ObjectId)>| piece(pairs.capacity() * 2 * size_of::<ObjectId>());
    match object {
        Object::List(items) | Object::Set(items) => ids(items),
        Object::Dict(items) => pairs(items),
        Object::Reduced(made) => ids(&made.items) + pairs(&made.pairs) + ids(&made.states),
        _ => 0,
    }
}

/// A piece of memory of that length; none where it is empty.
fn piece(len: usize) -> u64 {
    if len == 0 { 0 } else { len as u64 + PIECE }
}
