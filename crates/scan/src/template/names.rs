//! What is known of the names of a template. Where a name is set several times, it may be each of these values everywhere:
//! no order, no scope.

use super::value::{DEPTH, Kinds, Value};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Names of Python that reach further without two underscores: frames of generators, and what hangs on them.
const REACHING: &[&str] = &[
    "gi_frame",
    "gi_code",
    "gi_yieldfrom",
    "cr_frame",
    "cr_code",
    "ag_frame",
    "ag_code",
    "f_back",
    "f_builtins",
    "f_code",
    "f_globals",
    "f_locals",
    "tb_frame",
    "tb_next",
    "co_code",
    "func_globals",
    "func_code",
    "mro",
];
/// What Jinja and Transformers put beside the conversation: functions, and objects with more behind them.
const FUNCTIONS: &[&str] = &[
    "caller",
    "cycler",
    "dict",
    "joiner",
    "lipsum",
    "loop",
    "namespace",
    "raise_exception",
    "range",
    "self",
    "strftime_now",
    "super",
];
/// The same of web frameworks. Templates of chats have such names for what they set.
const OF_THE_WEB: &[&str] = &["config", "g", "get_flashed_messages", "request", "session", "url_for"];
/// What a template is always given.
const GIVEN: &[&str] = &["messages", "tools", "documents", "functions", "conversation"];
/// What no file of a model may set: Transformers gives these by themselves.
const OF_THE_CONVERSATION: &[&str] = &["messages", "tools", "documents", "add_generation_prompt"];

/// True for a name that leads further than what a template is given.
pub(super) fn leads_on(name: &str) -> bool {
    name.starts_with('_') || REACHING.contains(&name)
}

/// True where whatever begins so is not such a name.
pub(super) fn begins_safely(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('_') && !REACHING.iter().any(|name| name.starts_with(text))
}

/// True for a text that looks something up when it is formatted: `{0.__class__}`.
pub(crate) fn format_leads_on(text: &str) -> bool {
    text.contains("._")
        || text.contains("[_")
        || REACHING
            .iter()
            .any(|name| text.match_indices(name).any(|(at, _)| text[..at].ends_with(['.', '['])))
}

/// A text of the template.
pub(super) fn literal(text: &str) -> Value {
    // What has no underscore has no piece that begins with one.
    let pieces = if text.contains('_') { Kinds::BUILT } else { Kinds::PLAIN };
    Value::text(if leads_on(text) { Kinds::BUILT } else { Kinds::PLAIN }, pieces)
}

/// What a macro is given, by place and by name: it may be called very often, with very many names.
#[derive(Debug)]
pub(super) struct Parameters<'a> {
    ordered: Box<[&'a str]>,
    named: HashSet<&'a str>,
}

impl<'a> Parameters<'a> {
    fn new(names: Vec<&'a str>) -> Self {
        Self { named: names.iter().copied().collect(), ordered: names.into() }
    }

    /// The one at that place.
    pub(super) fn at(&self, place: usize) -> Option<&'a str> {
        self.ordered.get(place).copied()
    }

    /// True where one has that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.named.contains(name)
    }
}

/// A macro.
#[derive(Debug)]
pub(super) struct Macro<'a> {
    /// Where it stands in the template.
    at: usize,
    pub(super) parameters: Rc<Parameters<'a>>,
    /// Another macro has the same name.
    is_several: bool,
}

/// Names, and what they may be.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    /// Names that the template sets.
    set: HashMap<&'a str, Value>,
    macros: HashMap<&'a str, Macro<'a>>,
    /// Names that are set otherwise than by a macro.
    assigned: HashSet<&'a str>,
    /// Names of what macros are given.
    given: HashSet<&'a str>,
    /// Names that are used before they are set.
    outside: HashSet<&'a str>,
    /// Names that the files of the model set, to texts with an underscore in them.
    tokens: Option<&'a HashSet<String>>,
    /// What namespaces have.
    attributes: HashMap<&'a str, Value>,
    /// All of it, and what comes from a mapping, of which the names are not known.
    any_attribute: Option<Value>,
    unnamed: Option<Value>,
    /// What functions are given that are called by another name than their own.
    pub(super) arguments: Option<Value>,
    /// What was put into lists and mappings that the template made, and into any.
    stored_in_own: Option<Value>,
    stored: Option<Value>,
    /// What loops go through.
    pub(super) looped: Option<Value>,
    /// What the bodies of calls are given.
    pub(super) handed: Option<Value>,
    /// Some loop calls itself.
    pub(super) is_recursive: bool,
    pub(super) changed: bool,
}

/// Adds a value to what is known.
fn add(known: &mut Option<Value>, value: Value) -> bool {
    let sum = known.map_or(value, |known| known.or(value));
    known.replace(sum) != Some(sum)
}

impl<'a> Names<'a> {
    pub(super) fn new(tokens: &'a HashSet<String>) -> Self {
        Self { tokens: Some(tokens), ..Self::default() }
    }

    /// Forgets all values, and keeps which names there are.
    pub(super) fn restart(&mut self) {
        self.set.values_mut().for_each(|value| *value = Value::NUMBER);
        self.attributes.clear();
        (self.any_attribute, self.unnamed) = (None, None);
        (self.stored_in_own, self.stored) = (None, None);
        (self.arguments, self.looped, self.handed) = (None, None, None);
    }

    pub(super) fn set(&mut self, name: &'a str, value: Value) {
        self.assigned.insert(name);
        self.put(name, value);
    }

    fn put(&mut self, name: &'a str, value: Value) {
        let known = self.set.get(name).copied();
        let sum = known.map_or(value, |known| known.or(value));
        self.changed |= known != Some(sum);
        self.set.insert(name, sum);
    }

    /// Sets a name to what a macro is given.
    pub(super) fn give(&mut self, name: &'a str, value: Value) {
        self.given.insert(name);
        self.set(name, value);
    }

    /// Sets a name to a macro that stands at this place.
    pub(super) fn define(&mut self, name: &'a str, at: usize, parameters: Vec<&'a str>) {
        self.put(name, Value::ANY);
        for parameter in &parameters {
            self.give(parameter, Value::NUMBER);
        }
        let known = self.macros.entry(name).or_insert_with(|| {
            let parameters = Rc::new(Parameters::new(parameters));
            Macro { at, parameters, is_several: false }
        });
        known.is_several |= known.at != at;
    }

    /// The macro that a name is for certain: there is no other, and it is set to nothing else.
    pub(super) fn only_macro(&self, name: &str) -> Option<&Macro<'a>> {
        let found = self.macros.get(name).filter(|found| !found.is_several)?;
        // Within loops and macros some names are others.
        let is_only = !self.assigned.contains(name) && !FUNCTIONS.contains(&name);
        is_only.then_some(found)
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    pub(super) fn get(&mut self, name: &'a str) -> Value {
        let known = self.set.get(name).copied();
        if known.is_none() {
            self.outside.insert(name);
        }
        let mut value = known.unwrap_or(Value::NUMBER);
        let outside = self.outside.contains(name);
        if FUNCTIONS.contains(&name) || (outside && OF_THE_WEB.contains(&name)) {
            value = Value::ANY;
        } else if name.ends_with("token") || name.ends_with("tokens") || self.is_token(name) {
            // The files of a model say what its tokens are.
            value = value.or(Value::TEXT);
        } else if OF_THE_CONVERSATION.contains(&name) {
            value = value.or(Value::DATA);
        } else if outside || GIVEN.contains(&name) {
            value = value.or(Value::foreign());
        }
        if matches!(name, "varargs" | "kwargs") {
            value = value.or(Value::list(self.arguments.unwrap_or(Value::NUMBER)));
        }
        if self.given.contains(name) {
            value = value.or(self.arguments.unwrap_or(Value::NUMBER));
        }
        value
    }

    fn is_token(&self, name: &str) -> bool {
        self.tokens.is_some_and(|tokens| tokens.contains(name))
    }

    pub(super) fn set_attribute(&mut self, name: &'a str, value: Value) {
        let known = self.attributes.get(name).copied();
        let sum = known.map_or(value, |known| known.or(value));
        self.changed |= known != Some(sum);
        self.attributes.insert(name, sum);
        self.changed |= add(&mut self.any_attribute, value);
    }

    /// Sets attributes of any name.
    pub(super) fn set_attributes(&mut self, value: Value) {
        self.changed |= add(&mut self.unnamed, value);
        self.changed |= add(&mut self.any_attribute, value);
    }

    /// What is behind a name of `base`, or, without a name, behind any.
    pub(super) fn part(&self, base: Value, name: Option<&str>) -> Value {
        let mut found = [None; 4];
        // What was put there. A list of the template may be anywhere that one is met.
        if base.top().has(Kinds::LIST.with(Kinds::MAPPING)) {
            (found[0], found[1]) = (self.stored_in_own, self.stored);
        } else if base.top().has(Kinds::DATA.with(Kinds::FOREIGN)) {
            found[0] = self.stored;
        }
        if base.top().has(Kinds::SPACE) {
            (found[2], found[3]) = match name {
                Some(name) => (self.attributes.get(name).copied(), self.unnamed),
                None => (self.any_attribute, None),
            };
        }
        found.into_iter().flatten().fold(base.part(), Value::or)
    }

    /// An item of it, or of one of these, and so on.
    pub(super) fn any_part(&self, base: Value) -> Value {
        let (mut value, mut all) = (base, Value::NUMBER);
        for _ in 0..DEPTH {
            value = self.part(value, None);
            all = all.or(value);
        }
        all
    }

    /// It as text, with all that was put into it.
    pub(super) fn as_text(&self, value: Value) -> Value {
        let holds = value.top().has(Kinds::DATA.with(Kinds::FOREIGN)) && self.stored.is_some();
        let pools = [self.stored, self.stored_in_own];
        if holds && pools.into_iter().flatten().any(|stored| !stored.is_harmless()) {
            return Value::TEXT;
        }
        value.as_text()
    }

    /// What was put into a list or mapping.
    pub(super) fn store(&mut self, base: Value, value: Value) {
        let place = if base.is_own() { &mut self.stored_in_own } else { &mut self.stored };
        self.changed |= add(place, value);
    }

    pub(super) fn pass(&mut self, value: Value) {
        self.changed |= add(&mut self.arguments, value);
    }

    /// What is given to something that is not known: it may go anywhere.
    pub(super) fn lose(&mut self, value: Value) {
        let all = value.or(self.any_part(value));
        self.pass(all);
        self.changed |= add(&mut self.stored, all);
    }

    pub(super) fn go_through(&mut self, items: Value) {
        self.changed |= add(&mut self.looped, items);
    }

    pub(super) fn hand(&mut self, value: Value) {
        self.changed |= add(&mut self.handed, value);
    }
}
