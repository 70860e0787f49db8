//! What a damaged file lost: where it breaks, and which of its tensors are not there any more.

use super::{Checkpoint, Loss, Metadata, Note, Value};
use crate::checkpoint::Attributes;
use crate::error::{Error, Kind};
use crate::text::escape;
use crate::{ErrorCode, NoteCode};
use serde_json::{Value as Json, json};
use std::collections::HashSet;
use std::fmt;

impl Metadata {
    /// The metadata key that says in a written file that it was taken out of a damaged one.
    pub const SALVAGED_KEY: &'static str = "salvaged";
}

impl Attributes {
    /// The attribute of a table that has fewer rows than the damaged file had: text that says which.
    pub const SALVAGED_ROWS: &'static str = "salvaged_rows";
}

/// Tensors that are named one by one in notes; those after them are counted. JSON has them all.
const NAMED: usize = 100;

/// Where a file is damaged and what it lost. A checkpoint that has this is never the whole of what
/// was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The code of the error that a strict opening gives. Stable, for programs.
    pub code: ErrorCode,
    /// What is wrong, for people.
    pub text: String,
    /// The file that is damaged, where the source is several.
    pub file: Option<String>,
    /// Where it breaks, in bytes, where that is known.
    pub offset: Option<u64>,
    /// What was not recovered, as far as it is known.
    pub lost: Vec<Lost>,
    /// How many tensors the file had, where something in it still says so.
    pub expected: Option<u64>,
    /// True where nothing in the file confirms which name belongs to which bytes.
    pub unnamed: bool,
}

/// A tensor that was not recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Its name as it is displayed, or what else is known of it.
    pub name: String,
    /// The code of the reason. Stable, for programs.
    pub code: ErrorCode,
    /// The reason, for people.
    pub text: String,
    /// The file that it stood in, where the source is several.
    pub file: Option<String>,
    /// Where in the file, in bytes, where that is known.
    pub offset: Option<u64>,
}

impl Lost {
    /// A tensor of that displayed name that was lost for that reason.
    pub fn new(name: impl fmt::Display, error: &Error) -> Self {
        Self {
            name: escape(&name.to_string()),
            code: error.code(),
            text: told(error),
            file: error.file().map(str::to_owned),
            offset: error.offset(),
        }
    }

    /// What is said to whoever asks for it: `lost-tensor`, and why it was lost. `label` is the file that was opened.
    pub(super) fn error(&self, label: &str) -> Error {
        let error =
            Error::mismatch("lost-tensor", "this tensor was lost: the file is damaged where it stood")
                .in_file(self.file.as_deref().unwrap_or(label))
                .on_tensor(&self.name)
                .found(format_args!("{} ({})", self.text, self.code))
                .hint("look for another copy of the file");
        match self.offset {
            Some(offset) => error.at(offset),
            None => error,
        }
    }
}

/// The message of an error with what was expected and found.
fn told(error: &Error) -> String {
    let mut text = error.message().to_owned();
    for (word, part) in [("expected", error.expected_text()), ("found", error.found_text())] {
        if let Some(part) = part {
            text.push_str(&format!("; {word} {part}"));
        }
    }
    text
}

impl Damage {
    /// The damage that an error of opening tells. Nothing is lost yet.
    pub fn of(error: &Error) -> Self {
        Self {
            code: error.code(),
            text: told(error),
            file: error.file().map(str::to_owned),
            offset: error.offset(),
            lost: Vec::new(),
            expected: None,
            unnamed: false,
        }
    }

    /// What was lost under that name.
    pub fn lost_of(&self, name: &str) -> Option<&Lost> {
        let name = escape(name);
        self.lost.iter().find(|lost| lost.name == name)
    }

    /// True for errors that say that the file is not as it was written, or not as its format has it:
    /// only these can be salvaged from.
    pub fn is(error: &Error) -> bool {
        matches!(error.kind(), Kind::Corrupt | Kind::Mismatch | Kind::Unsupported)
    }

    /// `damaged: 3 of 5 tensors intact, breaks at offset 80`.
    pub fn headline(&self, intact: usize) -> String {
        let of = self.expected.map_or_else(String::new, |expected| format!(" of {expected}"));
        let noun = if intact == 1 && self.expected.is_none() { "tensor" } else { "tensors" };
        let place = match (&self.file, self.offset) {
            (Some(file), Some(offset)) => format!(", breaks at offset {offset} of {}", escape(file)),
            (Some(file), None) => format!(", in {}", escape(file)),
            (None, Some(offset)) => format!(", breaks at offset {offset}"),
            (None, None) => String::new(),
        };
        format!("{intact}{of} {noun} intact{place}")
    }

    /// `{"code", "text", "file", "offset", "lost", "why", "intact", "expected"}`: `lost` are names, and
    /// `why` an object of `name`, `code`, `text`, `file`, `offset` for each.
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

    /// What a file lacks that is made from this: `missing-damaged` for each tensor that was lost, or
    /// one for the file where it is not known which these are.
    pub fn losses(&self) -> Vec<Loss> {
        const CODE: &str = "missing-damaged";
        if self.lost.is_empty() {
            return vec![Loss::new(
                CODE,
                "the damaged part",
                format!("the source is damaged: {}", self.text),
            )];
        }
        self.lost.iter().map(|lost| Loss::new(CODE, &lost.name, lost.place_and_text())).collect()
    }
}

impl Lost {
    fn place_and_text(&self) -> String {
        match (self.offset, &self.file) {
            (Some(offset), Some(file)) => format!("{} (offset {offset} of {})", self.text, escape(file)),
            (None, Some(file)) => format!("{} ({})", self.text, escape(file)),
            (Some(offset), None) => format!("{} (offset {offset})", self.text),
            (None, None) => self.text.clone(),
        }
    }
}

/// Notes that damage leaves, which a conversion tells as the losses `missing-damaged`.
const TOLD_AS_MISSING: [NoteCode; 2] = [NoteCode::Damaged, NoteCode::MissingDamaged];

impl Checkpoint {
    /// What was left out when this was opened, without what damage destroyed: see [`Damage::losses`].
    pub fn left_out(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter().filter(|note| note.omission && !TOLD_AS_MISSING.contains(&note.code))
    }

    /// The damage of the file, begun with what `error` says where there was none yet.
    pub fn damage_mut(&mut self, error: &Error) -> &mut Damage {
        self.damage.get_or_insert_with(|| Box::new(Damage::of(error)))
    }

    /// Notes that a tensor of that displayed name was not recovered.
    pub fn lose(&mut self, name: impl fmt::Display, error: &Error) {
        let lost = Lost::new(name, error);
        self.damage_mut(error).lost.push(lost);
    }

    /// Ends salvaging: marks the checkpoint so that nobody takes it for the whole. Notes, all of them
    /// omissions: `damaged`, and `missing-damaged` for what is known to be lost; and the remark
    /// `not-proved` for tensors whose bytes nothing in the file proves. The metadata key
    /// [`Metadata::SALVAGED_KEY`] goes along where it is written anew.
    pub fn mark_damaged(&mut self, unproved: usize) {
        let Some(damage) = &self.damage else { return };
        let intact = self.tensors.len();
        let mut notes = vec![Note::omission(
            "damaged",
            format!("the file is damaged: {}: {}", damage.headline(intact), damage.text),
        )];
        // Parts of one group have one name, and each its place.
        let mut named = HashSet::new();
        for lost in damage.lost.iter().take(NAMED).filter(|lost| named.insert((&lost.name, lost.offset))) {
            let text = format!("{} was not recovered: {}", lost.name, lost.place_and_text());
            notes.push(Note::omission("missing-damaged", text));
        }
        let more = damage.lost.len().saturating_sub(NAMED);
        if more > 0 {
            notes.push(Note::omission("missing-damaged", format!("and {more} more were not recovered")));
        }
        if unproved > 0 {
            let text = format!(
                "{unproved} of {intact} tensors are not proved: they fit their places, but {}",
                match damage.unnamed {
                    true => "nothing confirms which name belongs to which bytes",
                    false => "the file has no checksum of their bytes",
                }
            );
            notes.push(Note::new("not-proved", text));
        }
        let text = format!("from a damaged file: {}", damage.headline(intact));
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
    fn damage_is_told_everywhere() {
        let mut checkpoint = Checkpoint::new("test", "test", "file");
        let error = Error::corrupt("truncated", "the file ends").at(80).found(3);
        checkpoint.lose("b\u{7}", &error);
        checkpoint.damage_mut(&Error::corrupt("other", "later")).expected = Some(2);
        checkpoint.mark_damaged(0);
        let damage = checkpoint.damage.clone().unwrap();
        assert_eq!(damage.headline(1), "1 of 2 tensors intact, breaks at offset 80");
        assert_eq!((damage.code.as_str(), damage.offset, damage.expected), ("truncated", Some(80), Some(2)));
        let codes: Vec<_> = checkpoint.notes.iter().map(|note| (note.code.as_str(), note.omission)).collect();
        assert_eq!(codes, [("damaged", true), ("missing-damaged", true)]);
        assert!(checkpoint.notes[1].text.starts_with("b\\u{7} was not recovered: the file ends; found 3"));
        assert!(checkpoint.metadata.get(Metadata::SALVAGED_KEY).is_some());
        let losses = damage.losses();
        assert_eq!(
            (losses.len(), losses[0].code.as_str(), losses[0].subject.as_str()),
            (1, "missing-damaged", "b\\u{7}")
        );
        assert_eq!(damage.to_json(1)["why"][0]["offset"], 80);
        let unknown = Damage { lost: Vec::new(), ..*damage };
        assert_eq!(unknown.losses().len(), 1, "a damaged file is never said to be complete");
    }
}
