//! The index: an opened checkpoint as ordered, named tensors over byte ranges.
//!
//! A format's reader makes a [`Checkpoint`], changes rewrite it, a format's layouter turns it into
//! a plan. It holds no tensor data: every [`Extent`] points into a source.

mod aliases;
mod attributes;
mod bridge_metadata;
mod change;
mod containers;
mod damage;
mod entry;
mod json;
mod loss;
mod metadata;
mod name;
mod naming;
mod owners;
mod pattern;
mod rename;
mod row_names;
mod tagged;
mod transform;
mod versions;

pub use crate::text::escape as escape_text;
use crate::{LossCode, NoteCode, phrase};
pub use aliases::SameRead;
pub use attributes::Attributes;
pub use bridge_metadata::{Part, Parts};
pub use change::Selection;
pub use containers::{Container, Containers};
pub use damage::{Damage, Lost};
pub use entry::{Check, Extent, Pieces, Role, StateOf, TensorEntry};
pub use loss::Loss;
pub use metadata::{Metadata, Value};
pub use name::{Name, TensorPath};
pub use naming::Distinct;
pub use pattern::{Budget as PatternBudget, Pattern};
pub use rename::Rename;
pub use row_names::each_part;
pub use row_names::{MemoryRowNames, RowNameList, RowNames, RowNamesRef, check_count};
pub use transform::{IndexTransform, TransformReport};
pub use versions::Modules;

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::phrase::{Face, Phrase, Worded};
use crate::source::SourceRef;
use crate::text::near;
use crate::topology::Topology;
use std::collections::HashMap;
use std::sync::Arc;

/// Names that a hint gives.
const SHOWN_NAMES: usize = 3;

/// An opened file or folder: its tensors in order, its metadata, and what is odd about it.
#[derive(Debug, Clone, Default)]
pub struct Checkpoint {
    /// The format's id, such as `primitiv`.
    pub format: &'static str,
    /// Which file of the format's family, such as `model`.
    pub kind: &'static str,
    /// The path, or what else people call it.
    pub label: String,
    /// The tensors, in the order of the file.
    pub tensors: Vec<TensorEntry>,
    /// What the file says besides its tensors.
    pub metadata: Metadata,
    /// The first-class form that this has, or had before it was put into a bridge such as
    /// safetensors: what to write on the way back.
    pub origin: Option<Origin>,
    /// The program that belongs to the tensors, where the file or folder has one.
    pub topology: Option<Arc<Topology>>,
    /// Files that belong to it and hold no tensors, under their names: they go along where the
    /// checkpoint is written in its own form.
    pub companions: Vec<(String, SourceRef)>,
    /// Files that were read and hold no tensors, such as the program beside its parameters: their
    /// bytes are accounted for as well. Those of `companions` and of the names of rows need not be here.
    pub files: Vec<SourceRef>,
    /// What is odd, guessed, or was left out.
    pub notes: Vec<Note>,
    /// What tensors and values stand in, as far as names do not say it, where the file says so. Of what was opened: changes
    /// of names do not change it.
    pub containers: Option<Box<Containers>>,
    /// Where the file is damaged and what it lost, where this is what was salvaged from one.
    pub damage: Option<Box<Damage>>,
}

/// A first-class form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The format's id.
    pub format: String,
    /// The kind within the format.
    pub kind: String,
}

/// Something worth knowing about an opened file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Stable, for programs.
    pub code: NoteCode,
    /// For people.
    pub text: Phrase,
    /// True where a part of the file is not in the index, so that a conversion would lose it.
    pub omission: bool,
    /// The tensor of the file that is not in the index, where that part is one.
    pub skipped: Option<Box<SkippedTensor>>,
}

/// A tensor of a file that is not in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedTensor {
    /// The name as it would be displayed, not yet escaped.
    pub name: String,
    /// The reason, for people: a word or a clause, such as `quantized`.
    pub reason: Phrase,
    /// True for optimizer state.
    pub is_state: bool,
}

impl Note {
    /// A remark.
    pub fn new(code: impl Into<NoteCode>, text: impl Into<Phrase>) -> Self {
        Self { code: code.into(), text: text.into(), omission: false, skipped: None }
    }
    /// A part of the file that is not in the index.
    pub fn omission(code: impl Into<NoteCode>, text: impl Into<Phrase>) -> Self {
        Self { code: code.into(), text: text.into(), omission: true, skipped: None }
    }
    /// A tensor of the file that is not in the index. A conversion reports it as a loss of a whole tensor.
    pub fn skipped_tensor(name: impl Into<String>, reason: impl Into<Phrase>) -> Self {
        let (name, reason) = (name.into(), reason.into());
        let text = phrase![escape_text(&name), ": ", &reason];
        let skipped = Some(Box::new(SkippedTensor { name, reason, is_state: false }));
        Self { code: NoteCode::TensorSkipped, text, omission: true, skipped }
    }
    /// As it is, but of optimizer state where `is_state`.
    pub fn of_state(mut self, is_state: bool) -> Self {
        if let Some(tensor) = &mut self.skipped {
            tensor.is_state = is_state;
        }
        self
    }
    /// True for a skipped tensor of optimizer state.
    pub fn is_of_state(&self) -> bool {
        self.skipped.as_ref().is_some_and(|tensor| tensor.is_state)
    }
    /// What a conversion loses with this part of the file.
    pub fn loss(&self) -> Loss {
        match &self.skipped {
            Some(tensor) => Loss::new(LossCode::TensorSkipped, escape_text(&tensor.name), &tensor.reason),
            None => Loss::new("omitted", self.code.as_str(), &self.text),
        }
    }
    /// True where a part of the file was not looked at. What was, and has no place in the index, is an omission alone.
    pub fn is_unread(&self) -> bool {
        self.omission && !matches!(self.code, NoteCode::MetadataDiffers | NoteCode::NamedType)
    }
}

impl Worded for Note {
    fn word(&mut self, face: Face<'_>) {
        self.text.word(face);
        if let Some(tensor) = &mut self.skipped {
            tensor.reason.word(face);
        }
    }
}

/// Notes are what people read of it.
impl Worded for Checkpoint {
    fn word(&mut self, face: Face<'_>) {
        self.notes.word(face);
    }
}

/// The kind of a pickle of which nothing says which framework wrote it.
pub const PICKLE: &str = "pickle";

impl Checkpoint {
    /// Notes first of all that loading the file elsewhere would run code, where it would.
    pub fn warn_of_code(&mut self, warning: Option<Phrase>) {
        if let Some(text) = warning {
            self.notes.insert(0, Note::new(NoteCode::RunsCode, text));
        }
    }

    /// The format as reports name it: `pickle` for a pickle of which nothing says which framework wrote it.
    pub fn shown_format(&self) -> &'static str {
        if self.kind == PICKLE { PICKLE } else { self.format }
    }

    /// An empty checkpoint of a format and kind.
    pub fn new(format: &'static str, kind: &'static str, label: impl Into<String>) -> Self {
        Self { format, kind, label: label.into(), ..Self::default() }
    }

    /// The tensor of that name: as displayed (`fc1.w`, `fc1.w/Adam.m1`), with `/` in place of the dots (`fc1/w`), or its
    /// path as a JSON array (`["fc1","w"]`), which is never ambiguous.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`]: `no-such-tensor`, with the nearest names as hint, or
    /// `ambiguous-name` where two paths are displayed alike; `lost-tensor` where it was not salvaged.
    pub fn tensor(&self, name: &str) -> Result<&TensorEntry> {
        let mut own = self.tensors.iter().filter(|t| t.answers_to(name)).take(2).collect::<Vec<_>>();
        if own.is_empty() {
            own = self.tensors.iter().filter(|t| t.goes_by(name)).take(2).collect();
        }
        if own.is_empty() && name.contains('/') {
            let dotted = |name: &str| name.trim_start_matches('/').replace('/', ".");
            let wanted = dotted(name);
            own = self.tensors.iter().filter(|t| dotted(&t.text()) == wanted).take(2).collect();
        }
        let mut found = own.into_iter();
        match (found.next(), found.next()) {
            (Some(entry), None) => Ok(entry),
            (Some(first), Some(second)) => {
                Err(Error::mismatch("ambiguous-name", "this name fits more than one tensor")
                    .in_file(&self.label)
                    .on_tensor(escape_text(name))
                    .hint(format_args!(
                        "give the path as JSON: {} or {}",
                        first.path.to_json_text(),
                        second.path.to_json_text()
                    )))
            }
            (None, _) => {
                if let Some(lost) = self.damage.as_ref().and_then(|damage| damage.lost_of(name)) {
                    return Err(lost.error(&self.label));
                }
                let error = Error::mismatch("no-such-tensor", "there is no tensor of this name")
                    .in_file(&self.label)
                    .on_tensor(escape_text(name));
                Err(match self.similar_names(name) {
                    (_, names) if names.is_empty() => error,
                    (true, names) => error.hint(format_args!("there is {}", names.join(", "))),
                    (false, names) => {
                        error.hint(format_args!("no name is like it; the first are {}", names.join(", ")))
                    }
                })
            }
        }
    }

    /// Refuses names that have more parts, all together, than an eighth of the bytes that they stand for: a part takes
    /// 24 bytes of memory each time that a name is changed, and may be none in a file. Some 250 names of the most
    /// parts that one may have are free.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`].
    pub fn check_parts(&self, limits: &Limits) -> Result<()> {
        const FREE: u64 = 250;
        const SHARE: u64 = 8;
        let parts: u64 = self.tensors.iter().map(|tensor| tensor.path.parts().len() as u64).sum();
        let free = limits.path_parts.saturating_mul(FREE);
        if parts <= free {
            return Ok(());
        }
        let mut sources = HashMap::new();
        for extent in self.tensors.iter().flat_map(|tensor| &tensor.extents) {
            sources.insert(Arc::as_ptr(&extent.source).cast::<()>(), extent.source.len());
        }
        let bytes = sources.into_values().fold(0u64, u64::saturating_add);
        let enough = parts.div_ceil(FREE);
        Limits::check_up_to("parts in all names", "path_parts", parts, free.max(bytes / SHARE), enough)
            .map_err(|e| e.in_file(&self.label))
    }

    /// True and up to three names that may be meant: those that contain what was asked for, or that a few
    /// letters tell from it, or that have its last part in them. Or else false, and the first names there are.
    fn similar_names(&self, name: &str) -> (bool, Vec<String>) {
        let all: Vec<String> = self.tensors.iter().map(TensorEntry::name).collect();
        let found = near(|| all.iter().map(String::as_str), name, SHOWN_NAMES);
        if !found.is_empty() {
            return (true, found.into_iter().map(str::to_owned).collect());
        }
        let wanted = name.to_lowercase();
        let last = wanted.rsplit(['.', '/']).next().unwrap_or(&wanted);
        let alike = |own: &&String| {
            let own = own.to_lowercase();
            !last.is_empty() && (own.contains(last) || wanted.contains(&own))
        };
        let found: Vec<String> = all.iter().filter(alike).take(SHOWN_NAMES).cloned().collect();
        if found.is_empty() { (false, all.into_iter().take(SHOWN_NAMES).collect()) } else { (true, found) }
    }

    /// The form that this bridge file was made from; `None` for a file of that form itself.
    pub fn carried_origin(&self) -> Option<&Origin> {
        self.origin.as_ref().filter(|origin| origin.format != self.format)
    }

    /// The bytes of all tensors together, after any cast that is asked for.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().fold(0, |sum, t| sum.saturating_add(t.bytes()))
    }
}
