//! What upstream finds late or never: what only this format knows to be wrong.
//!
//! What opening saw is in the notes of the index; here each is weighed. What must be read for it (ids of
//! edges, names of rows, training statistics) is read here.

mod column;
mod edges;
mod look;
mod tables;

use super::chosen;
use super::config::Config;
use super::read::{self, parse_config};
use weighbridge_core::NoteCode;
use weighbridge_core::checkpoint::{Checkpoint, Note};
use weighbridge_core::error::Result;
use weighbridge_core::finding::{Finding, Severity};

/// Checks an opened checkpoint beyond what holds for every format.
pub(super) fn check(checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
    let mut findings: Vec<Finding> =
        checkpoint.notes.iter().filter_map(|note| weigh(note, checkpoint.kind)).collect();
    let config = config_of(checkpoint);
    match checkpoint.kind {
        read::EDGES => findings.extend(edges::check(checkpoint, config.as_ref())?),
        read::CHECKPOINT | read::INIT | read::MODEL | read::EMBEDDINGS => {
            findings.extend(tables::check(checkpoint, config.as_ref())?);
            findings.extend(tables::names(checkpoint)?);
            findings.extend(tables::statistics(checkpoint)?);
        }
        read::ENTITIES => {
            findings.extend(tables::entities(checkpoint, config.as_ref()));
            findings.extend(tables::names(checkpoint)?);
        }
        _ => {}
    }
    // Of a lone file the configuration is not the subject.
    if matches!(checkpoint.kind, read::CHECKPOINT | read::CONFIG)
        && let Some(config) = &config
    {
        findings.extend(config.problems());
    }
    Ok(findings)
}

/// The configuration that counts, as far as it is understood.
pub(super) fn config_of(checkpoint: &Checkpoint) -> Option<Config> {
    chosen::config_text(checkpoint).and_then(parse_config)
}

/// The finding that a remark of the reader is, where it is more than a remark.
fn weigh(note: &Note, kind: &str) -> Option<Finding> {
    let (severity, hint) = match note.code {
        NoteCode::OrphanUnfinished => {
            (Severity::Warning, "they can be deleted; the next run overwrites them")
        }
        NoteCode::OrphanLeftBehind => {
            (Severity::Warning, "they can be deleted, unless somebody wants the version")
        }
        NoteCode::EdgesUnfinished => (Severity::Warning, "write the edges again"),
        NoteCode::AttributesDiffer => (Severity::Warning, "are all files of one run?"),
        NoteCode::UnknownType => (Severity::Warning, "is the configuration that of these files?"),
        NoteCode::EdgeColumns => {
            (Severity::Warning, "the column belongs to other edges, or another one was cut short")
        }
        NoteCode::EdgeLists => (Severity::Warning, "offsets say which features are whose"),
        NoteCode::ModelMissing => {
            (Severity::Error, "resuming would start the parameters anew; exporting fails")
        }
        NoteCode::EmbeddingsShape => (Severity::Error, "training and exporting stop there"),
        NoteCode::SnapshotVersion | NoteCode::SnapshotIncomplete => {
            (Severity::Error, "the snapshot cannot be used as a checkpoint")
        }
        NoteCode::DeadLink => (Severity::Error, "links of snapshots are absolute: make them again"),
        NoteCode::CountsDiffer => {
            (Severity::Error, "the tables belong to other entities, or to another import of them")
        }
        NoteCode::EntitiesUnreadable => {
            (Severity::Unchecked, "give the folder of entities that belongs to it")
        }
        NoteCode::BucketMissing => (
            Severity::Error,
            "training stops there. Where the importer left them out, converting the folder to biggraph writes them; \
             otherwise their edges are lost",
        ),
        NoteCode::CountBroken | NoteCode::CountMissing => (Severity::Error, "training stops there"),
        NoteCode::StateBroken | NoteCode::StateForm => (Severity::Error, "resuming training stops there"),
        NoteCode::StateShape | NoteCode::StateParameters | NoteCode::StateIncomplete => {
            (Severity::Error, "resuming training fails, or goes on with wrong state")
        }
        NoteCode::PartitionMissing if kind == read::CHECKPOINT => {
            (Severity::Error, "resuming would fill them with random rows")
        }
        _ => return None,
    };
    Some(Finding::new(severity, note.code, note.text.clone()).hint(hint))
}
