//! Patterns over names. They come from strangers too, in files of rules: what they take in memory is counted, once they
//! are understood and while they are held against a name.

use super::escape_text;
use crate::error::{Error, Result};
use globset::GlobBuilder;
use regex_automata::meta::{BuildError, Builder, Config, Regex};
use regex_automata::util::{captures::Captures, primitives::PatternID, syntax};
use std::cell::Cell;

/// The most bytes that a pattern may take once it is understood.
const MOST_BYTES: usize = 512 << 10;
/// The most bytes that all patterns together may take: thousands of those that people write.
const ALL_BYTES: usize = 44 << 20;
/// The most groups of a pattern: where it has several ways to fit, each keeps where all groups are.
const MOST_GROUPS: usize = 64;
/// The longest pattern, in bytes, and how deep the choices of a glob may stand in each other: reading them recurses.
const LONGEST: usize = 64 << 10;
const DEEPEST: usize = 50;
/// What a pattern keeps from one name to the next may take so many bytes; of longer names nothing is kept.
const KEPT: usize = 8 << 10;
/// About what a state of a pattern takes, in bytes.
const STATE: usize = 24;

/// The bytes that are left to patterns that come together.
#[derive(Debug)]
pub struct Budget(Cell<usize>);

impl Default for Budget {
    fn default() -> Self {
        Self(Cell::new(ALL_BYTES))
    }
}

/// What a text is held against: the whole of it.
#[derive(Debug, Clone)]
pub struct Pattern {
    regex: Regex,
    states: usize,
}

impl Pattern {
    /// A glob: `*` any characters, `?` one, `[ab]` and `{a,b}` either, a backslash before what stands for itself.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], `bad-pattern`; [`crate::Kind::Limit`], `too-many-patterns`, where `budget` is used up.
    pub fn glob(glob: &str, budget: &Budget) -> Result<Self> {
        check_length(glob)?;
        let (mut depth, mut deepest) = (0usize, 0);
        for byte in glob.bytes() {
            match byte {
                b'{' => depth += 1,
                b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            deepest = depth.max(deepest);
        }
        if deepest > DEEPEST {
            return Err(Error::usage(
                "bad-pattern",
                "the choices of this pattern stand too deep in each other",
            )
            .expected(format_args!("{{a,b}} within {{a,b}} {DEEPEST} times at most"))
            .found(escape_text(glob)));
        }
        let built = GlobBuilder::new(glob).literal_separator(false).backslash_escape(true).build();
        let built = built.map_err(|error| {
            Error::usage("bad-pattern", format!("this is not a pattern: {}", escape_text(&error.to_string())))
                .found(escape_text(glob))
                .hint("patterns are globs: * any characters, ? one, {a,b} either; escape with \\")
        })?;
        // It is about bytes.
        let syntax = syntax::Config::new().utf8(false).dot_matches_new_line(true);
        Self::built(built.regex(), glob, syntax, budget)
    }

    /// A regular expression.
    ///
    /// # Errors
    /// As [`glob`](Self::glob).
    pub fn regex(expression: &str, budget: &Budget) -> Result<Self> {
        check_length(expression)?;
        // Alone first: `a)|(b` would slip out of the brackets around it.
        Self::built(expression, expression, syntax::Config::new(), &Budget::default())?;
        Self::anchored(expression, expression, budget)
    }

    /// As [`regex`](Self::regex), of an `expression` that was made; `written` is what it was made of.
    ///
    /// # Errors
    /// As [`glob`](Self::glob).
    pub fn anchored(expression: &str, written: &str, budget: &Budget) -> Result<Self> {
        check_length(expression)?;
        Self::built(&format!(r"\A(?s:{expression})\z"), written, syntax::Config::new(), budget)
    }

    fn built(expression: &str, written: &str, syntax: syntax::Config, budget: &Budget) -> Result<Self> {
        // What else there is for speed takes memory for each pattern: names are short.
        let config =
            Config::new().nfa_size_limit(Some(MOST_BYTES)).hybrid(false).utf8_empty(syntax.get_utf8());
        let built = Builder::new().configure(config).syntax(syntax).build(expression);
        let regex = built.map_err(|error| bad(&error, written))?;
        let groups = regex.captures_len() - 1;
        if groups > MOST_GROUPS {
            return Err(Error::usage("bad-pattern", "this pattern has too many groups")
                .expected(format_args!("at most {MOST_GROUPS}; (?:...) is none"))
                .found(escape_text(written)));
        }
        let bytes = regex.memory_usage();
        let Some(left) = budget.0.get().checked_sub(bytes + KEPT) else {
            return Err(Error::limit("too-many-patterns", "these patterns take too much together")
                .expected(format_args!("at most {ALL_BYTES} bytes, once they are understood"))
                .found(escape_text(written))
                .hint("apply them in several steps"));
        };
        budget.0.set(left);
        Ok(Self { regex, states: bytes / STATE })
    }

    /// True where it covers the whole of `text`.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        match self.keeps(text) {
            true => self.regex.is_match(text),
            false => self.regex.search_half_with(&mut self.regex.create_cache(), &text.into()).is_some(),
        }
    }

    /// Where its groups are in `text`; `None` where it does not cover the whole of it.
    pub fn captures(&self, text: &str) -> Option<Captures> {
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
    pub fn groups(&self) -> usize {
        self.regex.captures_len()
    }

    /// The group of that name.
    pub fn group(&self, name: &str) -> Option<usize> {
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

    fn glob(glob: &str) -> Result<Pattern> {
        Pattern::glob(glob, &Budget::default())
    }

    #[test]
    fn globs_cover_whole_texts() {
        for (pattern, fits, fits_not) in [
            ("*.w", "a.b.w", "a.w.b"),
            ("a?c", "abc", "ac"),
            ("{a,b}.[0-9]", "b.7", "c.7"),
            (r"\*", "*", "a"),
            ("*", "", "\u{0}none"),
            ("h.*", "h.\n\u{fc}", "\nh.x"),
        ] {
            assert!(glob(pattern).unwrap().is_match(fits), "{pattern} {fits:?}");
            assert!(pattern == "*" || !glob(pattern).unwrap().is_match(fits_not), "{pattern} {fits_not:?}");
        }
    }

    #[test]
    fn long_texts_are_matched_as_short_ones_are() {
        let long = format!("layers.{}.w", "x.".repeat(100_000));
        for pattern in ["layers.*.w", "*", "*.w"] {
            assert!(glob(pattern).unwrap().is_match(&long));
        }
        assert!(!glob("layers.*.v").unwrap().is_match(&long));
        let pattern = Pattern::regex(r"(\w+)\.(.*)\.w", &Budget::default()).unwrap();
        let found = pattern.captures(&long).unwrap();
        assert_eq!(found.get_group(1).map(|span| &long[span.range()]), Some("layers"));
    }

    #[test]
    fn patterns_that_recurse_or_take_too_much_are_refused() {
        let nested = |depth: usize| glob(&format!("{}a{}", "{".repeat(depth), "}".repeat(depth)));
        nested(50).unwrap();
        for bad in [nested(51), nested(30_000), glob(&"a".repeat(70_000)), glob(&"[ab]".repeat(16_000))] {
            assert_eq!(bad.unwrap_err().code(), "bad-pattern");
        }
        let regex = |text: &str| Pattern::regex(text, &Budget::default());
        regex(&"(a)".repeat(64)).unwrap();
        for bad in [
            "(a)".repeat(65),
            "a{1000}".repeat(1000),
            "(".repeat(10_000),
            "(?:".repeat(300) + &")".repeat(300),
        ] {
            assert_eq!(regex(&bad).unwrap_err().code(), "bad-pattern", "{}", &bad[..20]);
        }
    }
}
