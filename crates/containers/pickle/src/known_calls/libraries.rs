//! Call forms of common libraries.

use super::super::allowed::{ImportVerdict, allowed};
use super::super::libraries::{Call, Known, known};
use super::numpy::{element_size, is_array_class, masked_state};
use super::snapshot::Snapshot;
use super::{attributes, called, count, ints, is_atom, is_bytes, is_container, is_number, is_text};
use crate::graph::{Object, ObjectId, ReduceKind, Reduced};

/// Maximum value of a number that a constructor allocates memory for.
const MAX_NUMBER: i64 = 1 << 32;
/// Maximum number of elements of an array that is made before its state is set.
const MAX_INITIAL_ELEMENTS: u64 = 1 << 10;

/// Returns true if arguments and states of a listed import have the form that its own library writes.
pub(super) fn is_known_call(graph: Snapshot<'_>, made: &Reduced, known: Known, args: &[ObjectId]) -> bool {
    let seen = Snapshot::at(graph.graph, made.built);
    let state = |states: &str| {
        made.states.iter().all(|&state| states.chars().any(|kind| state_matches(seen, kind, state)))
    };
    match known {
        Known::Value => false,
        Known::Object => args.is_empty() && made.pairs.is_empty() && state("d"),
        Known::Mapping => args.is_empty() && are_plain_keys(seen, &made.pairs) && state("di"),
        Known::Distribution => args.is_empty() && made.pairs.is_empty() && state("v"),
        Known::Call(call) => {
            let package = graph.global(made.callable).map_or("", |(module, _)| package(module));
            made.pairs.is_empty()
                && match call.states {
                    // joblib reads the array after each state.
                    "j" => made.how == ReduceKind::NewObj && made.states.len() == 1,
                    _ => matches!(made.how, ReduceKind::Reduce | ReduceKind::NewObj),
                }
                && args_match(graph, call, package, args)
                && state(call.states)
        }
    }
}

/// Returns true if protocols 0 and 1 reconstruct objects of that class from that base.
pub(super) fn is_object_class(module: &str, name: &str, base: &str) -> bool {
    match known(module, name) {
        Some(Known::Object) => base == "object",
        Some(Known::Mapping) => base == "dict",
        Some(Known::Distribution) => base == "object",
        // A subclass of tuple only.
        Some(Known::Call(_)) if base == "tuple" => true,
        Some(Known::Call(call)) => {
            base == "object" && call.states != "j" && (call.args.starts_with('?') || call.args.is_empty())
        }
        _ => false,
    }
}

/// Kinds of state for a class whose objects protocols 0 and 1 reconstruct.
pub(super) fn states_of(module: &str, name: &str) -> &'static str {
    match known(module, name) {
        Some(Known::Call(call)) => call.states,
        Some(Known::Mapping) => "di",
        Some(Known::Distribution) => "v",
        _ => "d",
    }
}

/// Returns true for a state of that kind.
pub(super) fn state_matches(graph: Snapshot<'_>, kind: char, state: ObjectId) -> bool {
    let has_attributes = || matches!(graph.graph.object(state), Object::Dict(_)) && attributes(graph, state);
    // A dict with a decisive entry must not change after the call.
    let has_entries = || matches!(graph.object(state), Object::Dict(_)) && attributes(graph, state);
    let entry = |name: &str| entry(graph, state, name);
    match kind {
        'd' => has_attributes(),
        't' => graph.tuple(state).is_some(),
        's' => attributes(graph, state),
        'm' => graph.tuple(state).is_some_and(|state| masked_state(graph, state)),
        // A dict whose items are its attributes.
        'i' => made_by(graph, state)
            .is_some_and(|(module, name)| matches!(known(module, name), Some(Known::Mapping))),
        // A model that the library parses itself; the state must not hold a memory address instead.
        'b' => {
            has_entries()
                && entry("handle")
                    .is_none_or(|id| id == ObjectId::NONE || is_bytes(graph, id) || is_byte_array(graph, id))
        }
        'h' => {
            let text = |name| entry(name).is_none_or(|id| id == ObjectId::NONE || is_text(graph, id));
            has_entries() && text("handle") && text("_handle")
        }
        // The library evaluates a formula again.
        'e' => {
            let evaluates =
                ["restore_design_info", "restore_model_spec"].map(entry).iter().any(Option::is_some);
            let plain = || entry("formula").and_then(|id| graph.text(id)).is_some_and(is_plain_formula);
            // Names are looked up in the frame first. Without one, a method of the endogenous variable makes it.
            let of_pandas = |id: ObjectId| {
                id == ObjectId::NONE
                    || made_by(graph, id).is_some_and(|(module, _)| package(module) == "pandas")
            };
            let table = || entry("frame").or_else(|| entry("orig_endog")).is_none_or(of_pandas);
            has_entries() && (!evaluates || (plain() && table()))
        }
        'v' => {
            let template = entry("_parse_arg_template").and_then(|id| graph.text(id));
            has_entries() && template.is_some_and(is_argument_parser)
        }
        'j' => is_array_of_joblib(graph, state),
        _ => false,
    }
}

/// Returns true for keys that are safe in a dict whose items may be attributes: no key is a dunder name, and none is the result
/// of a call that could be one.
pub(super) fn are_plain_keys(graph: Snapshot<'_>, pairs: &[(ObjectId, ObjectId)]) -> bool {
    pairs.iter().all(|&(key, _)| match graph.object(key) {
        Object::Text(_) | Object::ByteString(_) => graph.text(key).is_none_or(|key| !key.starts_with("__")),
        Object::Tuple(_) | Object::FrozenSet(_) | Object::Bytes(_) => true,
        _ => is_atom(graph, key),
    })
}

/// Returns true for an array description in joblib's own form. joblib reads the following bytes by these attributes (the last
/// of a name counts) and by methods, which other attributes could replace.
fn is_array_of_joblib(graph: Snapshot<'_>, state: ObjectId) -> bool {
    const PADDING: &str = "numpy_array_alignment_bytes";
    let Object::Dict(pairs) = graph.object(state) else { return false };
    let mut missing = vec!["subclass", "shape", "order", "dtype", "allow_mmap", PADDING];
    let fits = pairs.iter().all(|&(key, value)| {
        let place = graph.text(key).and_then(|key| missing.iter().position(|&name| name == key));
        match place.map(|place| missing.swap_remove(place)) {
            Some("subclass") => {
                is_array_class(graph, value)
                    && graph.global(value).is_some_and(|(module, _)| package(module) == "numpy")
            }
            // joblib counts the elements with numbers of 64 bits.
            Some("shape") => {
                graph.tuple(value).is_some()
                    && ints(graph, value)
                        .and_then(|shape| count(&shape))
                        .is_some_and(|count| i64::try_from(count).is_ok())
            }
            Some("order") => matches!(graph.text(value), Some("C" | "F")),
            Some("dtype") => {
                graph.made(value).is_some() && element_size(graph.graph, value, graph.at).is_some()
            }
            Some("allow_mmap") => matches!(graph.object(value), Object::Bool(_)),
            Some(_) => value == ObjectId::NONE || graph.int(value).is_some(),
            None => false,
        }
    });
    fits && matches!(*missing, [] | [PADDING])
}

/// Value of a key of a dict; the last one for duplicates.
fn entry(graph: Snapshot<'_>, dict: ObjectId, name: &str) -> Option<ObjectId> {
    let Object::Dict(pairs) = graph.graph.object(dict) else { return None };
    pairs.iter().rev().find(|&&(key, _)| graph.text(key) == Some(name)).map(|&(_, value)| value)
}

/// Returns true for a formula of names, numbers and operators. patsy evaluates each term as Python code; the only calls allowed
/// are numpy functions that compute, and patsy's own.
fn is_plain_formula(formula: &str) -> bool {
    const FUNCTIONS: &[&str] = &[
        "C",
        "I",
        "np.log",
        "np.log1p",
        "np.log10",
        "np.exp",
        "np.sqrt",
        "np.power",
        "center",
        "standardize",
    ];
    let is_name = |c: char| c == '_' || c == '.' || c.is_ascii_alphanumeric();
    let mut rest = formula;
    while let Some(first) = rest.chars().next() {
        let len =
            if is_name(first) { rest.find(|c| !is_name(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (word, behind) = rest.split_at(len);
        let calls = is_name(first) && behind.trim_start().starts_with('(');
        let number = word.parse::<f64>().is_ok();
        let fits = if is_name(first) {
            number || (!word.contains("__") && (FUNCTIONS.contains(&word) || !calls && !word.contains('.')))
        } else {
            matches!(first, ' ' | '~' | '+' | '-' | '*' | ':' | '/' | '(' | ')' | ',')
        };
        // Only a name may be called.
        if !fits || (first == ')' && behind.trim_start().starts_with('(')) {
            return false;
        }
        rest = behind;
    }
    // A power of a power could be an integer of any length.
    match formula.split_once("**") {
        None => true,
        Some((_, power)) => {
            let power = power.trim_start();
            let behind = power.strip_prefix(['2', '3']);
            behind.is_some_and(|rest| !rest.starts_with(is_name)) && !power.contains("**")
        }
    }
}

/// Returns true for the exact source text that scipy generates for a distribution with its parameter names. scipy executes
/// this text on load.
fn is_argument_parser(text: &str) -> bool {
    let Some((given, _)) =
        text.strip_prefix("\ndef _parse_args(self, ").and_then(|rest| rest.split_once("):\n"))
    else {
        return false;
    };
    let places = [("loc=0, scale=1", "loc, scale"), ("loc=0", "loc, 1"), ("", "loc, scale")];
    places.into_iter().any(|(default, place)| {
        let Some(shapes) = given.strip_suffix(default).and_then(|given| given.strip_suffix(' ')) else {
            return false;
        };
        let names = shapes.split_terminator(", ").chain(shapes.split_terminator(","));
        let plain =
            names.into_iter().all(|name| name.trim().chars().all(|c| c == '_' || c.is_ascii_alphanumeric()));
        plain
            && text
                == format!(
                    "\ndef _parse_args(self, {shapes} {default}):\n    return ({shapes}), {place}\n\n\
                     def _parse_args_rvs(self, {shapes} {default}, size=None):\n    \
                     return self._argcheck_rvs({shapes} {place}, size=size)\n\n\
                     def _parse_args_stats(self, {shapes} {default}, moments='mv'):\n    \
                     return ({shapes}), {place}, moments\n"
                )
    })
}

fn args_match(graph: Snapshot<'_>, call: &Call, package: &str, args: &[ObjectId]) -> bool {
    let (needed, more) = call.args.split_once('?').unwrap_or((call.args, ""));
    let kinds = needed.chars().chain(more.chars());
    (needed.len()..=needed.len() + more.len()).contains(&args.len())
        && kinds.zip(args).all(|(kind, &id)| is_arg(graph, kind, package, id))
}

fn is_arg(graph: Snapshot<'_>, kind: char, package: &str, id: ObjectId) -> bool {
    match kind {
        'p' => is_plain(graph, package, id),
        'n' => match graph.object(id) {
            Object::Int(n) => (-MAX_NUMBER..=MAX_NUMBER).contains(n),
            _ => is_number(graph, id),
        },
        't' => is_text(graph, id) || is_bytes(graph, id),
        'z' => graph.text(id).is_some_and(is_zone),
        // No exponents: a power of ten could have any number of digits.
        'r' => match graph.text(id) {
            Some(text) => text.chars().all(|c| matches!(c, '0'..='9' | '+' | '-' | '.' | '/')),
            None => is_number(graph, id),
        },
        'c' => graph.global(id).is_some_and(|(module, name)| match known(module, name) {
            Some(Known::Value | Known::Call(_)) => self::package(module) == package,
            known => known.is_none() && is_reported(module, name),
        }),
        'g' => {
            let by = graph.global(id).or_else(|| made_by(graph, id));
            graph.text(id).is_some() || by.is_some_and(|(module, _)| module.starts_with("numpy.random."))
        }
        'd' => matches!(graph.object(id), Object::Dict(pairs) if pairs.iter().all(|&(key, value)| {
            graph.text(key).is_some_and(|key| !key.starts_with("__")) && is_plain(graph, package, value)
        })),
        's' => ints(graph, id).and_then(|shape| count(&shape)).is_some_and(|n| n <= MAX_INITIAL_ELEMENTS),
        'f' => graph.global(id) == Some(("numpy.random._pickle", "__bit_generator_ctor")),
        '-' => id == ObjectId::NONE,
        _ => false,
    }
}

/// Returns true for a value, a container, a named type, an array, an object of the same package, a date, a slice.
fn is_plain(graph: Snapshot<'_>, package: &str, id: ObjectId) -> bool {
    if is_atom(graph, id) || is_container(graph, id) || is_bytes(graph, id) || is_byte_array(graph, id) {
        return true;
    }
    if let Some((module, name)) = graph.global(id) {
        return known(module, name).is_some()
            || matches!(module, "numpy" | "datetime" | "builtins" | "__builtin__")
            || is_reported(module, name);
    }
    match made_by(graph, id) {
        Some(("builtins" | "__builtin__", name)) => name == "slice",
        Some((module, name)) if is_reported(module, name) => true,
        Some((module, _)) => {
            let of = self::package(module);
            of == package
                || matches!(
                    of,
                    "numpy" | "pandas" | "scipy" | "sklearn" | "datetime" | "pytz" | "decimal" | "joblib"
                )
        }
        None => is_zone_call(graph, id),
    }
}

/// Returns true if the import is reported by itself.
fn is_reported(module: &str, name: &str) -> bool {
    matches!(
        allowed(module, name),
        ImportVerdict::Unknown | ImportVerdict::Dangerous(_) | ImportVerdict::Defined(_)
    )
}

/// Returns true for a `bytearray` written as a call, as in protocols before 5.
fn is_byte_array(graph: Snapshot<'_>, id: ObjectId) -> bool {
    matches!(called(graph, id), Some(("builtins" | "__builtin__", "bytearray")))
}

/// Callable that makes the object, or the class of an object that protocols 0 and 1 reconstruct.
fn made_by<'a>(graph: Snapshot<'a>, id: ObjectId) -> Option<(&'a str, &'a str)> {
    let made = graph.made(id)?;
    match called(graph, id)? {
        ("copyreg" | "copy_reg", "_reconstructor") => graph.global(*graph.tuple(made.args)?.first()?),
        by => Some(by),
    }
}

/// Package of a module: the name before its first dot.
fn package(module: &str) -> &str {
    module.split('.').next().unwrap_or(module)
}

/// Returns true for the name of a time zone without any path traversal.
fn is_zone(name: &str) -> bool {
    !name.is_empty()
        && name.split('/').all(|part| !part.is_empty())
        && name.chars().all(|c| matches!(c, '/' | '_' | '+' | '-') || c.is_ascii_alphanumeric())
}

/// Returns true for `getattr(zoneinfo.ZoneInfo, "_unpickle")`, which Python writes for time zones, and for methods of `interp1d`
/// and distributions that scipy stores.
pub(super) fn is_known_method(graph: Snapshot<'_>, made: &Reduced) -> bool {
    let Some(&[of, name]) = graph.tuple(made.args) else { return false };
    let Some(name) = graph.text(name) else { return false };
    let distribution = || {
        // The distribution holds the method, so its state is set later.
        let made =
            made_by(Snapshot::at(graph.graph, u64::MAX), of).and_then(|(module, name)| known(module, name));
        matches!(made, Some(Known::Distribution))
    };
    made.how == ReduceKind::Reduce
        && made.states.is_empty()
        && match graph.global(of) {
            Some(("zoneinfo", "ZoneInfo")) => name == "_unpickle",
            Some(("scipy.interpolate._interpolate", "interp1d")) => name.starts_with("_call_"),
            None => name == "_entropy" && distribution(),
            _ => false,
        }
}

/// Returns true for a call of that method with the name of a time zone.
pub(super) fn is_zone_call(graph: Snapshot<'_>, id: ObjectId) -> bool {
    let Some(made) = graph.made(id) else { return false };
    let Some(method) = graph.made(made.callable) else { return false };
    let of_zones = graph.global(method.callable).is_some_and(|(_, name)| name == "getattr")
        && is_known_method(graph, method)
        && graph.tuple(method.args).and_then(|args| args.first()).and_then(|&of| graph.global(of))
            == Some(("zoneinfo", "ZoneInfo"));
    let args = graph.tuple(made.args).unwrap_or_default();
    of_zones
        && made.how == ReduceKind::Reduce
        && made.states.is_empty()
        && matches!(*args, [zone, cached] if graph.text(zone).is_some_and(is_zone) && is_number(graph, cached))
}

/// Returns true for a `functools.partial` of a listed function, which is called when the object is used.
pub(super) fn is_partial(graph: Snapshot<'_>, made: &Reduced) -> bool {
    let listed = |id: ObjectId| {
        graph.global(id).is_some_and(|(module, name)| {
            matches!(known(module, name), Some(Known::Value | Known::Object)) || is_reported(module, name)
        })
    };
    let Some(&[function]) = graph.tuple(made.args) else { return false };
    let seen = Snapshot::at(graph.graph, made.built);
    let state = |state: ObjectId| match seen.tuple(state) {
        Some(&[of, args, named, attributes]) => {
            of == function
                && seen.tuple(args).is_some()
                && matches!(seen.object(named), Object::Dict(_))
                && (attributes == ObjectId::NONE
                    || matches!(seen.object(attributes), Object::Dict(all) if all.is_empty()))
        }
        _ => false,
    };
    made.how == ReduceKind::Reduce
        && listed(function)
        && made.states.len() <= 1
        && made.states.iter().all(|&id| state(id))
}

/// Returns true for `type(None)`: Python writes the types of its constants this way.
pub(super) fn is_type_of_constant(graph: Snapshot<'_>, made: &Reduced) -> bool {
    let constant = |id: ObjectId| {
        id == ObjectId::NONE
            || matches!(graph.global(id), Some(("builtins" | "__builtin__", "Ellipsis" | "NotImplemented")))
    };
    made.how == ReduceKind::Reduce
        && made.states.is_empty()
        && matches!(graph.tuple(made.args), Some(&[id]) if constant(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_with_names_and_operators_are_plain() {
        for plain in ["y ~ a + b", "t ~ C(a):b - 1", "y ~ np.log(a) * b", "a ~ I(b ** 2)", "y ~ (a + b) ** 2"]
        {
            assert!(is_plain_formula(plain), "{plain}");
        }
        for not in [
            "y ~ __import__('os')",
            "y ~ os.system(a)",
            "y ~ exec(a)",
            "y ~ a[0]",
            "y ~ C.__class__",
            "y ~ (C)(a)",
            "y ~ (lambda: a)()",
            "y ~ 9**9**9**9",
            "y ~ I(9**29999999999)",
            "y ~ 'a'",
        ] {
            assert!(!is_plain_formula(not), "{not}");
        }
    }

    #[test]
    fn only_scipys_own_argument_parsers_are_plain() {
        let parser = |shapes: &str, inner: &str| {
            format!(
                "\ndef _parse_args(self, {shapes} loc=0, scale=1):\n    return ({shapes}), loc, scale\n\n\
                 def _parse_args_rvs(self, {shapes} loc=0, scale=1, size=None):\n    \
                 return self._argcheck_rvs({shapes} loc, scale, size=size)\n\n\
                 def _parse_args_stats(self, {shapes} loc=0, scale=1, moments='mv'):\n    \
                 return ({shapes}), loc, scale, moments\n{inner}"
            )
        };
        assert!(is_argument_parser(&parser("", "")) && is_argument_parser(&parser("a, b, ", "")));
        for not in [parser("", "import os"), parser("a=os.getcwd(), ", ""), String::new()] {
            assert!(!is_argument_parser(&not), "{not}");
        }
    }

    #[test]
    fn zone_names_reject_path_traversal() {
        assert!(["UTC", "Europe/Berlin", "Etc/GMT+5"].into_iter().all(is_zone));
        assert!(!["", "/etc/passwd", "../x", "a//b", "a/", "a\0"].into_iter().any(is_zone));
    }
}
