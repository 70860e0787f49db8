//! Indexes of shards that are given one by one, as a shell expands `model/*.safetensors`.

use crate::checkpoint::{Note, escape_text};
use crate::formats::safetensors::{IndexFile, IndexFiles, index_files};
use crate::limits::Limits;
use crate::source::{FolderRef, LocalFolder};
use crate::text::first_and_more;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of missing shards that are named; more are counted.
const MAX_NAMED: usize = 3;

/// Sources to merge.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Paths to open.
    pub sources: Vec<PathBuf>,
    /// Notes on indexes.
    pub notes: Vec<Note>,
    /// Tensors of shards that are not given, each with the name of its shard.
    pub absent: Vec<(String, String)>,
}

/// Replaces the shards of an index by the index beside them, where all of its shards are given. The index has common metadata
/// that no shard has. Where only some shards are given, a note states that these are not used.
pub(super) fn gather(sources: &[PathBuf], limits: &Limits) -> Gathered {
    let mut paths: Vec<Option<PathBuf>> = sources.iter().cloned().map(Some).collect();
    let mut gathered = Gathered::default();
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
            gathered.notes.push(Note::new("list-not-read", text));
        }
        // Of two indexes of the same files, the one with more files.
        lists.read.sort_by_key(|list| std::cmp::Reverse(list.files.len()));
        for list in lists.read {
            if let Some(own) = shards_of(&around, &list, &places, &mut gathered) {
                take(&around, &list, &own, (&mut paths, &mut taken), &mut gathered.notes);
            }
        }
        seen.insert(around);
    }
    gathered.sources = paths.into_iter().flatten().collect();
    gathered
}

/// Returns the indices in `sources` of the shards of an index, and of the index itself; `None` unless all shards are given.
fn shards_of(
    around: &Path,
    list: &IndexFile,
    sources: &HashMap<&Path, Vec<usize>>,
    gathered: &mut Gathered,
) -> Option<Vec<usize>> {
    let places = |name: &str| sources.get(&*around.join(name)).cloned().unwrap_or_default();
    let shards: Vec<Vec<usize>> = list.files.iter().map(|file| places(file)).collect();
    let named = shards.iter().filter(|places| !places.is_empty()).count();
    if named == 0 {
        return None;
    }
    // A shard that is given twice collides with itself, which is reported as for any file.
    if shards.iter().any(|places| places.len() != 1) {
        let is_absent = |place: usize| shards.get(place).is_some_and(Vec::is_empty);
        let absent: Vec<String> = (0..shards.len())
            .filter(|&place| is_absent(place))
            .map(|place| escape_text(&list.files[place]))
            .collect();
        if !absent.is_empty() {
            let are = if absent.len() == 1 { "is" } else { "are" };
            let text = format!(
                "{}: its metadata is not in the output, because {} {are} not given",
                shown(around, list),
                first_and_more(&absent, MAX_NAMED)
            );
            gathered.notes.push(Note::new("shards-in-part", text));
            let lost = list.tensors.iter().filter(|(_, place)| is_absent(*place));
            gathered.absent.extend(lost.map(|(name, place)| (name.clone(), list.files[*place].clone())));
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
