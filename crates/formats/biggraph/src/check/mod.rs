//! Check of BigGraph-specific faults, including those that upstream finds late or never.
//!
//! Notes of the reader become findings with a severity. Data that opening skips (edge ids,
//! row names, training statistics) is read here.

mod bucket;
mod column;
mod edges;
mod tables;

use super::config::Config;
use super::effective_config;
use super::read::{self, parse_config};
use weighbridge_core::NoteCode;
use weighbridge_core::checkpoint::{Checkpoint, Note};
use weighbridge_core::error::Result;
use weighbridge_core::finding::{Finding, Severity};

/// Checks an opened checkpoint beyond the rules of all formats.
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
    // A single file is not checked against its configuration.
    if matches!(checkpoint.kind, read::CHECKPOINT | read::CONFIG)
        && let Some(config) = &config
    {
        findings.extend(config.problems());
    }
    Ok(findings)
}

/// Effective configuration, as far as it can be parsed.
pub(super) fn config_of(checkpoint: &Checkpoint) -> Option<Config> {
    effective_config::config_text(checkpoint).and_then(parse_config)
}

/// Finding for a note of the reader, unless the note is informational.
fn weigh(note: &Note, kind: &str) -> Option<Finding> {
    let (severity, hint) = match note.code {
        NoteCode::OrphanUnfinished => (Severity::Warning, "delete them, or let the next run overwrite them"),
        NoteCode::OrphanLeftBehind => (Severity::Warning, "delete them if the version is not needed"),
        NoteCode::EdgesUnfinished => (Severity::Warning, "import the edges again"),
        NoteCode::AttributesDiffer => (Severity::Warning, "check that all files are from one run"),
        NoteCode::UnknownType => (Severity::Warning, "check that the configuration belongs to these files"),
        NoteCode::EdgeColumns => (
            Severity::Warning,
            "check the source: the column belongs to other edges, or another column is truncated",
        ),
        NoteCode::EdgeLists => (Severity::Warning, "restore the offsets: they assign features to edges"),
        NoteCode::ModelMissing => {
            (Severity::Error, "restore the file: resuming would reset the parameters, and exporting fails")
        }
        NoteCode::EmbeddingsShape => (Severity::Error, "restore the file: training and exporting stop there"),
        NoteCode::SnapshotVersion | NoteCode::SnapshotIncomplete => {
            (Severity::Error, "do not use the snapshot as a checkpoint")
        }
        NoteCode::DeadLink => (Severity::Error, "create the links again: links of snapshots are absolute"),
        NoteCode::CountsDiffer => {
            (Severity::Error, "pass the entity folder of the import that the tables were trained on")
        }
        NoteCode::EntitiesUnreadable => (Severity::Unchecked, "pass the entity folder of the checkpoint"),
        NoteCode::BucketMissing => (
            Severity::Error,
            "training stops there. If the importer omitted empty buckets, convert the folder to biggraph to write them; \
             otherwise their edges are lost",
        ),
        NoteCode::CountBroken | NoteCode::CountMissing => {
            (Severity::Error, "restore the count file: training stops there")
        }
        NoteCode::StateBroken | NoteCode::StateForm => {
            (Severity::Error, "restore the file: resuming training stops there")
        }
        NoteCode::StateShape | NoteCode::StateParameters | NoteCode::StateIncomplete => {
            (Severity::Error, "do not resume training: it fails or uses wrong state")
        }
        NoteCode::PartitionMissing if kind == read::CHECKPOINT => {
            (Severity::Error, "restore the files: resuming would fill them with random rows")
        }
        _ => return None,
    };
    Some(Finding::new(severity, note.code, note.text.clone()).hint(hint))
}
