//! Index of an opened checkpoint: ordered, named tensors over byte ranges.
//!
//! The reader of a format creates a [`Checkpoint`], changes rewrite it, and the writer of a format turns it into a plan. It
//! contains no tensor data: every [`Extent`] refers to a range of a source.

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
mod records;
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
pub use entry::{Extent, Pieces, Role, StateOf, TensorEntry};
pub use loss::Loss;
pub use metadata::{Metadata, Value};
pub use name::{Name, TensorPath};
pub use naming::Distinct;
pub use pattern::{Budget as PatternBudget, Pattern};
pub use records::{AsRecords, Cells, RecordColumn, RecordSection, Records, RecordsRef};
pub use rename::Rename;
pub use row_names::each_part;
pub use row_names::{MemoryRowNames, RowNameList, RowNames, RowNamesRef, check_count};
pub use transform::{IndexTransform, TransformReport};
pub use versions::Modules;

use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::phrase::{Face, Phrase, Worded};
use crate::source::SourceRef;
use crate::text::{counted, near};
use crate::topology::Topology;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of names in a hint.
const SHOWN_NAMES: usize = 3;

/// Opened file or folder: ordered tensors, metadata, and notes.
#[derive(Debug, Clone, Default)]
pub struct Checkpoint {
    /// Id of the format, such as `primitiv`.
    pub format: &'static str,
    /// Kind of file within the format, such as `model`.
    pub kind: &'static str,
    /// Display name: the path.
    pub label: String,
    /// Tensors, in the order of the file.
    pub tensors: Vec<TensorEntry>,
    /// Metadata.
    pub metadata: Metadata,
    /// Format and kind of the original, if this was converted to a bridge format such as safetensors: the target of a conversion
    /// back.
    pub origin: Option<Origin>,
    /// Program of the tensors, if the file or folder has one.
    pub topology: Option<Arc<Topology>>,
    /// Companion files without tensors, by name. They are written with the checkpoint in its own format.
    pub companions: Vec<(String, SourceRef)>,
    /// Other files that were read and contain no tensors, such as the program of parameters. Checks account for their bytes too.
    /// Files in `companions` and files of row names need not be listed.
    pub files: Vec<SourceRef>,
    /// Notes: anomalies, guesses and omissions.
    pub notes: Vec<Note>,
    /// Python containers of tensors and values, where names are not enough. They describe the opened file: renames do not
    /// change them.
    pub containers: Option<Box<Containers>>,
    /// Damage and lost tensors, if the checkpoint was salvaged.
    pub damage: Option<Box<Damage>>,
    /// View of the tensors as records, if the format has one: edges by name.
    pub records: Option<Arc<dyn AsRecords>>,
}

/// Format and kind of an original file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Id of the format.
    pub format: String,
    /// Kind within the format.
    pub kind: String,
}

/// Note on an opened file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Stable code, for programs.
    pub code: NoteCode,
    /// Text for users.
    pub text: Phrase,
    /// True if a part of the file is not in the index, so that a conversion loses it.
    pub omission: bool,
    /// Skipped tensor, if that part is a tensor.
    pub skipped: Option<Box<SkippedTensor>>,
}

/// Tensor of a file that is not in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedTensor {
    /// Display name, not escaped.
    pub name: String,
    /// Reason for users: a word or a clause, such as `quantized`.
    pub reason: Phrase,
    /// True for optimizer state.
    pub is_state: bool,
}

impl Note {
    /// Creates a note.
    pub fn new(code: impl Into<NoteCode>, text: impl Into<Phrase>) -> Self {
        Self { code: code.into(), text: text.into(), omission: false, skipped: None }
    }
    /// Creates a note on a part of the file that is not in the index.
    pub fn omission(code: impl Into<NoteCode>, text: impl Into<Phrase>) -> Self {
        Self { code: code.into(), text: text.into(), omission: true, skipped: None }
    }
    /// Creates a note on a tensor that is not in the index. A conversion reports it as a lost tensor.
    pub fn skipped_tensor(name: impl Into<String>, reason: impl Into<Phrase>) -> Self {
        let (name, reason) = (name.into(), reason.into());
        let text = phrase![escape_text(&name), ": ", &reason];
        let skipped = Some(Box::new(SkippedTensor { name, reason, is_state: false }));
        Self { code: NoteCode::TensorSkipped, text, omission: true, skipped }
    }
    /// Marks a skipped tensor as optimizer state if `is_state`.
    pub fn of_state(mut self, is_state: bool) -> Self {
        if let Some(tensor) = &mut self.skipped {
            tensor.is_state = is_state;
        }
        self
    }
    /// Returns true for a skipped tensor of optimizer state.
    pub fn is_of_state(&self) -> bool {
        self.skipped.as_ref().is_some_and(|tensor| tensor.is_state)
    }
    /// Returns the loss of a conversion for this part of the file.
    pub fn loss(&self) -> Loss {
        match &self.skipped {
            Some(tensor) => Loss::new(LossCode::TensorSkipped, escape_text(&tensor.name), &tensor.reason),
            None => Loss::new("omitted", self.code.as_str(), &self.text),
        }
    }
    /// Returns true if a part of the file was not read. A part that was read but has no place in the index is only an omission.
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

/// Notes contain user-facing text.
impl Worded for Checkpoint {
    fn word(&mut self, face: Face<'_>) {
        self.notes.word(face);
    }
}

/// Kind of a pickle from an unknown framework.
pub const PICKLE: &str = "pickle";

impl Checkpoint {
    /// Inserts `warning` as the first note: loading the file elsewhere would run code.
    pub fn warn_of_code(&mut self, warning: Option<Phrase>) {
        if let Some(text) = warning {
            self.notes.insert(0, Note::new(NoteCode::RunsCode, text));
        }
    }

    /// Returns the format for reports: `pickle` for a pickle from an unknown framework.
    pub fn shown_format(&self) -> &'static str {
        if self.kind == PICKLE { PICKLE } else { self.format }
    }

    /// Creates an empty checkpoint of a format and kind.
    pub fn new(format: &'static str, kind: &'static str, label: impl Into<String>) -> Self {
        Self { format, kind, label: label.into(), ..Self::default() }
    }

    /// Returns the tensor of that name. Accepted are the display name (`fc1.w`, `fc1.w/Adam.m1`), `/` instead of dots (`fc1/w`),
    /// and the path as a JSON array (`["fc1","w"]`), which is never ambiguous.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`]: `no-such-tensor`, with similar names as hint; `ambiguous-name` if two paths have that display
    /// name; `lost-tensor` if it was not salvaged.
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
                Err(Error::mismatch("ambiguous-name", "the name matches more than one tensor")
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
                let error = Error::mismatch("no-such-tensor", "no such tensor")
                    .in_file(&self.label)
                    .on_tensor(escape_text(name));
                if let Some(hint) = self.name_hint(name) {
                    return Err(error.hint(hint));
                }
                Err(match self.similar_names(name) {
                    (true, names) => error.hint(format_args!("did you mean `{}`?", names.join("`, `"))),
                    (false, names) if self.tensors.len() == 1 => {
                        error.hint(format_args!("the only tensor is `{}`", names.join("")))
                    }
                    (false, names) => error
                        .hint(format_args!("no name is similar; the first tensors are {}", names.join(", "))),
                })
            }
        }
    }

    /// Rejects names with too many parts in total: more than one eighth of the bytes of all sources. In memory a part takes 24
    /// bytes each time a name changes, but it may take none in a file. The parts of 250 names of maximum depth are always
    /// allowed.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`].
    pub fn check_parts(&self, limits: &Limits) -> Result<()> {
        const MIN_NAMES: u64 = 250;
        const BYTES_PER_PART: u64 = 8;
        let parts: u64 = self.tensors.iter().map(|tensor| tensor.path.parts().len() as u64).sum();
        let allowed = limits.path_parts.saturating_mul(MIN_NAMES);
        if parts <= allowed {
            return Ok(());
        }
        let mut sources = HashMap::new();
        for extent in self.tensors.iter().flat_map(|tensor| &tensor.extents) {
            sources.insert(Arc::as_ptr(&extent.source).cast::<()>(), extent.source.len());
        }
        let bytes = sources.into_values().fold(0u64, u64::saturating_add);
        let enough = parts.div_ceil(MIN_NAMES);
        let most = allowed.max(bytes / BYTES_PER_PART);
        Limits::check_up_to("parts in all names", "path_parts", parts, most, enough)
            .map_err(|e| e.in_file(&self.label))
    }

    /// Returns the hint for a name that is not one: a pattern, an index alone, several indices, broken JSON.
    fn name_hint(&self, name: &str) -> Option<String> {
        if self.tensors.is_empty() {
            return Some("the file has no tensors".to_owned());
        }
        if name.contains("][") {
            return Some("use one pair of brackets: [0,1]".to_owned());
        }
        if let Some(inner) = name.strip_prefix('[') {
            if inner.trim_start().starts_with('"') {
                let is_json = serde_json::from_str::<Vec<String>>(name).is_ok();
                return (!is_json)
                    .then(|| "the path is not a JSON array of texts, such as [\"fc1\",\"w\"]".to_owned());
            }
            let count = counted(self.tensors.len() as u64, "tensor", "tensors");
            return Some(format!("give a name before the brackets; the file has {count}"));
        }
        let first = self.tensors.iter().take(SHOWN_NAMES).map(TensorEntry::name).collect::<Vec<_>>();
        name.contains('*')
            .then(|| format!("give one name, not a pattern; the first names are {}", first.join(", ")))
    }

    /// Returns true and up to three similar names: names that contain `name`, have a small edit distance to it, or contain its
    /// last part. Without similar names, returns false and the first names of the checkpoint.
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

    /// Returns format and kind of the original of a bridge file; `None` for a file in its original format.
    pub fn carried_origin(&self) -> Option<&Origin> {
        self.origin.as_ref().filter(|origin| origin.format != self.format)
    }

    /// Returns the bytes of all tensors, after casts.
    pub fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().fold(0, |sum, t| sum.saturating_add(t.bytes()))
    }
}
