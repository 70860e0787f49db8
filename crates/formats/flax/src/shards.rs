//! A tree split into several files, with an index of arrays by file, in the layout of transformers:
//!
//! ```text
//! flax_model-00001-of-00002.msgpack     a tree with some of the arrays
//! flax_model-00002-of-00002.msgpack     a tree with the others
//! flax_model.msgpack.index.json         {"metadata": {"total_size": ...}, "weight_map": {"a/kernel": "flax_model-00001-of-00002.msgpack", ...}}
//! ```

use crate::{SHARDED, read, roles};
use std::path::Path;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Result};
use weighbridge_format::OpenOptions;
use weighbridge_format::shards::{self, Part, Reader, ShardIndex, enumerated, file_names};
use weighbridge_io::source::{FolderRef, SourceRef};

/// Extension of shards.
const MSGPACK: &str = ".msgpack";
/// Extensions of shards of other formats.
const OTHERS: [&str; 4] = [".safetensors", ".bin", ".pdparams", ".pdopt"];
/// End of the name of an index.
const INDEX: &str = ".msgpack.index.json";

/// Returns true for an index of Flax shards, by content.
pub(crate) fn is_index(head: &[u8], source: &SourceRef) -> bool {
    ShardIndex::is_index(head, source)
        && ShardIndex::names_files(source, &[MSGPACK])
        && !ShardIndex::names_files(source, &OTHERS)
}

/// Returns the name of the index in `folder`; `None` if there is none, or a whole file of the same name.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `several-models`, for several indexes; errors of listing.
pub(crate) fn index_name(folder: &FolderRef) -> Result<Option<String>> {
    let names = file_names(folder)?;
    // Loaders prefer the files of these formats.
    if names.iter().any(|name| name.ends_with(".safetensors") || name.ends_with(".bin.index.json")) {
        return Ok(None);
    }
    let is_whole = |stem: &str| names.iter().any(|name| name.strip_suffix(MSGPACK) == Some(stem));
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

/// Opens the shards in `folder` as one tree.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `no-shards`, if the folder has no index; otherwise same as [`open_index`].
pub(crate) fn open_folder(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let source = match index_name(folder)? {
        Some(name) => folder.open(Path::new(&name))?,
        None => None,
    };
    let Some(source) = source else {
        return Err(Error::usage(
            "no-shards",
            "the folder has no index of Flax shards (*.msgpack.index.json)",
        )
        .in_file(folder.label()));
    };
    open_index(&source, folder, Path::new(""), folder.label(), options)
}

/// Opens the shards that the index `source` names, relative to `around` in `folder`.
///
/// # Errors
/// Same as [`shards::open_index`], and as for a single file.
pub(crate) fn open_index(
    source: &SourceRef,
    folder: &FolderRef,
    around: &Path,
    label: &str,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let part = |checkpoint: Checkpoint| {
        let names = read::shard_names(&checkpoint.tensors);
        Part { checkpoint, names }
    };
    let open = |shard: &SourceRef| read::open(shard, options).map(part);
    let salvage = |shard: &SourceRef, error: &Error| read::salvage(shard, error, options).ok().map(part);
    let reader = Reader { open: &open, salvage: &salvage, options };
    let whole = Checkpoint::new("flax", SHARDED, label);
    let (mut checkpoint, _) = shards::open_index(source, folder, around, whole, reader)?;
    roles::assign(&mut checkpoint.tensors);
    Ok(checkpoint)
}
