//! Keys of metadata and names in the bridge index: paths as text, without ambiguity.

use weighbridge_core::checkpoint::{Metadata, TensorPath};

/// Metadata key of the places of values in the tree: a map from keys to the number of tensors before the value, or to that number and
/// the type of a MessagePack extension.
pub(crate) const LEAVES: &str = "flax.leaves";
/// Metadata key of the paths of arrays with tensors, in a file where other containers are maps.
pub(crate) const ARRAYS: &str = "flax.arrays";

/// Returns the dotted path, or a JSON array if the dotted path is ambiguous or reserved.
pub(crate) fn key_of(path: &TensorPath) -> String {
    let dotted = path.to_text();
    let is_reserved = dotted.starts_with('[')
        || dotted.starts_with(Metadata::RESERVED_PREFIX)
        || [LEAVES, ARRAYS].contains(&dotted.as_str());
    let is_exact = !is_reserved && TensorPath::from_dotted(&dotted) == *path;
    if is_exact { dotted } else { path.to_json_text() }
}

/// Returns the path of a key.
pub(crate) fn path_of(key: &str) -> TensorPath {
    TensorPath::parse(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::checkpoint::Name;

    #[test]
    fn keys_are_exact_for_any_path() {
        let paths: [&[&[u8]]; 10] = [
            &[],
            &[b""],
            &[b"a"],
            &[b"a", b"b"],
            &[b"a.b"],
            &[b"a", b"", b"b"],
            &[b"[\"a\"]"],
            &[b"flax", b"leaves"],
            &[b"\xff", b"b"],
            &[b"weighbridge", b"index"],
        ];
        let keys = paths.map(|parts| {
            let path = TensorPath::new(parts.iter().map(Name::new).collect::<Vec<_>>());
            let key = key_of(&path);
            assert_eq!(path_of(&key), path, "{key}");
            key
        });
        assert_eq!(keys.iter().collect::<std::collections::HashSet<_>>().len(), paths.len());
        assert_eq!((&*keys[2], &*keys[3], &*keys[4]), ("a", "a.b", "[\"a.b\"]"));
    }
}
