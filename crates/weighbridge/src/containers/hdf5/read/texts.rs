//! Datasets of texts.

use super::attributes::spend;
use super::heap::Heaps;
use super::types::{Class, Padding};
use crate::checkpoint::TensorPath;
use crate::containers::hdf5::Dataset;
use crate::error::{Error, Result};
use crate::source::{read_vec, to_usize};

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
