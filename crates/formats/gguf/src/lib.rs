//! GGUF: models of llama.cpp, one file or shards.
//!
//! ```text
//! GGUF, version, number of tensors, number of metadata keys
//! metadata: key, type, value
//! tensors: name, dimensions (the contiguous one first), type, offset in the data
//! padding up to the alignment
//! data: the elements of each tensor, padded to the alignment
//! ```
//!
//! Quantized tensors are blocks of bytes along the last dimension. [`ReadOptions::dequantize`] lists their values.

mod check;
mod dequantize;
mod header;
mod options;
mod quantization;
mod read;
mod salvage;
#[cfg(feature = "scan")]
mod scan;
mod shards;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub use options::ReadOptions;

use std::path::Path;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{DType, Order};
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat, Salvage,
    Setting, WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef};

/// The GGUF format.
#[derive(Debug)]
pub struct Gguf;

/// Kind of a single file.
const MODEL: &str = "model";
/// Kind of a model in several files.
const SHARDED: &str = "sharded";
/// Setting of the alignment of tensors.
const ALIGNMENT: &str = "alignment";

static INFO: FormatInfo = FormatInfo {
    id: "gguf",
    title: "GGUF models, one file or shards",
    coverage: Coverage {
        name: "GGUF",
        read: "versions 1 to 3, both byte orders, shards; quantized tensors as blocks or dequantized",
        written: "yes, without quantizing",
        not_read: "tensors of types that the package `gguf` does not know",
    },
    extensions: &[("gguf", MODEL)],
    dtypes: &[DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8, DType::I16, DType::I32, DType::I64],
    order: Some(Order::Row),
    settings: &[Setting {
        name: ALIGNMENT,
        values: "a power of two, in bytes",
        what: "alignment of the tensors in the file (default: as in the opened model, else 32)",
    }],
};

impl Format for Gguf {
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

impl Detect for Gguf {
    /// Accepts the magic number before a plausible version.
    fn recognises(&self, head: &[u8], _: &SourceRef) -> bool {
        match head.first_chunk::<8>() {
            Some(&head) => header::version(head).is_some_and(|(version, _)| version <= u32::from(u16::MAX)),
            None => head.starts_with(&header::MAGIC),
        }
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        shards::recognises_folder(folder)
    }

    fn owns_sibling(&self, name: &Path) -> bool {
        name.components().count() == 1 && shards::ShardName::of(name).is_some()
    }
}

impl ReadFormat for Gguf {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(&source, options, None)
    }

    fn open_beside(
        &self,
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        match shards::ShardName::of(name).filter(|shard| shard.number == 1) {
            Some(first) if shards::is_split(&source, options)? => {
                shards::open(folder, &first, source.label(), options)
            }
            _ => read::open(&source, options, None),
        }
    }

    fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        shards::open_folder(folder, options)
    }

    fn is_format_metadata(&self, key: &str, value: &Value) -> bool {
        read::is_own_key(key, value) || key == header::ALIGNMENT
    }
}

impl WriteFormat for Gguf {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }
}

impl Salvage for Gguf {
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        let first = |name: &Path| shards::ShardName::of(name).filter(|shard| shard.number == 1);
        match *place {
            Input::Folder(folder) => shards::open_folder(folder, options).map(Some),
            Input::Alone(source) => read::open(source, options, Some(error)).map(Some),
            Input::Beside(source, folder, name) => match first(name) {
                Some(first) => shards::open(folder, &first, source.label(), options).map(Some),
                None => read::open(source, options, Some(error)).map(Some),
            },
        }
    }
}

impl DeepCheck for Gguf {
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
        check::check(checkpoint)
    }

    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        check::outline(source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Gguf {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }
}
