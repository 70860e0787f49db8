//! Text edits: replacement of byte ranges, in order.

use std::ops::Range;

/// Byte ranges of a text with their replacements.
#[derive(Debug, Default)]
pub(super) struct Edits {
    pieces: Vec<(Range<usize>, String)>,
}

impl Edits {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Replaces `piece` by `text`.
    pub(super) fn replace(&mut self, piece: Range<usize>, text: String) {
        self.pieces.push((piece, text));
    }

    /// Removes elements with their commas from the array at `list`, so that it stays a valid array. `elements` are
    /// all elements in order, each with a flag for removal.
    pub(super) fn remove(&mut self, list: &Range<usize>, elements: &[(Range<usize>, bool)]) {
        let Some(first_kept) = elements.iter().position(|(_, goes)| !goes) else {
            if !elements.is_empty() {
                self.replace(list.clone(), "[]".to_owned());
            }
            return;
        };
        if first_kept > 0 {
            self.replace(elements[0].0.start..elements[first_kept].0.start, String::new());
        }
        for pair in elements[first_kept..].windows(2) {
            if pair[1].1 {
                self.replace(pair[0].0.end..pair[1].0.end, String::new());
            }
        }
    }

    /// Returns the text with all edits. An edit within another one is dropped.
    pub(super) fn apply(mut self, bytes: &[u8]) -> Vec<u8> {
        // Among edits with the same start the longest comes first.
        self.pieces.sort_by_key(|(piece, _)| (piece.start, std::cmp::Reverse(piece.end)));
        let mut result = Vec::with_capacity(bytes.len());
        let mut done = 0;
        for (piece, text) in self.pieces {
            if piece.start < done {
                continue;
            }
            result.extend_from_slice(&bytes[done..piece.start]);
            result.extend_from_slice(text.as_bytes());
            done = piece.end;
        }
        result.extend_from_slice(&bytes[done..]);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `[0,1,2,3]` without those elements.
    fn without(gone: &[usize]) -> String {
        let text = "x[ 0 , 1, 2,3 ]y";
        let places = [3, 7, 10, 12];
        let elements: Vec<_> = (0..4).map(|i| (places[i]..places[i] + 1, gone.contains(&i))).collect();
        let mut edits = Edits::default();
        edits.remove(&(1..15), &elements);
        String::from_utf8(edits.apply(text.as_bytes())).unwrap()
    }

    #[test]
    fn removes_elements_and_keeps_a_valid_array() {
        for mask in 0..16_usize {
            let gone: Vec<_> = (0..4).filter(|i| mask & (1 << i) != 0).collect();
            let kept: Vec<_> = (0..4).filter(|i| mask & (1 << i) == 0).collect();
            let text = without(&gone);
            let inner = text.strip_prefix('x').unwrap().strip_suffix('y').unwrap();
            assert_eq!(serde_json::from_str::<Vec<usize>>(inner).unwrap(), kept, "{text}");
        }
        assert_eq!(without(&[]), "x[ 0 , 1, 2,3 ]y");
        assert_eq!(without(&[0, 1, 2, 3]), "x[]y");
    }

    #[test]
    fn applies_the_outer_of_two_nested_edits() {
        let mut edits = Edits::default();
        edits.replace(2..3, "inner".into());
        edits.replace(1..4, "outer".into());
        assert_eq!(edits.apply(b"abcdef"), b"aouteref");
    }
}
