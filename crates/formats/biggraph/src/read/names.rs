//! Entities: counts and names of each type.

use super::super::config::Config;
use super::super::layout::{FileName, Listing, relative_entity_folder};
use super::super::text::{NameFiles, read_count};
use super::entities::relations;
use super::{notes, parallel};
use crate::ReadOptions;
use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};
use weighbridge_core::checkpoint::{Checkpoint, Name, Note, Role, RowNamesRef, Value};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::counted;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, SourceRef, to_usize};

/// Entity folder.
#[derive(Debug)]
pub(crate) struct Entities {
    pub(crate) folder: FolderRef,
    pub(crate) listing: Listing,
}

impl Entities {
    /// Returns the folder, if it contains any entity file.
    pub(super) fn of(folder: &FolderRef) -> Result<Option<Self>> {
        let items = folder.list(1)?;
        let listing = Listing::of(items.iter().map(|item| item.name.as_path()));
        let any = !listing.counts.is_empty() || !listing.names.is_empty();
        Ok(any.then(|| Self { folder: folder.clone(), listing }))
    }
}

/// Entity counts by type and partition; `Null` for a partition without a count. Types in
/// the order of the configuration, which takes precedence if present.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`]; an unreadable count becomes a note.
pub(super) fn counts(entities: &Entities, config: Option<&Config>) -> Result<(Value, Vec<Note>)> {
    let (mut pairs, mut notes) = (Vec::new(), Vec::new());
    for (entity, parts) in types(entities, config)? {
        // Only existing files: a configuration can claim any number.
        let have = entities.listing.counts.get(&entity);
        let jobs: Vec<u64> = have.into_iter().flatten().copied().filter(|part| *part < parts).collect();
        let name = |part: u64| FileName::EntityCount { entity: entity.clone(), part };
        let read = |part: &u64| -> Result<Option<u64>> {
            match entities.folder.open(Path::new(&name(*part).to_string()))? {
                Some(source) => read_count(&source).map(Some),
                None => Ok(None),
            }
        };
        let mut list = vec![Value::Null; to_usize(parts)?];
        for (part, count) in jobs.iter().zip(parallel::map(&jobs, read)) {
            let count = match count {
                Ok(count) => count.map(Value::U64),
                Err(error) if super::is_content(&error) => {
                    let text = format!("{}: {}", name(*part), error.message());
                    notes.push(Note::new("count-broken", text));
                    None
                }
                Err(error) => return Err(error),
            };
            if let (Some(count), Some(slot)) = (count, list.get_mut(to_usize(*part)?)) {
                *slot = count;
            }
        }
        pairs.push((Name::from(entity.as_str()), Value::List(list)));
    }
    Ok((Value::Map(pairs), notes))
}

/// Number of dynamic relations, if readable.
pub(super) fn dynamic_count(entities: &Entities) -> Result<Option<u64>> {
    let Some(source) = entities.folder.open(Path::new(&FileName::RelationCount.to_string()))? else {
        return Ok(None);
    };
    match read_count(&source) {
        Ok(count) => Ok(Some(count)),
        Err(error) if super::is_content(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Entity types of a folder and their partition counts.
fn types(entities: &Entities, config: Option<&Config>) -> Result<Vec<(String, u64)>> {
    let listing = &entities.listing;
    let last = |parts: Option<&std::collections::BTreeSet<u64>>| {
        parts.and_then(|p| p.last()).map_or(0, |l| l.saturating_add(1))
    };
    let on_disk = |entity: &str| last(listing.counts.get(entity)).max(last(listing.names.get(entity)));
    let list: Vec<(String, u64)> = match config {
        Some(config) => config.entities.iter().map(|(name, e)| (name.clone(), e.num_partitions)).collect(),
        None => {
            let mut all: BTreeMap<&String, u64> = BTreeMap::new();
            for entity in listing.counts.keys().chain(listing.names.keys()) {
                all.insert(entity, on_disk(entity));
            }
            all.into_iter().map(|(entity, parts)| (entity.clone(), parts)).collect()
        }
    };
    // File names and a configuration could claim any number of partitions.
    let all = list.iter().fold(0u64, |sum, (_, parts)| sum.saturating_add(*parts));
    Limits::check("partitions", "tensors", all, super::MAX_ALL_PARTITIONS)?;
    Ok(list)
}

/// Row names of `entity`, whose partitions have these row counts: only if every
/// partition has a name file. A missing partition (`None`) has no rows and no names.
pub(super) fn labels(
    entities: &Entities,
    entity: &str,
    rows: &[Option<u64>],
    limits: &Limits,
) -> Result<Option<RowNamesRef>> {
    let mut files: Vec<(SourceRef, u64)> = Vec::with_capacity(rows.len());
    for (part, rows) in (0u64..).zip(rows) {
        let Some(rows) = rows else { continue };
        if !entities.listing.names.get(entity).is_some_and(|parts| parts.contains(&part)) {
            return Ok(None);
        }
        let name = FileName::EntityNames { entity: entity.to_owned(), part };
        let Some(source) = entities.folder.open(Path::new(&name.to_string()))? else { return Ok(None) };
        files.push((source, *rows));
    }
    let label = Path::new(entities.folder.label()).join(format!("entity_names_{entity}_*.json"));
    Ok((!files.is_empty()).then(|| NameFiles::shared(label.display().to_string(), files, limits.clone())))
}

/// Adds row names to the tables of a checkpoint, if found: in the folder named by the
/// caller, or at the path in the configuration, relative to the checkpoint.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`] and [`weighbridge_core::Kind::Limit`] of the folder named by the caller. For another folder
/// these become a note.
pub(super) fn attach(
    checkpoint: &mut Checkpoint,
    folder: &FolderRef,
    listing: &Listing,
    config: Option<&Config>,
    options: &OpenOptions,
) -> Result<()> {
    let notes = checkpoint.notes.len();
    note_unless_requested(name_rows(checkpoint, folder, listing, config, options), options).map(|trouble| {
        let Some(trouble) = trouble else { return };
        // All rows have names, or no row.
        for tensor in checkpoint.tensors.iter_mut().filter(|t| t.role == Role::Embedding) {
            tensor.row_names = None;
        }
        checkpoint.notes.truncate(notes);
        checkpoint.notes.push(trouble);
    })
}

/// Turns a failure to read entities into a note, unless the caller named the entity folder.
pub(super) fn note_unless_requested(done: Result<()>, options: &OpenOptions) -> Result<Option<Note>> {
    match done {
        Ok(()) => Ok(None),
        Err(error) if options.own::<ReadOptions>().entities.is_none() && error.kind() != Kind::Cancelled => {
            let place = error.file().map_or_else(String::new, |file| format!("{file}: "));
            let cause = std::error::Error::source(&error).map_or_else(String::new, |e| format!(": {e}"));
            let what = error.message();
            let text = format!("the entities are unreadable: {place}{what}{cause}");
            Ok(Some(Note::new("entities-unreadable", text)))
        }
        Err(error) => Err(error),
    }
}

fn name_rows(
    checkpoint: &mut Checkpoint,
    folder: &FolderRef,
    listing: &Listing,
    config: Option<&Config>,
    options: &OpenOptions,
) -> Result<()> {
    let Some((entities, way)) = entities_of_checkpoint(folder, listing, config, options)? else {
        return Ok(());
    };
    let (all, broken) = counts(&entities, config)?;
    checkpoint.notes.extend(broken);
    name_tables(checkpoint, &entities, &all, &way, options)?;
    // Without row names the tables are still complete.
    let lenient = OpenOptions { lenient: true, ..options.clone() };
    relations(checkpoint, &entities.folder, &lenient)
}

/// Adds row names to the file of one partition, if the caller named an entity folder.
pub(super) fn attach_to_part(
    checkpoint: &mut Checkpoint,
    entity: &str,
    part: u64,
    config: Option<&Config>,
    options: &OpenOptions,
) -> Result<()> {
    let Some(entities) = given(options)? else { return Ok(()) };
    let (all, broken) = counts(&entities, config)?;
    checkpoint.notes.extend(broken);
    let at = usize::try_from(part).ok();
    let read_version_file = lists_of(Some(&all)).get(entity).copied().map(numbers).unwrap_or_default();
    let read_version_file = at.and_then(|part| read_version_file.get(part).copied()).flatten();
    let rows = checkpoint.tensors.first().and_then(|t| t.shape.dims().first().copied());
    let way = entities.folder.label().to_owned();
    if read_version_file.is_some() && read_version_file != rows {
        let text = counts_of(entity, read_version_file.unwrap_or(0), rows.unwrap_or(0));
        checkpoint.notes.push(differ_from(&way, vec![text]));
        return Ok(());
    }
    let file = FileName::EntityNames { entity: entity.to_owned(), part };
    let source = match entities.folder.open(Path::new(&file.to_string()))? {
        Some(source) if entities.listing.names.get(entity).is_some_and(|own| own.contains(&part)) => source,
        _ => {
            let text = format!("{file} is missing in {way}; rows have no names");
            checkpoint.notes.push(Note::new("names-missing", text));
            return Ok(());
        }
    };
    if let (Some(rows), Some(table)) = (rows, checkpoint.tensors.first_mut()) {
        let label = source.label().to_owned();
        table.row_names = Some(NameFiles::shared(label, vec![(source, rows)], options.limits.clone()));
        checkpoint.notes.push(names_from(&way));
    }
    Ok(())
}

fn names_from(way: &str) -> Note {
    Note::new("names-from", format!("row names are from {way}"))
}

/// Number of names of an entity type, and of rows of its table.
fn counts_of(entity: &str, names: u64, rows: u64) -> String {
    format!("{entity}: {}, {}", counted(names, "entity", "entities"), counted(rows, "row", "rows"))
}

fn differ_from(way: &str, entities: Vec<String>) -> Note {
    let text = format!(
        "entity counts in {way} differ from the row counts; rows have no names: {}",
        notes::some(entities)
    );
    Note::new("counts-differ", text)
}

/// Adds row names to each table, if the entity counts equal the row counts.
fn name_tables(
    checkpoint: &mut Checkpoint,
    entities: &Entities,
    all: &Value,
    way: &str,
    options: &OpenOptions,
) -> Result<()> {
    let partitions = checkpoint.metadata.get("partitions").cloned();
    let (partitions, all) = (lists_of(partitions.as_ref()), lists_of(Some(all)));
    let (mut named, mut differ, mut in_part, mut nameless) = (false, Vec::new(), Vec::new(), Vec::new());
    for tensor in checkpoint.tensors.iter_mut().filter(|t| t.role == Role::Embedding) {
        let Some(entity) = tensor.path.parts().get(1).and_then(|name| name.as_str()).map(str::to_owned)
        else {
            continue;
        };
        let rows = partitions.get(entity.as_str()).copied().map(numbers).unwrap_or_default();
        let read_version_file = all.get(entity.as_str()).copied().map(numbers).unwrap_or_default();
        let disagree = rows.iter().zip(&read_version_file).any(|(rows, read_version_file)| {
            rows.is_some() && read_version_file.is_some() && rows != read_version_file
        });
        if disagree
            || (rows.len() != read_version_file.len() && read_version_file.iter().any(Option::is_some))
        {
            let sum = |counts: &[Option<u64>]| {
                counts.iter().flatten().fold(0, |sum: u64, n| sum.saturating_add(*n))
            };
            differ.push(counts_of(&entity, sum(&read_version_file), sum(&rows)));
            continue;
        }
        // The rows of a missing partition are not in the table either.
        match labels(entities, &entity, &rows, &options.limits)? {
            Some(labels) => {
                tensor.row_names = Some(labels);
                named = true;
            }
            None if entities.listing.names.contains_key(&entity) => in_part.push(entity),
            None => nameless.push(entity),
        }
    }
    if !differ.is_empty() {
        checkpoint.notes.push(differ_from(way, differ));
    }
    if !in_part.is_empty() {
        let text = format!(
            "some partitions have no name file in {way}; rows have no names: {}",
            notes::some(in_part)
        );
        checkpoint.notes.push(Note::omission("names-incomplete", text));
    }
    // Upstream needs counts only; names are expected only from a folder named by the caller.
    if !nameless.is_empty() && options.own::<ReadOptions>().entities.is_some() {
        let text = format!("{way} has no names; rows have no names: {}", notes::some(nameless));
        checkpoint.notes.push(Note::new("names-missing", text));
    }
    if named {
        checkpoint.notes.push(names_from(way));
    }
    Ok(())
}

/// Lists in a map of lists, by type.
pub(in super::super) fn lists_of(map: Option<&Value>) -> HashMap<&str, &[Value]> {
    let Some(Value::Map(pairs)) = map else { return HashMap::new() };
    let mut lists = HashMap::with_capacity(pairs.len());
    for (name, list) in pairs {
        if let (Some(name), Value::List(list)) = (name.as_str(), list) {
            lists.entry(name).or_insert(list.as_slice());
        }
    }
    lists
}

/// Numbers in a list; `None` for other values.
pub(in super::super) fn numbers(list: &[Value]) -> Vec<Option<u64>> {
    let number = |value: &Value| match value {
        Value::U64(number) => Some(*number),
        _ => None,
    };
    list.iter().map(number).collect()
}

/// Entities named by the caller.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], code `no-entities`, if the folder has none.
fn given(options: &OpenOptions) -> Result<Option<Entities>> {
    let Some(given) = &options.own::<ReadOptions>().entities else { return Ok(None) };
    Entities::of(given)?.map(Some).ok_or_else(|| {
        Error::usage("no-entities", "the folder has no entity counts or names")
            .in_file(given.label())
            .expected("entity_count_TYPE_PART.txt and entity_names_TYPE_PART.json")
    })
}

fn entities_of_checkpoint(
    folder: &FolderRef,
    listing: &Listing,
    config: Option<&Config>,
    options: &OpenOptions,
) -> Result<Option<(Entities, String)>> {
    if let Some(given) = given(options)? {
        let way = given.folder.label().to_owned();
        return Ok(Some((given, way)));
    }
    let mut ways: Vec<PathBuf> = Vec::new();
    if let Some(config) = config {
        let way = relative_entity_folder(&config.checkpoint_path, &config.entity_path);
        // A snapshot is one level deeper than its checkpoint.
        let snapshot = !listing.config && listing.version_file;
        ways.extend(way.iter().cloned());
        ways.extend(way.filter(|_| snapshot).map(|way| Path::new("..").join(way)));
    }
    find(folder, ways)
}

/// Entities of an edge folder: in the folder named by the caller, at the path in the configuration
/// relative to the edges, in the same folder, or in its parent.
pub(super) fn entities_of_edges(
    folder: Option<&FolderRef>,
    config: Option<&Config>,
    options: &OpenOptions,
) -> Result<Option<(Entities, String)>> {
    if let Some(given) = given(options)? {
        let way = given.folder.label().to_owned();
        return Ok(Some((given, way)));
    }
    let Some(folder) = folder else { return Ok(None) };
    let own = Path::new(folder.label()).file_name();
    let mut ways = Vec::new();
    for path in config.into_iter().flat_map(|config| &config.edge_paths) {
        // Only the edge path that can be this folder.
        if Path::new(path).file_name() == own
            && let Some(config) = config
        {
            ways.extend(relative_entity_folder(path, &config.entity_path));
        }
    }
    if let Some(found) = find(folder, ways)? {
        return Ok(Some(found));
    }
    let Some(parent) = folder.beside(Path::new(".."))? else { return Ok(None) };
    Ok(Entities::of(&parent)?.map(|entities| (entities, "the parent folder".to_owned())))
}

/// Text of a path without `x/..`.
fn plain(path: &Path) -> String {
    let mut parts: Vec<Component<'_>> = Vec::new();
    for part in path.components() {
        match (part, parts.last()) {
            (Component::ParentDir, Some(Component::Normal(_))) => {
                parts.pop();
            }
            (part, _) => parts.push(part),
        }
    }
    parts.iter().collect::<PathBuf>().display().to_string()
}

/// First of these folders that contains entities; the folder itself comes last.
fn find(folder: &FolderRef, ways: Vec<PathBuf>) -> Result<Option<(Entities, String)>> {
    for way in ways {
        if let Some(found) = folder.beside(&way)?
            && let Some(entities) = Entities::of(&found)?
        {
            return Ok(Some((entities, plain(&Path::new(folder.label()).join(&way)))));
        }
    }
    Ok(Entities::of(folder)?.map(|entities| (entities, "the same folder".to_owned())))
}
