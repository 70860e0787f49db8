//! A state dict split into several files, with an index of tensors by file, in the layout of transformers:
//!
//! ```text
//! pytorch_model-00001-of-00002.bin     a state dict with some of the tensors
//! pytorch_model-00002-of-00002.bin     a state dict with the other tensors
//! pytorch_model.bin.index.json         {"metadata": {"total_size": ...}, "weight_map": {"name": "pytorch_model-00001-of-00002.bin", ...}}
//! ```

use super::{SHARDED, read};
use std::path::Path;
use weighbridge_core::checkpoint::{Checkpoint, TensorEntry};
use weighbridge_core::error::{Error, Result};
use weighbridge_format::OpenOptions;
use weighbridge_format::shards::{self, Part, Reader, ShardIndex, enumerated, file_names};
use weighbridge_io::source::{FolderRef, SourceRef};

/// Extension of shards.
const BIN: &str = ".bin";
/// Extensions of shards of other formats.
const OTHERS: [&str; 3] = [".safetensors", ".pdparams", ".pdopt"];
/// End of the name of an index.
const INDEX: &str = ".bin.index.json";

/// Returns true for an index of PyTorch shards, by content.
pub(super) fn is_index(head: &[u8], source: &SourceRef) -> bool {
    ShardIndex::is_index(head, source)
        && ShardIndex::names_files(source, &[BIN])
        && !ShardIndex::names_files(source, &OTHERS)
}

/// Returns the name of the index in `folder`; `None` if loaders prefer another file of the folder.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `several-models`, for several indexes; errors of listing.
pub(super) fn index_name(folder: &FolderRef) -> Result<Option<String>> {
    let names = file_names(folder)?;
    if names.iter().any(|name| name.ends_with(".safetensors")) {
        return Ok(None);
    }
    // Loaders prefer a single file to the index of the same name.
    let is_whole = |stem: &str| names.iter().any(|name| name.strip_suffix(BIN) == Some(stem));
    let found: Vec<&String> =
        names.iter().filter(|name| name.strip_suffix(INDEX).is_some_and(|stem| !is_whole(stem))).collect();
    match found.as_slice() {
        [] => Ok(None),
        [name] => Ok(Some((*name).clone())),
        several => Err(Error::usage("several-models", "the folder has several shard indexes")
            .in_file(folder.label())
            .found(enumerated(several.iter().copied()).unwrap_or_default())
            .hint("move each model into a folder of its own")),
    }
}

/// Opens the shards in `folder` as one state dict.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `no-shards`, if the folder has no index; otherwise same as [`open_index`].
pub(super) fn open_folder(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let source = match index_name(folder)? {
        Some(name) => folder.open(Path::new(&name))?,
        None => None,
    };
    let Some(source) = source else {
        return Err(Error::usage("no-shards", "the folder has no PyTorch shard index (*.bin.index.json)")
            .in_file(folder.label()));
    };
    open_index(&source, folder, Path::new(""), folder.label(), options)
}

/// Opens the shards that the index `source` names, relative to `around` in `folder`.
///
/// # Errors
/// Same as [`shards::open_index`], and as for a single file.
pub(super) fn open_index(
    source: &SourceRef,
    folder: &FolderRef,
    around: &Path,
    label: &str,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let part = |checkpoint: Checkpoint| {
        let names = checkpoint.tensors.iter().map(TensorEntry::text).collect();
        Part { checkpoint, names }
    };
    let open = |shard: &SourceRef| read::open(shard, options).map(part);
    let salvage = |shard: &SourceRef, error: &Error| read::salvage(shard, error, options).ok().map(part);
    let reader = Reader { open: &open, salvage: &salvage, options };
    let whole = Checkpoint::new("torch", SHARDED, label);
    Ok(shards::open_index(source, folder, around, whole, reader)?.0)
}
