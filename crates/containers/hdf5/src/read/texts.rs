//! Datasets of texts.

use super::file::File;
use super::heap::Heaps;
use super::types::{Class, Padding};
use crate::Dataset;
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{RangeSource, SourceRef, read_vec, to_usize};

/// Texts that are read at once, in bytes.
const BLOCK: u64 = 256 << 10;
/// A longer text is not read, but given as a range.
const LONG: u64 = 1 << 20;

/// A text of a dataset. It need not be UTF-8.
#[derive(Debug)]
pub enum RawText<'a> {
    /// Its bytes.
    Short {
        /// All that stands in its place.
        place: &'a [u8],
        /// Without what fills the place behind it, as its type has it.
        text: &'a [u8],
    },
    /// All that stands in the place of a long one.
    Long(SourceRef),
}

/// What fills the places of the texts of a dataset; `None` where they stand in a heap.
fn padding(dataset: &Dataset) -> Result<Option<Padding>> {
    match &dataset.stored.element.class {
        Class::Text(padding) => Ok(Some(*padding)),
        Class::LongText => Ok(None),
        _ => Err(Error::usage("hdf5-type", "the dataset holds no texts")),
    }
}

/// Gives each text of `dataset` to `look`, row by row, with its number. `bytes` are those of all elements. What is read is
/// given to `take` before.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], code `hdf5-type`, where it holds no texts; [`weighbridge_core::Kind::Limit`] where there is not so much
/// left; [`weighbridge_core::Kind::Corrupt`] where a text is not in its heap; [`weighbridge_core::Kind::Io`]; what `look` says.
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
    if padding.is_some() && size > LONG {
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
    /// True where it holds texts of one length, which stand in their places; others stand in a heap.
    pub fn has_fixed_texts(&self) -> bool {
        matches!(self.stored.element.class, Class::Text(_))
    }

    /// The texts of a dataset of them, row by row, without what fills their places. They may take
    /// `limit` bytes of memory in all.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], code `hdf5-type`, where it holds no texts; [`weighbridge_core::Kind::Unsupported`],
    /// `hdf5-name`, for one that is not UTF-8; [`weighbridge_core::Kind::Limit`]; as [`Dataset::entry`].
    pub fn texts(&self, limit: u64) -> Result<Vec<String>> {
        self.read_texts(limit).map_err(|error| error.in_file(self.stored.place.source.label()))
    }

    fn read_texts(&self, limit: u64) -> Result<Vec<String>> {
        let padding = padding(self)?.unwrap_or(Padding::Zeros);
        let mut taken = 0u64;
        let mut take = |bytes: u64| {
            taken = taken.saturating_add(bytes);
            match taken <= limit {
                true => Ok(()),
                false => Err(Error::limit(
                    "limit",
                    "HDF5: the texts of a dataset take more memory than is meant for them",
                )
                .expected(format_args!("at most {limit} bytes"))),
            }
        };
        let count = self.byte_len()? / u64::from(self.stored.element.size);
        take(count.saturating_mul(size_of::<String>() as u64))?;
        let (file, mut heaps) = (self.stored.place.open(), Heaps::default());
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
                .map_err(|_| Error::unsupported("hdf5-name", "HDF5: a text that is not UTF-8"))?;
            texts.push(text.to_owned());
            Ok(())
        })?;
        Ok(texts)
    }
}
