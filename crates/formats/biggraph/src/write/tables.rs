//! Tables of a checkpoint: their entity types and partitions.

use super::super::config::Config;
use super::super::layout::is_type_name;
use super::super::partitions::{Partitions, new_counts, stored_type};
use super::super::read::MAX_ALL_PARTITIONS;
use super::settings::Settings;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use weighbridge_core::checkpoint::{Checkpoint, Name, Role, RowNamesRef, TensorEntry, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

/// Slot of row-wise Adagrad.
pub(super) const SUM: &str = "sum";
/// First path part of tables.
pub(super) const EMBEDDINGS: &str = "embeddings";
/// First path parts of model parameters.
const MODEL: [&str; 2] = ["relations", "entities"];

/// Table of one entity type.
#[derive(Debug)]
pub(super) struct Table<'a> {
    /// Entity type.
    pub(super) entity: String,
    /// All rows.
    pub(super) rows: &'a TensorEntry,
    /// State of row-wise Adagrad, per row.
    pub(super) sum: Option<&'a TensorEntry>,
    /// Row count of each written partition; `None` for a missing one.
    pub(super) counts: Vec<Option<u64>>,
    /// True where rows move to another partition.
    pub(super) moved: bool,
    /// True where the metadata lists it under another type: it was renamed.
    pub(super) renamed: bool,
    /// Old number of partitions.
    old_parts: usize,
    /// Optimizer metadata of each old partition.
    optimizers: &'a [Value],
}

/// Partition of a table.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Index.
    pub(super) number: u64,
    /// Rows.
    pub(super) rows: Range<u64>,
}

impl<'a> Table<'a> {
    /// Written partitions, in order.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part> {
        let mut next = 0;
        let part = move |(number, count): (u64, &Option<u64>)| {
            let start = next;
            next += (*count)?;
            Some(Part { number, rows: start..next })
        };
        (0u64..).zip(&self.counts).filter_map(part)
    }

    /// Row names, if known.
    pub(super) fn row_names(&self) -> Option<&'a RowNamesRef> {
        self.rows.row_names.as_ref()
    }

    /// Optimizer metadata of a partition: that of the old partition of
    /// its first rows.
    pub(super) fn optimizer(&self, part: u64) -> Option<&'a Value> {
        let old = if self.moved {
            let parts = self.counts.len().max(1) as u64;
            part.saturating_mul(self.old_parts as u64) / parts
        } else {
            part
        };
        self.optimizers.get(usize::try_from(old).ok()?)
    }

    /// Integer step of a partition, as release 1.0.0 wrote it.
    pub(super) fn step(&self, part: u64) -> Option<Value> {
        let step = match self.sum?.attributes.get("step")? {
            Value::List(steps) if self.moved => steps.iter().max_by_key(|s| as_i64(s)).cloned(),
            Value::List(steps) => {
                // One entry per existing partition.
                let before = self.parts().take_while(|p| p.number < part).count();
                steps.get(before).cloned()
            }
            step => Some(step.clone()),
        };
        step.filter(|step| *step != Value::Null)
    }
}

fn as_i64(value: &Value) -> i64 {
    match value {
        Value::I64(n) => *n,
        Value::U64(n) => i64::try_from(*n).unwrap_or(i64::MAX),
        _ => i64::MIN,
    }
}

/// True for a table of embeddings, as opposed to a parameter of the model.
pub(super) fn is_table(entry: &TensorEntry) -> bool {
    if entry.role.is_state() || matches!(entry.role, Role::Names | Role::Edges) {
        return false;
    }
    let first = entry.path.parts().first().and_then(Name::as_str);
    let named = first == Some(EMBEDDINGS) && entry.path.parts().len() == 2;
    let of_model = first.is_some_and(|part| MODEL.contains(&part));
    entry.role == Role::Embedding || named || entry.shape.rank() == 2 && !of_model
}

/// Tables of a checkpoint, in its order, or in that of the configuration.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`]: `no-tables`; `bad-type-name` if the name of a table is not valid in
/// upstream; `two-tables` for a duplicate type; `not-a-table`; [`weighbridge_core::Kind::Usage`], `one-type`, if the setting
/// `type` would apply to several.
pub(super) fn tables<'a>(
    checkpoint: &'a Checkpoint,
    settings: &Settings,
    config: Option<&Config>,
) -> Result<Vec<Table<'a>>> {
    let mut tables: Vec<Table<'_>> = Vec::new();
    let mut types = HashSet::new();
    let found: Vec<&TensorEntry> = checkpoint.tensors.iter().filter(|t| is_table(t)).collect();
    if found.is_empty() {
        return Err(Error::mismatch("no-tables", "no embedding table to write")
            .in_file(&checkpoint.label)
            .expected("a tensor of two dimensions: rows of entities"));
    }
    if let Some(name) = &settings.entity
        && found.len() > 1
    {
        return Err(Error::usage("one-type", "several tables cannot have the same entity type")
            .found(format_args!("type={name} for {} tables", found.len()))
            .hint(phrase![Opt::Select, " selects one; ", Opt::Rename, " renames each to embeddings.TYPE"]));
    }
    let partitions = match &settings.partitions {
        Some(partitions) => {
            let old = |rows: &&TensorEntry| {
                let entity = type_of(rows, settings)?;
                let parts = old_parts(checkpoint, rows, &entity, config)?;
                Ok((entity, parts))
            };
            Some(partitions.resolve(&found.iter().map(old).collect::<Result<Vec<_>>>()?)?)
        }
        None => None,
    };
    for rows in found {
        let entity = type_of(rows, settings)?;
        if rows.shape.rank() != 2 {
            return Err(Error::mismatch("not-a-table", "an embedding table must have two dimensions")
                .on_tensor(rows.name())
                .found(&rows.shape));
        }
        if !types.insert(entity.clone()) {
            return Err(Error::mismatch("two-tables", "two tables have the same entity type")
                .on_tensor(rows.name())
                .found(&entity)
                .hint(phrase![Opt::Rename, " renames each to embeddings.TYPE"]));
        }
        tables.push(table(checkpoint, rows, entity, partitions.as_ref(), config)?);
    }
    if let Some(partitions) = &settings.partitions {
        partitions.check(tables.iter().map(|table| table.entity.as_str()))?;
    }
    if let Some(config) = config {
        let places =
            config.entities.iter().enumerate().rev().map(|(place, (name, _))| (name.as_str(), place));
        let places: HashMap<&str, usize> = places.collect();
        tables.sort_by_key(|table| places.get(table.entity.as_str()).copied().unwrap_or(usize::MAX));
    }
    Ok(tables)
}

/// Table without columns for an entity type with known names and partitions
/// only.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`], `bad-type-name`, and the errors of [`tables`].
pub(super) fn entity_type<'a>(
    checkpoint: &'a Checkpoint,
    entry: &'a TensorEntry,
    settings: &Settings,
) -> Result<Table<'a>> {
    table(checkpoint, entry, type_of(entry, &Settings::default())?, settings.partitions.as_ref(), None)
}

/// Entity type of a table.
fn type_of(rows: &TensorEntry, settings: &Settings) -> Result<String> {
    let last = || rows.path.parts().last().and_then(Name::as_str);
    let name = settings.entity.as_deref().or_else(last).unwrap_or_default();
    if is_type_name(name) {
        return Ok(name.to_owned());
    }
    Err(Error::mismatch("bad-type-name", "the table name is not a valid entity type name")
        .on_tensor(rows.name())
        .expected("a name without `.` and `/`")
        .hint(phrase![Opt::Set.any_pair("type", "NAME"), " sets the entity type"]))
}

fn table<'a>(
    checkpoint: &'a Checkpoint,
    rows: &'a TensorEntry,
    entity: String,
    partitions: Option<&Partitions>,
    config: Option<&Config>,
) -> Result<Table<'a>> {
    let all = rows.shape.dims().first().copied().unwrap_or(0);
    let old_parts = old_parts(checkpoint, rows, &entity, config)?;
    let old = stored_counts(checkpoint, &stored_type(rows), all);
    let old = old.unwrap_or_else(|| new_counts(&[all], old_parts).into_iter().map(Some).collect());
    let new_parts = partitions.map_or(old_parts, |p| p.of(&entity, old_parts));
    let moved = new_parts != old_parts;
    let mut counts = old;
    if moved {
        if let Some(missing) = counts.iter().position(Option::is_none) {
            return Err(Error::mismatch("partition-missing", "an incomplete table cannot be repartitioned")
                .on_tensor(rows.name())
                .found(format_args!("no partition {missing}")));
        }
        let known: Vec<u64> = counts.into_iter().flatten().collect();
        counts = new_counts(&known, new_parts).into_iter().map(Some).collect();
    }
    let is_sum = |t: &&TensorEntry| {
        t.path == rows.path
            && t.role.slot().is_some_and(|slot| slot.as_str() == Some(SUM))
            && t.shape.dims() == [all]
    };
    let sum = checkpoint.tensors.iter().find(is_sum);
    let stored = stored_type(rows);
    let optimizers = optimizers(checkpoint, &stored);
    // The file of a single table does not contain its type.
    let renamed = !stored.is_empty() && stored != entity;
    Ok(Table {
        entity,
        rows,
        sum,
        counts,
        moved,
        renamed,
        old_parts: usize::try_from(old_parts).unwrap_or(usize::MAX),
        optimizers,
    })
}

/// Number of partitions of a table: from the metadata, else from the configuration, else one.
///
/// # Errors
/// [`weighbridge_core::Kind::Limit`] if a configuration declares too many.
fn old_parts(
    checkpoint: &Checkpoint,
    rows: &TensorEntry,
    entity: &str,
    config: Option<&Config>,
) -> Result<u64> {
    let all = rows.shape.dims().first().copied().unwrap_or(0);
    match stored_counts(checkpoint, &stored_type(rows), all) {
        Some(counts) => Ok(counts.len() as u64),
        None => {
            let parts = config.and_then(|c| c.entity(entity)).map_or(1, |e| e.num_partitions);
            Limits::check("partitions", "tensors", parts, MAX_ALL_PARTITIONS)
                .map_err(|e| e.on_tensor(rows.name()))?;
            Ok(parts)
        }
    }
}

/// Row count of each partition in the metadata, if consistent with the table.
fn stored_counts(checkpoint: &Checkpoint, entity: &str, rows: u64) -> Option<Vec<Option<u64>>> {
    let Some(Value::Map(all)) = checkpoint.metadata.get("partitions") else { return None };
    let (_, Value::List(counts)) = all.iter().find(|(name, _)| name.as_str() == Some(entity))? else {
        return None;
    };
    let number = |value: &Value| match value {
        Value::U64(n) => Some(Some(*n)),
        Value::Null => Some(None),
        _ => None,
    };
    let counts: Vec<Option<u64>> = counts.iter().map(number).collect::<Option<_>>()?;
    let sum = counts.iter().flatten().try_fold(0u64, |sum, n| sum.checked_add(*n));
    (sum == Some(rows)).then_some(counts)
}

/// Optimizer metadata of the partitions of a type.
fn optimizers<'a>(checkpoint: &'a Checkpoint, entity: &str) -> &'a [Value] {
    let get = |value: Option<&'a Value>, key: &str| match value? {
        Value::Map(pairs) => pairs.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(_, v)| v),
        _ => None,
    };
    let of_tables = get(checkpoint.metadata.get("optimizer"), EMBEDDINGS);
    match get(of_tables, entity) {
        Some(Value::List(all)) => all,
        _ => &[],
    }
}
