//! Storage of a dataset, as its object header describes it.

use super::file::{File, FileContext};
use super::fill::FillSource;
use super::filters::Filter;
use super::header::{Header, MessageType};
use super::layout::Layout;
use super::space::Space;
use super::types::{Class, Type};
use super::values::number;
use crate::{Dataset, Kind};
use std::sync::Arc;
use weighbridge_core::checkpoint::Value;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Shape;
use weighbridge_io::source::SourceRef;

/// Storage of the elements of a dataset.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(super) context: Arc<FileContext>,
    pub(super) element: Type,
    pub(super) layout: Layout,
    pub(super) filters: Vec<Filter>,
    /// Fill value, one element; empty for zeros.
    pub(super) fill: Vec<u8>,
    /// Maximum dimensions; `None` where they are fixed.
    pub(super) most: Option<Vec<u64>>,
}

impl Dataset {
    /// Reads the dataset of an object header.
    pub(super) fn read(file: &File, header: &Header) -> Result<Self> {
        let missing =
            |what: &str| Error::corrupt("hdf5-corrupt", format!("HDF5: the dataset has no {what} message"));
        let space = header.first(file, MessageType::Dataspace)?.ok_or_else(|| missing("dataspace"))?;
        let Space { dims, most, is_null } = Space::parse(file, &space)?;
        let limits = &file.context.limits;
        Limits::check("dimensions", "dimensions", dims.len() as u64, limits.dimensions)?;
        // A null dataspace has no elements.
        let dims = if is_null { vec![0] } else { dims };
        let element = header.first(file, MessageType::Datatype)?.ok_or_else(|| missing("datatype"))?;
        let element = Type::parse(&element)?;
        // A reference is a length, an address and an index; the stated size would be read for each text.
        let long = 8 + u32::from(file.offset_size());
        if element.class == Class::LongText && element.size != long {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: the datatype of variable-length texts has a wrong element size",
            )
            .expected(format_args!("{long} bytes"))
            .found(format_args!("{} bytes", element.size)));
        }
        if header.has(MessageType::ExternalFiles) {
            return Err(Error::unsupported(
                "hdf5-external-storage",
                "HDF5: the elements of the dataset are in external files",
            )
            .hint("copy the dataset into one file first, for example with h5repack or h5py"));
        }
        let layout = header.first(file, MessageType::Layout)?.ok_or_else(|| missing("layout"))?;
        let layout = Layout::parse(file, &layout)?;
        if let Layout::Chunked(chunked) = &layout
            && let Kind::Numbers(..) | Kind::Opaque { .. } = element.kind()
            && (chunked.chunk.len() != dims.len() || chunked.element != u64::from(element.size))
        {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: the chunk dimensions do not fit the dataset")
                .expected(format_args!("{} dimensions of elements of {} bytes", dims.len(), element.size))
                .found(format_args!("{:?} of {} bytes", chunked.chunk, chunked.element)));
        }
        let mut filters = Vec::new();
        if let Some(message) = header.first(file, MessageType::FilterPipeline)? {
            filters = super::filters::parse(file.reader(&message))?;
        }
        let mut fill = Vec::new();
        for (kind, is_new) in [(MessageType::FillValue, true), (MessageType::FillValueOld, false)] {
            if let Some(message) = header.first(file, kind)? {
                fill = super::fill::parse(file.reader(&message), is_new)?;
                break;
            }
        }
        let kind = element.kind();
        // A fill value of variable-length text would be in a heap.
        let fits = fill.is_empty() || fill.len() == element.size as usize;
        if !fits && kind == Kind::Text {
            fill.clear();
        } else if !fits {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: the fill value does not have the size of an element",
            )
            .expected(format_args!("{} bytes", element.size))
            .found(format_args!("{} bytes", fill.len())));
        }
        let stored = Stored { context: file.context.clone(), element, layout, filters, fill, most };
        Ok(Self { kind, shape: Shape::new(dims), is_null, stored })
    }

    /// Heap memory of the dataset, in bytes.
    pub(super) fn held(&self) -> u64 {
        let Stored { element, layout, filters, fill, most, .. } = &self.stored;
        let words = match &self.kind {
            Kind::Opaque { tag: words, .. } | Kind::Other(words) => words.len(),
            Kind::Numbers(..) | Kind::Text => 0,
        };
        let dims = self.shape.rank() + most.as_ref().map_or(0, Vec::len);
        let chunk = if let Layout::Chunked(chunked) = layout { chunked.chunk.len() } else { 0 };
        let filters = filters.iter().map(|filter| {
            let name = filter.name.as_ref().map_or(0, String::len);
            size_of::<Filter>() + name + size_of_val(&filter.parameters[..])
        });
        let bytes = words + fill.len() + size_of::<u64>() * (dims + chunk) + filters.sum::<usize>();
        bytes as u64 + element.held()
    }

    /// Names and values of an enumeration; `None` for other types.
    pub fn names(&self) -> Option<Vec<(&str, Value)>> {
        let Class::Enum(dtype, endian, names, values) = &self.stored.element.class else { return None };
        let size = self.stored.element.size as usize;
        let values = values.chunks_exact(size.max(1)).map(|value| number(*dtype, *endian, value));
        names.iter().zip(values).map(|(name, value)| Some((name.as_str(), value?))).collect()
    }

    /// Filters of the elements: registered ids, and names where the file has them. Filters above 255
    /// need plugin libraries that HDF5 loads.
    pub fn filters(&self) -> impl Iterator<Item = (u16, Option<&str>)> {
        self.stored.filters.iter().map(|filter| (filter.id, filter.name.as_deref()))
    }

    /// True for a virtual dataset, whose elements are those of other datasets.
    pub fn is_virtual(&self) -> bool {
        matches!(self.stored.layout, Layout::Virtual(_))
    }

    /// Bytes unpacked to read any element: the length of a chunk; 0 for unfiltered elements.
    pub fn unpacked_at_once(&self) -> u64 {
        let Stored { layout, filters, element, .. } = &self.stored;
        match layout {
            Layout::Chunked(chunked) if !filters.is_empty() => {
                chunked.chunk.iter().fold(u64::from(element.size), |len, &dim| len.saturating_mul(dim))
            }
            _ => 0,
        }
    }

    /// Adds `len` bytes of elements to the total of the file.
    pub(super) fn count(&self, len: u64) -> Result<()> {
        let place = &self.stored.context;
        place.count_elements(len, place.source.len())
    }

    /// Length of all elements in bytes.
    pub(super) fn byte_len(&self) -> Result<u64> {
        let elements = self.shape.elements();
        elements.and_then(|n| n.checked_mul(u64::from(self.stored.element.size))).ok_or_else(|| {
            Error::corrupt("shape-overflow", "HDF5: the dataset exceeds 2^64 bytes").found(&self.shape)
        })
    }

    /// Fails unless the stored length `found` is `len`.
    pub(super) fn expect(&self, found: u64, len: u64) -> Result<()> {
        if found == len {
            return Ok(());
        }
        Err(Error::corrupt(
            "hdf5-corrupt",
            "HDF5: the stored length of the dataset does not match its dimensions",
        )
        .expected(format_args!("{len} bytes"))
        .found(format_args!("{found} bytes")))
    }

    /// Returns a source of `len` unwritten bytes: fill values.
    pub(super) fn filled(&self, len: u64) -> Result<SourceRef> {
        self.check_unwritten(len, self.stored.context.source.len())?;
        let label = self.stored.context.source.label();
        Ok(Arc::new(FillSource::new(label, self.stored.fill.clone(), len)))
    }

    /// Compares the length of unwritten bytes with that of the file, or of all source files: a
    /// file of a few bytes must not become a tensor that fills a disk.
    pub(super) fn check_unwritten(&self, len: u64, file: u64) -> Result<()> {
        let limits = &self.stored.context.limits;
        let most = file.saturating_mul(limits.expansion).max(limits.header_bytes);
        Limits::check("unwritten bytes of the dataset", "expansion", len, most)
    }
}
