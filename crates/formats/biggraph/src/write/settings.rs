//! Settings for writing BigGraph files.

use super::super::partitions::Partitions;
use super::super::retype;
use weighbridge_core::error::{Error, Result};
use weighbridge_format::{PlanOptions, Setting};

/// Settings listed in the format info.
pub(in super::super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "partitions",
        values: "N, or TYPE:N,TYPE:N",
        what: "number of partitions of entity types; N applies to all partitioned types (default: unchanged)",
    },
    Setting {
        name: "version",
        values: "a number",
        what: "version of the checkpoint (default: unchanged, else that of a finished run)",
    },
    Setting {
        name: "type",
        values: "a name",
        what: "entity type of a table (default: the last part of its name)",
    },
    Setting {
        name: "rename-type",
        values: "OLD=NEW,OLD=NEW",
        what: "rename entity types in tables, counts, names and the configuration",
    },
    Setting {
        name: "columns",
        values: "NAME,NAME,NAME",
        what: "columns of an edge table, in order: lhs, rhs, rel, weight, or - for others",
    },
    Setting {
        name: "entities",
        values: "yes or no",
        what: "write entity counts and names next to a checkpoint (default: no)",
    },
    Setting {
        name: "weights",
        values: "kept or truncated",
        what: "write edge weights unchanged, or truncated to integers as upstream does (default: kept)",
    },
    Setting {
        name: "ids",
        values: "int64 or stored",
        what: "dtype of ids, relations and lists of edges (default: int64; repartitioned edges are always int64)",
    },
];

/// Parsed settings.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) partitions: Option<Partitions>,
    pub(super) version: Option<u64>,
    pub(super) entity: Option<String>,
    /// Renamed entity types: old and new name.
    pub(super) renamed: Vec<(String, String)>,
    /// Columns of an edge table.
    pub(super) columns: Option<Vec<String>>,
    /// True to write counts and names next to a checkpoint.
    pub(super) entities: bool,
    /// True to truncate weights to integers.
    pub(super) truncated: bool,
    /// True to keep the stored dtype of ids.
    pub(super) stored_ids: bool,
    /// Memory in bytes for repartitioned edges; the default if `None`.
    pub(super) memory: Option<u64>,
}

impl Settings {
    pub(super) fn of(options: &PlanOptions) -> Result<Self> {
        let version = |text: &str| text.parse().map_err(|_| bad("version", "a number", text));
        Ok(Self {
            partitions: options.setting("partitions").map(Partitions::parse).transpose()?,
            version: options.setting("version").map(version).transpose()?,
            entity: options.setting("type").map(str::to_owned),
            renamed: options.setting("rename-type").map(retype::parse).transpose()?.unwrap_or_default(),
            columns: options.setting("columns").map(|text| text.split(',').map(str::to_owned).collect()),
            entities: one_of(options, "entities", ["no", "yes"])?,
            truncated: one_of(options, "weights", ["kept", "truncated"])?,
            stored_ids: one_of(options, "ids", ["int64", "stored"])?,
            memory: options.memory,
        })
    }
}

/// True if the second word was given; the first one is the default.
fn one_of(options: &PlanOptions, name: &'static str, words: [&str; 2]) -> Result<bool> {
    match options.setting(name) {
        None => Ok(false),
        Some(word) if words.contains(&word) => Ok(word == words[1]),
        Some(other) => Err(bad(name, &words.join(" or "), other)),
    }
}

fn bad(name: &str, expected: &str, found: &str) -> Error {
    Error::usage("bad-setting", format!("invalid value of the setting `{name}`"))
        .expected(expected)
        .found(found)
}
