//! Detection of BigGraph's HDF5 files by their contents.

use weighbridge_core::checkpoint::Value;
use weighbridge_core::error::{Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_hdf5::Contents;
use weighbridge_io::source::SourceRef;

/// Attribute of every BigGraph file.
pub(super) const FORMAT_VERSION: &str = "format_version";
/// Attribute with the configuration; the slash is part of its name.
pub(super) const CONFIG_JSON: &str = "config/json";
/// HDF5 signature.
const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

/// Types of BigGraph's HDF5 files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    /// The edges of one bucket.
    Edges,
    /// One partition of the embeddings of a type.
    Embeddings,
    /// Parameters of operators and global embeddings.
    Model,
}

/// Detects the type of `source`; `None` if it is not a BigGraph file, or too damaged to detect.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`].
pub(super) fn detect(head: &[u8], source: &SourceRef) -> Result<Option<FileKind>> {
    if !head.starts_with(SIGNATURE) {
        return Ok(None);
    }
    match weighbridge_hdf5::read(source, &Limits::default()) {
        Ok(contents) => Ok(kind_of(&contents)),
        Err(error) if error.kind() == Kind::Io => Err(error),
        Err(_) => Ok(None),
    }
}

/// Type of the file with these contents.
///
/// Three columns make an edge file, whatever else it has. The others need their datasets
/// and at least one of the attributes: `embeddings` alone could be from any program.
pub(super) fn kind_of(contents: &Contents) -> Option<FileKind> {
    let dataset = |name: &str| {
        contents.items.iter().any(|item| item.dataset.is_some() && item.path.as_slice() == [name])
            // A damaged dataset counts as well.
            || contents.problems.iter().any(|problem| problem.path.as_slice() == [name])
    };
    let attribute = |name: &str| contents.attributes.iter().any(|(own, _)| own == name);
    let marked = attribute(FORMAT_VERSION) || attribute(CONFIG_JSON);
    let columns = ["lhs", "rhs", "rel"].into_iter().filter(|name| dataset(name)).count();
    if columns == 3 || (columns > 0 && marked) {
        Some(FileKind::Edges)
    } else if !marked {
        None
    } else if dataset("embeddings") {
        Some(FileKind::Embeddings)
    } else if contents.items.iter().any(|item| item.path.as_slice() == ["model"]) {
        Some(FileKind::Model)
    } else {
        None
    }
}

/// True for a `format_version` that BigGraph accepts. It compares with Python's `!= 1`: any number
/// equal to 1 passes, also as an array of one element; text does not.
pub(super) fn is_version_one(value: &Value) -> bool {
    match value {
        Value::I64(n) => *n == 1,
        Value::U32(n) => *n == 1,
        Value::U64(n) => *n == 1,
        Value::Bool(b) => *b,
        Value::F32(bits) => f32::from_bits(*bits) == 1.0,
        Value::F64(bits) => f64::from_bits(*bits) == 1.0,
        // No deeper: nested arrays of one element are rare, and follow the same rule in Python.
        Value::List(items) => match items.as_slice() {
            [Value::List(_)] | [] => false,
            [one] => is_version_one(one),
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_core::error::Error;
    use weighbridge_io::source::Source;

    /// Source with failing reads.
    #[derive(Debug)]
    struct Failing;

    impl Source for Failing {
        fn len(&self) -> u64 {
            1 << 20
        }
        fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
            Err(Error::io("cannot read", std::io::ErrorKind::Other.into()))
        }
        fn label(&self) -> &str {
            "failing"
        }
    }

    #[test]
    fn read_errors_are_not_detection_results() {
        let source: SourceRef = Arc::new(Failing);
        assert_eq!(detect(SIGNATURE, &source).unwrap_err().kind(), Kind::Io);
        assert_eq!(detect(b"PK", &source).unwrap(), None);
    }

    #[test]
    fn compares_versions_like_python() {
        let float = |x: f64| Value::F64(x.to_bits());
        for one in [Value::I64(1), Value::U64(1), float(1.0), Value::List(vec![Value::I64(1)])] {
            assert!(is_version_one(&one), "{one:?}");
        }
        let two = vec![Value::I64(1), Value::I64(1)];
        for other in
            [Value::I64(2), Value::Text("1".into()), float(1.5), Value::List(two), Value::List(vec![])]
        {
            assert!(!is_version_one(&other), "{other:?}");
        }
    }
}
