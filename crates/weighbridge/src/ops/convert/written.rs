//! JSON document of a written or planned conversion.

use crate::checkpoint::{Loss, Note};
use crate::engine::RunReport;
use crate::json::{Fields, rows};
use crate::phrase::{Face, Worded};
use crate::plan::{PlannedFile, WritePlan};
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

/// Plan of a conversion, and the report of writing it.
#[derive(Debug)]
pub struct Written {
    /// The target.
    pub target: String,
    /// The plan of all files.
    pub plan: WritePlan,
    /// Notes on the source.
    pub notes: Vec<Note>,
    /// The report of writing; `None` where the conversion was only planned.
    pub report: Option<RunReport>,
}

/// Document of a plan that was not run.
#[derive(Serialize)]
struct Planned<'a, Plan: Serialize, Notes: Serialize> {
    #[serde(flatten)]
    plan: Plan,
    path: &'a str,
    done: bool,
    notes: Notes,
}

/// Document of a written conversion.
#[derive(Serialize)]
struct Done<'a, Files, Losses, Casts, Notes> {
    path: &'a str,
    done: bool,
    format: &'a str,
    kind: &'a str,
    bytes: u64,
    files: Files,
    losses: Losses,
    casts: Casts,
    notes: Notes,
}

impl Serialize for Written {
    /// Serializes `path`, `done`, `format`, `kind`, `bytes`, `files`, `losses`, `casts`, `notes`; for a plan its own fields.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (path, notes) = (&self.target, rows(&self.notes, Note::to_json));
        let Some(report) = &self.report else {
            return Planned { plan: self.plan.as_json(), path, done: false, notes }.serialize(to);
        };
        Done {
            path,
            done: true,
            format: self.plan.format,
            kind: self.plan.kind,
            bytes: report.bytes,
            files: rows(&self.plan.files, file),
            losses: rows(&self.plan.losses, Loss::to_json),
            casts: Fields(report.casts.iter().map(|(name, cast)| (name, cast.to_json()))),
            notes,
        }
        .serialize(to)
    }
}

impl Worded for Written {
    fn word(&mut self, face: Face<'_>) {
        self.plan.word(face);
        self.notes.word(face);
    }
}

/// Returns the JSON of a planned file. A length that is known only after writing is an estimate, marked as `estimated`; the
/// total `bytes` is exact.
fn file(planned: &PlannedFile) -> Json {
    let mut json = json!({ "name": planned.name, "bytes": planned.len });
    if planned.is_estimated() {
        json["estimated"] = json!(true);
    }
    json
}
