//! Rules in TOML files.

use super::rule::{Argument, Rule, RuleLocation, WORDS, bad, locate, meant_or_all};
use crate::checkpoint::{PatternBudget, escape_text};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::source::{FileSource, Source, read_vec};
use std::cell::Cell;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum length of a rule file in bytes. Rules are written by hand, and parsing TOML takes fifty times its length.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum number of rules in a file, counted by their arguments.
const MAX_RULES: usize = 10_000;
/// The version of the grammar.
const VERSION: &str = "1";

/// Reads a rule file; see the [grammar](super).
///
/// # Errors
/// [`crate::Kind::Io`]; [`crate::Kind::Limit`]; [`crate::Kind::Usage`], with file, line and offset:
/// `bad-toml`, `unknown-key`, `unknown-rule`, `bad-rule`, `bad-pattern`, `bad-template`.
pub fn read_rules(path: &Path) -> Result<Vec<Rule>> {
    let source = FileSource::open(path)?;
    let label = source.label().to_owned();
    Limits::check("bytes in a rule file", "none: this limit is fixed", source.len(), MAX_FILE_BYTES)
        .map_err(|e| e.in_file(&label))?;
    let bytes = read_vec(&source, 0, source.len())?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::usage("bad-toml", "the rule file is not UTF-8").in_file(&label))?;
    parse_rules(&text, &label)
}

/// Parses rules from text; `label` is the file name in errors.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// use weighbridge::ops::edit::parse_rules;
///
/// let text = "[[rule]]\nstrip-prefix = \"model\"\n\n[[rule]]\ncast = \"f16\"\n";
/// let rules = parse_rules(text, "rules.toml")?;
/// assert_eq!(rules[0].text(), "strip-prefix model");
/// assert_eq!(rules[1].text(), "cast f16");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`read_rules`].
pub fn parse_rules(text: &str, label: &str) -> Result<Vec<Rule>> {
    let file =
        File { text, label, line: Cell::new((0, 1)), count: Cell::new(0), budget: PatternBudget::default() };
    let document = DeTable::parse(text).map_err(|error| {
        let message = escape_text(error.message());
        let span = error.span().unwrap_or(0..0);
                let mut bad = Error::usage("bad-toml", format!("invalid TOML: {message}"));
                if file.is_escape(span.start) {
                    bad = bad.hint(
                        "in double quotes, TOML reads a backslash as an escape; put regular expressions in single quotes",
                    );
                }
                locate(bad, Some(&file.place(&span)))
    })?;
    let mut rules = Vec::new();
    for (key, value) in document.get_ref() {
        match key.get_ref().as_ref() {
            "version" => match value.get_ref() {
                DeValue::Integer(number) if number.as_str() == VERSION => {}
                other => {
                    let error = Error::usage("bad-rule", "the version of the rule file is not supported")
                        .expected("version = 1");
                    let found = match other {
                        DeValue::Integer(number) => format!("version = {}", escape_text(number.as_str())),
                        other => format!("a version of type {}", other.type_str()),
                    };
                    return Err(file.fail(error.found(found), &value.span()));
                }
            },
            "rule" => {
                let DeValue::Array(list) = value.get_ref() else {
                    let error = Error::usage("bad-rule", "the rules are not a list").expected("[[rule]]");
                    return Err(file.fail(error, &value.span()));
                };
                for rule in list {
                    rules.extend(file.rule(rule)?);
                }
            }
            word if WORDS.contains(&word) => {
                let text = format!("`{word}` must be in a [[rule]] table");
                let error = Error::usage("unknown-key", text).hint("write [[rule]] above it");
                return Err(file.fail(error, &key.span()));
            }
            other => return Err(file.unknown_key(other, &key.span(), &["version", "rule"])),
        }
    }
    if rules.is_empty() {
        let error = Error::usage("bad-rule", "the file has no rules").in_file(label);
        return Err(error.hint("begin each rule with a line [[rule]]"));
    }
    Ok(rules)
}

fn too_many() -> Error {
    Error::limit("too-many-rules", "too many rules").expected(format_args!("at most {MAX_RULES}"))
}

struct File<'a> {
    text: &'a str,
    label: &'a str,
    /// Offset up to which lines were counted, and the line there: rules come in the order of the text.
    line: Cell<(usize, usize)>,
    /// Number of rules so far.
    count: Cell<usize>,
    /// Remaining budget of all expressions.
    budget: PatternBudget,
}

impl File<'_> {
    fn place(&self, span: &Range<usize>) -> RuleLocation {
        let end = span.start.min(self.text.len());
        let (from, line) = Some(self.line.get()).filter(|&(from, _)| from <= end).unwrap_or((0, 1));
        let between = self.text.as_bytes().get(from..end).unwrap_or_default();
        let line = line + between.iter().filter(|&&byte| byte == b'\n').count();
        self.line.set((end, line));
        RuleLocation { file: self.label.to_owned(), line, offset: span.start as u64 }
    }

    /// True where the offset is at or shortly after a backslash in double quotes.
    fn is_escape(&self, offset: usize) -> bool {
        let end = offset.saturating_add(1).min(self.text.len());
        let before = self.text.as_bytes().get(..end).unwrap_or_default();
        let line = before.rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
        match (line.iter().position(|&byte| byte == b'"'), line.iter().rposition(|&byte| byte == b'\\')) {
            // The longest escapes are \U and eight digits.
            (Some(quote), Some(backslash)) => quote < backslash && line.len() - backslash <= 11,
            _ => false,
        }
    }

    fn fail(&self, error: Error, span: &Range<usize>) -> Error {
        locate(error, Some(&self.place(span)))
    }

    fn unknown_key(&self, key: &str, span: &Range<usize>, known: &[&str]) -> Error {
        let error = Error::usage("unknown-key", "unknown key");
        self.fail(error.found(escape_text(key)).hint(meant_or_all("keys", key, known)), span)
    }

    /// Returns the rules of one `[[rule]]`: one word and its arguments.
    fn rule(&self, value: &Spanned<DeValue<'_>>) -> Result<Vec<Rule>> {
        let DeValue::Table(table) = value.get_ref() else {
            return Err(
                self.fail(Error::usage("bad-rule", "the rule is not a table with one key"), &value.span())
            );
        };
        let mut keys = table.iter();
        let Some((word, arguments)) = keys.next() else {
            return Err(self.fail(Error::usage("bad-rule", "the rule is empty"), &value.span()));
        };
        let place = self.place(&word.span());
        if !WORDS.contains(&word.get_ref().as_ref()) {
            return Err(self.unknown_key(word.get_ref(), &word.span(), &WORDS));
        }
        if let Some((other, _)) = keys.next() {
            let error = Error::usage("bad-rule", "a [[rule]] table holds one rule")
                .found(format_args!("a second rule: {}", escape_text(other.get_ref())))
                .hint("begin the second rule with another line [[rule]]");
            return Err(self.fail(error, &other.span()));
        }
        // Each list item counts as a rule: it takes memory and is matched against every name.
        let count = if let DeValue::Array(list) = arguments.get_ref() { list.len() } else { 1 };
        self.count.set(self.count.get().saturating_add(count));
        if self.count.get() > MAX_RULES {
            return Err(self.fail(too_many(), &word.span()));
        }
        let list = match arguments.get_ref() {
            DeValue::Array(list) => {
                list.iter().map(|one| self.argument(word.get_ref(), one)).collect::<Result<Vec<_>>>()?
            }
            _ => vec![self.argument(word.get_ref(), arguments)?],
        };
        Rule::read(word.get_ref(), &list, Some(&place), &self.budget)
    }

    fn argument(&self, word: &str, value: &Spanned<DeValue<'_>>) -> Result<Argument> {
        let wrong = |found: &str, span: Range<usize>| {
            let takes = match word {
                "no-state" => "takes only the value \"yes\"",
                _ => "takes a string, a table with from and to, or a list of these",
            };
            self.fail(bad(word, takes, found), &span)
        };
        match value.get_ref() {
            DeValue::String(text) => Ok(Argument::Text(text.to_string())),
            DeValue::Table(table) => {
                let mut sides = [None, None];
                for (key, side) in table {
                    let slot = match key.get_ref().as_ref() {
                        "from" => &mut sides[0],
                        "to" => &mut sides[1],
                        other => return Err(self.unknown_key(other, &key.span(), &["from", "to"])),
                    };
                    let DeValue::String(text) = side.get_ref() else {
                        return Err(wrong(side.get_ref().type_str(), side.span()));
                    };
                    *slot = Some(text.to_string());
                }
                match sides {
                    [Some(from), Some(to)] => Ok(Argument::Pair(from, to)),
                    _ => Err(wrong("a table without from or to", value.span())),
                }
            }
            other => Err(wrong(other.type_str(), value.span())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_keep_their_order() {
        let text = "version = 1\n[[rule]]\nstrip-prefix = \"module\"\n[[rule]]\nrename = [\"a=b\", {from=\"x=1\", to=\"y\"}]\n\
                    [[rule]]\ncast = [\"*.w=f16\", \"bias=bf16\"]\n[[rule]]\ntranspose = {from=\"fc*\", to=\"1,0\"}\n";
        let rules = parse_rules(text, "r.toml").unwrap();
        let texts: Vec<&str> = rules.iter().map(Rule::text).collect();
        assert_eq!(
            texts,
            [
                "strip-prefix module",
                "rename a=b x=1=y",
                "cast *.w=f16",
                "cast bias=bf16",
                "transpose fc*=1,0"
            ]
        );
    }

    #[test]
    fn slips_have_a_place() {
        for (text, code, line, offset) in [
            ("version = 1\n[[rule]]\nrenam = \"a=b\"\n", "unknown-key", 3, 21),
            ("rules = 1\n", "unknown-key", 1, 0),
            ("version = 1\nrename = \"a=b\"\n", "unknown-key", 2, 12),
            ("[[rule]]\nrename = \"a\"\n", "bad-rule", 2, 9),
            ("[[rule]]\nrename = 7\n", "bad-rule", 2, 18),
            ("[[rule]]\nrename = {from=\"a\", at=\"b\"}\n", "unknown-key", 2, 29),
            ("[[rule]]\nrename = {from=\"a\"}\n", "bad-rule", 2, 18),
            ("[[rule]]\nrename = \"a=b\"\ndrop = \"c\"\n", "bad-rule", 3, 24),
            ("[[rule]]\nrename-regex = \"(=b\"\n", "bad-pattern", 2, 9),
            ("version = 2\n", "bad-rule", 1, 10),
            ("[[rule]]\nrename = \n", "bad-toml", 2, 18),
            ("rule = 3\n", "bad-rule", 1, 7),
        ] {
            let error = parse_rules(text, "r.toml").unwrap_err();
            assert_eq!((error.code().as_str(), error.offset()), (code, Some(offset)), "{text}: {error}");
            assert!(error.message().starts_with(&format!("line {line}: ")), "{error}");
            assert_eq!(error.file(), Some("r.toml"));
        }
        assert_eq!(parse_rules("version = 1", "r").unwrap_err().code().as_str(), "bad-rule");
        for (text, hinted) in [
            (r#"rename-regex = "a(\d+)=b""#, true),
            (r#"rename-regex = ["x=y", "a\.b=c"]"#, true),
            (r#"rename-regex = "a=\1""#, true),
            (r#"rename-regex = "\ud800=b""#, true),
            (r"rename-regex = 'a(\d+)=b", false),
            (r#"rename-regex = "a=b"#, false),
        ] {
            let error = parse_rules(&format!("[[rule]]\n{text}\n"), "r").unwrap_err();
            let hint = error.hint_text().is_some_and(|hint| hint.contains("single quotes"));
            assert_eq!((error.code().as_str(), hint), ("bad-toml", hinted), "{text}: {error}");
        }
    }
}
