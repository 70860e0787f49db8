//! Shards that are named one by one, as a shell does it for `model/*.safetensors`.

use crate::checkpoint::{Note, escape_text};
use crate::formats::safetensors::{ListOfShards, lists_of_shards};
use crate::limits::Limits;
use crate::source::{FolderRef, LocalFolder};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Puts the list that stands beside them in the place of shards that are all of one model: what holds of them
/// together, metadata and what names cannot say, stands there and in none of them. Where only some of them are
/// named a note says that this is not taken along.
pub(super) fn gather(sources: &[PathBuf], limits: &Limits) -> (Vec<PathBuf>, Vec<Note>) {
    let mut gathered: Vec<Option<PathBuf>> = sources.iter().cloned().map(Some).collect();
    let mut notes = Vec::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    for source in sources {
        let is_shard = source.extension().is_some_and(|extension| extension == "safetensors");
        let Some((folder, _)) = LocalFolder::around(source).filter(|_| is_shard) else { continue };
        let around = source.parent().unwrap_or(Path::new("")).to_owned();
        if seen.contains(&around) {
            continue;
        }
        let folder: FolderRef = Arc::new(folder);
        // A folder that may not be listed keeps nobody from reading a file in it.
        for list in lists_of_shards(&folder, limits).unwrap_or_default() {
            take(&around, &list, sources, &mut gathered, &mut notes);
        }
        seen.push(around);
    }
    (gathered.into_iter().flatten().collect(), notes)
}

/// Takes the shards of one list out of `gathered`, and puts the list in the place of the first of them.
fn take(
    around: &Path,
    list: &ListOfShards,
    sources: &[PathBuf],
    gathered: &mut [Option<PathBuf>],
    notes: &mut Vec<Note>,
) {
    let places = |name: &str| -> Vec<usize> {
        let path = around.join(name);
        (0..sources.len()).filter(|&place| sources[place] == path).collect()
    };
    let shards: Vec<Vec<usize>> = list.files.iter().map(|file| places(file)).collect();
    let named = shards.iter().filter(|places| !places.is_empty()).count();
    if named == 0 {
        return;
    }
    // A shard that is named twice collides with itself, which is told as of any file.
    if shards.iter().any(|places| places.len() != 1) {
        let missing = list.files.len() - named;
        if missing > 0 {
            let text = format!(
                "{}: {missing} of its shards are not named, so what it says of all of them is not taken along",
                escape_text(&around.join(&list.name).display().to_string())
            );
            notes.push(Note::new("shards-in-part", text));
        }
        return;
    }
    let mut own: Vec<usize> = shards.into_iter().flatten().chain(places(&list.name)).collect();
    own.sort_unstable();
    for (count, place) in own.into_iter().enumerate() {
        gathered[place] = (count == 0).then(|| around.join(&list.name));
    }
}
