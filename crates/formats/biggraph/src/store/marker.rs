//! The version file: what it says, and how it is written.

use super::{MARKER, VersionWrite};
use crate::text::{number_text, parse_number};
use serde_json::{Value as Json, json};
use std::path::Path;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::engine::{Disk, replace_small};
use weighbridge_io::source::to_usize;

/// Bytes of a version file that are read. An honest one has 20.
const LONGEST: u64 = 4096;

/// What a version file says, by BigGraph's rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// This version is complete.
    Version(u64),
    /// There is no such file: BigGraph begins from nothing.
    Missing,
    /// It is empty or blank, as a crash leaves it: BigGraph begins from nothing.
    Blank,
    /// It does not hold a number; these are its first bytes. BigGraph fails, or, on a number below
    /// 0, does nobody knows what.
    Unparsable(String),
}

impl Marker {
    /// Reads the version file of `folder`.
    pub(super) fn read(disk: &dyn Disk, folder: &Path) -> Result<Self> {
        let Some(source) = disk.open(&folder.join(MARKER))? else { return Ok(Self::Missing) };
        let mut bytes = vec![0; to_usize(source.len().min(LONGEST))?];
        source.read_at(0, &mut bytes)?;
        Ok(Self::parse(&bytes, source.len() > LONGEST))
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

    /// The version, where the file gives one.
    pub fn version(&self) -> Option<u64> {
        match self {
            Self::Version(version) => Some(*version),
            _ => None,
        }
    }

    /// What is wrong with it, for people; empty where nothing is.
    pub fn trouble(&self) -> &'static str {
        match self {
            Self::Version(_) => "",
            Self::Missing => "there is no version file",
            Self::Blank => "the version file is empty, as a crash leaves it",
            Self::Unparsable(_) => "the version file does not hold a number",
        }
    }

    /// `{"version": N}`, or `{"version": null, "trouble": …}`.
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
        // It may have been made just now.
        disk.sync_folder(folder)?;
    }
    Ok(())
}

/// The error of a folder whose version file does not say which version counts.
pub(super) fn lost(marker: &Marker, complete: Option<u64>) -> Error {
    let error = Error::corrupt("version-lost", format!("{}, though versions are there", marker.trouble()));
    match complete {
        Some(version) => error
            .found(format_args!("version {version} is complete"))
            .hint("recover makes the highest complete version count; BigGraph would begin from nothing"),
        None => error
            .found("no version is complete")
            .hint("recover, with the option to start over, makes version 0 count"),
    }
}
