//! Imports and calls that YAML makes a loader perform.

use super::{Document, TARGETS, short};
use std::borrow::Cow;

/// Python tags of plain values, which call nothing.
const PLAIN: [&str; 12] =
    ["bool", "bytes", "complex", "dict", "float", "int", "list", "long", "none", "str", "tuple", "unicode"];

impl Document {
    /// Scans YAML without parsing it: every possible tag or target counts, also in a comment.
    pub(super) fn yaml(&mut self, text: &str) {
        let text = &*unescaped(text);
        // A handle is an alias for the beginning of a tag.
        if text.contains("%TAG") {
            self.targets.push(|| "%TAG declares a tag handle".to_owned());
        }
        for tag in tags(text).filter(|tag| tag.contains('%') || tag.to_ascii_lowercase().contains("python")) {
            let (kind, name) = tag.rsplit_once("python/").map_or(("", ""), |(_, behind)| {
                behind.trim_end_matches(['>', ',', ']', '}']).rsplit_once(':').unwrap_or((behind, ""))
            });
            match name.chars().all(|c| matches!(c, '_' | '.') || c.is_alphanumeric()) {
                true if !name.is_empty() => self.target("the tag", name, tag),
                true if PLAIN.contains(&kind) => {}
                _ => self.targets.push(|| format!("the tag {}", short(tag))),
            }
        }
        let found = TARGETS.iter().flat_map(|key| text.match_indices(key));
        for (at, key) in found {
            let (before, behind) = (text.get(..at), text.get(at + key.len()..).unwrap_or_default());
            let in_word = |c: char| c == '_' || c.is_alphanumeric();
            if before.is_some_and(|before| before.ends_with(in_word)) || behind.starts_with(in_word) {
                continue;
            }
            match value(behind) {
                Some(name) => self.target(key, name, name),
                None => self.targets.push(|| format!("{key}: not a plain name")),
            }
        }
    }
}

/// Possible tags: `!` and the text after it up to a blank, unless the `!` is inside a word.
fn tags(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(char::is_whitespace);
    words.flat_map(|word| {
        let starts = word.match_indices('!').filter(|&(at, _)| {
            let before = word.get(..at).and_then(|before| before.chars().next_back());
            before.is_none_or(|c| c != '!' && !c.is_alphanumeric())
        });
        // The first one contains the others.
        starts.take(1).filter_map(|(at, _)| word.get(at..))
    })
}

/// The name after a key; `None` where it is not plain text.
fn value(behind: &str) -> Option<&str> {
    let quotes = ['"', '\''];
    let behind = behind.trim_start_matches(quotes).trim_start();
    let behind = behind.strip_prefix(':')?.trim_start().trim_start_matches(quotes);
    let is_end = |c: char| c.is_whitespace() || quotes.contains(&c) || matches!(c, ',' | '}' | ']' | '#');
    let name = behind.split(is_end).next()?;
    let plain = name.chars().all(|c| matches!(c, '_' | '.') || c.is_alphanumeric());
    (plain && !name.is_empty()).then_some(name)
}

/// Resolves the escapes of double-quoted strings: numeric character escapes and escaped line ends.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\\') {
        out.push_str(before);
        let digits = match behind.as_bytes().first() {
            Some(b'x') => 2,
            Some(b'u') => 4,
            Some(b'U') => 8,
            _ => 0,
        };
        let number = behind.get(1..=digits).filter(|_| digits > 0);
        let escaped = number.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        rest = if let Some(c) = escaped {
            out.push(c);
            behind.get(1 + digits..).unwrap_or_default()
        } else if behind.starts_with(['\r', '\n', '\u{2028}', '\u{2029}']) {
            behind.trim_start()
        } else {
            out.push('\\');
            behind
        };
        // An escaped backslash does not start an escape.
        if escaped.is_none() && rest.starts_with('\\') {
            out.push('\\');
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use crate::{Scan, yaml};

    fn codes(text: &str) -> Vec<&'static str> {
        let mut scan = Scan::default();
        yaml(text, &mut scan);
        scan.findings.iter().map(|finding| finding.code.as_str()).collect()
    }

    #[test]
    fn python_tags_are_reported() {
        for text in [
            "x: !!python/object/apply:os.system [id]",
            "x: !!pyth%6fn/object/apply:os.system [id]",
            "x: !<tag:yaml.org,2002:python/object/apply:os.system> [id]",
            "x: !<tag:yaml.org,2002:pyth%6Fn/object/apply:os.system> [id]",
            "{x: [!!python/name:os.system ]}",
            "%TAG !p! tag:yaml.org,2002:pyth\n---\nx: !p!on/object/apply:os.system [id]",
            "# words\n%TAG\t!p! tag:yaml.org,2002:pyth\n---\nx: !p!on/object/apply:os.system [id]",
        ] {
            assert!(!codes(text).is_empty(), "{text}");
            assert!(
                codes(text).iter().all(|code| ["names-callable", "remote-code"].contains(code)),
                "{text}"
            );
        }
        assert_eq!(codes("x: !!python/object/apply:os.system [id]"), ["remote-code"]);
        assert_eq!(codes("x: !<tag:yaml.org,2002:python/name:os.system>"), ["remote-code"]);
        assert_eq!(codes("x: !!python/object:mine.Model {}"), ["names-callable"]);
        assert_eq!(codes("x: !!python/tuple [1, 2]"), [""; 0]);
    }

    #[test]
    fn targets_are_judged_as_in_json() {
        for (text, code) in [
            ("_target_: os.system", "remote-code"),
            ("model:\n  \"_target_\": 'builtins.eval'\n", "remote-code"),
            ("{a: {_target_: os.system, command: id}}", "remote-code"),
            ("\"\\x5ftarget\\u005f\": os.system", "remote-code"),
            ("\"_tar\\\n  get_\": os.system", "remote-code"),
            ("model:\n  class_path: os.system\n  init_args: {}", "remote-code"),
            ("class_path: mine.Model", "names-callable"),
            ("_target_: mine.Model", "names-callable"),
            ("_target_: ${name}", "names-callable"),
            ("? _target_\n: os.system", "remote-code"),
            ("? &k _target_\n: &v os.system", "names-callable"),
        ] {
            assert_eq!(codes(text), [code], "{text}");
        }
    }

    #[test]
    fn plain_settings_are_clean() {
        for text in [
            "PreProcess:\n- Resize:\n    scale: 1./255.\n  note: 50% of it!\n",
            "token: \"\\u2581 \\\\x5f\"\nwords: Hello!100%\nlanguage: python\n",
            "num_target_classes: 3\nmy_class_path: os.system\nmy_target_: os.system\n",
            "when: !!timestamp 2001-01-01\nsum: !!int '3'\n",
        ] {
            assert_eq!(codes(text), [""; 0], "{text}");
        }
    }
}
