//! Regular expressions over names. They come from untrusted files of rules too: their memory is counted, once they
//! are parsed and while they are held against a name.

use crate::checkpoint::{PatternBudget as Budget, escape_text};
use crate::error::{Error, Result};
use regex_automata::meta::{BuildError, Builder, Config, Regex};
pub(super) use regex_automata::util::captures::Captures;
use regex_automata::util::primitives::PatternID;
pub(super) use regex_syntax::escape;

/// The most bytes that a pattern may take once it is understood.
const MOST_BYTES: usize = 512 << 10;
/// The most groups of a pattern: where it has several ways to fit, each keeps where all groups are.
const MOST_GROUPS: usize = 64;
/// The longest pattern, in bytes.
const LONGEST: usize = 64 << 10;
/// What a pattern keeps from one name to the next may take so many bytes; of longer names nothing is kept.
const KEPT: usize = 8 << 10;
/// About what a state of a pattern takes, in bytes.
const STATE: usize = 24;

/// What a text is held against: the whole of it.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    regex: Regex,
    states: usize,
}

impl Pattern {
    /// A regular expression.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], `bad-pattern`; [`crate::Kind::Limit`], `too-many-patterns`, where `budget` is used up.
    pub(super) fn regex(expression: &str, budget: &Budget) -> Result<Self> {
        check_length(expression)?;
        // Alone first: `a)|(b` would slip out of the brackets around it.
        Self::built(expression, expression, &Budget::default())?;
        Self::anchored(expression, expression, budget)
    }

    /// As [`regex`](Self::regex), of an `expression` that was made; `written` is what it was made of.
    ///
    /// # Errors
    /// As [`regex`](Self::regex).
    pub(super) fn anchored(expression: &str, written: &str, budget: &Budget) -> Result<Self> {
        check_length(expression)?;
        Self::built(&format!(r"\A(?s:{expression})\z"), written, budget)
    }

    fn built(expression: &str, written: &str, budget: &Budget) -> Result<Self> {
        // What else there is for speed takes memory for each pattern: names are short.
        let config = Config::new().nfa_size_limit(Some(MOST_BYTES)).hybrid(false);
        let built = Builder::new().configure(config).build(expression);
        let regex = built.map_err(|error| bad(&error, written))?;
        let groups = regex.captures_len() - 1;
        if groups > MOST_GROUPS {
            return Err(Error::usage("bad-pattern", "this pattern has too many groups")
                .expected(format_args!("at most {MOST_GROUPS}; (?:...) is none"))
                .found(escape_text(written)));
        }
        let bytes = regex.memory_usage();
        budget.take(bytes + KEPT, written)?;
        Ok(Self { regex, states: bytes / STATE })
    }

    /// Where its groups are in `text`; `None` where it does not cover the whole of it.
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

    /// True where what it takes to look at `text` is worth keeping: a bit for each state and place.
    fn keeps(&self, text: &str) -> bool {
        self.states.saturating_mul(text.len() + 1) / 8 <= KEPT
    }

    /// How many groups it has, with the whole.
    pub(super) fn groups(&self) -> usize {
        self.regex.captures_len()
    }

    /// The group of that name.
    pub(super) fn group(&self, name: &str) -> Option<usize> {
        self.regex.group_info().pattern_names(PatternID::ZERO).position(|group| group == Some(name))
    }
}

fn check_length(pattern: &str) -> Result<()> {
    if pattern.len() <= LONGEST {
        return Ok(());
    }
    Err(Error::usage("bad-pattern", "this pattern is too long")
        .expected(format_args!("at most {LONGEST} bytes"))
        .found(format_args!("{} bytes", pattern.len())))
}

fn bad(error: &BuildError, written: &str) -> Error {
    let text = match error.syntax_error() {
        Some(error) => error.to_string(),
        None if error.size_limit().is_some() => {
            format!("it takes more than {MOST_BYTES} bytes once it is understood")
        }
        None => error.to_string(),
    };
    // The last line says what is wrong; those before draw where.
    let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    Error::usage("bad-pattern", format!("this is no pattern: {}", escape_text(&why)))
        .found(escape_text(written))
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
