//! Notes on oddities of a folder. The check of the format assigns their severity.

use super::super::config::Config;
use super::super::layout::{FileName, Listing, Orphan, OrphanReason};
use super::checkpoint::Missing;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use weighbridge_core::checkpoint::Note;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::text::{escape, first_and_more};
use weighbridge_format::OpenOptions;
use weighbridge_io::engine::LOCK_NAME;
use weighbridge_io::source::{FolderRef, SkipReason};

/// Maximum number of names listed in a note.
const MAX_SHOWN: usize = 5;

/// Some of `names`, escaped, and the number of the others.
pub(super) fn some(names: impl IntoIterator<Item = String>) -> String {
    first_and_more(names.into_iter().map(|name| escape(&name)), MAX_SHOWN)
}

/// Note on missing partitions of the version.
///
/// # Errors
/// `partition-missing`, unless the folder is an init folder, or `options.lenient`.
pub(super) fn missing(
    missing: &Missing,
    init: bool,
    folder: &FolderRef,
    options: &OpenOptions,
) -> Result<Vec<Note>> {
    if missing.count == 0 {
        return Ok(Vec::new());
    }
    let list = some(missing.first.iter().take(MAX_SHOWN + 1).map(FileName::to_string));
    let list = match missing.count.checked_sub(MAX_SHOWN + 1) {
        Some(more) if more > 0 => format!("{} partitions, such as {list}", missing.count),
        _ => list,
    };
    if init {
        let text = format!("missing, training starts with random rows: {list}");
        return Ok(vec![Note::new("partition-missing", text)]);
    }
    if options.lenient {
        let text = match missing.count {
            1 => format!("partition file {list} is missing or unreadable; its rows are omitted"),
            _ => format!("partition files are missing or unreadable, their rows are omitted: {list}"),
        };
        return Ok(vec![Note::omission("partition-missing", text)]);
    }
    Err(Error::corrupt("partition-missing", "partitions of the version are missing")
        .in_file(folder.label())
        .found(format_args!("no {list}"))
        .hint(phrase![
            "restore the files, or use the configuration of this checkpoint: BigGraph would silently resume with random rows; ",
            Opt::Lenient,
            " opens the rest"
        ]))
}

/// Note on a missing model file of the version.
///
/// # Errors
/// `model-missing`, unless `options.lenient`.
pub(super) fn no_model(version: u64, folder: &FolderRef, options: &OpenOptions) -> Result<Note> {
    let name = FileName::Model { version };
    if options.lenient {
        return Ok(Note::omission("model-missing", format!("{name} is missing: the parameters are unknown")));
    }
    Err(Error::corrupt("model-missing", "the model file of the version is missing")
        .in_file(folder.label())
        .found(format_args!("no {name}"))
        .hint(phrase![
            "restore the file: BigGraph would silently resume with initial parameters; ",
            Opt::Lenient,
            " opens the rest"
        ]))
}

/// Notes on other content of a checkpoint folder with `version` opened.
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
        (OrphanReason::Unfinished, "orphan-unfinished", "files of an unfinished iteration"),
        (OrphanReason::LeftBehind, "orphan-left-behind", "files of an earlier version that no run deletes"),
    ] {
        let names: Vec<String> =
            orphans.iter().filter(|o| o.reason == reason).map(|o| o.name.to_string()).collect();
        if !names.is_empty() {
            notes.push(Note::new(code, format!("{text}: {}", some(names))));
        }
    }
    notes.extend(snapshots(folder, listing, config)?);
    if !listing.edges.is_empty() || !listing.unfinished_edges.is_empty() {
        let text = "edges in the same folder skipped: open the path of one edge file to read them";
        notes.push(Note::new("also-here", text));
    }
    notes.extend(strays(listing));
    Ok(notes)
}

/// Files of versions that are neither current nor opened. The version file names the current one,
/// whichever was requested.
fn orphans(folder: &FolderRef, listing: &Listing, opened: u64) -> Result<Vec<Orphan>> {
    let read_version_file = match folder.open(Path::new(&FileName::Version.to_string()))? {
        Some(source) => super::super::text::read_version(&source).ok().flatten(),
        None => None,
    };
    let current = read_version_file
        .filter(|read_version_file| listing.versions.contains_key(read_version_file))
        .unwrap_or(opened);
    let of_opened = |name: &FileName| match name {
        FileName::Model { version } | FileName::Embeddings { version, .. } => *version == opened,
        _ => false,
    };
    let mut orphans = listing.orphans(current);
    orphans.retain(|orphan| !of_opened(&orphan.name));
    Ok(orphans)
}

/// Note on unrecognized files.
pub(super) fn strays(listing: &Listing) -> Option<Note> {
    let is_lock = |path: &&PathBuf| path.file_name().is_some_and(|name| name == LOCK_NAME);
    let strays: Vec<_> = listing.strays.iter().filter(|path| !is_lock(path)).collect();
    let text =
        format!("unrecognized files skipped: {}", some(strays.iter().map(|path| path.display().to_string())));
    (!strays.is_empty()).then(|| Note::new("other-files", text))
}

/// Notes on broken links, here and in snapshots, and on incomplete snapshots: those that lack a file required
/// by the configuration of the folder, or have an empty one.
fn snapshots(folder: &FolderRef, listing: &Listing, config: Option<&Config>) -> Result<Vec<Note>> {
    let mut notes = Vec::new();
    let dead = folder.skipped(2)?.into_iter().filter(|item| item.reason == SkipReason::DeadLink);
    let dead: Vec<String> = dead.map(|item| item.name.display().to_string()).collect();
    if !dead.is_empty() {
        let text = format!("broken links, possibly after moving the folder: {}", some(dead));
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
        let read_version_file = super::super::text::read_version(&source);
        let versions: Vec<u64> = snapshot.versions.keys().copied().collect();
        let sound = matches!(&read_version_file, Ok(Some(read_version_file)) if versions.iter().all(|v| v == read_version_file));
        if !sound {
            let text = format!("the version file of {name} differs from the version of its files");
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
            lacking.extend(absent.take(MAX_SHOWN + 1).map(|part| file(part).to_string()));
        }
        if !lacking.is_empty() {
            let text = format!("{name} has missing files: {}", some(lacking));
            notes.push(Note::new("snapshot-incomplete", text));
        }
    }
    Ok(notes)
}
