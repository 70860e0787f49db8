//! What can be chosen when BigGraph's files are written.

use super::super::partitions::Partitions;
use super::super::retype;
use weighbridge_core::error::{Error, Result};
use weighbridge_format::{PlanOptions, Setting};

/// What can be chosen, for the facts of the format.
pub(in super::super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "partitions",
        values: "N, or TYPE:N,TYPE:N",
        what: "how many partitions the types are cut into; N means all that have several (default: as they are)",
    },
    Setting {
        name: "version",
        values: "a number",
        what: "the version of a checkpoint (default: as it is, else that of a run just finished)",
    },
    Setting {
        name: "type",
        values: "a name",
        what: "the type of entities that a table is of (default: the last part of its name)",
    },
    Setting {
        name: "rename-type",
        values: "OLD=NEW,OLD=NEW",
        what: "give types of entities other names: tables, counts, names and the configuration together",
    },
    Setting {
        name: "columns",
        values: "NAME,NAME,NAME",
        what: "the columns of a table of edges, in order: lhs, rhs, rel, and weight or - where there is more",
    },
    Setting {
        name: "entities",
        values: "yes or no",
        what: "write counts and names of rows beside a checkpoint (default: no)",
    },
    Setting {
        name: "weights",
        values: "kept or truncated",
        what: "write the weights of edges as they are, or as the integers that upstream makes of them (default: kept)",
    },
    Setting {
        name: "ids",
        values: "int64 or stored",
        what: "the type of ids, relations and lists of edges (default: int64, as upstream; edges that move are always int64)",
    },
];

/// What was chosen.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) partitions: Option<Partitions>,
    pub(super) version: Option<u64>,
    pub(super) entity: Option<String>,
    /// Types that get another name: old and new.
    pub(super) renamed: Vec<(String, String)>,
    /// The columns of a table of edges.
    pub(super) columns: Option<Vec<String>>,
    /// Write counts and names beside a checkpoint.
    pub(super) entities: bool,
    /// Weights become integers.
    pub(super) truncated: bool,
    /// Ids stay in the type they are stored in.
    pub(super) stored_ids: bool,
    /// Bytes that edges on their way into other partitions may take; the usual ones where `None`.
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

/// Whether the second word was chosen; the first one is the default.
fn one_of(options: &PlanOptions, name: &'static str, words: [&str; 2]) -> Result<bool> {
    match options.setting(name) {
        None => Ok(false),
        Some(word) if words.contains(&word) => Ok(word == words[1]),
        Some(other) => Err(bad(name, &words.join(" or "), other)),
    }
}

fn bad(name: &str, expected: &str, found: &str) -> Error {
    Error::usage("bad-setting", format!("the setting `{name}` has no such value"))
        .expected(expected)
        .found(found)
}
