//! One partition of the embeddings of a type.

use super::super::state;
use super::file::{File, numbers};
use super::optimizer::{Broken, optimizer_value, state_of};
use weighbridge_core::checkpoint::{Name, Note, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;

/// The slot of row-wise Adagrad: for each row the sum of what its gradients were.
pub(in super::super) const SUM: &str = "sum";
/// How often the optimizer was called.
pub(in super::super) const STEP: &str = "step";

/// A partition that was opened.
#[derive(Debug)]
pub(super) struct Part {
    /// Its rows, as a tensor of its own.
    pub(super) rows: TensorEntry,
    /// The sums of the optimizer.
    pub(super) sum: Option<TensorEntry>,
    /// The optimizer's step, where it is an integer beside the sums.
    pub(super) step: Option<Value>,
    /// The options of the optimizer; `Null` where there is no state.
    pub(super) optimizer: Value,
    /// The attributes of the root.
    pub(super) attributes: Vec<(Name, Value)>,
    /// What is odd.
    pub(super) notes: Vec<Note>,
}

/// The path of the table of a type.
pub(in super::super) fn table_path(entity: Option<&str>) -> TensorPath {
    let parts = std::iter::once("embeddings").chain(entity);
    TensorPath::new(parts.map(Name::from).collect::<Vec<_>>())
}

/// Opens the file of a partition; its type where the name of the file tells it.
///
/// # Errors
/// What [`File::open`] says; `dataset-missing`, `dataset-type`.
pub(super) fn open(source: &SourceRef, entity: Option<&str>, options: &OpenOptions) -> Result<Part> {
    let mut file = File::open(source, options)?;
    file.note_unknown(|path| {
        matches!(path, [one] if one == "embeddings")
            || matches!(path, [group, blob] if group == "optimizer" && blob == "state_dict")
    });
    let path = table_path(entity);
    let dataset = file.dataset(&["embeddings"]).ok_or_else(|| file.missing(&["embeddings"]))?;
    let mut rows = numbers(dataset, path.clone()).map_err(|e| e.in_file(source.label()))?;
    rows.role = Role::Embedding;
    let mut part = Part {
        rows,
        sum: None,
        step: None,
        optimizer: Value::Null,
        attributes: file.attributes(),
        notes: Vec::new(),
    };
    match state_of(&file, options) {
        Ok(Some(state)) => part.take(state, source.label()),
        Ok(None) => {}
        Err(Broken(note)) => part.notes.push(note),
    }
    part.notes.splice(0..0, file.notes);
    Ok(part)
}

impl Part {
    /// The number of rows, where it is a table.
    pub(super) fn row_count(&self) -> Option<u64> {
        match self.rows.shape.dims() {
            [rows, _] => Some(*rows),
            _ => None,
        }
    }

    /// Fails unless the rows are a table of two dimensions.
    pub(super) fn check_table(&self, source: &SourceRef) -> Result<()> {
        if self.rows.shape.rank() == 2 {
            return Ok(());
        }
        Err(Error::corrupt("embeddings-shape", "a table of embeddings has rows and columns")
            .in_file(source.label())
            .on_tensor(&self.rows.path)
            .expected("a shape (rows, dimension)")
            .found(&self.rows.shape))
    }

    /// Takes what the optimizer remembers about the only parameter of a partition.
    fn take(&mut self, state: state::State, label: &str) {
        let note = |code, text: String| Note::omission(code, format!("{label}: {text}"));
        self.optimizer = optimizer_value(&state);
        for name in &state.unknown {
            self.notes.push(note("state-unknown-key", format!("the optimizer's state has a key {name}")));
        }
        let wanted = state.parameters.first().copied().unwrap_or(0);
        let slots = state.state.iter().filter(|one| one.parameter == wanted).flat_map(|one| &one.tensors);
        if !slots.into_iter().any(|(name, _)| name == SUM) {
            let text = format!("{label}: the optimizer's state has no `{SUM}` of the rows");
            self.notes.push(Note::new("state-incomplete", text));
        }
        for one in state.state {
            if one.parameter != wanted {
                let text = format!("the optimizer's state is of a parameter {}", one.parameter);
                self.notes.push(note("state-parameters", text));
                continue;
            }
            for (name, value) in one.values {
                match name.as_str() {
                    STEP => self.step = Some(value),
                    _ => self.notes.push(note("state-unknown-key", format!("the state has a key {name}"))),
                }
            }
            for (name, mut entry) in one.tensors {
                if name != SUM {
                    self.notes.push(note("state-unknown-key", format!("the state has a tensor {name}")));
                } else if entry.shape.dims() != self.rows.shape.dims().get(..1).unwrap_or_default() {
                    let text = format!(
                        "the optimizer's sums have the shape {}, the table {}",
                        entry.shape, self.rows.shape
                    );
                    self.notes.push(note("state-shape", text));
                } else {
                    entry.path = self.rows.path.clone();
                    entry.role = Role::OptimizerState { slot: Name::from(SUM) };
                    self.sum = Some(entry);
                }
            }
        }
    }
}
