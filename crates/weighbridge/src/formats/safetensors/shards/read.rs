//! From a folder of shards to one index.

use super::super::SHARDED;
use super::super::read::{self, Contents};
use super::super::salvage;
use super::list::{List, read_list};
use super::names::{ListName, Shard, is_file_name, is_list_name};
use crate::checkpoint::{
    Checkpoint, Damage, INDEX_KEY, METADATA_DIFFERS, Note, TensorEntry, Value, escape_text,
};
use crate::error::{Error, Result};
use crate::formats::OpenOptions;
use crate::limits::Limits;
use crate::source::{FolderRef, SourceRef, check_shard};
use crate::text::{and_more, first_and_more};
use serde_json::Value as Json;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Names that are given one by one before they are counted.
const NAMED: usize = 5;

/// True where a list of shards, or one of the shards of a family, stands in the folder.
pub(in super::super) fn recognises_folder(folder: &FolderRef) -> bool {
    let ours = |name: &str| is_list_name(name) || Shard::parse(name).is_some();
    file_names(folder).is_ok_and(|names| names.iter().any(|name| ours(name)))
}

/// Reads the index of a folder: by the list in it, or by the names of the files where there is none.
///
/// # Errors
/// As [`open_list`]; [`crate::Kind::Usage`], `several-models`, where it is not clear which model of
/// the folder is meant.
pub(in super::super) fn open_folder(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let names = file_names(folder)?;
    let mut lists: Vec<&String> = names.iter().filter(|name| is_list_name(name)).collect();
    // Loaders that are not asked for a variant take the list without one.
    let is_plain = |name: &str| ListName::parse(name).is_some_and(|list| list.variant.is_none());
    if lists.iter().filter(|name| is_plain(name)).count() == 1 {
        lists.retain(|name| is_plain(name));
    }
    let mut list_file = None;
    let joint = match lists.as_slice() {
        [name] => {
            let Some(source) = folder.open(Path::new(name))? else { return Err(vanished(name)) };
            list_file = Some(source.clone());
            let list = match read_list(&source, &options.limits) {
                Ok(list) => list,
                // The names of the files tell which belong together.
                Err(error) if options.salvage && Damage::is(&error) => {
                    let mut checkpoint = family(folder, &names, options)?.checkpoint(folder.label());
                    checkpoint.files.push(source);
                    return Ok(checkpoint);
                }
                Err(error) => return Err(error.in_file(source.label())),
            };
            let mut joint =
                listed(folder, Path::new(""), &list, options).map_err(|e| e.in_file(source.label()))?;
            let named: HashSet<&str> = list.files.iter().map(String::as_str).collect();
            let others = names.iter().filter(|name| is_file_name(name) && !named.contains(name.as_str()));
            if let Some(text) = enumerated(others) {
                let text = format!("files of tensors that the list of shards does not name: {text}");
                joint.notes.push(Note::omission("not-listed", text));
            }
            joint
        }
        [] => family(folder, &names, options)?,
        _ => return Err(several(folder, "lists of shards", lists.into_iter())),
    };
    let mut checkpoint = joint.checkpoint(folder.label());
    checkpoint.files.extend(list_file);
    Ok(checkpoint)
}

/// Reads the index that the list `source` tells, whose shards stand beside it.
///
/// # Errors
/// As [`read_list`], and as for one file; [`crate::Kind::Corrupt`]: `unsafe-name` for a name that
/// leads out of the folder, `shard-missing`, `tensor-missing`, `tensor-twice`, `wrong-shard`;
/// [`crate::Kind::Unsupported`], `torch-shards`, for a list of other files.
pub(in super::super) fn open_list(
    source: &SourceRef,
    folder: &FolderRef,
    name: &Path,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let list = read_list(source, &options.limits)?;
    let around = name.parent().unwrap_or(Path::new(""));
    let mut checkpoint = listed(folder, around, &list, options)?.checkpoint(source.label());
    checkpoint.files.push(source.clone());
    Ok(checkpoint)
}

/// The shards that a list names, below `around`.
fn listed(folder: &FolderRef, around: &Path, list: &List, options: &OpenOptions) -> Result<Joint> {
    if !list.files.is_empty() && list.files.iter().all(|file| file.ends_with(".bin")) {
        return Err(Error::unsupported(
            "torch-shards",
            "this is a list of PyTorch files, not of safetensors",
        )
        .found(escape_text(&list.files[0]))
        .hint("open the folder that holds them"));
    }
    let mut joint = Joint { notes: list.notes.clone(), ..Joint::default() };
    let mut missing = HashSet::new();
    let mut shards = Vec::with_capacity(list.files.len());
    for (place, file) in list.files.iter().enumerate() {
        check_shard(folder, around, file)?;
        match folder.open(&around.join(file))? {
            Some(source) => shards.push((place, source)),
            None => {
                missing.insert(place);
            }
        }
    }
    let lost = list.files.iter().enumerate().filter(|(place, _)| missing.contains(place));
    joint.miss(enumerated(lost.map(|(_, file)| file)), options)?;
    for (name, _) in list.tensors.iter().filter(|(_, file)| options.salvage && missing.contains(file)) {
        let error = Error::corrupt("shard-missing", "the shard that held it is not there");
        joint.lost.push((name.clone(), error));
    }
    if !options.salvage {
        let gone = list.tensors.iter().filter(|(_, file)| missing.contains(file));
        let note = |(name, file): &(String, usize)| {
            Note::skipped_tensor(name, format!("its shard {} is not there", escape_text(&list.files[*file])))
        };
        joint.notes.extend(gone.map(note));
    }
    joint.expected = Some(list.tensors.len() as u64);
    // In the order of the names, as in a folder without a list.
    shards.sort_by_key(|&(place, _)| &list.files[place]);
    let places: HashMap<&str, usize> =
        list.tensors.iter().map(|(name, place)| (name.as_str(), *place)).collect();
    for (place, source) in &shards {
        joint.add(*place, source, Some(&places), options)?;
    }
    joint.hold_against(list, &missing, options)?;
    let shards_say = std::mem::take(&mut joint.metadata);
    joint.said.clear();
    joint.say(list.metadata.iter().cloned());
    joint.say(shards_say);
    Ok(joint)
}

/// The shards of the one family whose names are among these.
fn family(folder: &FolderRef, names: &[String], options: &OpenOptions) -> Result<Joint> {
    let mut shards: Vec<(Shard<'_>, &String)> =
        names.iter().filter_map(|name| Some((Shard::parse(name)?, name))).collect();
    shards.sort();
    let Some(&(first, _)) = shards.first() else {
        return Err(Error::usage("no-shards", "there are no shards of safetensors in this folder"));
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
    let mut joint = Joint::default();
    let there: HashSet<u64> = shards.iter().map(|(shard, _)| shard.number).collect();
    // Numbers are not believed: one more than can be shown is looked for, and those that are there.
    let lost = (1..=first.of).filter(|number| !there.contains(number));
    let count = first.of.saturating_sub(there.len() as u64);
    let shown: Vec<String> = lost.take(NAMED).map(|number| Shard { number, ..first }.name()).collect();
    let more = count.saturating_sub(shown.len() as u64);
    let named = and_more(shown.join(", "), more);
    joint.miss((count > 0).then(|| named.clone()), options)?;
    if options.salvage && count > 0 {
        let error = Error::corrupt("shard-missing", "the shard that held them is not there");
        joint.lost.push((format!("(tensors of {})", named), error));
    }
    let text = "the list of the shards is missing; their names tell which belong together";
    joint.notes.push(Note::new("list-missing", text));
    for (place, (_, name)) in shards.iter().enumerate() {
        let Some(source) = folder.open(Path::new(name))? else { return Err(vanished(name)) };
        joint.add(place, &source, None, options)?;
    }
    let others = names.iter().filter(|name| is_file_name(name) && Shard::parse(name).is_none());
    if let Some(text) = enumerated(others) {
        let text = format!("files of tensors that are none of the shards: {text}");
        joint.notes.push(Note::omission("not-listed", text));
    }
    Ok(joint)
}

/// What several files say together.
#[derive(Default)]
struct Joint {
    tensors: Vec<TensorEntry>,
    /// The names of the tensors.
    names: Vec<String>,
    /// The number of the file in which each stands, and its label.
    found_in: Vec<usize>,
    labels: HashMap<usize, String>,
    /// Where each name stands in these lists.
    places: HashMap<String, usize>,
    metadata: Vec<(String, Value)>,
    /// Where each key stands in it: kept, as shards may be many and keys too.
    said: HashMap<String, usize>,
    notes: Vec<Note>,
    /// What was not salvaged: names, and why.
    lost: Vec<(String, Error)>,
    /// How many tensors the list names.
    expected: Option<u64>,
    /// The files: one may hold no tensor.
    files: Vec<SourceRef>,
}

impl Joint {
    /// Files that are not there: an error, or a note where reading is lenient.
    fn miss(&mut self, files: Option<String>, options: &OpenOptions) -> Result<()> {
        let Some(files) = files else { return Ok(()) };
        if !options.lenient {
            return Err(Error::corrupt("shard-missing", "some of the shards are not there")
                .found(format_args!("no {files}"))
                .hint(
                    "a download may have stopped early; a lenient reading gives the tensors that are there",
                ));
        }
        self.notes.push(Note::omission("shard-missing", format!("not there: {files}")));
        Ok(())
    }

    /// Takes in the file of that number. `listed` says in which file each tensor should stand.
    fn add(
        &mut self,
        number: usize,
        source: &SourceRef,
        listed: Option<&HashMap<&str, usize>>,
        options: &OpenOptions,
    ) -> Result<()> {
        self.files.push(source.clone());
        let read = match read::contents(source, options, true) {
            Ok(read) => read,
            Err(error) if options.salvage && Damage::is(&error) => {
                let Some(read) = self.salvage(number, source, error, listed, options) else { return Ok(()) };
                read
            }
            Err(error) => return Err(error.in_file(source.label())),
        };
        let Contents { tensors, names, metadata, notes } = read;
        let all = (self.tensors.len() as u64).saturating_add(tensors.len() as u64);
        Limits::check("tensors", "tensors", all, options.limits.tensors)?;
        let label = source.label();
        self.labels.insert(number, label.to_owned());
        for (tensor, name) in tensors.into_iter().zip(names) {
            let Some(&place) = self.places.get(&name) else {
                self.places.insert(name.clone(), self.tensors.len());
                self.tensors.push(tensor);
                self.names.push(name);
                self.found_in.push(number);
                continue;
            };
            let other = self.label_of(place).to_owned();
            if !options.lenient {
                return Err(Error::corrupt("tensor-twice", "two shards hold a tensor of this name")
                    .in_file(label)
                    .on_tensor(escape_text(&name))
                    .found(format_args!("another one in {other}"))
                    .hint("readers differ in which of the two they take, so neither is believed"));
            }
            let ours = listed.and_then(|listed| listed.get(name.as_str())) == Some(&number);
            let (taken, left) = if ours { (label, other.as_str()) } else { (other.as_str(), label) };
            let text =
                format!("{}: {taken} and {left} hold it; that of the first is taken", escape_text(&name));
            self.notes.push(Note::omission("tensor-twice", text));
            if ours {
                self.tensors[place] = tensor;
                self.found_in[place] = number;
            }
        }
        self.notes
            .extend(notes.into_iter().map(|note| Note { text: format!("{label}: {}", note.text), ..note }));
        self.say(metadata.into_iter().map(|(key, text)| (key, Value::Text(text))));
        Ok(())
    }

    /// What is intact of a damaged shard; `None` where nothing is.
    fn salvage(
        &mut self,
        number: usize,
        source: &SourceRef,
        error: Error,
        listed: Option<&HashMap<&str, usize>>,
        options: &OpenOptions,
    ) -> Option<Contents> {
        let error = error.in_file(source.label());
        let text = format!("the shard {} is damaged: {}", escape_text(source.label()), error.message());
        self.notes.push(Note::omission(error.code(), text));
        match salvage::contents(source, options) {
            Ok(saved) => {
                let lost = saved.lost.into_iter();
                self.lost.extend(lost.map(|(name, error)| (name, error.in_file(source.label()))));
                Some(saved.contents)
            }
            Err(_) => {
                // Those that the list says to be in it are named one by one where it is held against.
                if listed.is_none_or(|listed| listed.values().all(|&place| place != number)) {
                    self.lost.push((format!("(tensors of {})", source.label()), error));
                }
                None
            }
        }
    }

    fn label_of(&self, place: usize) -> &str {
        let number = self.found_in.get(place);
        number.and_then(|number| self.labels.get(number)).map_or("", String::as_str)
    }

    /// Takes in metadata. What was said first stays.
    fn say(&mut self, pairs: impl IntoIterator<Item = (String, Value)>) {
        let mut differ = Vec::new();
        for (key, value) in pairs {
            match self.said.get(&key) {
                None => {
                    self.said.insert(key.clone(), self.metadata.len());
                    self.metadata.push((key, value));
                }
                // A carried index of one shard was overtaken by that of the list.
                Some(_) if key == INDEX_KEY => {}
                Some(&place) if self.metadata[place].1 != value => differ.push(key),
                Some(_) => {}
            }
        }
        if let Some(keys) = enumerated(differ.iter()) {
            let text =
                format!("metadata that differ between the files, of which the first are taken: {keys}");
            self.notes.push(Note::omission(METADATA_DIFFERS, text));
        }
    }

    /// Holds what was found against the list.
    fn hold_against(&mut self, list: &List, missing: &HashSet<usize>, options: &OpenOptions) -> Result<()> {
        let mut absent = Vec::new();
        let mut elsewhere = Vec::new();
        for (name, file) in &list.tensors {
            match self.places.get(name) {
                // That the whole file is missing was said.
                None if missing.contains(file) => {}
                None => absent.push((name, *file)),
                Some(&place) if self.found_in[place] != *file => elsewhere.push((name, *file, place)),
                Some(_) => {}
            }
        }
        if let Some(&(name, file)) = absent.first() {
            let text = enumerated(absent.iter().map(|(name, _)| *name)).unwrap_or_default();
            if !options.lenient {
                return Err(Error::corrupt(
                    "tensor-missing",
                    "a tensor is not in the shard that the list names",
                )
                .on_tensor(escape_text(name))
                .expected(format_args!("it in {}", escape_text(&list.files[file])))
                .found(format_args!("{} such tensors: {text}", absent.len())));
            }
            if options.salvage {
                let known: HashSet<String> = self.lost.iter().map(|(name, _)| name.clone()).collect();
                for &(name, file) in absent.iter().filter(|(name, _)| !known.contains(*name)) {
                    let error = Error::corrupt("tensor-missing", "it was not found in the shard of the list");
                    self.lost.push((name.clone(), error.in_file(&list.files[file])));
                }
            }
            match options.salvage {
                true => self.notes.push(Note::omission("tensor-missing", format!("in no shard: {text}"))),
                false => self.notes.extend(absent.iter().map(|(name, file)| {
                    let reason = format!("it is not in its shard {}", escape_text(&list.files[*file]));
                    Note::skipped_tensor(*name, reason)
                })),
            }
        }
        if let Some(&(name, file, place)) = elsewhere.first() {
            let text = enumerated(elsewhere.iter().map(|(name, ..)| *name)).unwrap_or_default();
            if !options.lenient {
                return Err(Error::corrupt(
                    "wrong-shard",
                    "a tensor is in another shard than the list names",
                )
                .on_tensor(escape_text(name))
                .expected(format_args!("it in {}", escape_text(&list.files[file])))
                .found(format_args!(
                    "it in {}; {} such tensors: {text}",
                    self.label_of(place),
                    elsewhere.len()
                ))
                .hint("a lenient reading takes tensors where they are"));
            }
            self.notes
                .push(Note::new("wrong-shard", format!("in another shard than the list names: {text}")));
        }
        let known: HashSet<&str> = list.tensors.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(text) = enumerated(self.names.iter().filter(|name| !known.contains(name.as_str()))) {
            let text = format!("tensors of the shards that the list does not name: {text}");
            self.notes.push(Note::new("not-in-list", text));
        }
        if missing.is_empty() {
            self.notes.extend(self.total(list));
        }
        Ok(())
    }

    /// A remark where the list has another sum of bytes than the tensors.
    fn total(&self, list: &List) -> Option<Note> {
        let said = list.total_size.as_ref()?;
        let total = self.tensors.iter().fold(0u64, |sum, tensor| sum.saturating_add(tensor.bytes()));
        // Some writers give a float.
        let same = match (said, said.as_u64()) {
            (_, Some(said)) => said == total,
            (Json::Number(said), None) => said.as_f64() == Some(total as f64),
            _ => false,
        };
        let text = format!("the tensors have {total} bytes, and the list says {}", short(&said.to_string()));
        (!same).then(|| Note::new("total-size-differs", text))
    }

    fn checkpoint(self, label: &str) -> Checkpoint {
        let mut checkpoint = Checkpoint::new("safetensors", SHARDED, label);
        checkpoint.tensors = self.tensors;
        checkpoint.notes = self.notes;
        checkpoint.files = self.files;
        for (name, error) in &self.lost {
            checkpoint.lose(name, error);
        }
        if let Some(damage) = &mut checkpoint.damage {
            damage.expected = self.expected;
        }
        read::say(&mut checkpoint, &self.names, self.metadata);
        checkpoint
    }
}

/// The names of the files of a folder, in order. Names that are not UTF-8 are none of ours.
fn file_names(folder: &FolderRef) -> Result<Vec<String>> {
    let items = folder.list(1)?;
    let names = items.iter().filter_map(|item| item.name.to_str());
    // Companions that macOS writes beside files on foreign disks.
    Ok(names.filter(|name| !name.starts_with("._")).map(str::to_owned).collect())
}

fn vanished(name: &str) -> Error {
    Error::corrupt("shard-missing", "a file was there a moment ago").found(escape_text(name))
}

fn several<'a>(folder: &FolderRef, what: &str, names: impl Iterator<Item = &'a String>) -> Error {
    Error::usage("several-models", format!("there are several {what} in this folder"))
        .in_file(folder.label())
        .found(enumerated(names).unwrap_or_default())
        .hint(
            "give the path of one list (.safetensors.index.json), or put each model into a folder of its own",
        )
}

/// Some of the names, and how many more there are; `None` where there is none.
fn enumerated<'a>(names: impl Iterator<Item = &'a String>) -> Option<String> {
    let mut names = names.peekable();
    names.peek()?;
    Some(first_and_more(names.map(|name| short(name)), NAMED))
}

/// The beginning of a text from a file, safe to show.
fn short(text: &str) -> String {
    const SHOWN: usize = 200;
    escape_text(text).chars().take(SHOWN).collect()
}
