//! Datasets: what they are and where their elements lie.

use super::file::{File, Place};
use super::fill::FillSource;
use super::header::Header;
use super::layout::Layout;
use super::space::Space;
use super::types::{Class, Type};
use super::values::number;
use crate::{Dataset, Kind};
use hdf5_reader::messages;
use hdf5_reader::messages::filter_pipeline::FilterDescription;
use std::sync::Arc;
use weighbridge_core::checkpoint::{TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{DType, Encoding, Endian, Order, Shape};
use weighbridge_io::source::{ConcatSource, RangeSource, SourceRef};

/// Where the elements of a dataset lie.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(super) place: Arc<Place>,
    pub(super) element: Type,
    pub(super) layout: Layout,
    pub(super) filters: Vec<FilterDescription>,
    /// One element that was never written; empty for zeros.
    pub(super) fill: Vec<u8>,
    /// How far each dimension may grow; `None` where it may not.
    pub(super) most: Option<Vec<u64>>,
}

impl Dataset {
    /// The dataset of that header.
    pub(super) fn read(file: &File, header: &Header) -> Result<Self> {
        let missing = |what: &str| Error::corrupt("hdf5-corrupt", format!("HDF5: a dataset without {what}"));
        let space = header.first(file, messages::MSG_DATASPACE)?.ok_or_else(|| missing("extents"))?;
        let Space { dims, most, is_null } = Space::parse(file, &space)?;
        let limits = &file.place.limits;
        weighbridge_core::Limits::check("dimensions", "dimensions", dims.len() as u64, limits.dimensions)?;
        // Neither scalar nor array: no element at all.
        let dims = if is_null { vec![0] } else { dims };
        let element = header.first(file, messages::MSG_DATATYPE)?.ok_or_else(|| missing("a type"))?;
        let element = Type::parse(&element)?;
        // A length, an address, an index: as many bytes would be read for each text as its type says.
        let long = 8 + u32::from(file.offset_size());
        if element.class == Class::LongText && element.size != long {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: texts of variable length of an impossible size",
            )
            .expected(format_args!("{long} bytes"))
            .found(format_args!("{} bytes", element.size)));
        }
        if header.has(messages::MSG_EXTERNAL_FILES) {
            return Err(Error::unsupported(
                "hdf5-external-storage",
                "HDF5: a dataset whose elements are in other files",
            )
            .hint("other files are never opened: copy the dataset with its own library first"));
        }
        let layout = header.first(file, messages::MSG_DATA_LAYOUT)?.ok_or_else(|| missing("a layout"))?;
        let layout = Layout::parse(file, &layout)?;
        if let Layout::Chunked(chunked) = &layout
            && let Kind::Numbers(..) | Kind::Opaque { .. } = element.kind()
            && (chunked.chunk.len() != dims.len() || chunked.element != u64::from(element.size))
        {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: chunks that do not fit the dataset")
                .expected(format_args!("{} dimensions of elements of {} bytes", dims.len(), element.size))
                .found(format_args!("{:?} of {} bytes", chunked.chunk, chunked.element)));
        }
        let mut filters = Vec::new();
        if let Some(message) = header.first(file, messages::MSG_FILTER_PIPELINE)? {
            filters = super::filters::parse(file.place.reader(&message))?;
        }
        let mut fill = Vec::new();
        for (kind, is_new) in [(messages::MSG_FILL_VALUE, true), (messages::MSG_FILL_VALUE_OLD, false)] {
            if let Some(message) = header.first(file, kind)? {
                fill = super::fill::parse(file.place.reader(&message), is_new)?;
                break;
            }
        }
        let kind = element.kind();
        // The value of variable length that fills would stand in a heap.
        let fits = fill.is_empty() || fill.len() == element.size as usize;
        if !fits && kind == Kind::Text {
            fill.clear();
        } else if !fits {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: the fill value is no element of the dataset")
                .expected(format_args!("{} bytes", element.size))
                .found(format_args!("{} bytes", fill.len())));
        }
        let stored = Stored { place: file.place.clone(), element, layout, filters, fill, most };
        Ok(Self { kind, shape: Shape::new(dims), is_null, stored })
    }

    /// Bytes of memory that it takes beside itself.
    pub(super) fn held(&self) -> u64 {
        let Stored { element, layout, filters, fill, most, .. } = &self.stored;
        let words = match &self.kind {
            Kind::Opaque { tag: words, .. } | Kind::Other(words) => words.len(),
            Kind::Numbers(..) | Kind::Text => 0,
        };
        let extents = self.shape.rank() + most.as_ref().map_or(0, Vec::len);
        let chunk = if let Layout::Chunked(chunked) = layout { chunked.chunk.len() } else { 0 };
        let block = if let Layout::Virtual(own) = layout { own.held() } else { 0 };
        let filters = filters.iter().map(|filter| {
            let name = filter.name.as_ref().map_or(0, String::len);
            size_of::<FilterDescription>() + name + size_of_val(&filter.client_data[..])
        });
        let bytes = words + fill.len() + size_of::<u64>() * (extents + chunk) + filters.sum::<usize>();
        bytes as u64 + block + element.held()
    }

    /// The names of its numbers, where it is an enumeration.
    pub fn names(&self) -> Option<Vec<(&str, Value)>> {
        let Class::Enum(dtype, endian, names, values) = &self.stored.element.class else { return None };
        let size = self.stored.element.size as usize;
        let values = values.chunks_exact(size.max(1)).map(|value| number(*dtype, *endian, value));
        names.iter().zip(values).map(|(name, value)| Some((name.as_str(), value?))).collect()
    }

    /// The filters that its elements are packed with: their registered numbers, and their names where they
    /// are told. Those above 255 are found by HDF5 in libraries that it loads.
    pub fn filters(&self) -> impl Iterator<Item = (u16, Option<&str>)> {
        self.stored.filters.iter().map(|filter| (filter.id, filter.name.as_deref()))
    }

    /// True where its elements are those of other datasets.
    pub fn is_virtual(&self) -> bool {
        matches!(self.stored.layout, Layout::Virtual(_))
    }

    /// Bytes that are unpacked to read any of its elements: a chunk; 0 where they lie in the file as they are.
    pub fn unpacked_at_once(&self) -> u64 {
        let Stored { layout, filters, element, .. } = &self.stored;
        match layout {
            Layout::Chunked(chunked) if !filters.is_empty() => {
                chunked.chunk.iter().fold(u64::from(element.size), |len, &extent| len.saturating_mul(extent))
            }
            _ => 0,
        }
    }

    /// Bytes that are unpacked to read a run of its elements, and how many of them must be kept so that the next run does
    /// not unpack them again. 0 where the elements are not packed. A single chunk counts a fourth: the newest chunk of each
    /// dataset is kept apart, with more room.
    pub(super) fn unpacked_for_a_run(&self) -> (u64, u64) {
        match &self.stored.layout {
            Layout::Chunked(chunked) if !self.stored.filters.is_empty() => {
                let (band, chunk) = (self.band_of(chunked), self.unpacked_at_once());
                (band.max(chunk), band.max(chunk / 4))
            }
            _ => (0, 0),
        }
    }

    /// The dataset as a tensor at `path`: bytes that lie in the file as they are become byte ranges of
    /// it; chunks that must be put together or unpacked become a source of their own.
    ///
    /// Opaque elements are bytes, with their size as the last dimension where it is not 1.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`]: `hdf5-type` for elements that are no numbers, `hdf5-filter` for
    /// filters that are not known; [`weighbridge_core::Kind::Corrupt`] where the places of the bytes contradict
    /// the shape or leave the file; [`weighbridge_core::Kind::Limit`] where a short file stands for endless
    /// elements that were never written; [`weighbridge_core::Kind::Io`] where an index of chunks, or a source of a virtual dataset, cannot be
    /// read; what the files beside it say.
    pub fn entry(&self, path: TensorPath) -> Result<TensorEntry> {
        let name = path.to_text();
        self.entry_at(path).map_err(|error| {
            error.in_file(self.stored.place.source.label()).on_tensor(weighbridge_core::text::escape(&name))
        })
    }

    fn entry_at(&self, path: TensorPath) -> Result<TensorEntry> {
        let (dtype, endian) = match &self.kind {
            Kind::Numbers(dtype, endian) => (*dtype, *endian),
            Kind::Opaque { .. } => return self.raw(path),
            Kind::Text => {
                return Err(Error::unsupported("hdf5-type", "HDF5: texts are no tensor"));
            }
            Kind::Other(words) => {
                return Err(
                    Error::unsupported("hdf5-type", "HDF5: elements that are no numbers").found(words)
                );
            }
        };
        self.place(path, dtype, self.shape.clone(), Encoding { order: Order::Row, endian })
    }

    /// The elements as bytes, with their size as the last dimension where it is not 1.
    pub(super) fn raw(&self, path: TensorPath) -> Result<TensorEntry> {
        let size = u64::from(self.stored.element.size);
        let mut dims = self.shape.dims().to_vec();
        dims.extend((size != 1).then_some(size));
        let encoding = Encoding { order: Order::Row, endian: Endian::Little };
        self.place(path, DType::U8, Shape::new(dims), encoding)
    }

    /// The bytes of all elements: of the first row, then of the next, wherever they lie. What is packed is unpacked when it
    /// is read.
    ///
    /// # Errors
    /// As [`Dataset::entry`], but that the elements need be no numbers.
    pub fn bytes(&self) -> Result<SourceRef> {
        let label = self.stored.place.source.label();
        let entry = self.raw(TensorPath::value()).map_err(|error| error.in_file(label))?;
        if let Some(piece) = entry.single_piece() {
            return Ok(Arc::new(RangeSource::new(piece.source.clone(), piece.offset, piece.len)?));
        }
        // The pieces are in the order of the rows, each row-major: together they are the elements.
        let pieces = entry.pieces.iter().map(|piece| (piece.source.clone(), piece.offset, piece.len));
        Ok(Arc::new(ConcatSource::new(label, pieces.collect())?))
    }

    fn place(&self, path: TensorPath, dtype: DType, shape: Shape, encoding: Encoding) -> Result<TensorEntry> {
        let stored = &self.stored;
        let own = &stored.place.source;
        let len = self.byte_len()?;
        let (source, offset): (SourceRef, u64) = match &stored.layout {
            Layout::Compact(address, stored_len) => {
                self.expect(*stored_len, len)?;
                (own.clone(), stored.place.offset(stored.place.image.place_of(*address), len)?)
            }
            Layout::Contiguous(Some(address), stated) if len > 0 => {
                if let Some(stated) = stated {
                    self.expect(*stated, len)?;
                }
                (own.clone(), stored.place.offset(*address, len)?)
            }
            Layout::Contiguous(..) => (self.filled(len)?, 0),
            Layout::Chunked(chunked) => {
                // Where there is no element there is no chunk; else the chunks take the place of this.
                let nothing: SourceRef = Arc::new(FillSource::new(own.label(), Vec::new(), len));
                let entry = TensorEntry::dense(path, dtype, shape, &nothing, 0, encoding)?;
                return self.chunks(chunked, entry, len);
            }
            Layout::Virtual(own) => return self.mapped(own, path, dtype, shape, encoding),
        };
        self.count(len)?;
        TensorEntry::dense(path, dtype, shape, &source, offset, encoding)
    }

    /// Counts the elements among those of the whole file.
    pub(super) fn count(&self, len: u64) -> Result<()> {
        let place = &self.stored.place;
        place.account.elements(len, place.source.len(), &place.limits)
    }

    /// The bytes of all elements.
    pub(super) fn byte_len(&self) -> Result<u64> {
        let elements = self.shape.elements();
        elements.and_then(|n| n.checked_mul(u64::from(self.stored.element.size))).ok_or_else(|| {
            Error::corrupt("shape-overflow", "HDF5: the extents have no length in bytes below 2^64")
                .found(&self.shape)
        })
    }

    fn expect(&self, found: u64, len: u64) -> Result<()> {
        if found == len {
            return Ok(());
        }
        Err(Error::corrupt("hdf5-corrupt", "HDF5: a dataset has not as many bytes as its extents say")
            .expected(format_args!("{len} bytes"))
            .found(format_args!("{found} bytes")))
    }

    /// A source of `len` bytes that were never written.
    pub(super) fn filled(&self, len: u64) -> Result<SourceRef> {
        self.check_unwritten(len, self.stored.place.source.len())?;
        let label = self.stored.place.source.label();
        Ok(Arc::new(FillSource::new(label, self.stored.fill.clone(), len)))
    }

    /// Compares bytes that were never written with the length of the file, or of all files that the dataset is made of: a
    /// file of a few bytes must not become a tensor that fills a disk.
    pub(super) fn check_unwritten(&self, len: u64, file: u64) -> Result<()> {
        let limits = &self.stored.place.limits;
        let most = file.saturating_mul(limits.expansion).max(limits.header_bytes);
        weighbridge_core::Limits::check("bytes that were never written", "expansion", len, most)
    }
}
