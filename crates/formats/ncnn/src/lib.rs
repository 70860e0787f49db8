//! ncnn: networks and their weights.
//!
//! ```text
//! NAME.param        text: a line for each layer, with its blobs and parameters
//! NAME.param.bin    the same as numbers, without the names
//! NAME.bin          weights of all layers in the order of the network, without names or shapes
//! ```

mod graph;
mod network;
mod read;
#[cfg(feature = "scan")]
mod scan;
#[cfg(test)]
mod tests;
mod types;
mod weights;

use std::path::Path;
use weighbridge_core::check::Outline;
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

/// The ncnn format.
#[derive(Debug)]
pub struct Ncnn;

/// Kind of all files.
const MODEL: &str = "model";

static INFO: FormatInfo = FormatInfo {
    id: "ncnn",
    title: "Models of ncnn",
    coverage: Coverage {
        name: "ncnn",
        read: "`.param` and `.param.bin` with their `.bin`",
        written: "",
        not_read: "weights of custom layers",
    },
    extensions: &[("param", MODEL)],
    dtypes: &[DType::F32, DType::F16, DType::BF16, DType::I8, DType::U8],
    order: Some(Order::Row),
    settings: &[],
};

impl Format for Ncnn {
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

impl Detect for Ncnn {
    fn recognises(&self, head: &[u8], _: &SourceRef) -> bool {
        network::is_recognized(head)
    }

    fn recognises_beside(&self, folder: &FolderRef, name: &Path) -> bool {
        matches!(read::network_beside(folder, name), Ok(Some(_)))
    }

    /// Other programs have the extension, too.
    fn shares_extensions(&self) -> bool {
        true
    }
}

impl ReadFormat for Ncnn {
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
}

impl Salvage for Ncnn {
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        match *place {
            Input::Beside(source, folder, name) => {
                read::open(source, Some((folder, name)), options, Some(error)).map(Some)
            }
            Input::Alone(_) | Input::Folder(_) => Ok(None),
        }
    }
}

impl DeepCheck for Ncnn {
    fn check(&self, _: &Checkpoint) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    fn outline(&self, source: &SourceRef, _: &Limits) -> Result<Outline> {
        read::outline(source)
    }

    fn outline_within(
        &self,
        checkpoint: &Checkpoint,
        source: &SourceRef,
        limits: &Limits,
    ) -> Result<Outline> {
        let mut outline = self.outline(source, limits)?;
        if outline.parts.is_empty()
            && let Some(network) = checkpoint.files.first()
        {
            read::unlisted(network, source, limits, &mut outline)?;
        }
        Ok(outline)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Ncnn {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }
}
