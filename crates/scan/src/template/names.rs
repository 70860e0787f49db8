//! Variables that a template sets, and whether they may be computed text. Order and scope are ignored: a variable has all
//! values that it is set to anywhere.

use super::lexer::{Code, Token};
use super::{begins_safely, dunder, is_in, leads_on};
use std::collections::HashSet;
use std::ops::Range;

/// Most passes that collect names until none is new: they may be set from names that are set later.
const PASSES: usize = 12;
/// Tags of Jinja, and of Transformers.
const TAGS: &str = " set endset for endfor if elif else endif macro endmacro call endcall with endwith filter endfilter block \
    endblock do print include import from extends break continue generation endgeneration autoescape endautoescape ";
/// Filters, methods and functions that return their input, a part of it, or a value other than text.
const KEEPING: &str = " abs append batch count cycle d default dict dictsort endswith extend find first float get groupby \
    index insert int items keys last length list lower map max min namespace pop range reject rejectattr round select selectattr \
    setdefault slice sort startswith sum tojson unique update upper values ";
/// Filters and methods that cut text: applied to an input of the template the result is still input text.
const CUTTING: &str = " capitalize lstrip partition removeprefix removesuffix rpartition rsplit rstrip split splitlines strip title trim ";
/// Methods that build text, also when called later under another name.
const BUILDING: &str = " center expandtabs format format_map join ljust replace rjust translate zfill ";
/// Inputs that every template receives: lists, not text.
const GIVEN: &str = " conversation documents functions messages tools ";
/// Methods that store a value in a list or mapping.
const STORING: &str = " append extend insert setdefault update ";
/// Filters and attributes of `loop` that yield numbers.
const NUMBERS: &str = " count index index0 int length revindex revindex0 ";

/// A variable or, with `true`, an attribute.
type Name<'a> = (bool, &'a str);

/// Names of a template with their possible values.
#[derive(Debug)]
pub(super) struct Names<'a> {
    tokens: &'a HashSet<String>,
    set: HashSet<&'a str>,
    computed: HashSet<Name<'a>>,
    /// Parameters of macros, and variables of recursive loops.
    parameters: HashSet<&'a str>,
    /// True where some macro receives computed text.
    is_given_computed: bool,
    /// True where all tags are known and all names are ASCII (Python normalizes other names).
    pub(super) is_known: bool,
}

impl<'a> Names<'a> {
    pub(super) fn new(tokens: &'a HashSet<String>) -> Self {
        let (set, computed) = (HashSet::new(), HashSet::from([(true, "previtem"), (true, "nextitem")]));
        let parameters = HashSet::from(["varargs", "kwargs"]);
        Self { tokens, set, computed, parameters, is_given_computed: false, is_known: true }
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.set.contains(name)
    }

    /// Collects names until none is new; false where [`PASSES`] do not suffice.
    pub(super) fn collect(&mut self, all: &'a [Code<'a>]) -> bool {
        // First collect the names that are set at all.
        let known = self.computed.clone();
        all.iter().filter(|code| code.is_tag).for_each(|code| self.tag(code));
        self.computed = known;
        for _ in 0..PASSES {
            let before = (self.computed.len(), self.is_given_computed);
            for code in all {
                self.calls(code);
                if code.is_tag {
                    self.tag(code);
                }
            }
            if self.is_given_computed {
                self.computed.extend(self.parameters.iter().map(|&name| (false, name)));
            }
            if before == (self.computed.len(), self.is_given_computed) {
                return true;
            }
        }
        false
    }

    /// Finds computed text that is passed to a macro or stored in a list.
    fn calls(&mut self, code: &'a Code<'a>) {
        for open in (1..code.tokens.len()).filter(|&at| code.sign(at, '(') && code.is_behind_value(at)) {
            let name = code.name(open - 1);
            let is_alone = open < 2 || !(code.sign(open - 2, '.') || code.sign(open - 2, '|'));
            let is_storing = !is_alone && is_in(STORING, name);
            let is_macro = is_alone && !is_in(KEEPING, name);
            if !(is_storing || is_macro) || !self.is_computed(code, open + 1..code.pairs[open], false) {
                continue;
            }
            self.is_given_computed |= is_macro;
            if is_storing {
                self.mark_stored(code, open - 2);
            }
        }
    }

    /// Marks the list before the dot of a method: `b` of `a.b[0].append(x)`.
    fn mark_stored(&mut self, code: &'a Code<'a>, dot: usize) {
        let mut at = dot;
        while let Some(before) = at.checked_sub(1) {
            match &code.tokens[before] {
                Token::Name(name) => {
                    self.computed.insert((before > 0 && code.sign(before - 1, '.'), name));
                    return;
                }
                Token::Sign(']') => at = code.pairs[before],
                Token::Sign(')') => return self.mark(code, code.pairs[before] + 1..before, true),
                _ => return,
            }
        }
    }

    /// Adds the names that a tag sets.
    fn tag(&mut self, code: &'a Code<'a>) {
        let (tag, end) = (code.name(0), code.tokens.len());
        self.is_known &= is_in(TAGS, tag);
        let find = |sign: char| code.top(1..end).find(|&at| code.sign(at, sign)).unwrap_or(end);
        let word = |word: &str| code.top(1..end).find(|&at| code.name(at) == word).unwrap_or(end);
        match tag {
            "set" => {
                let (equals, bar) = (find('='), find('|'));
                let is_block = equals == end;
                let is_computed = is_block || self.is_computed(code, equals + 1..end, false);
                self.mark(code, 1..equals.min(if is_block { bar } else { end }), is_computed);
                // A list may have two names (aliases).
                if equals == 2 && end == 4 && self.computed.contains(&(false, code.name(1))) {
                    self.mark(code, 3..4, true);
                }
            }
            "for" => {
                let (start, recursive) = (word("in"), word("recursive"));
                let is_computed =
                    self.is_computed(code, (start + 1).min(end)..recursive.min(word("if")), false);
                self.mark(code, 1..start, is_computed);
                if recursive < end {
                    self.parameters.extend((1..start).map(|at| code.name(at)));
                }
            }
            "with" => {
                let is_computed = self.is_computed(code, 1..end, false);
                for at in code.top(1..end).filter(|&at| code.sign(at + 1, '=')) {
                    self.mark(code, at..at + 1, is_computed);
                }
            }
            "macro" | "call" => {
                let open = (1..end).find(|&at| code.sign(at, '(')).filter(|&at| tag == "macro" || at == 1);
                let Some(open) = open else { return };
                let given = open + 1..code.pairs[open];
                let is_computed = self.is_computed(code, given.clone(), false);
                self.mark(code, 1..open, tag == "macro");
                for argument in code.arguments(open) {
                    self.mark(code, argument.start..argument.start + 1, is_computed);
                    self.parameters.insert(code.name(argument.start));
                }
            }
            "import" | "from" => self.mark(code, 1..end, true),
            _ => {}
        }
    }

    /// Sets the names of a range; attributes and variables are separate.
    fn mark(&mut self, code: &'a Code<'a>, range: Range<usize>, is_computed: bool) {
        for at in range.filter(|&at| !code.sign(at + 1, '.')) {
            let name = code.name(at);
            let is_attribute = at > 0 && code.sign(at - 1, '.');
            // Python normalizes full-width letters to ASCII.
            self.is_known &= name.is_ascii();
            if !is_attribute {
                self.set.insert(name);
            }
            if is_computed {
                self.computed.insert((is_attribute, name));
            }
        }
    }

    /// True where an expression may yield text with an unknown beginning. For a key, a slice of any value counts too, as
    /// the value might be text.
    pub(super) fn is_computed(&self, code: &Code<'_>, range: Range<usize>, is_key: bool) -> bool {
        // Start of the current operand in each open bracket.
        let mut starts = vec![range.start];
        for at in range.start..range.end.min(code.tokens.len()) {
            let start = starts.last().copied().unwrap_or(at);
            let is_safe = || {
                let tied = code.sign(start + 1, '~') || code.sign(start + 1, '+');
                tied && matches!(&code.tokens[start], Token::Text(text) if begins_safely(text))
            };
            let is_computed = match &code.tokens[at] {
                Token::Text(text) => {
                    let is_filter = at > 1 && code.sign(at - 1, '(') && code.name(at - 2) == "map";
                    let is_known = [KEEPING, CUTTING, " attr "].iter().any(|list| is_in(list, text));
                    leads_on(text) || dunder(text).is_some() || (is_filter && !is_known)
                }
                Token::Name(name) => self.is_computed_name(code, at, name),
                Token::Sign('~') => !is_safe(),
                Token::Sign('+') => !is_safe() && !is_sum(code, at),
                Token::Sign('*' | '%') => {
                    matches!(code.tokens.get(at.wrapping_sub(1)), Some(Token::Text(_) | Token::Sign(')')))
                        || matches!(code.tokens.get(at + 1), Some(Token::Text(_)))
                }
                Token::Sign('[') if code.is_behind_value(at) && code.is_slice(at) => {
                    let before = code.name(at - 1);
                    let is_of_file =
                        !code.sign(at.wrapping_sub(2), '.') && !self.is_set(before) && !is_in(GIVEN, before);
                    is_key
                        || matches!(code.tokens[at - 1], Token::Text(_) | Token::Sign(')'))
                        || (!before.is_empty() && is_of_file)
                }
                Token::Sign(_) => false,
            };
            if is_computed {
                return true;
            }
            match &code.tokens[at] {
                Token::Sign('(' | '[' | '{') => starts.push(at + 1),
                Token::Sign(')' | ']' | '}') => drop(starts.pop()),
                Token::Sign(',' | ':' | '=' | '?')
                | Token::Name("if" | "else" | "or" | "and" | "not" | "in" | "is") => {
                    starts.pop();
                    starts.push(at + 1);
                }
                _ => {}
            }
        }
        false
    }

    fn is_computed_name(&self, code: &Code<'_>, at: usize, name: &str) -> bool {
        let before = |sign| at > 0 && code.sign(at - 1, sign);
        let is_call = code.sign(at + 1, '(');
        let is_test = (at > 0 && code.name(at - 1) == "is")
            || (at > 1 && code.name(at - 1) == "not" && code.name(at - 2) == "is");
        let is_counted = code.sign(at + 1, '|') && is_in(NUMBERS, code.name(at + 2));
        if is_test || is_counted || code.sign(at + 1, '=') || name.starts_with(|c: char| c.is_ascii_digit()) {
            return false;
        }
        if before('|') || is_call {
            // Text counts as cut input only where it is an attribute or item of an input.
            let from = at.wrapping_sub(2);
            let is_part = matches!(code.tokens.get(from), Some(Token::Name(_) | Token::Sign(']')))
                && (code.sign(from, ']') || code.sign(from.wrapping_sub(1), '.'));
            let is_cut = (before('|') || before('.')) && is_in(CUTTING, name) && is_part;
            let is_own = !before('|') && !before('.') && self.is_set(name);
            return !is_cut && (is_own || !is_in(KEEPING, name));
        }
        if before('.') {
            return is_in(BUILDING, name) || self.computed.contains(&(true, name));
        }
        let is_token = name.ends_with("token") || name.ends_with("tokens") || self.tokens.contains(name);
        is_token || self.computed.contains(&(false, name))
    }
}

/// True where `+` adds numbers or lists, as one of its operands shows.
fn is_sum(code: &Code<'_>, at: usize) -> bool {
    let is_number = |at: usize| code.name(at).starts_with(|c: char| c.is_ascii_digit());
    let before = at.wrapping_sub(1);
    let (is_of_loop, is_filtered) =
        (code.name(before.wrapping_sub(2)) == "loop", code.sign(before.wrapping_sub(1), '|'));
    let is_count = (is_of_loop || is_filtered) && is_in(NUMBERS, code.name(before));
    let is_list = |at: usize| code.sign(at, '[') && !code.is_behind_value(at);
    let is_behind_list = code.sign(before, ']') && is_list(code.pairs[before]);
    is_number(before) || is_number(at + 1) || is_count || is_list(at + 1) || is_behind_list
}
