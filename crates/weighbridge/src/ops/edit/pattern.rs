//! Regular expressions over names. Patterns may come from untrusted rule files, so their memory is budgeted, when they are
//! parsed and while they are matched.

use crate::checkpoint::{PatternBudget as Budget, escape_text};
use crate::error::{Error, Result};
use regex_automata::meta::{BuildError, Builder, Config, Regex};
pub(super) use regex_automata::util::captures::Captures;
use regex_automata::util::primitives::PatternID;
pub(super) use regex_syntax::escape;

/// Maximum size of a compiled pattern in bytes.
const MAX_PATTERN_BYTES: usize = 512 << 10;
/// Maximum number of groups of a pattern: each alternative stores the positions of all groups.
const MAX_GROUPS: usize = 64;
/// Maximum length of a pattern in bytes.
const MAX_PATTERN_LEN: usize = 64 << 10;
/// Maximum memory for state that a pattern keeps between names. For longer names nothing is kept.
const CACHE_BYTES: usize = 8 << 10;
/// Approximate size of a pattern state in bytes.
const STATE_BYTES: usize = 24;

/// Pattern that matches whole texts.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    regex: Regex,
    states: usize,
}

impl Pattern {
    /// Compiles a regular expression.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], `bad-pattern`; [`crate::Kind::Limit`], `too-many-patterns`, where `budget` is exhausted.
    pub(super) fn regex(expression: &str, budget: &Budget) -> Result<Self> {
        check_length(expression)?;
        // First without anchors: `a)|(b` would escape the group around it.
        Self::built(expression, expression, &Budget::default())?;
        Self::anchored(expression, expression, budget)
    }

    /// As [`regex`](Self::regex), for a generated `expression`; `written` is the text that it was made of.
    ///
    /// # Errors
    /// As [`regex`](Self::regex).
    pub(super) fn anchored(expression: &str, written: &str, budget: &Budget) -> Result<Self> {
        check_length(expression)?;
        Self::built(&format!(r"\A(?s:{expression})\z"), written, budget)
    }

    fn built(expression: &str, written: &str, budget: &Budget) -> Result<Self> {
        // Other speed-ups take memory for each pattern: names are short.
        let config = Config::new().nfa_size_limit(Some(MAX_PATTERN_BYTES)).hybrid(false);
        let built = Builder::new().configure(config).build(expression);
        let regex = built.map_err(|error| bad(&error, written))?;
        let groups = regex.captures_len() - 1;
        if groups > MAX_GROUPS {
            return Err(Error::usage("bad-pattern", "the pattern has too many groups")
                .expected(format_args!("at most {MAX_GROUPS}; (?:...) does not count"))
                .found(escape_text(written)));
        }
        let bytes = regex.memory_usage();
        budget.take(bytes + CACHE_BYTES, written)?;
        Ok(Self { regex, states: bytes / STATE_BYTES })
    }

    /// Returns the positions of its groups in `text`; `None` where it does not match the whole text.
    pub(super) fn captures(&self, text: &str) -> Option<Captures> {
        let mut found = self.regex.create_captures();
        match self.keeps(text) {
            true => self.regex.captures(text, &mut found),
            false => {
                self.regex.search_captures_with(&mut self.regex.create_cache(), &text.into(), &mut found)
            }
        }
        found.is_match().then_some(found)
    }

    /// True where the matching state for `text` is small enough to keep: one bit per state and position.
    fn keeps(&self, text: &str) -> bool {
        self.states.saturating_mul(text.len() + 1) / 8 <= CACHE_BYTES
    }

    /// Returns the number of groups, including the whole match.
    pub(super) fn groups(&self) -> usize {
        self.regex.captures_len()
    }

    /// Returns the index of the group of that name.
    pub(super) fn group(&self, name: &str) -> Option<usize> {
        self.regex.group_info().pattern_names(PatternID::ZERO).position(|group| group == Some(name))
    }
}

fn check_length(pattern: &str) -> Result<()> {
    if pattern.len() <= MAX_PATTERN_LEN {
        return Ok(());
    }
    Err(Error::usage("bad-pattern", "the pattern is too long")
        .expected(format_args!("at most {MAX_PATTERN_LEN} bytes"))
        .found(format_args!("{} bytes", pattern.len())))
}

fn bad(error: &BuildError, written: &str) -> Error {
    let text = match error.syntax_error() {
        Some(error) => error.to_string(),
        None if error.size_limit().is_some() => {
            format!("its compiled form exceeds {MAX_PATTERN_BYTES} bytes")
        }
        None => error.to_string(),
    };
    // The last line has the reason; the lines before point at the position.
    let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    Error::usage("bad-pattern", format!("invalid pattern: {}", escape_text(&why))).found(escape_text(written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_matched_as_short_ones_are() {
        let long = format!("layers.{}.w", "x.".repeat(100_000));
        let pattern = Pattern::regex(r"(\w+)\.(.*)\.w", &Budget::default()).unwrap();
        let found = pattern.captures(&long).unwrap();
        assert_eq!(found.get_group(1).map(|span| &long[span.range()]), Some("layers"));
    }

    #[test]
    fn expressions_that_recurse_or_take_too_much_are_refused() {
        let regex = |text: &str| Pattern::regex(text, &Budget::default());
        regex(&"(a)".repeat(64)).unwrap();
        for bad in [
            "(a)".repeat(65),
            "a{1000}".repeat(1000),
            "(".repeat(10_000),
            "(?:".repeat(300) + &")".repeat(300),
        ] {
            assert_eq!(regex(&bad).unwrap_err().code().as_str(), "bad-pattern", "{}", &bad[..20]);
        }
    }
}
