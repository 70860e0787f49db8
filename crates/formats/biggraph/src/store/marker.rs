//! Version file: parsing and writing.

use super::{MARKER, VersionWrite};
use crate::text::{number_text, parse_number};
use serde_json::{Value as Json, json};
use std::path::Path;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_io::engine::{Disk, replace_small};
use weighbridge_io::source::to_usize;

/// Maximum number of bytes read of a version file. A well-formed one has up to 20.
const MAX_READ: u64 = 4096;

/// Content of a version file, by BigGraph's rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// This version is complete.
    Version(u64),
    /// No version file: BigGraph starts from scratch.
    Missing,
    /// Empty or blank, as a crash leaves it: BigGraph starts from scratch.
    Blank,
    /// Not a number; these are the first bytes. BigGraph fails, or behaves
    /// unpredictably for a negative number.
    Unparsable(String),
}

impl Marker {
    /// Reads the version file of `folder`.
    pub(super) fn read(disk: &dyn Disk, folder: &Path) -> Result<Self> {
        let Some(source) = disk.open(&folder.join(MARKER))? else { return Ok(Self::Missing) };
        let mut bytes = vec![0; to_usize(source.len().min(MAX_READ))?];
        source.read_at(0, &mut bytes)?;
        Ok(Self::parse(&bytes, source.len() > MAX_READ))
    }

    fn parse(bytes: &[u8], cut: bool) -> Self {
        let shown = || Self::Unparsable(String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned());
        if cut {
            return shown();
        }
        match parse_number(bytes) {
            Ok(None) => Self::Blank,
            Ok(Some(number)) => u64::try_from(number.value).map_or_else(|_| shown(), Self::Version),
            Err(_) => shown(),
        }
    }

    /// Version in the file, if any.
    pub fn version(&self) -> Option<u64> {
        match self {
            Self::Version(version) => Some(*version),
            _ => None,
        }
    }

    /// Description of the fault; empty for a valid version.
    pub fn trouble(&self) -> &'static str {
        match self {
            Self::Version(_) => "",
            Self::Missing => "the version file is missing",
            Self::Blank => "the version file is empty, as after a crash",
            Self::Unparsable(_) => "the version file does not contain a number",
        }
    }

    /// Returns `{"version": N}`, or `{"version": null, "trouble": …}`.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Version(version) => json!({"version": version}),
            Self::Unparsable(text) => json!({"version": null, "trouble": self.trouble(), "found": text}),
            _ => json!({"version": null, "trouble": self.trouble()}),
        }
    }
}

/// Writes the version file.
pub(super) fn write(
    disk: &dyn Disk,
    folder: &Path,
    version: u64,
    how: VersionWrite,
    sync: bool,
) -> Result<()> {
    let text = number_text(version);
    if how == VersionWrite::Replace {
        return replace_small(disk, folder, MARKER, text.as_bytes(), sync);
    }
    let path = folder.join(MARKER);
    disk.truncate(&path)?;
    disk.append(&path, text.as_bytes())?;
    if sync {
        disk.sync_file(&path)?;
        // The file may be new.
        disk.sync_folder(folder)?;
    }
    Ok(())
}

/// Error for a folder with versions but no valid version file.
pub(super) fn lost(marker: &Marker, complete: Option<u64>) -> Error {
    let error =
        Error::corrupt("version-lost", format!("{}; BigGraph would start from scratch", marker.trouble()));
    match complete {
        Some(version) => error
            .found(format_args!("version {version} is complete"))
            .hint(phrase![Opt::Recover, format_args!(" makes version {version} current")]),
        None => error
            .found("no version is complete")
            .hint("recover the folder and start over to make version 0 current"),
    }
}
