//! Damage of a salvaged file: its location, and the lost tensors.

use super::bridge_metadata::missing_text;
use super::{Checkpoint, Loss, Metadata, Note, TensorEntry, Value};
use crate::checkpoint::Attributes;
use crate::error::{Error, Kind};
use crate::text::{escape, first_and_more};
use crate::{ErrorCode, NoteCode};
use serde_json::{Value as Json, json};
use std::collections::HashSet;
use std::fmt;

impl Metadata {
    /// Metadata key that marks a written file as salvaged from a damaged one.
    pub const SALVAGED_KEY: &'static str = "salvaged";
    /// Metadata key of the name of the program file.
    pub const PROGRAM_FILE_KEY: &'static str = "paddle.program";
}

impl Attributes {
    /// Attribute of a table with lost rows: text that lists the salvaged ones.
    pub const SALVAGED_ROWS: &'static str = "salvaged_rows";
}

/// Maximum number of tensors named in notes; further ones are counted. JSON lists all.
const MAX_NAMED: usize = 100;
/// Maximum number of unverified tensors in one note.
const MAX_UNPROVED: usize = 3;

/// Damage of a file. A checkpoint with this is incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Code of the error of a strict open. Stable, for programs.
    pub code: ErrorCode,
    /// Description for users.
    pub text: String,
    /// Damaged file, if the source has several.
    pub file: Option<String>,
    /// Offset of the damage in bytes, if known.
    pub offset: Option<u64>,
    /// Tensors known to be lost.
    pub lost: Vec<Lost>,
    /// Original number of tensors, if the file still states it.
    pub expected: Option<u64>,
    /// True if nothing in the file confirms the assignment of names to bytes.
    pub unnamed: bool,
    /// Number of readable tensors whose bytes no checksum confirms.
    pub unverified: usize,
}

/// Tensor that was not recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Display name, or another description.
    pub name: String,
    /// Code of the reason. Stable, for programs.
    pub code: ErrorCode,
    /// Reason for users.
    pub text: String,
    /// File of the tensor, if the source has several.
    pub file: Option<String>,
    /// Offset in the file in bytes, if known.
    pub offset: Option<u64>,
}

impl Lost {
    /// Creates a lost tensor with a display name and a reason.
    pub fn new(name: impl fmt::Display, error: &Error) -> Self {
        Self {
            name: escape(&name.to_string()),
            code: error.code(),
            text: description(error),
            file: error.file().map(str::to_owned),
            offset: error.offset(),
        }
    }

    /// Returns true for rows of a tensor whose other rows are intact. They are named in brackets.
    pub fn is_part(&self) -> bool {
        self.name.starts_with("(rows ")
    }

    /// Returns the error for access to this tensor: `lost-tensor`, with the reason. `label` is the opened file.
    pub(super) fn error(&self, label: &str) -> Error {
        let error =
            Error::mismatch("lost-tensor", "the tensor is lost: its data is in the damaged part of the file")
                .in_file(self.file.as_deref().unwrap_or(label))
                .on_tensor(&self.name)
                .found(format_args!("{} ({})", self.text, self.code))
                .hint("get another copy of the file");
        match self.offset {
            Some(offset) => error.at(offset),
            None => error,
        }
    }
}

/// Returns the message of an error with its expected and found values.
fn description(error: &Error) -> String {
    let mut text = error.message().to_owned();
    for (word, part) in [("expected", error.expected_text()), ("found", error.found_text())] {
        if let Some(part) = part {
            text.push_str(&format!("; {word}: {part}"));
        }
    }
    text
}

impl Damage {
    /// Creates the damage from an error of opening, without lost tensors.
    pub fn of(error: &Error) -> Self {
        Self {
            code: error.code(),
            text: description(error),
            file: error.file().map(str::to_owned),
            offset: error.offset(),
            lost: Vec::new(),
            expected: None,
            unnamed: false,
            unverified: 0,
        }
    }

    /// Returns the lost tensor of that name.
    pub fn lost_of(&self, name: &str) -> Option<&Lost> {
        let name = escape(name);
        self.lost.iter().find(|lost| lost.name == name)
    }

    /// Returns true for errors about damaged or malformed content. Only such files can be salvaged.
    pub fn is(error: &Error) -> bool {
        matches!(error.kind(), Kind::Corrupt | Kind::Mismatch | Kind::Unsupported)
    }

    /// Returns a summary: `3 of 5 tensors intact, 1 in part, damaged at offset 80`; `readable` where some are unverified. `parts`
    /// tensors lack rows.
    fn headline(&self, intact: usize, parts: usize) -> String {
        let of = self.expected.map_or_else(String::new, |expected| format!(" of {expected}"));
        let noun = if intact == 1 && self.expected.is_none() { "tensor" } else { "tensors" };
        let parts = if parts > 0 { format!(", {parts} in part") } else { String::new() };
        let place = match (&self.file, self.offset) {
            (Some(file), Some(offset)) => format!(", damaged at offset {offset} of {}", escape(file)),
            (Some(file), None) => format!(", in {}", escape(file)),
            (None, Some(offset)) => format!(", damaged at offset {offset}"),
            (None, None) => String::new(),
        };
        let state = if self.unverified > 0 { "readable" } else { "intact" };
        format!("{intact}{of} {noun} {state}{parts}{place}")
    }

    /// Returns `{"code", "text", "file", "offset", "lost", "why", "intact", "expected"}`. `lost` lists names, `why` an object of
    /// `name`, `code`, `text`, `file`, `offset` for each.
    pub fn to_json(&self, intact: usize) -> Json {
        let why = |one: &Lost| {
            let (name, code, text) = (&one.name, one.code, &one.text);
            json!({ "name": name, "code": code, "text": text, "file": one.file, "offset": one.offset })
        };
        json!({
            "code": self.code,
            "text": self.text,
            "file": self.file,
            "offset": self.offset,
            "lost": self.lost.iter().map(|one| one.name.as_str()).collect::<Json>(),
            "why": self.lost.iter().map(why).collect::<Json>(),
            "intact": intact,
            "expected": self.expected,
        })
    }

    /// Keeps the lost tensors that are selected by their names, where the number of intact tensors was `before` and is `after` a
    /// selection. All are kept where some of them may not be in the list, or the list has other entries than tensors.
    pub fn keep_lost(&mut self, [before, after]: [usize; 2], mut selected: impl FnMut(&str) -> bool) {
        let (all, lost) = (self.knows_all(before), self.lost.len());
        if all {
            self.lost.retain(|lost| lost.is_part() || selected(&lost.name));
        }
        if after < before || self.lost.len() < lost {
            let lost = self.lost.iter().filter(|lost| !lost.is_part()).count();
            self.expected = all.then_some((after + lost) as u64);
        }
    }

    /// True where every tensor of the file is intact or in the list of lost ones.
    pub fn knows_all(&self, intact: usize) -> bool {
        let lost = self.lost.iter().filter(|lost| !lost.is_part()).count();
        self.expected == Some((intact + lost) as u64)
    }

    /// Returns the losses of a conversion, given the number of intact tensors: `missing-damaged` for each lost tensor, or one where
    /// these are unknown; `damaged` where none is lost.
    pub fn losses(&self, intact: usize) -> Vec<Loss> {
        if self.lost.is_empty() {
            return vec![match self.knows_all(intact) {
                true => {
                    let detail = format!("none is missing, but the file is damaged: {}", self.text);
                    Loss::new("damaged", "all tensors", detail)
                }
                false => {
                    let detail = format!("neither their names nor their number are known: {}", self.text);
                    Loss::new("missing-damaged", Loss::UNKNOWN_TENSORS, detail)
                }
            }];
        }
        // The place comes last: reports name tensors with the same damage together.
        let loss = |lost: &Lost| match lost.place() {
            place if place.is_empty() => Loss::new("missing-damaged", &lost.name, lost.text.clone()),
            place => {
                Loss::new("missing-damaged", &lost.name, format!("{} ({})", lost.text, place.trim_start()))
            }
        };
        self.lost.iter().map(loss).collect()
    }
}

impl Lost {
    /// Place of the damage, with a blank first.
    fn place(&self) -> String {
        match (self.offset, &self.file) {
            (Some(offset), Some(file)) => format!(" at offset {offset} of {}", escape(file)),
            (None, Some(file)) => format!(" in {}", escape(file)),
            (Some(offset), None) => format!(" at offset {offset}"),
            (None, None) => String::new(),
        }
    }
}

/// Notes on damage, which a conversion reports as the losses `missing-damaged`.
const REPORTED_AS_MISSING: [NoteCode; 2] = [NoteCode::Damaged, NoteCode::MissingDamaged];

impl Checkpoint {
    /// Returns the omissions of opening, without those due to damage: see [`Damage::losses`].
    pub fn left_out(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter().filter(|note| note.omission && !REPORTED_AS_MISSING.contains(&note.code))
    }

    /// Returns a summary of the damage: `3 of 5 tensors intact, damaged at offset 80`.
    pub fn damage_headline(&self) -> Option<String> {
        let is_part = |tensor: &&TensorEntry| tensor.attributes.contains_key(Attributes::SALVAGED_ROWS);
        let parts = self.tensors.iter().filter(is_part).count();
        Some(self.damage.as_ref()?.headline(self.tensors.len() - parts, parts))
    }

    /// Returns the damage of the file, created from `error` if there is none yet.
    pub fn damage_mut(&mut self, error: &Error) -> &mut Damage {
        self.damage.get_or_insert_with(|| Box::new(Damage::of(error)))
    }

    /// Records a lost tensor with a display name.
    pub fn lose(&mut self, name: impl fmt::Display, error: &Error) {
        let lost = Lost::new(name, error);
        self.damage_mut(error).lost.push(lost);
    }

    /// Marks a salvaged checkpoint as incomplete. Adds the omissions `damaged`, and `missing-damaged` for each known loss, and the
    /// note `not-proved` for the `unproved` tensors, which nothing in the file confirms. Sets the metadata key
    /// [`Metadata::SALVAGED_KEY`], which converted files keep.
    pub fn mark_damaged(&mut self, unproved: &[String]) {
        if let Some(damage) = &mut self.damage {
            damage.unverified = unproved.len();
        }
        let (Some(damage), Some(headline)) = (&self.damage, self.damage_headline()) else { return };
        let all = self.tensors.len();
        let text = format!("the file is damaged: {headline}: {}", damage.text);
        let mut notes = vec![Note::omission("damaged", text)];
        // Parts of one group have the same name, but different offsets.
        let mut named = HashSet::new();
        for lost in damage.lost.iter().take(MAX_NAMED).filter(|lost| named.insert((&lost.name, lost.offset)))
        {
            let text = format!("{}{}: {}", lost.name, lost.place(), lost.text);
            notes.push(Note::omission("missing-damaged", text));
        }
        let more = damage.lost.len().saturating_sub(MAX_NAMED);
        if more > 0 {
            notes.push(Note::omission("missing-damaged", format!("and {more} more are damaged")));
        }
        if let Some(first) = unproved.first() {
            let named = || first_and_more(unproved.iter().map(|name| escape(name)), MAX_UNPROVED);
            let (which, they, their) = match (unproved.len(), all) {
                (1, 1) => ("the readable tensor is".to_owned(), "it has", "its"),
                (some, all) if some == all => {
                    (format!("all {all} readable tensors are"), "they have", "their")
                }
                (1, _) => (format!("the readable tensor {} is", escape(first)), "it has", "its"),
                (some, all) => {
                    (format!("{some} of {all} readable tensors ({}) are", named()), "they have", "their")
                }
            };
            let why = match damage.unnamed {
                true => "the directory of the archive is missing, so it is unconfirmed which data belongs to which tensor".to_owned(),
                false => format!("{they} the right length, but no checksum confirms {their} bytes"),
            };
            let text = format!("{which} unverified: {why}");
            notes.push(Note::new("not-proved", text));
        }
        let text = format!("from a damaged file: {headline}");
        // The lost tensors are named already.
        let missing = missing_text(damage.lost.iter().filter(|lost| !lost.is_part()).count());
        self.notes.retain(|note| note.code != NoteCode::CarriedIndexDiffers || note.text != missing);
        let mut metadata: Metadata = std::mem::take(&mut self.metadata);
        metadata.set(Metadata::SALVAGED_KEY, Value::Text(text));
        self.metadata = metadata;
        notes.append(&mut self.notes);
        self.notes = notes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_reported_in_notes_losses_and_json() {
        let mut checkpoint = Checkpoint::new("test", "test", "file");
        let error = Error::corrupt("truncated", "the file ends").at(80).found(3);
        checkpoint.lose("b\u{7}", &error);
        checkpoint.damage_mut(&Error::corrupt("other", "later")).expected = Some(2);
        checkpoint.mark_damaged(&[]);
        let damage = checkpoint.damage.clone().unwrap();
        assert_eq!(damage.headline(1, 0), "1 of 2 tensors intact, damaged at offset 80");
        assert_eq!((damage.code.as_str(), damage.offset, damage.expected), ("truncated", Some(80), Some(2)));
        let codes: Vec<_> = checkpoint.notes.iter().map(|note| (note.code.as_str(), note.omission)).collect();
        assert_eq!(codes, [("damaged", true), ("missing-damaged", true)]);
        assert!(checkpoint.notes[1].text.starts_with("b\\u{7} at offset 80: the file ends; found: 3"));
        assert!(checkpoint.metadata.get(Metadata::SALVAGED_KEY).is_some());
        let losses = damage.losses(1);
        assert_eq!(
            (losses.len(), losses[0].code.as_str(), losses[0].subject.as_str()),
            (1, "missing-damaged", "b\\u{7}")
        );
        assert_eq!(damage.to_json(1)["why"][0]["offset"], 80);
        let unknown = Damage { lost: Vec::new(), ..*damage };
        let code =
            |intact| unknown.losses(intact).iter().map(|loss| loss.code.to_string()).collect::<Vec<_>>();
        assert_eq!(code(1), ["missing-damaged"], "a damaged file is never reported as complete");
        assert_eq!(code(2), ["damaged"]);
    }
}
