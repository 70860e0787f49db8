//! A state dict that is cut into several files, with an index of which tensor is in which file, as transformers saves it:
//!
//! ```text
//! pytorch_model-00001-of-00002.bin     a state dict with some of the tensors
//! pytorch_model-00002-of-00002.bin     one with the others
//! pytorch_model.bin.index.json         {"metadata": {"total_size": ...}, "weight_map": {"name": "pytorch_model-00001-of-00002.bin", ...}}
//! ```

use super::{SHARDED, read};
use crate::checkpoint::{Checkpoint, METADATA_DIFFERS, Note, escape_text};
use crate::error::{Error, Result};
use crate::formats::OpenOptions;
use crate::formats::safetensors::{List, read_list};
use crate::limits::Limits;
use crate::source::{FolderRef, SourceRef, check_shard};
use crate::text::first_and_more;
use std::collections::HashMap;
use std::path::Path;

/// The end of the name of an index.
const INDEX: &str = ".bin.index.json";
/// Names that an error lists before it counts them.
const NAMED: usize = 5;

/// The name of the index in `folder`; `None` where loaders take another file of the folder.
///
/// # Errors
/// [`crate::Kind::Usage`], `several-models`, where there are several of them; what listing says.
pub(super) fn index_name(folder: &FolderRef) -> Result<Option<String>> {
    let items = folder.list(1)?;
    let names = items.iter().filter_map(|item| item.name.to_str());
    // Companions that macOS writes beside files on foreign disks.
    let names: Vec<&str> = names.filter(|name| !name.starts_with("._")).collect();
    if names.iter().any(|name| name.ends_with(".safetensors")) {
        return Ok(None);
    }
    // Loaders take the single file before the index of the same name.
    let is_whole = |stem: &str| names.iter().any(|name| name.strip_suffix(".bin") == Some(stem));
    let found: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| name.strip_suffix(INDEX).is_some_and(|stem| !is_whole(stem)))
        .collect();
    match found.as_slice() {
        [] => Ok(None),
        [name] => Ok(Some((*name).to_owned())),
        several => Err(Error::usage("several-models", "several indexes of shards are in this folder")
            .in_file(folder.label())
            .found(first_and_more(several.iter().map(|name| escape_text(name)), NAMED))
            .hint("put each model into a folder of its own")),
    }
}

/// Opens the shards in `folder` as one state dict.
///
/// # Errors
/// [`crate::Kind::Usage`], `no-shards`, where the folder has no index. [`crate::Kind::Corrupt`]: `shard-missing`,
/// `tensor-missing`, `wrong-shard`, `unsafe-name`; what reading the index and a file says.
pub(super) fn open_folder(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let missing = |name: &str| {
        Error::corrupt("shard-missing", "a file of the index is missing")
            .in_file(folder.label())
            .found(format_args!("no {}", escape_text(name)))
            .hint("the download may be incomplete")
    };
    let Some(name) = index_name(folder)? else {
        return Err(Error::usage(
            "no-shards",
            "this folder has no index of PyTorch shards (.bin.index.json)",
        )
        .in_file(folder.label()));
    };
    let source = folder.open(Path::new(&name))?.ok_or_else(|| missing(&name))?;
    let named = |error: Error| error.in_file(source.label());
    let index = read_list(&source, &options.limits).map_err(named)?;
    let mut checkpoint = Checkpoint::new("torch", SHARDED, folder.label());
    checkpoint.notes.clone_from(&index.notes);
    let mut shards: Vec<(usize, SourceRef)> = Vec::with_capacity(index.files.len());
    for (number, file) in index.files.iter().enumerate() {
        check_shard(folder, Path::new(""), file).map_err(named)?;
        shards.push((number, folder.open(Path::new(file))?.ok_or_else(|| missing(file))?));
    }
    // The order of the files is that of their names.
    shards.sort_by_key(|&(number, _)| &index.files[number]);
    let mut found: HashMap<String, usize> = HashMap::new();
    for (number, shard) in shards {
        let opened = read::open(&shard, options).map_err(|error| error.in_file(shard.label()))?;
        add(&mut checkpoint, opened, &shard, options)?;
        let known = found.len();
        for tensor in &checkpoint.tensors[known..] {
            let name = tensor.text();
            if let Some(other) = found.insert(name.clone(), number) {
                return Err(Error::corrupt("tensor-twice", "two files have a tensor of this name")
                    .in_file(shard.label())
                    .on_tensor(escape_text(&name))
                    .found(format_args!("another one in {}", escape_text(&index.files[other]))));
            }
        }
    }
    check(&index, &found, &mut checkpoint).map_err(named)?;
    checkpoint.files.push(source);
    Ok(checkpoint)
}

/// Adds what one file has to the whole.
fn add(whole: &mut Checkpoint, one: Checkpoint, shard: &SourceRef, options: &OpenOptions) -> Result<()> {
    let count = (whole.tensors.len() as u64).saturating_add(one.tensors.len() as u64);
    Limits::check("tensors", "tensors", count, options.limits.tensors)?;
    whole.tensors.extend(one.tensors);
    let label = shard.label();
    whole
        .notes
        .extend(one.notes.into_iter().map(|note| Note { text: format!("{label}: {}", note.text), ..note }));
    let mut differ = Vec::new();
    for (key, value) in one.metadata.iter() {
        match whole.metadata.get(key) {
            None => whole.metadata.set(key, value.clone()),
            Some(first) if first == value => {}
            Some(_) => differ.push(escape_text(key)),
        }
    }
    if !differ.is_empty() {
        let text = format!(
            "{label}: metadata differ from those of the first file, whose values are used: {}",
            first_and_more(differ, NAMED)
        );
        whole.notes.push(Note::omission(METADATA_DIFFERS, text));
    }
    whole.files.push(shard.clone());
    Ok(())
}

/// Compares what the files have with what the index says.
fn check(index: &List, found: &HashMap<String, usize>, checkpoint: &mut Checkpoint) -> Result<()> {
    for (name, file) in &index.tensors {
        let expected = format!("it in {}", escape_text(&index.files[*file]));
        match found.get(name) {
            Some(own) if own == file => {}
            Some(own) => {
                return Err(Error::corrupt("wrong-shard", "a tensor is in another file than the index says")
                    .on_tensor(escape_text(name))
                    .expected(expected)
                    .found(format_args!("it in {}", escape_text(&index.files[*own]))));
            }
            None => {
                return Err(Error::corrupt("tensor-missing", "a tensor of the index is in no file")
                    .on_tensor(escape_text(name))
                    .expected(expected));
            }
        }
    }
    if found.len() > index.tensors.len() {
        let known: std::collections::HashSet<&str> = index.tensors.iter().map(|(name, _)| &**name).collect();
        let mut names: Vec<&String> = found.keys().filter(|name| !known.contains(name.as_str())).collect();
        names.sort();
        let text = first_and_more(names.into_iter().map(|name| escape_text(name)), NAMED);
        checkpoint.notes.push(Note::new(
            "not-in-list",
            format!("tensors of the files that the index does not name: {text}"),
        ));
    }
    Ok(())
}
