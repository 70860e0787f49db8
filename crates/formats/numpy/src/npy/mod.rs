//! npy: one numpy array, or a folder of them.
//!
//! ```text
//! \x93NUMPY  major minor          8 bytes; versions 1.0, 2.0, 3.0
//! length of the header            u16 (1.0) or u32, little-endian
//! header                          a Python dict literal: Latin-1, or UTF-8 in 3.0
//!   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   padded with spaces, ends in \n
//! elements                        dense; first index fastest where fortran_order is True
//! ```
//!
//! Read: all numeric types, both byte orders, row-major and column-major. Objects (a pickle),
//! texts, dates and structured types are rejected by name. Written: the bytes of numpy's own writer;
//! a tensor keeps its storage order, so nothing is transposed.
//!
//! A checkpoint of several tensors becomes a folder of arrays, which numpy can map into memory:
//!
//! ```text
//! NAME.npy                  a tensor; characters that are unsafe in file names are %XX
//! NAME.names.json           its row names, if any: one list of texts
//! weighbridge.index.json    bridge metadata, where needed: paths, roles, metadata
//!                           (see checkpoint::Metadata::INDEX_KEY)
//! ```

mod folder;
pub mod header;
mod outline;
mod read;
mod salvage;
#[cfg(feature = "scan")]
mod scan;
#[cfg(test)]
mod tests;
mod write;

pub use header::Header;
pub(super) use outline::array as array_outline;
pub(super) use read::entry;
pub(super) use write::array_header;

use std::path::PathBuf;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::DType;
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat,
    RowNameSupport, Salvage, WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef};

/// The npy format.
#[derive(Debug)]
pub struct Npy;

/// Kind of a single file.
const ARRAY: &str = "array";
/// Kind of a folder of files.
const FOLDER: &str = "folder";

/// Types that numpy supports.
pub(super) static DTYPES: &[DType] = &[
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
    DType::F32,
    DType::F64,
    DType::C64,
    DType::C128,
];

static INFO: FormatInfo = FormatInfo {
    id: "npy",
    title: "numpy array, or a folder of them",
    coverage: Coverage {
        name: "npy",
        read: "versions 1.0 to 3.0, both orders; folders of arrays",
        written: "yes",
        not_read: "arrays of objects, texts, dates and records",
    },
    extensions: &[("npy", ARRAY)],
    dtypes: DTYPES,
    order: None,
    settings: &[],
};

impl Format for Npy {
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

impl Detect for Npy {
    fn recognises(&self, head: &[u8], _: &SourceRef) -> bool {
        head.starts_with(header::MAGIC)
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        folder::recognises(folder)
    }

    fn recognises_file_set(&self, files: &[PathBuf]) -> bool {
        files.iter().all(|name| folder::is_array(name))
    }
}

impl ReadFormat for Npy {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(&source, options)
    }

    fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        folder::open(folder, options)
    }
}

impl WriteFormat for Npy {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }

    /// Row names are files next to the array in a folder; a single array drops them, with a loss.
    fn labels_in(&self) -> RowNameSupport {
        RowNameSupport::Column
    }
}

impl Salvage for Npy {
    /// Returns the complete rows of an array that is cut short; for a folder, the intact files.
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        match *place {
            Input::Folder(folder) => folder::open(folder, options).map(Some),
            Input::Alone(source) | Input::Beside(source, ..) => {
                salvage::open(source, error, options).map(Some)
            }
        }
    }
}

impl DeepCheck for Npy {
    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        outline::outline(source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Npy {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }
}
