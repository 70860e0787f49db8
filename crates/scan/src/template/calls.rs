//! What methods and functions give. What is not known here may give anything, and what it is given may go anywhere.

use super::names::{Parameters, format_leads_on, leads_on, literal};
use super::reader::{Arguments, Item, Reader};
use super::value::{Kinds, Value};
use std::rc::Rc;

/// Methods that give a piece of a text, or all of it in other letters.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "strip", "lstrip", "rstrip", "lower", "upper", "title", "capitalize", "casefold", "swapcase", "removeprefix", "removesuffix",
];
/// Methods that give a list of pieces.
const LISTS: &[&str] = &["split", "rsplit", "splitlines", "partition", "rpartition"];
/// Methods that give a number, a truth or nothing.
#[rustfmt::skip]
const NUMBERS: &[&str] = &[
    "find", "rfind", "index", "rindex", "count", "startswith", "endswith", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit",
    "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "reverse", "clear",
];
/// Methods that put text together.
#[rustfmt::skip]
const BUILDING: &[&str] = &[
    "format", "format_map", "replace", "join", "translate", "center", "ljust", "rjust", "zfill", "expandtabs", "encode", "decode",
];
/// The others that a value may have.
#[rustfmt::skip]
const OTHERS: &[&str] = &[
    "add", "append", "as_integer_ratio", "bit_count", "bit_length", "close", "conjugate", "copy", "difference", "difference_update",
    "discard", "escape", "extend", "from_bytes", "fromhex", "fromkeys", "get", "hex", "indices", "insert", "intersection",
    "intersection_update", "is_integer", "isdisjoint", "issubset", "issuperset", "items", "keys", "maketrans", "pop", "popitem",
    "remove", "send", "setdefault", "sort", "striptags", "symmetric_difference", "symmetric_difference_update", "throw", "to_bytes",
    "unescape", "union", "update", "values",
];
/// What a loop knows of itself that is a number or a truth.
#[rustfmt::skip]
const OF_LOOPS: &[&str] = &[
    "index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0",
];

impl<'a> Reader<'a, '_> {
    /// What is behind a dot, or behind a text in brackets.
    pub(super) fn access(&mut self, base: &Item<'a>, name: &str) -> Value {
        if leads_on(name) {
            self.reach(format_args!("looks up {name}"));
        }
        if matches!(name, "format" | "format_map") {
            self.formats(base);
        }
        if base.name == Some("loop") {
            return match name {
                // The name may be another thing before the loop.
                _ if self.names.is_set("loop") => Value::ANY,
                _ if OF_LOOPS.contains(&name) => Value::NUMBER,
                "previtem" | "nextitem" => self.names.looped.unwrap_or(Value::NUMBER),
                _ => Value::ANY,
            };
        }
        // What the names or values of a mapping were taken of.
        if name == "mapping" && base.value.top().has(Kinds::LIST) {
            return Value::ANY;
        }
        let value = self.names.part(base.value, Some(name));
        let is_method = [PIECES, LISTS, NUMBERS, BUILDING, OTHERS].iter().any(|names| names.contains(&name));
        if is_method { value.or_function() } else { value }
    }

    /// Python's way to format looks up what the text says.
    pub(super) fn formats(&mut self, base: &Item<'_>) {
        let leads_on = match &base.literal {
            Some(text) => format_leads_on(text),
            None => base.value.formats(),
        };
        if leads_on {
            self.reach("formats a text that may look up anything");
        }
    }

    /// What something gives that is not known.
    fn unknown(&mut self, given: Value) -> Value {
        self.names.lose(given);
        Value::ANY
    }

    /// What a method gives.
    pub(super) fn method(&mut self, base: &Item<'a>, name: &str, arguments: &Arguments<'a>) -> Value {
        let of = base.value;
        if base.name == Some("loop") {
            let is_set = self.names.is_set("loop");
            return match name {
                "cycle" if !is_set => arguments.all(),
                "changed" if !is_set => Value::NUMBER,
                _ => self.unknown(arguments.all()),
            };
        }
        // Functions that a template has put into a mapping or a namespace are called so, too.
        if of.top().has(Kinds::SPACE) || self.names.part(of, Some(name)).top().has(Kinds::FUNCTION) {
            return self.unknown(of.or(arguments.all()));
        }
        match name {
            _ if PIECES.contains(&name) => of.cut(),
            _ if LISTS.contains(&name) => Value::list(of.cut()),
            _ if NUMBERS.contains(&name) => Value::NUMBER,
            _ if BUILDING.contains(&name) => Value::TEXT,
            "items" => of.pairs(),
            "keys" | "values" => of.listed(),
            "copy" => of,
            // Of a list and of a mapping the first argument says which.
            "get" | "pop" | "popitem" => self.names.part(of, None).or(arguments.all_from(1)),
            "setdefault" => {
                self.names.store(of, arguments.all());
                self.names.part(of, None).or(arguments.all_from(1))
            }
            "append" | "add" => self.stores(of, arguments.all()),
            "insert" => self.stores(of, arguments.all_from(1)),
            "extend" => {
                let given = arguments.all();
                let items = self.names.part(given, None);
                self.stores(of, items)
            }
            "update" => {
                let items = self.of_mapping(arguments);
                self.stores(of, items)
            }
            "remove" | "discard" => Value::NUMBER,
            "sort" if arguments.is_empty() => Value::NUMBER,
            _ => self.unknown(of.or(arguments.all())),
        }
    }

    fn stores(&mut self, base: Value, items: Value) -> Value {
        self.names.store(base, items);
        Value::NUMBER
    }

    /// Names and values of what a mapping is made of: other mappings, lists of pairs, and `name=value`.
    fn of_mapping(&mut self, arguments: &Arguments<'a>) -> Value {
        let mut all = arguments.named_values().or(arguments.unpacked_items());
        let unpacked = arguments.unpacked.then(|| arguments.unpacked_items());
        for given in arguments.positional.iter().map(|item| item.value).chain(unpacked) {
            let items = self.names.part(given, None);
            all = all.or(items);
            if !given.is_mapping() {
                all = all.or(self.names.part(items, None));
            }
        }
        all
    }

    /// What a function gives.
    pub(super) fn function(&mut self, name: &'a str, arguments: &Arguments<'a>) -> Value {
        if self.names.is_set(name) {
            return match self.names.only_macro(name).map(|found| Rc::clone(&found.parameters)) {
                Some(parameters) => self.call_macro(&parameters, arguments),
                None => self.unknown(arguments.all()),
            };
        }
        match name {
            "range" | "raise_exception" => Value::NUMBER,
            "strftime_now" => Value::TEXT,
            "dict" => {
                let items = self.of_mapping(arguments);
                Value::mapping(items)
            }
            "namespace" => {
                for (key, item) in &arguments.named {
                    self.names.set_attribute(key, item.value);
                }
                if arguments.unpacked || !arguments.positional.is_empty() {
                    let items = self.of_mapping(arguments);
                    self.names.set_attributes(items);
                }
                Value::namespace()
            }
            "caller" => {
                self.names.hand(arguments.all());
                self.names.pass(arguments.all());
                Value::TEXT
            }
            _ => self.unknown(arguments.all()),
        }
    }

    /// A macro that is known; gives text.
    fn call_macro(&mut self, parameters: &Parameters<'a>, arguments: &Arguments<'a>) -> Value {
        for (place, item) in arguments.positional.iter().enumerate() {
            match parameters.at(place) {
                Some(parameter) => self.names.set(parameter, item.value),
                None => self.names.pass(item.value),
            }
        }
        for (key, item) in &arguments.named {
            if parameters.has(key) {
                self.names.set(key, item.value);
            } else {
                self.names.pass(item.value.or(literal(key)));
            }
        }
        if arguments.unpacked {
            self.names.pass(arguments.unpacked_items());
        }
        Value::TEXT
    }
}
