//! Globs over names. They may come from untrusted files of rules: their memory is bounded, and matching takes at most
//! (length of the pattern) x (length of the name) steps.

use super::escape_text;
use crate::error::{Error, Result};
use std::cell::Cell;

/// Maximum bytes of a parsed pattern.
const MAX_BYTES: usize = 512 << 10;
/// Maximum bytes of all parsed patterns of a job: enough for thousands of ordinary ones.
const ALL_BYTES: usize = 44 << 20;
/// Minimum bytes counted per pattern: each one is compared with every name, which takes time for short patterns too.
const MIN_COUNTED: usize = 8 << 10;
/// Maximum length of a pattern, in bytes.
const MAX_LEN: usize = 64 << 10;
/// Maximum nesting of choices: parsing recurses.
const MAX_DEPTH: usize = 50;

/// Remaining bytes for the patterns of a job.
#[derive(Debug)]
pub struct Budget(Cell<usize>);

impl Default for Budget {
    fn default() -> Self {
        Self(Cell::new(ALL_BYTES))
    }
}

impl Budget {
    /// Takes the `bytes` of the parsed pattern `written`.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`], `too-many-patterns`, if fewer bytes are left.
    pub fn take(&self, bytes: usize, written: &str) -> Result<()> {
        let Some(left) = self.0.get().checked_sub(bytes) else {
            return Err(Error::limit("too-many-patterns", "the patterns together are too large")
                .expected(format_args!("at most {ALL_BYTES} bytes once parsed"))
                .found(escape_text(written))
                .hint("apply them in several steps"));
        };
        self.0.set(left);
        Ok(())
    }
}

/// Glob that matches whole names.
#[derive(Debug, Clone)]
pub struct Pattern {
    states: Vec<State>,
    /// True if no state but stars has two successors.
    plain: bool,
}

/// State of the automaton of a pattern. Its successor is the next one, except for `Split` and `Jump`.
#[derive(Debug, Clone)]
enum State {
    /// This character.
    Char(char),
    /// Any character.
    Any,
    /// Any number of any characters.
    Star,
    /// Character in one of these ranges, or in none of them if negated.
    Set { negated: bool, ranges: Box<[(char, char)]> },
    /// Continues at both of these states.
    Split(usize, usize),
    /// Continues at this state.
    Jump(usize),
}

impl Pattern {
    /// Compiles a glob: `*` matches any characters, `?` one, `[ab]` and `{a,b}` either; a backslash escapes. `**/`, `/**` and
    /// `/**/` match any number of parts between slashes, including none.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], `bad-pattern`; [`crate::Kind::Limit`], `too-many-patterns`, if `budget` is exhausted.
    pub fn glob(glob: &str, budget: &Budget) -> Result<Self> {
        check_length(glob)?;
        let bad = |why: &str| {
            Error::usage("bad-pattern", format!("invalid pattern: {why}"))
                .found(escape_text(glob))
                .hint("use a glob: * matches any characters, ? one, {a,b} either; escape with \\")
        };
        let tokens =
            Parser { rest: glob.chars().peekable(), previous: None }.tokens(0).map_err(
                |fault| match fault {
                    Fault::TooDeep => {
                        Error::usage("bad-pattern", "the choices of the pattern are nested too deeply")
                            .expected(format_args!("at most {MAX_DEPTH} levels of {{a,b}}"))
                            .found(escape_text(glob))
                    }
                    Fault::Other(why) => bad(why),
                },
            )?;
        let mut states = Vec::new();
        compile(&tokens, &mut states);
        let sets = states.iter().map(|state| match state {
            State::Set { ranges, .. } => size_of_val::<[_]>(ranges) + 16,
            _ => 0,
        });
        let bytes = states.len() * size_of::<State>() + sets.sum::<usize>();
        if bytes > MAX_BYTES {
            return Err(bad(&format!("it exceeds {MAX_BYTES} bytes once parsed")));
        }
        budget.take(bytes.max(MIN_COUNTED), glob)?;
        let plain = !states.iter().any(|state| matches!(state, State::Split(..) | State::Jump(_)));
        Ok(Self { states, plain })
    }

    /// Returns true if the pattern matches the whole of `text`.
    pub fn is_match(&self, text: &str) -> bool {
        match self.plain {
            true => self.match_plain(text),
            false => self.match_choices(text),
        }
    }

    /// Matches a pattern without choices: a star matches as little as possible, and more after a mismatch.
    fn match_plain(&self, text: &str) -> bool {
        let (mut state, mut rest) = (0, text.chars());
        // Backtracking point after a mismatch: the state after the last star, one character later.
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            match self.states.get(state) {
                Some(State::Star) => {
                    state += 1;
                    retry = Some((state, rest.clone()));
                    continue;
                }
                Some(other) => {
                    if let Some(c) = rest.next() {
                        if other.takes(c) {
                            state += 1;
                            continue;
                        }
                    } else {
                        return false;
                    }
                }
                None if rest.as_str().is_empty() => return true,
                None => {}
            }
            let Some((behind, from)) = &mut retry else { return false };
            if from.next().is_none() {
                return false;
            }
            (state, rest) = (*behind, from.clone());
        }
    }

    /// Matches a pattern with choices by simulating all reachable states at once.
    fn match_choices(&self, text: &str) -> bool {
        let end = self.states.len();
        let (mut now, mut next) = (Set::new(end + 1), Set::new(end + 1));
        self.enter(0, &mut now);
        for c in text.chars() {
            for at in 0..now.members.len() {
                let state = now.members[at];
                match self.states.get(state) {
                    Some(State::Star) => self.enter(state, &mut next),
                    Some(other) if other.takes(c) => self.enter(state + 1, &mut next),
                    _ => {}
                }
            }
            std::mem::swap(&mut now, &mut next);
            next.clear();
            if now.members.is_empty() {
                return false;
            }
        }
        now.has[end]
    }

    /// Adds the states reachable from `state` without consuming a character.
    fn enter(&self, state: usize, set: &mut Set) {
        let mut open = vec![state];
        while let Some(state) = open.pop() {
            if std::mem::replace(&mut set.has[state], true) {
                continue;
            }
            set.members.push(state);
            match self.states.get(state) {
                Some(State::Star) => open.push(state + 1),
                Some(State::Split(one, other)) => open.extend([*one, *other]),
                Some(State::Jump(to)) => open.push(*to),
                _ => {}
            }
        }
    }
}

/// Set of states.
struct Set {
    members: Vec<usize>,
    has: Vec<bool>,
}

impl Set {
    fn new(states: usize) -> Self {
        Self { members: Vec::new(), has: vec![false; states] }
    }

    fn clear(&mut self) {
        for state in self.members.drain(..) {
            self.has[state] = false;
        }
    }
}

impl State {
    /// Returns true if the state accepts this character.
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Char(own) => *own == c,
            Self::Any => true,
            Self::Set { negated, ranges } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *negated
            }
            Self::Star | Self::Split(..) | Self::Jump(_) => false,
        }
    }
}

/// Token of a glob.
#[derive(Debug, Clone)]
enum Token {
    One(State),
    Choice(Vec<Vec<Token>>),
}

/// Reason why a glob is invalid.
enum Fault {
    TooDeep,
    Other(&'static str),
}

struct Parser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    previous: Option<char>,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<char> {
        self.previous = self.rest.next();
        self.previous
    }

    /// Parses tokens up to the end, or within a choice up to a comma or a brace, which is not consumed.
    fn tokens(&mut self, depth: usize) -> std::result::Result<Vec<Token>, Fault> {
        if depth > MAX_DEPTH {
            return Err(Fault::TooDeep);
        }
        let mut tokens = Vec::new();
        loop {
            let before = self.previous;
            match self.rest.peek() {
                Some(',' | '}') if depth > 0 => break,
                _ => {}
            }
            let Some(c) = self.next() else { break };
            match c {
                '?' => tokens.push(Token::One(State::Any)),
                '*' => self.star(before, depth, &mut tokens),
                '[' => tokens.push(Token::One(self.set()?)),
                '{' => {
                    let mut choices = vec![self.tokens(depth + 1)?];
                    loop {
                        match self.next() {
                            Some(',') => choices.push(self.tokens(depth + 1)?),
                            Some(_) => break,
                            None => return Err(Fault::Other("{ without }")),
                        }
                    }
                    choices.retain(|choice| !choice.is_empty());
                    if !choices.is_empty() {
                        tokens.push(Token::Choice(choices));
                    }
                }
                '}' => return Err(Fault::Other("} without {")),
                '\\' => {
                    let c = self.next().ok_or(Fault::Other("trailing backslash"))?;
                    tokens.push(Token::One(State::Char(c)));
                }
                c => tokens.push(Token::One(State::Char(c))),
            }
        }
        Ok(tokens)
    }

    /// Parses one star, or two: two stars alone between slashes match any number of parts.
    fn star(&mut self, before: Option<char>, depth: usize, tokens: &mut Vec<Token>) {
        let (one, slash) = (|state| Token::One(state), || Token::One(State::Char('/')));
        if self.rest.peek() != Some(&'*') {
            return tokens.push(one(State::Star));
        }
        self.next();
        let starts = match before {
            None => true,
            Some('{' | ',') => depth > 0 && tokens.is_empty(),
            _ => false,
        };
        let behind_slash = before == Some('/') && !tokens.is_empty();
        match self.rest.peek() {
            Some('/') if starts => {
                self.next();
                tokens.push(Token::Choice(vec![vec![], vec![slash()], vec![one(State::Star), slash()]]));
            }
            Some('/') if behind_slash => {
                self.next();
                match tokens.pop() {
                    // Repeated `**/` are equal to one.
                    Some(Token::Choice(ways)) => tokens.push(Token::Choice(ways)),
                    _ => tokens
                        .push(Token::Choice(vec![vec![slash()], vec![slash(), one(State::Star), slash()]])),
                }
            }
            _ => tokens.push(one(State::Star)),
        }
    }

    /// Parses the rest of a set after its opening bracket.
    fn set(&mut self) -> std::result::Result<State, Fault> {
        let negated = self.rest.next_if(|c| matches!(c, '!' | '^')).is_some();
        let mut ranges: Vec<(char, char)> = Vec::new();
        let (mut first, mut in_range) = (true, false);
        loop {
            let c = self.next().ok_or(Fault::Other("[ without ]"))?;
            match c {
                ']' if !first => break,
                '-' if !first && !in_range => in_range = true,
                c if in_range => {
                    if let Some(last) = ranges.last_mut() {
                        if c < last.0 {
                            return Err(Fault::Other("reversed character range"));
                        }
                        last.1 = c;
                    }
                    in_range = false;
                }
                c => ranges.push((c, c)),
            }
            first = false;
        }
        if in_range {
            ranges.push(('-', '-'));
        }
        Ok(State::Set { negated, ranges: ranges.into() })
    }
}

/// Appends the states of these tokens. They continue at the states appended next.
fn compile(tokens: &[Token], states: &mut Vec<State>) {
    for token in tokens {
        match token {
            Token::One(State::Star) if matches!(states.last(), Some(State::Star)) => {}
            Token::One(state) => states.push(state.clone()),
            Token::Choice(choices) => {
                let mut ends = Vec::new();
                for (at, choice) in choices.iter().enumerate() {
                    let split = states.len();
                    let more = at + 1 < choices.len();
                    // The target is set at the end of the choice.
                    states.push(State::Jump(split + 1));
                    compile(choice, states);
                    if more {
                        ends.push(states.len());
                        states.push(State::Jump(0));
                        states[split] = State::Split(split + 1, states.len());
                    }
                }
                let behind = states.len();
                for end in ends {
                    states[end] = State::Jump(behind);
                }
                // A star after a choice must not merge with the last star inside it.
                states.push(State::Jump(behind + 1));
            }
        }
    }
}

fn check_length(pattern: &str) -> Result<()> {
    if pattern.len() <= MAX_LEN {
        return Ok(());
    }
    Err(Error::usage("bad-pattern", "the pattern is too long")
        .expected(format_args!("at most {MAX_LEN} bytes"))
        .found(format_args!("{} bytes", pattern.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(glob: &str) -> Result<Pattern> {
        Pattern::glob(glob, &Budget::default())
    }

    #[test]
    fn globs_match_whole_texts() {
        for (pattern, fits, fits_not) in [
            ("*.w", "a.b.w", "a.w.b"),
            ("a?c", "abc", "ac"),
            ("a?c", "a\u{fc}c", "a\u{fc}\u{fc}c"),
            ("{a,b}.[0-9]", "b.7", "c.7"),
            ("{a,b*}*{,c}", "bxxc", "xa"),
            ("[!a-c]", "d", "b"),
            ("[]-]", "-", "a"),
            (r"\*", "*", "a"),
            ("*", "", "\u{0}none"),
            ("**/w", "w", "aw"),
            ("**/w", "a/b/w", "a/b/w/c"),
            ("a/**/b", "a/b", "ab"),
            ("a/**", "a/b/c", "a"),
            ("**/**/w", "w", "aw"),
            ("**/**/w", "a/w", "w/a"),
            ("a/**/**/b", "a/b", "ab"),
            ("[a-c-b]", "a", "c"),
            ("h.*", "h.\n\u{fc}", "\nh.x"),
        ] {
            assert!(glob(pattern).unwrap().is_match(fits), "{pattern} {fits:?}");
            assert!(pattern == "*" || !glob(pattern).unwrap().is_match(fits_not), "{pattern} {fits_not:?}");
        }
    }

    #[test]
    fn matches_long_texts() {
        let long = format!("layers.{}.w", "x.".repeat(100_000));
        for pattern in ["layers.*.w", "*", "*.w", "{layers,h}.*.w"] {
            assert!(glob(pattern).unwrap().is_match(&long));
        }
        assert!(!glob("layers.*.v").unwrap().is_match(&long));
    }

    #[test]
    fn rejects_invalid_deep_and_large_patterns() {
        let nested = |depth: usize| glob(&format!("{}a{}", "{".repeat(depth), "}".repeat(depth)));
        nested(50).unwrap();
        for bad in [
            nested(51),
            nested(30_000),
            glob(&"a".repeat(70_000)),
            glob(&"[ab]".repeat(16_000)),
            glob("{a"),
            glob("a}"),
            glob("[a"),
            glob("[b-a]"),
            glob("a\\"),
        ] {
            assert_eq!(bad.unwrap_err().code().as_str(), "bad-pattern");
        }
    }

    /// Except for two stars beside slashes.
    #[test]
    fn globs_match_as_in_globset() {
        let mut seed = 1u64;
        let mut below = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % most
        };
        let mut text = |letters: &str, longest: u64| -> String {
            let letters: Vec<char> = letters.chars().collect();
            let count = below(longest + 1);
            (0..count).map(|_| letters[usize::try_from(below(letters.len() as u64)).unwrap()]).collect()
        };
        let mut valid = 0;
        for _ in 0..60_000 {
            let pattern = text("ab*?{},[]!-\\*", 8);
            let other =
                globset::GlobBuilder::new(&pattern).literal_separator(false).backslash_escape(true).build();
            let own = glob(&pattern);
            assert_eq!(own.is_ok(), other.is_ok(), "{pattern}");
            let (Ok(own), Ok(other)) = (own, other) else { continue };
            valid += 1;
            let other = other.compile_matcher();
            for _ in 0..8 {
                let name = text("ab,-!*{", 6);
                assert_eq!(own.is_match(&name), other.is_match(&name), "{pattern} {name}");
            }
        }
        assert!(valid > 10_000, "{valid}");
    }
}
