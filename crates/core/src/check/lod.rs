//! Check of LoD (nested sequences of rows) against the rows of a tensor.

use crate::checkpoint::{TensorEntry, Value};
use crate::finding::Finding;

/// Attribute with the LoD: a list of levels, each a list of offsets.
pub(super) const LOD: &str = "lod";

/// Checks the attribute `lod` of every tensor against the documented rules of Paddle, which Paddle does not enforce. A level
/// begins with 0 and ascends; its last offset is the number of sequences of the next level, and that of the last level the number
/// of rows.
///
/// Warnings: `lod-form`, `lod-start`, `lod-order`, `lod-end`; at most one per tensor, since one mistake causes others.
pub fn lod(tensors: &[TensorEntry]) -> Vec<Finding> {
    tensors.iter().filter_map(|t| one(t).map(|finding| finding.on_tensor(t.name()))).collect()
}

fn one(tensor: &TensorEntry) -> Option<Finding> {
    let levels = match tensor.attributes.get(LOD)? {
        Value::List(levels) => levels,
        _ => return Some(Finding::warning("lod-form", "the LoD is not a list of levels")),
    };
    let Some(levels) = levels.iter().map(offsets).collect::<Option<Vec<_>>>() else {
        return Some(Finding::warning("lod-form", "a LoD level is not a list of offsets"));
    };
    // A scalar counts as one row.
    let rows = tensor.shape.dims().first().copied().unwrap_or(1);
    for (place, level) in levels.iter().enumerate() {
        let (Some(&first), Some(&last)) = (level.first(), level.last()) else {
            let text = format!("LoD level {place} has no offsets");
            return Some(Finding::warning("lod-start", text));
        };
        if first != 0 {
            let text = format!("LoD level {place} begins with {first}, not with 0");
            return Some(Finding::warning("lod-start", text));
        }
        if let Some(pair) = level.windows(2).find(|pair| pair[0] > pair[1]) {
            let text = format!("LoD level {place} descends from {} to {}", pair[0], pair[1]);
            return Some(Finding::warning("lod-order", text));
        }
        let (expected, what) = match levels.get(place + 1) {
            Some(next) => ((next.len() as u64).saturating_sub(1), "sequences of the next level"),
            None => (rows, "rows of the tensor"),
        };
        if last != expected {
            let text = format!("LoD level {place} ends with {last}, but there are {expected} {what}");
            return Some(Finding::warning("lod-end", text));
        }
    }
    None
}

fn offsets(level: &Value) -> Option<Vec<u64>> {
    let Value::List(offsets) = level else { return None };
    let number = |value: &Value| match value {
        Value::U64(n) => Some(*n),
        Value::U32(n) => Some((*n).into()),
        Value::I64(n) => u64::try_from(*n).ok(),
        _ => None,
    };
    offsets.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{source, tensor};
    use super::*;
    use crate::tensor::DType;

    fn code(value: Value) -> Option<&'static str> {
        let mut entry = tensor("x", DType::U8, &[8, 2], &source(16), 0);
        entry.attributes.insert(LOD.to_owned(), value);
        lod(&[entry]).first().map(|f| f.code.as_str())
    }

    fn levels(levels: &[&[u64]]) -> Value {
        Value::List(levels.iter().map(|l| Value::List(l.iter().map(|&n| Value::U64(n)).collect())).collect())
    }

    #[test]
    fn lod_must_match_the_rows() {
        assert_eq!(code(levels(&[])), None);
        assert_eq!(code(levels(&[&[0, 3, 3, 8]])), None);
        assert_eq!(code(levels(&[&[0, 2], &[0, 3, 8]])), None);
        assert_eq!(code(levels(&[&[0, 3, 99]])), Some("lod-end"));
        assert_eq!(code(levels(&[&[0, 3], &[0, 3, 8]])), Some("lod-end"));
        assert_eq!(code(levels(&[&[1, 8]])), Some("lod-start"));
        assert_eq!(code(levels(&[&[]])), Some("lod-start"));
        assert_eq!(code(levels(&[&[0, 5, 4, 8]])), Some("lod-order"));
        assert_eq!(code(Value::U64(3)), Some("lod-form"));
        assert_eq!(code(Value::List(vec![Value::Text("0".into())])), Some("lod-form"));
        assert_eq!(lod(&[tensor("x", DType::U8, &[8, 2], &source(16), 0)]), []);
    }
}
