//! safetensors: a file of named tensors with a JSON header, or a folder of such files.
//!
//! ```text
//! offset  bytes
//!      0      8  N, the length of the header, little-endian
//!      8      N  header: one JSON object, UTF-8, begins with {, padded with spaces
//!                {"__metadata__": {"key": "text", ...},
//!                 "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//!  8 + N         data: dense, little-endian, row-major; offsets are relative to here
//! ```
//!
//! The tensors fill the data without gaps and overlaps, up to the end of the file. Files that the
//! safetensors library rejects are rejected here, with reason and offset. Duplicate keys,
//! where that library uses the last one, are rejected, too.
//!
//! A large model is split into several such files (shards) with an index, as
//! Hugging Face does it:
//!
//! ```text
//! model-00001-of-00002.safetensors      tensors in their order, up to the shard size
//! model-00002-of-00002.safetensors      a tensor above that size has a shard of its own
//! model.safetensors.index.json          {"metadata": {"total_size": bytes of all tensors, ...},
//!                                        "weight_map": {"name": "model-00001-of-00002.safetensors", ...}}
//! ```
//!
//! Metadata and bridge metadata are stored in the `metadata` of the index, where other programs ignore
//! them; only `format`, which they read from every file, is stored in each shard.

mod header;
mod header_space;
mod library;
mod outline;
mod read;
mod salvage;
mod shards;
#[cfg(test)]
mod tests;
mod write;

pub use shards::{index_files, parse_size};
pub use weighbridge_format::shards::{IndexFile, IndexFiles};

use std::path::Path;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{DType, Order};
#[cfg(feature = "scan")]
use weighbridge_format::shards::scan as scan_index;
use weighbridge_format::shards::{ShardIndex, alone};
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat,
    RowNameSupport, Salvage, Setting, WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef};

/// The safetensors format.
#[derive(Debug)]
pub struct Safetensors;

/// Kind of a single file.
const KIND: &str = "single";
/// Kind of a folder of shards and their index.
const SHARDED: &str = "sharded";
/// Setting of the shard size.
const SHARD: &str = "shard";
/// Setting of the padding behind a header.
const HEADER_PADDING: &str = "header_padding";
/// Setting of the offset at which the data begins.
const DATA_OFFSET: &str = "data_offset";
/// Key of the header that is not a tensor.
const METADATA: &str = "__metadata__";
/// Metadata key of the library for which the file is written.
const FORMAT: &str = "format";
/// Values of the key [`FORMAT`].
const LIBRARIES: [&str; 7] = ["pt", "tf", "flax", "np", "numpy", "mlx", "paddle"];
/// Length of the field before the header, in bytes.
const PREFIX: u64 = 8;
/// Maximum length of a header, that of the safetensors library.
const MAX_HEADER: u64 = 100_000_000;

static INFO: FormatInfo = FormatInfo {
    id: "safetensors",
    title: "safetensors, one file or shards",
    coverage: Coverage {
        name: "safetensors",
        read: "single files, shards with or without their index, all dtypes",
        written: "yes",
        not_read: "",
    },
    extensions: &[("safetensors", KIND)],
    dtypes: &DTYPES,
    order: Some(Order::Row),
    settings: &[
        Setting {
            name: SHARD,
            values: "5GB, 500MB, 64MiB, ... or bytes",
            what: "maximum bytes of tensors per shard; the target is then a folder (default: one file; 5GB for the kind sharded)",
        },
        Setting {
            name: HEADER_PADDING,
            values: "bytes",
            what: "padding behind each header, which allows later edits in place (default 0)",
        },
        Setting {
            name: DATA_OFFSET,
            values: "bytes",
            what: "offset of the data, with the tensors in the order of the opened file: for edits in place",
        },
    ],
};

/// Element types by increasing alignment: the declaration order of the safetensors library, which
/// writes tensors in the reverse order.
const DTYPE_NAMES: [(DType, &str); 22] = [
    (DType::Bool, "BOOL"),
    (DType::F4, "F4"),
    (DType::F6E2M3, "F6_E2M3"),
    (DType::F6E3M2, "F6_E3M2"),
    (DType::U8, "U8"),
    (DType::I8, "I8"),
    (DType::F8E5M2, "F8_E5M2"),
    (DType::F8E4M3, "F8_E4M3"),
    (DType::F8E8M0, "F8_E8M0"),
    (DType::F8E4M3Fnuz, "F8_E4M3FNUZ"),
    (DType::F8E5M2Fnuz, "F8_E5M2FNUZ"),
    (DType::I16, "I16"),
    (DType::U16, "U16"),
    (DType::F16, "F16"),
    (DType::BF16, "BF16"),
    (DType::I32, "I32"),
    (DType::U32, "U32"),
    (DType::F32, "F32"),
    (DType::C64, "C64"),
    (DType::F64, "F64"),
    (DType::I64, "I64"),
    (DType::U64, "U64"),
];

/// Types of [`DTYPE_NAMES`].
const DTYPES: [DType; 22] = {
    let mut types = [DType::Bool; 22];
    let mut i = 0;
    while i < types.len() {
        types[i] = DTYPE_NAMES[i].0;
        i += 1;
    }
    types
};

impl Format for Safetensors {
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

impl Detect for Safetensors {
    /// Accepts a plausible header length and the beginning of a JSON object. The first 8 characters of text files,
    /// including JSON, are a length above 2^56. A shard index is a JSON object itself.
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        if ShardIndex::is_index(head, source) {
            return shards::is_ours(source);
        }
        let Some((&length, [b'{', next, ..])) = head.split_first_chunk::<8>() else { return false };
        let length = u64::from_le_bytes(length);
        let fits = length <= MAX_HEADER || length <= source.len().saturating_sub(PREFIX);
        length >= 2 && fits && matches!(next, b'"' | b'}' | b' ' | b'\t' | b'\n' | b'\r')
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        shards::recognises_folder(folder)
    }

    fn owns_sibling(&self, name: &Path) -> bool {
        shards::owns_sibling(name)
    }
}

impl ReadFormat for Safetensors {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        match read::open(&source, options) {
            // The text of a shard index is an impossible header length.
            Err(_) if ShardIndex::is_index_file(&source)? => alone(&source),
            opened => opened,
        }
    }

    fn open_beside(
        &self,
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        match read::open(&source, options) {
            Err(_) if ShardIndex::is_index_file(&source)? => {
                shards::open_list(&source, folder, name, options)
            }
            opened => opened,
        }
    }

    fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        shards::open_folder(folder, options)
    }

    fn is_format_metadata(&self, key: &str, value: &Value) -> bool {
        // The library for which the file is written.
        key == FORMAT && matches!(value, Value::Text(library) if LIBRARIES.contains(&library.as_str()))
    }
}

impl WriteFormat for Safetensors {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }

    fn labels_in(&self) -> RowNameSupport {
        RowNameSupport::Tensors
    }

    fn settings_in_place(&self, checkpoint: &Checkpoint) -> Vec<(String, String)> {
        if (checkpoint.format, checkpoint.kind) != (INFO.id, KIND) {
            return Vec::new();
        }
        let begins = checkpoint.tensors.iter().flat_map(|t| &t.extents).map(|extent| extent.offset).min();
        begins.map(|offset| (DATA_OFFSET.to_owned(), offset.to_string())).into_iter().collect()
    }

    fn sharding_settings(&self, checkpoint: &Checkpoint) -> Vec<(String, String)> {
        if (checkpoint.format, checkpoint.kind) != (INFO.id, SHARDED) {
            return Vec::new();
        }
        shards::size_as_cut(checkpoint).map(|most| (SHARD.to_owned(), most.to_string())).into_iter().collect()
    }
}

impl Salvage for Safetensors {
    /// Accepts the beginning of the JSON at its offset, behind a damaged length.
    fn recognises_damaged(&self, head: &[u8], _: &SourceRef) -> bool {
        matches!(head.get(8..10), Some([b'{', b'"' | b' ' | b'\t' | b'\n' | b'\r']))
    }

    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        match *place {
            Input::Folder(folder) => shards::open_folder(folder, options).map(Some),
            Input::Beside(source, folder, name) if ShardIndex::is_index_file(source)? => {
                shards::open_list(source, folder, name, options).map(Some)
            }
            Input::Alone(source) | Input::Beside(source, ..) => {
                salvage::open(source, error, options).map(Some)
            }
        }
    }
}

impl DeepCheck for Safetensors {
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
        let mut findings = shards::check(checkpoint);
        findings.extend(outline::unaligned(&checkpoint.tensors));
        Ok(findings)
    }

    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        outline::outline(source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Safetensors {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        let scanned = match read::open(source, options) {
            Err(_) if ShardIndex::is_index_file(source)? => scan_index(source, &options.limits),
            opened => opened.map(|checkpoint| Scan::of_notes(&checkpoint)),
        };
        scanned.or_else(Scan::of_error)
    }
}

/// The formats of this crate as a registry, for tests.
#[cfg(test)]
pub(crate) mod opening {
    use weighbridge_core::Checkpoint;
    use weighbridge_core::Result;
    use weighbridge_core::source::SourceRef;
    use weighbridge_format::{Format, OpenOptions, Registry};

    fn registry() -> Registry {
        Registry::new([&crate::Safetensors as _])
    }

    pub(crate) fn detect(source: &SourceRef) -> Result<&'static dyn Format> {
        registry().detect(source)
    }

    pub(crate) fn open_source(source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        registry().open_source(source, options)
    }
}
