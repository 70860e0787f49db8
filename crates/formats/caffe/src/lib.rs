//! Caffe: weights, networks and training states.
//!
//! ```text
//! NAME.caffemodel     NetParameter, a protobuf message: layers with their blobs
//! NAME.solverstate    SolverState, a protobuf message: blobs of the optimizer
//! NAME.prototxt       NetParameter as text, without blobs
//! ```

mod blob;
mod check;
mod network;
mod read;
#[cfg(feature = "scan")]
mod scan;
mod schema;
#[cfg(test)]
mod tests;
mod text;
mod walk;

use std::path::Path;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Order};
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, ReadFormat, Salvage,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef};
use weighbridge_protobuf as wire;

/// The Caffe format.
#[derive(Debug)]
pub struct Caffe;

/// Kind of a file with blobs.
const WEIGHTS: &str = "weights";
/// Kind of a file with the blobs of an optimizer.
const STATE: &str = "state";
/// Kind of a network in text.
const NETWORK: &str = "network";

static INFO: FormatInfo = FormatInfo {
    id: "caffe",
    title: "Caffe models, networks and training states",
    coverage: Coverage {
        name: "Caffe",
        read: "layers of all versions, solver states, networks in text",
        written: "",
        not_read: "",
    },
    extensions: &[("caffemodel", WEIGHTS), ("solverstate", STATE), ("prototxt", NETWORK)],
    dtypes: &[DType::F32, DType::F64, DType::F16, DType::I32, DType::U32],
    order: Some(Order::Row),
    settings: &[],
};

impl Format for Caffe {
    fn info(&self) -> &'static FormatInfo {
        &INFO
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

impl Detect for Caffe {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        read::kind(head, source).is_some()
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        read::weights_in(folder).is_some()
    }
}

impl ReadFormat for Caffe {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(&source, None, options, None)
    }

    fn open_beside(
        &self,
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        read::open(&source, Some((folder, name)), options, None)
    }

    fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        let (name, source) = read::in_folder(folder)?;
        read::open(&source, Some((folder, &name)), options, None)
    }

    fn is_format_metadata(&self, key: &str, _: &Value) -> bool {
        key == read::LEARNED_NET
    }
}

impl Salvage for Caffe {
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        let opened = match *place {
            Input::Alone(source) => read::open(source, None, options, Some(error)),
            Input::Beside(source, folder, name) => {
                read::open(source, Some((folder, name)), options, Some(error))
            }
            Input::Folder(folder) => {
                let (name, source) = read::in_folder(folder)?;
                read::open(&source, Some((folder, &name)), options, Some(error))
            }
        };
        opened.map(Some)
    }
}

impl DeepCheck for Caffe {
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
        Ok(check::check(checkpoint))
    }

    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        check::outline(source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Caffe {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }
}
