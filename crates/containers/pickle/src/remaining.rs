//! What is made of the objects of a pickle, counted before it is made: what is shared is made each time.

use weighbridge_core::checkpoint::Attributes;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::limit;

/// Bytes of memory that the entry of a tensor takes besides its name, with what is noted of it while all are gathered. What
/// its objects took is needed no more while it is converted; a tensor that is met again has none.
const ENTRY: u64 = 400;
const ENTRY_AGAIN: u64 = 3_100;
/// Of tensors that the bytes of the file do not explain: those of PyTorch take 50 bytes and more, be they as small as can be.
const ENTRY_BEYOND: u64 = 1_000;
const LEAST: u64 = 48;
/// A dimension of it: shape, region and strides, here and in the plan of a conversion.
const DIMENSION: u64 = 64;
/// A table of what else is said of it, such as which tensor it is once more.
const ATTRIBUTES: u64 = 700;
/// A part of its name: names of one letter take as much as those of 16.
const PART: u64 = 48;

/// The memory that the objects of a pickle left of theirs. Tensors, values and texts that are made of them take it, however
/// often an object is met: two bytes refer to it once more.
#[derive(Debug, Clone)]
pub struct Remaining {
    most: u64,
    left: u64,
    /// Tensors that the bytes of the file explain still.
    explained: u64,
}

impl Remaining {
    /// So many bytes of `most` are left, for a file of `len` bytes.
    pub fn new(left: u64, most: u64, len: u64) -> Self {
        Self { most, left, explained: len / LEAST }
    }

    /// Takes bytes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`], `pickle-tangle`, where there are not so many.
    pub fn take(&mut self, bytes: u64) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            Error::limit("pickle-tangle", "the values would take many times the memory of the file")
                .expected(format_args!("at most {} bytes, with the objects of the pickle", self.most))
                .hint(phrase![
                    "if you trust the file, raise the limit ",
                    limit("pickle_objects"),
                    ": objects may take as many bytes, too"
                ])
        })?;
        Ok(())
    }

    /// Gives back what is held no more.
    pub fn give(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes);
    }

    /// Takes what the entry of a tensor needs, whose name has so many parts; `again` where the tensor was met before.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_entry(&mut self, parts: usize, again: bool) -> Result<()> {
        let entry = match again {
            true => ENTRY_AGAIN,
            false if self.explained > 0 => ENTRY,
            false => ENTRY_BEYOND,
        };
        self.explained = self.explained.saturating_sub(1);
        self.take(entry + PART.saturating_mul(parts as u64))
    }

    /// Takes what the dimensions of an entry need.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_dimensions(&mut self, rank: usize) -> Result<()> {
        self.take(DIMENSION.saturating_mul(rank as u64))
    }

    /// Takes what the attributes of an entry need, without their texts.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_attributes(&mut self, attributes: &Attributes) -> Result<()> {
        self.take(if attributes.is_empty() { 0 } else { ATTRIBUTES })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_taken_once() {
        let mut remaining = Remaining::new(10_000, 20_000, 2 * LEAST);
        remaining.take_entry(3, true).unwrap();
        remaining.take_entry(1, false).unwrap();
        remaining.take_dimensions(2).unwrap();
        // The third one is more than two that the file explains.
        remaining.take_entry(0, false).unwrap();
        remaining.take(10_000 - 3_100 - 400 - 1_000 - 4 * 48 - 2 * 64).unwrap();
        remaining.take(0).unwrap();
        let error = remaining.take(1).unwrap_err();
        assert_eq!((error.code().as_str(), error.kind()), ("pickle-tangle", weighbridge_core::Kind::Limit));
        assert_eq!(error.expected_text(), Some("at most 20000 bytes, with the objects of the pickle"));
        // What did not fit took nothing.
        assert_eq!(remaining.left, 0);
    }
}
