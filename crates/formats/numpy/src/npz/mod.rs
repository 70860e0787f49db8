//! npz: numpy arrays in a zip archive.
//!
//! ```text
//! zip archive, see containers::zip
//!   NAME.npy                     one array, see formats::npy
//!   NAME.npy                     ...
//!   weighbridge.metadata.npy     optional: u8[], the text of a JSON object with string values
//! ```
//!
//! numpy defines the format as npy files in a zip archive; the header of the arrays is that of [`super::npy`].
//!
//! Metadata and bridge metadata (see [`weighbridge_core::checkpoint::Metadata::INDEX_KEY`]) are stored in
//! a member of their own, which numpy shows as an additional array. It is written only where it
//! is needed.
//!
//! Members are stored, not deflated, in the order of their names, with their elements at a
//! multiple of 64 bytes: they can be mapped, and equal content has equal bytes.

mod outline;
mod read;
mod salvage;
#[cfg(feature = "scan")]
mod scan;
#[cfg(test)]
mod tests;
mod write;

use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat,
    RowNameSupport, Salvage, WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::SourceRef;
use weighbridge_zip as zip;

/// The npz format.
#[derive(Debug)]
pub struct Npz;

static INFO: FormatInfo = FormatInfo {
    id: "npz",
    title: "numpy arrays in a zip archive",
    coverage: Coverage {
        name: "npz",
        read: "stored and deflated members",
        written: "stored members",
        not_read: "as npy; other compressions",
    },
    extensions: &[("npz", "archive")],
    dtypes: super::npy::DTYPES,
    order: None,
    settings: &[],
};

/// Suffix of the member name of an array.
const SUFFIX: &str = ".npy";
/// Name of the array that contains the metadata.
const METADATA: &str = "weighbridge.metadata";

impl Format for Npz {
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

impl Detect for Npz {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        if head.starts_with(b"PK\x05\x06") {
            return true;
        }
        let magic = super::npy::header::MAGIC;
        let array = || match zip::first_member(source, magic.len()) {
            Some((name, content)) => name.ends_with(SUFFIX) && content == magic,
            None => false,
        };
        let of_torch = |name: &str| name == "data.pkl" || name.ends_with("/data.pkl");
        head.starts_with(b"PK\x03\x04") && array() && !zip::has_member(source, &Limits::default(), of_torch)
    }
}

impl ReadFormat for Npz {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(&source, options)
    }
}

impl WriteFormat for Npz {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }

    fn labels_in(&self) -> RowNameSupport {
        RowNameSupport::Tensors
    }
}

impl Salvage for Npz {
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        place.source().map(|source| salvage::open(source, error, options)).transpose()
    }
}

impl DeepCheck for Npz {
    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        outline::outline(source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Npz {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }
}
