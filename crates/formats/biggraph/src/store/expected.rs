//! Required files of a version.

use super::CONFIG;
use super::state::VersionState;
use crate::config::Config;
use crate::layout::FileName;
use crate::text_in_file;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::engine::Disk;
use weighbridge_io::source::read_vec;

/// Maximum number of partitions of all types together.
const MAX_PARTITIONS: u64 = 1_000_000;

/// Maximum number of missing files listed per version.
const MAX_MISSING: usize = 100;

/// Number of partitions of each type. Every version has a file for each, and one model file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected(pub BTreeMap<String, u64>);

/// Source of the list of required files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The caller.
    Given,
    /// The configuration in the folder: types used by its relations, with their partitions.
    Config,
    /// All versions in the folder together. A partition missing in all of them is
    /// noticed only if there is a higher one.
    Versions,
    /// No information yet.
    Nothing,
}

impl Basis {
    /// Returns the word used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Config => "config",
            Self::Versions => "versions",
            Self::Nothing => "nothing",
        }
    }
}

impl Expected {
    /// Requirements of the configuration `config.json`: the partitions of
    /// [`Config::stored_types`]. Parsed leniently, as most keys do not matter here.
    ///
    /// # Errors
    /// Like [`Config::parse`] for an invalid configuration; [`weighbridge_core::Kind::Corrupt`], `bad-config`, if a relation
    /// uses undefined types; [`weighbridge_core::Kind::Limit`] for more partitions than a
    /// folder could hold.
    pub fn of_config(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Error::corrupt("not-json", "the configuration is not UTF-8"))?;
        let (config, _) = Config::parse(text, true)?;
        let types: BTreeSet<&str> = config.entities.iter().map(|(name, _)| name.as_str()).collect();
        for name in config.relations.iter().flat_map(|relation| [&relation.lhs, &relation.rhs]) {
            if !types.contains(name.as_str()) {
                let what = "a relation uses an undefined entity type";
                return Err(Error::corrupt("bad-config", what).found(name));
            }
        }
        let parts =
            config.stored_types().map(|(name, entity)| (name.to_owned(), entity.num_partitions)).collect();
        let expected = Self(parts);
        expected.check()?;
        Ok(expected)
    }

    /// Requirements of the configuration of `folder`; `None` if there is none.
    pub(super) fn of_folder(disk: &dyn Disk, folder: &Path) -> Result<Option<Self>> {
        let Some(source) = disk.open(&folder.join(CONFIG))? else { return Ok(None) };
        Limits::check("bytes of a header", "header_bytes", source.len(), Limits::default().header_bytes)?;
        let bytes = read_vec(&*source, 0, source.len())?;
        Self::of_config(&bytes).map(Some)
    }

    /// Requirements of the configuration in the version's own files, from the run that wrote it;
    /// the configuration in the folder is from the last run. `None` if unreadable.
    pub(super) fn of_own_files(disk: &dyn Disk, folder: &Path, version: &VersionState) -> Option<Self> {
        // All files have the same text; a second one is read if the first is damaged.
        let files = version.files.iter().filter(|file| file.len > 0).take(2);
        files.into_iter().find_map(|file| {
            let source = disk.open(&folder.join(&file.name)).ok()??;
            let text = text_in_file(&source).ok()??;
            Self::of_config(text.as_bytes()).ok()
        })
    }

    /// Union of the partitions of `versions`, from partition 0 on.
    pub(super) fn of_versions(versions: &BTreeMap<u64, VersionState>) -> Self {
        Self::of_names(versions.values().flat_map(|version| &version.files).map(|file| &file.name))
    }

    /// Union of the partitions of files with these names, from partition 0 on.
    pub(super) fn of_names<'a>(names: impl IntoIterator<Item = &'a String>) -> Self {
        let mut parts = BTreeMap::new();
        for name in names {
            if let Some(FileName::Embeddings { entity, part, .. }) = FileName::parse(name) {
                let count = parts.entry(entity).or_insert(0);
                *count = part.saturating_add(1).max(*count);
            }
        }
        Self(parts)
    }

    /// Rejects more partitions than a folder could hold.
    pub(super) fn check(&self) -> Result<()> {
        let all = self.0.values().fold(0u64, |sum, &count| sum.saturating_add(count));
        if all <= MAX_PARTITIONS {
            return Ok(());
        }
        Err(Error::limit("too-many-files", "too many partitions in one folder")
            .expected(format_args!("at most {MAX_PARTITIONS}"))
            .found(all))
    }

    /// File names of a version: the model first, then the partitions.
    pub fn names(&self, version: u64) -> impl Iterator<Item = String> {
        let embeddings = self.0.iter().flat_map(move |(entity, &parts)| {
            let entity = entity.clone();
            (0..parts).map(move |part| FileName::Embeddings { entity: entity.clone(), part, version })
        });
        std::iter::once(FileName::Model { version }).chain(embeddings).map(|name| name.to_string())
    }

    /// The first required files of a version that are not among `present`.
    pub(super) fn missing(&self, version: u64, present: &BTreeSet<&str>) -> Vec<String> {
        let missing = self.names(version).filter(|name| !present.contains(name.as_str()));
        missing.take(MAX_MISSING).collect()
    }
}
