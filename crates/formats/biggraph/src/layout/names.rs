//! File names.

use std::fmt;

/// File of a BigGraph folder, by its name. [`fmt::Display`] prints the name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileName {
    /// `entity_count_{entity}_{part}.txt`: number of rows of a partition.
    EntityCount {
        /// Entity type.
        entity: String,
        /// Partition.
        part: u64,
    },
    /// `entity_names_{entity}_{part}.json`: row names of a partition.
    EntityNames {
        /// Entity type.
        entity: String,
        /// Partition.
        part: u64,
    },
    /// `dynamic_rel_count.txt`: number of dynamic relations.
    RelationCount,
    /// `dynamic_rel_names.json`: names of the relations, dynamic or not.
    RelationNames,
    /// `edges_{lhs}_{rhs}.h5`: an edge bucket.
    Edges {
        /// Partition of the left sides.
        lhs: u64,
        /// Partition of the right sides.
        rhs: u64,
    },
    /// `edges_{lhs}_{rhs}.tmp.h5`: an unfinished edge bucket.
    UnfinishedEdges {
        /// Partition of the left sides.
        lhs: u64,
        /// Partition of the right sides.
        rhs: u64,
    },
    /// `embeddings_{entity}_{part}.v{version}.h5`: rows of a partition.
    Embeddings {
        /// Entity type.
        entity: String,
        /// Partition.
        part: u64,
        /// Version of the checkpoint.
        version: u64,
    },
    /// `model.v{version}.h5`: parameters.
    Model {
        /// Version of the checkpoint.
        version: u64,
    },
    /// `checkpoint_version.txt`: the current version.
    Version,
    /// `config.json`: configuration of the last run.
    Config,
    /// `training_stats.json`: one line per trained bucket.
    Stats,
    /// `epoch_{epoch}`: folder of a snapshot.
    Snapshot {
        /// Epoch that followed the snapshot.
        epoch: u64,
    },
}

impl FileName {
    /// Parses the name of a file or folder; `None` for names that BigGraph does not use.
    /// Numbers must have BigGraph's form: no sign, no leading zero.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "dynamic_rel_count.txt" => return Some(Self::RelationCount),
            "dynamic_rel_names.json" => return Some(Self::RelationNames),
            "checkpoint_version.txt" => return Some(Self::Version),
            "config.json" => return Some(Self::Config),
            "training_stats.json" => return Some(Self::Stats),
            _ => {}
        }
        if let Some(rest) = inside(name, "entity_count_", ".txt") {
            let (entity, part) = type_and_part(rest)?;
            return Some(Self::EntityCount { entity, part });
        }
        if let Some(rest) = inside(name, "entity_names_", ".json") {
            let (entity, part) = type_and_part(rest)?;
            return Some(Self::EntityNames { entity, part });
        }
        if let Some(rest) = inside(name, "edges_", ".tmp.h5") {
            let (lhs, rhs) = two_parts(rest)?;
            return Some(Self::UnfinishedEdges { lhs, rhs });
        }
        if let Some(rest) = inside(name, "edges_", ".h5") {
            let (lhs, rhs) = two_parts(rest)?;
            return Some(Self::Edges { lhs, rhs });
        }
        if let Some(rest) = inside(name, "embeddings_", ".h5") {
            let (rest, version) = rest.rsplit_once(".v")?;
            let (entity, part) = type_and_part(rest)?;
            return Some(Self::Embeddings { entity, part, version: decimal(version)? });
        }
        if let Some(version) = inside(name, "model.v", ".h5") {
            return Some(Self::Model { version: decimal(version)? });
        }
        let epoch = decimal(name.strip_prefix("epoch_")?)?;
        Some(Self::Snapshot { epoch })
    }

    /// Version in the name, if any.
    pub fn version(&self) -> Option<u64> {
        match self {
            Self::Embeddings { version, .. } | Self::Model { version } => Some(*version),
            _ => None,
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EntityCount { entity, part } => write!(f, "entity_count_{entity}_{part}.txt"),
            Self::EntityNames { entity, part } => write!(f, "entity_names_{entity}_{part}.json"),
            Self::RelationCount => f.write_str("dynamic_rel_count.txt"),
            Self::RelationNames => f.write_str("dynamic_rel_names.json"),
            Self::Edges { lhs, rhs } => write!(f, "edges_{lhs}_{rhs}.h5"),
            Self::UnfinishedEdges { lhs, rhs } => write!(f, "edges_{lhs}_{rhs}.tmp.h5"),
            Self::Embeddings { entity, part, version } => {
                write!(f, "embeddings_{entity}_{part}.v{version}.h5")
            }
            Self::Model { version } => write!(f, "model.v{version}.h5"),
            Self::Version => f.write_str("checkpoint_version.txt"),
            Self::Config => f.write_str("config.json"),
            Self::Stats => f.write_str("training_stats.json"),
            Self::Snapshot { epoch } => write!(f, "epoch_{epoch}"),
        }
    }
}

/// True for a valid entity type name in upstream: torch refuses dots in parameter
/// names, and a slash would be a folder.
pub(crate) fn is_type_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['.', '/', '\0'])
}

/// Text between a prefix and a suffix that do not overlap.
fn inside<'a>(name: &'a str, before: &str, after: &str) -> Option<&'a str> {
    name.strip_prefix(before)?.strip_suffix(after)
}

fn type_and_part(text: &str) -> Option<(String, u64)> {
    let (entity, part) = text.rsplit_once('_')?;
    is_type_name(entity).then_some((entity.to_owned(), decimal(part)?))
}

fn two_parts(text: &str) -> Option<(u64, u64)> {
    let (lhs, rhs) = text.split_once('_')?;
    Some((decimal(lhs)?, decimal(rhs)?))
}

/// Number as Python prints it.
fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let short = text == "0" || !text.starts_with('0');
    (digits && short).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let entity = || "a_b:süß_7".to_owned();
        let all = [
            (FileName::EntityCount { entity: entity(), part: 0 }, "entity_count_a_b:süß_7_0.txt"),
            (FileName::EntityNames { entity: entity(), part: 12 }, "entity_names_a_b:süß_7_12.json"),
            (FileName::RelationCount, "dynamic_rel_count.txt"),
            (FileName::RelationNames, "dynamic_rel_names.json"),
            (FileName::Edges { lhs: 3, rhs: 10 }, "edges_3_10.h5"),
            (FileName::UnfinishedEdges { lhs: 3, rhs: 0 }, "edges_3_0.tmp.h5"),
            (
                FileName::Embeddings { entity: entity(), part: 1, version: u64::MAX },
                "embeddings_a_b:süß_7_1.v18446744073709551615.h5",
            ),
            (FileName::Model { version: 6 }, "model.v6.h5"),
            (FileName::Version, "checkpoint_version.txt"),
            (FileName::Config, "config.json"),
            (FileName::Stats, "training_stats.json"),
            (FileName::Snapshot { epoch: 2 }, "epoch_2"),
        ];
        for (name, text) in all {
            assert_eq!(name.to_string(), text);
            assert_eq!(FileName::parse(text), Some(name));
        }
    }

    #[test]
    fn rejects_other_names() {
        let strays = [
            "",
            "edges_0_0.h5.bak",
            "edges_00_0.h5",
            "edges_0.h5",
            "edges_0_1_2.h5",
            "edges_-1_0.h5",
            "edges_+1_0.h5",
            "edges_１_0.h5",
            "edges_0_0.tmp.tmp.h5",
            "model.v.h5",
            "model.v01.h5",
            "model.h5",
            "model.v18446744073709551616.h5",
            "embeddings_a_0.h5",
            "embeddings_a.v1.h5",
            "embeddings__0.v1.h5",
            "embeddings_a.b_0.v1.h5",
            "embeddings_a_0.v1.v2.h5",
            "entity_count_0.txt",
            "entity_count_a_0.json",
            "entity_count_a/b_0.txt",
            "epoch_",
            "epoch_1x",
            "Config.json",
        ];
        for name in strays {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }
}
