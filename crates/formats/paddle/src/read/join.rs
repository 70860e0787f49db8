//! Names for nameless tensors from the sorted parameters of a program (specification section 4).

use weighbridge_core::checkpoint::{Name, Note, TensorEntry, TensorPath};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::topology::{Quantized, Topology, Variable, VariableKind};

/// Returns the path of a variable, split at its dots.
pub(super) fn path_of(variable: &str) -> TensorPath {
    TensorPath::from_dotted(variable)
}

/// Returns the path of the k-th tensor of a file without names.
fn numbered(k: usize) -> TensorPath {
    TensorPath::new([Name::from(format!("#{k}").as_str())])
}

/// True if a tensor matches its declaration in the program. -1 matches any size.
pub(super) fn agrees(entry: &TensorEntry, variable: &Variable, quantized: &Quantized<'_>) -> bool {
    quantized.admits_dtype(variable, entry.stored) && quantized.admits(variable, entry.shape.dims())
}

/// Returns the tensor parameters of a program in file order, and the number of its vocabularies.
fn tensors_of(program: &Topology) -> (Vec<&Variable>, usize) {
    let mut parameters = program.parameters();
    let all = parameters.len();
    parameters.retain(|variable| variable.kind != VariableKind::Vocab);
    let words = all - parameters.len();
    (parameters, words)
}

/// True if the tensors of a file without vocabularies match the declarations of the program in order.
pub(super) fn fits(entries: &[TensorEntry], program: &Topology) -> bool {
    let ((parameters, words), quantized) = (tensors_of(program), program.quantized());
    words == 0
        && entries.len() == parameters.len()
        && entries.iter().zip(parameters).all(|(e, v)| agrees(e, v, &quantized))
}

/// Names the tensors of a combined file. If the counts agree (vocabularies aside), the k-th parameter names
/// the k-th tensor. If counts or shapes differ, the names are guesses. `label` is the name of the program in notes, or that
/// of the file if there is no program.
pub(super) fn name_in_order(
    entries: &mut [TensorEntry],
    program: Option<&Topology>,
    label: &str,
) -> Vec<Note> {
    let count = entries.len();
    let Some(program) = program else {
        for (k, entry) in entries.iter_mut().enumerate() {
            entry.path = numbered(k);
            entry.guessed = true;
        }
        return vec![Note::new(
            "no-names",
            phrase![
                format_args!(
                    "{label} has no names, and no program with names was found: tensors are numbered; give the program with "
                ),
                Opt::Program.any("FILE")
            ],
        )];
    };
    let (parameters, _) = tensors_of(program);
    let quantized = program.quantized();
    let same_count = parameters.len() == count;
    let same_shapes = entries
        .iter()
        .zip(&parameters)
        .all(|(entry, variable)| quantized.admits(variable, entry.shape.dims()));
    let whole = same_count && same_shapes;
    for (k, entry) in entries.iter_mut().enumerate() {
        match parameters.get(k) {
            Some(variable) => entry.path = path_of(&variable.name),
            None => entry.path = numbered(k),
        }
        entry.guessed = !whole;
    }
    if whole {
        return vec![Note::new(
            "names-joined",
            format!("tensors are named after the parameters of the program {label}"),
        )];
    }
    if same_count {
        let text = format!(
            "the program {label} declares other shapes and may belong to another model: the names are guesses"
        );
        return vec![Note::new("program-differs", text)];
    }
    let text = format!(
        "the program {label} has {} parameters, the file has {count} tensors: the names are guesses",
        parameters.len()
    );
    vec![Note::new("parameter-count", text)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_core::tensor::{DType, Encoding, Shape};
    use weighbridge_core::topology::Block;
    use weighbridge_io::source::{MemorySource, SourceRef};

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

    fn program(variables: Vec<Variable>) -> Topology {
        Topology {
            form: "program-desc",
            writer: None,
            bytes: Arc::new([]),
            blocks: vec![Block { variables, ..Block::default() }],
            feeds: Vec::new(),
            fetches: Vec::new(),
            operator_versions: Vec::new(),
        }
    }

    #[test]
    fn vocabularies_are_not_counted_as_tensors() {
        let words = Variable { kind: VariableKind::Vocab, ..variable("words", &[]) };
        let program = self::program(vec![variable("fc_0.w_0", &[2]), words]);
        let mut one = entries(1);
        // A file without vocabularies does not fit this program. If it is assigned, its tensors still get their names.
        assert!(!fits(&one, &program));
        assert_eq!(name_in_order(&mut one, Some(&program), "p")[0].code, "names-joined");
    }

    #[test]
    fn names_tensors_by_position() {
        let program = self::program(vec![variable("fc_10.w_0", &[2]), variable("fc_2.w_0", &[-1])]);
        let mut two = entries(2);
        assert!(fits(&two, &program));
        let notes = name_in_order(&mut two, Some(&program), "p");
        assert_eq!(
            (notes[0].code.as_str(), two[1].text(), two[1].guessed),
            ("names-joined", "fc_2.w_0".into(), false)
        );
        let mut three = entries(3);
        let notes = name_in_order(&mut three, Some(&program), "p");
        assert_eq!(
            (notes[0].code.as_str(), three[2].text(), three[0].guessed),
            ("parameter-count", "#2".into(), true)
        );
        let notes = name_in_order(&mut three, None, "");
        assert_eq!((notes[0].code.as_str(), three[0].text()), ("no-names", "#0".into()));
        assert!(!fits(&entries(1), &self::program(vec![variable("x", &[3])])));
    }
}
