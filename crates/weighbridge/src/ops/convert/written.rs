//! The document of what was written, or would be.

use crate::checkpoint::{Loss, Note};
use crate::engine::RunReport;
use crate::json::{Fields, rows};
use crate::phrase::{Face, Worded};
use crate::plan::{PlannedFile, WritePlan};
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

/// A plan, and what came of it.
#[derive(Debug)]
pub struct Written {
    /// The target.
    pub target: String,
    /// The plan of all files.
    pub plan: WritePlan,
    /// Notes on the source.
    pub notes: Vec<Note>,
    /// The report of writing; `None` where it was only planned.
    pub report: Option<RunReport>,
}

/// The document of a plan that is only shown.
#[derive(Serialize)]
struct Planned<'a, Plan: Serialize, Notes: Serialize> {
    #[serde(flatten)]
    plan: Plan,
    path: &'a str,
    done: bool,
    notes: Notes,
}

/// The document of what was written.
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
    /// `path`, `done`, `format`, `kind`, `bytes`, `files`, `losses`, `casts`, `notes`; of a plan its own fields.
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

/// A file that was planned. Of one whose length is known only when it is written there is an estimate,
/// and that word with it; `bytes` of the whole is exact.
fn file(planned: &PlannedFile) -> Json {
    let mut json = json!({ "name": planned.name, "bytes": planned.len });
    if planned.is_estimated() {
        json["estimated"] = json!(true);
    }
    json
}
