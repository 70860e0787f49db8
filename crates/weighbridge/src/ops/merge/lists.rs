//! Indexes of shards that are given one by one, as a shell expands `model/*.safetensors`.

use crate::checkpoint::{Note, escape_text};
use crate::formats::safetensors::{IndexFile, IndexFiles, index_files};
use crate::limits::Limits;
use crate::source::{FolderRef, LocalFolder};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Replaces the shards of an index by the index beside them, where all of its shards are given. The index has common metadata
/// that no shard has. Where only some shards are given, a note states that these are not used.
pub(super) fn gather(sources: &[PathBuf], limits: &Limits) -> (Vec<PathBuf>, Vec<Note>) {
    let mut gathered: Vec<Option<PathBuf>> = sources.iter().cloned().map(Some).collect();
    let mut notes = Vec::new();
    // Files whose index was read already.
    let mut taken = vec![false; sources.len()];
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let mut places: HashMap<&Path, Vec<usize>> = HashMap::new();
    for (place, source) in sources.iter().enumerate() {
        places.entry(source).or_default().push(place);
    }
    for source in sources {
        let is_shard = source.extension().is_some_and(|extension| extension == "safetensors");
        let Some((folder, _)) = LocalFolder::around(source).filter(|_| is_shard) else { continue };
        let around = source.parent().unwrap_or(Path::new("")).to_owned();
        if seen.contains(&around) {
            continue;
        }
        let folder: FolderRef = Arc::new(folder);
        // An unreadable index does not prevent reading the shards.
        let mut lists = index_files(&folder, limits).unwrap_or_else(|error| IndexFiles {
            unread: vec![(String::new(), error)],
            ..IndexFiles::default()
        });
        for (name, error) in lists.unread {
            let text = format!(
                "{}: ignored, because it cannot be read as an index of these shards: {}",
                escape_text(&around.join(name).display().to_string()),
                error.message()
            );
            notes.push(Note::new("list-not-read", text));
        }
        // Of two indexes of the same files, the one with more files.
        lists.read.sort_by_key(|list| std::cmp::Reverse(list.files.len()));
        for list in lists.read {
            if let Some(own) = shards_of(&around, &list, &places, &mut notes) {
                take(&around, &list, &own, (&mut gathered, &mut taken), &mut notes);
            }
        }
        seen.insert(around);
    }
    (gathered.into_iter().flatten().collect(), notes)
}

/// Returns the indices in `sources` of the shards of an index, and of the index itself; `None` unless all shards are given.
fn shards_of(
    around: &Path,
    list: &IndexFile,
    sources: &HashMap<&Path, Vec<usize>>,
    notes: &mut Vec<Note>,
) -> Option<Vec<usize>> {
    let places = |name: &str| sources.get(&*around.join(name)).cloned().unwrap_or_default();
    let shards: Vec<Vec<usize>> = list.files.iter().map(|file| places(file)).collect();
    let named = shards.iter().filter(|places| !places.is_empty()).count();
    if named == 0 {
        return None;
    }
    // A shard that is given twice collides with itself, which is reported as for any file.
    if shards.iter().any(|places| places.len() != 1) {
        let missing = list.files.len() - named;
        if missing > 0 {
            let text = format!(
                "{}: {missing} of its shards are not given, so the metadata of the index is dropped",
                shown(around, list)
            );
            notes.push(Note::new("shards-in-part", text));
        }
        return None;
    }
    let mut own: Vec<usize> = shards.into_iter().flatten().chain(places(&list.name)).collect();
    own.sort_unstable();
    Some(own)
}

/// Removes the files at `places` from `gathered`, and puts their index in the place of the first one; unless one of them belongs
/// to another index.
fn take(
    around: &Path,
    list: &IndexFile,
    places: &[usize],
    (gathered, taken): (&mut [Option<PathBuf>], &mut [bool]),
    notes: &mut Vec<Note>,
) {
    if places.iter().any(|&place| taken[place]) {
        let text = format!("{}: ignored, because a larger index lists its shards, too", shown(around, list));
        notes.push(Note::new("shards-in-two-lists", text));
        return;
    }
    for (count, &place) in places.iter().enumerate() {
        gathered[place] = (count == 0).then(|| around.join(&list.name));
        taken[place] = true;
    }
}

fn shown(around: &Path, list: &IndexFile) -> String {
    escape_text(&around.join(&list.name).display().to_string())
}
