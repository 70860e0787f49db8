//! Darknet: weights of a network, and the network itself.
//!
//! ```text
//! NAME.cfg       text: a section for each layer, with its options
//! NAME.weights   version (3 numbers of 4 bytes), images seen in training (4 or 8 bytes), then the
//!                parameters of all layers as f32, without names or lengths
//! ```

mod cfg;
mod network;
mod read;
#[cfg(test)]
mod tests;

use std::path::Path;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::Checkpoint;
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

/// The Darknet format.
#[derive(Debug)]
pub struct Darknet;

/// Kind of a file with weights.
const WEIGHTS: &str = "weights";
/// Kind of a network in text.
const NETWORK: &str = "network";

static INFO: FormatInfo = FormatInfo {
    id: "darknet",
    title: "Darknet weights and networks",
    coverage: Coverage {
        name: "Darknet",
        read: "`.weights` (YOLO) with their `.cfg`",
        written: "",
        not_read: "recurrent layers",
    },
    extensions: &[("weights", WEIGHTS), ("cfg", NETWORK)],
    dtypes: &[DType::F32],
    order: Some(Order::Row),
    settings: &[],
};

impl Format for Darknet {
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

impl Detect for Darknet {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        read::kind(head, source).is_some()
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        read::weights_in(folder).is_some()
    }
}

impl ReadFormat for Darknet {
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
}

impl Salvage for Darknet {
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        let opened = match *place {
            Input::Alone(_) => return Ok(None),
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

impl DeepCheck for Darknet {
    fn check(&self, _: &Checkpoint) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    fn outline(&self, source: &SourceRef, _: &Limits) -> Result<Outline> {
        let head = weighbridge_io::source::read_vec(&**source, 0, source.len().min(4096))?;
        if read::kind(&head, source) == Some(NETWORK) {
            return weighbridge_format::outline::text(source, "network");
        }
        let mut outline = Outline::new(Gaps::Forbidden);
        outline.header(0, read::Header::parse(source)?.len, "version and images seen");
        Ok(outline)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Darknet {
    /// Weights are numbers, and a network has no code. The two are not needed together.
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        let head = weighbridge_io::source::read_vec(&**source, 0, source.len().min(4096))?;
        let read = match read::kind(&head, source) {
            Some(NETWORK) => read::open(source, None, options, None).map(|_| ()),
            _ => read::Header::parse(source).map(|_| ()),
        };
        match read {
            Ok(()) => Ok(Scan::default()),
            Err(error) => Scan::of_error(error.in_file(source.label())),
        }
    }
}
