//! Joining of an index and its shards to one checkpoint.

use super::ShardIndex;
use crate::OpenOptions;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use weighbridge_core::checkpoint::{Checkpoint, Damage, Metadata, Note, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase::Opt;
use weighbridge_core::text::{counted, escape, first_and_more};
use weighbridge_core::{NoteCode, phrase};
use weighbridge_io::source::{FolderRef, SourceRef, check_shard};

/// Maximum number of names listed in a message; further ones are counted.
const MAX_NAMED: usize = 5;

/// Opened shard.
pub struct Part {
    /// Checkpoint of the shard.
    pub checkpoint: Checkpoint,
    /// Names of its tensors in an index.
    pub names: Vec<String>,
}

/// Reader of single shards.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// Opens a shard.
    pub open: &'a dyn Fn(&SourceRef) -> Result<Part>,
    /// Opens the intact tensors of a shard that `open` rejects with that error; `None` if there are none.
    pub salvage: &'a dyn Fn(&SourceRef, &Error) -> Option<Part>,
    /// Options of opening.
    pub options: &'a OpenOptions,
}

/// Opens the shards that the index `source` names below `around` in `folder`, and adds them to `whole`.
///
/// # Errors
/// As [`ShardIndex::read`] and [`Reader`]; [`weighbridge_core::Kind::Corrupt`]: `unsafe-name` for a name outside the folder,
/// `shard-missing`, `tensor-missing`, `tensor-twice`, `wrong-shard`. In a lenient open, the last four are notes.
pub fn open_index(
    source: &SourceRef,
    folder: &FolderRef,
    around: &Path,
    whole: Checkpoint,
    reader: Reader<'_>,
) -> Result<(Checkpoint, ShardIndex)> {
    let named = |error: Error| error.in_file(source.label());
    let index = ShardIndex::read(source, &reader.options.limits).map_err(named)?;
    let mut joint = Joint::new(whole, reader);
    joint.add_index(&index, folder, around).map_err(named)?;
    let mut checkpoint = joint.checkpoint();
    checkpoint.files.push(source.clone());
    Ok((checkpoint, index))
}

/// Joined checkpoint of several shards, under construction.
pub struct Joint<'a> {
    whole: Checkpoint,
    reader: Reader<'a>,
    /// Names of the tensors.
    names: Vec<String>,
    /// Number of the shard of each tensor, and labels of the shards.
    found_in: Vec<usize>,
    labels: HashMap<usize, String>,
    /// Index of each name in these lists.
    places: HashMap<String, usize>,
    metadata: Vec<(String, Value)>,
    /// Index of each metadata key: there may be many shards and keys.
    keys: HashMap<String, usize>,
    /// Shards without a readable tensor, with their errors.
    gone: HashMap<usize, Error>,
    /// Number of tensors in the index.
    expected: Option<u64>,
}

impl<'a> Joint<'a> {
    /// Creates a joint of shards read by `reader` and added to `whole`.
    pub fn new(whole: Checkpoint, reader: Reader<'a>) -> Self {
        Self {
            whole,
            reader,
            names: Vec::new(),
            found_in: Vec::new(),
            labels: HashMap::new(),
            places: HashMap::new(),
            metadata: Vec::new(),
            keys: HashMap::new(),
            gone: HashMap::new(),
            expected: None,
        }
    }

    /// Adds the shards of an index, and compares them with it.
    fn add_index(&mut self, index: &ShardIndex, folder: &FolderRef, around: &Path) -> Result<()> {
        self.whole.notes.extend(index.notes.iter().cloned());
        self.expected = Some(index.tensors.len() as u64);
        let mut shards = Vec::with_capacity(index.files.len());
        for (number, file) in index.files.iter().enumerate() {
            check_shard(folder, around, file)?;
            match folder.open(&around.join(file))? {
                Some(source) => shards.push((number, source)),
                None => {
                    let text = format!("missing shard {}", escape_text(file));
                    self.gone.insert(number, Error::corrupt("shard-missing", text));
                }
            }
        }
        let missing = index.files.iter().enumerate().filter(|(number, _)| self.gone.contains_key(number));
        self.miss(enumerated(missing.map(|(_, file)| file)))?;
        self.add_metadata(index.metadata.iter().cloned());
        // Sorted by name, as in a folder without an index.
        shards.sort_by_key(|&(number, _)| &index.files[number]);
        let numbers: HashMap<&str, usize> =
            index.tensors.iter().map(|(name, number)| (name.as_str(), *number)).collect();
        for (number, source) in &shards {
            self.add(*number, source, Some(&numbers))?;
        }
        self.compare(index)
    }

    /// Reports missing shards: an error, or a note in a lenient open.
    pub fn miss(&mut self, files: Option<String>) -> Result<()> {
        let Some(files) = files else { return Ok(()) };
        if !self.reader.options.lenient {
            return Err(Error::corrupt("shard-missing", "shards are missing")
                .found(format_args!("no {files}"))
                .hint(phrase!["the download may be incomplete; ", Opt::Lenient, " opens the other shards"]));
        }
        self.whole.notes.push(Note::omission("shard-missing", format!("missing shards: {files}")));
        Ok(())
    }

    /// Records a lost tensor.
    pub fn lose(&mut self, name: &str, error: &Error) {
        self.whole.lose(name, error);
    }

    /// Adds a note.
    pub fn note(&mut self, note: Note) {
        self.whole.notes.push(note);
    }

    /// Adds the shard of that number. `numbers` maps tensor names to the numbers of their shards in the index.
    pub fn add(
        &mut self,
        number: usize,
        source: &SourceRef,
        numbers: Option<&HashMap<&str, usize>>,
    ) -> Result<()> {
        let Reader { open, options, .. } = self.reader;
        let label = source.label();
        self.whole.files.push(source.clone());
        let Part { checkpoint: part, names } = match open(source) {
            Ok(mut part) => {
                // A truncated pickle yields the tensors before the end.
                if let Some(damage) = part.checkpoint.damage.take() {
                    let text = format!("the shard {} is damaged: {}", escape_text(label), damage.text);
                    self.note(Note::omission(damage.code, text));
                    self.gone
                        .insert(number, Error::corrupt(damage.code, damage.text.as_str()).in_file(label));
                    self.damaged(source, *damage);
                }
                part
            }
            Err(error) if options.salvage && Damage::is(&error) => {
                match self.salvage(number, source, error.in_file(label), numbers) {
                    Some(part) => part,
                    None => return Ok(()),
                }
            }
            Err(error) => return Err(error.in_file(label)),
        };
        let count = (self.names.len() as u64).saturating_add(names.len() as u64);
        Limits::check("tensors", "tensors", count, options.limits.tensors)?;
        self.labels.insert(number, label.to_owned());
        for (tensor, name) in part.tensors.into_iter().zip(names) {
            let Some(&place) = self.places.get(&name) else {
                self.places.insert(name.clone(), self.names.len());
                self.whole.tensors.push(tensor);
                self.names.push(name);
                self.found_in.push(number);
                continue;
            };
            let other = self.label_of(place).to_owned();
            if !options.lenient {
                return Err(Error::corrupt("tensor-twice", "two shards contain a tensor of this name")
                    .in_file(label)
                    .on_tensor(escape_text(&name))
                    .found(format_args!("another one in {other}"))
                    .hint(phrase![
                        "readers differ in the one they use; ",
                        Opt::Lenient,
                        " uses the one in the index"
                    ]));
            }
            let ours = numbers.and_then(|numbers| numbers.get(name.as_str())) == Some(&number);
            let (taken, left) = if ours { (label, other.as_str()) } else { (other.as_str(), label) };
            let text = format!("{}: in two shards; {taken} is used, {left} ignored", escape_text(&name));
            self.whole.notes.push(Note::omission("tensor-twice", text));
            if ours {
                self.whole.tensors[place] = tensor;
                self.found_in[place] = number;
            }
        }
        let notes = part.notes.into_iter();
        self.whole
            .notes
            .extend(notes.map(|note| Note { text: phrase![format_args!("{label}: "), note.text], ..note }));
        self.add_metadata(part.metadata.iter().map(|(key, value)| (key.to_owned(), value.clone())));
        if self.whole.origin.is_none() {
            self.whole.origin = part.origin;
        }
        Ok(())
    }

    /// Returns the intact tensors of a damaged shard; `None` if there are none.
    fn salvage(
        &mut self,
        number: usize,
        source: &SourceRef,
        error: Error,
        numbers: Option<&HashMap<&str, usize>>,
    ) -> Option<Part> {
        let text = format!("the shard {} is damaged: {}", escape_text(source.label()), error.message());
        self.whole.notes.push(Note::omission(error.code(), text));
        let Some(mut part) = (self.reader.salvage)(source, &error) else {
            // Tensors in the index are listed when it is compared.
            if numbers.is_none_or(|numbers| numbers.values().all(|&other| other != number)) {
                self.lose(&format!("(tensors of {})", source.label()), &error);
            }
            self.gone.insert(number, error);
            return None;
        };
        if let Some(damage) = part.checkpoint.damage.take() {
            self.whole.damage_mut(&error);
            self.damaged(source, *damage);
        }
        Some(part)
    }

    /// Adds the damage of a shard.
    fn damaged(&mut self, source: &SourceRef, mut damage: Damage) {
        for lost in &mut damage.lost {
            lost.file.get_or_insert_with(|| source.label().to_owned());
        }
        match &mut self.whole.damage {
            Some(whole) => {
                whole.lost.append(&mut damage.lost);
                whole.unnamed |= damage.unnamed;
            }
            none => {
                damage.file.get_or_insert_with(|| source.label().to_owned());
                *none = Some(Box::new(Damage { expected: None, ..damage }));
            }
        }
    }

    fn label_of(&self, place: usize) -> &str {
        let number = self.found_in.get(place);
        number.and_then(|number| self.labels.get(number)).map_or("", String::as_str)
    }

    /// Adds metadata. The first value of a key counts.
    fn add_metadata(&mut self, pairs: impl IntoIterator<Item = (String, Value)>) {
        let mut differ = Vec::new();
        for (key, value) in pairs {
            match self.keys.get(&key) {
                None => {
                    self.keys.insert(key.clone(), self.metadata.len());
                    self.metadata.push((key, value));
                }
                // The bridge index of a shard is part of that of the index of shards.
                Some(_) if key == Metadata::INDEX_KEY => {}
                Some(&place) if self.metadata[place].1 != value => differ.push(key),
                Some(_) => {}
            }
        }
        if let Some(keys) = enumerated(differ.iter()) {
            let text = format!("metadata differ between the shards; the first values are used: {keys}");
            self.whole.notes.push(Note::omission(NoteCode::MetadataDiffers, text));
        }
    }

    /// Compares the tensors found with the index.
    fn compare(&mut self, index: &ShardIndex) -> Result<()> {
        let OpenOptions { lenient, salvage, .. } = *self.reader.options;
        let in_file = |number: usize| format!("in {}", escape_text(&index.files[number]));
        let (mut absent, mut elsewhere) = (Vec::new(), Vec::new());
        let known = self.whole.damage.iter().flat_map(|damage| &damage.lost);
        let known: HashSet<String> = known.map(|lost| lost.name.clone()).collect();
        for (name, number) in &index.tensors {
            match self.places.get(name) {
                Some(&place) if self.found_in[place] != *number => elsewhere.push((name, *number, place)),
                Some(_) => {}
                None if !known.contains(&escape(name)) => absent.push((name, *number)),
                None => {}
            }
        }
        let unexplained: Vec<_> =
            absent.iter().filter(|(_, number)| !self.gone.contains_key(number)).collect();
        let missing = || Error::corrupt("tensor-missing", "tensors are missing from their shards");
        if let Some(&&(name, number)) = unexplained.first().filter(|_| !lenient) {
            let text = enumerated(unexplained.iter().map(|(name, _)| *name)).unwrap_or_default();
            return Err(missing().on_tensor(escape_text(name)).expected(in_file(number)).found(
                format_args!(
                    "{}: {text}",
                    counted(unexplained.len() as u64, "missing tensor", "missing tensors")
                ),
            ));
        }
        for (name, number) in absent {
            let file = &index.files[number];
            match self.gone.get(&number) {
                Some(error) if salvage => self.whole.lose(name, error),
                None if salvage => self.whole.lose(name, &missing().in_file(file)),
                Some(error) => self.whole.notes.push(Note::skipped_tensor(name, error.message())),
                None => {
                    let reason = format!("missing from its shard {}", escape_text(file));
                    self.whole.notes.push(Note::skipped_tensor(name, reason));
                }
            }
        }
        if let Some(&(name, number, place)) = elsewhere.first() {
            let names = enumerated(elsewhere.iter().map(|(name, ..)| *name)).unwrap_or_default();
            let text = "tensors are in other shards than the index states";
            if !lenient {
                let found = format!(
                    "in {}; {}: {names}",
                    self.label_of(place),
                    counted(elsewhere.len() as u64, "misplaced tensor", "misplaced tensors")
                );
                return Err(Error::corrupt("wrong-shard", text)
                    .on_tensor(escape_text(name))
                    .expected(in_file(number))
                    .found(found)
                    .hint(phrase!["to use the actual shards, open it with ", Opt::Lenient]));
            }
            self.whole.notes.push(Note::new("wrong-shard", format!("{text}: {names}")));
        }
        let known: HashSet<&str> = index.tensors.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(names) = enumerated(self.names.iter().filter(|name| !known.contains(name.as_str()))) {
            let text = format!("tensors missing from the index: {names}");
            self.whole.notes.push(Note::new("not-in-list", text));
        }
        Ok(())
    }

    /// Returns the joined checkpoint.
    pub fn checkpoint(self) -> Checkpoint {
        let mut whole = self.whole;
        if let Some(damage) = &mut whole.damage {
            damage.expected = self.expected;
        }
        whole.restore_carried(&self.names, self.metadata);
        whole
    }
}

/// Formats the first few names, and the count of the others; `None` without names.
pub fn enumerated<'a>(names: impl Iterator<Item = &'a String>) -> Option<String> {
    let mut names = names.peekable();
    names.peek()?;
    Some(first_and_more(names.map(|name| short(name)), MAX_NAMED))
}

/// Truncates and escapes a text from a file.
pub fn short(text: &str) -> String {
    const MAX_SHOWN: usize = 200;
    escape_text(text).chars().take(MAX_SHOWN).collect()
}
