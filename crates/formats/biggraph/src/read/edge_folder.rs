//! Edge folder: one file per bucket.

use super::super::config::{Config, Sides};
use super::super::edges::named::NamedEdges;
use super::super::layout::{FileName, Listing};
use super::{BUCKET, LISTS, config, edges, names, notes, parallel};
use crate::ReadOptions;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Name, Note, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_core::text::escape;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, MemorySource, SourceRef};

/// Opens all buckets of a folder in order.
///
/// # Errors
/// Errors of the files. With `options.lenient` an unreadable file becomes a note.
pub(super) fn open(folder: &FolderRef, listing: &Listing, options: &OpenOptions) -> Result<Checkpoint> {
    let mut checkpoint = super::checkpoint(super::EDGES, folder.label());
    let buckets: Vec<(u64, u64)> = listing.edges.iter().copied().collect();
    Limits::check("tensors", "tensors", (buckets.len() as u64).saturating_mul(3), options.limits.tensors)?;
    let open = |&(lhs, rhs): &(u64, u64)| {
        let name = FileName::Edges { lhs, rhs }.to_string();
        match folder.open(Path::new(&name))? {
            Some(source) => {
                let found = edges::open(&source, Some((lhs, rhs)), options)?;
                // Columns without elements do not lead to their file.
                let is_empty = found.columns.iter().all(|column| column.elements() == 0);
                Ok(Some((found, is_empty.then_some(source))))
            }
            None => Ok(None),
        }
    };
    let mut version: Option<Value> = None;
    for (&(lhs, rhs), opened) in buckets.iter().zip(parallel::map(&buckets, open)) {
        match opened {
            Ok(Some((found, empty))) => {
                checkpoint.files.extend(empty);
                checkpoint.tensors.extend(found.columns);
                checkpoint.notes.extend(found.notes);
                version = version.or(found.version);
            }
            Ok(None) => {}
            Err(error) if options.lenient && super::is_content(&error) => {
                let name = FileName::Edges { lhs, rhs };
                if options.salvage {
                    checkpoint.lose(format_args!("(edges of {name})"), &error);
                }
                let text = format!("{name} skipped: {}", error.message());
                checkpoint.notes.push(Note::omission(error.code(), text));
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(version) = version {
        checkpoint.metadata.set("format_version", version);
    }
    let unfinished: Vec<String> = listing
        .unfinished_edges
        .iter()
        .map(|&(lhs, rhs)| FileName::UnfinishedEdges { lhs, rhs }.to_string())
        .collect();
    if !unfinished.is_empty() {
        let text = format!("unfinished edge files skipped: {}", notes::some(unfinished));
        checkpoint.notes.push(Note::new("edges-unfinished", text));
    }
    if !listing.counts.is_empty() || !listing.names.is_empty() {
        let text = "the folder also contains entities";
        checkpoint.notes.push(Note::new("also-here", text));
    }
    checkpoint.notes.extend(notes::strays(listing));
    if let Some(config) = add_meaning(&mut checkpoint, Some(folder), options)? {
        add_empty_buckets(&mut checkpoint, listing, &config, options)?;
    }
    Ok(checkpoint)
}

/// Adds the buckets without a file as empty ones: upstream's importer writes no file for a bucket
/// without edges. An unfinished bucket is not empty.
fn add_empty_buckets(
    checkpoint: &mut Checkpoint,
    listing: &Listing,
    config: &Config,
    options: &OpenOptions,
) -> Result<()> {
    // Different partition counts of a side are a finding of the configuration.
    let Ok(Sides { lhs, rhs }) = config.sides() else { return Ok(()) };
    let mut columns: Vec<(Name, DType)> = Vec::new();
    for column in &checkpoint.tensors {
        if let Some(name) =
            column.path.parts().last().filter(|name| !columns.iter().any(|(own, _)| own == *name))
        {
            columns.push((name.clone(), column.dtype()));
        }
    }
    let all = lhs.saturating_mul(rhs);
    let tensors = all.saturating_mul(columns.len() as u64);
    if columns.is_empty() || tensors > options.limits.tensors {
        return Ok(());
    }
    let is_there =
        |bucket: &(u64, u64)| listing.edges.contains(bucket) || listing.unfinished_edges.contains(bucket);
    let wanted = (0..lhs).flat_map(|l| (0..rhs).map(move |r| (l, r)));
    let missing: Vec<(u64, u64)> = wanted.filter(|bucket| !is_there(bucket)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let zero: SourceRef = Arc::new(MemorySource::new(checkpoint.label.clone(), vec![0; 8]));
    for &(l, r) in &missing {
        for (name, dtype) in &columns {
            // Offsets of an empty column of lists.
            let is_offsets = LISTS.iter().any(|(offsets, _)| name.as_str() == Some(offsets));
            let (shape, dtype) = if is_offsets { (1, DType::I64) } else { (0, *dtype) };
            let path = TensorPath::new([Name::from(format!("{l}_{r}").as_str()), name.clone()]);
            let mut entry = TensorEntry::dense(path, dtype, Shape::new([shape]), &zero, 0, Encoding::ROW)?;
            entry.role = Role::Edges;
            entry.attributes.insert(BUCKET.to_owned(), Value::List(vec![Value::U64(l), Value::U64(r)]));
            checkpoint.tensors.push(entry);
        }
    }
    let bucket = |entry: &TensorEntry| match entry.attributes.get(BUCKET) {
        Some(Value::List(pair)) => match pair[..] {
            [Value::U64(l), Value::U64(r)] => (l, r),
            _ => (u64::MAX, u64::MAX),
        },
        _ => (u64::MAX, u64::MAX),
    };
    // Stable: the columns of a bucket keep their order.
    checkpoint.tensors.sort_by_key(bucket);
    let names = missing.iter().map(|&(lhs, rhs)| FileName::Edges { lhs, rhs }.to_string());
    let text = format!(
        "{} of {lhs} x {rhs} edge buckets have no file and are read as empty: {}",
        missing.len(),
        notes::some(names)
    );
    checkpoint.notes.push(Note::new("bucket-missing", text));
    Ok(())
}

/// Adds the meaning of edges: the configuration, which is returned, and the entity
/// counts.
pub(super) fn add_meaning(
    checkpoint: &mut Checkpoint,
    folder: Option<&FolderRef>,
    options: &OpenOptions,
) -> Result<Option<Config>> {
    let known = match (config::given(options)?, folder) {
        (Some(given), _) => Some(given),
        (None, Some(folder)) => config::beside(folder)?,
        (None, None) => None,
    };
    if let (None, Some(folder), Some(_)) = (&options.own::<ReadOptions>().config, folder, &known) {
        super::was_read(checkpoint, folder, &FileName::Config)?;
    }
    let config = known.as_ref().map(|known| &known.config);
    if let Some(known) = &known {
        checkpoint.metadata.set("config", Value::Text(known.text.clone()));
    }
    let mut entities = None;
    let counted = count_entities(checkpoint, folder, config, options).map(|found| entities = found);
    checkpoint.notes.extend(names::note_unless_requested(counted, options)?);
    checkpoint.records = Some(Arc::new(NamedEdges { entities, limits: options.limits.clone() }));
    Ok(known.map(|known| known.config))
}

/// Adds the entity counts, if found; and returns their folder.
fn count_entities(
    checkpoint: &mut Checkpoint,
    folder: Option<&FolderRef>,
    config: Option<&Config>,
    options: &OpenOptions,
) -> Result<Option<names::Entities>> {
    let Some((entities, way)) = names::entities_of_edges(folder, config, options)? else {
        return Ok(None);
    };
    let (counts, notes) = names::counts(&entities, config)?;
    checkpoint.notes.extend(notes);
    checkpoint.notes.push(Note::new("counts-from", format!("entity counts are from {way}")));
    let mut lists: Vec<_> = names::lists_of(Some(&counts)).into_iter().collect();
    lists.sort_unstable_by_key(|(entity, _)| *entity);
    for (entity, parts) in lists {
        let (some, all) = (names::numbers(parts).iter().flatten().count(), parts.len());
        if some > 0 && some < all {
            let text = format!(
                "type {} has {all} partitions in the configuration, but counts of only {some}: use the configuration that these edges were made with",
                escape(entity)
            );
            checkpoint.notes.push(Note::new("count-missing", text));
        }
    }
    checkpoint.metadata.set("counts", counts);
    if let Some(count) = names::dynamic_count(&entities)? {
        checkpoint.metadata.set("dynamic_relations", Value::U64(count));
    }
    Ok(Some(entities))
}
