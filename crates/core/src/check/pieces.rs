//! The pieces of a tensor: within their sources, and together the whole of it, once.

use crate::checkpoint::{Piece, TensorEntry};
use crate::finding::Finding;

/// Pairs of pieces that are compared for one tensor before it is left unchecked.
const MOST_PAIRS: u64 = 10_000_000;

/// Holds the pieces of every tensor against their sources and against its shape: `past-the-end`,
/// `piece-outside`, `piece-length`, `pieces-overlap`, `pieces-incomplete`. At most one finding a
/// tensor.
pub fn pieces(tensors: &[TensorEntry]) -> Vec<Finding> {
    tensors.iter().filter_map(|t| one(t).map(|finding| finding.on_tensor(t.name()))).collect()
}

fn one(tensor: &TensorEntry) -> Option<Finding> {
    let mut filled = Some(0u64);
    for piece in &tensor.pieces {
        if let Err(error) = crate::source::check_range(&*piece.source, piece.offset, piece.len) {
            return Finding::from_error(&error);
        }
        let region = piece.region(&tensor.shape);
        if !region.fits(&tensor.shape) {
            return Some(place(
                piece,
                Finding::error("piece-outside", "its bytes fill a box that leaves it"),
            ));
        }
        let shape = region.shape();
        if shape.bytes(tensor.stored) != Some(piece.len) {
            let text = format!("{} bytes are given for {} of {shape}", piece.len, tensor.stored);
            return Some(place(piece, Finding::error("piece-length", text)));
        }
        filled = filled.zip(shape.elements()).and_then(|(sum, n)| sum.checked_add(n));
    }
    if filled != tensor.shape.elements() {
        let filled = filled.map_or_else(|| "too many".to_owned(), |n| n.to_string());
        let text = format!("{filled} of {} elements have bytes", tensor.elements());
        return Some(Finding::error("pieces-incomplete", text));
    }
    overlap(tensor)
}

/// Compares pieces that meet along the first dimension, in its order.
fn overlap(tensor: &TensorEntry) -> Option<Finding> {
    let extent = |piece: &Piece| piece.extent(&tensor.shape).first().copied().unwrap_or(1);
    let end = |piece: &Piece| piece.first_row().saturating_add(extent(piece));
    let mut sorted: Vec<&Piece> = tensor.pieces.iter().filter(|p| p.len > 0).collect();
    sorted.sort_by_key(|piece| piece.first_row());
    let mut pairs = 0;
    for (place_of, piece) in sorted.iter().enumerate() {
        let region = piece.region(&tensor.shape);
        for next in sorted[place_of + 1..].iter().take_while(|next| next.first_row() < end(piece)) {
            if region.intersect(&next.region(&tensor.shape)).is_some() {
                let finding = Finding::error("pieces-overlap", "two ranges of bytes fill the same elements");
                return Some(place(next, finding));
            }
            pairs += 1;
            if pairs > MOST_PAIRS {
                let text = format!("its {} pieces are too many to compare", tensor.pieces.len());
                return Some(Finding::unchecked("pieces-unchecked", text));
            }
        }
    }
    None
}

fn place(piece: &Piece, finding: Finding) -> Finding {
    finding.in_file(piece.source.label()).at(piece.offset)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{source, tensor};
    use super::*;
    use crate::tensor::{DType, Region};

    #[test]
    fn a_tensor_is_its_pieces() {
        let memory = source(96);
        let whole = tensor("x", DType::F32, &[4, 6], &memory, 0);
        assert_eq!(pieces(&[whole.clone(), tensor("s", DType::F64, &[], &memory, 8)]), []);
        let cut = |boxes: &[([u64; 2], [u64; 2])]| {
            let mut entry = whole.clone();
            let piece = entry.pieces[0].clone();
            let part = |(start, extent): &([u64; 2], [u64; 2])| Piece {
                len: extent.iter().product::<u64>() * 4,
                part: Some(Box::new(Region { start: start.to_vec(), extent: extent.to_vec() })),
                ..piece.clone()
            };
            entry.pieces = boxes.iter().map(part).collect();
            pieces(&[entry]).first().map(|f| f.code.as_str())
        };
        assert_eq!(cut(&[([2, 0], [2, 6]), ([0, 0], [2, 6])]), None);
        assert_eq!(cut(&[([0, 0], [4, 3]), ([0, 3], [4, 3])]), None);
        assert_eq!(cut(&[([0, 0], [4, 3]), ([0, 2], [4, 3])]), Some("pieces-overlap"));
        assert_eq!(cut(&[([0, 0], [4, 3])]), Some("pieces-incomplete"));
        assert_eq!(cut(&[([0, 4], [4, 3])]), Some("piece-outside"));
        assert_eq!(cut(&[]), Some("pieces-incomplete"));
        let change = |edit: fn(&mut Piece)| {
            let mut entry = whole.clone();
            edit(&mut entry.pieces[0]);
            pieces(&[entry]).first().map(|f| f.code.as_str())
        };
        assert_eq!(change(|p| p.offset = 1), Some("past-the-end"));
        assert_eq!(change(|p| p.len = 92), Some("piece-length"));
    }
}
