//! Core ML: reader of models and of packages.
//!
//! A model is one protobuf message: a neural network with its weights in the layers, an ML program with its constants, or a model of
//! another type. A package is a folder with a model and files of weights:
//!
//! ```text
//! NAME.mlmodel      specification version, description, and the content of one type
//! NAME.mlpackage    Manifest.json, Data/com.apple.CoreML/model.mlmodel, weights/weight.bin
//! ```

mod blob;
mod check;
mod classic;
mod describe;
mod dtype;
mod graph;
mod network;
mod package;
mod program;
mod read;
#[cfg(feature = "scan")]
mod scan;
mod schema;
#[cfg(test)]
mod tests;
mod tree;
mod values;

use std::path::Path;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Order;
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, ReadFormat, Salvage,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef};

/// The Core ML format.
#[derive(Debug)]
pub struct CoreMl;

/// Kind of all files.
const MODEL: &str = "model";

static INFO: FormatInfo = FormatInfo {
    id: "coreml",
    title: "Models and packages of Core ML",
    coverage: Coverage {
        name: "Core ML",
        read: "neural networks (`.mlmodel`), ML programs (`.mlpackage`), numbers of other models, pipelines",
        written: "",
        not_read: "trees, sparse vectors, opaque data, compiled models",
    },
    extensions: &[("mlmodel", MODEL), ("mlpackage", MODEL)],
    dtypes: &dtype::DTYPES,
    order: Some(Order::Row),
    settings: &[],
};

impl Format for CoreMl {
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

impl Detect for CoreMl {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        read::recognises(head, source)
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        package::recognises(folder)
    }
}

impl ReadFormat for CoreMl {
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
        package::open(folder, options, None)
    }

    fn is_format_metadata(&self, key: &str, _: &Value) -> bool {
        key == describe::VERSION
    }
}

impl Salvage for CoreMl {
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        let salvaged = match *place {
            Input::Alone(source) => read::open(source, None, options, Some(error)),
            Input::Beside(source, folder, name) => {
                read::open(source, Some((folder, name)), options, Some(error))
            }
            Input::Folder(folder) => package::open(folder, options, Some(error)),
        };
        salvaged.map(Some)
    }
}

impl DeepCheck for CoreMl {
    fn check(&self, _: &Checkpoint) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        check::outline(source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for CoreMl {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }

    /// Accepts files of weights. They are plain numbers.
    fn is_text(&self, _: &Path, source: &SourceRef, _: &Limits) -> Result<bool> {
        Ok(blob::is_file(source) || package::is_manifest(source))
    }
}
