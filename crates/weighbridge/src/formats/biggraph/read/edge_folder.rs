//! A folder of edges: a file for each bucket.

use super::super::config::Config;
use super::super::layout::{FileName, Listing};
use super::{config, edges, names, notes, parallel};
use crate::checkpoint::{Checkpoint, Note, Value};
use crate::error::Result;
use crate::formats::OpenOptions;
use crate::limits::Limits;
use crate::source::FolderRef;
use std::path::Path;

/// Opens all buckets of a folder, in the order of their numbers.
///
/// # Errors
/// What the files say. With `options.lenient` a file that cannot be read is a note.
pub(super) fn open(folder: &FolderRef, listing: &Listing, options: &OpenOptions) -> Result<Checkpoint> {
    let mut checkpoint = super::checkpoint(super::EDGES, folder.label());
    let buckets: Vec<(u64, u64)> = listing.edges.iter().copied().collect();
    Limits::check("tensors", "tensors", (buckets.len() as u64).saturating_mul(3), options.limits.tensors)?;
    let open = |&(lhs, rhs): &(u64, u64)| {
        let name = FileName::Edges { lhs, rhs }.to_string();
        match folder.open(Path::new(&name))? {
            Some(source) => edges::open(&source, Some((lhs, rhs)), options).map(Some),
            None => Ok(None),
        }
    };
    let mut version: Option<Value> = None;
    for (&(lhs, rhs), opened) in buckets.iter().zip(parallel::map(&buckets, open)) {
        match opened {
            Ok(Some(found)) => {
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
                let text = format!("{name} was left out: {}", error.message());
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
        let text = format!("files that a writer left unfinished: {}", notes::some(unfinished));
        checkpoint.notes.push(Note::new("edges-unfinished", text));
    }
    if !listing.counts.is_empty() || !listing.names.is_empty() {
        let text = "entities stand in the same folder";
        checkpoint.notes.push(Note::new("also-here", text));
    }
    checkpoint.notes.extend(notes::strays(listing));
    know(&mut checkpoint, Some(folder), options)?;
    Ok(checkpoint)
}

/// Adds what is known of the meaning of edges: the configuration, and how many entities there are.
pub(super) fn know(
    checkpoint: &mut Checkpoint,
    folder: Option<&FolderRef>,
    options: &OpenOptions,
) -> Result<()> {
    let text = match (&options.config, folder) {
        (Some(source), _) => Some(config::text_of(source)?),
        (None, Some(folder)) => config::beside(folder)?.map(|beside| beside.text),
        (None, None) => None,
    };
    if let (None, Some(folder), Some(_)) = (&options.config, folder, &text) {
        super::was_read(checkpoint, folder, &FileName::Config)?;
    }
    let parsed = text.as_deref().and_then(config::lenient);
    if let Some(text) = text {
        checkpoint.metadata.set("config", Value::Text(text));
    }
    let counted = count_entities(checkpoint, folder, parsed.as_ref(), options);
    checkpoint.notes.extend(names::unasked(counted, options)?);
    Ok(())
}

/// Tells how many entities there are, where that is found.
fn count_entities(
    checkpoint: &mut Checkpoint,
    folder: Option<&FolderRef>,
    config: Option<&Config>,
    options: &OpenOptions,
) -> Result<()> {
    let Some((entities, way)) = names::entities_of_edges(folder, config, options)? else {
        return Ok(());
    };
    let (counts, notes) = names::counts(&entities, config)?;
    checkpoint.notes.extend(notes);
    checkpoint.notes.push(Note::new("counts-from", format!("the numbers of entities are those of {way}")));
    checkpoint.metadata.set("counts", counts);
    if let Some(count) = names::dynamic_count(&entities)? {
        checkpoint.metadata.set("dynamic_relations", Value::U64(count));
    }
    Ok(())
}
