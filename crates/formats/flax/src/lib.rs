//! Checkpoints of Flax and Orbax, the libraries of models in JAX.
//!
//! # Flax
//!
//! A tree of nested maps in MessagePack, as `flax.serialization.to_bytes` writes it:
//!
//! ```text
//! map      keys are strings; lists and tuples are maps with the keys "0", "1", ...
//! ext 1    array: [shape, dtype name, bytes], in MessagePack again; row-major, little-endian
//! ext 3    scalar of numpy: the same, with the shape []
//! ext 2    complex number of Python: [real, imaginary]
//! others   nil, bool, int, float64, str, bin
//! ```
//!
//! An array above 1 GiB is a map: `{"__msgpack_chunked_array__": true, "shape": {"0": 2, ...}, "chunks": {"0": array, ...}}`. The keys on the
//! way to an array are its path. Other values are metadata, and their places in the tree are the metadata `flax.leaves`: a file that is
//! written unchanged has the same bytes.
//!
//! # Orbax
//!
//! A folder that describes its tree in `_METADATA` and stores each array in Zarr, either in one key-value store (OCDBT) or in a folder
//! per array. See [`Orbax`].

mod array;
mod dtypes;
mod keys;
mod orbax;
mod read;
mod roles;
mod shards;
#[cfg(test)]
mod tests;
mod tree;
mod write;

pub use orbax::Orbax;

use std::path::Path;
use weighbridge_core::ErrorCode;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::Order;
#[cfg(feature = "scan")]
use weighbridge_format::shards::scan as scan_index;
use weighbridge_format::shards::{ShardIndex, alone};
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat, Salvage,
    WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef};

/// The format of Flax.
#[derive(Debug)]
pub struct Flax;

/// Kind: a tree of maps.
const TREE: &str = "state_dict";
/// Kind: one array without a map.
const ARRAY_KIND: &str = "array";
/// Kind: a folder of several files with an index.
const SHARDED: &str = "sharded";

static INFO: FormatInfo = FormatInfo {
    id: "flax",
    title: "Flax checkpoint (MessagePack)",
    coverage: Coverage {
        name: "Flax",
        read: "trees of arrays in MessagePack, train states, shards with an index; optimizer state of optax",
        written: "yes, except shards",
        not_read: "`int4` and other dtypes that no other format has",
    },
    extensions: &[("msgpack", TREE)],
    dtypes: &dtypes::DTYPES,
    order: Some(Order::Row),
    settings: &[],
};

impl Format for Flax {
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

impl Detect for Flax {
    /// Accepts maps with string keys down to the first array. A shard index is JSON.
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        let may_begin = matches!(head.first(), Some(0x80..=0x9f | 0xc7..=0xc9 | 0xd4..=0xd8 | 0xdc..=0xdf));
        shards::is_index(head, source) || (may_begin && crate::tree::is_tree(source))
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        // Opening reports several indexes as an error.
        match shards::index_name(folder) {
            Ok(name) => name.is_some(),
            Err(error) => error.code() == ErrorCode::SeveralModels,
        }
    }
}

impl ReadFormat for Flax {
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

    fn is_format_metadata(&self, key: &str, _: &Value) -> bool {
        read::is_format_metadata(key)
    }
}

impl WriteFormat for Flax {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }

    fn loaded_as(&self) -> Option<(&'static str, &'static str)> {
        Some(("flax_model", "msgpack"))
    }
}

impl Salvage for Flax {
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

impl DeepCheck for Flax {
    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        match ShardIndex::is_index_file(source)? {
            true => weighbridge_format::outline::text(source, "index of shards"),
            false => read::outline(source, limits),
        }
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Flax {
    /// Flax executes nothing from a file: only names of tensors can be harmful, in programs that export them as files.
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        let scanned = match ShardIndex::is_index_file(source)? {
            true => scan_index(source, &options.limits),
            false => read::open(source, options).map(|checkpoint| Scan::of_notes(&checkpoint)),
        };
        scanned.or_else(Scan::of_error)
    }
}
