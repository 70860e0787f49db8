//! Virtual datasets: mappings to elements of other datasets, in the same file or in files of the same folder.
//!
//! ```text
//! global heap object    version, number of mappings, the mappings, checksum
//! mapping               file name NUL, path of the dataset NUL, selection of the source, selection of this dataset
//! ```
//!
//! A mapping of version 1 begins with flags: 1 and 2 where the number of an earlier mapping replaces the file name or the
//! path; 4 for this file, without a name.
//!
//! The n-th selected element of the source is the n-th selected element of the virtual dataset. The last of overlapping
//! mappings applies; unmapped elements have the fill value. Mappings are followed only on request (see
//! [`SiblingFiles`](crate::SiblingFiles)): a missing source is then an error, where the HDF5 library would return fill values.

mod selection;
mod source;

use super::bytes::Reader;
use super::file::FileContext;
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

/// Cost of a run, in contiguous bytes.
const RUN_COST: u64 = 64;
/// Bytes of unpacked chunks that stay cached between reads: half of the cache of [`weighbridge_io::source`].
const CACHED_LEN: u64 = 64 << 20;

/// Flags of a mapping.
const SAME_FILE: u8 = 1;
const SAME_DATASET: u8 = 2;
const OWN_FILE: u8 = 4;

/// Error of a virtual dataset that is not followed.
pub(super) fn not_followed() -> Error {
    Error::unsupported("hdf5-virtual", "HDF5: the dataset is virtual: its elements are in other datasets")
        .hint(phrase![Opt::FollowVirtual, " reads it if its sources are in the same folder"])
}

/// Mapping of elements of a source dataset to elements of the virtual dataset.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    /// Name of the source file; `.` for this file.
    file: Arc<str>,
    /// Path of the dataset in that file.
    dataset: Arc<str>,
    from: Stored,
    to: Stored,
}

impl Mapping {
    fn display_name(&self) -> String {
        source_name(&self.file, &self.dataset)
    }
}

/// Parses the mappings of a virtual dataset.
fn mappings(block: &[u8], place: &FileContext) -> Result<Vec<Mapping>> {
    let body = sums::checked(block, b"", "mapping list of a virtual dataset", 0)?;
    let mut reader = place.reader(body);
    let version = reader.u8()?;
    if version > 1 {
        return Err(Error::unsupported(
            "hdf5-unsupported",
            "HDF5: the mapping list of a virtual dataset has an unsupported version",
        )
        .expected("0 or 1")
        .found(version));
    }
    let count = reader.length()?;
    let mut mappings: Vec<Mapping> = Vec::new();
    for _ in 0..count {
        let flags = if version > 0 { reader.u8()? } else { 0 };
        if flags > OWN_FILE | SAME_FILE | SAME_DATASET || flags & OWN_FILE != 0 && flags & SAME_FILE != 0 {
            let text = "HDF5: a mapping of the virtual dataset has invalid flags";
            return Err(Error::corrupt("hdf5-corrupt", text).found(flags));
        }
        let file: Arc<str> = match flags {
            flags if flags & OWN_FILE != 0 => ".".into(),
            flags if flags & SAME_FILE != 0 => earlier(&mappings, reader.length()?)?.file.clone(),
            _ => name(&mut reader)?.into(),
        };
        let dataset: Arc<str> = match flags {
            flags if flags & SAME_DATASET != 0 => earlier(&mappings, reader.length()?)?.dataset.clone(),
            _ => name(&mut reader)?.into(),
        };
        let mut selection =
            || Stored::parse(&mut reader).map_err(|error| error.found(source_name(&file, &dataset)));
        let (from, to) = (selection()?, selection()?);
        mappings.push(Mapping { file, dataset, from, to });
    }
    if reader.left() > 0 {
        return Err(Error::corrupt(
            "hdf5-corrupt",
            "HDF5: the mapping list of a virtual dataset has trailing bytes",
        )
        .expected("none")
        .found(format_args!("{} bytes", reader.left())));
    }
    Ok(mappings)
}

/// Returns the earlier mapping `number`.
fn earlier(mappings: &[Mapping], number: u64) -> Result<&Mapping> {
    usize::try_from(number).ok().and_then(|number| mappings.get(number)).ok_or_else(|| {
        Error::corrupt("hdf5-corrupt", "HDF5: a mapping of the virtual dataset refers to a later mapping")
            .expected(format_args!("a number below {}", mappings.len()))
            .found(number)
    })
}

/// Reads the name of a source. `%b` is a block number of an unlimited dataset (unsupported), `%%` for a percent sign.
fn name(reader: &mut Reader<'_>) -> Result<String> {
    let bytes = reader.text()?;
    let text = std::str::from_utf8(bytes).map_err(|_| {
        Error::unsupported("hdf5-virtual", "HDF5: a source name of the virtual dataset is not UTF-8")
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
                        "HDF5: the virtual dataset has a source for each block",
                    )
                    .hint("copy the dataset with h5py or h5repack first"),
                    false => Error::corrupt(
                        "hdf5-corrupt",
                        "HDF5: a source name of the virtual dataset is invalid",
                    )
                    .expected("%b or %% for a percent sign"),
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
    /// Returns the tensor of the mappings of `own`: one source that reads from the source datasets.
    pub(super) fn mapped(
        &self,
        own: &Virtual,
        path: TensorPath,
        dtype: DType,
        shape: Shape,
        encoding: Encoding,
    ) -> Result<TensorEntry> {
        let (place, len) = (&self.stored.context, self.byte_len()?);
        if !matches!(self.kind, Kind::Numbers(..) | Kind::Opaque { .. }) {
            let text = "HDF5: the elements of the virtual dataset are not numbers";
            return Err(Error::unsupported("hdf5-type", text).found(self.stored.element.words()));
        }
        let files = place.sources.as_ref().ok_or_else(not_followed)?;
        let mappings = if own.address.is_some() { mappings(&own.block, place)? } else { Vec::new() };
        let size = u64::from(self.stored.element.size);
        let mut parts = Vec::with_capacity(mappings.len());
        let (mut cost, mut mapped) = (len, 0u64);
        let (mut kept, mut again) = (Vec::with_capacity(mappings.len()), 0u64);
        // Keyed by file name and address of the path: many mappings may share one long path.
        let mut sources = HashMap::new();
        for mapping in &mappings {
            let source =
                match sources.entry((&*mapping.file, Arc::as_ptr(&mapping.dataset).cast::<u8>().addr())) {
                    Entry::Occupied(found) => found.into_mut(),
                    Entry::Vacant(place) => place.insert(files.dataset(&mapping.file, &mapping.dataset)?),
                };
            let part = self.part(mapping, source, size, &mut cost);
            // Without another found value, the source name identifies the mapping.
            let part = part.map_err(|error| error.found(mapping.display_name()))?;
            mapped = mapped.saturating_add(part.len());
            again = again.saturating_add(source.unpacked.saturating_mul(part.reads()));
            if part.len() > 0 {
                parts.push(part);
                kept.push(source.kept);
            }
        }
        // Ordered parts without overlaps are read one at a time.
        let needed = match parts.windows(2).all(|pair| pair[0].is_before(&pair[1])) {
            true => kept.into_iter().max().unwrap_or(0),
            false => kept.into_iter().fold(0, u64::saturating_add),
        };
        // Chunks that do not stay cached are unpacked for each read.
        if needed > CACHED_LEN {
            cost = cost.saturating_add(again);
        }
        let files = files.bytes();
        self.check_unwritten(len.saturating_sub(mapped), files)?;
        place.count_elements(cost, files)?;
        let label = place.source.label();
        let source: SourceRef = Arc::new(MappedSource::new(label, self.stored.fill.clone(), len, parts));
        TensorEntry::dense(path, dtype, shape, &source, 0, encoding)
    }

    /// Returns the part of a mapping; adds the cost of reading it, in bytes, to `cost`.
    fn part(&self, mapping: &Mapping, source: &SourceDataset, size: u64, cost: &mut u64) -> Result<Part> {
        if !same_encoding(&source.element, &self.stored.element) {
            let text = "HDF5: a source of the virtual dataset has another element type";
            return Err(Error::unsupported("hdf5-virtual-type", text)
                .expected(type_text(&self.stored.element))
                .found(format_args!("{} in {}", type_text(&source.element), mapping.display_name()))
                .hint("copy the dataset with h5py or h5repack first; both convert the elements"));
        }
        let from = Selection::new(&mapping.from, &source.dims, size)?;
        let to = Selection::new(&mapping.to, self.shape.dims(), size)?;
        if from.len != to.len {
            let text = "HDF5: a mapping of the virtual dataset selects different numbers of elements";
            return Err(Error::corrupt("hdf5-corrupt", text)
                .expected(format_args!("{} elements", to.len / size.max(1)))
                .found(format_args!("{} in {}", from.len / size.max(1), mapping.display_name())));
        }
        let part = Part::new(to, from, source.bytes.clone());
        let runs = part.runs().saturating_mul(RUN_COST);
        *cost = cost.saturating_add(part.len().max(runs).max(source.unpacked));
        Ok(part)
    }
}

/// True where the types have the same encoding. Single bytes have no byte order.
fn same_encoding(one: &Type, other: &Type) -> bool {
    match (&one.class, &other.class) {
        (Class::Number(one, _), Class::Number(other, _)) if one.size() == Some(1) => one == other,
        _ => one == other,
    }
}

/// Display text of a type, with its byte order.
fn type_text(element: &Type) -> String {
    match &element.class {
        Class::Number(dtype, Endian::Little) => format!("{dtype}, little-endian"),
        Class::Number(dtype, Endian::Big) => format!("{dtype}, big-endian"),
        Class::Enum(dtype, ..) => format!("an enumeration of {dtype}"),
        _ => element.words(),
    }
}

/// Display name of the source of a mapping.
pub(super) fn source_name(file: &str, dataset: &str) -> String {
    weighbridge_core::text::escape(&format!("{dataset} in {file}"))
}
