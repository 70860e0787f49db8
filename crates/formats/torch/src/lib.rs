//! PyTorch files from `torch.save`, in both forms. [`weighbridge_torch_archive`] documents their bytes.
//!
//! | kind | content |
//! | --- | --- |
//! | `state_dict` | a dict of tensors only |
//! | `object` | anything else: nested dicts, optimizer state, a whole module, TorchScript |
//! | `sharded` | a folder of such files with an index `pytorch_model.bin.index.json`, opened as one; not written |
//!
//! Tensors are found at any depth; the keys on the way are their path. Plain values become metadata
//! under their keys, joined by dots. The same holds for numpy scalars, and for objects of plain values
//! (`argparse.Namespace`), which become maps with their class under `@class`. Objects are never made:
//! only the tensors inside are read, and a note names the class. [`Checkpoint::containers`] lists the
//! containers of tensors and values.
//!
//! Distributed checkpoints are formats of their own: [`Dcp`] and [`DeepSpeed`].
//!
//! A quantized tensor is listed as its integers, with `scale` and `zero_point` nested under its name; a sparse tensor is listed
//! as its indices and `values`. Their attributes record the original form, so writing restores the same tensors. Numpy arrays
//! are tensors, too.
//!
//! The output is a flat `OrderedDict` of names and row-major tensors that `torch.load` reads with
//! `weights_only=True`. Its attribute holds the versions of modules ([`Metadata::MODULE_VERSIONS`]), also
//! after a conversion through another format; versions of nested state dicts get the prefix of their name.
//! When reading, only the versions in the pickle count. Metadata, and structure that flat names cannot
//! express (see [`weighbridge_core::checkpoint::Metadata::INDEX_KEY`]), are in the member
//! `archive/.data/weighbridge.metadata`, which torch ignores.

mod composite;
mod dcp;
mod deepspeed;
mod header_members;
mod metadata;
mod outline;
mod read;
#[cfg(feature = "scan")]
mod scan;
mod shards;
#[cfg(test)]
mod tests;
mod walk;
mod write;

pub use dcp::Dcp;
pub use deepspeed::DeepSpeed;
use std::path::Path;
use weighbridge_core::ErrorCode;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Metadata, Origin};
use weighbridge_format::shards::{ShardIndex, alone};

/// Key of the module versions, in a state dict and in the metadata.
const VERSIONS: &str = Metadata::MODULE_VERSIONS;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::{DType, Order};
#[cfg(feature = "scan")]
use weighbridge_format::shards::scan as scan_index;
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat,
    RowNameSupport, Salvage, WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef};
use weighbridge_torch_archive::is_legacy;
use weighbridge_zip as zip;

/// The PyTorch format.
#[derive(Debug)]
pub struct Torch;

/// Kind: a dict of tensors only.
const STATE_DICT: &str = "state_dict";
/// Kind: anything else.
const OBJECT: &str = "object";
/// Kind: a folder of several files with an index.
const SHARDED: &str = "sharded";
/// Archive member for the metadata that torch cannot hold.
const METADATA: &str = ".data/weighbridge.metadata";

static INFO: FormatInfo = FormatInfo {
    id: "torch",
    title: "PyTorch (torch.save)",
    coverage: Coverage {
        name: "PyTorch",
        read: "`.pt`, `.pth`, `.bin`: zip and legacy files, nested objects, quantized and sparse tensors, shards, tensors of TorchScript",
        written: "zip files with a flat state dict",
        not_read: "TorchScript code, tar files before 0.1.10",
    },
    extensions: &[("pt", STATE_DICT), ("pth", STATE_DICT)],
    dtypes: &DTYPES,
    order: Some(Order::Row),
    settings: &[],
};

const DTYPES: [DType; 20] = [
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
    DType::BF16,
    DType::F32,
    DType::F64,
    DType::C64,
    DType::C128,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::F8E8M0,
    DType::F8E4M3Fnuz,
    DType::F8E5M2Fnuz,
];

/// Returns true if the tensors come from a structure beyond a state dict, also through another format.
pub fn was_object(checkpoint: &Checkpoint) -> bool {
    let carried = checkpoint.carried_origin().map(|origin| (origin.format.as_str(), origin.kind.as_str()));
    (checkpoint.format, checkpoint.kind) == (INFO.id, OBJECT) || carried == Some((INFO.id, OBJECT))
}

/// Marks a merged checkpoint that includes such a structure.
pub fn mark_object(checkpoint: &mut Checkpoint) {
    checkpoint.origin = Some(Origin { format: INFO.id.to_owned(), kind: OBJECT.to_owned() });
    if checkpoint.format == INFO.id {
        checkpoint.kind = OBJECT;
    }
}

/// Returns true for a truncated archive (without a directory) that begins like one of torch; the reader reports the truncation.
fn is_cut(source: &SourceRef, of_torch: impl Fn(&str) -> bool) -> bool {
    !zip::has_member(source, &Limits::default(), |_| true)
        && zip::first_member(source, 0).is_some_and(|(name, _)| of_torch(&name))
}

impl Format for Torch {
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

impl Detect for Torch {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        let of_torch = |name: &str| match name.strip_suffix("data.pkl") {
            Some(folder) => folder.is_empty() || folder.find('/') == Some(folder.len() - 1),
            None => false,
        };
        is_legacy(head)
            || read::is_torch_tar(head)
            || shards::is_index(head, source)
            || (head.starts_with(b"PK\x03\x04")
                && (zip::has_member(source, &Limits::default(), of_torch) || is_cut(source, of_torch)))
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        // Opening reports several indexes as an error.
        match shards::index_name(folder) {
            Ok(name) => name.is_some(),
            Err(error) => error.code() == ErrorCode::SeveralModels,
        }
    }
}

impl ReadFormat for Torch {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        match ShardIndex::is_index_file(&source)? {
            true => alone(&source),
            false => read::open(&source, options),
        }
    }

    fn open_beside(
        &self,
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        if !ShardIndex::is_index_file(&source)? {
            return read::open(&source, options);
        }
        let around = name.parent().unwrap_or(Path::new(""));
        shards::open_index(&source, folder, around, source.label(), options)
    }

    fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        shards::open_folder(folder, options)
    }
}

impl WriteFormat for Torch {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }

    fn labels_in(&self) -> RowNameSupport {
        RowNameSupport::Tensors
    }

    fn supports_shared_storage(&self) -> bool {
        true
    }

    fn loaded_as(&self) -> Option<(&'static str, &'static str)> {
        Some(("pytorch_model", "bin"))
    }
}

impl Salvage for Torch {
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        match *place {
            Input::Folder(folder) => self.open_folder(folder, options).map(Some),
            Input::Beside(source, folder, name) if ShardIndex::is_index_file(source)? => {
                self.open_beside(source.clone(), folder, name, options).map(Some)
            }
            Input::Alone(source) | Input::Beside(source, ..) => {
                read::salvage(source, error, options).map(Some)
            }
        }
    }
}

impl DeepCheck for Torch {
    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        match ShardIndex::is_index_file(source)? {
            true => weighbridge_format::outline::text(source, "index of shards"),
            false => outline::outline(source, limits),
        }
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Torch {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        match ShardIndex::is_index_file(source)? {
            true => scan_index(source, &options.limits).or_else(Scan::of_error),
            false => scan::scan(source, options),
        }
    }
}

/// The formats of this crate as a registry, for tests.
#[cfg(test)]
pub(crate) mod opening {
    use std::path::Path;
    use weighbridge_core::Checkpoint;
    use weighbridge_core::Result;
    use weighbridge_core::source::{FolderRef, SourceRef};
    use weighbridge_format::{Format, OpenOptions, Registry};

    fn registry() -> Registry {
        Registry::new([&crate::Dcp as _, &crate::DeepSpeed as _, &crate::Torch as _])
    }

    pub(crate) fn detect(source: &SourceRef) -> Result<&'static dyn Format> {
        registry().detect(source)
    }

    pub(crate) fn open_folder(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        registry().open_folder(folder, options)
    }

    pub(crate) fn open_in_folder(
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        registry().open_in_folder(source, folder, name, options)
    }

    pub(crate) fn open_source(source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        registry().open_source(source, options)
    }
}
