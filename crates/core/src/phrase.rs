//! Text for people in which options of jobs are data.
//!
//! Hints speak of options: "use `force` to replace it". Each face of the library writes options in its own way: the command
//! as `--force`, Python as `force=True`. So an option is no word of a [`Phrase`] but a [`Term`] in it, and a face words it
//! with [`Worded::word`]. Text is never searched for options: names from files stay as they are.
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
            /// All of them, by name.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name, in kebab-case.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

words! {
    /// An option of a job.
    Opt:
    AllowSymlinks = "allow-symlinks", "The bytes behind symbolic links.";
    Cast = "cast", "A dtype for floating-point tensors.";
    Config = "config", "The configuration of PyTorch-BigGraph.";
    CopyOthers = "copy-others", "The other files of a folder.";
    DenyLoss = "deny-loss", "A refusal where something would be lost.";
    Drop = "drop", "Tensors to leave out.";
    Entities = "entities", "The folder of entities of PyTorch-BigGraph.";
    FilesOnly = "files-only", "Files without their tensors.";
    FollowVirtual = "follow-virtual", "The sources of virtual datasets.";
    Force = "force", "An existing target is replaced.";
    ForgetUndo = "forget-undo", "The undo record is removed.";
    From = "from", "The format of the input.";
    InPlace = "in-place", "The file itself is edited.";
    Kind = "kind", "The kind of file within a format.";
    Lenient = "lenient", "Files that break a rule are read.";
    LenientRules = "lenient-rules", "Rules that fit nothing are noted.";
    List = "list", "All parts of a program.";
    Memory = "memory", "Memory for buffers.";
    Names = "names", "The names that tensors go by.";
    NoState = "no-state", "Optimizer state is left out.";
    Outputs = "outputs", "The outputs of a program.";
    Prefer = "prefer", "One of two tensors of the same name.";
    PrefixEach = "prefix-each", "A prefix for each source.";
    Program = "program", "The program beside the parameters.";
    Rename = "rename", "New names.";
    ReverseDims = "reverse-dims", "Dimensions in reverse order.";
    Salvage = "salvage", "The intact tensors of a damaged file.";
    Select = "select", "Tensors to keep.";
    Set = "set", "A setting of a format.";
    Strip = "strip", "Parts of a program to remove.";
    TensorsOnly = "tensors-only", "Tensors without their files.";
    To = "to", "The format to write.";
    Undo = "undo", "The last edit in place is taken back.";
    Values = "values", "All values are read.";
    Versions = "versions", "The versions of a checkpoint.";
}

words! {
    /// A job with a name of its own.
    Job:
    Convert = "convert", "A file in another form.";
    Edit = "edit", "Names, types, shapes and metadata by rules.";
    Program = "program", "The program of a model.";
    Scan = "scan", "A search for code in a file.";
    Seal = "seal", "A manifest of hashes.";
}

impl Opt {
    /// The option with this value.
    pub fn with(self, value: impl Into<String>) -> Choice {
        Choice { option: self, key: None, value: Some(value.into()), is_example: false }
    }

    /// The option with a value for which `word` stands, such as `FILE`.
    pub fn any(self, word: &'static str) -> Choice {
        Choice { is_example: true, ..self.with(word) }
    }

    /// The option with a pair of a name and a value.
    pub fn pair(self, key: &'static str, value: impl Into<String>) -> Choice {
        Choice { key: Some(key), ..self.with(value) }
    }

    /// The option with a pair of a name and a value for which `word` stands.
    pub fn any_pair(self, key: &'static str, word: &'static str) -> Choice {
        Choice { key: Some(key), ..self.any(word) }
    }
}

/// An option, and what it is set to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Choice {
    /// The option.
    pub option: Opt,
    /// The name, for an option that takes pairs of names and values.
    pub key: Option<&'static str>,
    /// The value; `None` for an option that takes none, and where any will do.
    pub value: Option<String>,
    /// True where the value stands for any other one.
    pub is_example: bool,
}

impl Job {
    /// The whole call of the job, to which arguments and options can be added.
    pub fn call(self) -> Call {
        Call { job: self, is_brief: false, arguments: &[], choices: Vec::new() }
    }

    /// The call within a sentence which speaks of jobs of this library anyhow.
    pub fn brief(self) -> Call {
        Call { is_brief: true, ..self.call() }
    }
}

/// The call of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Call {
    /// The job.
    pub job: Job,
    /// True where it is clear whose job it is.
    pub is_brief: bool,
    /// Words that stand for its arguments.
    pub arguments: &'static [&'static str],
    /// Its options.
    pub choices: Vec<Choice>,
}

impl Call {
    /// The call with these arguments, such as `["SRC", "DST"]`.
    #[must_use]
    pub fn of(mut self, arguments: &'static [&'static str]) -> Self {
        self.arguments = arguments;
        self
    }

    /// The call with one more option.
    #[must_use]
    pub fn with(mut self, choice: impl Into<Choice>) -> Self {
        self.choices.push(choice.into());
        self
    }
}

/// A part of a text that each face words in its own way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Term {
    /// An option of the job at hand, or of one that takes it.
    Choice(Choice),
    /// A job.
    Call(Call),
    /// A limit of [`crate::Limits`], and the number that is enough.
    Limit {
        /// Its name.
        name: &'static str,
        /// A number that is enough, where it is known.
        enough: Option<u64>,
    },
}

/// A limit by name, for a [`Phrase`].
pub fn limit(name: &'static str) -> Term {
    Term::Limit { name, enough: None }
}

impl fmt::Display for Choice {
    /// The name and the value: `cast f32`, `set type=NAME`.
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
    /// Neutral words, for those who use the library itself: `` `force` ``, `edit(SRC, DST)`.
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

/// The words of a face for a term.
pub type Face<'a> = &'a dyn Fn(&Term) -> String;

/// Text for people, in neutral words, that knows its terms. Reads as a `str`.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Phrase {
    text: String,
    /// The terms and their places in the text, in order.
    terms: Vec<(Range<usize>, Term)>,
}

/// Text and terms, one after another: `phrase!["use ", Opt::Force, " to replace it"]`.
#[macro_export]
macro_rules! phrase {
    ($($part:expr),+ $(,)?) => {
        $crate::phrase::Phrase::default()$(.and($part))+
    };
}

impl Phrase {
    /// The phrase with more behind it.
    #[must_use]
    pub fn and(mut self, more: impl Into<Self>) -> Self {
        let more = more.into();
        let start = self.text.len();
        self.text.push_str(&more.text);
        let moved = more.terms.into_iter().map(|(at, term)| (start + at.start..start + at.end, term));
        self.terms.extend(moved);
        self
    }

    /// The text in neutral words.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The terms, in order.
    pub fn terms(&self) -> impl Iterator<Item = &Term> {
        self.terms.iter().map(|(_, term)| term)
    }

    /// The beginning of a phrase that quotes more of a file than anybody reads.
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

/// A holder of phrases, which a face words before it shows them.
pub trait Worded {
    /// Puts the words of a face in the place of each term.
    fn word(&mut self, face: Face<'_>);

    /// As it is in the words of a face.
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
        // From the end, so that what stands before stays where it is.
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
    fn terms_are_data_and_text_is_text() {
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
    fn phrases_are_joined_with_their_terms() {
        let joined = phrase![phrase![Opt::Set.any_pair("type", "NAME"), " names it"], "; ", limit("tensors")];
        assert_eq!(joined.worded(&flag), "<`set type=NAME`> names it; <`tensors`>");
    }

    #[test]
    fn long_phrases_are_cut() {
        let long = phrase!["x".repeat(5000), Opt::Force].brief();
        assert!(long.len() < 1200 && long.terms().count() == 0);
    }
}
