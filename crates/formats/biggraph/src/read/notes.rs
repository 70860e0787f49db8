//! What is odd about a folder, as notes. The check of the format says how much each weighs.

use super::super::config::Config;
use super::super::layout::{FileName, Listing, Orphan, OrphanReason};
use super::checkpoint::Missing;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use weighbridge_core::checkpoint::Note;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::{escape, first_and_more};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, SkipReason};

/// Names that are listed for people, at most.
const SHOWN: usize = 5;

/// Some of `names`, escaped, and how many more there are.
pub(super) fn some(names: impl IntoIterator<Item = String>) -> String {
    first_and_more(names.into_iter().map(|name| escape(&name)), SHOWN)
}

/// Partitions of the version that are not there.
///
/// # Errors
/// `partition-missing`, unless the folder is one to start training from, or `options.lenient`.
pub(super) fn missing(
    missing: &Missing,
    init: bool,
    folder: &FolderRef,
    options: &OpenOptions,
) -> Result<Vec<Note>> {
    if missing.count == 0 {
        return Ok(Vec::new());
    }
    let list = some(missing.first.iter().take(SHOWN + 1).map(FileName::to_string));
    let list = match missing.count.checked_sub(SHOWN + 1) {
        Some(more) if more > 0 => format!("{} partitions, such as {list}", missing.count),
        _ => list,
    };
    if init {
        let text = format!("not there, so that training begins with random rows: {list}");
        return Ok(vec![Note::new("partition-missing", text)]);
    }
    if options.lenient {
        return Ok(vec![Note::omission("partition-missing", format!("not there or not readable: {list}"))]);
    }
    Err(Error::corrupt("partition-missing", "partitions of the version are not there")
        .in_file(folder.label())
        .found(format_args!("no {list}"))
        .hint("resuming BigGraph would fill them with random rows without a word; lenient reading opens the rest"))
}

/// The file of parameters of the version is not there.
///
/// # Errors
/// `model-missing`, unless `options.lenient`.
pub(super) fn no_model(version: u64, folder: &FolderRef, options: &OpenOptions) -> Result<Note> {
    let name = FileName::Model { version };
    if options.lenient {
        return Ok(Note::omission("model-missing", format!("there is no {name}: no parameters are known")));
    }
    Err(Error::corrupt("model-missing", "the parameters of the version are not there")
        .in_file(folder.label())
        .found(format_args!("no {name}"))
        .hint("resuming BigGraph would start them anew without a word; lenient reading opens the rest"))
}

/// What else stands in the folder of a checkpoint of which `version` is opened.
pub(super) fn of_folder(
    folder: &FolderRef,
    listing: &Listing,
    version: u64,
    init: bool,
    config: Option<&Config>,
) -> Result<Vec<Note>> {
    let mut notes = Vec::new();
    let orphans = if init { Vec::new() } else { orphans(folder, listing, version)? };
    for (reason, code, text) in [
        (OrphanReason::Unfinished, "orphan-unfinished", "files of an iteration that did not come to its end"),
        (
            OrphanReason::LeftBehind,
            "orphan-left-behind",
            "files of an earlier version that no run will delete",
        ),
    ] {
        let names: Vec<String> =
            orphans.iter().filter(|o| o.reason == reason).map(|o| o.name.to_string()).collect();
        if !names.is_empty() {
            notes.push(Note::new(code, format!("{text}: {}", some(names))));
        }
    }
    notes.extend(snapshots(folder, listing, config)?);
    if !listing.edges.is_empty() || !listing.unfinished_edges.is_empty() {
        let text = "edges stand in the same folder and were passed over: give the path of one file of them";
        notes.push(Note::new("also-here", text));
    }
    notes.extend(strays(listing));
    Ok(notes)
}

/// The files of versions that neither count nor are opened. Which one counts says the version file,
/// whichever was asked for.
fn orphans(folder: &FolderRef, listing: &Listing, opened: u64) -> Result<Vec<Orphan>> {
    let said = match folder.open(Path::new(&FileName::Version.to_string()))? {
        Some(source) => super::super::text::read_version(&source).ok().flatten(),
        None => None,
    };
    let current = said.filter(|said| listing.versions.contains_key(said)).unwrap_or(opened);
    let of_opened = |name: &FileName| match name {
        FileName::Model { version } | FileName::Embeddings { version, .. } => *version == opened,
        _ => false,
    };
    let mut orphans = listing.orphans(current);
    orphans.retain(|orphan| !of_opened(&orphan.name));
    Ok(orphans)
}

/// Files that nobody accounts for.
pub(super) fn strays(listing: &Listing) -> Option<Note> {
    let names = listing.strays.iter().map(|path| path.display().to_string());
    let text = format!("files that are none of BigGraph's and were passed over: {}", some(names));
    (!listing.strays.is_empty()).then(|| Note::new("other-files", text))
}

/// Links that lead nowhere, here and in snapshots, and snapshots that are not whole: that lack a file which
/// the configuration of the folder asks for, or have an empty one.
fn snapshots(folder: &FolderRef, listing: &Listing, config: Option<&Config>) -> Result<Vec<Note>> {
    let mut notes = Vec::new();
    let dead = folder.skipped(2)?.into_iter().filter(|item| item.reason == SkipReason::DeadLink);
    let dead: Vec<String> = dead.map(|item| item.name.display().to_string()).collect();
    if !dead.is_empty() {
        let text = format!("links that lead nowhere, as in a folder that was moved: {}", some(dead));
        notes.push(Note::new("dead-link", text));
    }
    let items = folder.list(2)?.into_iter().filter(|item| item.len == 0);
    let empty: HashSet<PathBuf> = items.map(|item| item.name).collect();
    for (epoch, snapshot) in &listing.snapshots {
        let name = FileName::Snapshot { epoch: *epoch };
        if !snapshot.version_file {
            notes.push(Note::new("snapshot-version", format!("{name} has no version file")));
            continue;
        }
        let path = Path::new(&name.to_string()).join(FileName::Version.to_string());
        let Some(source) = folder.open(&path)? else { continue };
        let said = super::super::text::read_version(&source);
        let versions: Vec<u64> = snapshot.versions.keys().copied().collect();
        let sound = matches!(&said, Ok(Some(said)) if versions.iter().all(|v| v == said));
        if !sound {
            let text = format!("the version file of {name} does not name the version of its files");
            notes.push(Note::new("snapshot-version", text));
        }
        let Some((version, files)) = snapshot.versions.first_key_value().filter(|_| sound) else { continue };
        let empty = |file: &FileName| empty.contains(&Path::new(&name.to_string()).join(file.to_string()));
        let mut lacking: Vec<String> =
            files.names(*version).filter(empty).map(|file| file.to_string()).collect();
        if !files.model {
            lacking.push(FileName::Model { version: *version }.to_string());
        }
        for (entity, known) in config.into_iter().flat_map(Config::stored_types) {
            let has = files.embeddings.get(entity);
            let absent =
                (0..known.num_partitions).filter(|part| !has.is_some_and(|parts| parts.contains(part)));
            let file = |part| FileName::Embeddings { entity: entity.to_owned(), part, version: *version };
            lacking.extend(absent.take(SHOWN + 1).map(|part| file(part).to_string()));
        }
        if !lacking.is_empty() {
            let text = format!("{name} lacks {}", some(lacking));
            notes.push(Note::new("snapshot-incomplete", text));
        }
    }
    Ok(notes)
}
