//! Names of tensors from keys, and keys from names.
//!
//! A key of a checkpoint of objects is the path of an object and its attribute:
//!
//! ```text
//! net/layer-0/kernel/.ATTRIBUTES/VARIABLE_VALUE
//! net/layer-0/kernel/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE
//! ```
//!
//! Any other key is a name: `dense/kernel`, `dense/kernel/Adam`.

use weighbridge_core::checkpoint::{Name, TensorPath, escape_text};

/// Separator of the path of an object and its attribute.
const ATTRIBUTES: &[u8] = b".ATTRIBUTES";
/// Separator of the path of a variable and that of its slot.
const SLOT: &[u8] = b".OPTIMIZER_SLOT";
/// Attribute of a variable.
const VALUE: &[u8] = b"VARIABLE_VALUE";

/// Name of a tensor, from its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// Path; that of the variable for a slot.
    pub(crate) path: TensorPath,
    /// Path of the optimizer, and name of the slot.
    pub(crate) slot: Option<(String, String)>,
    /// True for a key of an object.
    pub(crate) is_object: bool,
}

/// Returns the name of a key.
pub(crate) fn of_key(key: &[u8]) -> Named {
    let parts: Vec<&[u8]> = key.split(|&byte| byte == b'/').collect();
    let Some(end) = parts.iter().position(|part| *part == ATTRIBUTES) else {
        let path = TensorPath::new(parts.into_iter().map(Name::new).collect::<Vec<_>>());
        return Named { path, slot: None, is_object: false };
    };
    let (object, attribute) = (&parts[..end], &parts[end + 1..]);
    let tail: Vec<Name> = match attribute {
        [VALUE] => Vec::new(),
        other => other.iter().map(Name::new).collect(),
    };
    let join =
        |parts: &[&[u8]]| -> Vec<Name> { parts.iter().map(|part| Name::new(unescaped(part))).collect() };
    if let Some(split) = object.iter().position(|part| *part == SLOT)
        && let ([optimizer @ .., slot], true) = (&object[split + 1..], tail.is_empty())
    {
        let optimizer = TensorPath::new(join(optimizer)).to_text();
        let slot = Name::new(unescaped(slot)).to_text();
        return Named {
            path: TensorPath::new(join(&object[..split])),
            slot: Some((optimizer, slot)),
            is_object: true,
        };
    }
    let mut path = join(object);
    path.extend(tail);
    Named { path: TensorPath::new(path), slot: None, is_object: true }
}

/// Returns the key of a tensor that has none yet.
pub(crate) fn to_key(path: &TensorPath, slot: Option<&Name>, is_object: bool) -> Vec<u8> {
    let parts = path.parts().iter().chain(slot);
    let mut key = Vec::new();
    for (place, part) in parts.enumerate() {
        if place > 0 {
            key.push(b'/');
        }
        match is_object {
            true => key.extend(escaped(part.as_bytes())),
            false => key.extend_from_slice(part.as_bytes()),
        }
    }
    if is_object {
        for part in [ATTRIBUTES, VALUE] {
            key.push(b'/');
            key.extend_from_slice(part);
        }
    }
    key
}

/// Reverts the escapes of a name within a path: `..` is a dot, `.S` a slash.
fn unescaped(part: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some((&first, next)) = rest.split_first() {
        (rest, _) = match (first, next) {
            (b'.', [b'.', after @ ..]) => (after, out.push(b'.')),
            (b'.', [b'S', after @ ..]) => (after, out.push(b'/')),
            _ => (next, out.push(first)),
        };
    }
    out
}

/// Escapes dots and slashes of a name within a path.
fn escaped(part: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.len());
    for &byte in part {
        match byte {
            b'.' => out.extend_from_slice(b".."),
            b'/' => out.extend_from_slice(b".S"),
            byte => out.push(byte),
        }
    }
    out
}

/// Returns a key for messages.
pub(crate) fn shown(key: &[u8]) -> String {
    escape_text(&Name::new(key).to_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_names_match() {
        let value = |path: &str| format!("{path}/.ATTRIBUTES/VARIABLE_VALUE").into_bytes();
        let named = of_key(&value("net/layer-0/a..b.Sc"));
        assert_eq!(named.path.parts().last().unwrap().as_bytes(), b"a.b/c");
        assert_eq!(to_key(&named.path, None, true), value("net/layer-0/a..b.Sc"));
        let named = of_key(&value("net/kernel/.OPTIMIZER_SLOT/opt/inner/m"));
        assert_eq!(named.path.to_text(), "net.kernel");
        assert_eq!(named.slot, Some(("opt.inner".to_owned(), "m".to_owned())));
        let named = of_key(b"table/.ATTRIBUTES/table-keys");
        assert_eq!((named.path.to_text().as_str(), named.is_object), ("table.table-keys", true));
        let named = of_key(b"dense/a.b/kernel");
        assert_eq!(named.path.parts().len(), 3);
        assert_eq!(to_key(&named.path, Some(&Name::from("Adam")), false), b"dense/a.b/kernel/Adam");
    }
}
