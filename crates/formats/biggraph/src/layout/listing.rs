//! Classification of the files of a folder by their names.

use super::FileName;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Files of a BigGraph folder, sorted by type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Entity count files: the partitions of each type.
    pub counts: BTreeMap<String, BTreeSet<u64>>,
    /// Entity name files: the partitions of each type.
    pub names: BTreeMap<String, BTreeSet<u64>>,
    /// True if there is a count of dynamic relations.
    pub relation_count: bool,
    /// True if there are relation names.
    pub relation_names: bool,
    /// Edge buckets (left, right).
    pub edges: BTreeSet<(u64, u64)>,
    /// Unfinished edge buckets.
    pub unfinished_edges: BTreeSet<(u64, u64)>,
    /// Files of each version.
    pub versions: BTreeMap<u64, VersionFiles>,
    /// True if there is a version file.
    pub version_file: bool,
    /// True if there is a configuration.
    pub config: bool,
    /// True if there are training statistics.
    pub stats: bool,
    /// Snapshots by epoch.
    pub snapshots: BTreeMap<u64, Snapshot>,
    /// Files without a BigGraph name, in the given order.
    pub strays: Vec<PathBuf>,
}

/// Files of one version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VersionFiles {
    /// True if there is a model file.
    pub model: bool,
    /// Existing partitions of each type.
    pub embeddings: BTreeMap<String, BTreeSet<u64>>,
}

/// Folder of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Files of each version; an intact snapshot has one version.
    pub versions: BTreeMap<u64, VersionFiles>,
    /// True if there is a version file.
    pub version_file: bool,
}

/// File of a version that is not the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Orphan {
    /// File name.
    pub name: FileName,
    /// Reason for its existence.
    pub reason: OrphanReason,
}

/// Reason for a file of a version that is not the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrphanReason {
    /// File of a later version: an unfinished iteration. The next run overwrites it.
    Unfinished,
    /// File of an earlier version without a snapshot: a run ended before deleting it. No run ever
    /// deletes it.
    LeftBehind,
}

impl VersionFiles {
    /// Names of the files of `version`.
    pub(crate) fn names(&self, version: u64) -> impl Iterator<Item = FileName> {
        let embeddings = self.embeddings.iter().flat_map(move |(entity, parts)| {
            let name = move |&part| FileName::Embeddings { entity: entity.clone(), part, version };
            parts.iter().map(name)
        });
        self.model.then_some(FileName::Model { version }).into_iter().chain(embeddings)
    }
}

impl Listing {
    /// Classifies names relative to the folder, from listings one or two levels deep.
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut listing = Self::default();
        for name in names {
            if listing.sort(name).is_none() {
                listing.strays.push(name.to_owned());
            }
        }
        listing
    }

    fn sort(&mut self, path: &Path) -> Option<()> {
        let mut parts = path.iter();
        let (first, second, third) = (parts.next()?.to_str()?, parts.next(), parts.next());
        if third.is_some() {
            return None;
        }
        let name = FileName::parse(first)?;
        let Some(second) = second else { return self.sort_file(name) };
        let FileName::Snapshot { epoch } = name else { return None };
        let inner = FileName::parse(second.to_str()?)?;
        let known = matches!(inner, FileName::Version | FileName::Model { .. } | FileName::Embeddings { .. });
        if !known {
            return None;
        }
        let snapshot = self.snapshots.entry(epoch).or_default();
        match inner {
            FileName::Version => snapshot.version_file = true,
            inner => put(&mut snapshot.versions, inner)?,
        }
        Some(())
    }

    fn sort_file(&mut self, name: FileName) -> Option<()> {
        match name {
            FileName::EntityCount { entity, part } => {
                self.counts.entry(entity).or_default().insert(part);
            }
            FileName::EntityNames { entity, part } => {
                self.names.entry(entity).or_default().insert(part);
            }
            FileName::RelationCount => self.relation_count = true,
            FileName::RelationNames => self.relation_names = true,
            FileName::Edges { lhs, rhs } => {
                self.edges.insert((lhs, rhs));
            }
            FileName::UnfinishedEdges { lhs, rhs } => {
                self.unfinished_edges.insert((lhs, rhs));
            }
            FileName::Version => self.version_file = true,
            FileName::Config => self.config = true,
            FileName::Stats => self.stats = true,
            // A snapshot is a folder; this is a file with its name.
            FileName::Snapshot { .. } => return None,
            name => put(&mut self.versions, name)?,
        }
        Some(())
    }

    /// Files of versions that are neither `current` nor in a snapshot. Version 0 is excluded:
    /// it is the start of a run, and is kept.
    pub(crate) fn orphans(&self, current: u64) -> Vec<Orphan> {
        let kept = |version: u64| self.snapshots.values().any(|s| s.versions.contains_key(&version));
        let others = self.versions.iter().filter(|&(&v, _)| v != current && v != 0 && !kept(v));
        let orphans = others.flat_map(|(&version, files)| {
            let later = version > current;
            let reason = if later { OrphanReason::Unfinished } else { OrphanReason::LeftBehind };
            files.names(version).map(move |name| Orphan { name, reason })
        });
        orphans.collect()
    }
}

fn put(versions: &mut BTreeMap<u64, VersionFiles>, name: FileName) -> Option<()> {
    match name {
        FileName::Model { version } => versions.entry(version).or_default().model = true,
        FileName::Embeddings { entity, part, version } => {
            versions.entry(version).or_default().embeddings.entry(entity).or_default().insert(part);
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(names: &[&str]) -> Listing {
        Listing::of(names.iter().map(Path::new))
    }

    #[test]
    fn classifies_a_checkpoint_folder() {
        let found = listing(&[
            "checkpoint_version.txt",
            "config.json",
            "training_stats.json",
            "model.v4.h5",
            "model.v6.h5",
            "model.v7.h5",
            "embeddings_user_0.v0.h5",
            "embeddings_user_0.v4.h5",
            "embeddings_user_0.v5.h5",
            "embeddings_user_0.v6.h5",
            "embeddings_user_1.v6.h5",
            "embeddings_a_b_1.v7.h5",
            "epoch_2/checkpoint_version.txt",
            "epoch_2/model.v4.h5",
            "epoch_2/embeddings_user_0.v4.h5",
            "epoch_2/config.json",
            "epoch_4",
            "notes.txt",
            "sub/model.v1.h5",
            "epoch_2/deep/model.v1.h5",
        ]);
        assert!(found.version_file && found.config && found.stats);
        assert_eq!(found.versions.keys().copied().collect::<Vec<_>>(), [0, 4, 5, 6, 7]);
        assert_eq!(found.versions[&6].embeddings["user"], BTreeSet::from([0, 1]));
        assert_eq!(found.versions[&7].embeddings["a_b"], BTreeSet::from([1]));
        assert!(found.versions[&6].model && !found.versions[&5].model);
        assert_eq!(found.snapshots.len(), 1);
        assert!(found.snapshots[&2].version_file && found.snapshots[&2].versions[&4].model);
        let strays: Vec<_> = found.strays.iter().map(|p| p.to_str().unwrap()).collect();
        let other =
            ["epoch_2/config.json", "epoch_4", "notes.txt", "sub/model.v1.h5", "epoch_2/deep/model.v1.h5"];
        assert_eq!(strays, other);
        let orphans: Vec<_> = found.orphans(6).into_iter().map(|o| (o.name.to_string(), o.reason)).collect();
        assert_eq!(
            orphans,
            [
                ("embeddings_user_0.v5.h5".to_owned(), OrphanReason::LeftBehind),
                ("model.v7.h5".to_owned(), OrphanReason::Unfinished),
                ("embeddings_a_b_1.v7.h5".to_owned(), OrphanReason::Unfinished),
            ]
        );
    }

    #[test]
    fn classifies_entity_and_edge_folders() {
        let found = listing(&[
            "entity_count_all_0.txt",
            "entity_count_all_1.txt",
            "entity_names_all_1.json",
            "dynamic_rel_count.txt",
            "dynamic_rel_names.json",
            "edges_0_1.h5",
            "edges_1_1.tmp.h5",
        ]);
        assert_eq!(found.counts["all"], BTreeSet::from([0, 1]));
        assert_eq!(found.names["all"], BTreeSet::from([1]));
        assert!(found.relation_count && found.relation_names && found.strays.is_empty());
        assert_eq!(
            (found.edges, found.unfinished_edges),
            (BTreeSet::from([(0, 1)]), BTreeSet::from([(1, 1)]))
        );
    }
}
