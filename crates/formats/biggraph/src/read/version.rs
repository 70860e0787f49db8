//! Selection of a version of a checkpoint folder.

use super::super::config::Config;
use super::super::layout::{FileName, Listing, VersionFiles};
use super::super::text;
use crate::ReadOptions;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use weighbridge_core::checkpoint::Note;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase::{Job, Opt};
use weighbridge_core::{ErrorCode, phrase};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::FolderRef;

/// Maximum number of versions listed in an error.
const MAX_SHOWN: usize = 10;

/// Content of the version file.
enum VersionFile {
    Version(u64),
    /// No version: training would start from scratch.
    Nothing(&'static str),
    Wrong(Error),
}

/// Returns the version to open, and true if the folder is an init folder: files of version
/// 0 without a version file.
///
/// # Errors
/// `version-missing`, `version-empty` and errors of the version file, unless the caller
/// names a version; `no-such-version`. With `options.lenient` the newest complete version is
/// opened, with a note.
pub(super) fn choose(
    folder: &FolderRef,
    listing: &Listing,
    config: Option<&Config>,
    options: &OpenOptions,
) -> Result<(u64, bool, Vec<Note>)> {
    let read_version_file = read_version_file(folder, listing)?;
    let only_first = listing.versions.keys().all(|version| *version == 0) && !listing.versions.is_empty();
    if let Some(wanted) = options.own::<ReadOptions>().version {
        let init = wanted == 0 && !listing.version_file;
        if !listing.versions.contains_key(&wanted) {
            return Err(Error::usage("no-such-version", "the folder has no file of this version")
                .in_file(folder.label())
                .expected(OnDisk { listing, empty: &empty_files(folder)?, config }.describe())
                .found(wanted));
        }
        return Ok((wanted, init, Vec::new()));
    }
    let error = match read_version_file {
        VersionFile::Version(version) => match listing.versions.contains_key(&version) || version == 0 {
            true => return Ok((version, false, Vec::new())),
            false => {
                Error::corrupt("version-without-files", "the current version has no files").found(version)
            }
        },
        VersionFile::Nothing("version-missing") if only_first => return Ok((0, true, Vec::new())),
        VersionFile::Nothing(code) => {
            let fault = if code == "version-empty" { "empty" } else { "missing" };
            let text = format!(
                "the version file is {fault}: BigGraph would restart from scratch and overwrite files"
            );
            Error::corrupt(code, text)
        }
        VersionFile::Wrong(error) => {
            let again =
                Error::new(error.kind(), error.code(), format!("invalid version file: {}", error.message()));
            match error.found_text() {
                Some(found) => again.found(found),
                None => again,
            }
        }
    };
    let empty = empty_files(folder)?;
    let on_disk = OnDisk { listing, empty: &empty, config };
    let newest = on_disk.newest_complete();
    if options.lenient
        && let Some(newest) = newest
    {
        let text = format!("{}; opened version {newest}, the newest complete one", error.message());
        return Ok((newest, false, vec![Note::new(error.code(), text)]));
    }
    let error = error.in_file(Path::new(folder.label()).join(FileName::Version.to_string()).display());
    let error = error.expected(on_disk.describe());
    Err(match newest {
        Some(newest) => {
            let repair = match error.code() {
                // The version file is valid.
                ErrorCode::VersionWithoutFiles => Opt::Rollback.with(newest.to_string()),
                _ => Opt::Recover.into(),
            };
            error.hint(phrase![
                Opt::At.with(newest.to_string()),
                format_args!(" reads version {newest}; "),
                Job::Checkpoint.call().of(&["FOLDER"]).with(repair),
                " makes it current"
            ])
        }
        None => error.hint("restore missing files: no version is complete"),
    })
}

fn read_version_file(folder: &FolderRef, listing: &Listing) -> Result<VersionFile> {
    if !listing.version_file {
        return Ok(VersionFile::Nothing("version-missing"));
    }
    let Some(source) = folder.open(Path::new(&FileName::Version.to_string()))? else {
        return Ok(VersionFile::Nothing("version-missing"));
    };
    Ok(match text::read_version(&source) {
        Ok(Some(version)) => VersionFile::Version(version),
        Ok(None) => VersionFile::Nothing("version-empty"),
        Err(error) => VersionFile::Wrong(error),
    })
}

/// Names of empty files, as a crash leaves them: BigGraph files are never empty.
fn empty_files(folder: &FolderRef) -> Result<HashSet<PathBuf>> {
    Ok(folder.list(1)?.into_iter().filter(|item| item.len == 0).map(|item| item.name).collect())
}

/// Versions of a folder.
struct OnDisk<'a> {
    listing: &'a Listing,
    empty: &'a HashSet<PathBuf>,
    config: Option<&'a Config>,
}

impl OnDisk<'_> {
    /// Newest version with all its files.
    fn newest_complete(&self) -> Option<u64> {
        let complete = |(version, files): &(&u64, &VersionFiles)| self.is_complete(**version, files);
        self.listing.versions.iter().rev().find(complete).map(|(version, _)| *version)
    }

    /// True where a version has its model and all partitions: those of the types used by the
    /// configuration's relations, or else as many of each type as any version has. An empty file counts as
    /// missing.
    fn is_complete(&self, version: u64, files: &VersionFiles) -> bool {
        let all_below = |entity: &str, count: u64| {
            files.embeddings.get(entity).map_or(0, |parts| parts.range(..count).count() as u64) == count
        };
        let tables = match self.config {
            Some(config) => config.stored_types().all(|(name, e)| all_below(name, e.num_partitions)),
            None => self.listing.versions.values().flat_map(|v| &v.embeddings).all(|(entity, all)| {
                let last = all.last().map_or(0, |last| last.saturating_add(1));
                all_below(entity, last)
            }),
        };
        let is_empty = |name: FileName| self.empty.contains(Path::new(&name.to_string()));
        files.model && tables && (self.empty.is_empty() || !files.names(version).any(is_empty))
    }

    /// List of versions, for messages.
    fn describe(&self) -> String {
        let one = |(version, files): (&u64, &VersionFiles)| {
            let word = if self.is_complete(*version, files) { "complete" } else { "incomplete" };
            format!("{version} ({word})")
        };
        let shown: Vec<String> = self.listing.versions.iter().rev().take(MAX_SHOWN).map(one).collect();
        match shown.as_slice() {
            [] => "files of a version; there are none".to_owned(),
            [one] => format!("version {one}"),
            _ => format!("one of the versions {}", shown.join(", ")),
        }
    }
}
