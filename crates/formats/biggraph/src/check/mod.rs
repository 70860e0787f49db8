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
        "orphan-unfinished" => (Severity::Warning, "they can be deleted; the next run overwrites them"),
        "orphan-left-behind" => (Severity::Warning, "they can be deleted, unless somebody wants the version"),
        "edges-unfinished" => (Severity::Warning, "write the edges again"),
        "attributes-differ" => (Severity::Warning, "are all files of one run?"),
        "unknown-type" => (Severity::Warning, "is the configuration that of these files?"),
        "edge-columns" => {
            (Severity::Warning, "the column belongs to other edges, or another one was cut short")
        }
        "edge-lists" => (Severity::Warning, "offsets say which features are whose"),
        "model-missing" => (Severity::Error, "resuming would start the parameters anew; exporting fails"),
        "embeddings-shape" => (Severity::Error, "training and exporting stop there"),
        "snapshot-version" | "snapshot-incomplete" => {
            (Severity::Error, "the snapshot cannot be used as a checkpoint")
        }
        "dead-link" => (Severity::Error, "links of snapshots are absolute: make them again"),
        "counts-differ" => {
            (Severity::Error, "the tables belong to other entities, or to another import of them")
        }
        "entities-unreadable" => (Severity::Unchecked, "give the folder of entities that belongs to it"),
        "bucket-missing" => (
            Severity::Error,
            "training stops there. Where the importer left them out, converting the folder to biggraph writes them; \
             otherwise their edges are lost",
        ),
        "count-broken" | "count-missing" => (Severity::Error, "training stops there"),
        "state-broken" | "state-form" => (Severity::Error, "resuming training stops there"),
        "state-shape" | "state-parameters" | "state-incomplete" => {
            (Severity::Error, "resuming training fails, or goes on with wrong state")
        }
        "partition-missing" if kind == read::CHECKPOINT => {
            (Severity::Error, "resuming would fill them with random rows")
        }
        _ => return None,
    };
    Some(Finding::new(severity, note.code, note.text.clone()).hint(hint))
}
