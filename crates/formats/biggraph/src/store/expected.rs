//! Which files a version must have.

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

/// Partitions of all types together that a folder may ask for.
const MOST_PARTS: u64 = 1_000_000;

/// Missing files of one version that are named.
const MOST_MISSING: usize = 100;

/// The number of partitions of each type. Every version has a file for each, and one of parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected(pub BTreeMap<String, u64>);

/// How it is known which files a version must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The caller said so.
    Given,
    /// The configuration in the folder: types that its relations use, with their partitions.
    Config,
    /// What all versions in the folder have together. A partition that is missing in all of them is
    /// noticed only where a higher one is there.
    Versions,
    /// Nothing is known yet.
    Nothing,
}

impl Basis {
    /// The word used in JSON.
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
    /// What the configuration `config.json` asks for: the partitions of
    /// [`Config::stored_types`]. It is read leniently, for most of its keys do not matter here.
    ///
    /// # Errors
    /// As [`Config::parse`] where it is none; [`weighbridge_core::Kind::Corrupt`], `bad-config`, where a relation
    /// joins types that it lacks; [`weighbridge_core::Kind::Limit`] for more partitions than a
    /// folder could hold.
    pub fn of_config(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Error::corrupt("not-json", "the configuration is not text in UTF-8"))?;
        let (config, _) = Config::parse(text, true)?;
        let types: BTreeSet<&str> = config.entities.iter().map(|(name, _)| name.as_str()).collect();
        for name in config.relations.iter().flat_map(|relation| [&relation.lhs, &relation.rhs]) {
            if !types.contains(name.as_str()) {
                let what = "a relation joins types that the configuration lacks";
                return Err(Error::corrupt("bad-config", what).found(name));
            }
        }
        let parts =
            config.stored_types().map(|(name, entity)| (name.to_owned(), entity.num_partitions)).collect();
        let expected = Self(parts);
        expected.check()?;
        Ok(expected)
    }

    /// What the configuration of `folder` asks for; `None` where there is none.
    pub(super) fn of_folder(disk: &dyn Disk, folder: &Path) -> Result<Option<Self>> {
        let Some(source) = disk.open(&folder.join(CONFIG))? else { return Ok(None) };
        Limits::check("header", "header_bytes", source.len(), Limits::default().header_bytes)?;
        let bytes = read_vec(&*source, 0, source.len())?;
        Self::of_config(&bytes).map(Some)
    }

    /// What a version must have by the configuration in its own files: that of the run that wrote it,
    /// while the one in the folder is that of the last run. `None` where that cannot be told.
    pub(super) fn of_own_files(disk: &dyn Disk, folder: &Path, version: &VersionState) -> Option<Self> {
        // All have the same text; a second one is asked where the first is damaged.
        let files = version.files.iter().filter(|file| file.len > 0).take(2);
        files.into_iter().find_map(|file| {
            let source = disk.open(&folder.join(&file.name)).ok()??;
            let text = text_in_file(&source).ok()??;
            Self::of_config(text.as_bytes()).ok()
        })
    }

    /// What the `versions` have together, from partition 0 on.
    pub(super) fn of_versions(versions: &BTreeMap<u64, VersionState>) -> Self {
        Self::of_names(versions.values().flat_map(|version| &version.files).map(|file| &file.name))
    }

    /// What files of these names make together, from partition 0 on.
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

    /// Refuses more partitions than a folder could hold.
    pub(super) fn check(&self) -> Result<()> {
        let all = self.0.values().fold(0u64, |sum, &count| sum.saturating_add(count));
        if all <= MOST_PARTS {
            return Ok(());
        }
        Err(Error::limit("too-many-files", "more partitions are asked for than a folder could hold")
            .expected(format_args!("at most {MOST_PARTS}"))
            .found(all))
    }

    /// The names of the files of a version: the model first, then the partitions.
    pub fn names(&self, version: u64) -> impl Iterator<Item = String> {
        let embeddings = self.0.iter().flat_map(move |(entity, &parts)| {
            let entity = entity.clone();
            (0..parts).map(move |part| FileName::Embeddings { entity: entity.clone(), part, version })
        });
        std::iter::once(FileName::Model { version }).chain(embeddings).map(|name| name.to_string())
    }

    /// Of the files of a version, the first that are not among `present`.
    pub(super) fn missing(&self, version: u64, present: &BTreeSet<&str>) -> Vec<String> {
        let missing = self.names(version).filter(|name| !present.contains(name.as_str()));
        missing.take(MOST_MISSING).collect()
    }
}
