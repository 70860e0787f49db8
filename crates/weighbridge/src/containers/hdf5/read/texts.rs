//! Datasets of texts.

use super::attributes::spend;
use super::file::File;
use super::heap::Heaps;
use super::types::{Class, Padding};
use crate::checkpoint::TensorPath;
use crate::containers::hdf5::Dataset;
use crate::error::{Error, Result};
use crate::source::{ConcatSource, RangeSource, SourceRef, read_vec, to_usize};
use std::sync::Arc;

/// Texts that are read at once, in bytes.
const BLOCK: u64 = 256 << 10;
/// A longer text is not read, but given as a range.
const LONG: u64 = 1 << 20;
/// The longest heap that is read for texts: it is held as a whole.
const LONGEST_HEAP: u64 = 32 << 20;

/// A text as it stands in a dataset, without what fills its place behind it. It need not be UTF-8.
#[derive(Debug)]
pub enum RawText<'a> {
    /// Its bytes.
    Short(&'a [u8]),
    /// Where its bytes are.
    Long(SourceRef),
}

/// Reads the texts of the datasets of a file, all within one bound.
#[derive(Default)]
pub struct TextReader {
    /// Opened once: what it may read holds for all datasets together.
    file: Option<File>,
    heaps: Heaps,
    left: u64,
}

impl std::fmt::Debug for TextReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextReader").field("left", &self.left).finish_non_exhaustive()
    }
}

impl TextReader {
    /// A reader that takes `most` bytes, unpacked, from all datasets together.
    pub fn new(most: u64) -> Self {
        Self { file: None, heaps: Heaps::up_to(LONGEST_HEAP), left: most }
    }

    /// Takes `bytes` from the bound.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] where they are more than is left.
    pub fn take(&mut self, bytes: u64) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(too_many)?;
        Ok(())
    }

    /// Gives each text of `dataset` to `look`, row by row, with its number.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], code `hdf5-type`, where it holds no texts; [`crate::Kind::Limit`] where they are more
    /// than is left of the bound; as [`Dataset::entry`].
    pub fn each(&mut self, dataset: &Dataset, look: &mut dyn FnMut(u64, RawText<'_>)) -> Result<()> {
        let stored = &dataset.stored;
        let is_long = match &stored.element.class {
            Class::Text(_) => false,
            Class::LongText => true,
            _ => return Err(Error::usage("hdf5-type", "the dataset holds no texts")),
        };
        let size = u64::from(stored.element.size);
        // The pieces are in the order of the rows, each row-major: together they are the elements.
        let entry = dataset.raw(TensorPath::value())?;
        let pieces = entry.pieces.iter().map(|piece| (piece.source.clone(), piece.offset, piece.len));
        let bytes: SourceRef = Arc::new(ConcatSource::new(stored.place.source.label(), pieces.collect())?);
        if !is_long && size > LONG {
            for (number, start) in (0..bytes.len() / size).map(|number| (number, number * size)) {
                self.take(size)?;
                look(number, RawText::Long(Arc::new(RangeSource::new(bytes.clone(), start, size)?)));
            }
            return Ok(());
        }
        let file = self.file.get_or_insert_with(|| stored.place.open());
        let (mut at, mut number) = (0, 0);
        while at < bytes.len() {
            let len = (BLOCK / size).max(1).saturating_mul(size).min(bytes.len() - at);
            self.left = self.left.checked_sub(len).ok_or_else(too_many)?;
            let block = read_vec(&*bytes, at, len)?;
            for element in block.chunks_exact(to_usize(size)?) {
                if is_long {
                    let text = self
                        .heaps
                        .value(file, element, &mut self.left)
                        .map_err(|error| if error.code() == "limit" { too_many() } else { error })?;
                    look(number, RawText::Short(trim(&text)));
                } else {
                    look(number, RawText::Short(trim(element)));
                }
                number += 1;
            }
            at += len;
        }
        Ok(())
    }
}

fn too_many() -> Error {
    Error::limit("limit", "HDF5: what is looked at of datasets takes many times the length of the file")
}

/// Without what fills the place, whatever it is.
fn trim(text: &[u8]) -> &[u8] {
    &text[..text.iter().rposition(|&b| b != 0 && b != b' ').map_or(0, |at| at + 1)]
}

impl Dataset {
    /// The texts of a dataset of them, row by row, without what fills their places. They may take
    /// `limit` bytes of memory in all.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], code `hdf5-type`, where it holds no texts; [`crate::Kind::Unsupported`],
    /// `hdf5-name`, for one that is not UTF-8; [`crate::Kind::Limit`]; as [`Dataset::entry`].
    pub fn texts(&self, limit: u64) -> Result<Vec<String>> {
        self.read_texts(limit).map_err(|error| error.in_file(self.stored.place.source.label()))
    }

    fn read_texts(&self, limit: u64) -> Result<Vec<String>> {
        let padding = match &self.stored.element.class {
            Class::Text(padding) => Some(*padding),
            Class::LongText => None,
            _ => return Err(Error::usage("hdf5-type", "the dataset holds no texts")),
        };
        let size = u64::from(self.stored.element.size);
        let mut room = limit;
        let count = self.byte_len()? / size;
        spend(&mut room, count.saturating_mul(size.saturating_add(size_of::<String>() as u64)))?;
        // The pieces are in the order of the rows, each row-major: together they are the elements.
        let entry = self.raw(TensorPath::value())?;
        let mut bytes = Vec::with_capacity(to_usize(entry.bytes())?);
        for piece in &entry.pieces {
            bytes.extend(read_vec(&*piece.source, piece.offset, piece.len)?);
        }
        let (file, mut heaps) = (self.stored.place.open(), Heaps::default());
        let mut texts = Vec::new();
        for element in bytes.chunks_exact(to_usize(size)?) {
            let long;
            let text = match padding {
                Some(padding) => padding.trim(element),
                None => {
                    long = heaps.value(&file, element, &mut room)?;
                    Padding::Zeros.trim(&long)
                }
            };
            let text = std::str::from_utf8(text)
                .map_err(|_| Error::unsupported("hdf5-name", "HDF5: a text that is not UTF-8"))?;
            texts.push(text.to_owned());
        }
        Ok(texts)
    }
}
