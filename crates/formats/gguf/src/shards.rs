//! A model split into several files, as `llama-gguf-split` and the package `gguf` write it:
//!
//! ```text
//! model-00001-of-00003.gguf     all metadata, and the first tensors
//! model-00002-of-00003.gguf     other tensors, and the keys split.no, split.count, split.tensors.count
//! ```

use crate::SHARDED;
use crate::header::Header;
use crate::read::{self, Contents};
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use weighbridge_core::checkpoint::{Checkpoint, Note, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::first_and_more;
use weighbridge_format::OpenOptions;
use weighbridge_format::shards::{Joint, Part, Reader, enumerated, file_names};
use weighbridge_io::source::{FolderRef, SourceRef};

/// Metadata key of the number of a shard, from 0.
const NUMBER: &str = "split.no";
/// Metadata key of the number of shards.
const COUNT: &str = "split.count";
/// Metadata key of the number of tensors in all shards.
const TENSORS: &str = "split.tensors.count";
/// Extension of shards.
const SUFFIX: &str = ".gguf";
/// Maximum number of missing shards named in an error.
const MAX_NAMED: usize = 5;

/// Name of a shard: `STEM-00001-of-00003.gguf`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShardName {
    /// Folder and stem.
    stem: PathBuf,
    /// Number of shards.
    pub(crate) count: u32,
    /// Number of the shard, from 1.
    pub(crate) number: u32,
}

impl ShardName {
    /// Parses a name; `None` for that of a whole model.
    pub(crate) fn of(name: &Path) -> Option<Self> {
        let digits = |text: &str| {
            let is_number = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
            is_number.then(|| text.parse::<u32>().ok()).flatten()
        };
        let text = name.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
        let (rest, count) = text.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let (number, count) = (digits(number)?, digits(count)?);
        (1..=count).contains(&number).then(|| Self { stem: name.with_file_name(stem), count, number })
    }

    fn file(&self, number: u32) -> PathBuf {
        let stem = self.stem.file_name().and_then(|stem| stem.to_str()).unwrap_or_default();
        self.stem.with_file_name(format!("{stem}-{number:05}-of-{:05}.gguf", self.count))
    }
}

/// Returns true for a file whose metadata state other shards.
///
/// # Errors
/// As [`Header::read`].
pub(crate) fn is_split(source: &SourceRef, options: &OpenOptions) -> Result<bool> {
    let header = Header::read(source, &options.limits)?;
    Ok(number(header.get(COUNT)).is_some_and(|count| count > 1))
}

/// Returns true for a folder with shards.
pub(crate) fn recognises_folder(folder: &FolderRef) -> bool {
    let is_shard = |name: &String| ShardName::of(Path::new(name)).is_some();
    file_names(folder).is_ok_and(|names| names.iter().any(is_shard))
}

/// Opens the shards of a folder as one model.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `several-models`, for shards of several models; otherwise as [`open`].
pub(crate) fn open_folder(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let names = file_names(folder)?;
    let shards = names.iter().filter_map(|name| Some((ShardName::of(Path::new(name))?, name)));
    let mut models: BTreeMap<ShardName, &String> = BTreeMap::new();
    for (shard, name) in shards {
        models.entry(ShardName { number: 1, ..shard }).or_insert(name);
    }
    match models.keys().next() {
        None => Err(Error::usage("no-shards", "the folder has no GGUF shards").in_file(folder.label())),
        Some(first) if models.len() == 1 => {
            let mut checkpoint = open(folder, first, folder.label(), options)?;
            let is_other =
                |name: &&String| name.ends_with(SUFFIX) && ShardName::of(Path::new(name)).is_none();
            if let Some(text) = enumerated(names.iter().filter(is_other)) {
                let text = format!("GGUF files skipped, not shards of the model: {text}");
                checkpoint.notes.push(Note::omission("not-listed", text));
            }
            Ok(checkpoint)
        }
        Some(_) => Err(Error::usage("several-models", "the folder has shards of several GGUF models")
            .in_file(folder.label())
            .found(enumerated(models.values().copied()).unwrap_or_default())
            .hint("give the path of the first shard of one model")),
    }
}

/// Opens the model whose first shard has that name in `folder`.
///
/// # Errors
/// As for a single file; [`weighbridge_core::Kind::Corrupt`]: `shard-missing`, `shard-mismatch` if the metadata and the name of a shard
/// differ, `tensor-twice`, `tensor-missing`.
pub(crate) fn open(
    folder: &FolderRef,
    first: &ShardName,
    label: &str,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let part = |Contents { checkpoint, names, metadata }: Contents| {
        let metadata = metadata.into_iter().collect();
        Part { checkpoint: Checkpoint { metadata, ..checkpoint }, names }
    };
    let stated = Cell::new(None);
    let read = |source: &SourceRef, error: Option<&Error>| {
        let (header, tensors) = header(source, options, first)?;
        stated.set(stated.get().or(tensors));
        read::contents(header, source, error).map(part)
    };
    let open = |source: &SourceRef| read(source, None);
    let salvage = |source: &SourceRef, error: &Error| read(source, Some(error)).ok();
    let reader = Reader { open: &open, salvage: &salvage, options };
    let mut joint = Joint::new(Checkpoint::new("gguf", SHARDED, label), reader);
    let parent = first.stem.parent().unwrap_or(Path::new(""));
    let there: HashSet<PathBuf> = present(folder, parent)?;
    let lost: Vec<u32> = (1..=first.count).filter(|&number| !there.contains(&first.file(number))).collect();
    let named = first_and_more(
        lost.iter().map(|&number| escape_text(&first.file(number).to_string_lossy())),
        MAX_NAMED,
    );
    joint.miss((!lost.is_empty()).then(|| named.clone()))?;
    if options.salvage && !lost.is_empty() {
        let error = Error::corrupt("shard-missing", "the shard of these tensors is missing");
        joint.lose(&format!("(tensors of {named})"), &error);
    }
    for number in (1..=first.count).filter(|number| !lost.contains(number)) {
        let Some(source) = folder.open(&first.file(number))? else { continue };
        joint.add(number as usize, &source, None)?;
    }
    let mut checkpoint = joint.checkpoint();
    let skipped = checkpoint.notes.iter().filter(|note| note.skipped.is_some()).count();
    let found = (checkpoint.tensors.len() + skipped) as u64;
    let is_strict = lost.is_empty() && !options.salvage && !options.lenient;
    if let Some(stated) = stated.get().filter(|&stated| is_strict && stated != found) {
        return Err(Error::corrupt(
            "tensor-missing",
            "the shards have another number of tensors than stated",
        )
        .in_file(label)
        .expected(format_args!("{stated}, the value of {TENSORS}"))
        .found(found));
    }
    read::finish(&mut checkpoint, options)?;
    Ok(checkpoint)
}

/// Returns the paths of the files of a folder.
fn present(folder: &FolderRef, parent: &Path) -> Result<HashSet<PathBuf>> {
    let depth = parent.components().count() + 1;
    Ok(folder.list(depth)?.into_iter().map(|item| item.name).collect())
}

/// Reads the header of a shard, without the keys of shards. Returns the stated number of tensors in all shards.
fn header(source: &SourceRef, options: &OpenOptions, first: &ShardName) -> Result<(Header, Option<u64>)> {
    let mut header = Header::read(source, &options.limits)?;
    let stated = number(header.get(COUNT));
    if let Some(count) = stated.filter(|&count| count != u64::from(first.count)) {
        return Err(Error::corrupt(
            "shard-mismatch",
            "the shard is of a model with another number of shards",
        )
        .in_file(source.label())
        .expected(format_args!("{}, as in the file name", first.count))
        .found(format_args!("{count}, the value of {COUNT}")));
    }
    let tensors = number(header.get(TENSORS));
    header.pairs.retain(|(key, ..)| ![NUMBER, COUNT, TENSORS].contains(&key.as_str()));
    Ok((header, tensors))
}

fn number(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::U32(n) => Some((*n).into()),
        Value::U64(n) => Some(*n),
        Value::I64(n) => u64::try_from(*n).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shards_have_five_digits() {
        let shard = ShardName::of(Path::new("a/m-q4-00002-of-00012.gguf")).unwrap();
        assert_eq!((shard.number, shard.count), (2, 12));
        assert_eq!(shard.file(7), Path::new("a/m-q4-00007-of-00012.gguf"));
        for bad in [
            "m.gguf",
            "m-2-of-3.gguf",
            "m-00000-of-00003.gguf",
            "m-00004-of-00003.gguf",
            "m-00001-of-00002.bin",
        ] {
            assert_eq!(ShardName::of(Path::new(bad)), None, "{bad}");
        }
    }
}
