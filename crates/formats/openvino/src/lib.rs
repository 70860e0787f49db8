//! OpenVINO: models in the intermediate representation (IR).
//!
//! ```text
//! NAME.xml    net: layers with their options and ports, edges between ports
//! NAME.bin    elements of constants; the layers `Const` have offset, size, dtype and shape
//! ```

mod dtype;
mod graph;
mod read;
#[cfg(feature = "scan")]
mod scan;
#[cfg(test)]
mod tests;
mod xml;

use std::path::Path;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Order;
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, ReadFormat, Salvage,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef, read_vec};

/// The OpenVINO format.
#[derive(Debug)]
pub struct OpenVino;

/// Kind of all files.
const MODEL: &str = "model";
/// Maximum bytes of alignment between two constants.
const ALIGNMENT: u64 = 63;

static INFO: FormatInfo = FormatInfo {
    id: "openvino",
    title: "Models of OpenVINO",
    coverage: Coverage {
        name: "OpenVINO",
        read: "IR 10 and 11: `.xml` with its `.bin`",
        written: "",
        not_read: "text constants",
    },
    extensions: &[("xml", MODEL)],
    dtypes: &dtype::DTYPES,
    order: Some(Order::Row),
    settings: &[],
};

impl Format for OpenVino {
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

impl Detect for OpenVino {
    fn recognises(&self, head: &[u8], _: &SourceRef) -> bool {
        read::is_model(head)
    }

    /// Other documents have the extension, too.
    fn shares_extensions(&self) -> bool {
        true
    }
}

impl ReadFormat for OpenVino {
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

impl Salvage for OpenVino {
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        match *place {
            Input::Beside(source, folder, name) => {
                read::open(source, Some((folder, name)), options, Some(error)).map(Some)
            }
            Input::Alone(_) | Input::Folder(_) => Ok(None),
        }
    }
}

impl DeepCheck for OpenVino {
    fn check(&self, _: &Checkpoint) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    fn outline(&self, source: &SourceRef, _: &Limits) -> Result<Outline> {
        let head = read_vec(&**source, 0, source.len().min(4096))?;
        if read::is_model(&head) {
            return weighbridge_format::outline::text(source, "network");
        }
        // Constants alone, which the index lists.
        Ok(Outline::new(Gaps::Zeros(ALIGNMENT)))
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
            read::unlisted(network, limits, &mut outline)?;
        }
        Ok(outline)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for OpenVino {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }
}
