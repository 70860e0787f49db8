//! Names for tensors that have none: the sorted parameters of a program (specification section 4).

use crate::checkpoint::{Name, Note, TensorEntry, TensorPath};
use crate::topology::Variable;

/// The path of a variable: one part between each two dots, as everywhere.
pub(super) fn path_of(variable: &str) -> TensorPath {
    TensorPath::from_dotted(variable)
}

/// The path of the k-th tensor of a file without names.
fn numbered(k: usize) -> TensorPath {
    TensorPath::new([Name::from(format!("#{k}").as_str())])
}

/// True where a tensor is what the program declares: -1 stands for any extent.
pub(super) fn agrees(entry: &TensorEntry, variable: &Variable) -> bool {
    variable.dtype.is_none_or(|d| d == entry.stored) && same_shape(entry, variable)
}

/// True where a tensor has the shape that the program declares.
fn same_shape(entry: &TensorEntry, variable: &Variable) -> bool {
    variable.admits(entry.shape.dims())
}

/// True where every tensor is what the program declares at its place.
pub(super) fn fits(entries: &[TensorEntry], parameters: &[&Variable]) -> bool {
    entries.len() == parameters.len() && entries.iter().zip(parameters).all(|(e, v)| agrees(e, v))
}

/// Names the tensors of a combined file. With a program that has as many parameters the k-th one
/// gives the k-th name; where there are more or fewer of them, or of other shapes, the names are
/// guesses.
pub(super) fn name_in_order(
    entries: &mut [TensorEntry],
    parameters: Option<&[&Variable]>,
    program: &str,
) -> Vec<Note> {
    let count = entries.len();
    let Some(parameters) = parameters else {
        for (k, entry) in entries.iter_mut().enumerate() {
            entry.path = numbered(k);
            entry.guessed = true;
        }
        return vec![Note::new(
            "no-names",
            "the file holds no names and no program was found that has them: tensors are numbered; \
             --program FILE names the program",
        )];
    };
    let same_count = parameters.len() == count;
    let same_shapes = entries.iter().zip(parameters).all(|(entry, variable)| same_shape(entry, variable));
    let whole = same_count && same_shapes;
    for (k, entry) in entries.iter_mut().enumerate() {
        match parameters.get(k) {
            Some(variable) => entry.path = path_of(&variable.name),
            None => entry.path = numbered(k),
        }
        entry.guessed = !whole;
    }
    if whole {
        return vec![Note::new("names-joined", format!("the names are those of the program {program}"))];
    }
    if same_count {
        let text = format!(
            "the program {program} declares other shapes: is it of another model? The names are guesses"
        );
        return vec![Note::new("program-differs", text)];
    }
    let text = format!(
        "the program {program} has {} parameters, the file {count} tensors: the names are guesses",
        parameters.len()
    );
    vec![Note::new("parameter-count", text)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::{DType, Encoding, Shape};
    use crate::topology::VariableKind;
    use std::sync::Arc;

    fn entries(count: usize) -> Vec<TensorEntry> {
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 64]));
        let entry = || {
            TensorEntry::dense(TensorPath::value(), DType::F32, Shape::new([2]), &source, 0, Encoding::ROW)
        };
        (0..count).map(|_| entry().unwrap()).collect()
    }

    fn variable(name: &str, shape: &[i64]) -> Variable {
        Variable {
            name: name.to_owned(),
            kind: VariableKind::Tensor,
            dtype: Some(DType::F32),
            dtype_name: None,
            shape: Some(shape.to_vec()),
            lod_level: 0,
            persistable: true,
            parameter: false,
            stop_gradient: false,
        }
    }

    #[test]
    fn names_by_place() {
        let (a, b) = (variable("fc_10.w_0", &[2]), variable("fc_2.w_0", &[-1]));
        let mut two = entries(2);
        assert!(fits(&two, &[&a, &b]));
        let notes = name_in_order(&mut two, Some(&[&a, &b]), "p");
        assert_eq!(
            (notes[0].code, two[1].text(), two[1].guessed),
            ("names-joined", "fc_2.w_0".into(), false)
        );
        let mut three = entries(3);
        let notes = name_in_order(&mut three, Some(&[&a, &b]), "p");
        assert_eq!(
            (notes[0].code, three[2].text(), three[0].guessed),
            ("parameter-count", "#2".into(), true)
        );
        let notes = name_in_order(&mut three, None, "");
        assert_eq!((notes[0].code, three[0].text()), ("no-names", "#0".into()));
        assert!(!fits(&entries(1), &[&variable("x", &[3])]));
    }
}
