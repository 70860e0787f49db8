//! Text datasets.

use super::file::File;
use super::heap::Heaps;
use super::types::{Class, Padding};
use crate::Dataset;
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{RangeSource, SourceRef, read_vec, to_usize};

/// Bytes of texts read at once.
const BLOCK: u64 = 256 << 10;
/// Maximum length of a fixed-length text that is read; a longer one is passed as a source.
const MAX_SHORT_LEN: u64 = 1 << 20;

/// A text of a dataset, not necessarily UTF-8.
#[derive(Debug)]
pub enum RawText<'a> {
    /// Bytes of a short text.
    Short {
        /// All bytes of the element or heap object.
        place: &'a [u8],
        /// The text without its padding.
        text: &'a [u8],
    },
    /// All bytes of a long text, with its padding.
    Long(SourceRef),
}

/// Padding of the texts of a dataset; `None` for texts in a heap.
fn padding(dataset: &Dataset) -> Result<Option<Padding>> {
    match &dataset.stored.element.class {
        Class::Text(padding) => Ok(Some(*padding)),
        Class::LongText => Ok(None),
        _ => Err(Error::usage("hdf5-type", "the dataset does not contain texts")),
    }
}

/// Calls `look` for each text of `dataset`, row by row, with its number. `bytes` is the source of all elements. `take` is
/// called with the number of bytes before they are read.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], code `hdf5-type`, where the dataset does not contain texts;
/// [`weighbridge_core::Kind::Corrupt`] where a text is
/// not in its heap; [`weighbridge_core::Kind::Io`]; errors of `take` and `look`.
pub(super) fn each_text(
    dataset: &Dataset,
    bytes: &SourceRef,
    file: &File,
    heaps: &mut Heaps,
    take: &mut dyn FnMut(u64) -> Result<()>,
    look: &mut dyn FnMut(u64, RawText<'_>) -> Result<()>,
) -> Result<()> {
    let padding = padding(dataset)?;
    let size = u64::from(dataset.stored.element.size);
    if padding.is_some() && size > MAX_SHORT_LEN {
        for (number, start) in (0..bytes.len() / size).map(|number| (number, number * size)) {
            take(size)?;
            look(number, RawText::Long(Arc::new(RangeSource::new(bytes.clone(), start, size)?)))?;
        }
        return Ok(());
    }
    let (mut at, mut number) = (0, 0);
    while at < bytes.len() {
        let len = (BLOCK / size).max(1).saturating_mul(size).min(bytes.len() - at);
        take(len)?;
        let block = read_vec(&**bytes, at, len)?;
        for element in block.chunks_exact(to_usize(size)?) {
            let long;
            let (place, padding) = match padding {
                Some(padding) => (element, padding),
                None => {
                    long = heaps.value(file, element)?;
                    take(long.len() as u64)?;
                    (&long[..], Padding::Zeros)
                }
            };
            look(number, RawText::Short { place, text: padding.trim(place) })?;
            number += 1;
        }
        at += len;
    }
    Ok(())
}

impl Dataset {
    /// True for texts of fixed length, stored in the elements; other texts are in a heap.
    pub fn has_fixed_texts(&self) -> bool {
        matches!(self.stored.element.class, Class::Text(_))
    }

    /// Returns the texts of a text dataset, row by row, without padding. They may take `limit` bytes of
    /// memory in total.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], code `hdf5-type`, where the dataset does not contain texts;
    /// [`weighbridge_core::Kind::Unsupported`],
    /// `hdf5-name`, for a text that is not UTF-8; [`weighbridge_core::Kind::Limit`]; as [`Dataset::entry`].
    pub fn texts(&self, limit: u64) -> Result<Vec<String>> {
        self.read_texts(limit).map_err(|error| error.in_file(self.stored.context.source.label()))
    }

    fn read_texts(&self, limit: u64) -> Result<Vec<String>> {
        let padding = padding(self)?.unwrap_or(Padding::Zeros);
        let mut taken = 0u64;
        let mut take = |bytes: u64| {
            taken = taken.saturating_add(bytes);
            match taken <= limit {
                true => Ok(()),
                false => Err(Error::limit("limit", "HDF5: the texts of the dataset exceed the memory limit")
                    .expected(format_args!("at most {limit} bytes"))),
            }
        };
        let count = self.byte_len()? / u64::from(self.stored.element.size);
        take(count.saturating_mul(size_of::<String>() as u64))?;
        let (file, mut heaps) = (self.stored.context.open(), Heaps::default());
        let mut texts = Vec::new();
        each_text(self, &self.bytes()?, &file, &mut heaps, &mut take, &mut |_, text| {
            let read;
            let text = match text {
                RawText::Short { text, .. } => text,
                RawText::Long(place) => {
                    read = read_vec(&*place, 0, place.len())?;
                    padding.trim(&read)
                }
            };
            let text = std::str::from_utf8(text)
                .map_err(|_| Error::unsupported("hdf5-name", "HDF5: a text of the dataset is not UTF-8"))?;
            texts.push(text.to_owned());
            Ok(())
        })?;
        Ok(texts)
    }
}
