//! HDF5: any file of numeric datasets, such as the weights of Keras.
//!
//! ```text
//! /                             attributes: the metadata, as text, numbers and lists
//!                               weighbridge.index: what names cannot say, where there is something
//! /fc1/w                        the tensor ["fc1", "w"]; its attributes are those of the dataset
//! /fc1/w~/Adam.m1               what an optimizer remembers about it, by slot
//! /fc1/w~/...                   what stands below a tensor: a dataset is no group
//! ```
//!
//! | in a name | in HDF5 |
//! | --- | --- |
//! | an empty part, or a dot alone | `_` |
//! | `/`, NUL | `_` |
//! | bytes that are not UTF-8 | `\xNN` |
//! | the name of another tensor | `~2`, `~3` … behind it |
//!
//! What differs from the path of the tensor then is carried (see [`weighbridge_core::checkpoint::Metadata::INDEX_KEY`]), so
//! that everything comes back, and is a loss for others, `renamed`. Attributes of groups are metadata under the path of the group:
//! `/model_weights`.
//!
//! Attributes keep their types: what the value does not tell - numbers of less than 64 bits, text of fixed length,
//! several dimensions, nothing of a type - stands in `hdf5.types` beside them, as the bytes of the datatype message, and is
//! written so again. `hdf5.null` says that a dataset has a null dataspace; a group without members is one without
//! attributes in the metadata.
//!
//! In files of Keras the datasets of the optimizer have the role of its state. Its archives (`.keras`) are read as the file
//! of weights in them, with their texts as metadata.
//!
//! Files of PyTorch-BigGraph are HDF5 files too: that format is asked first.

mod archive;
mod keras;
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
    DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat, RowNameSupport,
    Salvage, WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_hdf5::write::Hdf5Builder;
use weighbridge_io::source::{FolderRef, SourceRef, read_vec};

/// The format.
#[derive(Debug)]
pub struct Hdf5;

/// The attribute of a tensor that is a dataset of neither elements nor extents.
const NULL: &str = "hdf5.null";
/// The attribute of a tensor that is an enumeration: the numbers by their names.
const NAMES: &str = "hdf5.enum";
/// The one kind of file that is written.
const KIND: &str = "file";
/// An archive of Keras.
const ARCHIVE: &str = "keras";
/// What a file begins with, behind other bytes where there is a user block.
const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";
/// The shortest user block; a longer one is twice as long, or four times, and so on.
const USER_BLOCK: u64 = 512;
/// What a header takes for an attribute beside its name and its elements, at most.
const AROUND: usize = 512;
/// Attributes above this many bytes go into the carried index: a header holds 64 KiB of each.
const LONGEST: usize = (64 << 10) - AROUND;

static INFO: FormatInfo = FormatInfo {
    id: "hdf5",
    title: "HDF5: datasets in groups, also in archives of Keras",
    extensions: &[("h5", KIND), ("hdf5", KIND)],
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

/// The dataset with the optimizer's state of PyTorch-BigGraph, which that framework unpickles whatever else a file holds.
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
        // A user block may be anything, so this format is asked last.
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
        write::plan(checkpoint, options)
    }

    fn labels_in(&self) -> RowNameSupport {
        RowNameSupport::Tensors
    }
}

impl Salvage for Hdf5 {
    /// What can be reached: a group that is broken does not hide the others, and a dataset whose bytes
    /// are not in the file is lost alone.
    fn salvage(&self, place: &Input<'_>, _: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        place.source().map(|_| open(*place, options)).transpose()
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
        // BigGraph unpickles it whatever else the file has or has not.
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

/// The beginning of an archive.
const ZIP: &[u8] = b"PK\x03\x04";

/// True for an archive, and not for a user block that begins as one.
fn is_archive(source: &SourceRef) -> Result<bool> {
    let head = read_vec(&**source, 0, source.len().min(ZIP.len() as u64))?;
    Ok(head == ZIP && (archive::recognises(&head, source) || !has_user_block(source)))
}

/// True where the file begins behind bytes of somebody else.
fn has_user_block(source: &SourceRef) -> bool {
    let starts = std::iter::successors(Some(USER_BLOCK), |at| at.checked_mul(2));
    let mut bytes = [0; SIGNATURE.len()];
    starts
        .take_while(|at| at.saturating_add(SIGNATURE.len() as u64) <= source.len())
        .any(|at| source.read_at(at, &mut bytes).is_ok() && bytes == *SIGNATURE)
}

/// True where an attribute `name` of HDF5 gives `value` back as it was.
fn comes_back(name: &str, value: &Value) -> bool {
    let elements = match value {
        Value::List(list) => list.as_slice(),
        value => std::slice::from_ref(value),
    };
    // Narrow numbers come back as wide ones.
    let exact = |value: &Value| !matches!(value, Value::U32(_) | Value::F32(_));
    let len = |value: &Value| match value {
        Value::Bytes(bytes) => bytes.len(),
        _ => 16,
    };
    let fits = elements.iter().map(len).sum::<usize>() + name.len() <= LONGEST;
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
