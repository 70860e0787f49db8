//! Storage of a dataset, as its object header describes it.

use super::file::{Address, File};
use super::fill::FillSource;
use super::filters::Filter;
use super::header::{About, Header};
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

/// Where the elements of a dataset lie.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(super) place: Arc<Address>,
    pub(super) element: Type,
    pub(super) layout: Layout,
    pub(super) filters: Vec<Filter>,
    /// One element that was never written; empty for zeros.
    pub(super) fill: Vec<u8>,
    /// How far each dimension may grow; `None` where it may not.
    pub(super) most: Option<Vec<u64>>,
}

impl Dataset {
    /// The dataset of that header.
    pub(super) fn read(file: &File, header: &Header) -> Result<Self> {
        let missing = |what: &str| Error::corrupt("hdf5-corrupt", format!("HDF5: a dataset without {what}"));
        let space = header.first(file, About::Dataspace)?.ok_or_else(|| missing("extents"))?;
        let Space { dims, most, is_null } = Space::parse(file, &space)?;
        let limits = &file.place.limits;
        Limits::check("dimensions", "dimensions", dims.len() as u64, limits.dimensions)?;
        // Neither scalar nor array: no element at all.
        let dims = if is_null { vec![0] } else { dims };
        let element = header.first(file, About::Datatype)?.ok_or_else(|| missing("a type"))?;
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
        if header.has(About::ExternalFiles) {
            return Err(Error::unsupported(
                "hdf5-external-storage",
                "HDF5: a dataset whose elements are in other files",
            )
            .hint("other files are never opened: copy the dataset with its own library first"));
        }
        let layout = header.first(file, About::Layout)?.ok_or_else(|| missing("a layout"))?;
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
        if let Some(message) = header.first(file, About::FilterPipeline)? {
            filters = super::filters::parse(file.reader(&message))?;
        }
        let mut fill = Vec::new();
        for (kind, is_new) in [(About::FillValue, true), (About::FillValueOld, false)] {
            if let Some(message) = header.first(file, kind)? {
                fill = super::fill::parse(file.reader(&message), is_new)?;
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
        let filters = filters.iter().map(|filter| {
            let name = filter.name.as_ref().map_or(0, String::len);
            size_of::<Filter>() + name + size_of_val(&filter.parameters[..])
        });
        let bytes = words + fill.len() + size_of::<u64>() * (extents + chunk) + filters.sum::<usize>();
        bytes as u64 + element.held()
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

    /// Counts the elements among those of the whole file.
    pub(super) fn count(&self, len: u64) -> Result<()> {
        let place = &self.stored.place;
        place.count_elements(len, place.source.len())
    }

    /// The bytes of all elements.
    pub(super) fn byte_len(&self) -> Result<u64> {
        let elements = self.shape.elements();
        elements.and_then(|n| n.checked_mul(u64::from(self.stored.element.size))).ok_or_else(|| {
            Error::corrupt("shape-overflow", "HDF5: the extents have no length in bytes below 2^64")
                .found(&self.shape)
        })
    }

    pub(super) fn expect(&self, found: u64, len: u64) -> Result<()> {
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
        Limits::check("bytes that were never written", "expansion", len, most)
    }
}
