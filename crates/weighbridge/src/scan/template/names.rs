//! What is known of the names of a template. Where a name is set several times, it may be each of these values everywhere:
//! no order, no scope.

use super::value::{Kind, Value};
use std::collections::{HashMap, HashSet};

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

/// True for a name that leads further than what a template is given.
pub(super) fn leads_on(name: &str) -> bool {
    name.starts_with('_') || REACHING.contains(&name)
}

/// True where whatever begins so is not such a name.
pub(super) fn begins_safely(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('_') && !REACHING.iter().any(|name| name.starts_with(text))
}

/// True for a text that looks something up when it is formatted: `{0.__class__}`.
pub(super) fn format_leads_on(text: &str) -> bool {
    text.contains("._")
        || text.contains("[_")
        || REACHING
            .iter()
            .any(|name| text.match_indices(name).any(|(at, _)| text[..at].ends_with(['.', '['])))
}

/// A text of the template.
pub(super) fn literal(text: &str) -> Value {
    // What has no underscore has no piece that begins with one.
    let pieces = if text.contains('_') { Kind::Built } else { Kind::Plain };
    Value::text(if leads_on(text) { Kind::Built } else { Kind::Plain }, pieces)
}

/// Names, and what they may be.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    /// Names that the template sets.
    set: HashMap<&'a str, Value>,
    /// Macros, and the names of what they are given.
    pub(super) macros: HashMap<&'a str, Vec<&'a str>>,
    pub(super) given: HashSet<&'a str>,
    /// Names that are used before they are set.
    outside: HashSet<&'a str>,
    /// What namespaces have.
    attributes: HashMap<&'a str, Value>,
    /// All of it, and what comes from a mapping, of which the names are not known.
    any_attribute: Option<Value>,
    unnamed: Option<Value>,
    /// What functions are given that are called by another name than their own.
    pub(super) arguments: Option<Value>,
    /// What was put into lists and mappings.
    pub(super) stored: Option<Value>,
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
    /// Forgets all values, and keeps which names there are.
    pub(super) fn restart(&mut self) {
        self.set.values_mut().for_each(|value| *value = Value::NUMBER);
        self.attributes.clear();
        (self.any_attribute, self.unnamed) = (None, None);
        (self.arguments, self.stored, self.looped, self.handed) = (None, None, None, None);
    }

    pub(super) fn set(&mut self, name: &'a str, value: Value) {
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

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    pub(super) fn get(&mut self, name: &'a str) -> Value {
        let known = self.set.get(name).copied();
        if known.is_none() {
            self.outside.insert(name);
        }
        let mut value = known.unwrap_or(Value::NUMBER);
        // The files of a model say what its tokens are.
        let is_token = name.ends_with("token") || name.ends_with("tokens");
        let outside = self.outside.contains(name);
        if is_token || FUNCTIONS.contains(&name) || (outside && OF_THE_WEB.contains(&name)) {
            value = value.or(Value::BUILT);
        } else if outside || GIVEN.contains(&name) {
            value = value.or(Value::DATA);
        }
        if name == "loop" {
            value = value.or(self.looped.unwrap_or(Value::NUMBER));
        }
        if matches!(name, "varargs" | "kwargs") || self.given.contains(name) {
            value = value.or(self.arguments.unwrap_or(Value::NUMBER));
        }
        value
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
        let mut value = self.or_stored(base.part());
        if base.space {
            let found = match name {
                Some(name) => [self.attributes.get(name).copied(), self.unnamed],
                None => [self.any_attribute, None],
            };
            value = found.into_iter().flatten().fold(value, Value::or);
        }
        value
    }

    /// A part, or what was put in its place.
    pub(super) fn or_stored(&self, part: Value) -> Value {
        self.stored.map_or(part, |stored| part.or(stored))
    }

    pub(super) fn store(&mut self, value: Value) {
        self.changed |= add(&mut self.stored, value.or(value.part()));
    }

    pub(super) fn pass(&mut self, value: Value) {
        self.changed |= add(&mut self.arguments, value);
    }

    pub(super) fn go_through(&mut self, items: Value) {
        self.changed |= add(&mut self.looped, items);
    }

    pub(super) fn hand(&mut self, value: Value) {
        self.changed |= add(&mut self.handed, value);
    }
}
