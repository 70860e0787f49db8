//! HDF5: files of numeric datasets, such as Keras weights.
//!
//! ```text
//! /                             attributes: the metadata, as text, numbers and lists
//!                               weighbridge.index: bridge metadata, where needed
//! /fc1/w                        the tensor ["fc1", "w"]; its attributes are those of the dataset
//! /fc1/w~/Adam.m1               optimizer state of fc1/w, by slot
//! /fc1/w~/...                   tensors below fc1/w: a dataset cannot have members
//! ```
//!
//! | in a name | in HDF5 |
//! | --- | --- |
//! | an empty part, or a dot alone | `_` |
//! | `/`, NUL | `_` |
//! | bytes that are not UTF-8 | `\xNN` |
//! | the name of another tensor | suffix `~2`, `~3` … |
//!
//! Replaced paths are stored as bridge metadata (see [`weighbridge_core::checkpoint::Metadata::INDEX_KEY`]) and restored on
//! reading; for other readers they are a loss, `renamed`. Attributes of groups are metadata under the path of the
//! group, such as
//! `/model_weights`.
//!
//! Attributes keep their types. Types that the value does not determine (numbers below 64 bits, fixed-length text,
//! several dimensions, null values) are stored in `hdf5.types` as the bytes of the datatype message, and
//! written again. `hdf5.null` marks a dataset with a null dataspace. A group without members is an empty map in the
//! metadata.
//!
//! In Keras files the datasets of the optimizer have the role of optimizer state, and the names of variables are the attribute
//! `variable_name`. Keras archives (`.keras`) are the weights file in them, with their JSON members as metadata.
//!
//! PyTorch-BigGraph files are HDF5 files, too: that format is detected first.

mod archive;
mod keras;
mod layers;
#[cfg(test)]
mod models;
mod names;
mod options;
mod read;
#[cfg(test)]
mod tests;
mod types;
mod write;

pub use options::ReadOptions;

use std::path::Path;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{DType, Order};
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat,
    RowNameSupport, Salvage, WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_hdf5::write::Hdf5Builder;
use weighbridge_io::source::{FolderRef, SourceRef, read_vec};

/// The HDF5 format.
#[derive(Debug)]
pub struct Hdf5;

/// Attribute of a tensor whose dataset has a null dataspace.
const NULL: &str = "hdf5.null";
/// Attribute of a tensor that is an enumeration: a map from names to numbers.
const NAMES: &str = "hdf5.enum";
/// Kind of a plain file.
const KIND: &str = "file";
/// Kind of a Keras archive.
const ARCHIVE: &str = "keras";
/// Signature at the start of a file, or behind a user block.
const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";
/// Minimum length of a user block; longer ones have this length times a power of two.
const MIN_USER_BLOCK: u64 = 512;
/// Maximum overhead of an attribute in a header, beside its name and elements.
const ATTRIBUTE_OVERHEAD: usize = 512;
/// Maximum length of an attribute; longer ones are stored as bridge metadata.
const MAX_ATTRIBUTE_LEN: usize = (64 << 10) - ATTRIBUTE_OVERHEAD;

static INFO: FormatInfo = FormatInfo {
    id: "hdf5",
    title: "HDF5 files and Keras archives",
    coverage: Coverage {
        name: "HDF5, Keras",
        read: "numeric datasets of any layout and the common filters; Keras `.h5`, `.weights.h5` and `.keras`",
        written: "`.h5`, contiguous datasets; Keras `.h5`, `.weights.h5` and `.keras` in the layout of a model",
        not_read: "text, compound and variable-length types; external storage; plugin filters",
    },
    extensions: &[("h5", KIND), ("hdf5", KIND), ("keras", ARCHIVE)],
    dtypes: &[
        DType::Bool,
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U32,
        DType::I32,
        DType::U64,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::C64,
        DType::C128,
        DType::F8E5M2,
    ],
    order: Some(Order::Row),
    settings: &[],
};

/// Dataset with the optimizer state of PyTorch-BigGraph, which unpickles it in any file.
#[cfg(feature = "scan")]
const BIGGRAPH_STATE: [&str; 2] = ["optimizer", "state_dict"];

impl Format for Hdf5 {
    fn info(&self) -> &'static FormatInfo {
        &INFO
    }

    fn writer(&self) -> Option<&dyn WriteFormat> {
        Some(self)
    }

    fn salvager(&self) -> Option<&dyn Salvage> {
        Some(self)
    }

    fn checker(&self) -> Option<&dyn DeepCheck> {
        Some(self)
    }

    #[cfg(feature = "scan")]
    fn scanner(&self) -> Option<&dyn ScanCode> {
        Some(self)
    }
}

impl Detect for Hdf5 {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        // A user block may begin like any other format, so this format is detected last.
        head.starts_with(SIGNATURE) || archive::recognises(head, source) || has_user_block(source)
    }
}

impl ReadFormat for Hdf5 {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        open(Input::Alone(&source), options)
    }

    fn open_beside(
        &self,
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        open(Input::Beside(&source, folder, name), options)
    }
}

impl WriteFormat for Hdf5 {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(&layers::without_names(checkpoint), options)
    }

    fn labels_in(&self) -> RowNameSupport {
        RowNameSupport::Tensors
    }
}

impl Salvage for Hdf5 {
    /// Returns all readable objects: a damaged group does not affect the others, and a dataset that exceeds
    /// the file is lost alone.
    fn salvage(&self, place: &Input<'_>, _: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        place.source().map(|_| open(*place, options)).transpose()
    }

    fn hidden_damage(&self, source: &SourceRef, options: &OpenOptions) -> Result<Option<Error>> {
        match is_archive(source)? {
            true => archive::damage(source, &options.limits),
            false => Ok(None),
        }
    }
}

impl DeepCheck for Hdf5 {
    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        match is_archive(source)? {
            true => archive::outline(source, limits),
            false => weighbridge_hdf5::outline(source, limits),
        }
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Hdf5 {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        let mut scan = Scan::default();
        // BigGraph unpickles this dataset in any file.
        weighbridge_scan::hdf5(source, &[&BIGGRAPH_STATE], &options.limits, &mut scan)?;
        Ok(scan)
    }

    fn is_plain_archive(&self, head: &[u8]) -> bool {
        head.starts_with(ZIP)
    }
}

fn open(place: Input<'_>, options: &OpenOptions) -> Result<Checkpoint> {
    match place.source() {
        Some(source) if is_archive(source)? => archive::open(source, options),
        _ => read::open(place, options),
    }
}

/// Signature of a zip archive.
const ZIP: &[u8] = b"PK\x03\x04";

/// True for an archive; false for a user block with a zip signature.
fn is_archive(source: &SourceRef) -> Result<bool> {
    let head = read_vec(&**source, 0, source.len().min(ZIP.len() as u64))?;
    Ok(head == ZIP && (archive::recognises(&head, source) || !has_user_block(source)))
}

/// True for an HDF5 file behind a user block.
fn has_user_block(source: &SourceRef) -> bool {
    let starts = std::iter::successors(Some(MIN_USER_BLOCK), |at| at.checked_mul(2));
    let mut bytes = [0; SIGNATURE.len()];
    starts
        .take_while(|at| at.saturating_add(SIGNATURE.len() as u64) <= source.len())
        .any(|at| source.read_at(at, &mut bytes).is_ok() && bytes == *SIGNATURE)
}

/// True where an HDF5 attribute `name` reproduces `value` exactly.
fn is_lossless(name: &str, value: &Value) -> bool {
    let elements = match value {
        Value::List(list) => list.as_slice(),
        value => std::slice::from_ref(value),
    };
    // Narrow numbers are read as wide ones.
    let exact = |value: &Value| !matches!(value, Value::U32(_) | Value::F32(_));
    let len = |value: &Value| match value {
        Value::Bytes(bytes) => bytes.len(),
        _ => 16,
    };
    let fits = elements.iter().map(len).sum::<usize>() + name.len() <= MAX_ATTRIBUTE_LEN;
    fits && elements.iter().all(exact) && Hdf5Builder::is_attribute(name, value)
}

/// The formats of this crate as a registry, for tests.
#[cfg(test)]
pub(crate) mod opening {
    use weighbridge_core::Checkpoint;
    use weighbridge_core::Result;
    use weighbridge_core::source::SourceRef;
    use weighbridge_format::{Format, OpenOptions, Registry};

    fn registry() -> Registry {
        Registry::new([&crate::Hdf5 as _])
    }

    pub(crate) fn detect(source: &SourceRef) -> Result<&'static dyn Format> {
        registry().detect(source)
    }

    pub(crate) fn open_source(source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        registry().open_source(source, options)
    }
}
