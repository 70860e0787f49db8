//! Reader: folder of shards to one checkpoint.

use super::super::read::{self, Contents};
use super::super::{SHARDED, salvage};
use super::names::{Shard, is_file_name, is_list_name};
use serde_json::Value as Json;
use std::collections::HashSet;
use std::path::Path;
use weighbridge_core::NoteCode;
use weighbridge_core::checkpoint::{Checkpoint, Damage, Note, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::and_more;
use weighbridge_format::OpenOptions;
use weighbridge_format::shards::{
    IndexName, Joint, Part, Reader, ShardIndex, enumerated, file_names, open_index, short,
};
use weighbridge_io::source::{FolderRef, SourceRef};

/// Maximum number of missing shards that are named; more are counted.
const MAX_NAMED: usize = 5;

/// True for a folder that contains a shard index or a shard.
pub(in super::super) fn recognises_folder(folder: &FolderRef) -> bool {
    let ours = |name: &str| is_list_name(name) || Shard::parse(name).is_some();
    file_names(folder).is_ok_and(|names| names.iter().any(|name| ours(name)))
}

/// Opens the shards of a folder, by its shard index, or by the file names if there is none.
///
/// # Errors
/// As [`open_list`]; [`weighbridge_core::Kind::Usage`], `several-models`, where the folder contains several
/// models.
pub(in super::super) fn open_folder(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let names = file_names(folder)?;
    let mut lists: Vec<&String> = names.iter().filter(|name| is_list_name(name)).collect();
    // Without a requested variant, loaders use the index without a variant.
    let is_plain = |name: &str| IndexName::parse(name).is_some_and(|list| list.variant.is_none());
    if lists.iter().filter(|name| is_plain(name)).count() == 1 {
        lists.retain(|name| is_plain(name));
    }
    let [name] = lists.as_slice() else {
        return match lists.is_empty() {
            true => family(folder, &names, options),
            false => Err(several(folder, "shard indexes", lists.into_iter())),
        };
    };
    let Some(source) = folder.open(Path::new(name))? else { return Err(vanished(name)) };
    let (mut checkpoint, index) = match listed(&source, folder, Path::new(""), folder.label(), options) {
        // The file names identify the shards of a model.
        Err(error)
            if options.salvage
                && Damage::is(&error)
                && ShardIndex::read(&source, &options.limits).is_err() =>
        {
            let mut checkpoint = family(folder, &names, options)?;
            checkpoint.files.push(source);
            return Ok(checkpoint);
        }
        opened => opened?,
    };
    let named: HashSet<&str> = index.files.iter().map(String::as_str).collect();
    let others = names.iter().filter(|name| is_file_name(name) && !named.contains(name.as_str()));
    if let Some(text) = enumerated(others) {
        let text = format!("safetensors files skipped, not in the shard index: {text}");
        checkpoint.notes.push(Note::omission("not-listed", text));
    }
    Ok(checkpoint)
}

/// Opens the shards of the index `source`, in the same folder.
///
/// # Errors
/// As [`open_index`], and as for one file.
pub(in super::super) fn open_list(
    source: &SourceRef,
    folder: &FolderRef,
    name: &Path,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let around = name.parent().unwrap_or(Path::new(""));
    Ok(listed(source, folder, around, source.label(), options)?.0)
}

/// Opens the only family of shards among these file names.
fn family(folder: &FolderRef, names: &[String], options: &OpenOptions) -> Result<Checkpoint> {
    with_reader(options, |reader| joined(folder, names, reader))
}

fn joined(folder: &FolderRef, names: &[String], reader: Reader<'_>) -> Result<Checkpoint> {
    let mut shards: Vec<(Shard<'_>, &String)> =
        names.iter().filter_map(|name| Some((Shard::parse(name)?, name))).collect();
    shards.sort();
    let Some(&(first, _)) = shards.first() else {
        return Err(Error::usage("no-shards", "the folder contains no safetensors shards"));
    };
    let of_another = |shard: &Shard<'_>| (shard.stem, shard.of) != (first.stem, first.of);
    if shards.iter().any(|(shard, _)| of_another(shard)) {
        let mut stems = shards.iter().map(|(shard, name)| (of_another(shard), *name));
        let examples = [stems.next(), stems.find(|(other, _)| *other)];
        return Err(several(
            folder,
            "families of shards",
            examples.into_iter().flatten().map(|(_, name)| name),
        ));
    }
    let mut joint = Joint::new(Checkpoint::new("safetensors", SHARDED, folder.label()), reader);
    let there: HashSet<u64> = shards.iter().map(|(shard, _)| shard.number).collect();
    // Shard counts are untrusted: only the missing shards to be named are enumerated.
    let lost = (1..=first.of).filter(|number| !there.contains(number));
    let count = first.of.saturating_sub(there.len() as u64);
    let shown: Vec<String> = lost.take(MAX_NAMED).map(|number| Shard { number, ..first }.name()).collect();
    let more = count.saturating_sub(shown.len() as u64);
    let named = and_more(shown.join(", "), more);
    joint.miss((count > 0).then(|| named.clone()))?;
    if reader.options.salvage && count > 0 {
        let error = Error::corrupt("shard-missing", "the shard of these tensors is missing");
        joint.lose(&format!("(tensors of {named})"), &error);
    }
    let text = "the shard index is missing; shards are identified by their file names";
    joint.note(Note::new("list-missing", text));
    for (place, (_, name)) in shards.iter().enumerate() {
        let Some(source) = folder.open(Path::new(name))? else { return Err(vanished(name)) };
        joint.add(place, &source, None)?;
    }
    let others = names.iter().filter(|name| is_file_name(name) && Shard::parse(name).is_none());
    if let Some(text) = enumerated(others) {
        let text = format!("safetensors files skipped, not shards of the model: {text}");
        joint.note(Note::omission("not-listed", text));
    }
    Ok(joint.checkpoint())
}

/// Calls `work` with the reader of a single shard.
fn with_reader<T>(options: &OpenOptions, work: impl FnOnce(Reader<'_>) -> T) -> T {
    let part = |contents: Contents, label: &str| {
        let Contents { tensors, names, metadata, notes } = contents;
        let mut checkpoint = Checkpoint::new("safetensors", SHARDED, label);
        (checkpoint.tensors, checkpoint.notes) = (tensors, notes);
        checkpoint.metadata = metadata.into_iter().map(|(key, text)| (key, Value::Text(text))).collect();
        Part { checkpoint, names }
    };
    let open = |source: &SourceRef| Ok(part(read::contents(source, options, true)?, source.label()));
    let salvage = |source: &SourceRef, error: &Error| {
        let saved = salvage::contents(source, options).ok()?;
        let mut part = part(saved.contents, source.label());
        saved.lost.iter().for_each(|(name, error)| part.checkpoint.lose(name, error));
        part.checkpoint.damage_mut(error);
        Some(part)
    };
    work(Reader { open: &open, salvage: &salvage, options })
}

/// Opens the shards of the index `source`, below `around`.
fn listed(
    source: &SourceRef,
    folder: &FolderRef,
    around: &Path,
    label: &str,
    options: &OpenOptions,
) -> Result<(Checkpoint, ShardIndex)> {
    let whole = Checkpoint::new("safetensors", SHARDED, label);
    let (mut checkpoint, index) =
        with_reader(options, |reader| open_index(source, folder, around, whole, reader))?;
    if checkpoint.notes.iter().all(|note| note.code != NoteCode::ShardMissing) {
        checkpoint.notes.extend(total(&checkpoint, &index));
    }
    Ok((checkpoint, index))
}

/// Note about a total size in the index that differs from that of the tensors.
fn total(checkpoint: &Checkpoint, index: &ShardIndex) -> Option<Note> {
    let stated = index.total_size.as_ref()?;
    let total = checkpoint.tensors.iter().fold(0u64, |sum, tensor| sum.saturating_add(tensor.bytes()));
    // Some writers use a float.
    let same = match (stated, stated.as_u64()) {
        (_, Some(stated)) => stated == total,
        (Json::Number(stated), None) => stated.as_f64() == Some(total as f64),
        _ => false,
    };
    let text =
        format!("the tensors have {total} bytes, the shard index states {}", short(&stated.to_string()));
    (!same).then(|| Note::new("total-size-differs", text))
}

fn vanished(name: &str) -> Error {
    Error::corrupt("shard-missing", "the file was removed while the folder was read").found(escape_text(name))
}

fn several<'a>(folder: &FolderRef, what: &str, names: impl Iterator<Item = &'a String>) -> Error {
    Error::usage("several-models", format!("the folder contains several {what}"))
        .in_file(folder.label())
        .found(enumerated(names).unwrap_or_default())
        .hint(
            "give the path of one shard index (.safetensors.index.json), or put each model into a folder of its own",
        )
}
