//! Configuration written with a checkpoint: the existing one, a changed one, or a new one.

use super::super::config::Config;
use super::super::effective_config;
use super::tables::Table;
use serde_json::json;
use weighbridge_core::checkpoint::{Checkpoint, Loss};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_io::source::{SourceRef, read_vec};

/// Name of its file.
pub(super) const CONFIG_FILE: &str = "config.json";

/// Configuration as text, and parsed.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) config: Config,
    /// Text to write into files.
    pub(super) text: String,
    /// File of the folder, if copied unchanged.
    pub(super) file: Option<SourceRef>,
    /// True if it differs from the one in the checkpoint's files.
    pub(super) changed: bool,
    /// True if the checkpoint's files had another one.
    replaces: bool,
    /// True if parts of it are not supported.
    odd: bool,
}

/// Configuration of a checkpoint, if any: the [effective one](effective_config::config_text), else
/// that of the folder.
///
/// # Errors
/// Errors of the configuration's own rules.
pub(super) fn find(checkpoint: &Checkpoint) -> Result<Option<Known>> {
    let file = checkpoint.companions.iter().find(|(name, _)| name == CONFIG_FILE).map(|(_, source)| source);
    let stored = effective_config::stored_text(checkpoint);
    let text = match (effective_config::config_text(checkpoint), file) {
        (Some(text), _) => text.to_owned(),
        (None, Some(source)) => text_of(source)?,
        (None, None) => return Ok(None),
    };
    // Oddities are written unchanged, unless the configuration must change.
    let (config, odd) = Config::parse(&text, true).map_err(|e| e.in_file(&checkpoint.label))?;
    let changed = stored != Some(text.as_str());
    // The folder's file may be from a later run; it is copied unless the caller named another one.
    let same = |source: &&SourceRef| !changed || text_of(source).is_ok_and(|own| own == text);
    let file = file.filter(same).cloned();
    let replaces = changed && stored.is_some();
    Ok(Some(Known { config, text, file, changed, replaces, odd: !odd.is_empty() }))
}

impl Known {
    /// Text that replaces the one in the checkpoint's files.
    pub(super) fn instead(&self) -> Option<&str> {
        self.replaces.then_some(self.text.as_str())
    }
}

/// Text of a companion.
fn text_of(source: &SourceRef) -> Result<String> {
    Limits::check("bytes of a configuration", "header_bytes", source.len(), Limits::default().header_bytes)?;
    String::from_utf8(read_vec(&**source, 0, source.len())?)
        .map_err(|_| Error::corrupt("not-utf8", "the configuration is not UTF-8").in_file(source.label()))
}

/// Adapts the configuration to the tables: sets their partition counts.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `no-such-type` for a table whose type is not in the configuration,
/// `dimension-differs`.
pub(super) fn fit(known: &mut Known, tables: &[Table<'_>], losses: &mut Vec<Loss>) -> Result<()> {
    let mut changed = false;
    for table in tables {
        let columns = table.rows.shape.dims().get(1).copied().unwrap_or(0);
        let default = known.config.dimension;
        let Some((_, entity)) = known.config.entities.iter_mut().find(|(name, _)| *name == table.entity)
        else {
            let names: Vec<_> = known.config.entities.iter().map(|(name, _)| name.as_str()).collect();
            return Err(Error::mismatch(
                "no-such-type",
                "the configuration does not have the entity type of the table",
            )
            .on_tensor(table.rows.name())
            .expected(names.join(", "))
            .found(&table.entity)
            .hint(phrase![
                Opt::Set.any_pair("type", "NAME"),
                " sets the entity type of a single table; ",
                Opt::Rename,
                " renames tables"
            ]));
        };
        let dimension = entity.dimension.unwrap_or(default);
        if dimension != columns {
            return Err(Error::mismatch(
                "dimension-differs",
                "the dimension of the table differs from its entity type",
            )
            .on_tensor(table.rows.name())
            .expected(dimension)
            .found(columns));
        }
        let parts = table.counts.len() as u64;
        changed |= entity.num_partitions != parts;
        entity.num_partitions = parts;
    }
    if changed {
        known.text = known.config.to_json_for_all();
        known.file = None;
        known.changed = true;
        if known.odd {
            let detail = "the configuration is rewritten; unknown keys and values are dropped";
            losses.push(Loss::new("config-keys", CONFIG_FILE, detail));
        }
    }
    Ok(())
}

/// Minimal configuration that upstream accepts for these tables: one relation from the
/// first type to itself.
///
/// # Errors
/// Errors of the configuration's own rules.
pub(super) fn make(tables: &[Table<'_>], losses: &mut Vec<Loss>) -> Result<Known> {
    let columns = |table: &Table<'_>| table.rows.shape.dims().get(1).copied().unwrap_or(0);
    let dimension = tables.first().map_or(0, columns);
    let entity = |table: &Table<'_>| {
        let own = Some(columns(table)).filter(|own| *own != dimension);
        (table.entity.clone(), json!({ "num_partitions": table.counts.len(), "dimension": own }))
    };
    let entities: serde_json::Map<_, _> = tables.iter().map(entity).collect();
    let first = tables.first().map(|table| table.entity.as_str());
    // Global embeddings would be missing parameters.
    let made = json!({
        "entities": entities,
        "relations": [{ "name": "relation", "lhs": first, "rhs": first }],
        "dimension": dimension,
        "entity_path": ".",
        "edge_paths": ["."],
        "checkpoint_path": ".",
        "global_emb": false,
    });
    let (config, _) = Config::parse(&made.to_string(), false)?;
    losses.push(Loss::new(
        "config-made",
        CONFIG_FILE,
        "the configuration is missing: a minimal one is written, with one relation, and `.` for all paths",
    ));
    Ok(Known {
        text: config.to_json_for_all(),
        config,
        file: None,
        changed: true,
        replaces: false,
        odd: false,
    })
}
