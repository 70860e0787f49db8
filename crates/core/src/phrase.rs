//! User-facing text with typed terms for options, jobs and limits.
//!
//! A hint may name an option: "use `force` to replace it". The command writes it as `--force`, Python as `force=True`. An
//! option in a [`Phrase`] is therefore a [`Term`], and each front end renders it with [`Worded::word`]. Plain text is never
//! searched for options, so names from files stay unchanged.
//!
//! ```
//! use weighbridge_core::phrase::{Opt, Term, Worded};
//! use weighbridge_core::{Error, phrase};
//!
//! let error = Error::usage("exists", "the target exists").hint(phrase!["use ", Opt::Force, " to replace it"]);
//! assert_eq!(error.hint_text(), Some("use `force` to replace it"));
//! let flag = |term: &Term| match term {
//!     Term::Choice(choice) => format!("--{}", choice.option.name()),
//!     other => other.to_string(),
//! };
//! assert_eq!(error.worded(&flag).hint_text(), Some("use --force to replace it"));
//! ```

use crate::text::brief;
use std::fmt;
use std::ops::{Deref, Range};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident: $($variant:ident = $word:literal, $what:literal;)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = $what] $variant,)*
        }
        impl $name {
            /// All variants, sorted by name.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the name in kebab-case.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

words! {
    /// Option of a job.
    Opt:
    AllowSymlinks = "allow-symlinks", "Reads the targets of symbolic links.";
    At = "at", "Selects a version of a checkpoint to read.";
    By = "by", "Selects the comparator of rows.";
    Candidates = "candidates", "Sets the entities among which edges are ranked.";
    Cast = "cast", "Casts floating-point tensors to a dtype.";
    Columns = "columns", "Names the columns of an edge list.";
    Config = "config", "Sets the configuration of PyTorch-BigGraph.";
    CopyOthers = "copy-others", "Copies the other files of a folder.";
    DenyLoss = "deny-loss", "Refuses conversions with losses.";
    Dequantize = "dequantize", "Lists the values of quantized tensors.";
    Drop = "drop", "Drops tensors.";
    Entities = "entities", "Sets the entity folder of PyTorch-BigGraph.";
    FilesOnly = "files-only", "Compares files without their tensors.";
    FollowVirtual = "follow-virtual", "Reads the source files of virtual datasets.";
    Force = "force", "Replaces an existing target.";
    ForgetUndo = "forget-undo", "Removes the undo record.";
    From = "from", "Sets the input format.";
    Header = "header", "Skips the first line of each edge list.";
    InPlace = "in-place", "Edits the file itself.";
    Kind = "kind", "Sets the kind of file within a format.";
    Lenient = "lenient", "Reads files that break a rule.";
    LenientRules = "lenient-rules", "Notes rules that match nothing, instead of failing.";
    Like = "like", "Sets the model with the layout of the output.";
    List = "list", "Lists all parts of a program.";
    Memory = "memory", "Sets the memory for buffers.";
    Names = "names", "Selects the names of tensors.";
    NoState = "no-state", "Drops optimizer state.";
    Order = "order", "Selects the order of entities.";
    Outputs = "outputs", "Selects outputs of a program.";
    Prefer = "prefer", "Selects one of two tensors of the same name.";
    PrefixEach = "prefix-each", "Adds a prefix for each source.";
    Program = "program", "Sets the program of the parameters.";
    Recover = "recover", "Repairs the version file of a checkpoint.";
    Rename = "rename", "Renames tensors.";
    RenameGlob = "rename-glob", "Renames tensors by patterns.";
    RenameRegex = "rename-regex", "Renames tensors by regular expressions.";
    ReverseDims = "reverse-dims", "Reverses the order of dimensions.";
    Rollback = "rollback", "Makes an earlier version of a checkpoint current.";
    Salvage = "salvage", "Reads the intact tensors of a damaged file.";
    Seed = "seed", "Sets the seed of random numbers.";
    Select = "select", "Selects tensors to keep.";
    Set = "set", "Sets an option of a format.";
    SkipBad = "skip-bad", "Sets the number of malformed lines to skip.";
    Strip = "strip", "Removes parts of a program.";
    TensorsOnly = "tensors-only", "Compares tensors without their files.";
    To = "to", "Sets the output format.";
    Undo = "undo", "Reverts the last edit in place.";
    Values = "values", "Reads all values.";
    Versions = "versions", "Selects versions of a checkpoint.";
}

words! {
    /// Job that a hint can name.
    Job:
    Checkpoint = "checkpoint", "Shows, repairs and prunes versions of a checkpoint.";
    Convert = "convert", "Writes a file in another format.";
    Edit = "edit", "Changes names, dtypes, shapes and metadata by rules.";
    Import = "import", "Makes the input of PyTorch-BigGraph from edge lists.";
    Program = "program", "Shows or changes the program of a model.";
    Scan = "scan", "Searches a file for code.";
    Seal = "seal", "Writes a manifest of hashes.";
}

impl Opt {
    /// Returns the option with this value.
    pub fn with(self, value: impl Into<String>) -> Choice {
        Choice { option: self, key: None, value: Some(value.into()), is_example: false }
    }

    /// Returns the option with a placeholder for its value, such as `FILE`.
    pub fn any(self, word: &'static str) -> Choice {
        Choice { is_example: true, ..self.with(word) }
    }

    /// Returns the option with a key and a value.
    pub fn pair(self, key: &'static str, value: impl Into<String>) -> Choice {
        Choice { key: Some(key), ..self.with(value) }
    }

    /// Returns the option with a key and a placeholder for the value.
    pub fn any_pair(self, key: &'static str, word: &'static str) -> Choice {
        Choice { key: Some(key), ..self.any(word) }
    }
}

/// Option with its value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Choice {
    /// Option.
    pub option: Opt,
    /// Key, for an option that takes `KEY=VALUE`.
    pub key: Option<&'static str>,
    /// Value; `None` for a flag, or if any value will do.
    pub value: Option<String>,
    /// True if the value is a placeholder.
    pub is_example: bool,
}

impl Job {
    /// Returns a full call of the job, to which arguments and options can be added.
    pub fn call(self) -> Call {
        Call { job: self, is_brief: false, arguments: &[], choices: Vec::new() }
    }

    /// Returns a short call, for text in which the program is clear from context.
    pub fn brief(self) -> Call {
        Call { is_brief: true, ..self.call() }
    }
}

/// Call of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Call {
    /// Job.
    pub job: Job,
    /// True if the name of the program can be omitted.
    pub is_brief: bool,
    /// Placeholders of the positional arguments.
    pub arguments: &'static [&'static str],
    /// Options.
    pub choices: Vec<Choice>,
}

impl Call {
    /// Sets the placeholders of the arguments, such as `["SRC", "DST"]`.
    #[must_use]
    pub fn of(mut self, arguments: &'static [&'static str]) -> Self {
        self.arguments = arguments;
        self
    }

    /// Adds an option.
    #[must_use]
    pub fn with(mut self, choice: impl Into<Choice>) -> Self {
        self.choices.push(choice.into());
        self
    }
}

/// Part of a text that each front end renders in its own way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Term {
    /// Option of the current job, or of a job that has it.
    Choice(Choice),
    /// Job.
    Call(Call),
    /// Limit of [`crate::Limits`].
    Limit {
        /// Field name.
        name: &'static str,
        /// Sufficient value, if known.
        enough: Option<u64>,
    },
}

/// Returns the term for a limit without a value.
pub fn limit(name: &'static str) -> Term {
    Term::Limit { name, enough: None }
}

impl fmt::Display for Choice {
    /// Writes the name and the value: `cast f32`, `set type=NAME`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.option.name())?;
        match (self.key, &self.value) {
            (Some(key), Some(value)) => write!(f, " {key}={value}"),
            (None, Some(value)) => write!(f, " {value}"),
            (_, None) => Ok(()),
        }
    }
}

impl fmt::Display for Term {
    /// Writes neutral text, for users of the library: `` `force` ``, `edit(SRC, DST)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Choice(choice) => write!(f, "`{choice}`"),
            Self::Call(Call { job, arguments, choices, .. }) => {
                let given = arguments.iter().map(|word| (*word).to_owned());
                let given: Vec<String> = given.chain(choices.iter().map(Choice::to_string)).collect();
                match given.as_slice() {
                    [] => f.write_str(job.name()),
                    given => write!(f, "{}({})", job.name(), given.join(", ")),
                }
            }
            Self::Limit { name, enough: None } => write!(f, "`{name}`"),
            Self::Limit { name, enough: Some(enough) } => write!(f, "`{name}` to {enough}"),
        }
    }
}

impl From<Opt> for Choice {
    fn from(option: Opt) -> Self {
        Self { option, key: None, value: None, is_example: false }
    }
}

/// Function of a front end that renders a term.
pub type Face<'a> = &'a dyn Fn(&Term) -> String;

/// User-facing text in neutral form, with its terms. Dereferences to `str`.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Phrase {
    text: String,
    /// Terms with their byte ranges in the text, in order.
    terms: Vec<(Range<usize>, Term)>,
}

/// Builds a [`Phrase`](crate::phrase::Phrase) of text and terms: `phrase!["use ", Opt::Force, " to replace it"]`.
#[macro_export]
macro_rules! phrase {
    ($($part:expr),+ $(,)?) => {
        $crate::phrase::Phrase::default()$(.and($part))+
    };
}

impl Phrase {
    /// Appends text or a term.
    #[must_use]
    pub fn and(mut self, more: impl Into<Self>) -> Self {
        let more = more.into();
        let start = self.text.len();
        self.text.push_str(&more.text);
        let moved = more.terms.into_iter().map(|(at, term)| (start + at.start..start + at.end, term));
        self.terms.extend(moved);
        self
    }

    /// Returns the neutral text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the terms, in order.
    pub fn terms(&self) -> impl Iterator<Item = &Term> {
        self.terms.iter().map(|(_, term)| term)
    }

    /// Truncates a phrase that quotes a long text from a file.
    pub(crate) fn brief(mut self) -> Self {
        let brief = brief(self.text.clone());
        if brief != self.text {
            self.terms.clear();
            self.text = brief;
        }
        self
    }
}

impl Deref for Phrase {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl AsRef<str> for Phrase {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Phrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Phrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl PartialEq<str> for Phrase {
    fn eq(&self, other: &str) -> bool {
        self.text == other
    }
}

impl PartialEq<&str> for Phrase {
    fn eq(&self, other: &&str) -> bool {
        self.text == *other
    }
}

impl PartialEq<String> for Phrase {
    fn eq(&self, other: &String) -> bool {
        self.text == *other
    }
}

impl serde::Serialize for Phrase {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl From<String> for Phrase {
    fn from(text: String) -> Self {
        Self { text, terms: Vec::new() }
    }
}

impl From<&String> for Phrase {
    fn from(text: &String) -> Self {
        text.clone().into()
    }
}

impl From<&str> for Phrase {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<std::borrow::Cow<'_, str>> for Phrase {
    fn from(text: std::borrow::Cow<'_, str>) -> Self {
        text.into_owned().into()
    }
}

impl From<fmt::Arguments<'_>> for Phrase {
    fn from(text: fmt::Arguments<'_>) -> Self {
        text.to_string().into()
    }
}

impl From<&Phrase> for Phrase {
    fn from(phrase: &Phrase) -> Self {
        phrase.clone()
    }
}

impl From<Term> for Phrase {
    fn from(term: Term) -> Self {
        let text = term.to_string();
        Self { terms: vec![(0..text.len(), term)], text }
    }
}

impl From<Opt> for Phrase {
    fn from(option: Opt) -> Self {
        Choice::from(option).into()
    }
}

impl From<Choice> for Phrase {
    fn from(choice: Choice) -> Self {
        Term::Choice(choice).into()
    }
}

impl From<Call> for Phrase {
    fn from(call: Call) -> Self {
        Term::Call(call).into()
    }
}

/// Value with phrases that a front end renders before display.
pub trait Worded {
    /// Replaces each term with its text from `face`.
    fn word(&mut self, face: Face<'_>);

    /// Returns the value with each term replaced, as [`word`](Self::word).
    #[must_use]
    fn worded(mut self, face: Face<'_>) -> Self
    where
        Self: Sized,
    {
        self.word(face);
        self
    }
}

impl Worded for Phrase {
    fn word(&mut self, face: Face<'_>) {
        // From the end, so that the earlier ranges stay valid.
        for (at, term) in std::mem::take(&mut self.terms).into_iter().rev() {
            self.text.replace_range(at, &face(&term));
        }
    }
}

impl<T: Worded> Worded for Option<T> {
    fn word(&mut self, face: Face<'_>) {
        self.iter_mut().for_each(|one| one.word(face));
    }
}

impl<T: Worded> Worded for [T] {
    fn word(&mut self, face: Face<'_>) {
        self.iter_mut().for_each(|one| one.word(face));
    }
}

impl<T: Worded> Worded for Vec<T> {
    fn word(&mut self, face: Face<'_>) {
        self.as_mut_slice().word(face);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag(term: &Term) -> String {
        format!("<{term}>")
    }

    #[test]
    fn word_replaces_terms_and_keeps_text() {
        let name = "--force `force`";
        let mut phrase =
            phrase!["of ", name, ": ", Opt::Cast.with("f32"), " or ", Job::Edit.call().with(Opt::Undo)];
        assert_eq!(phrase, "of --force `force`: `cast f32` or edit(undo)");
        assert_eq!(phrase.terms().count(), 2);
        phrase.word(&flag);
        assert_eq!(phrase, "of --force `force`: <`cast f32`> or <edit(undo)>");
        phrase.word(&flag);
        assert_eq!(phrase, "of --force `force`: <`cast f32`> or <edit(undo)>", "once");
    }

    #[test]
    fn joined_phrases_keep_their_terms() {
        let joined = phrase![phrase![Opt::Set.any_pair("type", "NAME"), " names it"], "; ", limit("tensors")];
        assert_eq!(joined.worded(&flag), "<`set type=NAME`> names it; <`tensors`>");
    }

    #[test]
    fn long_phrases_are_truncated() {
        let long = phrase!["x".repeat(5000), Opt::Force].brief();
        assert!(long.len() < 1200 && long.terms().count() == 0);
    }
}
