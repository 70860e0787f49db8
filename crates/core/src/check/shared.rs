//! Check for bytes shared by tensors.

use super::file_extents::{FileExtent, plain};
use crate::checkpoint::{Attributes, TensorEntry};
use crate::finding::Finding;
use crate::text::counted;

/// Reports bytes shared by tensors: the error `tensors-overlap` for partial overlaps, and one note `shared-bytes` for equal
/// ranges, which is how a tensor with two names is stored. With `views`, tensors of one storage may overlap, as in PyTorch.
pub fn shared_bytes(tensors: &[TensorEntry], views: bool) -> Vec<Finding> {
    let (mut findings, mut shared) = (Vec::new(), Vec::new());
    for file in plain(tensors) {
        let mut last: Option<&FileExtent> = None;
        for place in file.extents.iter().filter(|p| p.end > p.start) {
            match last {
                Some(before) if place.start < before.end => {
                    let same = (place.start, place.end) == (before.start, before.end);
                    if same || (views && of_one_storage(before.entry, place.entry)) {
                        shared.push(place.entry.text());
                    } else {
                        let text = format!("tensor data overlaps with {}", before.entry.name());
                        findings.push(
                            Finding::error("tensors-overlap", text)
                                .in_file(file.source.label())
                                .at(place.start)
                                .on_tensor(place.entry.name()),
                        );
                    }
                    if place.end > before.end {
                        last = Some(place);
                    }
                }
                _ => last = Some(place),
            }
        }
    }
    if !shared.is_empty() {
        let names = super::listed(shared.iter().map(String::as_str));
        let text = format!(
            "{} the bytes of another tensor: {names}",
            counted(shared.len(), "tensor shares", "tensors share")
        );
        findings.push(Finding::note("shared-bytes", text));
    }
    findings
}

/// Returns true for views of one storage, which may overlap in files of PyTorch. In other formats the attribute describes the
/// original file only.
fn of_one_storage(a: &TensorEntry, b: &TensorEntry) -> bool {
    a.text_attribute(Attributes::STORAGE)
        .is_some_and(|storage| b.text_attribute(Attributes::STORAGE) == Some(storage))
}

#[cfg(test)]
mod tests {
    use super::super::testing::tensor;
    use super::*;
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::DType;
    use std::sync::Arc;

    #[test]
    fn overlaps_are_errors_and_aliases_are_notes() {
        let memory: SourceRef = Arc::new(MemorySource::new("m", vec![1; 64]));
        let at = |name: &str, offset, len| tensor(name, DType::U8, &[len], &memory, offset);
        assert_eq!(shared_bytes(&[at("a", 0, 8), at("b", 8, 8), at("none", 4, 0)], false), []);
        let alias = shared_bytes(&[at("a", 0, 8), at("b", 0, 8)], false);
        assert_eq!((alias.len(), alias[0].code.as_str()), (1, "shared-bytes"));
        // The long tensor overlaps with both that follow.
        let wrong = shared_bytes(&[at("long", 0, 40), at("b", 4, 4), at("c", 30, 8), at("d", 40, 1)], false);
        let found: Vec<_> = wrong.iter().map(|f| (f.code.as_str(), f.tensor.as_deref())).collect();
        assert_eq!(found, [("tensors-overlap", Some("b")), ("tensors-overlap", Some("c"))]);
    }
}
