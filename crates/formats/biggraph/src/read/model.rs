//! Model file: parameters of operators, and global embeddings of types.

use super::super::config::Config;
use super::file::{File, entry_attributes, numbers};
use super::notes;
use super::optimizer::{UnreadableState, optimizer_value, state_of};
use super::part::{STEP, SUM};
use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Name, Note, Role, TensorEntry, TensorPath, Value};
use weighbridge_core::error::Result;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;

/// Group of parameters.
const MODEL: &str = "model";

/// Opened model file.
#[derive(Debug)]
pub(super) struct Model {
    /// Parameters in file order, each followed by its state.
    pub(super) tensors: Vec<TensorEntry>,
    /// Options of the optimizer; `Null` without state.
    pub(super) optimizer: Value,
    /// Root attributes.
    pub(super) attributes: Vec<(Name, Value)>,
    /// Notes.
    pub(super) notes: Vec<Note>,
}

/// Opens a model file. The optimizer state numbers its parameters. The configuration that is `given` maps numbers
/// to parameters, else the one in the file, else the one `beside` it.
///
/// # Errors
/// Errors of [`File::open`]; `dataset-type`.
pub(super) fn open(
    source: &SourceRef,
    given: Option<&Config>,
    beside: Option<&Config>,
    options: &OpenOptions,
) -> Result<Model> {
    let mut file = File::open(source, options)?;
    file.note_unknown(|path| {
        path.first().is_some_and(|group| group == MODEL)
            || path.iter().map(String::as_str).eq(super::optimizer::STATE)
    });
    let mut parameters = Vec::new();
    for item in file.items() {
        let (Some(dataset), Some((group, rest))) = (&item.dataset, item.path.split_first()) else { continue };
        if group != MODEL || rest.is_empty() {
            continue;
        }
        let path = TensorPath::new(rest.iter().map(|part| Name::from(part.as_str())).collect::<Vec<_>>());
        let mut entry = numbers(dataset, path).map_err(|e| e.in_file(source.label()))?;
        entry.attributes = entry_attributes(&item.attributes);
        parameters.push(entry);
    }
    let own = file.config_text().and_then(super::config::lenient);
    let config = given.or(own.as_ref()).or(beside);
    let mut found = Model {
        tensors: Vec::new(),
        optimizer: Value::Null,
        attributes: file.attributes(),
        notes: std::mem::take(&mut file.notes),
    };
    let mut states = HashMap::new();
    match state_of(&file, options) {
        Ok(Some(state)) => {
            found.optimizer = optimizer_value(&state);
            states = assign(state, config, &parameters, source.label(), &mut found.notes);
        }
        Ok(None) => {}
        Err(UnreadableState(note)) => found.notes.push(note),
    }
    for parameter in parameters {
        let state = states.remove(&parameter.path);
        found.tensors.push(parameter);
        found.tensors.extend(state.into_iter().flatten());
    }
    // The general check reports state of missing parameters.
    let mut rest: Vec<TensorEntry> = states.into_values().flatten().collect();
    rest.sort_by(|a, b| (&a.path, a.role.slot()).cmp(&(&b.path, b.role.slot())));
    found.tensors.extend(rest);
    Ok(found)
}

/// Assigns each number of the state to its parameter.
fn assign(
    state: super::super::state::State,
    config: Option<&Config>,
    parameters: &[TensorEntry],
    label: &str,
    remarks: &mut Vec<Note>,
) -> HashMap<TensorPath, Vec<TensorEntry>> {
    let mut note = |code, text: String| {
        let text = format!("{label}: {text}");
        // Nothing is omitted where the file itself is incomplete.
        remarks.push(if code == "state-incomplete" {
            Note::new(code, text)
        } else {
            Note::omission(code, text)
        });
    };
    for name in &state.unknown {
        note("state-unknown-key", format!("unknown key {name} in the optimizer state"));
    }
    let mut found: HashMap<TensorPath, Vec<TensorEntry>> = HashMap::new();
    if state.state.is_empty() && state.parameters.is_empty() {
        // An empty dict is the state of a model without parameters.
        if !parameters.is_empty() {
            let text =
                format!("the optimizer state has no parameters, but the model has {}", parameters.len());
            note("state-incomplete", text);
        }
        return found;
    }
    let Some(config) = config else {
        note(
            "state-parameters",
            "optimizer state dropped: without a configuration its parameters are unknown".to_owned(),
        );
        return found;
    };
    let Some(order) = super::config::parameters(config) else {
        note(
            "state-parameters",
            "optimizer state dropped: the configuration has unknown operators".to_owned(),
        );
        return found;
    };
    if order.len() != state.parameters.len() {
        let text = format!(
            "optimizer state dropped: it has {} parameters, the configuration {}",
            state.parameters.len(),
            order.len()
        );
        note("state-parameters", text);
        return found;
    }
    let order = order.iter().map(|(path, _)| path);
    let paths: HashMap<i64, &TensorPath> = state.parameters.iter().copied().zip(order).collect();
    let shapes: HashMap<&TensorPath, &TensorEntry> = parameters.iter().map(|p| (&p.path, p)).collect();
    // Entries that upstream's optimizer reads for each of its parameters.
    let complete: HashSet<i64> =
        state.state.iter().filter(|one| one.is_complete()).map(|one| one.parameter).collect();
    let lacking = state.parameters.iter().filter(|number| !complete.contains(number));
    let lacking: Vec<String> =
        lacking.filter_map(|number| paths.get(number)).map(|path| path.to_string()).collect();
    if !lacking.is_empty() {
        let text = format!("the optimizer state lacks `{SUM}` or `{STEP}` of {}", notes::some(lacking));
        note("state-incomplete", text);
    }
    for one in state.state {
        let Some(&path) = paths.get(&one.parameter) else {
            note("state-parameters", format!("the optimizer state has an extra parameter {}", one.parameter));
            continue;
        };
        let tensors = found.entry(path.clone()).or_default();
        for (name, mut entry) in one.tensors {
            let wrong = name != STEP && shapes.get(path).is_some_and(|p| p.shape != entry.shape);
            if wrong {
                note(
                    "state-shape",
                    format!("the optimizer state {name} of {path} has shape {}", entry.shape),
                );
                continue;
            }
            entry.path = path.clone();
            entry.role = Role::OptimizerState { slot: Name::from(name.as_str()) };
            tensors.push(entry);
        }
        for (name, value) in one.values {
            match tensors.last_mut() {
                Some(last) => {
                    last.attributes.insert(name, value);
                }
                None => {
                    note("state-unknown-key", format!("the optimizer state {name} of {path} is not a tensor"))
                }
            }
        }
    }
    found
}
