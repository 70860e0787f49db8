//! Chat templates: checks statically, by names, whether one can access Python internals.
//!
//! A Jinja template reaches all of Python from any value by names with two underscores, and a few others. Three results:
//!
//! - **Found**: the template contains such a name: as `a.__class__`, in a string (with escapes resolved and constant
//!   concatenations joined), or as a key of a Jinja object (`cycler[key]`).
//! - **Unread**: a key (`a[key]` or the attribute of a filter) is computed, so its name is unknown: text that is
//!   concatenated, formatted, joined, replaced or sliced, the result of a macro, a token that files of the model set, and
//!   variables set to such text anywhere in the template ([`names`]).
//! - **Clean**: everything else. A key may be a string, a number, or any unchanged input of the template. Plain text,
//!   comments and `raw` may contain any words.

mod lexer;
mod names;
#[cfg(test)]
mod tests;

use lexer::{Code, Token};
use names::Names;
use std::collections::HashSet;
use std::ops::Range;

/// Longest template that is scanned, in bytes. Templates of common models have up to 30,000.
const MAX_TEMPLATE_LEN: usize = 256 << 10;
/// Attributes of Python objects that reach further, without their underscores (`__class__`).
const DUNDERS: &str = " annotations base bases builtins call class closure code context del delattr dict dir doc enter \
    file format func get getattr getattribute getitem globals import init init_subclass kwdefaults defaults loader main \
    metaclass module mro name new package path prepare qualname reduce reduce_ex repr self setattr slots spec str \
    subclasscheck subclasshook subclasses wrapped weakref ";
/// Attributes without underscores that reach further: frames and their attributes.
const ESCAPES: &str = " gi_frame gi_code gi_yieldfrom cr_frame cr_code ag_frame ag_code f_back f_builtins f_code f_globals \
    f_locals tb_frame tb_next co_code func_globals func_code mro popen ";
/// Python functions that run their argument.
const CALLS: &str = " eval exec popen import_module ";
/// Objects of Jinja and of web frameworks whose computed keys reach further.
const OBJECTS: &str =
    " cycler joiner namespace lipsum self request config g session url_for get_flashed_messages ";
/// Filters that look up an attribute, and the position of its name among their arguments.
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

/// Result for a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judged {
    Clean,
    /// Accesses Python internals; the line and the name.
    Reaches(String),
    /// Undecided; the reason.
    Unread(String),
}

/// Judges a template. `tokens` are variables that the files of the model set to text whose slices may be any name.
pub(super) fn judge(template: &str, tokens: &HashSet<String>) -> Judged {
    if template.len() > MAX_TEMPLATE_LEN {
        return Judged::Unread("not scanned, as the template exceeds 256 KiB".to_owned());
    }
    // Jinja normalizes line ends before the lexer: in a string a backslash removes a whole line end.
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
            return Judged::Reaches(format!("line {} of the template accesses {name}", line()));
        }
        if unread.is_none() && judge.is_computed {
            unread = Some(format!("line {} of the template accesses a computed name", line()));
        }
    }
    match unread {
        Some(why) => Judged::Unread(why),
        None if !whole || !names.is_known => Judged::Unread("not a supported Jinja template".to_owned()),
        None if !settled => Judged::Unread("too many variables are set from later variables".to_owned()),
        None => Judged::Clean,
    }
}

/// True where `word` is in a list.
fn is_in(list: &str, word: &str) -> bool {
    list.split(' ').any(|known| !known.is_empty() && known == word)
}

/// True for a name that reaches beyond the inputs of a template.
fn leads_on(name: &str) -> bool {
    name.starts_with('_') || is_in(ESCAPES, name)
}

/// True where no text with this prefix can be such a name.
fn begins_safely(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('_') && !ESCAPES.split(' ').any(|name| name.starts_with(text))
}

/// A name such as `__class__` in a text, if Python has it.
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

/// True for a format string that accesses such a name: `{0.__class__}`.
pub(super) fn format_leads_on(text: &str) -> bool {
    let parts = text.split(['.', '[']).skip(1);
    parts
        .map(|part| part.split(|c: char| c != '_' && !c.is_alphanumeric()).next())
        .any(|name| name.is_some_and(leads_on))
}

/// Judges one code section.
struct Judge<'a> {
    code: &'a Code<'a>,
    names: &'a Names<'a>,
    /// The first name that reaches further, as displayed.
    found: Option<String>,
    /// True where a computed name is accessed.
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
        self.found.get_or_insert_with(|| format!("`{name}`"));
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
        // A format string can access the attributes that it names.
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

    /// Judges a filter that accesses the attribute named by its argument at `place`.
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
                // `map` passes the rest to a filter, which may access an attribute.
                let is_lookup = LOOKUPS.iter().any(|(filter, _)| filter == text);
                place = if !named && number == 0 && is_lookup { 1 } else { usize::MAX };
            } else if is_key {
                self.is_computed = true;
            }
        }
    }

    /// Judges `a[key]`.
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
                self.found.get_or_insert_with(|| format!("a computed attribute of `{object}`"));
            }
            self.is_computed = true;
        }
    }
}

impl Code<'_> {
    fn sign(&self, at: usize, sign: char) -> bool {
        self.tokens.get(at) == Some(&Token::Sign(sign))
    }

    /// The name at a position, or an empty string.
    fn name(&self, at: usize) -> &str {
        match self.tokens.get(at) {
            Some(Token::Name(name)) => name,
            _ => "",
        }
    }

    /// True where a bracket begins a subscript or a call.
    fn is_behind_value(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1).and_then(|at| self.tokens.get(at)) else { return false };
        match before {
            Token::Name(name) => !is_in(KEYWORDS, name) || self.sign(at.wrapping_sub(2), '.'),
            Token::Text(_) => true,
            Token::Sign(sign) => matches!(sign, ')' | ']' | '}'),
        }
    }

    /// True for `a[b:c]`, which accesses no name.
    fn is_slice(&self, open: usize) -> bool {
        self.top(open + 1..self.pairs[open]).any(|at| self.sign(at, ':'))
    }

    /// Positions of a range that are outside nested brackets.
    fn top(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        let next = move |at: &usize| {
            let end = self.pairs.get(*at).copied().unwrap_or(*at).max(*at) + 1;
            Some(end).filter(|end| *end < range.end)
        };
        std::iter::successors(Some(range.start).filter(|start| *start < range.end), next)
    }

    /// Ranges of the arguments in the brackets that open at `open`.
    fn arguments(&self, open: usize) -> impl Iterator<Item = Range<usize>> {
        let end = self.pairs[open];
        let mut start = open + 1;
        let ends: Vec<_> = self.top(start..end).filter(|&at| self.sign(at, ',')).chain([end]).collect();
        let pieces = ends.into_iter().map(move |end| std::mem::replace(&mut start, end + 1)..end);
        pieces.filter(|piece| !piece.is_empty())
    }
}

/// Keywords, which are not values.
const KEYWORDS: &str = " and do else elif for if in is not or print return set ";
