//! Rules: a word and its arguments, the same on the command line and in a file.

use super::renaming::Renaming;
use crate::checkpoint::{PatternBudget, Selection, escape_text};
use crate::error::{Error, Result};
use crate::tensor::{Cast, DType};
use crate::text::near;

/// The rule words.
pub(super) const WORDS: [&str; 14] = [
    "keep",
    "drop",
    "strip-prefix",
    "rename",
    "rename-glob",
    "rename-regex",
    "prefix",
    "transpose",
    "cast",
    "tie",
    "untie",
    "set-metadata",
    "remove-metadata",
    "no-state",
];

/// One step of an edit. Steps are applied in order, each to the result of the previous one.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// use weighbridge::ops::edit::Rule;
///
/// let rules = Rule::parse("cast", &["encoder.*=bf16".to_owned()])?;
/// assert_eq!(rules[0].text(), "cast encoder.*=bf16");
/// assert_eq!(Rule::parse("renam", &[]).unwrap_err().code().as_str(), "bad-rule");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) action: Action,
    /// The rule as written.
    text: String,
    /// The file, line and offset of the rule.
    place: Option<RuleLocation>,
}

/// Location of a rule in a file.
#[derive(Debug, Clone)]
pub(super) struct RuleLocation {
    /// The file.
    pub(super) file: String,
    /// The line, counted from 1.
    pub(super) line: usize,
    /// The offset in bytes.
    pub(super) offset: u64,
}

/// Effect of a rule.
#[derive(Debug, Clone)]
pub(super) enum Action {
    /// Keeps tensors that one of the patterns matches.
    Keep(Selection),
    /// Drops tensors that one of the patterns matches.
    Drop(Selection),
    /// Drops optimizer state.
    NoState,
    /// Renames each path by the first rename that matches it. Each rename has its `from` side.
    Rename(Vec<(Renaming, String)>),
    /// Permutes the dimensions of matrices, or of tensors of rank `axes.len()`.
    Transpose { pattern: Selection, axes: Option<Vec<usize>> },
    /// Casts floating-point tensors to another type.
    Cast { pattern: Selection, cast: Cast },
    /// Shares storage between two tensors.
    Tie { name: String, of: String },
    /// Separates tensors that share storage.
    Untie(Selection),
    /// Sets a metadata key.
    SetMetadata { key: String, value: String },
    /// Removes a metadata key.
    RemoveMetadata(String),
}

impl Rule {
    /// Parses one rule: a word of the [grammar](super) and its arguments, each as on the command line. Several arguments of
    /// `keep`, `drop` and the renames are one step: everything that one of the patterns matches, or the first rename that
    /// matches. For the other words, each argument is a rule of its own.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`]: `unknown-rule`; `bad-rule` for invalid arguments; `bad-pattern`, `bad-template`;
    /// [`crate::Kind::Limit`], `too-many-patterns`.
    pub fn parse(word: &str, arguments: &[String]) -> Result<Vec<Self>> {
        let arguments: Vec<Argument> = arguments.iter().cloned().map(Argument::Text).collect();
        Self::read(word, &arguments, None, &PatternBudget::default())
    }

    /// As [`parse`](Self::parse), with the pattern `budget` that all rules share.
    pub(super) fn read(
        word: &str,
        arguments: &[Argument],
        place: Option<&RuleLocation>,
        budget: &PatternBudget,
    ) -> Result<Vec<Self>> {
        let rule =
            |action, text: String| Self { action, text: format!("{word} {text}"), place: place.cloned() };
        let all = || arguments.iter().map(Argument::shown).collect::<Vec<_>>().join(" ");
        let placed = |error: Error| locate(error, place);
        if arguments.is_empty() {
            return Err(placed(bad(word, "needs an argument", "")));
        }
        let renames = |make: &dyn Fn(&str, &str) -> Result<Renaming>| -> Result<Vec<Self>> {
            let one = |argument: &Argument| {
                let (from, to) = argument.pair(word)?;
                Ok((make(&from, &to)?, from))
            };
            let list = arguments.iter().map(one).collect::<Result<Vec<_>>>()?;
            Ok(vec![rule(Action::Rename(list), all())])
        };
        let each = |make: &dyn Fn(&Argument) -> Result<Action>| -> Result<Vec<Self>> {
            arguments.iter().map(|argument| Ok(rule(make(argument)?, argument.shown()))).collect()
        };
        let patterns = || -> Result<Vec<String>> { arguments.iter().map(|a| a.single(word)).collect() };
        let made = match word {
            "keep" => Ok(vec![rule(Action::Keep(Selection::within(&patterns()?, &[], budget)?), all())]),
            "drop" => Ok(vec![rule(Action::Drop(Selection::within(&patterns()?, &[], budget)?), all())]),
            "no-state" => each(&|argument| match argument.single(word)?.as_str() {
                "yes" => Ok(Action::NoState),
                other => Err(bad(word, "takes only the value \"yes\"", other)),
            }),
            "rename" => renames(&|from, to| Ok(Renaming::path(from, to))),
            "rename-glob" => renames(&|from, to| Renaming::glob(from, to, budget)),
            "rename-regex" => renames(&|from, to| Renaming::regex(from, to, budget)),
            "strip-prefix" | "prefix" => {
                let strip = word == "strip-prefix";
                let one = |argument: &Argument| {
                    let path = argument.single(word)?;
                    if path.is_empty() {
                        return Err(bad(word, "needs a name", ""));
                    }
                    let renaming = if strip { Renaming::path(&path, "") } else { Renaming::path("", &path) };
                    Ok((renaming, argument.shown()))
                };
                // Of several prefixes the first match is stripped; several new prefixes would contradict each other.
                if !strip && arguments.len() > 1 {
                    return Err(placed(bad(word, "takes exactly one name", &all())));
                }
                let list = arguments.iter().map(one).collect::<Result<Vec<_>>>();
                list.map(|list| vec![rule(Action::Rename(list), all())])
            }
            "transpose" => each(&|argument| {
                let (pattern, axes) = argument.optional(word, |right| axes(right).is_some())?;
                let axes = axes.map(|text| axes_of(word, &text)).transpose()?;
                Ok(Action::Transpose { pattern: select(pattern, budget)?, axes })
            }),
            "cast" => each(&|argument| {
                let (pattern, to) = match argument {
                    Argument::Text(text) => match text.rsplit_once('=') {
                        Some((pattern, to)) => (pattern.to_owned(), to.to_owned()),
                        None => ("*".to_owned(), text.clone()),
                    },
                    Argument::Pair(..) => argument.pair(word)?,
                };
                Ok(Action::Cast { pattern: select(pattern, budget)?, cast: dtype(word, &to)?.into() })
            }),
            "tie" => each(&|argument| {
                let (name, of) = argument.pair(word)?;
                Ok(Action::Tie { name, of })
            }),
            "untie" => each(&|argument| Ok(Action::Untie(select(argument.single(word)?, budget)?))),
            "set-metadata" => each(&|argument| {
                let (key, value) = argument.pair(word)?;
                match key.is_empty() {
                    false => Ok(Action::SetMetadata { key, value }),
                    true => Err(bad(word, "needs a key", &argument.shown())),
                }
            }),
            "remove-metadata" => each(&|argument| Ok(Action::RemoveMetadata(argument.single(word)?))),
            _ => Err(Error::usage("unknown-rule", "unknown rule")
                .found(escape_text(word))
                .hint(meant_or_all("rules", word, &WORDS))),
        };
        made.map_err(placed)
    }

    /// Returns the rule as written: `rename a=b`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds the location of this rule to an error.
    pub(super) fn blame(&self, error: Error) -> Error {
        match &self.place {
            Some(place) => error.within(format_args!("rule in line {} of {}", place.line, place.file)),
            None => error,
        }
    }
}

/// Adds the location of a rule to an error about its syntax.
pub(super) fn locate(error: Error, place: Option<&RuleLocation>) -> Error {
    match place {
        Some(place) => {
            error.in_file(&place.file).at(place.offset).within(format_args!("line {}", place.line))
        }
        None => error,
    }
}

pub(super) fn bad(word: &str, why: &str, found: &str) -> Error {
    Error::usage("bad-rule", format!("the rule {word} {why}")).found(escape_text(found))
}

/// Returns a hint for an unknown word: the most similar one of `known`, or all of them.
pub(super) fn meant_or_all(what: &str, word: &str, known: &[&str]) -> String {
    match near(|| known.iter().copied(), word, 1).first() {
        Some(meant) if !word.is_empty() => format!("did you mean `{meant}`?"),
        _ => format!("the {what} are {}", known.join(", ")),
    }
}

fn select(pattern: String, budget: &PatternBudget) -> Result<Selection> {
    Selection::within(&[pattern], &[], budget)
}

fn dtype(word: &str, text: &str) -> Result<DType> {
    if text.is_empty() {
        return Err(bad(word, "has no dtype", text).expected(DType::CAST_NAMES));
    }
    let target = |d: &DType| DType::CAST_TARGETS.contains(d);
    DType::from_spelling(text).filter(target).ok_or_else(|| {
        bad(word, &format!("expects DTYPE or PATTERN=DTYPE, where DTYPE is {}", DType::CAST_NAMES), text)
    })
}

/// Parses the numbers in `1,0,2`.
fn axes(text: &str) -> Option<Vec<usize>> {
    text.split(',').map(|axis| axis.trim().parse().ok()).collect()
}

fn axes_of(word: &str, text: &str) -> Result<Vec<usize>> {
    let axes = axes(text).ok_or_else(|| bad(word, "expects numbers as axes, such as 1,0,2", text))?;
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    match sorted.iter().copied().eq(0..axes.len()) {
        true => Ok(axes),
        false => Err(bad(word, "needs each axis once, such as 1,0", text)),
    }
}

/// Argument of a rule.
#[derive(Debug, Clone)]
pub(super) enum Argument {
    /// Text as on the command line.
    Text(String),
    /// Two separate sides, for sides that contain an `=`.
    Pair(String, String),
}

impl Argument {
    fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Pair(from, to) => format!("{from}={to}"),
        }
    }

    fn single(&self, word: &str) -> Result<String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Pair(..) => Err(bad(word, "takes a single text, not from and to", &self.shown())),
        }
    }

    fn pair(&self, word: &str) -> Result<(String, String)> {
        let sides = match self {
            Self::Text(text) => text.split_once('=').map(|(from, to)| (from.to_owned(), to.to_owned())),
            Self::Pair(from, to) => Some((from.clone(), to.clone())),
        };
        let form = match word {
            "set-metadata" => "KEY=VALUE",
            "tie" => "NAME=OTHER",
            "rename-glob" => "PATTERN=NEW",
            "rename-regex" => "REGEX=NEW",
            "cast" => "PATTERN=DTYPE",
            _ => "OLD=NEW",
        };
        sides.ok_or_else(|| bad(word, &format!("expects {form}"), &self.shown()))
    }

    /// Splits off a second side after the last `=`, where `is_other` accepts it.
    fn optional(&self, word: &str, is_other: impl Fn(&str) -> bool) -> Result<(String, Option<String>)> {
        match self {
            Self::Text(text) => Ok(match text.rsplit_once('=') {
                Some((one, other)) if is_other(other) => (one.to_owned(), Some(other.to_owned())),
                _ => (text.clone(), None),
            }),
            Self::Pair(..) => self.pair(word).map(|(one, other)| (one, Some(other))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(word: &str, arguments: &[&str]) -> Result<Vec<Rule>> {
        Rule::parse(word, &arguments.iter().map(|&a| a.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn renames_of_one_word_are_one_step_and_others_are_their_own() {
        assert_eq!(parse("rename", &["a=b", "b=a"]).unwrap().len(), 1);
        assert_eq!(parse("drop", &["a", "b"]).unwrap().len(), 1);
        let casts = parse("cast", &["a=f16", "f32"]).unwrap();
        assert_eq!((casts.len(), casts[1].text()), (2, "cast f32"));
    }

    #[test]
    fn axes_are_told_from_names() {
        let axes = |text: &str| match &parse("transpose", &[text]).unwrap()[0].action {
            Action::Transpose { axes, .. } => axes.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(axes("conv*=2,3,1,0"), Some(vec![2, 3, 1, 0]));
        assert_eq!(axes("a=b"), None);
        assert_eq!(parse("transpose", &["a=0,2"]).unwrap_err().code().as_str(), "bad-rule");
        assert_eq!(parse("transpose", &["a=0,0"]).unwrap_err().code().as_str(), "bad-rule");
    }

    #[test]
    fn slips_are_errors() {
        for (word, argument, code) in [
            ("renames", "a=b", "unknown-rule"),
            ("rename", "a", "bad-rule"),
            ("prefix", "", "bad-rule"),
            ("cast", "a=i16", "bad-rule"),
            ("cast", "float", "bad-rule"),
            ("tie", "a", "bad-rule"),
            ("set-metadata", "=x", "bad-rule"),
            ("no-state", "no", "bad-rule"),
            ("drop", "[", "bad-pattern"),
        ] {
            assert_eq!(parse(word, &[argument]).unwrap_err().code().as_str(), code, "{word} {argument}");
        }
        assert_eq!(parse("prefix", &["a", "b"]).unwrap_err().code().as_str(), "bad-rule");
        assert_eq!(parse("rename", &[]).unwrap_err().code().as_str(), "bad-rule");
    }
}
