//! Virtual datasets: whose elements are those of other datasets, of this file or of files beside it.
//!
//! ```text
//! global heap object    version, number of mappings, the mappings, checksum
//! mapping               file name NUL, path of the dataset NUL, selection of the source, selection of this dataset
//! ```
//!
//! A mapping of version 1 begins with flags: 1 and 2 where the file name and the path are those of an earlier mapping, of
//! which the number is in their place; 4 for this file, where there is no name.
//!
//! The n-th selected element of the source is the n-th selected element here; of mappings that overlap the last one counts;
//! elements that no mapping has are the fill value. They are followed only where the caller asks for it (see [`Beside`](crate::Beside)): then a
//! source that is missing is an error, where the original would give fill values.

mod selection;
mod source;

use super::bytes::Reader;
use super::file::Address;
use super::layout::Virtual;
use super::sources::SourceDataset;
use super::sums;
use super::types::{Class, Type};
use crate::{Dataset, Kind};
use selection::{Selection, Stored};
use source::{MappedSource, Part};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use weighbridge_core::checkpoint::{TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::tensor::{DType, Encoding, Endian, Shape};
use weighbridge_io::source::SourceRef;

/// A run of bytes costs as much as this many bytes side by side.
const RUN: u64 = 64;
/// Bytes of unpacked chunks that are kept from one read to the next: half of what [`weighbridge_io::source`] keeps.
const KEPT: u64 = 64 << 20;

/// Flags of a mapping.
const SAME_FILE: u8 = 1;
const SAME_DATASET: u8 = 2;
const OWN: u8 = 4;

/// The refusal of a virtual dataset that is not followed.
pub(super) fn refused() -> Error {
    Error::unsupported("hdf5-virtual", "HDF5: a virtual dataset, whose elements are in other datasets")
        .hint(phrase![Opt::FollowVirtual, " reads it where its sources are in the same folder"])
}

/// Elements of another dataset that are elements of this one.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    /// The name of the file; `.` for this one.
    file: Arc<str>,
    /// The path of the dataset in it.
    dataset: Arc<str>,
    from: Stored,
    to: Stored,
}

impl Mapping {
    fn shown(&self) -> String {
        shown(&self.file, &self.dataset)
    }
}

/// The mappings in the block of a virtual dataset.
fn mappings(block: &[u8], place: &Address) -> Result<Vec<Mapping>> {
    let body = sums::checked(block, b"", "the list of mappings of a virtual dataset", 0)?;
    let mut reader = place.reader(body);
    let version = reader.u8()?;
    if version > 1 {
        return Err(Error::unsupported("hdf5-unsupported", "HDF5: mappings of unknown version")
            .expected("0 or 1")
            .found(version));
    }
    let count = reader.length()?;
    let mut mappings: Vec<Mapping> = Vec::new();
    for _ in 0..count {
        let flags = if version > 0 { reader.u8()? } else { 0 };
        if flags > OWN | SAME_FILE | SAME_DATASET || flags & OWN != 0 && flags & SAME_FILE != 0 {
            let text = "HDF5: a mapping with flags that cannot be";
            return Err(Error::corrupt("hdf5-corrupt", text).found(flags));
        }
        let file: Arc<str> = match flags {
            flags if flags & OWN != 0 => ".".into(),
            flags if flags & SAME_FILE != 0 => earlier(&mappings, reader.length()?)?.file.clone(),
            _ => name(&mut reader)?.into(),
        };
        let dataset: Arc<str> = match flags {
            flags if flags & SAME_DATASET != 0 => earlier(&mappings, reader.length()?)?.dataset.clone(),
            _ => name(&mut reader)?.into(),
        };
        let mut selection =
            || Stored::parse(&mut reader).map_err(|error| error.found(shown(&file, &dataset)));
        let (from, to) = (selection()?, selection()?);
        mappings.push(Mapping { file, dataset, from, to });
    }
    if reader.left() > 0 {
        return Err(Error::corrupt("hdf5-corrupt", "HDF5: bytes behind the mappings of a virtual dataset")
            .expected("none")
            .found(format_args!("{} bytes", reader.left())));
    }
    Ok(mappings)
}

/// The mapping of that number, which comes before the one that names it.
fn earlier(mappings: &[Mapping], number: u64) -> Result<&Mapping> {
    usize::try_from(number).ok().and_then(|number| mappings.get(number)).ok_or_else(|| {
        Error::corrupt("hdf5-corrupt", "HDF5: a mapping has the name of one that does not come before it")
            .expected(format_args!("a number below {}", mappings.len()))
            .found(number)
    })
}

/// The name of a source. `%b` stands for the number of a block, where a dataset grows; `%%` for a percent sign.
fn name(reader: &mut Reader<'_>) -> Result<String> {
    let bytes = reader.text()?;
    let text = std::str::from_utf8(bytes).map_err(|_| {
        Error::unsupported(
            "hdf5-virtual",
            "HDF5: a source of a virtual dataset with a name that is not UTF-8",
        )
        .found(weighbridge_core::text::escape(&String::from_utf8_lossy(bytes)))
        .hint("copy the dataset with h5py or h5repack first")
    })?;
    let (mut name, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once('%') {
        name.push_str(before);
        rest = match behind.strip_prefix('%') {
            Some(rest) => rest,
            None => {
                let error = match behind.starts_with('b') {
                    true => Error::unsupported(
                        "hdf5-virtual-unlimited",
                        "HDF5: a virtual dataset with a source for each block",
                    )
                    .hint("copy the dataset with h5py or h5repack first"),
                    false => Error::corrupt("hdf5-corrupt", "HDF5: a name of a source that cannot be")
                        .expected("%b or %% behind a percent sign"),
                };
                return Err(error.found(weighbridge_core::text::escape(text)));
            }
        };
        name.push('%');
    }
    name.push_str(rest);
    Ok(name)
}

impl Dataset {
    /// The tensor that the mappings of `own` make: one source, which reads from the others.
    pub(super) fn mapped(
        &self,
        own: &Virtual,
        path: TensorPath,
        dtype: DType,
        shape: Shape,
        encoding: Encoding,
    ) -> Result<TensorEntry> {
        let (place, len) = (&self.stored.place, self.byte_len()?);
        if !matches!(self.kind, Kind::Numbers(..) | Kind::Opaque { .. }) {
            let text = "HDF5: a virtual dataset of elements that are no numbers";
            return Err(Error::unsupported("hdf5-type", text).found(self.stored.element.words()));
        }
        let files = place.sources.as_ref().ok_or_else(refused)?;
        let mappings = if own.address.is_some() { mappings(&own.block, place)? } else { Vec::new() };
        let size = u64::from(self.stored.element.size);
        let mut parts = Vec::with_capacity(mappings.len());
        let (mut cost, mut mapped) = (len, 0u64);
        let (mut kept, mut again) = (Vec::with_capacity(mappings.len()), 0u64);
        // By the name of the file and where the path is kept: many mappings may have one long path.
        let mut sources = HashMap::new();
        for mapping in &mappings {
            let source =
                match sources.entry((&*mapping.file, Arc::as_ptr(&mapping.dataset).cast::<u8>().addr())) {
                    Entry::Occupied(found) => found.into_mut(),
                    Entry::Vacant(place) => place.insert(files.dataset(&mapping.file, &mapping.dataset)?),
                };
            let part = self.part(mapping, source, size, &mut cost);
            // Where nothing else was found, the source says which mapping it is about.
            let part = part.map_err(|error| error.found(mapping.shown()))?;
            mapped = mapped.saturating_add(part.len());
            again = again.saturating_add(source.unpacked.saturating_mul(part.reads()));
            if part.len() > 0 {
                parts.push(part);
                kept.push(source.kept);
            }
        }
        // Of parts that follow each other, one is read at a time.
        let needed = match parts.windows(2).all(|pair| pair[0].is_before(&pair[1])) {
            true => kept.into_iter().max().unwrap_or(0),
            false => kept.into_iter().fold(0, u64::saturating_add),
        };
        // What is not kept from one read to the next is unpacked for each.
        if needed > KEPT {
            cost = cost.saturating_add(again);
        }
        let files = files.bytes();
        self.check_unwritten(len.saturating_sub(mapped), files)?;
        place.count_elements(cost, files)?;
        let label = place.source.label();
        let source: SourceRef = Arc::new(MappedSource::new(label, self.stored.fill.clone(), len, parts));
        TensorEntry::dense(path, dtype, shape, &source, 0, encoding)
    }

    /// What a mapping gives; `cost` counts what reading it takes, as bytes.
    fn part(&self, mapping: &Mapping, source: &SourceDataset, size: u64, cost: &mut u64) -> Result<Part> {
        if !alike(&source.element, &self.stored.element) {
            let text = "HDF5: a source of a virtual dataset has elements of another type";
            return Err(Error::unsupported("hdf5-virtual-type", text)
                .expected(described(&self.stored.element))
                .found(format_args!("{} in {}", described(&source.element), mapping.shown()))
                .hint("copy the dataset with h5py or h5repack first, which converts them"));
        }
        let from = Selection::new(&mapping.from, &source.dims, size)?;
        let to = Selection::new(&mapping.to, self.shape.dims(), size)?;
        if from.len != to.len {
            let text = "HDF5: a mapping of a virtual dataset has not as many elements on both sides";
            return Err(Error::corrupt("hdf5-corrupt", text)
                .expected(format_args!("{} elements", to.len / size.max(1)))
                .found(format_args!("{} in {}", from.len / size.max(1), mapping.shown())));
        }
        let part = Part::new(to, from, source.bytes.clone());
        let runs = part.runs().saturating_mul(RUN);
        *cost = cost.saturating_add(part.len().max(runs).max(source.unpacked));
        Ok(part)
    }
}

/// True where elements of one type are elements of the other as they are. Single bytes have no order.
fn alike(one: &Type, other: &Type) -> bool {
    match (&one.class, &other.class) {
        (Class::Number(one, _), Class::Number(other, _)) if one.size() == Some(1) => one == other,
        _ => one == other,
    }
}

/// A type, for people.
fn described(element: &Type) -> String {
    match &element.class {
        Class::Number(dtype, Endian::Little) => format!("{dtype}, little-endian"),
        Class::Number(dtype, Endian::Big) => format!("{dtype}, big-endian"),
        Class::Enum(dtype, ..) => format!("an enumeration of {dtype}"),
        _ => element.words(),
    }
}

/// The source of a mapping, for people.
pub(super) fn shown(file: &str, dataset: &str) -> String {
    weighbridge_core::text::escape(&format!("{dataset} of {file}"))
}
