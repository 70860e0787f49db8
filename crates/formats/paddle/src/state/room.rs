//! The memory that may still be taken for what is made of the objects of a pickle.
//!
//! A reference of two bytes becomes a value, a tensor or a name each time that it is met. All of them are taken from one
//! sum, which goes by the length of the file, before they are made.

use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::SourceRef;
use weighbridge_pickle::{Options, Pickle, Remaining};

/// How often a byte of text is held: as a key, as a value, in tables. One that was met before takes no object of its own,
/// and what is printed of it counts, too.
const COPIES: u64 = 2;
const COPIES_AGAIN: u64 = 6;
/// A byte that is escaped when it is printed takes so much more.
const ESCAPED: u64 = 10;
/// The entry of a tensor.
const ENTRY: u64 = 400;
/// A part of its name, up to so many, and a further one: no module is so deep. An extent of its shape.
const PART: u64 = 30;
const SHALLOW: usize = 12;
const DEEP_PART: u64 = 150;
const EXTENT: u64 = 24;
/// An attribute of a tensor.
const ATTRIBUTE: u64 = 400;
/// A tensor that was met before takes no object of its own, and says whose name it shares.
const AGAIN: u64 = 3_000;
/// What is left for names, besides the length of the file, is such a part of what a header may have. Names are copied for each
/// tensor, some ten times by a conversion; honest ones are a part of the file.
const NAMES: u64 = 48;

/// What is left, in bytes.
#[derive(Debug)]
pub(super) struct Room {
    memory: Remaining,
    /// For names, all together.
    names: u64,
}

impl Room {
    /// What the objects of `pickle` left of theirs.
    pub(super) fn beside(pickle: &Pickle, source: &SourceRef, bounds: &Options) -> Self {
        let most = bounds.allowance(source);
        let names = bounds.limits.header_bytes;
        let names = names.min((names / NAMES).saturating_add(source.len()));
        Self { memory: Remaining::new(most.saturating_sub(pickle.memory), most, 0), names }
    }

    /// Takes so many bytes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`], `pickle-tangle`, where so many are not left.
    pub(super) fn take(&mut self, bytes: u64) -> Result<()> {
        self.memory.take(bytes)
    }

    /// Gives back what is held no more.
    pub(super) fn give(&mut self, bytes: u64) {
        self.memory.give(bytes);
    }

    /// Takes text of that length, before it is read; `again` where it was met before.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn text_of(&mut self, len: u64, again: bool) -> Result<()> {
        self.take(len.saturating_mul(if again { COPIES_AGAIN } else { COPIES }))
    }

    /// Takes what text needs when it is printed, beside [`text_of`](Self::text_of).
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn escapes(&mut self, text: &[u8]) -> Result<()> {
        let escaped = text.iter().filter(|&&b| b < 0x20 || b == b'"' || b == b'\\').count() as u64;
        self.take(escaped.saturating_mul(ESCAPED))
    }

    /// Takes a text that many objects may share.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn text(&mut self, text: &str) -> Result<()> {
        self.text_of(text.len() as u64, true)?;
        self.escapes(text.as_bytes())
    }

    /// Takes a tensor of so many dimensions; `again` where what holds its elements is another one's, too.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn tensor(&mut self, rank: usize, again: bool) -> Result<()> {
        let again = if again { AGAIN } else { 0 };
        self.take((rank as u64).saturating_mul(EXTENT).saturating_add(ENTRY + again))
    }

    /// Takes the name of a tensor, of so many `parts`.
    ///
    /// # Errors
    /// As [`take`](Self::take); [`weighbridge_core::Kind::Limit`] where the names together are longer than the file and what is free.
    pub(super) fn name(&mut self, parts: usize, text: &str) -> Result<()> {
        let deep = parts.saturating_sub(SHALLOW) as u64;
        self.take((parts as u64).saturating_mul(PART).saturating_add(deep.saturating_mul(DEEP_PART)))?;
        let len = text.len() as u64;
        Limits::check("bytes of names", "header_bytes", len, self.names)?;
        self.names -= len;
        self.text_of(len, false)?;
        self.escapes(text.as_bytes())
    }

    /// Takes an attribute of a tensor, which is a name.
    ///
    /// # Errors
    /// As [`name`](Self::name).
    pub(super) fn attribute(&mut self, text: &str) -> Result<()> {
        self.take(ATTRIBUTE)?;
        self.name(0, text)
    }
}
