//! Check of the extents of a tensor: within their sources, and covering the tensor exactly once.

use crate::checkpoint::{Extent, TensorEntry};
use crate::finding::Finding;

/// Maximum pairs of extents compared for one tensor; beyond that it is unchecked.
const MAX_PAIRS: u64 = 10_000_000;

/// Checks the extents of every tensor against their sources and its shape: `past-the-end`, `piece-outside`, `piece-length`,
/// `pieces-overlap`, `pieces-incomplete`. At most one finding per tensor.
pub fn extents(tensors: &[TensorEntry]) -> Vec<Finding> {
    tensors.iter().filter_map(|t| one(t).map(|finding| finding.on_tensor(t.name()))).collect()
}

fn one(tensor: &TensorEntry) -> Option<Finding> {
    let mut filled = Some(0u64);
    for extent in &tensor.extents {
        if let Err(error) = crate::source::check_range(&*extent.source, extent.offset, extent.len) {
            return Finding::from_error(&error);
        }
        let region = extent.region(&tensor.shape);
        if !region.fits(&tensor.shape) {
            return Some(place(
                extent,
                Finding::error("piece-outside", "an extent exceeds the shape of the tensor"),
            ));
        }
        let shape = region.shape();
        if shape.bytes(tensor.stored) != Some(extent.len) {
            let text =
                format!("an extent has the wrong length: {} bytes for {} {shape}", extent.len, tensor.stored);
            return Some(place(extent, Finding::error("piece-length", text)));
        }
        filled = filled.zip(shape.elements()).and_then(|(sum, n)| sum.checked_add(n));
    }
    if filled != tensor.shape.elements() {
        let filled = filled.map_or_else(|| "too many".to_owned(), |n| n.to_string());
        let text = format!("the extents cover {filled} of {} elements", tensor.elements());
        return Some(Finding::error("pieces-incomplete", text));
    }
    overlap(tensor)
}

/// Compares extents that overlap along the first dimension, in its order.
fn overlap(tensor: &TensorEntry) -> Option<Finding> {
    let height = |extent: &Extent| extent.shape(&tensor.shape).first().copied().unwrap_or(1);
    let end = |extent: &Extent| extent.first_row().saturating_add(height(extent));
    let mut sorted: Vec<&Extent> = tensor.extents.iter().filter(|p| p.len > 0).collect();
    sorted.sort_by_key(|extent| extent.first_row());
    let mut pairs = 0;
    for (place_of, extent) in sorted.iter().enumerate() {
        let region = extent.region(&tensor.shape);
        for next in sorted[place_of + 1..].iter().take_while(|next| next.first_row() < end(extent)) {
            if region.intersect(&next.region(&tensor.shape)).is_some() {
                let finding = Finding::error("pieces-overlap", "two extents cover the same elements");
                return Some(place(next, finding));
            }
            pairs += 1;
            if pairs > MAX_PAIRS {
                let text = format!("too many extents to compare: {}", tensor.extents.len());
                return Some(Finding::unchecked("pieces-unchecked", text));
            }
        }
    }
    None
}

fn place(extent: &Extent, finding: Finding) -> Finding {
    finding.in_file(extent.source.label()).at(extent.offset)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{source, tensor};
    use super::*;
    use crate::tensor::{DType, Region};

    #[test]
    fn extents_must_cover_the_tensor_once() {
        let memory = source(96);
        let whole = tensor("x", DType::F32, &[4, 6], &memory, 0);
        assert_eq!(extents(&[whole.clone(), tensor("s", DType::F64, &[], &memory, 8)]), []);
        let cut = |boxes: &[([u64; 2], [u64; 2])]| {
            let mut entry = whole.clone();
            let extent = entry.extents[0].clone();
            let part = |(start, shape): &([u64; 2], [u64; 2])| Extent {
                len: shape.iter().product::<u64>() * 4,
                part: Some(Box::new(Region { start: start.to_vec(), shape: shape.to_vec() })),
                ..extent.clone()
            };
            entry.extents = boxes.iter().map(part).collect();
            extents(&[entry]).first().map(|f| f.code.as_str())
        };
        assert_eq!(cut(&[([2, 0], [2, 6]), ([0, 0], [2, 6])]), None);
        assert_eq!(cut(&[([0, 0], [4, 3]), ([0, 3], [4, 3])]), None);
        assert_eq!(cut(&[([0, 0], [4, 3]), ([0, 2], [4, 3])]), Some("pieces-overlap"));
        assert_eq!(cut(&[([0, 0], [4, 3])]), Some("pieces-incomplete"));
        assert_eq!(cut(&[([0, 4], [4, 3])]), Some("piece-outside"));
        assert_eq!(cut(&[]), Some("pieces-incomplete"));
        let change = |edit: fn(&mut Extent)| {
            let mut entry = whole.clone();
            edit(&mut entry.extents[0]);
            extents(&[entry]).first().map(|f| f.code.as_str())
        };
        assert_eq!(change(|p| p.offset = 1), Some("past-the-end"));
        assert_eq!(change(|p| p.len = 92), Some("piece-length"));
    }
}
