//! What filters look up, and what they give. What one gives that is not known here may be anything.

use super::reader::{Arguments, Item, Reader};
use super::value::{Kinds, Value};

/// Filters within filters within filters: `map('map', 'map', ...)`.
const DEPTH: usize = 8;

/// Filters that make new text: `striptags` has letters in it that its input does not have.
#[rustfmt::skip]
const TEXTS: &[&str] = &[
    "center", "filesizeformat", "format", "indent", "pprint", "replace", "striptags", "truncate", "urlencode", "urlize", "wordwrap",
    "xmlattr",
];

impl<'a> Reader<'a, '_> {
    /// What filters look up of `base`, as their argument says: several names, with steps in each.
    fn attribute(&mut self, argument: &Item<'a>, base: Value) -> Value {
        let Some(text) = &argument.literal else {
            if !argument.value.is_harmless() {
                self.reach("a filter looks up a name that is not written out");
            }
            return self.names.any_part(base).or_function();
        };
        let mut all = Value::NUMBER;
        for path in text.split(',') {
            let mut value = base;
            for name in path.split('.') {
                value = self.access(&Item::of(value), name.trim());
            }
            all = all.or(value);
        }
        all
    }

    /// What the filter of this name gives for `base`.
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
        // Which of its arguments names an attribute.
        let place = match name {
            "attr" | "selectattr" | "rejectattr" | "groupby" | "sum" => 0,
            "join" | "unique" | "min" | "max" => 1,
            "sort" => 2,
            "map" => return self.map(base, arguments, from, depth),
            _ if arguments.unpacked => return Value::ANY,
            _ => return self.plain_filter(name, base, arguments, from),
        };
        self.written_out(arguments);
        let positional = arguments.positional.get(from..).unwrap_or_default();
        if name == "attr" {
            let name = positional.first().or(arguments.keyword("name"));
            return match name.and_then(|name| name.literal.as_deref()) {
                Some(name) => self.access(base, name),
                None => {
                    self.reach("attr looks up a name that is not written out");
                    Value::ANY
                }
            };
        }
        let of = base.value;
        let item = self.names.part(of, None);
        let argument = positional.get(place).or(arguments.keyword("attribute"));
        let found = argument.map(|argument| self.attribute(argument, item));
        let given = |place: usize, name: &str| {
            positional.get(place).or(arguments.keyword(name)).map_or(Value::NUMBER, |item| item.value)
        };
        match name {
            "join" => Value::TEXT,
            "sum" => found.unwrap_or(item).or(given(1, "start")),
            "min" | "max" => item,
            "groupby" => {
                let key = found.unwrap_or(Value::NUMBER).or(given(1, "default"));
                Value::list(Value::list(key.or(of.listed())))
            }
            // selectattr, rejectattr, unique, sort
            _ => of.listed(),
        }
    }

    fn written_out(&mut self, arguments: &Arguments<'a>) {
        if arguments.unpacked {
            self.reach("a filter that looks something up is given what is not written out");
        }
    }

    /// An attribute of each item, or what a filter gives for it.
    fn map(&mut self, base: &Item<'a>, arguments: &Arguments<'a>, from: usize, depth: usize) -> Value {
        self.written_out(arguments);
        let item = self.names.part(base.value, None);
        let Some(filter) = arguments.positional.get(from) else {
            let default = arguments.keyword("default").map_or(Value::NUMBER, |item| item.value);
            let found = arguments.keyword("attribute").map(|argument| self.attribute(argument, item));
            return Value::list(found.unwrap_or(Value::ANY).or(default));
        };
        let Some(filter) = filter.literal.clone().filter(|_| depth < DEPTH) else {
            self.reach("map applies a filter that is not written out");
            return Value::ANY;
        };
        let mapped = self.filter_at(&filter, &Item::of(item), arguments, from + 1, depth + 1);
        Value::list(mapped)
    }

    /// A filter that looks nothing up.
    fn plain_filter(&mut self, name: &str, base: &Item<'a>, arguments: &Arguments<'a>, from: usize) -> Value {
        let of = base.value;
        match name {
            "trim" | "lower" | "upper" | "title" | "capitalize" => self.names.as_text(of).cut(),
            "safe" | "escape" | "e" | "forceescape" | "string" => self.names.as_text(of),
            // Text of it begins with a quote, a bracket, a digit or a word of JSON.
            "tojson" => Value::text(Kinds::PLAIN, Kinds::BUILT),
            "length" | "count" | "abs" | "wordcount" | "round" => Value::NUMBER,
            "int" | "float" => arguments.all_from(from),
            "default" | "d" => of.or(arguments.all_from(from)),
            "list" | "select" | "reject" => of.listed(),
            "items" | "dictsort" => of.pairs(),
            "batch" | "slice" => Value::list(of.listed().or(Value::list(arguments.all_from(from)))),
            "reverse" => of.some(),
            "first" | "last" | "random" => self.names.part(of, None),
            _ if TEXTS.contains(&name) => Value::TEXT,
            _ => Value::ANY,
        }
    }
}
