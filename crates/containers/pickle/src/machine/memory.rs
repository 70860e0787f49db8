//! The memory that objects take, counted before it is taken.
//!
//! An instruction of one byte can make an object of a hundred: the number of objects alone bounds nothing
//! that a small file should take.

use super::Machine;
use crate::graph::{Blob, Made, Object, ObjectId, Text};
use crate::opened::{GlobalUse, Options};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::limit;
use weighbridge_io::source::SourceRef;

/// Objects, and the values that are made of them, may take so many times the length of a small file, and this much more.
/// Honest ones of nothing but small values take 20 to 70 times their bytes in the pickle: a pair of numbers 500 for 8,
/// a word and its number 190 for 10. Tensors take less of the file: one of PyTorch 900 to 1,500 bytes for 50 to 110.
const TIMES_SMALL: u64 = 80;
const FREE: u64 = 16_000_000;
/// A file of this length is not small any more: it may be made for this alone, and must not take more than tens of megabytes.
const SMALL: u64 = 4_000_000;
const MOST_SMALL: u64 = 60_000_000;
/// So many times what is longer.
const TIMES: u64 = 48;
/// What the allocator adds to each piece.
const PIECE: u64 = 8;
/// A mark, as a height of the stack.
const MARK: u64 = size_of::<usize>() as u64;
/// An object on the stack, in the memo or in a list: vectors double when they grow.
const ID: u64 = 2 * size_of::<ObjectId>() as u64;

impl Options {
    /// Bytes of memory that what a pickle of `source` describes may take, by the length of the file that holds it, however it
    /// is packed there; or a byte for each object that is allowed, if that is more.
    pub fn allowance(&self, source: &SourceRef) -> u64 {
        let mut outermost = source;
        while let Some(within) = outermost.within() {
            outermost = within.source;
        }
        let len = outermost.len();
        let small = len.saturating_mul(TIMES_SMALL).saturating_add(FREE).min(MOST_SMALL);
        let more = len.saturating_sub(SMALL).saturating_mul(TIMES);
        small.saturating_add(more).max(self.limits.pickle_objects)
    }
}

/// The memory that is left, and what was counted in bulk.
#[derive(Debug)]
pub(super) struct Room {
    allowed: u64,
    taken: u64,
    /// The most that stack and marks took together so far.
    stacked: u64,
}

impl Room {
    pub(super) fn new(allowed: u64) -> Self {
        Self { allowed, taken: 0, stacked: 0 }
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken <= self.allowed {
            return Ok(());
        }
        Err(Error::limit("limit", "the objects of the pickle take many times the memory of the file")
            .expected(format_args!("at most {} bytes", self.allowed))
            .found(format_args!("{} bytes so far", self.taken))
            .hint(phrase![
                "if you trust the file, raise the limit ",
                limit("pickle_objects"),
                ": objects may take as many bytes, too"
            ]))
    }
}

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
            Object::Made(_) => piece(size_of::<Made>()),
            container => room_of(container),
        };
        self.room.take(size_of::<Object>() as u64 + boxed)
    }

    /// Counts what a container grew by.
    pub(super) fn take_growth(&mut self, bytes: u64) -> Result<()> {
        self.room.take(bytes)
    }

    /// Counts a module or name in the table of those that are known.
    pub(super) fn take_name(&mut self, name: &str) -> Result<()> {
        self.room.take(name.len() as u64 + 4 * PIECE)
    }

    /// Counts a place of the memo: one of those that follow each other, or of a table.
    pub(super) fn take_place(&mut self, follows: bool) -> Result<()> {
        self.room.take(if follows { ID } else { 6 * ID })
    }

    /// Counts when an object changed.
    pub(super) fn take_change(&mut self) -> Result<()> {
        self.room.take(6 * ID)
    }

    /// Counts bits.
    pub(super) fn take_bits(&mut self, bytes: usize) -> Result<()> {
        self.room.take(bytes as u64)
    }

    /// Counts an import.
    pub(super) fn take_global(&mut self) -> Result<()> {
        self.room.take(2 * size_of::<GlobalUse>() as u64)
    }

    /// Counts stack and marks, where they are higher than ever.
    pub(super) fn take_height(&mut self) -> Result<()> {
        let height = (self.stack.len() as u64) * ID + (self.marks.len() as u64) * 2 * MARK;
        let more = height.saturating_sub(self.room.stacked);
        if more > 0 {
            self.room.stacked = height;
            self.room.take(more)?;
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
        Object::Made(made) => ids(&made.items) + pairs(&made.pairs) + ids(&made.states),
        _ => 0,
    }
}

/// A piece of memory of that length; none where it is empty.
fn piece(len: usize) -> u64 {
    if len == 0 { 0 } else { len as u64 + PIECE }
}
