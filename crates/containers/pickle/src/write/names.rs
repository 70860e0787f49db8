//! Names that moved between Python 2 and Python 3, limited to those that occur in models.

/// Python version of the module names in a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleNames {
    /// Names of protocols 0 to 2, such as `__builtin__`.
    Python2,
    /// Names of later protocols, such as `builtins`.
    Python3,
}

/// Renamed modules: Python 2 name, Python 3 name.
const MODULES: &[(&str, &str)] = &[
    ("__builtin__", "builtins"),
    ("copy_reg", "copyreg"),
    ("cPickle", "pickle"),
    ("Queue", "queue"),
    ("ConfigParser", "configparser"),
    ("repr", "reprlib"),
    ("thread", "_thread"),
    ("dummy_thread", "_dummy_thread"),
    ("commands", "subprocess"),
    ("_abcoll", "collections.abc"),
];

/// Names that moved or were renamed with their module: Python 2, Python 3.
const NAMES: &[[(&str, &str); 2]] = &[
    [("__builtin__", "xrange"), ("builtins", "range")],
    [("__builtin__", "reduce"), ("functools", "reduce")],
    [("__builtin__", "intern"), ("sys", "intern")],
    [("__builtin__", "unichr"), ("builtins", "chr")],
    [("__builtin__", "unicode"), ("builtins", "str")],
    [("__builtin__", "long"), ("builtins", "int")],
    [("itertools", "izip"), ("builtins", "zip")],
    [("itertools", "imap"), ("builtins", "map")],
    [("itertools", "ifilter"), ("builtins", "filter")],
    [("itertools", "ifilterfalse"), ("itertools", "filterfalse")],
    [("itertools", "izip_longest"), ("itertools", "zip_longest")],
    [("UserDict", "IterableUserDict"), ("collections", "UserDict")],
    [("UserList", "UserList"), ("collections", "UserList")],
    [("UserString", "UserString"), ("collections", "UserString")],
    [("exceptions", "BaseException"), ("builtins", "BaseException")],
    [("exceptions", "Exception"), ("builtins", "Exception")],
    [("exceptions", "KeyboardInterrupt"), ("builtins", "KeyboardInterrupt")],
    [("exceptions", "StopIteration"), ("builtins", "StopIteration")],
    [("exceptions", "SystemExit"), ("builtins", "SystemExit")],
];

/// Returns the name that protocol 2 writes for a Python 3 name.
pub(super) fn to_python2<'a>(module: &'a str, name: &'a str) -> (&'a str, &'a str) {
    if let Some([old, _]) = NAMES.iter().find(|[_, new]| *new == (module, name)) {
        return *old;
    }
    let old = MODULES.iter().find(|(_, new)| *new == module);
    (old.map_or(module, |(old, _)| old), name)
}

/// Returns the Python 3 name for a name of protocol 2.
pub(super) fn to_python3<'a>(module: &'a str, name: &'a str) -> (&'a str, &'a str) {
    if let Some([_, new]) = NAMES.iter().find(|[old, _]| *old == (module, name)) {
        return *new;
    }
    let new = MODULES.iter().find(|(old, _)| *old == module);
    (new.map_or(module, |(_, new)| new), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_both_ways() {
        for [old, new] in NAMES {
            assert_eq!(to_python3(old.0, old.1), *new);
            assert_eq!(to_python2(new.0, new.1), *old);
        }
        assert_eq!(to_python2("builtins", "bytes"), ("__builtin__", "bytes"));
        assert_eq!(to_python3("copy_reg", "_reconstructor"), ("copyreg", "_reconstructor"));
        assert_eq!(to_python2("numpy", "dtype"), ("numpy", "dtype"));
    }
}
