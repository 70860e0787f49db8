//! Check of tables, parameters, names and statistics against the configuration.

use super::super::config::{Config, Relation};
use super::super::layout::FileName;
use super::super::read::{self, CHECKPOINT, MODEL, lists_of, numbers, table_path};
use super::super::text::summarise_stats;
use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Checkpoint, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::Result;
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::text::{counted, escape};
use weighbridge_format::OpenOptions;

/// Compares the tables and parameters with those of the configuration.
pub(super) fn check(checkpoint: &Checkpoint, config: Option<&Config>) -> Result<Vec<Finding>> {
    let Some(config) = config else {
        let finding = Finding::unchecked(
            "no-config",
            "no configuration: tables and parameters were not checked for completeness",
        );
        return Ok(vec![finding]);
    };
    let own: HashMap<&TensorPath, &TensorEntry> =
        checkpoint.tensors.iter().filter(|t| t.role.slot().is_none()).map(|t| (&t.path, t)).collect();
    let mut findings = Vec::new();
    for (entity, known) in &config.entities {
        let Some(table) = own.get(&table_path(Some(entity))) else { continue };
        let wanted = known.dimension.unwrap_or(config.dimension);
        let found = table.shape.dims().get(1).copied();
        if let Some(found) = found.filter(|found| *found != wanted) {
            let text = format!("the table has {found} columns, but the configuration has dimension {wanted}");
            findings.push(Finding::error("table-dimension", text).on_tensor(table.name()));
        }
    }
    if matches!(checkpoint.kind, CHECKPOINT | MODEL) && !has_no_model(checkpoint) {
        findings.extend(parameters(&own, config));
    }
    if checkpoint.kind == CHECKPOINT {
        findings.extend(partitions(checkpoint, config, "the configuration"));
        findings.extend(folder_config(checkpoint, &own, config)?);
    }
    Ok(findings)
}

/// Compares the partitions of each type with a configuration.
fn partitions(checkpoint: &Checkpoint, config: &Config, name: &str) -> Vec<Finding> {
    let found = lists_of(checkpoint.metadata.get("partitions"));
    let wanted = config.stored_types().map(|(entity, known)| (entity, known.num_partitions));
    let differ = |(entity, wanted): (&str, u64)| {
        // A missing table is a finding of its own.
        let found = found.get(entity)?.len() as u64;
        (found != wanted).then(|| {
            let text = format!(
                "{name} has {wanted} partitions of the entity type {}, the files have {found}",
                escape(entity)
            );
            Finding::error("partitions-differ", text)
                .hint("use the configuration of these files: training would use other rows")
        })
    };
    wanted.filter_map(differ).collect()
}

/// Compares the `config.json` of the folder with the files of the version and the configuration inside them:
/// resuming from the folder uses `config.json`.
fn folder_config(
    checkpoint: &Checkpoint,
    own: &HashMap<&TensorPath, &TensorEntry>,
    config: &Config,
) -> Result<Vec<Finding>> {
    let name = FileName::Config.to_string();
    let Some((_, source)) = checkpoint.companions.iter().find(|(other, _)| *other == name) else {
        return Ok(Vec::new());
    };
    let folder = match Config::read(source, &OpenOptions { lenient: true, ..OpenOptions::default() }) {
        Ok((folder, _)) => folder,
        Err(error) => return Finding::from_error(&error).map(|finding| vec![finding]).ok_or(error),
    };
    if folder == *config {
        return Ok(Vec::new());
    }
    let mut texts = Vec::new();
    let dimension = |config: &Config, entity: &str| config.dimension_of(entity).unwrap_or(0);
    for (entity, _) in folder.stored_types() {
        let Some(table) = own.get(&table_path(Some(entity))) else { continue };
        let (found, wanted) = (table.shape.dims().get(1).copied(), dimension(&folder, entity));
        if found.is_some_and(|found| found != wanted) && dimension(config, entity) != wanted {
            let found = counted(found.unwrap_or(0), "column", "columns");
            let entity = escape(entity);
            texts.push(format!("the entity type {entity} has dimension {wanted}, its table has {found}"));
        }
    }
    let stored: HashSet<&str> = folder.stored_types().map(|(entity, _)| entity).collect();
    for (entity, _) in config.stored_types().filter(|(entity, _)| !stored.contains(entity)) {
        texts.push(format!("no relation uses the entity type {}, but it has a table", escape(entity)));
    }
    let trained: HashSet<&str> = config.stored_types().map(|(entity, _)| entity).collect();
    for entity in stored.iter().filter(|entity| !trained.contains(*entity)) {
        texts.push(format!("the entity type {} has no table", escape(entity)));
    }
    if folder.relations.len() != config.relations.len() {
        let (wanted, found) = (folder.relations.len(), config.relations.len());
        texts.push(format!("the configuration has {wanted} relations, the files were trained with {found}"));
    }
    for (number, (one, other)) in folder.relations.iter().zip(&config.relations).enumerate() {
        let of = |r: &Relation| format!("{} {} {} {}", r.name, r.lhs, r.rhs, r.operator);
        if of(one) != of(other) {
            let (one, other) = (escape(&of(one)), escape(&of(other)));
            texts.push(format!("relation {number} is `{one}`, the files were trained with `{other}`"));
            break;
        }
    }
    for (key, one, other) in [
        ("dynamic_relations", folder.dynamic_relations, config.dynamic_relations),
        ("global_emb", folder.global_emb, config.global_emb),
    ] {
        if one != other {
            texts.push(format!("{key} is {one}, the files were trained with {other}"));
        }
    }
    let hint = "restore the configuration of these files before you resume";
    let finding = |text: String| Finding::error("config-differs", format!("{name}: {text}")).hint(hint);
    let mut findings: Vec<Finding> = texts.into_iter().map(finding).collect();
    findings.extend(partitions(checkpoint, &folder, &name));
    Ok(findings)
}

/// True for a checkpoint without its model file: that is one finding, not one for each
/// parameter.
fn has_no_model(checkpoint: &Checkpoint) -> bool {
    let Some(Value::Map(optimizer)) = checkpoint.metadata.get("optimizer") else { return false };
    let of_model = optimizer.iter().find(|(name, _)| name.as_str() == Some("model"));
    let stateless = of_model.is_some_and(|(_, state)| *state == Value::Null);
    checkpoint.kind == CHECKPOINT
        && stateless
        && !checkpoint.tensors.iter().any(|t| t.role == Role::Parameter)
}

/// Missing and unknown parameters, and parameters of another shape.
fn parameters(own: &HashMap<&TensorPath, &TensorEntry>, config: &Config) -> Vec<Finding> {
    // An unknown operator is a finding of the configuration.
    let Some(wanted) = read::parameters(config) else { return Vec::new() };
    let mut findings = Vec::new();
    for (path, shape) in &wanted {
        let Some(found) = own.get(path) else {
            findings.push(
                Finding::error("parameter-missing", "the parameter is missing")
                    .on_tensor(path)
                    .hint("restore the parameter: BigGraph would silently use its initial value"),
            );
            continue;
        };
        // The first dimension of a dynamic parameter is the number of relations.
        let skip = usize::from(config.dynamic_relations);
        let dims = found.shape.dims();
        if dims.len() != shape.len() || dims.get(skip..) != shape.get(skip..) {
            let text = format!("the shape {} does not match the configuration", found.shape);
            findings.push(Finding::error("parameter-shape", text).on_tensor(path));
        }
    }
    let known: HashSet<&TensorPath> = wanted.iter().map(|(path, _)| path).collect();
    let mut unknown: Vec<&&TensorEntry> =
        own.values().filter(|t| t.role == Role::Parameter && !known.contains(&t.path)).collect();
    unknown.sort_by(|a, b| a.path.cmp(&b.path));
    for entry in unknown {
        // Old names of affine parameters, still accepted.
        let last = entry.path.parts().last().and_then(|part| part.as_str()).unwrap_or_default();
        if !matches!(last, "rotation" | "rotations") {
            findings.push(
                Finding::error("parameter-unknown", "the configuration has no such parameter")
                    .on_tensor(entry.name())
                    .hint("remove the parameter: BigGraph refuses unknown parameter names"),
            );
        }
    }
    findings
}

/// Checks the row names: one per row, no duplicates.
pub(super) fn names(checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for tensor in &checkpoint.tensors {
        let Some(labels) = &tensor.row_names else { continue };
        let list = match labels.read() {
            Ok(list) => list,
            Err(error) => match Finding::from_error(&error) {
                Some(finding) => {
                    findings.push(Finding { tensor: Some(tensor.name()), ..finding });
                    continue;
                }
                None => return Err(error),
            },
        };
        let index = list.index();
        let twice = list.len() - index.len();
        if twice > 0 {
            let first = list.iter().enumerate().find(|(row, name)| index.get(name) != Some(row));
            let text = match first {
                Some((row, name)) => {
                    let other = index.get(name).copied().unwrap_or(row);
                    format!("{twice} duplicate row names; rows {row} and {other} are both named {name:?}")
                }
                None => format!("{twice} duplicate row names"),
            };
            findings.push(
                Finding::warning("duplicate-name", text).in_file(labels.label()).on_tensor(tensor.name()),
            );
        }
    }
    Ok(findings)
}

/// Checks the training statistics.
pub(super) fn statistics(checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
    let name = FileName::Stats.to_string();
    let Some((_, source)) = checkpoint.companions.iter().find(|(own, _)| *own == name) else {
        return Ok(Vec::new());
    };
    match summarise_stats(source, &Limits::default()) {
        Ok(summary) => Ok(summary.findings),
        Err(error) => Finding::from_error(&error).map(|finding| vec![finding]).ok_or(error),
    }
}

/// Checks the entity partitions against the configuration.
pub(super) fn entities(checkpoint: &Checkpoint, config: Option<&Config>) -> Vec<Finding> {
    let partitions = lists_of(checkpoint.metadata.get("partitions"));
    let mut findings = Vec::new();
    for tensor in &checkpoint.tensors {
        let Some(entity) = tensor.path.parts().get(1).and_then(|part| part.as_str()) else { continue };
        let counts = partitions.get(entity).copied().map(numbers).unwrap_or_default();
        if tensor.row_names.is_none() && counts.iter().all(Option::is_some) {
            let text = "entity names are missing for some or all partitions";
            findings.push(Finding::note("names-missing", text).on_tensor(tensor.name()));
        }
    }
    if config.is_some_and(|config| config.dynamic_relations)
        && checkpoint.metadata.get("dynamic_relations").is_none()
    {
        let text = "dynamic relations need dynamic_rel_count.txt, which is missing; training stops there";
        findings.push(Finding::error("relation-count-missing", text));
    }
    if let (Some(Value::U64(count)), Some(Value::List(names))) =
        (checkpoint.metadata.get("dynamic_relations"), checkpoint.metadata.get("relation_names"))
        && *count != names.len() as u64
    {
        let text = format!("{count} dynamic relations, but {} relation names", names.len());
        findings.push(Finding::error("relation-names-differ", text));
    }
    findings
}
