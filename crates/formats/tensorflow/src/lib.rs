//! TensorFlow: reader and writer of checkpoints, reader of SavedModels and frozen graphs.
//!
//! A checkpoint is an index, a table of LevelDB with the dtype, the shape and the place of each tensor, and data files with their bytes:
//!
//! ```text
//! ckpt-1.index                  key -> dtype, shape, data file, offset, length, checksum
//! ckpt-1.data-00000-of-00001    elements, dense, little-endian, row-major; tensors of text
//! checkpoint                    text: the name of the latest checkpoint, and those of all
//! ```
//!
//! A SavedModel is a folder with its graphs and signatures in `saved_model.pb`, and a checkpoint in `variables`. A frozen graph is one
//! protobuf message, `GraphDef`, with its tensors in operators `Const`.

mod bundle;
mod check;
mod dtype;
mod graph;
mod names;
mod objects;
mod ordered;
mod place;
mod program;
mod read;
mod saved;
#[cfg(feature = "scan")]
mod scan;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod values;
mod write;

use std::path::Path;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::Order;
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat, Salvage,
    WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef};
use weighbridge_protobuf as wire;

/// The TensorFlow format.
#[derive(Debug)]
pub struct Tensorflow;

/// Kind of a checkpoint.
const CHECKPOINT: &str = "checkpoint";
/// Kind of a SavedModel.
const SAVED_MODEL: &str = "saved-model";
/// Kind of a frozen graph.
const GRAPH: &str = "graph";

static INFO: FormatInfo = FormatInfo {
    id: "tensorflow",
    title: "TensorFlow checkpoints, SavedModels and frozen graphs",
    coverage: Coverage {
        name: "TensorFlow",
        read: "checkpoints of version 2, SavedModels, frozen graphs (`.pb`)",
        written: "checkpoints",
        not_read: "text tensors, big-endian checkpoints, checkpoints of version 1",
    },
    extensions: &[("pb", GRAPH)],
    dtypes: &dtype::DTYPES,
    order: Some(Order::Row),
    settings: &[],
};

impl Format for Tensorflow {
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

impl Detect for Tensorflow {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        place::FileType::of(head, source).is_some()
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        place::recognises_folder(folder)
    }

    fn owns_sibling(&self, name: &Path) -> bool {
        place::owns_sibling(name)
    }

    /// Other messages of protobuf have the extension, too.
    fn shares_extensions(&self) -> bool {
        true
    }
}

impl ReadFormat for Tensorflow {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        place::open(&source, None, options, None)
    }

    fn open_beside(
        &self,
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        place::open(&source, Some((folder, name)), options, None)
    }

    fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        place::open_folder(folder, options, None)
    }

    fn is_format_metadata(&self, key: &str, _: &Value) -> bool {
        saved::is_format_metadata(key)
    }
}

impl WriteFormat for Tensorflow {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }
}

impl Salvage for Tensorflow {
    fn recognises_damaged(&self, head: &[u8], _: &SourceRef) -> bool {
        place::begins_as_index(head)
    }

    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        let salvaged = match *place {
            Input::Alone(source) => place::open(source, None, options, Some(error)),
            Input::Beside(source, folder, name) => {
                place::open(source, Some((folder, name)), options, Some(error))
            }
            Input::Folder(folder) => place::open_folder(folder, options, Some(error)),
        };
        salvaged.map(Some)
    }
}

impl DeepCheck for Tensorflow {
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
        check::check(checkpoint)
    }

    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        check::outline(source, limits)
    }

    fn outline_within(
        &self,
        checkpoint: &Checkpoint,
        source: &SourceRef,
        limits: &Limits,
    ) -> Result<Outline> {
        check::outline_within(checkpoint, source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Tensorflow {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }

    fn is_text(&self, name: &Path, source: &SourceRef, _: &Limits) -> Result<bool> {
        scan::is_plain(name, source)
    }
}
