//! The versions and snapshots of a PyTorch-BigGraph checkpoint beside the one that is converted.

use super::{ConvertOptions, plan_noting};
use crate::checkpoint::{Checkpoint, Loss};
use crate::error::{Error, Kind, Result};
use crate::formats::biggraph::layout::{FileName, Listing};
use crate::formats::{Format, OpenOptions, open_with};
use crate::plan::{PlannedFile, WritePlan};
use crate::source::{Folder, LocalFolder};
use std::path::Path;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// A version of the source folder, or a snapshot in it.
struct Other {
    /// What it is called in reports.
    name: String,
    version: u64,
    /// The name of the snapshot.
    snapshot: Option<String>,
}

/// Adds the other versions and snapshots of the checkpoint folder `source` to `plan`, or names them as losses: those
/// that are not asked for, and those that cannot be read. A snapshot is written as files of its own; a
/// version that is there for a snapshot is written as that snapshot alone.
///
/// # Errors
/// [`Kind::Usage`], `bad-setting`, where all versions would get one number; [`Kind::Io`]; and what planning
/// a version says.
pub(super) fn add(
    plan: &mut WritePlan,
    source: &Path,
    opened: Option<u64>,
    format: &dyn Format,
    options: &ConvertOptions,
) -> Result<()> {
    let folder = LocalFolder::open(source)?;
    let items = folder.list(2)?;
    let others =
        others(&Listing::of(items.iter().map(|item| item.name.as_path())), opened, options.all_versions);
    if !options.all_versions {
        let detail = phrase!["left behind: ", Opt::Versions.with("all"), " takes along what is complete"];
        plan.losses.extend(others.iter().map(|other| Loss::new("companion", &other.name, &detail)));
        return Ok(());
    }
    if options.settings.iter().any(|(name, _)| name == "version") {
        return Err(Error::usage("bad-setting", "all versions cannot get one number")
            .found("version")
            .hint(phrase!["leave out the setting, or ", Opt::Versions.with("all")]));
    }
    // The file that says which version is complete stays the last one.
    let marker = plan.files.pop();
    for other in others {
        let (path, version) = match &other.snapshot {
            Some(name) => (source.join(name), None),
            None => (source.to_owned(), Some(other.version)),
        };
        let checkpoint = match open_with(path, &OpenOptions { version, ..options.open.clone() }) {
            Ok(checkpoint) => checkpoint,
            Err(error) if matches!(error.kind(), Kind::Io | Kind::Usage | Kind::Cancelled) => {
                return Err(error);
            }
            Err(error) => {
                let detail = format!("left behind, as it cannot be read: {}", error.message());
                plan.losses.push(Loss::new("version-unread", &other.name, detail));
                continue;
            }
        };
        let (files, losses) = files(checkpoint, &other, plan.kind, format, options)?;
        plan.files.extend(files);
        for loss in losses {
            if !plan.losses.contains(&loss) {
                plan.losses.push(loss);
            }
        }
    }
    plan.files.extend(marker);
    Ok(())
}

/// The versions that are not `opened`, and the snapshots. Where `all` are taken along, versions of snapshots are not
/// named again.
fn others(listing: &Listing, opened: Option<u64>, all: bool) -> Vec<Other> {
    let held = |version: u64| listing.snapshots.values().any(|own| own.versions.contains_key(&version));
    let versions =
        listing.versions.keys().filter(|&&version| Some(version) != opened && !(all && held(version)));
    let version = |&version: &u64| Other { name: format!("version {version}"), version, snapshot: None };
    let snapshot = |(&epoch, snapshot): (&u64, &crate::formats::biggraph::layout::Snapshot)| {
        let name = FileName::Snapshot { epoch }.to_string();
        let version = snapshot.versions.keys().next().copied().unwrap_or(0);
        Other { name: format!("snapshot {name}"), version, snapshot: Some(name) }
    };
    versions.map(version).chain(listing.snapshots.iter().map(snapshot)).collect()
}

/// The files of another version, laid out as those of the opened one are.
fn files(
    checkpoint: Checkpoint,
    other: &Other,
    kind: &str,
    format: &dyn Format,
    options: &ConvertOptions,
) -> Result<(Vec<PlannedFile>, Vec<Loss>)> {
    let plan = plan_noting(checkpoint, format, Some(kind.to_owned()), options, &mut Vec::new())?;
    let mut files = plan.files;
    files.retain(|file| match FileName::parse(&file.name) {
        Some(FileName::Version) => other.snapshot.is_some(),
        Some(name) => name.version().is_some(),
        None => false,
    });
    if let Some(folder) = &other.snapshot {
        for file in &mut files {
            file.name = format!("{folder}/{}", file.name);
        }
    }
    Ok((files, plan.losses))
}
