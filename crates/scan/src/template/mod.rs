//! Chat templates: whether one reaches further than what it is given, judged by the words of its code.
//!
//! A template of Jinja comes from any value to all of Python by names with two underscores, and a few others. Three answers:
//!
//! - **Found**: such a name is written out, as `a.__class__`, in a string (without its escapes; strings that are only tied
//!   together are one), or as a key of an object of Jinja (`cycler[key]`).
//! - **Unread**: a key, `a[key]` or what a filter looks up, is computed, so that the words do not show which name it is: text
//!   that is tied, formatted, joined, replaced or cut, what a macro gives, a token that files of the model set, and names that
//!   are set to such text anywhere in the template ([`names`]).
//! - **Clean**: all else. A key may be a string, a number, or anything that the template is given and does not change. Plain
//!   text, comments and `raw` may hold any words.

mod lexer;
mod names;
#[cfg(test)]
mod tests;

use lexer::{Code, Token};
use names::Names;
use std::collections::HashSet;
use std::ops::Range;

/// Bytes of the longest template that is looked through: those of models have up to 30,000.
const LONGEST: usize = 256 << 10;
/// Attributes of Python's objects that lead further, between two pairs of underscores.
const DUNDERS: &str = " annotations base bases builtins call class closure code context del delattr dict dir doc enter \
    file format func get getattr getattribute getitem globals import init init_subclass kwdefaults defaults loader main \
    metaclass module mro name new package path prepare qualname reduce reduce_ex repr self setattr slots spec str \
    subclasscheck subclasshook subclasses wrapped weakref ";
/// Names that lead further without underscores: frames, and what hangs on them.
const ESCAPES: &str = " gi_frame gi_code gi_yieldfrom cr_frame cr_code ag_frame ag_code f_back f_builtins f_code f_globals \
    f_locals tb_frame tb_next co_code func_globals func_code mro popen ";
/// Functions of Python that run what they are given.
const CALLS: &str = " eval exec popen import_module ";
/// Objects of Jinja and of web frameworks, of which a key that is computed is a way out.
const OBJECTS: &str =
    " cycler joiner namespace lipsum self request config g session url_for get_flashed_messages ";
/// Filters that look up an attribute, and the place of its name among what they are given.
const LOOKUPS: [(&str, usize); 11] = [
    ("attr", 0),
    ("map", 0),
    ("selectattr", 0),
    ("rejectattr", 0),
    ("groupby", 0),
    ("sum", 0),
    ("join", 1),
    ("unique", 1),
    ("min", 1),
    ("max", 1),
    ("sort", 2),
];

/// What is thought of a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judged {
    Clean,
    /// It reaches further than what it is given; where, and by what.
    Reaches(String),
    /// Its words do not show whether it does; why.
    Unread(String),
}

/// Judges a template. `tokens` are names that the files of the model set, to texts of which a piece may be the name of anything.
pub(super) fn judge(template: &str, tokens: &HashSet<String>) -> Judged {
    if template.len() > LONGEST {
        return Judged::Unread("it is longer than a template that is looked through".to_owned());
    }
    // Jinja does so before it cuts the template: within a string a backslash takes away the whole end of a line.
    let lines = template.contains('\r').then(|| template.replace("\r\n", "\n").replace('\r', "\n"));
    let template = lines.as_deref().unwrap_or(template);
    let (all, whole) = lexer::read(template);
    let mut names = Names::new(tokens);
    let settled = names.collect(&all);
    let mut unread = None;
    for code in &all {
        let mut judge = Judge { code, names: &names, found: None, is_computed: false };
        judge.all();
        let line = || template[..code.start].matches('\n').count() + 1;
        if let Some(name) = judge.found {
            return Judged::Reaches(format!("line {} of the template looks up {name}", line()));
        }
        if unread.is_none() && judge.is_computed {
            unread = Some(format!("line {} of the template looks up a name that is computed", line()));
        }
    }
    match unread {
        Some(why) => Judged::Unread(why),
        None if !whole || !names.is_known => {
            Judged::Unread("it is no template of Jinja as far as known here".to_owned())
        }
        None if !settled => {
            Judged::Unread("its names are set from names that are set later, again and again".to_owned())
        }
        None => Judged::Clean,
    }
}

/// True where `word` is one of a list.
fn is_in(list: &str, word: &str) -> bool {
    list.split(' ').any(|known| !known.is_empty() && known == word)
}

/// True for a name that leads further than what a template is given.
fn leads_on(name: &str) -> bool {
    name.starts_with('_') || is_in(ESCAPES, name)
}

/// True where whatever begins so is not such a name.
fn begins_safely(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('_') && !ESCAPES.split(' ').any(|name| name.starts_with(text))
}

/// The name between two pairs of underscores that a text holds, where Python has one.
fn dunder(text: &str) -> Option<&str> {
    let mut ends = text.match_indices("__").map(|(at, _)| at);
    let mut start = ends.next()?;
    for end in ends {
        let name = text.get(start + 2..end).unwrap_or_default().trim_start_matches('_');
        if is_in(DUNDERS, &name.to_ascii_lowercase()) {
            return Some(&text[start..end + 2]);
        }
        start = end;
    }
    None
}

/// True for a text that looks something up when it is formatted: `{0.__class__}`.
pub(super) fn format_leads_on(text: &str) -> bool {
    let parts = text.split(['.', '[']).skip(1);
    parts
        .map(|part| part.split(|c: char| c != '_' && !c.is_alphanumeric()).next())
        .any(|name| name.is_some_and(leads_on))
}

/// Judges one piece of code.
struct Judge<'a> {
    code: &'a Code<'a>,
    names: &'a Names<'a>,
    /// The first name that leads on.
    found: Option<String>,
    /// A name is looked up that is computed.
    is_computed: bool,
}

impl Judge<'_> {
    fn all(&mut self) {
        for (at, token) in self.code.tokens.iter().enumerate() {
            match token {
                Token::Name(name) => self.name(at, name),
                Token::Text(text) => {
                    let is_word = !text.contains(char::is_whitespace);
                    let is_format =
                        self.code.sign(at + 1, '.') && self.code.name(at + 2).starts_with("format");
                    if (is_word && dunder(text).is_some()) || (is_format && format_leads_on(text)) {
                        self.find(dunder(text).unwrap_or(text));
                    }
                }
                Token::Sign('[') if self.code.is_behind_value(at) => self.subscript(at),
                Token::Sign(_) => {}
            }
        }
    }

    fn find(&mut self, name: &str) {
        self.found.get_or_insert_with(|| name.to_owned());
    }

    fn name(&mut self, at: usize, name: &str) {
        let code = self.code;
        let is_attribute = at > 0 && code.sign(at - 1, '.');
        let is_call = code.sign(at + 1, '(');
        let is_module = name == "os" && code.sign(at + 1, '.') && !self.names.is_set(name);
        if (is_attribute && leads_on(name))
            || (name.starts_with("__") && dunder(name).is_some())
            || (is_call && is_in(CALLS, name) && !self.names.is_set(name))
            || (!is_attribute && is_module)
        {
            self.find(name);
        }
        // A text that looks up what it says when it is formatted.
        if is_attribute && matches!(name, "format" | "format_map") && at > 1 {
            let is_built = match &code.tokens[at - 2] {
                Token::Text(_) => false,
                Token::Name(_) if !is_call => self.names.is_computed(code, at - 2..at - 1, true),
                Token::Name(_) => true,
                Token::Sign(_) => true,
            };
            self.is_computed |= is_built;
        }
        let is_filter =
            at > 0 && (code.sign(at - 1, '|') || (code.is_tag && at == 1 && code.name(0) == "filter"));
        if let (true, Some((_, place))) = (is_filter, LOOKUPS.iter().find(|(filter, _)| *filter == name)) {
            self.filter(at, *place);
        }
    }

    /// A filter that looks something up by the text at `place` of what it is given.
    fn filter(&mut self, at: usize, mut place: usize) {
        let code = self.code;
        if !code.sign(at + 1, '(') {
            return;
        }
        for (number, argument) in code.arguments(at + 1).enumerate() {
            let named = code.sign(argument.start + 1, '=');
            let is_key = if named { code.name(argument.start) == "attribute" } else { number >= place };
            let value = if named { argument.start + 2..argument.end } else { argument };
            if code.sign(value.start, '*') {
                self.is_computed = true;
            } else if let (1, Some(Token::Text(text))) = (value.len(), code.tokens.get(value.start)) {
                if let Some(name) = text.split(['.', ',']).find(|name| is_key && leads_on(name)) {
                    self.find(name);
                }
                // `map` gives the rest to a filter, which may look something up.
                let is_lookup = LOOKUPS.iter().any(|(filter, _)| filter == text);
                place = if !named && number == 0 && is_lookup { 1 } else { usize::MAX };
            } else if is_key {
                self.is_computed = true;
            }
        }
    }

    /// `a[key]`
    fn subscript(&mut self, at: usize) {
        let code = self.code;
        let key = at + 1..code.pairs[at];
        if code.is_slice(at) {
            return;
        }
        if let (1, Some(Token::Text(text))) = (key.len(), code.tokens.get(key.start)) {
            if leads_on(text) {
                self.find(text);
            }
        } else if self.names.is_computed(code, key, true) {
            let object = code.name(at - 1);
            let is_alone = at < 2 || !code.sign(at - 2, '.');
            if is_alone && is_in(OBJECTS, object) && !self.names.is_set(object) {
                self.find(&format!("a computed name of {object}"));
            }
            self.is_computed = true;
        }
    }
}

impl Code<'_> {
    fn sign(&self, at: usize, sign: char) -> bool {
        self.tokens.get(at) == Some(&Token::Sign(sign))
    }

    /// The name at a place, or nothing.
    fn name(&self, at: usize) -> &str {
        match self.tokens.get(at) {
            Some(Token::Name(name)) => name,
            _ => "",
        }
    }

    /// True where a bracket is that of a subscript or a call.
    fn is_behind_value(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1).and_then(|at| self.tokens.get(at)) else { return false };
        match before {
            Token::Name(name) => !is_in(KEYWORDS, name) || self.sign(at.wrapping_sub(2), '.'),
            Token::Text(_) => true,
            Token::Sign(sign) => matches!(sign, ')' | ']' | '}'),
        }
    }

    /// True for `a[b:c]`, which looks no name up.
    fn is_slice(&self, open: usize) -> bool {
        self.top(open + 1..self.pairs[open]).any(|at| self.sign(at, ':'))
    }

    /// The places of a range that are not within brackets of their own.
    fn top(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        let next = move |at: &usize| {
            let end = self.pairs.get(*at).copied().unwrap_or(*at).max(*at) + 1;
            Some(end).filter(|end| *end < range.end)
        };
        std::iter::successors(Some(range.start).filter(|start| *start < range.end), next)
    }

    /// What stands between the brackets that open at `open`, and the commas.
    fn arguments(&self, open: usize) -> impl Iterator<Item = Range<usize>> {
        let end = self.pairs[open];
        let mut start = open + 1;
        let ends: Vec<_> = self.top(start..end).filter(|&at| self.sign(at, ',')).chain([end]).collect();
        let pieces = ends.into_iter().map(move |end| std::mem::replace(&mut start, end + 1)..end);
        pieces.filter(|piece| !piece.is_empty())
    }
}

/// Words that are no values.
const KEYWORDS: &str = " and do else elif for if in is not or print return set ";
