//! Other versions and snapshots next to the written checkpoint.

use super::super::layout::{FileName, Listing};
use super::super::{INFO, ReadOptions};
use std::path::Path;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::{PlannedFile, WritePlan};
use weighbridge_core::source::Folder;
use weighbridge_format::{Companion, OpenOptions, PlanOptions};
use weighbridge_io::source::LocalFolder;

/// Unopened versions of `folder`, and the snapshots; `None` if the opened or the written kind is not a
/// checkpoint. If `all` are copied, versions of snapshots are not listed again.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `bad-setting`, if all versions would get the same number; [`weighbridge_core::Kind::Io`].
pub(crate) fn companions(
    checkpoint: &Checkpoint,
    folder: &Path,
    open: &OpenOptions,
    settings: &PlanOptions,
    all: bool,
) -> Result<Option<Vec<Companion>>> {
    let is_checkpoint = (checkpoint.format, checkpoint.kind) == (INFO.id, "checkpoint");
    if !is_checkpoint || settings.kind.as_deref() != Some("checkpoint") {
        return Ok(None);
    }
    if all && settings.setting("version").is_some() {
        return Err(Error::usage("bad-setting", "several versions cannot get the same number")
            .found("version")
            .hint(phrase!["omit the setting, or omit ", Opt::Versions.with("all")]));
    }
    let opened = match checkpoint.metadata.get("version") {
        Some(Value::U64(version)) => Some(*version),
        _ => None,
    };
    let items = LocalFolder::open(folder)?.list(2)?;
    let listing = Listing::of(items.iter().map(|item| item.name.as_path()));
    let held = |version: u64| listing.snapshots.values().any(|own| own.versions.contains_key(&version));
    let versions =
        listing.versions.keys().filter(|&&version| Some(version) != opened && !(all && held(version)));
    let options = |version: Option<u64>| open.clone().with_own(ReadOptions { version, ..open.own() });
    let version = |&version: &u64| Companion {
        name: format!("version {version}"),
        path: folder.to_owned(),
        options: options(Some(version)),
        folder: None,
    };
    let snapshot = |&epoch: &u64| {
        let name = FileName::Snapshot { epoch }.to_string();
        Companion {
            name: format!("snapshot {name}"),
            path: folder.join(&name),
            options: options(None),
            folder: Some(name),
        }
    };
    Ok(Some(versions.map(version).chain(listing.snapshots.keys().map(snapshot)).collect()))
}

/// Adds the files of another version, laid out like those of the opened one. A snapshot is written as copies;
/// unversioned files, such as the configuration, stay those of the opened version.
pub(crate) fn add(plan: &mut WritePlan, companion: &Companion, mut files: Vec<PlannedFile>) {
    files.retain(|file| match FileName::parse(&file.name) {
        Some(FileName::Version) => companion.folder.is_some(),
        Some(name) => name.version().is_some(),
        None => false,
    });
    if let Some(folder) = &companion.folder {
        files.iter_mut().for_each(|file| file.name = format!("{folder}/{}", file.name));
    }
    // The version file stays last.
    let marker = plan.files.pop();
    plan.files.extend(files.into_iter().chain(marker));
}
