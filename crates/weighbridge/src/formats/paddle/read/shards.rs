//! States cut into shards, with an index of which file holds which tensor, as PaddleNLP writes them.
//!
//! ```text
//! model_state.pdparams.index.json            {"metadata": {"total_size": 284},
//!                                             "weight_map": {"first.weight": "model_state-00001-of-00002.pdparams", …}}
//! model_state-00001-of-00002.pdparams        a state dict each
//! model_state-00002-of-00002.pdparams
//! ```

use super::super::state;
use super::{checkpoint, merge_states};
use crate::checkpoint::{Checkpoint, Damage, Note, escape_text};
use crate::error::{Error, Result};
use crate::formats::OpenOptions;
use crate::formats::safetensors::{List, is_list, mentions, read_list};
use crate::limits::Limits;
use crate::source::{FolderRef, SourceRef, check_shard};
use crate::text::first_and_more;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Ending of an index, behind the name of the state.
const INDEX: &str = ".index.json";
/// Endings of states.
const STATES: [&str; 2] = [".pdparams", ".pdopt"];
/// Names that are given one by one before they are counted.
const NAMED: usize = 5;

/// True for the name of an index: of parameters, or of optimizer state.
pub(super) fn is_index_name(name: &str) -> bool {
    name.strip_suffix(INDEX).is_some_and(|state| STATES.iter().any(|ending| state.ends_with(ending)))
}

/// True for the name of an index of optimizer state.
pub(super) fn is_of_optimizer(name: &str) -> bool {
    name.strip_suffix(INDEX).is_some_and(|state| state.ends_with(STATES[1]))
}

/// True for an index whose files are states, by its content.
pub(in super::super) fn is_index(head: &[u8], source: &SourceRef) -> bool {
    is_list(head, source)
        && STATES.iter().any(|ending| mentions(source, &format!("{ending}\"")).unwrap_or(false))
}

/// The error for an index without its folder.
pub(super) fn alone(source: &SourceRef) -> Error {
    Error::usage("list-alone", "this is an index of shards, without the shards")
        .in_file(source.label())
        .hint("open it by its path, or open its folder")
}

/// Opens the state that the index `source` describes, whose shards are in the folder `around` of `folder`.
///
/// # Errors
/// As [`read_list`] and [`state::read`]; [`crate::Kind::Corrupt`]: `unsafe-name`, `shard-missing`, `tensor-missing`,
/// `tensor-twice`, `wrong-shard`. Where reading is lenient, the last four are notes.
pub(super) fn open(
    source: &SourceRef,
    folder: &FolderRef,
    around: &Path,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let list = read_list(source, &options.limits).map_err(|error| error.in_file(source.label()))?;
    let mut joint = Joint { whole: checkpoint("state", source.label()), places: HashMap::new() };
    joint.whole.notes.extend(list.notes.iter().cloned());
    if let Some(keys) = named(list.metadata.iter().map(|(key, _)| key)) {
        joint.whole.notes.push(Note::omission("index-metadata", format!("metadata of the index: {keys}")));
    }
    let mut gone = HashSet::new();
    for (place, file) in list.files.iter().enumerate() {
        check_shard(folder, around, file)?;
        let error = match folder.open(&around.join(file))? {
            None => missing(file),
            Some(shard) => match state::read(&shard, options) {
                Ok(part) => {
                    joint.add(part, place, &list, options).map_err(|e| e.in_file(shard.label()))?;
                    continue;
                }
                Err(error) if options.salvage && Damage::is(&error) => error,
                Err(error) => return Err(error),
            },
        };
        if !options.lenient && !options.salvage {
            return Err(error);
        }
        let text = format!("the shard {} is not read: {}", escape_text(file), error.message());
        joint.whole.notes.push(Note::omission(error.code(), text));
        for (name, _) in list.tensors.iter().filter(|(_, at)| *at == place) {
            joint.lack(name, &error, options);
        }
        gone.insert(place);
    }
    joint.hold_against(&list, &gone, options).map_err(|error| error.in_file(source.label()))?;
    let mut whole = joint.whole;
    whole.files.push(source.clone());
    Ok(whole)
}

/// Several shards as one state.
struct Joint {
    whole: Checkpoint,
    /// Number of the file of each tensor.
    places: HashMap<String, usize>,
}

impl Joint {
    /// Adds the shard with the number `place`.
    fn add(&mut self, mut part: Checkpoint, place: usize, list: &List, options: &OpenOptions) -> Result<()> {
        let mut twice = None;
        part.tensors.retain(|entry| {
            let key = state::key_of(entry);
            match self.places.get(&key) {
                None => {
                    self.places.insert(key, place);
                    true
                }
                Some(&other) => {
                    twice.get_or_insert((key, other));
                    false
                }
            }
        });
        Limits::check("tensors", "tensors", self.places.len() as u64, options.limits.tensors)?;
        if let Some((key, other)) = twice {
            let other = list.files.get(other).map_or("", String::as_str);
            let text = "two shards hold a tensor of this name";
            if !options.lenient {
                return Err(Error::corrupt("tensor-twice", text)
                    .on_tensor(escape_text(&key))
                    .found(format_args!("another one in {}", escape_text(other))));
            }
            part.notes
                .push(Note::new("tensor-twice", format!("{text}, the first is read: {}", escape_text(&key))));
        }
        let before = std::mem::replace(&mut self.whole, checkpoint("state", ""));
        let label = before.label.clone();
        // The first shard says how the state was pickled.
        self.whole = if before.origin.is_none() && before.tensors.is_empty() {
            part.notes.splice(0..0, before.notes);
            part
        } else {
            merge_states(before, part)
        };
        self.whole.label = label;
        Ok(())
    }

    /// Notes a tensor of the index that was not found.
    fn lack(&mut self, name: &str, error: &Error, options: &OpenOptions) {
        if options.salvage {
            self.whole.lose(name, error);
        } else {
            self.whole.notes.push(Note::skipped_tensor(name, error.message()));
        }
    }

    /// Compares what was found with the index; `gone` are the files that were not read.
    fn hold_against(&mut self, list: &List, gone: &HashSet<usize>, options: &OpenOptions) -> Result<()> {
        let (mut absent, mut elsewhere) = (Vec::new(), Vec::new());
        for (name, place) in &list.tensors {
            match self.places.get(name) {
                Some(found) if found == place => {}
                Some(found) => elsewhere.push((name, *place, *found)),
                None if gone.contains(place) => {}
                None => absent.push((name, *place)),
            }
        }
        let file = |place: usize| escape_text(list.files.get(place).map_or("", String::as_str));
        if let Some(&(name, place)) = absent.first() {
            let error = Error::corrupt("tensor-missing", "a tensor is not in the shard that the index names");
            let error = error.on_tensor(escape_text(name)).expected(format_args!("it in {}", file(place)));
            if !options.lenient && !options.salvage {
                return Err(error);
            }
            for (name, _) in &absent {
                self.lack(name, &error, options);
            }
        }
        if let Some(&(name, place, found)) = elsewhere.first() {
            let text = "a tensor is in another shard than the index names";
            if !options.lenient && !options.salvage {
                return Err(Error::corrupt("wrong-shard", text)
                    .on_tensor(escape_text(name))
                    .expected(format_args!("it in {}", file(place)))
                    .found(format_args!("it in {}", file(found))));
            }
            let names = named(elsewhere.iter().map(|(name, ..)| *name)).unwrap_or_default();
            self.whole.notes.push(Note::new("wrong-shard", format!("{text}: {names}")));
        }
        let known: HashSet<&str> = list.tensors.iter().map(|(name, _)| name.as_str()).collect();
        let mut extra: Vec<&String> =
            self.places.keys().filter(|key| !known.contains(key.as_str())).collect();
        extra.sort_unstable();
        if let Some(names) = named(extra.into_iter()) {
            let text = format!("tensors of the shards that the index does not name: {names}");
            self.whole.notes.push(Note::new("not-in-list", text));
        }
        Ok(())
    }
}

fn missing(file: &str) -> Error {
    Error::corrupt("shard-missing", "a shard that the index names is missing")
        .found(format_args!("no {}", escape_text(file)))
        .hint("a download may have stopped early; --lenient opens the tensors of the other shards")
}

/// Some of the names, and how many more there are; `None` where there is none.
fn named<'a>(names: impl Iterator<Item = &'a String>) -> Option<String> {
    let names: Vec<String> = names.map(|name| escape_text(name)).collect();
    (!names.is_empty()).then(|| first_and_more(names, NAMED))
}

#[cfg(test)]
mod tests {
    use super::super::super::Paddle;
    use super::*;
    use crate::engine::read_tensor;
    use crate::formats::{Format, open_folder};
    use crate::source::MemoryFolder;
    use crate::tensor::Order;
    use std::sync::Arc;

    const INDEX_FILE: &str = "model_state.pdparams.index.json";
    const FIRST: &str = "model_state-00001-of-00002.pdparams";
    const SECOND: &str = "model_state-00002-of-00002.pdparams";

    fn shard(number: u8) -> Vec<u8> {
        let path = format!(
            "{}/../../testdata/paddle/made/paddlenlp/model_state-0000{number}-of-00002.pdparams",
            env!("CARGO_MANIFEST_DIR")
        );
        #[allow(clippy::disallowed_methods)]
        std::fs::read(path).unwrap()
    }

    fn index(pairs: &[(&str, &str)]) -> Vec<u8> {
        let map: serde_json::Map<_, _> =
            pairs.iter().map(|(name, file)| ((*name).to_owned(), (*file).into())).collect();
        serde_json::json!({ "metadata": { "total_size": 284 }, "weight_map": map }).to_string().into_bytes()
    }

    const WHOLE: [(&str, &str); 10] = [
        ("first.weight", FIRST),
        ("first.bias", FIRST),
        ("second.weight", FIRST),
        ("second.bias", FIRST),
        ("norm.weight", SECOND),
        ("norm.bias", SECOND),
        ("norm._mean", SECOND),
        ("norm._variance", SECOND),
        ("out.weight", SECOND),
        ("out.bias", SECOND),
    ];

    fn open(files: &[(&str, Vec<u8>)], options: &OpenOptions) -> Result<Checkpoint> {
        let folder = files
            .iter()
            .fold(MemoryFolder::new("m"), |folder, (name, bytes)| folder.with(name, bytes.clone()));
        open_folder(&(Arc::new(folder) as FolderRef), options)
    }

    fn files(pairs: &[(&str, &str)]) -> Vec<(&'static str, Vec<u8>)> {
        vec![(INDEX_FILE, index(pairs)), (FIRST, shard(1)), (SECOND, shard(2))]
    }

    fn code(files: &[(&str, Vec<u8>)]) -> &'static str {
        open(files, &OpenOptions::default()).unwrap_err().code()
    }

    #[test]
    fn an_index_and_its_shards_are_one_state() {
        let whole = open(&files(&WHOLE), &OpenOptions::default()).unwrap();
        assert_eq!((whole.format, whole.kind, whole.label.as_str()), ("paddle", "state", "m"));
        let names: Vec<String> = whole.tensors.iter().map(|t| t.text()).collect();
        assert_eq!(names, WHOLE.map(|(name, _)| name));
        for tensor in &whole.tensors {
            read_tensor(tensor, Order::Row).unwrap();
        }
        assert_eq!(whole.notes, []);
        assert_eq!(whole.files.len(), 3);
        // The files of macOS that have the same names are none of them.
        let mut more = files(&WHOLE);
        more.push(("._model_state-00001-of-00002.pdparams", vec![0, 5, 22, 7]));
        more.push(("._model_state.pdparams.index.json", vec![0, 5, 22, 7]));
        assert_eq!(open(&more, &OpenOptions::default()).unwrap().tensors.len(), 10);
    }

    #[test]
    fn an_index_is_recognised_by_its_content() {
        let source = |bytes: Vec<u8>| Arc::new(crate::source::MemorySource::new("x", bytes)) as SourceRef;
        let of = |bytes: Vec<u8>| crate::formats::detect(&source(bytes)).unwrap().facts().id;
        assert_eq!(of(index(&WHOLE)), "paddle");
        assert_eq!(of(index(&[("a", "model-00001-of-00002.safetensors")])), "safetensors");
        let error = Paddle.open(source(index(&WHOLE)), &OpenOptions::default()).unwrap_err();
        assert_eq!(error.code(), "list-alone");
        assert_eq!(Paddle.scan(&source(index(&WHOLE)), &OpenOptions::default()).unwrap().findings, []);
    }

    #[test]
    fn shards_that_differ_from_their_index_are_refused() {
        let mut without = files(&WHOLE);
        without.remove(2);
        assert_eq!(code(&without), "shard-missing");
        let swapped: Vec<_> = WHOLE
            .iter()
            .map(|&(name, file)| (name, if name == "first.bias" { SECOND } else { file }))
            .collect();
        assert_eq!(code(&files(&swapped)), "wrong-shard");
        let mut more = WHOLE.to_vec();
        more.push(("third.weight", SECOND));
        assert_eq!(code(&files(&more)), "tensor-missing");
        let mut twice = files(&WHOLE);
        twice[2].1 = shard(1);
        assert_eq!(code(&twice), "tensor-twice");
        assert_eq!(code(&files(&[("a", "../x.pdparams")])), "unsafe-name");
        let mut damaged = files(&WHOLE);
        damaged[2].1.truncate(60);
        assert!(open(&damaged, &OpenOptions::default()).is_err());
        let salvage = OpenOptions { salvage: true, ..OpenOptions::default() };
        for files in [&without, &damaged] {
            let saved = open(files, &salvage).unwrap();
            let lost = saved.damage.as_ref().unwrap();
            assert_eq!(saved.tensors.len(), 4);
            assert!(lost.lost.iter().any(|lost| lost.name == "out.weight"), "{lost:?}");
        }
        let lenient = OpenOptions { lenient: true, ..OpenOptions::default() };
        let some = open(&without, &lenient).unwrap();
        assert!(some.notes.iter().any(|note| note.code == "shard-missing" && note.omission));
        assert_eq!(some.notes.iter().filter(|note| note.skipped.is_some()).count(), 6);
        // A tensor that the index leaves out is read.
        let fewer = open(&files(&WHOLE[..9]), &OpenOptions::default()).unwrap();
        assert_eq!((fewer.tensors.len(), fewer.notes[0].code), (10, "not-in-list"));
    }
}
