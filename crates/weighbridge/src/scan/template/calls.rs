//! What filters, methods and functions give.

use super::names::{format_leads_on, leads_on, literal};
use super::reader::{Arguments, Item, Reader};
use super::value::{Kind, Value};

/// Filters within filters within filters: `map('map', 'map', ...)`.
const DEPTH: usize = 8;

/// Methods that give a piece of a text.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "strip", "lstrip", "rstrip", "lower", "upper", "title", "capitalize", "casefold", "swapcase", "removeprefix", "removesuffix",
];
/// Methods that give a list of pieces.
const LISTS: &[&str] = &["split", "rsplit", "splitlines", "partition", "rpartition"];
/// Methods that give a number or a truth.
#[rustfmt::skip]
const NUMBERS: &[&str] = &[
    "find", "rfind", "index", "rindex", "count", "startswith", "endswith", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit",
    "islower", "isnumeric", "isspace", "istitle", "isupper", "sort", "reverse", "clear",
];
/// Methods that put text together.
#[rustfmt::skip]
const BUILDING: &[&str] = &[
    "format", "format_map", "replace", "join", "translate", "center", "ljust", "rjust", "zfill", "expandtabs", "encode", "decode",
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
        if base.name == Some("loop") && !self.names.is_set("loop") && !matches!(name, "previtem" | "nextitem")
        {
            return Value::NUMBER;
        }
        let value = self.names.part(base.value, Some(name));
        // Who keeps such a method under another name puts text together with it.
        let data = base.value.kind() == Kind::Data && name == "format";
        if BUILDING.contains(&name) && !data { value.or(Value::BUILT) } else { value }
    }

    /// Python's way to format looks up what the text says.
    fn formats(&mut self, base: &Item<'_>) {
        let leads_on = match &base.literal {
            Some(text) => format_leads_on(text),
            None => base.value.kind() == Kind::Built || base.value.items() == Kind::Built,
        };
        if leads_on {
            self.reach("formats a text that may look up anything");
        }
    }

    /// An attribute that a filter looks up, as its argument says.
    fn attribute(&mut self, argument: Option<&Item<'_>>, base: Value) {
        let Some(argument) = argument else { return };
        match &argument.literal {
            Some(text) => {
                for name in text.split(['.', ',']).map(str::trim) {
                    let of = Item::of(self.names.part(base, None));
                    self.access_by_filter(&of, name);
                }
            }
            None if argument.value.is_harmless() => {}
            None => self.reach("a filter looks up a name that is not written out"),
        }
    }

    fn access_by_filter(&mut self, of: &Item<'_>, name: &str) {
        if leads_on(name) {
            self.reach(format_args!("a filter looks up {name}"));
        }
        if matches!(name, "format" | "format_map") {
            self.formats(of);
        }
    }

    pub(super) fn filter(&mut self, name: &str, base: &Item<'a>, arguments: &Arguments<'a>) -> Value {
        self.filter_at(name, base, arguments, 0, 0)
    }

    /// As [`Reader::filter`], with the positional arguments from `from` on.
    fn filter_at(
        &mut self,
        name: &str,
        base: &Item<'a>,
        arguments: &Arguments<'a>,
        from: usize,
        depth: usize,
    ) -> Value {
        let of = base.value;
        let positional = arguments.positional.get(from..).unwrap_or_default();
        let keyword = |name: &str| arguments.keyword(name);
        // Which of its arguments names an attribute.
        let place = match name {
            "attr" | "selectattr" | "rejectattr" | "groupby" | "sum" => Some(0),
            "join" | "unique" | "min" | "max" => Some(1),
            "sort" => Some(2),
            "map" => None,
            _ => return self.plain_filter(name, base, positional, arguments),
        };
        if arguments.unpacked {
            self.reach("a filter that looks something up is given what is not written out");
        }
        if name == "attr" {
            match positional.first().or(keyword("name")).and_then(|name| name.literal.as_deref()) {
                Some(name) => return self.access(base, name),
                None => self.reach("attr looks up a name that is not written out"),
            }
            return Value::BUILT;
        }
        if let Some(place) = place {
            self.attribute(positional.get(place), of.part());
        }
        self.attribute(keyword("attribute"), of.part());
        let given = |item: Option<&Item<'_>>| item.map_or(Value::NUMBER, |item| item.value);
        match name {
            "map" => {
                let Some(filter) = positional.first() else {
                    let items = self.names.part(of.part(), None).or(given(keyword("default")));
                    return if of.kind() == Kind::Data { items } else { Value::list(items) };
                };
                let Some(filter) = filter.literal.clone().filter(|_| depth < DEPTH) else {
                    self.reach("map applies a filter that is not written out");
                    return Value::BUILT;
                };
                let item = Item::of(self.names.part(of, None));
                let mapped = self.filter_at(&filter, &item, arguments, from + 1, depth + 1);
                Value::list(mapped)
            }
            "join" => Value::TEXT,
            "sum" => {
                let start = given(positional.get(1).or(keyword("start")));
                match start.kind() {
                    Kind::Number => Value::NUMBER,
                    _ => start.or(of.part()).or(of.part().part()),
                }
            }
            "min" | "max" => self.names.part(of, None),
            "groupby" => of.grouped().or(of.part()).or(given(positional.get(1).or(keyword("default")))),
            // selectattr, rejectattr, unique, sort
            _ => of.listed(),
        }
    }

    /// A filter that looks nothing up.
    fn plain_filter(
        &mut self,
        name: &str,
        base: &Item<'a>,
        positional: &[Item<'a>],
        arguments: &Arguments<'a>,
    ) -> Value {
        let of = base.value;
        // What it gives instead.
        let others = || {
            let named = arguments.named.iter().map(|(_, item)| item.value);
            positional.iter().map(|item| item.value).chain(named).fold(Value::NUMBER, Value::or)
        };
        match name {
            "trim" | "lower" | "upper" | "title" | "capitalize" | "striptags" => of.part(),
            "safe" | "escape" | "e" | "forceescape" => of,
            "string" => match of.kind() {
                Kind::Number => Value::PLAIN,
                Kind::Plain | Kind::Data if of.native => of,
                _ => Value::TEXT,
            },
            // Text of it begins with a quote, a bracket, a digit or a word of JSON.
            "tojson" => Value::text(Kind::Plain, Kind::Built),
            "length" | "count" | "abs" | "wordcount" | "round" => Value::NUMBER,
            "int" | "float" => others(),
            "default" | "d" => of.or(others()),
            "list" | "select" | "reject" => of.listed(),
            "items" | "dictsort" => of.grouped(),
            "batch" | "slice" => Value::list(of.listed().or(others())),
            "reverse" => of.some(),
            "first" | "last" | "random" => self.names.part(of, None),
            _ => Value::TEXT,
        }
    }

    /// What a method gives.
    pub(super) fn method(&mut self, base: &Item<'a>, name: &str, arguments: &Arguments<'a>) -> Value {
        let of = base.value;
        let given = arguments.all();
        // Functions that a template has put into a mapping or a namespace are called so, too.
        if !of.native && (of.space || self.names.part(of, Some(name)).kind() == Kind::Built) {
            self.names.pass(given);
            return Value::BUILT;
        }
        let value = match name {
            _ if PIECES.contains(&name) => of.part(),
            _ if LISTS.contains(&name) => of.listed(),
            _ if NUMBERS.contains(&name) || name.starts_with("is") => Value::NUMBER,
            _ if BUILDING.contains(&name) => Value::TEXT,
            "items" => of.grouped(),
            "keys" | "values" => of.listed(),
            "copy" => of,
            "get" | "pop" | "setdefault" | "popitem" => {
                if name == "setdefault" {
                    self.names.store(given);
                }
                let others = arguments.positional.iter().skip(1).map(|item| item.value);
                return others.fold(self.names.part(of, None), Value::or).or(arguments.unpacked_items());
            }
            "append" | "extend" | "insert" | "update" | "remove" | "add" => {
                self.names.store(given);
                Value::NUMBER
            }
            _ => {
                self.names.store(given);
                Value::BUILT
            }
        };
        // A method that the template keeps under this name may do more with what it is given.
        if of.native || matches!(name, "append" | "extend" | "insert" | "update") {
            value
        } else {
            value.or(given)
        }
    }

    /// What a function gives.
    pub(super) fn function(&mut self, name: &'a str, arguments: &Arguments<'a>) -> Value {
        if let Some(parameters) = self.names.macros.get(name) {
            let parameters: Vec<_> = parameters.iter().copied().take(arguments.positional.len()).collect();
            for (parameter, item) in parameters.iter().zip(&arguments.positional) {
                self.names.set(parameter, item.value);
            }
            for item in arguments.positional.iter().skip(parameters.len()) {
                self.names.pass(item.value);
            }
            for (key, item) in &arguments.named {
                if self.names.given.contains(key) {
                    self.names.set(key, item.value);
                } else {
                    self.names.pass(item.value.or(literal(key)));
                }
            }
            if arguments.unpacked {
                self.names.pass(arguments.unpacked_items());
            }
            return Value::TEXT;
        }
        if self.names.is_set(name) {
            self.names.pass(arguments.all());
            return Value::BUILT;
        }
        match name {
            "range" => Value::list(Value::NUMBER),
            "raise_exception" => Value::NUMBER,
            "dict" => {
                let of =
                    arguments.positional.iter().map(|item| item.value.part().or(item.value.part().part()));
                let named = arguments.named.iter().map(|(key, item)| item.value.or(literal(key)));
                let unpacked = [arguments.unpacked_items()];
                Value::list(of.chain(named).chain(unpacked).fold(Value::NUMBER, Value::or))
            }
            "namespace" => {
                for item in &arguments.positional {
                    self.names.set_attributes(item.value.part().or(item.value.part().part()));
                }
                for (key, item) in &arguments.named {
                    self.names.set_attribute(key, item.value);
                }
                if arguments.unpacked {
                    self.names.set_attributes(arguments.unpacked_items());
                }
                Value::namespace()
            }
            "caller" => {
                self.names.hand(arguments.all());
                Value::TEXT
            }
            _ => {
                self.names.pass(arguments.all());
                Value::BUILT
            }
        }
    }
}
