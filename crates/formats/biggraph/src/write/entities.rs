//! Counts and names of entities and relations.

use super::super::layout::FileName;
use super::super::text::{NamesJson, number_text};
use super::settings::Settings;
use super::tables::{self, Table};
use super::{bytes_of, literal};
use std::sync::Arc;
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::{
    Checkpoint, Loss, Name, Role, RowNameList, RowNamesRef, TensorEntry, Value, check_count,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::PlannedFile;

/// Metadata key of the number of dynamic relations.
const DYNAMIC_RELATIONS: &str = "dynamic_relations";
/// Metadata key of the relation names.
const RELATION_NAMES: &str = "relation_names";
/// First path part of entity types without a table.
const ENTITIES: &str = "entities";

/// Entity type with the row count of each partition, and its names if known.
struct Kind<'a> {
    entity: String,
    counts: Vec<u64>,
    row_names: Option<&'a RowNamesRef>,
}

/// Plans the entity folder of a checkpoint.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`], `no-entities`, without types and tables.
pub(super) fn folder(
    checkpoint: &Checkpoint,
    settings: &Settings,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    let is_type = |t: &&TensorEntry| {
        t.role == Role::Names && t.path.parts().first().and_then(Name::as_str) == Some(ENTITIES)
    };
    let mut kinds = Vec::new();
    for entry in checkpoint.tensors.iter().filter(is_type) {
        // Same arithmetic as for a table; only the number of columns differs.
        let table = tables::entity_type(checkpoint, entry, settings)?;
        let counts = known_counts(&table, losses);
        kinds.push(Kind { entity: table.entity, counts, row_names: entry.row_names.as_ref() });
    }
    if kinds.is_empty() {
        let tables = tables::tables(checkpoint, settings, None).map_err(|e| match e.code() {
            ErrorCode::NoTables => {
                Error::mismatch("no-entities", "no entity types and no tables").in_file(&checkpoint.label)
            }
            _ => e,
        })?;
        kinds = tables.iter().map(|table| kind_of(table, losses)).collect();
    } else if let Some(partitions) = &settings.partitions {
        partitions.check(kinds.iter().map(|kind| kind.entity.as_str()))?;
    }
    losses.extend(checkpoint.tensors.iter().filter(|t| !is_type(t)).map(super::no_place));
    let mut all = Vec::new();
    for kind in &kinds {
        all.extend(files(kind)?);
        if kind.row_names.is_none() {
            losses.push(Loss::new("no-names", &kind.entity, "row names unknown: only counts are written"));
        }
    }
    all.extend(relations(checkpoint, None)?);
    Ok(all)
}

/// Plans the entity files next to the tables of a checkpoint.
pub(super) fn beside(
    checkpoint: &Checkpoint,
    tables: &[Table<'_>],
    relation_names: Option<&[String]>,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    let mut all = Vec::new();
    for table in tables {
        all.extend(files(&kind_of(table, losses))?);
    }
    all.extend(relations(checkpoint, relation_names)?);
    Ok(all)
}

fn kind_of<'a>(table: &Table<'a>, losses: &mut Vec<Loss>) -> Kind<'a> {
    Kind { entity: table.entity.clone(), counts: known_counts(table, losses), row_names: table.row_names() }
}

fn known_counts(table: &Table<'_>, losses: &mut Vec<Loss>) -> Vec<u64> {
    if table.counts.contains(&None) {
        let detail = "missing partitions are written as empty";
        losses.push(Loss::new("partition-missing", &table.entity, detail));
    }
    table.counts.iter().map(|count| count.unwrap_or(0)).collect()
}

fn files(kind: &Kind<'_>) -> Result<Vec<PlannedFile>> {
    let names = kind.row_names.map(|labels| names_of(labels, kind)).transpose()?;
    let mut all = Vec::new();
    let mut start = 0usize;
    for (part, &count) in (0u64..).zip(&kind.counts) {
        let entity = kind.entity.clone();
        let name = FileName::EntityCount { entity: entity.clone(), part };
        all.push(literal(&name.to_string(), number_text(count)));
        if let Some(names) = &names {
            let end = start.saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
            let name = FileName::EntityNames { entity, part };
            let source = NamesJson::new(name.to_string(), names.clone(), start..end);
            all.push(bytes_of(&name.to_string(), Arc::new(source))?);
            start = end;
        }
    }
    Ok(all)
}

fn names_of(labels: &RowNamesRef, kind: &Kind<'_>) -> Result<Arc<RowNameList>> {
    let names = labels.read()?;
    check_count(&**labels, names.len() as u64, kind.counts.iter().sum())?;
    Ok(names)
}

/// Plans the relation files from the metadata; `given` are names from the configuration.
fn relations(checkpoint: &Checkpoint, given: Option<&[String]>) -> Result<Vec<PlannedFile>> {
    let mut all = Vec::new();
    if let Some(Value::U64(count)) = checkpoint.metadata.get(DYNAMIC_RELATIONS) {
        all.push(literal(&FileName::RelationCount.to_string(), number_text(*count)));
    }
    let known: Option<Vec<&str>> = match checkpoint.metadata.get(RELATION_NAMES) {
        Some(Value::List(names)) => names.iter().map(text).collect(),
        _ => given.map(|names| names.iter().map(String::as_str).collect()),
    };
    if let Some(names) = known {
        let list: RowNameList = names.into_iter().collect();
        let (name, end) = (FileName::RelationNames, list.len());
        let source = NamesJson::new(name.to_string(), Arc::new(list), 0..end);
        all.push(bytes_of(&name.to_string(), Arc::new(source))?);
    }
    Ok(all)
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}
