//! Datasets as tensors: sources and byte ranges of the elements.

use super::fill::FillSource;
use super::layout::Layout;
use crate::{Dataset, Kind};
use std::sync::Arc;
use weighbridge_core::checkpoint::{TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{DType, Encoding, Endian, Order, Shape};
use weighbridge_io::source::{ConcatSource, RangeSource, SourceRef};

impl Dataset {
    /// Bytes unpacked to read a run of elements, and how many of them must stay cached so that the next run does
    /// not unpack them again. 0 for unfiltered elements. A single chunk counts a fourth: the newest chunk of each
    /// dataset is cached separately, with a larger budget.
    pub(super) fn unpacked_for_a_run(&self) -> (u64, u64) {
        match &self.stored.layout {
            Layout::Chunked(chunked) if !self.stored.filters.is_empty() => {
                let (band, chunk) = (self.band_of(chunked), self.unpacked_at_once());
                (band.max(chunk), band.max(chunk / 4))
            }
            _ => (0, 0),
        }
    }

    /// Returns the dataset as a tensor at `path`. Unfiltered contiguous bytes become byte ranges of the
    /// file; chunks that must be assembled or unpacked become a source of their own.
    ///
    /// Opaque elements are bytes, with the element size as the last dimension where it is not 1.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`]: `hdf5-type` for elements that are not numbers, `hdf5-filter` for
    /// unsupported filters; [`weighbridge_core::Kind::Corrupt`] where the byte ranges contradict
    /// the shape or exceed the file; [`weighbridge_core::Kind::Limit`] where a short file declares too many
    /// unwritten elements; [`weighbridge_core::Kind::Io`] where a chunk index, or a source of a virtual dataset, cannot be
    /// read; errors of the files of a virtual dataset.
    pub fn entry(&self, path: TensorPath) -> Result<TensorEntry> {
        let name = path.to_text();
        self.entry_at(path).map_err(|error| {
            error.in_file(self.stored.context.source.label()).on_tensor(weighbridge_core::text::escape(&name))
        })
    }

    fn entry_at(&self, path: TensorPath) -> Result<TensorEntry> {
        let (dtype, endian) = match &self.kind {
            Kind::Numbers(dtype, endian) => (*dtype, *endian),
            Kind::Opaque { .. } => return self.raw(path),
            Kind::Text => {
                return Err(Error::unsupported("hdf5-type", "HDF5: a text dataset is not a tensor"));
            }
            Kind::Other(words) => {
                return Err(Error::unsupported(
                    "hdf5-type",
                    "HDF5: the elements of the dataset are not numbers",
                )
                .found(words));
            }
        };
        self.place(path, dtype, self.shape.clone(), Encoding { order: Order::Row, endian })
    }

    /// Returns the elements as bytes, with the element size as the last dimension where it is not 1.
    pub(super) fn raw(&self, path: TensorPath) -> Result<TensorEntry> {
        let size = u64::from(self.stored.element.size);
        let mut dims = self.shape.dims().to_vec();
        dims.extend((size != 1).then_some(size));
        let encoding = Encoding { order: Order::Row, endian: Endian::Little };
        self.place(path, DType::U8, Shape::new(dims), encoding)
    }

    /// Returns a source of the bytes of all elements, row by row. Filtered chunks are unpacked when they are read.
    ///
    /// # Errors
    /// As [`Dataset::entry`], except that the elements need not be numbers.
    pub fn bytes(&self) -> Result<SourceRef> {
        let label = self.stored.context.source.label();
        let entry = self.raw(TensorPath::value()).map_err(|error| error.in_file(label))?;
        if let Some(extent) = entry.single_extent() {
            return Ok(Arc::new(RangeSource::new(extent.source.clone(), extent.offset, extent.len)?));
        }
        // The extents are in the order of the rows, each row-major: concatenated they are the elements.
        let extents = entry.extents.iter().map(|extent| (extent.source.clone(), extent.offset, extent.len));
        Ok(Arc::new(ConcatSource::new(label, extents.collect())?))
    }

    fn place(&self, path: TensorPath, dtype: DType, shape: Shape, encoding: Encoding) -> Result<TensorEntry> {
        let stored = &self.stored;
        let own = &stored.context.source;
        let len = self.byte_len()?;
        let (source, offset): (SourceRef, u64) = match &stored.layout {
            Layout::Compact(address, stored_len) => {
                self.expect(*stored_len, len)?;
                (own.clone(), stored.context.offset(stored.context.image.place_of(*address), len)?)
            }
            Layout::Contiguous(Some(address), stated) if len > 0 => {
                if let Some(stated) = stated {
                    self.expect(*stated, len)?;
                }
                (own.clone(), stored.context.offset(*address, len)?)
            }
            Layout::Contiguous(..) => (self.filled(len)?, 0),
            Layout::Chunked(chunked) => {
                // Placeholder: the chunks replace this source unless the dataset is empty.
                let nothing: SourceRef = Arc::new(FillSource::new(own.label(), Vec::new(), len));
                let entry = TensorEntry::dense(path, dtype, shape, &nothing, 0, encoding)?;
                return self.chunks(chunked, entry, len);
            }
            Layout::Virtual(own) => return self.mapped(own, path, dtype, shape, encoding),
        };
        self.count(len)?;
        TensorEntry::dense(path, dtype, shape, &source, offset, encoding)
    }
}
