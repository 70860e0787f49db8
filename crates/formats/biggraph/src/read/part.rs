//! Embeddings partition of a type.

use super::super::state;
use super::file::{File, numbers};
use super::optimizer::{UnreadableState, optimizer_value, state_of};
use weighbridge_core::checkpoint::{Name, Note, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;

/// Slot of row-wise Adagrad: the sum of squared gradients of each row.
pub(in super::super) const SUM: &str = "sum";
/// Slot of the number of optimizer calls.
pub(in super::super) const STEP: &str = "step";

/// Opened partition.
#[derive(Debug)]
pub(super) struct Part {
    /// Rows, as a separate tensor.
    pub(super) rows: TensorEntry,
    /// Sums of the optimizer.
    pub(super) sum: Option<TensorEntry>,
    /// Step of the optimizer, if stored as an integer.
    pub(super) step: Option<Value>,
    /// Options of the optimizer; `Null` without state.
    pub(super) optimizer: Value,
    /// Root attributes.
    pub(super) attributes: Vec<(Name, Value)>,
    /// Notes.
    pub(super) notes: Vec<Note>,
}

/// Path of the table of a type.
pub(in super::super) fn table_path(entity: Option<&str>) -> TensorPath {
    let parts = std::iter::once("embeddings").chain(entity);
    TensorPath::new(parts.map(Name::from).collect::<Vec<_>>())
}

/// Opens the file of a partition, with its type if the file name contains it.
///
/// # Errors
/// Errors of [`File::open`]; `dataset-missing`, `dataset-type`.
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
        Err(UnreadableState(note)) => part.notes.push(note),
    }
    part.notes.splice(0..0, file.notes);
    Ok(part)
}

impl Part {
    /// Number of rows, if it is a table.
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
        Err(Error::corrupt("embeddings-shape", "an embedding table must have two dimensions")
            .in_file(source.label())
            .on_tensor(&self.rows.path)
            .expected("a shape (rows, dimension)")
            .found(&self.rows.shape))
    }

    /// Takes the optimizer state of the single parameter of a partition.
    fn take(&mut self, state: state::State, label: &str) {
        let note = |code, text: String| Note::omission(code, format!("{label}: {text}"));
        self.optimizer = optimizer_value(&state);
        for name in &state.unknown {
            self.notes.push(note("state-unknown-key", format!("unknown key {name} in the optimizer state")));
        }
        let wanted = state.parameters.first().copied().unwrap_or(0);
        let slots = state.state.iter().filter(|one| one.parameter == wanted).flat_map(|one| &one.tensors);
        if !slots.into_iter().any(|(name, _)| name == SUM) {
            let text = format!("{label}: the optimizer state lacks `{SUM}` of the rows");
            self.notes.push(Note::new("state-incomplete", text));
        }
        for one in state.state {
            if one.parameter != wanted {
                let text = format!("the optimizer state has an unexpected parameter {}", one.parameter);
                self.notes.push(note("state-parameters", text));
                continue;
            }
            for (name, value) in one.values {
                match name.as_str() {
                    STEP => self.step = Some(value),
                    _ => self.notes.push(note(
                        "state-unknown-key",
                        format!("unknown key {name} in the optimizer state"),
                    )),
                }
            }
            for (name, mut entry) in one.tensors {
                if name != SUM {
                    self.notes.push(note(
                        "state-unknown-key",
                        format!("unknown tensor {name} in the optimizer state"),
                    ));
                } else if entry.shape.dims() != self.rows.shape.dims().get(..1).unwrap_or_default() {
                    let text = format!(
                        "the optimizer sums have shape {}, the table {}",
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
