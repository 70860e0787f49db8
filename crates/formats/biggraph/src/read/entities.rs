//! Entity folder: tables of names only.

use super::super::layout::{FileName, Listing};
use super::super::text::{read_count, read_names};
use super::names::{Entities, counts, labels, lists_of, numbers};
use super::{config, notes};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::{
    Checkpoint, Name, Note, Role, RowNameList, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, MemorySource, SourceRef, read_vec};

/// Maximum number of types without counts listed one by one.
const MAX_LISTED: usize = 20;
/// Maximum length of a count file in bytes.
const MAX_COUNT_LEN: u64 = 64;
/// Minimum memory of a relation name besides its text: each is a metadata value.
const VALUE_MEMORY: u64 = 320;

/// Names of the entity files in a folder.
///
/// # Errors
/// Errors of listing.
pub(crate) fn entity_files(folder: &FolderRef) -> Result<Vec<PathBuf>> {
    let is_of_entities = |name: &Path| {
        name.to_str().and_then(FileName::parse).is_some_and(|name| {
            use FileName::{EntityCount, EntityNames, RelationCount, RelationNames};
            matches!(name, EntityCount { .. } | EntityNames { .. } | RelationCount | RelationNames)
        })
    };
    let items = folder.list(1)?;
    Ok(items.into_iter().map(|item| item.name).filter(|name| is_of_entities(name)).collect())
}

/// Relation names, if the rows of `entry` are relations: for a parameter of dynamic relations.
pub(crate) fn relation_rows(checkpoint: &Checkpoint, entry: &TensorEntry) -> Option<RowNameList> {
    let is_parameter = entry.path.parts().first().and_then(Name::as_str) == Some("relations");
    let Some(Value::List(names)) = checkpoint.metadata.get("relation_names") else { return None };
    let fits = is_parameter && entry.shape.dims().first() == Some(&(names.len() as u64));
    let dynamic =
        || super::super::check::config_of(checkpoint).is_some_and(|config| config.dynamic_relations);
    if !fits || !dynamic() {
        return None;
    }
    let text = |name: &Value| match name {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    let names: Vec<String> = names.iter().map(text).collect::<Option<_>>()?;
    Some(names.iter().map(String::as_str).collect())
}

/// Opens an entity folder.
///
/// # Errors
/// Errors of a count or of a list of relation names; with `options.lenient` notes.
pub(super) fn open(folder: &FolderRef, listing: &Listing, options: &OpenOptions) -> Result<Checkpoint> {
    let mut checkpoint = super::checkpoint(super::ENTITIES, folder.label());
    let known = match config::given(options)? {
        Some(known) => Some(known),
        None => {
            let beside = config::beside(folder)?;
            if beside.is_some() {
                super::was_read(&mut checkpoint, folder, &FileName::Config)?;
            }
            beside
        }
    };
    let config = known.as_ref().map(|known| &known.config);
    let entities = Entities { folder: folder.clone(), listing: listing.clone() };
    let (all, broken) = counts(&entities, config)?;
    checkpoint.notes.extend(broken);
    counts_read(&mut checkpoint, &entities)?;
    let lists = lists_of(Some(&all));
    let types: &[(Name, Value)] = if let Value::Map(pairs) = &all { pairs } else { &[] };
    let mut uncounted = 0usize;
    let nothing: SourceRef = Arc::new(MemorySource::new(folder.label(), Vec::new()));
    for entity in types.iter().filter_map(|(name, _)| name.as_str()) {
        let parts = lists.get(entity).copied().map(numbers).unwrap_or_default();
        let rows = parts.iter().flatten().fold(0u64, |sum, rows| sum.saturating_add(*rows));
        let path = TensorPath::new(vec![Name::from("entities"), Name::from(entity)]);
        let shape = Shape::from([rows, 0]);
        let mut entry = TensorEntry::dense(path, DType::U8, shape, &nothing, 0, Encoding::ROW)?;
        // It has no file.
        entry.extents.clear();
        entry.role = Role::Names;
        match parts.iter().all(Option::is_some) {
            true => entry.row_names = labels(&entities, entity, &parts, &options.limits)?,
            false if uncounted >= MAX_LISTED => uncounted += 1,
            false => {
                uncounted += 1;
                let text = format!("{entity}: partitions without a count file; rows have no names");
                checkpoint.notes.push(Note::new("count-missing", text));
            }
        }
        checkpoint.tensors.push(entry);
    }
    if let Some(more) = uncounted.checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        let text = format!("{more} more entity types have partitions without a count file");
        checkpoint.notes.push(Note::new("count-missing", text));
    }
    checkpoint.metadata.set("partitions", all);
    if let Some(known) = &known {
        checkpoint.metadata.set("config", Value::Text(known.text.clone()));
    }
    relations(&mut checkpoint, folder, options)?;
    checkpoint.notes.extend(notes::strays(listing));
    Ok(checkpoint)
}

/// Adds the count files to the sources read. They are kept in memory, as there may be many.
fn counts_read(checkpoint: &mut Checkpoint, entities: &Entities) -> Result<()> {
    for (entity, parts) in &entities.listing.counts {
        for &part in parts {
            let name = FileName::EntityCount { entity: entity.clone(), part };
            let Some(source) = entities.folder.open(Path::new(&name.to_string()))? else { continue };
            if source.len() <= MAX_COUNT_LEN {
                let bytes = read_vec(&*source, 0, source.len())?;
                checkpoint.files.push(Arc::new(MemorySource::new(source.label(), bytes)));
            }
        }
    }
    Ok(())
}

/// Adds the number and the names of relations, if there are files of them.
///
/// # Errors
/// Errors of these files, unless `options.lenient`.
pub(super) fn relations(
    checkpoint: &mut Checkpoint,
    folder: &FolderRef,
    options: &OpenOptions,
) -> Result<()> {
    let mut take = |name: FileName, read: &dyn Fn(&SourceRef) -> Result<Value>, key: &str| -> Result<()> {
        let Some(source) = folder.open(Path::new(&name.to_string()))? else { return Ok(()) };
        match read(&source) {
            Ok(value) => {
                checkpoint.metadata.set(key, value);
                checkpoint.files.push(source);
            }
            Err(error) if options.lenient && super::is_content(&error) => {
                checkpoint.notes.push(Note::omission(error.code(), format!("{name}: {}", error.message())));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    };
    let names = |source: &SourceRef| {
        Limits::check_part("bytes of names", "header_bytes", source.len(), options.limits.header_bytes, 1)?;
        let mut list = RowNameList::new();
        let most = options.limits.header_bytes / 4;
        // Beyond the limit, one more name is enough to detect the excess.
        let count = match read_names(source, &options.limits, Some(most / VALUE_MEMORY), &mut list) {
            Err(error) if error.code() == ErrorCode::NamesDiffer => most / VALUE_MEMORY + 1,
            count => count?,
        };
        let bytes = count.saturating_mul(VALUE_MEMORY).saturating_add(list.text().len() as u64);
        Limits::check("bytes of names of relations", "header_bytes", bytes, most)?;
        Ok(Value::List(list.iter().map(|name| Value::Text(name.to_owned())).collect()))
    };
    take(FileName::RelationCount, &|source| read_count(source).map(Value::U64), "dynamic_relations")?;
    take(FileName::RelationNames, &names, "relation_names")
}
