//! Anchored renames: each matches a whole name or whole leading parts of it, never a part in the middle.

use super::pattern::{Captures, Pattern, escape};
use crate::checkpoint::{PatternBudget, Rename, TensorPath, escape_text};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::text::counted;
use std::borrow::Cow;

/// One rename.
#[derive(Debug, Clone)]
pub(super) enum Renaming {
    /// A whole path, or leading parts of it.
    Path(Rename),
    /// Pattern for the whole name, and the new name.
    Whole {
        pattern: Pattern,
        /// The same pattern with minimal wildcards: where its groups differ, the match is ambiguous.
        shortest: Option<Pattern>,
        to: Template,
    },
}

impl Renaming {
    /// Makes a rename of leading parts of a path, as in [`Rename`].
    pub(super) fn path(from: &str, to: &str) -> Self {
        Self::Path(Rename::new(from, to))
    }

    /// Makes a rename by a glob over the whole name: `*` matches any characters, `?` one. `{1}`, `{2}`, ... in `to` are the
    /// texts of its wildcards.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`]: `bad-pattern`, `bad-template`; [`crate::Kind::Limit`], `too-many-patterns`, where `budget` is
    /// exhausted.
    pub(super) fn glob(from: &str, to: &str, budget: &PatternBudget) -> Result<Self> {
        let pattern = Pattern::anchored(&glob_to_regex(from, "(.*)")?, from, budget)?;
        let shortest = Pattern::anchored(&glob_to_regex(from, "(.*?)")?, from, budget)?;
        // Other programs replace it by the text of the pattern's wildcard; here it would be part of the name.
        if let Some(wildcard) = to.chars().find(|c| matches!(c, '*' | '?')) {
            return Err(Error::usage(
                "bad-template",
                format!("the new name contains the wildcard {wildcard}"),
            )
            .expected("{1}, {2}, ... for the texts of the pattern's wildcards")
            .found(escape_text(to))
            .hint("write {1} for the first wildcard; to keep the character, use a regular expression"));
        }
        let to = Template::parse(to, &pattern)?;
        Ok(Self::Whole { pattern, shortest: Some(shortest), to })
    }

    /// Makes a rename by a regular expression over the whole name. Its groups are `{1}` or `{name}` in `to`.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`]: `bad-pattern`, `bad-template`; [`crate::Kind::Limit`], `too-many-patterns`, where `budget` is
    /// exhausted.
    pub(super) fn regex(from: &str, to: &str, budget: &PatternBudget) -> Result<Self> {
        let pattern = Pattern::regex(from, budget)?;
        let to = Template::parse(to, &pattern)?;
        Ok(Self::Whole { pattern, shortest: None, to })
    }

    /// Returns the new path; `None` where the rule does not match.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`], `ambiguous-rule`, where a glob matches a name in more than one way; [`crate::Kind::Limit`]
    /// where the new name exceeds the limits of reading.
    pub(super) fn apply(&self, path: &TensorPath) -> Result<Option<TensorPath>> {
        let (pattern, shortest, to) = match self {
            Self::Path(rename) => return Ok(rename.apply(path)),
            Self::Whole { pattern, shortest, to } => (pattern, shortest, to),
        };
        // A pattern matches characters; parts that are not UTF-8 have none.
        if path.parts().iter().any(|part| part.as_str().is_none()) {
            return Ok(None);
        }
        let name = path.to_text();
        let Some(found) = pattern.captures(&name) else { return Ok(None) };
        let other = shortest.as_ref().and_then(|shortest| shortest.captures(&name));
        if other.is_some_and(|other| !same_groups(&found, &other)) {
            return Err(Error::mismatch(
                "ambiguous-rule",
                "the pattern matches the name in more than one way",
            )
            .on_tensor(escape_text(&name))
            .hint("write more of the name in the pattern, or use a regular expression"));
        }
        let new = to.fill(&name, &found)?;
        Ok(Some(if new.is_empty() { TensorPath::default() } else { TensorPath::from_dotted(&new) }))
    }
}

fn same_groups(a: &Captures, b: &Captures) -> bool {
    a.iter().eq(b.iter())
}

/// Returns the expression of a glob, with `wildcard` for each `*`.
fn glob_to_regex(glob: &str, wildcard: &str) -> Result<String> {
    let mut pattern = String::new();
    let mut characters = glob.chars();
    while let Some(c) = characters.next() {
        match c {
            '*' => pattern.push_str(wildcard),
            '?' => pattern.push_str("(.)"),
            // In other programs these are sets and choices, which have no group of their own here.
            '[' | ']' | '{' | '}' => {
                return Err(Error::usage("bad-pattern", "a glob in a rename supports only * and ?")
                    .found(escape_text(glob))
                    .hint(format_args!(
                        "write \\{c} for the character itself, or use a regular expression"
                    )));
            }
            '\\' => match characters.next() {
                Some(c) => pattern.push_str(&escape(c.encode_utf8(&mut [0; 4]))),
                None => {
                    return Err(Error::usage("bad-pattern", "the pattern ends with a backslash")
                        .found(escape_text(glob)));
                }
            },
            c => pattern.push_str(&escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    Ok(pattern)
}

/// True where `sign` and what follows it are a group as sed, Python or the regex crate write it: `\1`, `$1`, `${name}`.
fn is_group_elsewhere(sign: char, rest: &mut impl Iterator<Item = char>) -> bool {
    match rest.next() {
        Some(c) if c.is_ascii_digit() => true,
        // Two braces are a literal brace.
        Some('{') => sign == '$' && rest.next() != Some('{'),
        _ => false,
    }
}

/// Template of the new name: text and groups of the pattern.
#[derive(Debug, Clone)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Group(usize),
    /// A group that is a number, and the number to add to it.
    Sum(usize, i64),
}

/// Splits `1-4` into the group and the number to add; 0 for a group alone.
fn split_offset(name: &str) -> (&str, i64) {
    let Some(at) = name.rfind(['+', '-']).filter(|&at| at > 0) else { return (name, 0) };
    match name[at..].parse() {
        Ok(offset) => (&name[..at], offset),
        Err(_) => (name, 0),
    }
}

impl Template {
    /// Parses `h.{1}.weight`; `{1-1}` is the number in the group less 1; `{{` and `}}` are literal braces.
    fn parse(text: &str, pattern: &Pattern) -> Result<Self> {
        let fail = |why: String| Error::usage("bad-template", why).found(escape_text(text));
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut characters = text.chars().peekable();
        while let Some(c) = characters.next() {
            match c {
                '{' | '}' if characters.peek() == Some(&c) => {
                    characters.next();
                    plain.push(c);
                }
                '{' => {
                    let name: String = characters.by_ref().take_while(|&c| c != '}').collect();
                    let (named, offset) = split_offset(&name);
                    let by_number = named.parse::<usize>().ok().filter(|&n| n < pattern.groups());
                    let Some(group) = by_number.or_else(|| pattern.group(named)) else {
                        let count = match pattern.groups() - 1 {
                            0 => "no groups".to_owned(),
                            count => counted(count as u64, "group", "groups"),
                        };
                        return Err(fail(format!(
                            "the new name uses {{{}}}, but the pattern has {count}",
                            escape_text(&name)
                        )));
                    };
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(if offset == 0 { Piece::Group(group) } else { Piece::Sum(group, offset) });
                }
                // Other programs write groups this way; taken literally it would be part of the name.
                '\\' | '$' if is_group_elsewhere(c, &mut characters.clone()) => {
                    return Err(fail("groups in the new name are written in braces".to_owned())
                        .expected("{1}, or {name}")
                        .hint(format_args!("write {{1}} instead of {c}1")));
                }
                '}' => {
                    return Err(fail(
                        "a closing brace has no opening brace; write }} for the character".to_owned(),
                    ));
                }
                c => plain.push(c),
            }
        }
        pieces.push(Piece::Text(plain));
        Ok(Self(pieces))
    }

    /// Fills in the groups. A group may occur many times, so the length is checked first.
    fn fill(&self, name: &str, captures: &Captures) -> Result<String> {
        let matched = |group: &usize| captures.get_group(*group).map_or("", |found| &name[found.range()]);
        let mut texts = Vec::with_capacity(self.0.len());
        for piece in &self.0 {
            texts.push(match piece {
                Piece::Text(text) => Cow::Borrowed(text.as_str()),
                Piece::Group(group) => Cow::Borrowed(matched(group)),
                Piece::Sum(group, offset) => Cow::Owned(sum(name, matched(group), *offset)?),
            });
        }
        let length = texts.iter().fold(0u64, |sum, text| sum.saturating_add(text.len() as u64));
        let limits = Limits::default();
        Limits::check("bytes in a new name", "none: this limit is fixed", length, limits.name_bytes)?;
        let new: String = texts.concat();
        let parts = new.bytes().filter(|&byte| byte == b'.').count() as u64 + 1;
        Limits::check("parts in a new name", "none: this limit is fixed", parts, limits.path_parts)?;
        Ok(new)
    }
}

/// Adds `offset` to the number in the group of a name.
///
/// # Errors
/// [`crate::Kind::Mismatch`], `bad-template`, unless both are numbers from 0.
fn sum(name: &str, group: &str, offset: i64) -> Result<String> {
    let number = group.parse::<u64>().ok().filter(|_| group.bytes().all(|byte| byte.is_ascii_digit()));
    match number.and_then(|number| number.checked_add_signed(offset)) {
        Some(sum) => Ok(sum.to_string()),
        None => Err(Error::mismatch("bad-template", "a number in the new name cannot be computed")
            .on_tensor(escape_text(name))
            .expected("a group of digits, and a result from 0")
            .found(format_args!("{}{offset:+}", escape_text(group)))
            .hint(r"match the number with (\d+), and names without it in a rule of their own")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Name;

    fn renamed(rule: &Renaming, name: &str) -> Option<String> {
        rule.apply(&TensorPath::from_dotted(name)).unwrap().map(|path| path.to_text())
    }

    #[test]
    fn a_wildcard_in_the_new_name_of_a_glob_is_refused() {
        for to in ["*.weight", "h.?", "**"] {
            let error = Renaming::glob("*.w", to, &PatternBudget::default()).unwrap_err();
            assert_eq!(error.code().as_str(), "bad-template", "{to}");
            assert!(error.hint_text().unwrap().contains("{1}"));
        }
        assert!(Renaming::regex(r"(.*)\.w", "*.weight", &PatternBudget::default()).is_ok());
    }

    #[test]
    fn globs_cover_the_whole_name() {
        let rule = Renaming::glob("layers.*.w", "h.{1}.weight", &PatternBudget::default()).unwrap();
        assert_eq!(renamed(&rule, "layers.0.attn.w").unwrap(), "h.0.attn.weight");
        assert_eq!(renamed(&rule, "my.layers.0.w"), None);
        assert_eq!(renamed(&rule, "layers.0.w2"), None);
        let rule = Renaming::glob("fc?.w_\\*", "{{{1}}}", &PatternBudget::default()).unwrap();
        assert_eq!(renamed(&rule, "fc7.w_*").unwrap(), "{7}");
        assert_eq!(renamed(&rule, "fc7.w_0"), None);
    }

    #[test]
    fn an_ambiguous_glob_is_refused() {
        let rule = Renaming::glob("*.*.w", "{2}.{1}", &PatternBudget::default()).unwrap();
        assert_eq!(renamed(&rule, "a.b.w").unwrap(), "b.a");
        let error = rule.apply(&TensorPath::from_dotted("a.b.c.w")).unwrap_err();
        assert_eq!((error.code().as_str(), error.tensor()), ("ambiguous-rule", Some("a.b.c.w")));
    }

    #[test]
    fn expressions_cannot_leave_their_anchors() {
        let rule =
            Renaming::regex(r"linear_(?<n>\d+)\.w_0|head", "fc{n}", &PatternBudget::default()).unwrap();
        assert_eq!(renamed(&rule, "linear_12.w_0").unwrap(), "fc12");
        assert_eq!(renamed(&rule, "head").unwrap(), "fc");
        for other in ["xlinear_1.w_0", "linear_1.w_0.x", "heads", "ahead"] {
            assert_eq!(renamed(&rule, other), None, "{other}");
        }
        for bad in ["a)|(b", "(", "a{99999999}", "(?x: a #"] {
            assert_eq!(
                Renaming::regex(bad, "x", &PatternBudget::default()).unwrap_err().code().as_str(),
                "bad-pattern",
                "{bad}"
            );
        }
        assert_eq!(
            Renaming::glob("[ab]", "x", &PatternBudget::default()).unwrap_err().code().as_str(),
            "bad-pattern"
        );
        assert_eq!(
            Renaming::glob("a\\", "x", &PatternBudget::default()).unwrap_err().code().as_str(),
            "bad-pattern"
        );
    }

    #[test]
    fn groups_that_are_numbers_can_be_counted_from_elsewhere() {
        let budget = PatternBudget::default();
        let rule = Renaming::regex(r"block_(?<n>\w+)\.(.*)", "layer.{1-1}.{n+10}.{2}", &budget).unwrap();
        assert_eq!(renamed(&rule, "block_16.w").unwrap(), "layer.15.26.w");
        for (name, found) in [
            ("block_0.w", "0-1"),
            ("block_x.w", "x-1"),
            ("block_99999999999999999999.w", "99999999999999999999-1"),
        ] {
            let error = rule.apply(&TensorPath::from_dotted(name)).unwrap_err();
            assert_eq!((error.code().as_str(), error.tensor()), ("bad-template", Some(name)));
            assert_eq!(error.found_text(), Some(found));
        }
        for bad in ["{3-1}", "{1-}", "{1-x}", "{-1}", "{1--1}", "{m+1}"] {
            let error = Renaming::regex(r"block_(?<n>\w+)\.(.*)", bad, &budget).unwrap_err();
            assert_eq!(error.code().as_str(), "bad-template", "{bad}");
        }
    }

    #[test]
    fn templates_refer_to_existing_groups() {
        for bad in ["{2}", "{n}", "{", "}", "{}"] {
            assert_eq!(
                Renaming::glob("a*", bad, &PatternBudget::default()).unwrap_err().code().as_str(),
                "bad-template",
                "{bad}"
            );
        }
        assert_eq!(
            renamed(&Renaming::glob("a*", "{0}!", &PatternBudget::default()).unwrap(), "abc").unwrap(),
            "abc!"
        );
        // Groups in the syntax of other programs would silently become part of the name.
        for other in [r"x.\1", "x.$1", "${1}", "${n}"] {
            let error = Renaming::regex("a(?<n>.*)", other, &PatternBudget::default()).unwrap_err();
            assert_eq!(error.code().as_str(), "bad-template", "{other}");
            assert!(error.hint_text().unwrap().starts_with("write {1} instead of "), "{error}");
        }
        assert_eq!(
            renamed(&Renaming::regex("a(.*)", r"$\${{{1}}}", &PatternBudget::default()).unwrap(), "abc")
                .unwrap(),
            r"$\${bc}"
        );
    }

    #[test]
    fn bytes_that_are_no_text_fit_no_pattern() {
        let path = TensorPath::new(vec![Name::new(*b"a\xff")]);
        assert!(Renaming::glob("*", "x", &PatternBudget::default()).unwrap().apply(&path).unwrap().is_none());
        assert!(Renaming::path("", "x").apply(&path).unwrap().is_some());
    }
}
